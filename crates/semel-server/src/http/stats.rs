//! `GET /stats`: figures of a workspace, minute by minute.

use std::cmp::Reverse;
use std::sync::Arc;

use axum::extract::State;
use semel::clock::Time;
use semel::rules::stats::{BOUNDS, WorkflowStats};
use semel::store::{StatsQuery, StatsSeries};
use serde::Deserialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Problem;
use super::answer::Answer;
use super::asked::QueryOf;
use super::describe::Always;
use super::runs::time_of;
use crate::access::Caller;
use crate::api::{Period, Permission, StatsAnswer, StatsBucketView, WorkflowStatsView, time};
use crate::app::App;

/// Milliseconds of a minute.
const MINUTE: i64 = 60_000;
/// Minutes that are shown if no `from` is given.
const SHOWN: i64 = 60;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(read))
}

/// Query of `GET /stats`.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ReadStats {
    /// Time from which on figures are counted, RFC 3339; an hour before `to` if absent.
    #[param(format = DateTime)]
    from: Option<String>,
    /// Time until which figures are counted, RFC 3339; now if absent.
    #[param(format = DateTime)]
    to: Option<String>,
    /// Length of a bucket in whole minutes, such as `1m`, `5m` or `1h`; one minute if absent. Steps of whole hours reach back
    /// 90 days, all others 7 days.
    #[param(value_type = Option<String>)]
    step: Option<String>,
    /// Whether to add up the figures of each workflow over the whole time.
    #[serde(default)]
    workflows: bool,
}

/// Read figures over time
///
/// What happened in the workspace, by the minute or longer: starts by verdict, ended runs by status, steps, duplicates,
/// refused calls, late results, doubts, deliveries; how late runs were claimed, and how long they took. Figures are written
/// behind: a crash of a server loses those of its last seconds. At most 1,500 buckets are answered.
#[utoipa::path(
    get,
    path = "/stats",
    operation_id = "readStats",
    tag = "runs",
    params(ReadStats),
    responses((status = 200, description = "The figures", body = StatsAnswer), Always),
)]
async fn read(
    State(app): State<Arc<App>>,
    caller: Caller,
    QueryOf(asked): QueryOf<ReadStats>,
) -> Result<Answer<StatsAnswer>, Problem> {
    caller.may(Permission::Read)?;
    let to = asked.to.as_deref().map(|text| time_of("to", text)).transpose()?;
    // The minute that goes on is shown, too.
    let to = to.unwrap_or_else(|| Time(app.clock.now().0.saturating_add(1)));
    let from = asked.from.as_deref().map(|text| time_of("from", text)).transpose()?;
    let from = from.unwrap_or_else(|| Time(to.0.saturating_sub(SHOWN * MINUTE)));
    let step = asked.step.as_deref().map_or(Ok(1), minutes_of)?;
    let query = StatsQuery { workspace: caller.workspace, from, to, step, workflows: asked.workflows };
    let StatsSeries { buckets, workflows, partial } = app.store.stats(query).await?;
    let bucket =
        |bucket: semel::store::StatsBucket| StatsBucketView { at: time(bucket.at), stats: bucket.stats };
    let WorkflowStats { named, other } = workflows;
    let mut named: Vec<_> = named.into_iter().collect();
    named.sort_by_key(|(name, stats)| (Reverse(stats.activity()), name.clone()));
    let view = |(name, stats): (semel::rules::path::Name, _)| WorkflowStatsView {
        workflow: name.to_string(),
        stats,
    };
    Ok(Answer::ok(StatsAnswer {
        from: time(Time(from.0 - from.0.rem_euclid(i64::from(step) * MINUTE))),
        to: time(to),
        step,
        bounds: BOUNDS.to_vec(),
        buckets: buckets.into_iter().map(bucket).collect(),
        workflows: named.into_iter().map(view).collect(),
        other,
        partial,
    }))
}

/// A step in whole minutes.
fn minutes_of(text: &str) -> Result<u32, Problem> {
    let period = Period(text.to_owned()).duration().filter(|period| period.as_millis() % 60_000 == 0);
    let minutes =
        period.and_then(|period| u32::try_from(period.as_secs() / 60).ok()).filter(|minutes| *minutes > 0);
    minutes.ok_or_else(|| {
        Problem::validation(format!(
            "`step` is a number of whole minutes like 1m, 15m or 1h, and not {text:?}"
        ))
    })
}
