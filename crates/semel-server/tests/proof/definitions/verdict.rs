//! What was found at the end: each effect of each run is counted, and each result compared with what the other side says.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::caller::{DefinedLife, Ending};
use super::deeds::Deeds;
use super::parts::{self, PartEffect, PartSort};
use super::provider::Sales;
use super::tasks::TOGETHER;
use crate::books::Books;
use crate::checker::Counted;
use crate::findings::{Findings, Sort};
use crate::nemesis::Kill;
use crate::operator::Operator;

/// What the other sides say at the end.
pub(super) struct Found<'a> {
    pub(super) sales: &'a Sales,
    pub(super) books: &'a Books,
    /// What was done through databases, brokers, mails, models and tools.
    pub(super) deeds: Deeds,
    /// Branches of the runs that are still prepared.
    pub(super) branches: Vec<String>,
    /// When servers and components were killed: a call is repeated at most once for each kill while it is under way.
    pub(super) kills: Vec<Kill>,
}

impl Found<'_> {
    /// Everything that was done, wherever it was counted: at the provider, and by workers at the recorder, too.
    fn together(self) -> Deeds {
        let Self { sales, books, mut deeds, .. } = self;
        for (at, numbers) in &sales.done {
            deeds.done.entry(at.clone()).or_default().extend(numbers);
        }
        for call in books.calls.iter().filter(|call| call.applied) {
            deeds.done.entry(call.ask.at.clone()).or_default().extend(call.number);
        }
        deeds.asked += sales.asked + books.calls.len() as u64;
        deeds.absorbed += sales.absorbed;
        deeds.changed.extend(sales.changed.iter().cloned());
        deeds
    }
}

pub(super) fn check(
    lives: &[DefinedLife],
    mut found: Found<'_>,
    operator: &Operator,
    findings: &Arc<Findings>,
) -> Counted {
    for branch in std::mem::take(&mut found.branches) {
        findings.add(Sort::Stuck, "", &branch, "a branch is still prepared, and holds its locks");
    }
    let kills = std::mem::take(&mut found.kills);
    let deeds = found.together();
    deeds.tell_doubled(findings);
    for changed in &deeds.changed {
        findings.add(Sort::Wrong, "", changed, "a repetition was another request");
    }
    for (at, called) in &deeds.calls {
        let (calls, kills) = (called.times.len(), called.disturbed_by(&kills));
        if calls > 1 + kills {
            findings.add(
                Sort::Wrong,
                "",
                at,
                format!("it was called {calls} times, with {kills} kills meanwhile"),
            );
        }
    }
    let mut known = HashSet::new();
    for life in lives {
        one(life, &deeds, &mut known, findings);
    }
    for at in deeds.done.keys().filter(|at| !known.contains(at.as_str())) {
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
    Counted {
        runs: lives.len() as u64,
        asked: deeds.asked,
        applied: deeds.done.values().map(|numbers| numbers.len() as u64).sum(),
        absorbed: deeds.absorbed,
        late: operator.doubts.load(Ordering::Relaxed),
        ..Counted::default()
    }
}

/// One run: its end, its effects and its result.
fn one(life: &DefinedLife, deeds: &Deeds, known: &mut HashSet<String>, findings: &Findings) {
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
    let times = |path: &str| deeds.times(&format!("{place} {path}"));
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
    let parts = TOGETHER.map(times);
    if parts != [parts[0]; TOGETHER.len()] {
        let said = format!("{status}: the parts of one transaction were done {parts:?} times");
        findings.add(Sort::Wrong, run, TOGETHER[0], said);
    }
    if status == "COMPLETED" {
        for at in below {
            if deeds.times(&at) == 0 {
                findings.add(Sort::Lost, run, &at, "a child has not done it");
            }
        }
        result(life, deeds, findings);
    }
}

/// The result of a run: the numbers of its effects, and what people and senders have said.
fn result(life: &DefinedLife, deeds: &Deeds, findings: &Findings) {
    let (result, place) = (&life.detail["result"], &life.place);
    let number = |at: &str| deeds.done.get(at).and_then(|numbers| numbers.first()).copied();
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
        let told = result.pointer(&format!("/{name}")).unwrap_or(&Value::Null);
        if !values.contains(told) {
            let said = format!("the result says {told}, and the other side {values:?}");
            findings.add(Sort::Wrong, &life.run, name, said);
        }
    }
}
