//! Public addresses of hooks: `/in/<26 characters of the id>_<secret>`. Only the hash of the secret is stored.

use std::sync::Arc;
use std::time::Duration;

use semel::Error;
use semel::clock::Time;
use semel::id::{AddressId, WorkspaceId, base32};
use semel::rules::key::Token;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Builder;

use crate::access::cache::Cached;
use crate::access::token::Hash;
use crate::api::VerifySender;
use crate::app::App;
use crate::http::Problem;
use crate::records::{self, Index, RecordKind, Versioned};

/// The secret has 160 bits.
const SECRET_BYTES: usize = 20;
/// How long a revoked or expired address is shown in lists.
const REFUSED_KEPT: Duration = Duration::from_hours(30 * 24);
/// How often a revocation is repeated when it conflicts with another change of the same address.
const TRIES: usize = 5;

/// A public address of a hook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HookAddress {
    /// The SHA-256 of its secret.
    pub(crate) hash: String,
    /// Workspace of the hook.
    pub(crate) workspace: WorkspaceId,
    /// The name of the workspace, under which its limits are found; absent on a server without workspaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) workspace_name: Option<String>,
    /// Token of the hook.
    pub(crate) token: Token,
    /// Signature that each request must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) verify: Option<VerifySender>,
    /// Name of the API key that created it.
    pub(crate) created_by: String,
    pub(crate) created_at: Time,
    pub(crate) expires_at: Time,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) revoked_at: Option<Time>,
}

impl RecordKind for HookAddress {
    const KIND: &'static str = "hook-address";
}

impl HookAddress {
    fn is_valid(&self, now: Time) -> bool {
        self.revoked_at.is_none() && now < self.expires_at
    }

    fn asks_the_same(&self, other: &Self, defaulted: bool) -> bool {
        let expires = defaulted || self.expires_at == other.expires_at;
        let same = |one: &Self| (one.workspace, one.token.clone(), one.verify.clone());
        expires && same(self) == same(other)
    }

    fn kept_for(&self, now: Time) -> Duration {
        let left = self.expires_at.0.saturating_sub(now.0).max(0);
        Duration::from_millis(left.unsigned_abs()).saturating_add(REFUSED_KEPT)
    }
}

/// An address to create.
pub(crate) struct NewAddress {
    /// Everything but its secret.
    pub(crate) address: HookAddress,
    /// Id under which the call may be repeated.
    pub(crate) call: Option<String>,
    /// Whether the caller has left the expiry to the server, so that a repeated call has another one.
    pub(crate) defaulted: bool,
}

/// An address that was created; with its path, unless an earlier call has created it.
pub(crate) type Created = (AddressId, HookAddress, Option<String>);

/// Creates an address. Its path is shown in this answer only; a repeated call gets the address without it.
pub(crate) async fn create(app: &App, new: NewAddress) -> Result<Created, Problem> {
    let NewAddress { address, call, defaulted } = new;
    let (store, workspace) = (&*app.store, address.workspace);
    let id = match &call {
        Some(call) => derived(workspace, call),
        None => AddressId(app.clock.uuid()),
    };
    let mut bytes = [0; SECRET_BYTES];
    crate::access::fill(&mut bytes)?;
    let secret = base32(&bytes);
    let address = HookAddress { hash: Hash::of(&secret).text(), ..address };
    let ttl = address.kept_for(address.created_at);
    let created = match records::keep(store, &id.to_string(), &address, 0, Some(ttl)).await {
        Ok(kept) => (id, kept.body, Some(path(id, &secret))),
        Err(Error::RecordChanged { .. }) => match records::find::<HookAddress>(store, &id.to_string()).await?
        {
            Some(found) if found.body.asks_the_same(&address, defaulted) => (id, found.body, None),
            _ => {
                return Err(Problem::key_reused(
                    "the Idempotency-Key was used for another address; use a new one",
                ));
            }
        },
        Err(error) => return Err(error.into()),
    };
    // Also in a repeated call: the first one may have been interrupted here.
    index(workspace).add(store, &id.to_string(), created.1.kept_for(app.clock.now())).await?;
    app.senders.seen.forget(id);
    Ok(created)
}

fn index(workspace: WorkspaceId) -> Index {
    Index { name: "hook-address", workspace }
}

fn path(id: AddressId, secret: &str) -> String {
    let id = id.to_string();
    format!("/in/{}_{secret}", id.strip_prefix("adr_").unwrap_or(&id))
}

/// The id of the address that a call under this id makes.
fn derived(workspace: WorkspaceId, call: &str) -> AddressId {
    let mut hash = Sha256::new();
    for part in ["semel/hook-address/v1", &workspace.to_string(), call] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.finalize()[..16]);
    AddressId(Builder::from_custom_bytes(bytes).into_uuid())
}

/// The address of a path, if it is valid now. Unknown, wrong, expired and revoked ones get the same answer.
pub(crate) async fn find(app: &App, part: &str) -> Result<Arc<HookAddress>, Problem> {
    let now = app.clock.now();
    let missing = || Problem::not_found("there is no such address, or it has expired or was revoked");
    let parsed =
        part.split_once('_').and_then(|(id, secret)| Some((format!("adr_{id}").parse().ok()?, secret)));
    let Some((id, secret)) = parsed else {
        app.access.admit_unknown(now)?;
        return Err(missing());
    };
    let known = match app.senders.seen.get(id, now) {
        Cached::Known(known) => known,
        cached => {
            if matches!(cached, Cached::Never) {
                app.access.admit_unknown(now)?;
            }
            let found = records::find::<HookAddress>(&*app.store, &AddressId::to_string(&id)).await?;
            let found = found.map(|kept| Arc::new(kept.body));
            app.senders.seen.put(id, found.clone(), now);
            found
        }
    };
    known.filter(|known| Hash::of(secret).is(&known.hash) && known.is_valid(now)).ok_or_else(missing)
}

/// A page of the addresses of a workspace, the oldest first, and the cursor of the next page if there may be one.
pub(crate) async fn page(
    app: &App,
    workspace: WorkspaceId,
    after: Option<&str>,
    limit: usize,
) -> Result<(Vec<(String, HookAddress)>, Option<String>), Error> {
    let (ids, next) = index(workspace).page(&*app.store, after, limit).await?;
    let mut addresses = Vec::new();
    for id in ids {
        let found = records::find::<HookAddress>(&*app.store, &id).await?;
        addresses.extend(found.map(|kept| (id, kept.body)));
    }
    Ok((addresses, next))
}

/// Revokes an address of a workspace. True if it was not revoked before.
pub(crate) async fn revoke(
    app: &App,
    workspace: WorkspaceId,
    id: &str,
) -> Result<(HookAddress, bool), Problem> {
    let missing = || Problem::not_found(format!("there is no address {id} in this workspace"));
    let address_id = id.parse::<AddressId>().map_err(|_| missing())?;
    for _ in 0..TRIES {
        let found = records::find::<HookAddress>(&*app.store, id).await?;
        let found = found.filter(|kept| kept.body.workspace == workspace);
        let Versioned { version, body, .. } = found.ok_or_else(missing)?;
        if body.revoked_at.is_some() {
            return Ok((body, false));
        }
        let now = app.clock.now();
        let revoked = HookAddress { revoked_at: Some(now), ..body };
        match records::keep(&*app.store, id, &revoked, version, Some(revoked.kept_for(now))).await {
            Ok(kept) => {
                app.senders.seen.forget(address_id);
                return Ok((kept.body, true));
            }
            Err(Error::RecordChanged { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Problem::conflict("the address is being changed by others; try again"))
}
