//! The statuses of a run and the transitions between them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The status of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = RunStatus))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Status {
    /// Waiting to be claimed for the first time, or again after a resume or restart.
    Pending,
    /// A node drives the run.
    Running,
    /// Waiting for a time or for input; no node is needed meanwhile.
    Waiting,
    /// Stopped by an operator, by doubt about an effect, or because it kept crashing its node.
    Paused,
    /// The workflow returned a result.
    Completed,
    /// The workflow returned an error.
    Failed,
    /// The run was cancelled: by an operator, a program or its parent.
    Cancelled,
    /// Ended by its time limit.
    TimedOut,
}

impl Status {
    /// All statuses, in order.
    pub const ALL: [Self; 8] = [
        Self::Pending,
        Self::Running,
        Self::Waiting,
        Self::Paused,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
        Self::TimedOut,
    ];

    /// Whether the run has ended.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled | Self::TimedOut)
    }

    /// Whether a run may change from this status to the next. Transitions that are not listed here are refused
    /// everywhere.
    pub fn may_become(self, next: Self) -> bool {
        use Status::{Cancelled, Completed, Failed, Paused, Pending, Running, TimedOut, Waiting};
        match next {
            // A resume, or the restart of a failure.
            Pending => matches!(self, Paused | Failed | TimedOut),
            // A claim; a takeover of a running run is also one.
            Running => matches!(self, Pending | Waiting | Running),
            // Only the driver of a claimed run lets it wait or ends it.
            Waiting | Completed | Failed => self == Running,
            // The store ends overdue runs, even without a driver. A paused run waits for an operator.
            TimedOut => matches!(self, Pending | Running | Waiting),
            // Operators may pause or cancel a run that has not ended.
            Paused => matches!(self, Pending | Running | Waiting),
            Cancelled => !self.is_terminal(),
        }
    }

    /// Whether a run in this status may be restarted.
    pub fn may_restart(self) -> bool {
        self.is_terminal() && self.may_become(Self::Pending)
    }

    /// Code of the status in SQL stores. Codes from 4 are terminal: the stores' guards rely on it.
    pub(crate) fn code(self) -> i16 {
        self as i16
    }

    pub(crate) fn from_code(code: i16) -> Option<Self> {
        Self::ALL.get(usize::try_from(code).ok()?).copied()
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pending => "PENDING",
            Self::Running => "RUNNING",
            Self::Waiting => "WAITING",
            Self::Paused => "PAUSED",
            Self::Completed => "COMPLETED",
            Self::Failed => "FAILED",
            Self::Cancelled => "CANCELLED",
            Self::TimedOut => "TIMED_OUT",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_states_change_only_by_a_restart() {
        for from in Status::ALL.into_iter().filter(|s| s.is_terminal()) {
            for to in Status::ALL {
                let restart = matches!(from, Status::Failed | Status::TimedOut) && to == Status::Pending;
                assert_eq!(from.may_become(to), restart, "{from} to {to}");
            }
        }
    }

    #[test]
    fn the_open_states_move_as_drawn() {
        let allowed: Vec<_> = Status::ALL
            .into_iter()
            .filter(|s| !s.is_terminal())
            .map(|from| {
                Status::ALL
                    .into_iter()
                    .filter(|to| from.may_become(*to))
                    .map(|s| s.to_string())
                    .collect::<Vec<_>>()
                    .join(" ")
            })
            .collect();
        assert_eq!(
            allowed,
            [
                "RUNNING PAUSED CANCELLED TIMED_OUT",
                "RUNNING WAITING PAUSED COMPLETED FAILED CANCELLED TIMED_OUT",
                "RUNNING PAUSED CANCELLED TIMED_OUT",
                "PENDING CANCELLED",
            ]
        );
    }

    #[test]
    fn codes_and_words_are_one_to_one() {
        for status in Status::ALL {
            assert_eq!(Status::from_code(status.code()), Some(status));
            assert_eq!(status.is_terminal(), status.code() >= 4);
            assert_eq!(serde_json::to_string(&status).unwrap(), format!("\"{status}\""));
        }
        assert_eq!(Status::from_code(8), None);
        assert_eq!(Status::from_code(-1), None);
    }
}
