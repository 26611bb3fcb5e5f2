//! `GET /counts`: numbers of a workspace, each counted to a bound.

use std::sync::Arc;

use axum::extract::State;
use semel::store::{Capped, DueVersion, RunTally, TallyQuery};
use serde::Deserialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Problem;
use super::answer::Answer;
use super::asked::QueryOf;
use super::describe::Always;
use super::runs::time_of;
use super::start::name;
use crate::access::Caller;
use crate::api::{AttentionCount, CappedView, CountsView, Permission, StatusCount, UnservedVersion, time};
use crate::app::App;

/// Bound of each number.
const CAP: usize = 10_000;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(counts))
}

/// Query of `GET /counts`.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct AskCounts {
    /// Only runs of this workflow. Then at most 1,500 runs of each status are looked at.
    #[param(min_length = 1, max_length = 200)]
    pub(crate) workflow: Option<String>,
    /// Only runs created at this time or later, RFC 3339. It does not apply to what is due.
    #[param(format = DateTime)]
    pub(crate) since: Option<String>,
}

/// Count runs
///
/// By status and by what paused runs need, each number to 10,000; what is due, and what nothing serves.
#[utoipa::path(
    get,
    path = "/counts",
    operation_id = "countRuns",
    tag = "runs",
    params(AskCounts),
    responses((status = 200, description = "The numbers of the workspace", body = CountsView), Always),
)]
async fn counts(
    State(app): State<Arc<App>>,
    caller: Caller,
    QueryOf(asked): QueryOf<AskCounts>,
) -> Result<Answer<CountsView>, Problem> {
    numbers(&app, &caller, asked).await.map(Answer::ok)
}

/// The numbers of a workspace, as its caller may see them.
pub(crate) async fn numbers(app: &App, caller: &Caller, asked: AskCounts) -> Result<CountsView, Problem> {
    caller.may(Permission::Read)?;
    let query = TallyQuery {
        workspace: caller.workspace,
        workflow: asked.workflow.as_deref().map(name).transpose()?,
        since: asked.since.as_deref().map(|since| time_of("since", since)).transpose()?,
        cap: CAP,
    };
    let RunTally { statuses, attention, versions } = app.store.tally(query).await?;
    let status = |(status, runs): (_, Capped)| StatusCount { status, runs: runs.into() };
    let kind = |(attention, runs): (_, Capped)| AttentionCount { attention, runs: runs.into() };
    let mut unserved = Vec::new();
    for version in versions.iter().filter(|version| version.due.count > 0) {
        let (workflow, workflow_version) = (version.workflow.as_str(), version.workflow_version.as_str());
        if !app.services.is_served(app, caller.workspace, workflow, workflow_version).await {
            unserved.push(unserved_view(version));
        }
    }
    Ok(CountsView {
        statuses: statuses.into_iter().map(status).collect(),
        attention: attention.into_iter().map(kind).collect(),
        due: sum(versions.iter().map(|version| version.due)),
        late: sum(versions.iter().map(|version| version.late)),
        unserved,
    })
}

fn unserved_view(version: &DueVersion) -> UnservedVersion {
    UnservedVersion {
        workflow: version.workflow.to_string(),
        workflow_version: version.workflow_version.to_string(),
        due: version.due.into(),
        oldest_due_at: version.oldest.map(time),
    }
}

/// Several numbers as one, which ends at the same bound.
pub(super) fn sum(numbers: impl Iterator<Item = Capped>) -> CappedView {
    let all = numbers.fold(Capped::default(), |all, one| Capped {
        count: all.count + one.count,
        more: all.more || one.more,
    });
    CappedView { count: all.count.min(CAP as u64), more: all.more || all.count > CAP as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_ends_at_the_bound_of_its_numbers() {
        let sum_of = |numbers: &[(u64, bool)]| {
            let summed = sum(numbers.iter().map(|(count, more)| Capped { count: *count, more: *more }));
            (summed.count, summed.more)
        };
        assert_eq!(sum_of(&[]), (0, false));
        assert_eq!(sum_of(&[(4, false), (6, false)]), (10, false));
        assert_eq!(sum_of(&[(4, false), (6, true)]), (10, true));
        assert_eq!(sum_of(&[(9_000, false), (1_001, false)]), (10_000, true));
    }
}
