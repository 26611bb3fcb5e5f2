//! Servers that are careless with their disk on purpose: a power cut shows each of them.

use libtest_mimic::{Failed, Trial};
use semel::clock::SystemClock;
use semel::sabotage::Bug;
use semel::testing::Dice;

use super::{CUTS, Life, SyncError, cuts, record};

/// What a server has to live through until the bug can show.
const BUGS: [(Bug, Life); 6] = [
    (Bug::SyncNever, Life::of(150)),
    (Bug::SyncAtCheckpoints, Life::of(150)),
    (Bug::AnswerBeforeSync, Life::of(150)),
    // Long enough for checkpoints.
    (Bug::CheckpointWithoutSync, Life::of(1_000)),
    (Bug::TrustFailedCheckpoint, Life::of(2_000).with_failed_checkpoints(SyncError::Cached)),
    (Bug::AssumeFailedCommit, Life::of(150).with_errors(SyncError::Cached)),
];

pub(super) fn trials() -> Vec<Trial> {
    let trial = |(bug, life): (Bug, Life)| {
        let name = format!("power::a_cut_shows_{}", bug.name().replace('-', "_"));
        Trial::test(name, move || crate::runtime().block_on(caught(bug, life)))
    };
    BUGS.into_iter().map(trial).collect()
}

/// What a server does is not the same every time; some bugs need a checkpoint at the wrong moment.
const RECORDINGS: u64 = 4;

async fn caught(bug: Bug, life: Life) -> Result<(), Failed> {
    let clock = SystemClock::new();
    for seed in 1..=RECORDINGS {
        let recording = record(&[life], Some(bug.name())).await?;
        let mut places = cuts(&recording.journal, &mut Dice::new(seed), CUTS);
        // The more was acknowledged, the more can be lost: so not in the first half of all answers.
        let half =
            recording.acknowledged.get(recording.acknowledged.len() / 2).map(|acknowledged| acknowledged.at);
        places.retain(|place| Some(*place) >= half);
        let found = recording.examine(&places, seed, true)?;
        if let Some((cuts, how)) = found.wrong.first() {
            let took = clock.elapsed().as_secs_f32();
            println!("{} | power loss | recording {seed}, cut {cuts}, {took:.1} s | {how}", bug.name());
            return Ok(());
        }
    }
    Err(format!("not caught in {RECORDINGS} recordings").into())
}
