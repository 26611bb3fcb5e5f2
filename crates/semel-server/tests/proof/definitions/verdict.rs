//! What was found at the end: each effect of each run is counted, and each result compared with what the other side says.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::caller::{DefinedLife, Ending};
use super::parts::{self, PartEffect, PartSort};
use super::provider::Sales;
use crate::books::Books;
use crate::checker::Counted;
use crate::findings::{Findings, Sort};
use crate::operator::Operator;

/// Numbers of what was done, by place and path: at the provider, and by workers at the recorder.
type Done = BTreeMap<String, Vec<u64>>;

pub(super) fn check(
    lives: &[DefinedLife],
    sales: &Sales,
    books: &Books,
    operator: &Operator,
    findings: &Arc<Findings>,
) -> Counted {
    let mut done = sales.done.clone();
    for call in books.calls.iter().filter(|call| call.applied) {
        done.entry(call.ask.at.clone()).or_default().extend(call.number);
    }
    for (at, numbers) in done.iter().filter(|(_, numbers)| numbers.len() > 1) {
        findings.add(Sort::Doubled, "", at, format!("it was done {} times: {numbers:?}", numbers.len()));
    }
    for changed in &sales.changed {
        findings.add(Sort::Wrong, "", changed, "a repetition was another request");
    }
    let mut known = HashSet::new();
    for life in lives {
        one(life, &done, &mut known, findings);
    }
    for at in done.keys().filter(|at| !known.contains(at.as_str())) {
        findings.add(Sort::Wrong, "", at, "nothing of this kind was asked for");
    }
    let doubtable: HashSet<_> =
        parts::effects().filter(|effect| effect.sort == PartSort::Doubtable).map(|e| e.path).collect();
    for at in operator.doubted() {
        let path = at.split_once(' ').map_or("", |(_, path)| path);
        // What undoes them is asked of the same provider.
        if !doubtable.contains(path) && path != "once/undo/back" {
            findings.add(Sort::Wrong, "", &at, "it is in doubt, although its class needs no doubt");
        }
    }
    let asked = sales.asked + books.calls.len() as u64;
    let applied = done.values().map(|numbers| numbers.len() as u64).sum();
    Counted {
        runs: lives.len() as u64,
        asked,
        applied,
        absorbed: sales.absorbed,
        late: operator.doubts.load(Ordering::Relaxed),
        ..Counted::default()
    }
}

/// One run: its end, its effects and its result.
fn one(life: &DefinedLife, done: &Done, known: &mut HashSet<String>, findings: &Findings) {
    let DefinedLife { place, run, ending, detail } = life;
    let (status, code) = (detail["status"].as_str().unwrap_or_default(), &detail["error"]["code"]);
    let fits = match ending {
        Ending::Last | Ending::Return => status == "COMPLETED",
        Ending::Fail => status == "FAILED" && code == "REFUSED",
        Ending::Cancel => matches!(status, "COMPLETED" | "CANCELLED"),
    };
    if !fits {
        findings.add(
            Sort::Wrong,
            run,
            place,
            format!("{ending:?} has ended as {status} {}", detail["error"]),
        );
    }
    let times = |path: &str| done.get(&format!("{place} {path}")).map_or(0, Vec::len);
    let below = ["below", "aside"].map(|child| format!("{place}.{child} below"));
    known.extend(parts::effects().map(|effect| format!("{place} {}", effect.path)));
    known.extend(below.clone());
    for effect in parts::effects() {
        let (least, most) = match (status, effect.sort) {
            ("COMPLETED", PartSort::Undo) => (0, 0),
            ("COMPLETED" | "FAILED", _) => (1, 1),
            // It was asked to end at any time.
            (_, PartSort::Undo) => {
                let forward = effect.path.trim_end_matches("/undo/back");
                (times(forward), times(forward))
            }
            _ => (0, 1),
        };
        let found = times(effect.path);
        if found < least {
            findings.add(Sort::Lost, run, effect.path, format!("{status}: done {found} times, not {least}"));
        } else if found > most {
            findings.add(
                Sort::Doubled,
                run,
                effect.path,
                format!("{status}: done {found} times, not {most}"),
            );
        }
    }
    if status == "COMPLETED" {
        for at in below {
            if !done.contains_key(&at) {
                findings.add(Sort::Lost, run, &at, "a child has not done it");
            }
        }
        result(life, done, findings);
    }
}

/// The result of a run: the numbers of its effects, and what people and senders have said.
fn result(life: &DefinedLife, done: &Done, findings: &Findings) {
    let (result, place) = (&life.detail["result"], &life.place);
    let number = |at: &str| done.get(at).and_then(|numbers| numbers.first()).copied();
    let mut expected: HashMap<&str, Vec<Value>> = parts::effects()
        .filter(|effect| !effect.told.is_empty())
        .map(|PartEffect { path, told, .. }| (*told, vec![json!(number(&format!("{place} {path}")))]))
        .collect();
    // A provider that refuses a repetition does not tell what the first request has done.
    expected.entry("repeated").or_default().push(json!(0));
    expected.insert("below", vec![json!(number(&format!("{place}.below below")))]);
    expected.insert("decision", vec![json!("approved")]);
    expected.insert("filled", vec![json!(5)]);
    expected.insert("early", vec![json!(7)]);
    expected.insert("late", vec![json!(8)]);
    for (name, values) in expected {
        if !values.contains(&result[name]) {
            let said = format!("the result says {}, and the other side {values:?}", result[name]);
            findings.add(Sort::Wrong, &life.run, name, said);
        }
    }
}
