//! Servers that are careless with their disk on purpose: a power cut shows each of them.

use libtest_mimic::{Failed, Trial};
use semel::clock::SystemClock;
use semel::sabotage::Bug;

use super::{CUTS, Dice, Life, SyncError, cuts, record};

/// What a server has to live through until the bug can show.
const BUGS: [(Bug, Life); 5] = [
    (Bug::SyncNever, Life { answers: 150, errors: None }),
    (Bug::SyncAtCheckpoints, Life { answers: 150, errors: None }),
    (Bug::AnswerBeforeSync, Life { answers: 150, errors: None }),
    // Long enough for checkpoints.
    (Bug::CheckpointWithoutSync, Life { answers: 1_000, errors: None }),
    (Bug::AssumeFailedCommit, Life { answers: 150, errors: Some(SyncError::Cached) }),
];

pub(super) fn trials() -> Vec<Trial> {
    let trial = |(bug, life): (Bug, Life)| {
        let name = format!("power::a_cut_shows_{}", bug.name().replace('-', "_"));
        Trial::test(name, move || crate::runtime().block_on(caught(bug, life)))
    };
    BUGS.into_iter().map(trial).collect()
}

async fn caught(bug: Bug, life: Life) -> Result<(), Failed> {
    const SEED: u64 = 1;
    let clock = SystemClock::new();
    let recording = record(&[life], Some(bug.name())).await?;
    let mut places = cuts(&recording.journal, &mut Dice(SEED), CUTS);
    // Before the first answer nothing can be lost.
    let first = recording.acknowledged.iter().map(|acknowledged| acknowledged.at).min();
    places.retain(|place| Some(*place) >= first);
    let found = recording.examine(&places, SEED, true)?;
    let (cuts, how) = found.wrong.first().ok_or_else(|| format!("not caught by {} cuts", found.cuts))?;
    println!("{} | power loss | {cuts} cuts, {:.1} s | {how}", bug.name(), clock.elapsed().as_secs_f32());
    Ok(())
}
