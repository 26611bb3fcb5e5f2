//! Figures of a workspace over time: what happened in a minute or an hour, as numbers that can be added up.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::path::Name;

/// Upper bounds of the classes of a [`Histogram`], in milliseconds. The last class, beyond them, has none.
pub const BOUNDS: [u64; 27] = [
    1,
    2,
    5,
    10,
    20,
    50,
    100,
    200,
    500,
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
    500_000_000,
];

/// Maximum number of workflows of a workspace that have figures of their own; all others share one set.
pub const WORKFLOWS: usize = 200;

/// How long the figures of a minute are kept.
pub const MINUTES_KEPT: Duration = Duration::from_hours(7 * 24);

/// How long the figures of an hour are kept.
pub const HOURS_KEPT: Duration = Duration::from_hours(90 * 24);

/// Stretch of time that a set of figures is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StatsSpan {
    /// A minute, kept for days.
    Minute,
    /// An hour, kept for months.
    Hour,
}

impl StatsSpan {
    /// Both, the shorter one first.
    pub const ALL: [Self; 2] = [Self::Minute, Self::Hour];

    /// Length of the stretch in minutes.
    pub const fn minutes(self) -> i64 {
        match self {
            Self::Minute => 1,
            Self::Hour => 60,
        }
    }

    /// How long figures of such a stretch are kept.
    pub(crate) const fn kept(self) -> Duration {
        match self {
            Self::Minute => MINUTES_KEPT,
            Self::Hour => HOURS_KEPT,
        }
    }
}

/// Numbers of durations by class: see [`BOUNDS`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(transparent)]
pub struct Histogram(
    /// How many durations are in each class, the shortest first; a duration is in the first class whose bound it does not
    /// exceed. Classes at the end that are empty are left out.
    pub Vec<u64>,
);

impl Histogram {
    /// Counts a duration of this many milliseconds.
    pub fn count(&mut self, ms: u64) {
        let class = BOUNDS.partition_point(|bound| *bound < ms);
        self.reach(class);
        self.0[class] += 1;
    }

    /// Adds the numbers of another.
    pub fn add(&mut self, other: &Self) {
        self.reach(other.0.len().saturating_sub(1));
        for (sum, more) in self.0.iter_mut().zip(&other.0) {
            *sum += more;
        }
    }

    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|count| *count == 0)
    }

    /// Upper bound in milliseconds of the class in which this share of all durations ends, in thousandths: 990 for 99 %. None
    /// if nothing was counted, or if the class has no bound.
    pub fn quantile(&self, thousandths: u64) -> Option<u64> {
        let all: u64 = self.0.iter().sum();
        let wanted = all.saturating_mul(thousandths).div_ceil(1_000).max(1);
        let mut seen = 0;
        let class = self.0.iter().position(|count| {
            seen += count;
            seen >= wanted
        })?;
        BOUNDS.get(class).copied()
    }

    fn reach(&mut self, class: usize) {
        if self.0.len() <= class {
            self.0.resize(class + 1, 0);
        }
    }
}

/// The members of [`Stats`], so that none is left out of a sum.
macro_rules! stats {
    ($($(#[$doc:meta])+ $name:ident,)+) => {
        /// Figures of a stretch of time. In JSON, a member that is 0 is left out.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[serde(rename_all = "camelCase", default)]
        pub struct Stats {
            $($(#[$doc])+ #[serde(skip_serializing_if = "is_zero")] pub $name: u64,)+
            /// How long after their due times runs were claimed, in milliseconds by class.
            #[serde(skip_serializing_if = "Histogram::is_empty")]
            pub lateness: Histogram,
            /// How long runs took from their creation to their end, in milliseconds by class.
            #[serde(skip_serializing_if = "Histogram::is_empty")]
            pub duration: Histogram,
        }

        impl Stats {
            /// Adds the figures of another.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)+
                self.lateness.add(&other.lateness);
                self.duration.add(&other.duration);
            }
        }
    };
}

stats! {
    /// Starts that made a run under a free key.
    created,
    /// Starts that got the run that has their key.
    attached,
    /// Starts that got a recorded result.
    replayed,
    /// Starts that let a failed run begin again.
    restarted,
    /// Starts that took the place of an open run.
    superseded,
    /// Calls that were refused because a run owns their key or call id.
    refused,
    /// Runs that have completed.
    completed,
    /// Runs that have failed.
    failed,
    /// Runs that were cancelled.
    cancelled,
    /// Runs that were ended by their time limit.
    timed_out,
    /// Steps that got an outcome.
    steps,
    /// Attempts that failed and are repeated.
    retries,
    /// Deliveries that were accepted.
    deliveries,
    /// Deliveries that had come before, and were absorbed.
    duplicate_deliveries,
    /// Operator actions that had been done before, and were absorbed.
    duplicate_controls,
    /// Results of owners that had lost their run, which were refused.
    stale,
    /// Steps that came into doubt.
    doubts_opened,
    /// Doubts that a person has settled.
    doubts_settled,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Stats {
    /// Number of things that happened, to compare workflows.
    pub fn activity(&self) -> u64 {
        let starts = self.created + self.attached + self.replayed + self.restarted + self.superseded;
        starts + self.completed + self.failed + self.cancelled + self.timed_out + self.steps
    }
}

/// Figures of the workflows of a workspace. The first [`WORKFLOWS`] that appear have their own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkflowStats {
    /// Figures by name of the workflow.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub named: BTreeMap<Name, Stats>,
    /// Figures of all workflows that have none of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other: Option<Stats>,
}

impl WorkflowStats {
    /// The figures to which those of a workflow are added.
    pub fn of(&mut self, workflow: &Name) -> &mut Stats {
        if !self.named.contains_key(workflow) {
            if self.named.len() >= WORKFLOWS {
                return self.other.get_or_insert_default();
            }
            self.named.insert(workflow.clone(), Stats::default());
        }
        self.named.get_mut(workflow).expect("it is there, or was inserted")
    }

    /// Adds the figures of another.
    pub fn add(&mut self, more: &Self) {
        for (workflow, stats) in &more.named {
            self.of(workflow).add(stats);
        }
        if let Some(other) = &more.other {
            self.other.get_or_insert_default().add(other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_adds_up_and_tells_quantiles() {
        let mut one = Histogram::default();
        (0..90).for_each(|_| one.count(3));
        let mut other = Histogram::default();
        (0..10).for_each(|_| other.count(1_000));
        other.add(&one);
        assert_eq!(
            (other.quantile(500), other.quantile(900), other.quantile(910)),
            (Some(5), Some(5), Some(1_000))
        );
        assert_eq!(Histogram::default().quantile(500), None);
        other.count(u64::MAX);
        assert_eq!((other.0.len(), other.quantile(1_000)), (BOUNDS.len() + 1, None));
        assert!(BOUNDS.is_sorted());
    }

    #[test]
    fn figures_are_kept_without_zeros_and_read_again() {
        let mut stats = Stats { created: 2, timed_out: 1, ..Stats::default() };
        stats.duration.count(1);
        let text = serde_json::to_string(&stats).unwrap();
        assert_eq!(text, r#"{"created":2,"timedOut":1,"duration":[1]}"#);
        assert_eq!(serde_json::from_str::<Stats>(&text).unwrap(), stats);
        let mut sum = stats.clone();
        sum.add(&stats);
        assert_eq!((sum.created, sum.timed_out, sum.duration.0, sum.steps), (4, 2, vec![2], 0));
    }

    #[test]
    fn workflows_beyond_the_bound_share_their_figures() {
        let mut all = WorkflowStats::default();
        let name = |n: usize| Name::new(&format!("w{n}")).unwrap();
        (0..WORKFLOWS + 5).for_each(|n| all.of(&name(n)).created += 1);
        assert_eq!((all.named.len(), all.other.as_ref().map(|other| other.created)), (WORKFLOWS, Some(5)));
        let mut sum = all.clone();
        sum.add(&all);
        assert_eq!(sum.other.map(|other| other.created), Some(10));
        assert_eq!(sum.named[&name(3)].created, 2);
    }
}
