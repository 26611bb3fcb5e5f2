//! Tasks of definitions: a crash at every durable write of each of them, with other systems that really answer.

mod again;
mod agents;
mod crashes;
pub(crate) mod order;
mod outcomes;
mod play;
mod provider;
mod unusual;
#[cfg(feature = "tasks")]
mod whole;
mod zombies;

use libtest_mimic::Trial;

pub(crate) use play::{Stage, crasher};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = vec![
        again::trials(),
        agents::trials(),
        crashes::trials(),
        outcomes::trials(),
        unusual::trials(),
        zombies::trials(),
    ];
    #[cfg(feature = "tasks")]
    trials.push(whole::trials());
    trials.into_iter().flatten().collect()
}
