//! API keys: creating, finding, checking and revoking them.

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
use super::cache::{Cache, Cached};
use super::caller::Caller;
use super::lives::{Life, Lives};
use super::records::{ApiKey, Workspace};
use super::token::{self, Hash};
use crate::app::App;
use crate::config::Secret;
use crate::http::Problem;
use crate::records::{self, Versioned};

/// The highest number of unknown ids that are looked up in a second. Beyond it, wrong tokens get 429; known keys are not
/// affected.
const UNKNOWN_PER_SECOND: u32 = 100;
/// How long a revoked or expired key is shown in lists.
const REFUSED_KEPT: Duration = Duration::from_hours(90 * 24);
/// How often a revocation is repeated when it conflicts with another change of the same key.
const TRIES: usize = 5;

/// Authentication of callers by their keys.
#[derive(Debug)]
pub struct Keys {
    root: Option<Hash>,
    /// Hash to compare with if there is no such key, so that the answer takes as long.
    absent: String,
    seen: Cache<ApiKeyId, KnownKey>,
    unknown: Buckets<()>,
    calls: Buckets<WorkspaceId>,
    /// The keys with open streams.
    lives: Lives,
    /// Calls per second of a workspace that has no limit of its own; 0 is no limit.
    rate: u32,
}

/// A key, and the settings of its workspace.
#[derive(Debug)]
struct KnownKey {
    key: ApiKey,
    rate: Option<u32>,
}

impl Keys {
    /// Knows the root token only; keys are looked up when they are used.
    pub fn new(root: Option<&Secret>, rate: u32) -> Self {
        Self {
            root: root.map(|token| Hash::of(token.expose())),
            absent: Hash::of("").text(),
            seen: Cache::default(),
            unknown: Buckets::default(),
            calls: Buckets::default(),
            lives: Lives::default(),
            rate,
        }
    }

    /// Whether any caller can be accepted: there is a root token, or a key that is neither revoked nor expired.
    pub async fn any_usable(&self, store: &dyn Store, now: Time) -> Result<bool, Error> {
        let live = |kept: &Versioned<ApiKey>| kept.body.is_valid(now);
        Ok(self.root.is_some() || records::all::<ApiKey>(store).await?.iter().any(live))
    }

    /// The caller with the token of these headers. Unknown, wrong, foreign, expired and revoked tokens get
    /// the same answer.
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
        let hash = known.as_ref().map_or(&self.absent, |known| &known.key.hash);
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

    /// Counts the further items of a call; gives how many of them the workspace may have now.
    pub(super) fn admit_more(&self, caller: &Caller, more: usize, now: Time) -> usize {
        match caller.rate() {
            0 => more,
            rate => self.calls.take_some(caller.workspace, rate, more, now),
        }
    }

    /// The id and the workspace of the API key with this token, for a session. Refused like any other invalid token.
    pub(super) async fn sign_in(
        &self,
        store: &dyn Store,
        given: &str,
        now: Time,
    ) -> Result<(ApiKeyId, String), Problem> {
        let refused = || Problem::auth("no valid API key: it is unknown, revoked or expired");
        let (id, secret) = token::parse(given.trim()).ok_or_else(refused)?;
        let known = self.find(store, id, now).await?;
        let hash = known.as_ref().map_or(&self.absent, |known| &known.key.hash);
        let right = Hash::of(secret).is(hash);
        let valid = known.filter(|known| right && known.key.is_valid(now)).ok_or_else(refused)?;
        Ok((id, valid.key.workspace_name.clone()))
    }

    /// The caller with a key that a session has shown before; none if the key is refused by now.
    pub(super) async fn member(
        &self,
        store: &dyn Store,
        id: ApiKeyId,
        now: Time,
    ) -> Result<Option<Caller>, Problem> {
        let known = self.find(store, id, now).await?.filter(|known| known.key.is_valid(now));
        Ok(known.map(|known| Caller::of_key(id, &known.key, known.rate.unwrap_or(self.rate))))
    }

    async fn find(
        &self,
        store: &dyn Store,
        id: ApiKeyId,
        now: Time,
    ) -> Result<Option<Arc<KnownKey>>, Problem> {
        match self.seen.get(id, now) {
            Cached::Known(known) => return Ok(known),
            Cached::Before => {}
            Cached::Never => self.admit_unknown(now)?,
        }
        let known = match records::find::<ApiKey>(store, &id.to_string()).await? {
            None => None,
            Some(Versioned { body: key, .. }) => {
                let rate = Self::rate_of(store, &key.workspace_name).await?;
                Some(Arc::new(KnownKey { key, rate }))
            }
        };
        self.seen.put(id, known.clone(), now);
        Ok(known)
    }

    /// Counts a call without a key to its workspace; refused if the workspace has made too many.
    pub(super) fn admit_public(
        &self,
        workspace: WorkspaceId,
        rate: Option<u32>,
        now: Time,
    ) -> Result<(), Problem> {
        let admitted = match rate.unwrap_or(self.rate) {
            0 => Ok(()),
            rate => self.calls.take(workspace, rate, now),
        };
        admitted
            .map_err(|_| Problem::rate_limited("too many calls for this workspace; repeat the call later"))
    }

    /// Counts a call without a valid credential, link or address; refused if all callers together have made too many.
    pub(super) fn admit_unknown(&self, now: Time) -> Result<(), Problem> {
        self.unknown.take((), UNKNOWN_PER_SECOND, now).map_err(|_| {
            Problem::rate_limited("too many credentials that are not known; try again in a second")
        })
    }

    /// The rate of a workspace, if it has one of its own.
    pub(super) async fn rate_of(store: &dyn Store, workspace: &str) -> Result<Option<u32>, Error> {
        let workspace = records::find::<Workspace>(store, workspace).await?;
        Ok(workspace.and_then(|kept| kept.body.rate_limit))
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

/// A key to create.
pub(crate) struct NewKey {
    /// Everything but its secret.
    pub(crate) key: ApiKey,
    /// Id under which the call may be repeated.
    pub(crate) call: Option<String>,
}

impl ApiKey {
    /// A key that has no secret yet.
    pub(crate) fn new(
        name: String,
        workspace: &Workspace,
        (permissions, roles): (Vec<crate::api::Permission>, Vec<String>),
        (created_at, expires_at): (Time, Option<Time>),
    ) -> Self {
        let (workspace, workspace_name) = (workspace.id, workspace.name.clone());
        Self {
            hash: String::new(),
            name,
            workspace,
            workspace_name,
            permissions,
            roles,
            created_at,
            expires_at,
            revoked_at: None,
        }
    }

    fn asks_the_same(&self, other: &Self) -> bool {
        let asked = |key: &Self| {
            (key.name.clone(), key.workspace, key.permissions.clone(), key.roles.clone(), key.expires_at)
        };
        asked(self) == asked(other)
    }

    /// How long the record is kept: for ever, or until some time after the expiry.
    fn kept_for(&self) -> Option<Duration> {
        let valid = self.expires_at?.0.saturating_sub(self.created_at.0);
        Some(Duration::from_millis(valid.max(0).unsigned_abs()).saturating_add(REFUSED_KEPT))
    }
}

/// Creates a key and its token, which is shown in this answer only. A repeated call gets the key without its token.
pub(crate) async fn create(app: &App, new: NewKey) -> Result<(ApiKeyId, ApiKey, Option<Secret>), Problem> {
    let id = match &new.call {
        Some(call) => derived(new.key.workspace, call),
        None => ApiKeyId(app.clock.uuid()),
    };
    let (token, hash) = token::make(id)?;
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
    let mine = |kept: &Versioned<ApiKey>| workspace.is_none_or(|workspace| kept.body.workspace == workspace);
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
        let mine =
            |kept: &Versioned<ApiKey>| workspace.is_none_or(|workspace| kept.body.workspace == workspace);
        let Versioned { version, body, .. } = found.filter(mine).ok_or_else(missing)?;
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
