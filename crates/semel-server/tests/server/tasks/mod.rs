//! Tasks of definitions: a crash at every durable write of each of them, with other systems that really answer.

mod again;
mod crashes;
pub(crate) mod order;
mod outcomes;
mod play;
mod provider;
mod unusual;
mod zombies;

use libtest_mimic::Trial;

pub(crate) use play::{Stage, crasher};

pub(crate) fn trials() -> Vec<Trial> {
    [again::trials(), crashes::trials(), outcomes::trials(), unusual::trials(), zombies::trials()]
        .into_iter()
        .flatten()
        .collect()
}
