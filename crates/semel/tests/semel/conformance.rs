//! Programs for the SDKs of other languages: drawn here, with what is expected of them, and played by the tests in `clients/` with a
//! crash at every boundary. What is expected is decided in Rust only.
//!
//! `SEMEL_PROGRAMS_FILE=FILE SEMEL_PROGRAMS=0..2000` writes those seeds to a file, which the tests in `clients/` read if the same
//! variable names it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use libtest_mimic::{Failed, Trial};
use serde::Serialize;

use crate::programs::{Act, Expected, Pace, draw};

/// The seeds of the programs that are in the repository.
const SEEDS: std::ops::Range<u64> = 0..50;

/// Each program is played some thirty times, on the clock of the machine: waits are short. Some are shorter than what a worker waits
/// in memory (20 ms), and some longer.
const PACE: Pace = Pace {
    acts: 5,
    depth: 2,
    waits: [3, 15, 25, 40],
    in_vain: 30,
    limit: |_, late| if late { (false, 80) } else { (true, 3_600_000) },
    company: false,
    close: Some(25),
    bank: true,
};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("conformance::programs_of_the_clients_are_those_that_are_drawn", write_or_compare),
        Trial::test("conformance::every_act_of_one_run_is_in_the_programs", every_act),
    ]
}

/// One line of the file.
#[derive(Serialize)]
struct ProgramLine {
    seed: u64,
    acts: Vec<Act>,
    #[serde(flatten)]
    expected: Expected,
}

fn line(seed: u64) -> Result<String, Failed> {
    let program = draw(seed, "p", PACE);
    let expected = Expected::of(&program);
    Ok(serde_json::to_string(&ProgramLine { seed, acts: program.1, expected })? + "\n")
}

fn seeds() -> Result<std::ops::Range<u64>, Failed> {
    let Ok(text) = std::env::var("SEMEL_PROGRAMS") else { return Ok(SEEDS) };
    let range = text.split_once("..").and_then(|(first, end)| Some(first.parse().ok()?..end.parse().ok()?));
    range.ok_or_else(|| format!("SEMEL_PROGRAMS: {text:?} is no range such as 0..2000").into())
}

fn write_or_compare() -> Result<(), Failed> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let lines: String = seeds()?.map(line).collect::<Result<_, _>>()?;
    if let Some(file) = std::env::var_os("SEMEL_PROGRAMS_FILE").map(PathBuf::from) {
        return Ok(std::fs::write(root.join(file), lines)?);
    }
    if std::fs::read_to_string(root.join("clients/programs.jsonl"))? == lines {
        return Ok(());
    }
    Err("clients/programs.jsonl differs from what is drawn: run this test with SEMEL_PROGRAMS_FILE=clients/programs.jsonl".into())
}

/// What only several runs make interesting is left out: tokens that all want, values that all share, and runs that fail.
fn every_act() -> Result<(), Failed> {
    let mut found = BTreeSet::new();
    SEEDS.for_each(|seed| name_all(&draw(seed, "p", PACE).1, &mut found));
    let all = [
        "Asked", "Child", "Close", "Fatal", "Hook", "Join", "Letter", "Loop", "Once", "Pay", "Race",
        "Repeat", "Sleep", "Step", "Values",
    ];
    if found.iter().eq(all) { Ok(()) } else { Err(format!("{found:?}").into()) }
}

fn name_all(acts: &[Act], found: &mut BTreeSet<String>) {
    for act in acts {
        let name: String = format!("{act:?}").chars().take_while(char::is_ascii_alphabetic).collect();
        found.insert(name);
        match act {
            Act::Join { left, right, .. } => {
                name_all(left, found);
                name_all(right, found);
            }
            Act::Loop { acts, .. } | Act::Race { acts, .. } | Act::Child { acts, .. } => {
                name_all(acts, found);
            }
            _ => {}
        }
    }
}
