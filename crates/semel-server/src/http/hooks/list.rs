//! `GET /hooks`: the open hooks of a workspace.

use std::sync::Arc;

use axum::extract::State;
use semel::clock::Time;
use semel::rules::key::{MAX_KEY, Token};
use semel::store::{HookOrder, HookPlace, HookQuery, OpenHook};
use serde::Deserialize;

use crate::access::Caller;
use crate::api::{HookList, OpenHookView, Permission, time};
use crate::app::App;
use crate::http::Problem;
use crate::http::answer::Answer;
use crate::http::asked::{QueryOf, limit_of};
use crate::http::describe::Always;

/// Hooks on a page if no limit is given.
const PAGE: usize = 50;
/// Maximum number of hooks on a page.
const MAX_PAGE: usize = 200;

/// Query of `GET /hooks`.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListHooks {
    /// Only tokens that begin like this. Not with the order `age`.
    #[param(max_length = 255)]
    pub(crate) prefix: Option<String>,
    /// Order of the list: by `token` (default), or by `age`, the hook that was opened first being the first.
    #[param(inline)]
    pub(crate) order: Option<HooksBy>,
    /// The `next` of the previous page. Absent for the first page.
    pub(crate) cursor: Option<String>,
    /// Maximum number of hooks on the page; 50 if absent.
    #[param(minimum = 1, maximum = 200)]
    pub(crate) limit: Option<usize>,
}

/// Order of a list of hooks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum HooksBy {
    /// By the bytes of their tokens.
    #[default]
    Token,
    /// By the time at which they were opened.
    Age,
}

/// List open hooks
///
/// Tokens to which payloads can be delivered, with the runs that own them and what was delivered and not consumed.
#[utoipa::path(
    get,
    path = "/hooks",
    operation_id = "listHooks",
    tag = "hooks",
    params(ListHooks),
    responses((status = 200, description = "A page of open hooks", body = HookList), Always),
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    QueryOf(asked): QueryOf<ListHooks>,
) -> Result<Answer<HookList>, Problem> {
    page(&app, &caller, asked).await.map(Answer::ok)
}

/// A page of open hooks, as its caller may see it.
pub(crate) async fn page(app: &App, caller: &Caller, asked: ListHooks) -> Result<HookList, Problem> {
    caller.may(Permission::Read)?;
    let (order, prefix) = (asked.order.unwrap_or_default(), asked.prefix.unwrap_or_default());
    if order == HooksBy::Age && !prefix.is_empty() {
        return Err(Problem::validation("`prefix` goes with the order `token`; leave `order` out"));
    }
    if prefix.chars().count() > MAX_KEY {
        return Err(Problem::validation(format!("`prefix` has at most {MAX_KEY} characters")));
    }
    let query = HookQuery {
        workspace: caller.workspace,
        prefix,
        order: match order {
            HooksBy::Token => HookOrder::Token,
            HooksBy::Age => HookOrder::Age,
        },
        after: asked.cursor.as_deref().map(place).transpose()?,
        limit: limit_of(asked.limit, PAGE, MAX_PAGE)?,
    };
    let page = app.store.hooks(query).await?;
    let next = page.next.map(|HookPlace { opened, token }| format!("{}.{token}", opened.0));
    Ok(HookList { hooks: page.hooks.iter().map(view).collect(), next })
}

/// Parses a cursor: the time at which a hook was opened, and its token.
fn place(text: &str) -> Result<HookPlace, Problem> {
    let parts = text.split_once('.').and_then(|(opened, token)| {
        Some(HookPlace { opened: Time(opened.parse().ok()?), token: Token::new(token).ok()? })
    });
    parts.ok_or_else(|| Problem::validation("`cursor` is the `next` of the previous page, unchanged"))
}

fn view(hook: &OpenHook) -> OpenHookView {
    let run = &hook.run;
    OpenHookView {
        token: hook.token.to_string(),
        run: run.id().to_string(),
        key: run.new.key.to_string(),
        workflow: run.new.workflow.to_string(),
        status: run.status(),
        path: hook.visit.as_ref().map(|visit| visit.path.to_string()),
        opened_at: (hook.opened.0 > 0).then(|| time(hook.opened)),
        deadline: run.state.deadline.map(time),
        unconsumed: hook.deliveries.into(),
    }
}
