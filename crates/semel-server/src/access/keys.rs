//! API keys: how they are made, found, believed and revoked.

use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use semel::Error;
use semel::clock::Time;
use semel::id::{ApiKeyId, WorkspaceId};
use semel::store::Store;
use sha2::{Digest, Sha256};
use uuid::Builder;

use super::bucket::Buckets;
use super::cache::{Cache, Seen};
use super::caller::Caller;
use super::lives::{Life, Lives};
use super::records::{self, ApiKey, Kept, Workspace};
use super::token::{self, Hash};
use crate::app::App;
use crate::config::Secret;
use crate::http::Problem;

/// So many unknown ids are looked up in a second. A storm of wrong tokens gets 429 beyond it; keys that were seen are not
/// concerned.
const UNKNOWN_PER_SECOND: u32 = 100;
/// How long a revoked or expired key is shown in lists.
const REFUSED_KEPT: Duration = Duration::from_hours(90 * 24);
/// How often a revocation is tried that meets another change of the same key.
const TRIES: usize = 5;

/// What is known of callers that have keys.
#[derive(Debug)]
pub struct Keys {
    root: Option<Hash>,
    /// Compared with when there is no such key, so that it takes as long.
    nobody: String,
    seen: Cache<ApiKeyId, Known>,
    unknown: Buckets<()>,
    calls: Buckets<WorkspaceId>,
    /// The keys with open streams.
    lives: Lives,
    /// Calls per second of a workspace that has no limit of its own; 0 is no limit.
    rate: u32,
}

/// A key with what its workspace says.
#[derive(Debug)]
struct Known {
    key: ApiKey,
    rate: Option<u32>,
}

impl Keys {
    /// Nobody is known yet but root.
    pub fn new(root: Option<&Secret>, rate: u32) -> Self {
        Self {
            root: root.map(|token| Hash::of(token.expose())),
            nobody: Hash::of("").text(),
            seen: Cache::default(),
            unknown: Buckets::default(),
            calls: Buckets::default(),
            lives: Lives::default(),
            rate,
        }
    }

    /// Whether anybody can ever call: there is a root token, or some key that is neither revoked nor expired.
    pub async fn anybody(&self, store: &dyn Store, now: Time) -> Result<bool, Error> {
        let live = |kept: &Kept<ApiKey>| kept.body.is_valid(now);
        Ok(self.root.is_some() || records::all::<ApiKey>(store).await?.iter().any(live))
    }

    /// Who has the token in these headers. Unknown, wrong, foreign, expired and revoked ones are all
    /// answered alike.
    pub(super) async fn caller(
        &self,
        store: &dyn Store,
        headers: &HeaderMap,
        now: Time,
    ) -> Result<Caller, Problem> {
        let given = token::of(headers).ok_or_else(refused)?;
        if self.root.is_some_and(|root| Hash::of(given).is(&root.text())) {
            return Ok(Caller::root());
        }
        let (id, secret) = token::parse(given).ok_or_else(refused)?;
        let known = self.find(store, id, now).await?;
        let hash = known.as_ref().map_or(&self.nobody, |known| &known.key.hash);
        let right = Hash::of(secret).is(hash);
        match known {
            Some(known) if right && known.key.is_valid(now) => {
                let rate = known.rate.unwrap_or(self.rate);
                Ok(Caller::of_key(id, &known.key, rate))
            }
            _ => Err(refused()),
        }
    }

    /// Counts a call; refused if its workspace has made too many.
    pub(super) fn admit(&self, caller: &Caller, now: Time) -> Result<(), Duration> {
        match caller.rate() {
            0 => Ok(()),
            rate => self.calls.take(caller.workspace, rate, now),
        }
    }

    /// Counts more of what a call asks for; gives how many of them the workspace may have now.
    pub(super) fn admit_more(&self, caller: &Caller, more: usize, now: Time) -> usize {
        match caller.rate() {
            0 => more,
            rate => self.calls.take_some(caller.workspace, rate, more, now),
        }
    }

    async fn find(&self, store: &dyn Store, id: ApiKeyId, now: Time) -> Result<Option<Arc<Known>>, Problem> {
        match self.seen.get(id, now) {
            Seen::Known(known) => return Ok(known),
            Seen::Before => {}
            Seen::Never => self.unknown.take((), UNKNOWN_PER_SECOND, now).map_err(|_| {
                Problem::rate_limited("too many credentials that are not known; try again in a second")
            })?,
        }
        let known = match records::find::<ApiKey>(store, &id.to_string()).await? {
            None => None,
            Some(Kept { body: key, .. }) => {
                let workspace = records::find::<Workspace>(store, &key.workspace_name).await?;
                let rate = workspace.and_then(|kept| kept.body.rate_limit);
                Some(Arc::new(Known { key, rate }))
            }
        };
        self.seen.put(id, known.clone(), now);
        Ok(known)
    }

    /// The validity of a key, for a stream that outlives its call.
    pub(super) fn life(&self, app: &App, id: ApiKeyId) -> Life {
        self.lives.of(app, id)
    }

    pub(super) fn forget(&self, id: ApiKeyId) {
        self.seen.forget(id);
        self.lives.look(id);
    }
}

fn refused() -> Problem {
    Problem::auth("no valid credential: send an API key as `Authorization: Bearer …` or as `x-api-key`")
}

/// A key to make.
pub(crate) struct NewKey {
    /// Everything but its secret.
    pub(crate) key: ApiKey,
    /// Under which the call may be repeated.
    pub(crate) call: Option<String>,
}

impl ApiKey {
    /// A key that has no secret yet.
    pub(crate) fn new(
        name: String,
        workspace: &Workspace,
        permissions: Vec<crate::api::Permission>,
        (created_at, expires_at): (Time, Option<Time>),
    ) -> Self {
        let (workspace, workspace_name) = (workspace.id, workspace.name.clone());
        Self {
            hash: String::new(),
            name,
            workspace,
            workspace_name,
            permissions,
            created_at,
            expires_at,
            revoked_at: None,
        }
    }

    fn asks_the_same(&self, other: &Self) -> bool {
        let asked = |key: &Self| (key.name.clone(), key.workspace, key.permissions.clone(), key.expires_at);
        asked(self) == asked(other)
    }

    /// How long the record is kept: for ever, or until some time after the expiry.
    fn kept_for(&self) -> Option<Duration> {
        let valid = self.expires_at?.0.saturating_sub(self.created_at.0);
        Some(Duration::from_millis(valid.max(0).unsigned_abs()).saturating_add(REFUSED_KEPT))
    }
}

/// Makes a key, and its token, which is shown this once. A repeated call gets the key without its token.
pub(crate) async fn create(app: &App, new: NewKey) -> Result<(ApiKeyId, ApiKey, Option<Secret>), Problem> {
    let id = match &new.call {
        Some(call) => derived(new.key.workspace, call),
        None => ApiKeyId(app.clock.uuid()),
    };
    let (token, hash) = token::make(id).map_err(|error| {
        tracing::error!(%error, "there is no randomness");
        Problem::unavailable("the machine has no randomness to make a secret of; try again")
    })?;
    let key = ApiKey { hash: hash.text(), ..new.key };
    match records::keep(&*app.store, &id.to_string(), &key, 0, key.kept_for()).await {
        Ok(kept) => {
            app.access.forget(id);
            return Ok((id, kept.body, Some(token)));
        }
        Err(Error::RecordChanged { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    match records::find::<ApiKey>(&*app.store, &id.to_string()).await? {
        Some(found) if found.body.asks_the_same(&key) => Ok((id, found.body, None)),
        _ => Err(Problem::key_reused("the Idempotency-Key was used for another API key; use a new one")),
    }
}

/// The id of the key that a call under this id makes.
fn derived(workspace: WorkspaceId, call: &str) -> ApiKeyId {
    let mut hash = Sha256::new();
    for part in ["semel/api-key/v1", &workspace.to_string(), call] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.finalize()[..16]);
    ApiKeyId(Builder::from_custom_bytes(bytes).into_uuid())
}

/// The keys of a workspace, or of all.
pub(crate) async fn list(
    app: &App,
    workspace: Option<WorkspaceId>,
) -> Result<Vec<(String, ApiKey)>, Problem> {
    let all = records::all::<ApiKey>(&*app.store).await?;
    let mine = |kept: &Kept<ApiKey>| workspace.is_none_or(|workspace| kept.body.workspace == workspace);
    Ok(all.into_iter().filter(mine).map(|kept| (kept.id, kept.body)).collect())
}

/// Revokes a key of a workspace, or of any. True if it was not revoked before.
pub(crate) async fn revoke(
    app: &App,
    workspace: Option<WorkspaceId>,
    id: &str,
) -> Result<(ApiKeyId, ApiKey, bool), Problem> {
    let missing = || Problem::not_found(format!("there is no API key {id} in this workspace"));
    let key_id = id.parse::<ApiKeyId>().map_err(|_| missing())?;
    for _ in 0..TRIES {
        let found = records::find::<ApiKey>(&*app.store, id).await?;
        let mine = |kept: &Kept<ApiKey>| workspace.is_none_or(|workspace| kept.body.workspace == workspace);
        let Kept { version, body, .. } = found.filter(mine).ok_or_else(missing)?;
        if body.revoked_at.is_some() {
            return Ok((key_id, body, false));
        }
        let revoked = ApiKey { revoked_at: Some(app.clock.now()), ..body };
        match records::keep(&*app.store, id, &revoked, version, Some(REFUSED_KEPT)).await {
            Ok(kept) => {
                app.access.forget(key_id);
                return Ok((key_id, kept.body, true));
            }
            Err(Error::RecordChanged { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Problem::conflict("the API key is being changed by others; try again"))
}
