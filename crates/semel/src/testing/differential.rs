//! The differential test: random calls, played on several stores at once, must be answered alike by all of them.
//!
//! The world is small on purpose (a few keys, tokens, nodes, labels), so that calls meet: equal starts, stolen tokens,
//! zombies, restarts of what has been forked, deliveries to what has ended. Every answer is compared, errors with their
//! text; only a run's short number may differ. At the end everything that can be read is compared, and every store by
//! itself is checked for consistency ([`World`]s are compared with the first, so put the reference first).

mod call;
mod player;
mod sound;

use std::fmt;

pub use call::{Act, Call, calls};

use super::suite::World;
use player::Player;

/// The first answer in which two stores differ, and the calls that lead there.
#[derive(Debug)]
pub struct Difference(String);

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Difference {}

/// Plays the same calls in every world and compares what they answer with what the first answers. The worlds must be
/// fresh. With one world only its own soundness is checked.
pub async fn compare(worlds: &[World], calls: &[Call]) -> Result<(), Difference> {
    let mut players = Vec::new();
    for world in worlds {
        players.push(Player::new(world).await);
    }
    for (n, call) in calls.iter().enumerate() {
        let mut answers = Vec::new();
        for player in &mut players {
            answers.push(player.play(call).await);
        }
        same(&answers, || format!("call {n}, {call:?}"))?;
    }
    let mut ends = Vec::new();
    for player in &mut players {
        ends.push(player.look_at_everything().await);
    }
    for lines in (0..ends[0].len()).map(|i| ends.iter().map(|end| end[i].clone()).collect::<Vec<_>>()) {
        same(&lines, || "the end".to_owned())?;
    }
    for (n, player) in players.iter_mut().enumerate() {
        player.check().await.map_err(|what| Difference(format!("store {n} is not sound: {what}")))?;
    }
    Ok(())
}

fn same(answers: &[String], at: impl Fn() -> String) -> Result<(), Difference> {
    match answers.iter().enumerate().find(|(_, answer)| **answer != answers[0]) {
        None => Ok(()),
        Some((n, answer)) => {
            Err(Difference(format!("at {}\nstore 0 says {}\nstore {n} says {answer}", at(), answers[0])))
        }
    }
}
