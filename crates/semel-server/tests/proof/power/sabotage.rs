//! Servers that are careless with their disk on purpose: a power cut shows each of them.

use libtest_mimic::{Failed, Trial};
use semel::clock::SystemClock;
use semel::sabotage::Bug;

use super::{CUTS, Dice, Life, SyncError, cuts, record};

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

async fn caught(bug: Bug, life: Life) -> Result<(), Failed> {
    const SEED: u64 = 1;
    let clock = SystemClock::new();
    let recording = record(&[life], Some(bug.name())).await?;
    let mut places = cuts(&recording.journal, &mut Dice(SEED), CUTS);
    // The more was acknowledged, the more can be lost: so not in the first half of all answers.
    let half =
        recording.acknowledged.get(recording.acknowledged.len() / 2).map(|acknowledged| acknowledged.at);
    places.retain(|place| Some(*place) >= half);
    let found = recording.examine(&places, SEED, true)?;
    let (cuts, how) = found.wrong.first().ok_or_else(|| format!("not caught by {} cuts", found.cuts))?;
    println!("{} | power loss | {cuts} cuts, {:.1} s | {how}", bug.name(), clock.elapsed().as_secs_f32());
    Ok(())
}
