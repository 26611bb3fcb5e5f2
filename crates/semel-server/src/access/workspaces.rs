//! Workspaces: their records, and how they are created.

use semel::Error;
use semel::clock::Clock;
use semel::id::WorkspaceId;
use semel::store::Store;

use super::records::Workspace;
use crate::api::CreateWorkspace;
use crate::app::App;
use crate::http::Problem;
use crate::records;

/// The workspace that always exists: embedded engines use it.
const DEFAULT: &str = "default";
/// The longest name of a workspace.
const LONGEST_NAME: usize = 100;

/// Creates the default workspace, unless it exists.
pub(crate) async fn ensure_default(store: &dyn Store, clock: &dyn Clock) -> Result<(), Error> {
    if records::find::<Workspace>(store, DEFAULT).await?.is_some() {
        return Ok(());
    }
    let (id, name) = (WorkspaceId::DEFAULT, DEFAULT.to_owned());
    let workspace = Workspace { id, name, rate_limit: None, created_at: clock.now() };
    match records::keep(store, DEFAULT, &workspace, 0, None).await {
        // Another server was faster.
        Ok(_) | Err(Error::RecordChanged { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Creates a workspace. The name is its identity: a repeated call with the same settings gets the same workspace.
pub(crate) async fn create(app: &App, asked: CreateWorkspace) -> Result<(Workspace, bool), Problem> {
    check_name(&asked.name)?;
    if asked.rate_limit == Some(0) {
        return Err(Problem::validation("`rateLimit` is at least 1; leave it out for the server's default"));
    }
    let workspace = Workspace {
        id: WorkspaceId(app.clock.uuid()),
        name: asked.name,
        rate_limit: asked.rate_limit,
        created_at: app.clock.now(),
    };
    match records::keep(&*app.store, &workspace.name, &workspace, 0, None).await {
        Ok(kept) => return Ok((kept.body, true)),
        Err(Error::RecordChanged { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    match records::find::<Workspace>(&*app.store, &workspace.name).await? {
        Some(found) if found.body.rate_limit == workspace.rate_limit => Ok((found.body, false)),
        _ => Err(Problem::conflict(format!(
            "the workspace `{}` exists with other settings; choose another name",
            workspace.name
        ))),
    }
}

/// All workspaces, by name.
pub(crate) async fn list(app: &App) -> Result<Vec<Workspace>, Problem> {
    Ok(records::all::<Workspace>(&*app.store).await?.into_iter().map(|kept| kept.body).collect())
}

/// A workspace by its name or its id.
pub(crate) async fn find(app: &App, name_or_id: &str) -> Result<Workspace, Problem> {
    let missing =
        || Problem::not_found(format!("there is no workspace `{name_or_id}`; GET /workspaces lists all"));
    let Ok(id) = name_or_id.parse::<WorkspaceId>() else {
        let found = records::find::<Workspace>(&*app.store, name_or_id).await?;
        return found.map(|kept| kept.body).ok_or_else(missing);
    };
    list(app).await?.into_iter().find(|workspace| workspace.id == id).ok_or_else(missing)
}

/// Id of the workspace with this name, if there is one.
pub(crate) async fn id_of(store: &dyn Store, name: &str) -> Result<Option<WorkspaceId>, Error> {
    Ok(records::find::<Workspace>(store, name).await?.map(|found| found.body.id))
}

fn check_name(name: &str) -> Result<(), Problem> {
    let fit = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
    // A text that is an id is looked up as an id.
    let is_id = name.parse::<WorkspaceId>().is_ok();
    if (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(fit) && !is_id {
        return Ok(());
    }
    Err(Problem::validation(format!(
        "`name` has 1 to {LONGEST_NAME} lower-case letters, digits, `-`, `_` or `.`, and is not an id"
    )))
}
