//! `POST /hooks/{token}/address`, `GET /hook-addresses`, `DELETE /hook-addresses/{id}`: public addresses for senders that
//! cannot set an API key.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use semel::ErrorCode;
use semel::clock::Time;
use serde::Deserialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answer::Answer;
use super::asked::{CallKey, PathOf, QueryOf, limit_of, time_of};
use super::describe::{Always, Changes, IdempotencyKey, OfRun};
use super::hooks::deliverable;
use super::{Body, Problem};
use crate::access::{Caller, workspaces};
use crate::api::{AddressCreated, AddressList, AddressView, CreateAddress, Permission, VerifySender, time};
use crate::app::App;
use crate::senders;
use crate::senders::address::{self, HookAddress, NewAddress};

/// Addresses on a page if no limit is given.
const USUAL: usize = 50;
/// Maximum number of addresses on a page: each of them is read by itself.
const MOST: usize = 100;
/// How long an address is valid if its creator does not say it.
const VALID: Duration = Duration::from_hours(30 * 24);
/// Maximum time for which an address is valid: the makers of longer ones forget them.
const LONGEST: Duration = Duration::from_hours(366 * 24);

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(create)).routes(routes!(list)).routes(routes!(revoke))
}

/// Create a public address of a hook
///
/// For senders that cannot set an API key: what they send to the address is delivered to the hook. The path is only in this
/// answer. A call repeated under its `Idempotency-Key` gets the address without the path.
#[utoipa::path(
    post,
    path = "/hooks/{token}/address",
    operation_id = "createHookAddress",
    tag = "hooks",
    params(("token" = String, Path, description = "Token of the hook, which need not be open yet", example = "order:7"), IdempotencyKey),
    request_body(content = CreateAddress, example = json!({"verify": {"scheme": "stripe", "connection": "stripe"}})),
    responses(
        (status = 201, description = "The new address with its path", body = AddressCreated),
        (status = 200, description = "The address that an earlier call under the same id created", body = AddressCreated),
        Always,
        Changes,
    ),
)]
async fn create(
    State(app): State<Arc<App>>,
    caller: Caller,
    PathOf(token): PathOf<String>,
    call: CallKey,
    Body(asked): Body<CreateAddress>,
) -> Result<Answer<AddressCreated>, Problem> {
    caller.may(Permission::Start)?;
    let now = app.clock.now();
    if let Some(verify) = &asked.verify {
        check(&app, &caller, verify).await?;
    }
    let new = NewAddress {
        address: HookAddress {
            hash: String::new(),
            workspace: caller.workspace,
            workspace_name: workspace_name(&app, &caller).await?,
            token: deliverable(token)?,
            verify: asked.verify,
            created_by: caller.name.clone(),
            created_at: now,
            expires_at: expiry(asked.expires_at.as_deref(), now)?,
            revoked_at: None,
        },
        call: call.text().map(str::to_owned),
        defaulted: asked.expires_at.is_none(),
    };
    let (id, address, path) = address::create(&app, new).await?;
    let created = path.is_some();
    let answer = AddressCreated { address: view(&id.to_string(), &address), path };
    Ok(Answer::ok(answer).created(created).replayed(!created))
}

/// Refuses a connection without a secret: its sender would be refused each time.
async fn check(app: &App, caller: &Caller, verify: &VerifySender) -> Result<(), Problem> {
    if senders::secrets(app, caller.workspace, &verify.connection).await?.is_empty() {
        return Err(Problem::validation(format!(
            "`verify.connection`: there is no connection `{}` with a `sender-secret` for this workspace; it belongs into the server's \
             configuration",
            verify.connection
        )));
    }
    Ok(())
}

fn expiry(asked: Option<&str>, now: Time) -> Result<Time, Problem> {
    let Some(text) = asked else { return Ok(now.after(VALID)) };
    let at = time_of(text, "expiresAt", now)?;
    match at <= now.after(LONGEST) {
        true => Ok(at),
        false => Err(Problem::validation("`expiresAt` is at most 366 days ahead; create a new address then")),
    }
}

/// The name of the caller's workspace, under which its limits are found.
async fn workspace_name(app: &App, caller: &Caller) -> Result<Option<String>, Problem> {
    match workspaces::find(app, &caller.workspace.to_string()).await {
        Ok(workspace) => Ok(Some(workspace.name)),
        // Without authentication there need not be one.
        Err(problem) if problem.code() == ErrorCode::NotFound => Ok(None),
        Err(problem) => Err(problem),
    }
}

/// Query of `GET /hook-addresses`.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WhichAddresses {
    /// The `next` of the previous page. Absent for the first page.
    cursor: Option<String>,
    /// Maximum number of addresses on the page; 50 if absent.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<usize>,
}

/// List public addresses of hooks
///
/// The addresses of the workspace, without their paths. Revoked and expired ones are shown for 30 days.
#[utoipa::path(
    get,
    path = "/hook-addresses",
    operation_id = "listHookAddresses",
    tag = "hooks",
    params(WhichAddresses),
    responses((status = 200, description = "A page of addresses", body = AddressList), Always),
)]
async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    QueryOf(asked): QueryOf<WhichAddresses>,
) -> Result<Answer<AddressList>, Problem> {
    caller.may(Permission::Read)?;
    let limit = limit_of(asked.limit, USUAL, MOST)?;
    let (page, next) = address::page(&app, caller.workspace, asked.cursor.as_deref(), limit).await?;
    let addresses = page.iter().map(|(id, address)| view(id, address)).collect();
    Ok(Answer::ok(AddressList { addresses, next }))
}

/// Revoke a public address of a hook
///
/// Within a second every server refuses what is sent to it. Revoking it again changes nothing.
#[utoipa::path(
    delete,
    path = "/hook-addresses/{id}",
    operation_id = "revokeHookAddress",
    tag = "hooks",
    params(("id" = String, Path, description = "Id of the address", example = "adr_01k5c000000000000000000000")),
    responses((status = 200, description = "The revoked address", body = AddressView), Always, OfRun, Changes),
)]
async fn revoke(
    State(app): State<Arc<App>>,
    caller: Caller,
    PathOf(id): PathOf<String>,
) -> Result<Answer<AddressView>, Problem> {
    caller.may(Permission::Start)?;
    let (address, changed) = address::revoke(&app, caller.workspace, &id).await?;
    Ok(Answer::ok(view(&id, &address)).replayed(!changed))
}

fn view(id: &str, address: &HookAddress) -> AddressView {
    AddressView {
        id: id.to_owned(),
        token: address.token.to_string(),
        verify: address.verify.clone(),
        created_by: address.created_by.clone(),
        created_at: time(address.created_at),
        expires_at: time(address.expires_at),
        revoked_at: address.revoked_at.map(time),
    }
}
