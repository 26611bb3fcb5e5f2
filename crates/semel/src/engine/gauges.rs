//! Gauges: what is in the store now. The sweep asks for the numbers from time to time, and they are bounded, as the number
//! of labels is.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use metrics::gauge;

use super::Core;
use crate::clock::Time;
use crate::error::Error;
use crate::metrics::{BACKLOG, DOUBTS, NODES, OPEN, PAUSED};
use crate::store::Counts;

/// How often the store is asked.
const EVERY: Duration = Duration::from_secs(10);
/// How far the store counts.
const CAP: u64 = 10_000;
/// Number of workflows that have a label of their own: the first that are seen. A label is kept, so that its line in a graph
/// does not change its meaning.
const LABELS: usize = 20;
/// The label of all other workflows.
const OTHER: &str = "other";

/// When gauges were set, and for which workflows.
#[derive(Default)]
pub(crate) struct Gauges(Mutex<GaugeState>);

#[derive(Default)]
struct GaugeState {
    next: Option<Time>,
    /// A label that is not set to zero would show its last number for ever.
    shown: BTreeMap<String, (u64, u64)>,
}

impl Gauges {
    /// Whether it is time to ask; if it is, the next time is later.
    fn is_time(&self, now: Time) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let due = state.next.is_none_or(|next| now >= next);
        if due {
            state.next = Some(now.after(EVERY));
        }
        due
    }

    /// The store does not count.
    fn give_up(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).next = Some(Time(i64::MAX));
    }

    fn show(&self, counts: &Counts) {
        gauge!(DOUBTS).set(number(counts.in_doubt));
        gauge!(BACKLOG).set(number(counts.backlog));
        gauge!(NODES).set(number(counts.nodes));
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.shown = labelled(counts, &state.shown);
        for (workflow, (open, paused)) in &state.shown {
            gauge!(OPEN, "workflow" => workflow.clone()).set(number(*open));
            gauge!(PAUSED, "workflow" => workflow.clone()).set(number(*paused));
        }
    }
}

/// Open and paused runs by label. A label that was shown before stays, with zero if the workflow has no open runs: without
/// that it would keep its last number. A workflow gets a label of its own as long as there are few enough.
fn labelled(counts: &Counts, shown: &BTreeMap<String, (u64, u64)>) -> BTreeMap<String, (u64, u64)> {
    let mut labels: BTreeMap<String, (u64, u64)> =
        shown.keys().map(|label| (label.clone(), (0, 0))).collect();
    for workflow in &counts.workflows {
        let known = labels.contains_key(workflow.workflow.as_str());
        let own = known || labels.keys().filter(|label| *label != OTHER).count() < LABELS;
        let label = if own { workflow.workflow.as_str() } else { OTHER };
        let (open, paused) = labels.entry(label.to_owned()).or_default();
        *open += workflow.open;
        *paused += workflow.paused;
    }
    labels
}

#[expect(clippy::cast_precision_loss, reason = "numbers end at ten thousand of each status")]
fn number(count: u64) -> f64 {
    count as f64
}

impl Core {
    /// Sets the gauges, if it is time.
    pub(crate) async fn show_gauges(&self) {
        if !self.gauges.is_time(self.clock.now()) {
            return;
        }
        match self.store.counts(CAP).await {
            Ok(counts) => self.gauges.show(&counts),
            // The store of a remote worker: its server shows them.
            Err(Error::Validation(_)) => self.gauges.give_up(),
            Err(error) => tracing::debug!(%error, "gauges are not set; they are next time"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::path::Name;
    use crate::store::WorkflowCounts;

    fn counts(workflows: &[(&str, u64, u64)]) -> Counts {
        let of = |(name, open, paused): &(&str, u64, u64)| WorkflowCounts {
            workflow: Name::new(name).expect("a name"),
            open: *open,
            paused: *paused,
        };
        Counts { workflows: workflows.iter().map(of).collect(), ..Counts::default() }
    }

    #[test]
    fn a_workflow_without_open_runs_goes_to_zero() {
        let before = labelled(&counts(&[("order", 3, 1)]), &BTreeMap::new());
        assert_eq!(before, BTreeMap::from([("order".to_owned(), (3, 1))]));
        let after = labelled(&counts(&[("refund", 2, 0)]), &before);
        assert_eq!(after, BTreeMap::from([("order".to_owned(), (0, 0)), ("refund".to_owned(), (2, 0))]));
    }

    #[test]
    fn the_number_of_labels_has_a_bound() {
        let names: Vec<String> = (0..3 * LABELS).map(|n| format!("w{n}")).collect();
        let workflows: Vec<_> = names.iter().map(|name| (name.as_str(), 2, 1)).collect();
        let mut shown = BTreeMap::new();
        for part in workflows.chunks(LABELS / 2) {
            shown = labelled(&counts(part), &shown);
            assert!(shown.len() <= LABELS + 1, "{shown:?}");
        }
        let all = labelled(&counts(&workflows), &shown);
        assert_eq!(all[OTHER], (4 * LABELS as u64, 2 * LABELS as u64));
        assert_eq!(all.values().map(|(open, _)| open).sum::<u64>(), 6 * LABELS as u64, "none is left out");
    }

    #[test]
    fn the_store_is_asked_from_time_to_time() {
        let gauges = Gauges::default();
        assert!(gauges.is_time(Time(0)) && !gauges.is_time(Time(9_999)) && gauges.is_time(Time(10_000)));
        gauges.give_up();
        assert!(!gauges.is_time(Time(1 << 60)));
    }
}
