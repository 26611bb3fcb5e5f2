//! The fence in a user's database: whether a try at a transactional step may go on, given what stands under its effect
//! key.

/// Who makes a try at a transactional step. Tries of one run are in order: a later claim, or a later attempt under the
/// same claim, comes after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The effect key.
    pub key: String,
    /// The run.
    pub run: String,
    /// The step's path.
    pub step: String,
    /// The version of the run's last claim.
    pub fence: i64,
    /// Which attempt.
    pub attempt: i64,
}

/// What stands under an effect key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The run that wrote it.
    pub run: String,
    /// Under which claim.
    pub fence: i64,
    /// In which attempt.
    pub attempt: i64,
    /// The outcome as JSON, once there is one.
    pub outcome: Option<String>,
}

/// What a try has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Run the body.
    Run,
    /// The effect has taken place; this is its outcome.
    Adopt(String),
    /// A later try of the same run has been here: this one is a zombie.
    Superseded,
}

/// Decides what a try has to do. An outcome counts whoever wrote it. Fences of two runs (a run and its fork) cannot be
/// compared, so between those only the outcome decides.
pub fn decide(mark: &Mark, held: Option<Held>) -> Verdict {
    match held {
        Some(Held { outcome: Some(outcome), .. }) => Verdict::Adopt(outcome),
        Some(held) if held.run == mark.run && (held.fence, held.attempt) > (mark.fence, mark.attempt) => {
            Verdict::Superseded
        }
        _ => Verdict::Run,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_counts_before_the_fence_and_a_fence_within_its_run() {
        let mark = Mark { key: "e1".into(), run: "run_a".into(), step: "debit".into(), fence: 5, attempt: 2 };
        let held = |run: &str, fence, attempt, outcome: Option<&str>| {
            Some(Held { run: run.into(), fence, attempt, outcome: outcome.map(Into::into) })
        };
        for (held, verdict) in [
            (None, Verdict::Run),
            (held("run_a", 2, 9, None), Verdict::Run),
            (held("run_a", 5, 1, None), Verdict::Run),
            (held("run_a", 5, 2, None), Verdict::Run),
            (held("run_a", 5, 3, None), Verdict::Superseded),
            (held("run_a", 6, 1, None), Verdict::Superseded),
            (held("run_b", 9, 9, None), Verdict::Run),
            (held("run_a", 2, 1, Some("7")), Verdict::Adopt("7".into())),
            (held("run_a", 9, 1, Some("7")), Verdict::Adopt("7".into())),
            (held("run_b", 9, 1, Some("7")), Verdict::Adopt("7".into())),
        ] {
            assert_eq!(decide(&mark, held.clone()), verdict, "{held:?}");
        }
    }
}
