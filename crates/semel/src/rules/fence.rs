//! The fence in a user's database: whether a try at a transactional step may go on, given the row under its effect
//! key.

/// Identity of a try at a transactional step. Tries of one run are ordered: a later claim, or a later attempt under
/// the same claim, supersedes earlier ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FenceMark {
    /// Effect key of the step.
    pub key: String,
    /// Id of the run.
    pub run: String,
    /// Path of the step.
    pub step: String,
    /// Version of the run's latest claim.
    pub fence: i64,
    /// Number of the attempt, from 1.
    pub attempt: i64,
}

/// The row under an effect key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FenceRow {
    /// The run that wrote it.
    pub run: String,
    /// Fence of the claim under which it was written.
    pub fence: i64,
    /// Number of the attempt that wrote it.
    pub attempt: i64,
    /// Outcome as JSON; none while there is none.
    pub outcome: Option<String>,
}

/// Decision about a try of a transactional step, by its row in the fence table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FenceVerdict {
    /// The effect has not taken place: run the body.
    Run,
    /// The effect has taken place; take this outcome.
    Adopt(String),
    /// A later try of the same run was here: this one is a zombie.
    Superseded,
}

/// Decides what a try has to do. An outcome counts, whichever run wrote it. Fences of two runs (a run and its fork) cannot be
/// compared, so between those only the outcome decides.
pub fn decide(mark: &FenceMark, held: Option<FenceRow>) -> FenceVerdict {
    match held {
        Some(FenceRow { outcome: Some(outcome), .. }) => FenceVerdict::Adopt(outcome),
        Some(held) if held.run == mark.run && (held.fence, held.attempt) > (mark.fence, mark.attempt) => {
            FenceVerdict::Superseded
        }
        _ => FenceVerdict::Run,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_counts_before_the_fence_and_a_fence_within_its_run() {
        let mark =
            FenceMark { key: "e1".into(), run: "run_a".into(), step: "debit".into(), fence: 5, attempt: 2 };
        let held = |run: &str, fence, attempt, outcome: Option<&str>| {
            Some(FenceRow { run: run.into(), fence, attempt, outcome: outcome.map(Into::into) })
        };
        for (held, verdict) in [
            (None, FenceVerdict::Run),
            (held("run_a", 2, 9, None), FenceVerdict::Run),
            (held("run_a", 5, 1, None), FenceVerdict::Run),
            (held("run_a", 5, 2, None), FenceVerdict::Run),
            (held("run_a", 5, 3, None), FenceVerdict::Superseded),
            (held("run_a", 6, 1, None), FenceVerdict::Superseded),
            (held("run_b", 9, 9, None), FenceVerdict::Run),
            (held("run_a", 2, 1, Some("7")), FenceVerdict::Adopt("7".into())),
            (held("run_a", 9, 1, Some("7")), FenceVerdict::Adopt("7".into())),
            (held("run_b", 9, 1, Some("7")), FenceVerdict::Adopt("7".into())),
        ] {
            assert_eq!(decide(&mark, held.clone()), verdict, "{held:?}");
        }
    }
}
