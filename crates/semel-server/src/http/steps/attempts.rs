//! The attempts at a step, from the entries of its run: when each began, how long it took, and who drove the run then.

use std::collections::HashMap;

use semel::clock::Time;
use semel::id::NodeId;
use semel::rules::entry::{Class, Entry, Failure};
use semel::rules::json::Payload;
use semel::rules::path::Visit;
use semel::store::Numbered;

use crate::api::{AttemptView, time};
use crate::http::view::failure_view;

/// Attempts, times and reasons of one step.
#[derive(Default)]
pub(super) struct Trace<'a> {
    /// Place of its first entry among those that were read.
    pub(super) place: usize,
    pub(super) class: Class,
    pub(super) attempts: Vec<AttemptTrace>,
    pub(super) note: Option<&'a Payload>,
    pub(super) ended: Option<Time>,
    pub(super) reason: Option<String>,
    pub(super) error: Option<Failure>,
}

/// One attempt at a step.
pub(super) struct AttemptTrace {
    number: u32,
    pub(super) began: Time,
    ended: Option<Time>,
    claim: Option<ClaimTrace>,
    error: Option<Failure>,
}

/// The claim under which an attempt was made.
#[derive(Clone, Copy)]
struct ClaimTrace {
    node: NodeId,
    fence: u64,
    at: Time,
}

impl AttemptTrace {
    pub(super) fn view(&self) -> AttemptView {
        let took = self.ended.map(|ended| ended.0.saturating_sub(self.began.0).max(0).unsigned_abs());
        AttemptView {
            number: self.number,
            began_at: time(self.began),
            took_ms: took,
            node: self.claim.map(|claim| claim.node.to_string()),
            fence: self.claim.map(|claim| claim.fence),
            error: self.error.as_ref().map(failure_view),
        }
    }
}

/// The steps among the entries. A remote step is written down when its worker reports, and begins with its claim.
pub(super) fn traces(lines: &[Numbered], remote: bool) -> HashMap<&Visit, Trace<'_>> {
    let mut traces: HashMap<&Visit, Trace<'_>> = HashMap::new();
    let mut claim = None;
    for (place, line) in lines.iter().enumerate() {
        if let Entry::Claimed { node } = line.entry {
            claim = Some(ClaimTrace { node, fence: line.number, at: line.at });
        }
        let Some(visit) = line.entry.visit() else { continue };
        let trace = traces.entry(visit).or_insert_with(|| Trace { place, ..Trace::default() });
        trace.read(line, claim, remote);
    }
    traces
}

impl<'a> Trace<'a> {
    fn read(&mut self, line: &'a Numbered, claim: Option<ClaimTrace>, remote: bool) {
        match &line.entry {
            Entry::StepStarted { attempt: number, class, at, note, .. } => {
                if *number == 1 {
                    self.attempts.clear();
                }
                let unsaid = claim.filter(|_| remote).map_or(line.at, |claim| claim.at);
                // A worker's clock may be ahead: no body begins after the commit that tells of it.
                let began = at.unwrap_or(unsaid).min(line.at);
                (self.class, self.note, self.ended) = (*class, note.as_ref(), None);
                self.attempts.push(AttemptTrace { number: *number, began, ended: None, claim, error: None });
            }
            Entry::StepFailed { error, .. } => {
                self.end(line.at);
                (self.error, self.ended) = (Some(error.clone()), Some(line.at));
                if let Some(attempt) = self.attempts.last_mut() {
                    attempt.error = Some(error.clone());
                }
            }
            Entry::StepSkipped { reason, .. } | Entry::StepInDoubt { reason, .. } => {
                (self.reason, self.ended) = (Some(reason.clone()), Some(line.at));
            }
            Entry::StepCompleted { .. } => {
                self.end(line.at);
                self.ended = Some(line.at);
            }
            Entry::StepResolved { .. } => self.ended = Some(line.at),
            _ => {}
        }
    }

    /// The last attempt has come to a known end.
    fn end(&mut self, at: Time) {
        if let Some(attempt) = self.attempts.last_mut() {
            attempt.ended = Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(entries: &[(i64, &str)]) -> Vec<Numbered> {
        let line = |((at, json), number): (&(i64, &str), u64)| {
            let entry = serde_json::from_str(json).expect("an entry");
            Numbered { number, at: Time(*at), entry }
        };
        entries.iter().zip(1..).map(line).collect()
    }

    const CLAIM: &str = r#"{"claimed":{"node":"node_01j0000000e00800000000007z"}}"#;

    fn views(remote: bool, entries: &[(i64, &str)]) -> Vec<AttemptView> {
        let lines = lines(entries);
        let traces = traces(&lines, remote);
        traces.into_values().next().expect("one step").attempts.iter().map(AttemptTrace::view).collect()
    }

    #[test]
    fn an_attempt_has_a_beginning_a_length_and_the_claim_it_was_made_under() {
        let failed = r#"{"stepFailed":{"step":"a","attempt":1,"error":{"kind":"retryable","message":"no"},"retryAt":3000}}"#;
        let views = views(
            false,
            &[
                (1_000, CLAIM),
                (1_700, r#"{"stepStarted":{"step":"a","attempt":1,"at":1200}}"#),
                (1_700, failed),
                (2_000, CLAIM),
                (4_000, r#"{"stepStarted":{"step":"a","attempt":2,"at":3100}}"#),
                (4_000, r#"{"stepCompleted":{"step":"a","value":1}}"#),
            ],
        );
        let shown: Vec<_> = views.iter().map(|view| (view.number, view.took_ms, view.fence)).collect();
        assert_eq!(shown, [(1, Some(500), Some(1)), (2, Some(900), Some(4))]);
        assert!(views[0].began_at.ends_with("01.2Z") || views[0].began_at.ends_with("01.200Z"), "{views:?}");
        assert_eq!(views[0].error.as_ref().map(|error| error.message.as_str()), Some("no"));
        assert_eq!(views[1].error.is_none(), views[1].node.is_some());
    }

    #[test]
    fn what_an_entry_does_not_say_or_says_wrongly_is_bounded_by_its_commit() {
        for (started, remote, took) in [
            (r#"{"stepStarted":{"step":"a","attempt":1}}"#, false, 0),
            (r#"{"stepStarted":{"step":"a","attempt":1}}"#, true, 700),
            (r#"{"stepStarted":{"step":"a","attempt":1,"at":9000}}"#, false, 0),
        ] {
            let completed = r#"{"stepCompleted":{"step":"a","value":1}}"#;
            let views = views(remote, &[(1_000, CLAIM), (1_700, started), (1_700, completed)]);
            assert_eq!(views[0].took_ms, Some(took), "{started} {remote}");
        }
    }

    #[test]
    fn a_step_that_begins_anew_shows_the_attempts_of_its_new_life() {
        let started = r#"{"stepStarted":{"step":"a","attempt":1,"class":"at-most-once"}}"#;
        let views = views(false, &[(1, CLAIM), (2, started), (3, CLAIM), (4, started)]);
        assert_eq!(
            views.iter().map(|view| (view.fence, view.took_ms)).collect::<Vec<_>>(),
            [(Some(3), None)]
        );
    }
}
