//! Makes a case that fails smaller, as long as it fails in the same way: first what goes wrong, then what is asked for,
//! then what the programs do.

use std::fmt::Write;

use crate::case::{Ask, Case};
use crate::play::play;
use crate::programs::Act;
use crate::stage::Violation;

/// Number of cases that are tried.
const TRIES: u32 = 600;
/// Number of lines shown of the end of a trace.
const SHOWN: usize = 200;

/// What to say of a seed that has failed.
pub(crate) fn report(seed: u64, violation: &Violation) -> String {
    let case = Case::of(seed);
    let (small, tried) = shrink(&case, violation.kind);
    let played = play(&small, true);
    let mut text = format!("seed {seed} broke a promise\n{}: {}\n{case}", violation.kind, violation.message);
    let _ =
        writeln!(text, "shrunk from {} to {} parts in {tried} plays:\n{small}", case.size(), small.size());
    let _ = match &played.violation {
        Some(violation) => writeln!(text, "{}: {}", violation.kind, violation.message),
        None => writeln!(text, "played again it breaks none: something outside of the seed has a say"),
    };
    // What nodes say all the time tells nothing.
    let said = [": sweep", ": Renew", ": find Id"];
    let idle = |line: &&String| line.ends_with("-> ") || said.iter().any(|said| line.contains(said));
    let telling: Vec<&str> = played.lines.iter().filter(|line| !idle(line)).map(String::as_str).collect();
    let shown = telling[telling.len().saturating_sub(SHOWN)..].join("\n");
    let _ = writeln!(text, "the end of its trace ({:016x}):\n{shown}", played.hash);
    let _ = writeln!(text, "to play it again: make sim SEEDS={seed}");
    text
}

/// The smallest case found that fails in the same way, and how many were tried.
fn shrink(case: &Case, kind: &str) -> (Case, u32) {
    let (mut best, mut tried) = (case.clone(), 0);
    loop {
        let before = best.size();
        for smaller in [fewer_troubles, fewer_requests, fewer_acts] {
            best = reduce(best, kind, smaller, &mut tried);
        }
        if best.size() == before || tried >= TRIES {
            return (best, tried);
        }
    }
}

/// Takes the first smaller case that still fails, and goes on from there.
fn reduce(mut best: Case, kind: &str, smaller: fn(&Case) -> Vec<Case>, tried: &mut u32) -> Case {
    'again: loop {
        for candidate in smaller(&best) {
            if *tried >= TRIES {
                return best;
            }
            *tried += 1;
            if play(&candidate, false).violation.is_some_and(|violation| violation.kind == kind) {
                best = candidate;
                continue 'again;
            }
        }
        return best;
    }
}

/// A list without some of it: the halves first, then each one.
fn without_some<T: Clone>(all: &[T]) -> Vec<Vec<T>> {
    let (half, mut fewer) = (all.len() / 2, Vec::new());
    if half > 0 {
        fewer.extend([all[..half].to_vec(), all[half..].to_vec()]);
    }
    fewer.extend((0..all.len()).map(|i| [&all[..i], &all[i + 1..]].concat()));
    fewer
}

fn fewer_troubles(case: &Case) -> Vec<Case> {
    let with = |troubles| Case { troubles, ..case.clone() };
    without_some(&case.troubles).into_iter().map(with).collect()
}

fn fewer_requests(case: &Case) -> Vec<Case> {
    let with = |requests| Case { requests, ..case.clone() };
    let starts = |case: &Case| case.requests.iter().any(|request| request.ask == Ask::Start);
    without_some(&case.requests).into_iter().map(with).filter(starts).collect()
}

fn fewer_acts(case: &Case) -> Vec<Case> {
    let mut cases = Vec::new();
    for program in 0..case.programs.len() {
        for acts in smaller_acts(&case.programs[program].program.1) {
            let mut smaller = case.clone();
            smaller.programs[program].program.1 = acts;
            cases.push(smaller);
        }
    }
    cases
}

/// One act less, at whatever depth; or what was inside of one in its place.
fn smaller_acts(acts: &[Act]) -> Vec<Vec<Act>> {
    let mut smaller = without_some(acts);
    for (i, act) in acts.iter().enumerate() {
        let in_place = |others: &[Act]| [&acts[..i], others, &acts[i + 1..]].concat();
        let inside = match act {
            Act::Loop { acts, .. } | Act::Race { acts, .. } | Act::Child { acts, .. } => acts.clone(),
            Act::Join { left, right, .. } => [left.clone(), right.clone()].concat(),
            _ => continue,
        };
        smaller.push(in_place(&inside));
        smaller.extend(smaller_inside(act).iter().map(|act| in_place(std::slice::from_ref(act))));
    }
    smaller
}

fn smaller_inside(act: &Act) -> Vec<Act> {
    let with = |inner: &Vec<Act>, make: &dyn Fn(Vec<Act>) -> Act| -> Vec<Act> {
        smaller_acts(inner).into_iter().map(make).collect()
    };
    match act.clone() {
        Act::Loop { n, times, acts } => with(&acts, &|acts| Act::Loop { n, times, acts }),
        Act::Race { n, late, far, limit, acts } => {
            with(&acts, &|acts| Act::Race { n, late, far, limit, acts })
        }
        Act::Child { n, acts } => with(&acts, &|acts| Act::Child { n, acts }),
        Act::Join { n, left, right } => {
            let mut all = with(&left, &|left| Act::Join { n, left, right: right.clone() });
            all.extend(with(&right, &|right| Act::Join { n, left: left.clone(), right }));
            all
        }
        _ => Vec::new(),
    }
}
