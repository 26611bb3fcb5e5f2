//! The figures: a table for people, JSON for machines, and the least that a proof must have shown.

use std::fmt::Write as _;
use std::path::Path;

use libtest_mimic::Failed;
use serde_json::{Value, json};

use crate::phase::Tally;

/// What is counted beside runs and effects, with its heading.
const BLOWS: [(&str, &str); 11] = [
    ("server kills", "srv kills"),
    ("orderly restarts", "restarts"),
    ("worker kills", "wrk kills"),
    ("zombies", "zombies"),
    ("freezes", "freezes"),
    ("postgres kills", "pg kills"),
    ("failovers", "failovers"),
    ("cuts", "cuts"),
    ("silences", "silences"),
    ("disk full", "disk full"),
    ("fsync errors", "fsync err"),
];

/// The least of a figure, over all phases.
pub(crate) type Least = (&'static str, u64);

/// All phases as a table.
pub(crate) fn table(tallies: &[Tally]) -> String {
    let mut heads = vec!["phase"];
    heads.extend(BLOWS.map(|(_, head)| head));
    heads.extend(["runs", "asked", "applied", "absorbed", "lost", "doubled", "stuck", "wrong", "seconds"]);
    let mut lines = vec![heads.iter().map(ToString::to_string).collect::<Vec<_>>()];
    for tally in tallies.iter().chain([&sum(tallies)]) {
        let mut line = vec![tally.name.clone()];
        line.extend(BLOWS.map(|(name, _)| tally.figure(name).to_string()));
        let counted = &tally.counted;
        let rest = [counted.runs, counted.asked, counted.applied, counted.absorbed];
        line.extend(rest.iter().map(ToString::to_string));
        let broken = [tally.lost, tally.doubled, tally.stuck, tally.wrong];
        line.extend(broken.iter().map(ToString::to_string));
        line.push((tally.millis / 1000).to_string());
        lines.push(line);
    }
    let widths: Vec<usize> = (0..heads.len())
        .map(|at| lines.iter().map(|line| line[at].len()).max().unwrap_or_default())
        .collect();
    let mut text = String::new();
    for line in lines {
        for (cell, width) in line.iter().zip(&widths) {
            // Writing to a string does not fail.
            let _ = write!(text, "{cell:>width$}  ");
        }
        text.push('\n');
    }
    text
}

/// All phases as one.
pub(crate) fn sum(tallies: &[Tally]) -> Tally {
    let mut all = Tally { name: "all".to_owned(), ..Tally::default() };
    for tally in tallies {
        all.figures.extend(&tally.figures);
        let (sum, counted) = (&mut all.counted, &tally.counted);
        sum.runs += counted.runs;
        sum.asked += counted.asked;
        sum.applied += counted.applied;
        sum.absorbed += counted.absorbed;
        sum.overtaken += counted.overtaken;
        sum.late += counted.late;
        all.lost += tally.lost;
        all.doubled += tally.doubled;
        all.stuck += tally.stuck;
        all.wrong += tally.wrong;
        all.millis += tally.millis;
    }
    all
}

fn json(tally: &Tally) -> Value {
    let mut figures = serde_json::Map::new();
    for (name, count) in &tally.figures {
        let so_far = figures.get(*name).and_then(Value::as_u64).unwrap_or_default();
        figures.insert((*name).to_owned(), (so_far + count).into());
    }
    let counted = &tally.counted;
    json!({
        "phase": tally.name, "figures": figures,
        "runs": counted.runs, "effectsAsked": counted.asked, "effectsApplied": counted.applied,
        "duplicatesAbsorbed": counted.absorbed, "overtakenCallsRefused": counted.overtaken,
        "lateResultsRefused": counted.late,
        "lost": tally.lost, "doubled": tally.doubled, "stuck": tally.stuck, "wrong": tally.wrong,
        "millis": tally.millis,
    })
}

/// Writes a file beside the build's own.
pub(crate) fn write(name: &str, value: &Value) -> Result<(), Failed> {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name(name);
    std::fs::write(&file, serde_json::to_string_pretty(value)?)?;
    println!("{} is written", file.display());
    Ok(())
}

/// The proof as JSON.
pub(crate) fn proof(seed: u64, tallies: &[Tally], least: &[Least]) -> Value {
    let all = sum(tallies);
    let least: Vec<Value> = least
        .iter()
        .map(|(name, least)| json!({"figure": name, "least": least, "reached": reached(&all, name)}))
        .collect();
    json!({"seed": seed, "phases": tallies.iter().map(json).collect::<Vec<_>>(), "all": json(&all), "least": least})
}

fn reached(all: &Tally, name: &str) -> u64 {
    match name {
        "runs" => all.counted.runs,
        "effects" => all.counted.applied,
        name => all.figure(name),
    }
}

/// Refuses a proof that shows less than it must, or a broken promise.
pub(crate) fn judge(tallies: &[Tally], least: &[Least]) -> Result<(), Failed> {
    let all = sum(tallies);
    let short: Vec<String> = least
        .iter()
        .filter(|(name, least)| reached(&all, name) < *least)
        .map(|(name, least)| format!("{} {name} instead of {least}", reached(&all, name)))
        .collect();
    let names = tallies.iter().map(|tally| tally.name.as_str()).collect::<Vec<_>>().join(", ");
    if !all.is_clean() {
        return Err(format!("promises were broken in {names}, see above").into());
    }
    if short.is_empty() {
        return Ok(());
    }
    Err(format!("too little was shown by {names}: {}", short.join(", ")).into())
}
