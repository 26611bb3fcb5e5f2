//! Connections: the other systems that tasks of definitions call, by name. Only the operator's configuration says where they are,
//! which credentials they take, and what they can do about a repeated request.
//!
//! One file for each kind ([`HttpTarget`], [`WebhookTarget`], [`DatabaseTarget`], [`ModelTarget`] for two), listed in `kind`; [`Profile`]: repetitions;
//! `secret`: credentials, and how they are kept out of everything that is recorded; `address`, `names` and `route`: what may be called without a connection, and how.

mod address;
pub(crate) mod branches;
mod client;
mod database;
#[cfg(test)]
mod documented;
mod http;
mod kind;
mod mail_address;
mod mapping;
#[cfg(feature = "mcp")]
mod mcp;
mod members;
mod model;
#[cfg(feature = "mysql")]
mod mysql;
mod names;
#[cfg(feature = "nats")]
mod nats;
mod open;
mod postgres;
mod profile;
#[cfg(feature = "redis")]
mod redis;
mod route;
mod secret;
#[cfg(feature = "mail")]
mod smtp;
mod sqlite;
mod webhook;
mod window;

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use semel::Error;
use semel::id::WorkspaceId;
use semel::store::Store;
use serde::Serialize;
use tokio::sync::Semaphore;

#[cfg(feature = "redis")]
pub use self::redis::RedisTarget;
pub use database::DatabaseTarget;
#[cfg(feature = "nats")]
pub(crate) use database::told;
pub(crate) use database::{Database, on_database};
pub use http::HttpTarget;
pub use kind::{Checked, Checking, Target, TargetCheck};
pub use mail_address::MailAddress;
pub use mapping::{Channel, Mapping};
#[cfg(feature = "mcp")]
pub use mcp::{McpFailed, McpResult, McpTarget, ToolRule};
pub use members::ConnectionProblem;
pub(crate) use members::line_of;
pub use model::ModelTarget;
pub use names::{HostNames, Looking, SystemNames};
#[cfg(feature = "nats")]
pub use nats::NatsTarget;
pub use open::{Opening, check};
pub use profile::{AnswerMark, By, Find, KeyProfile, Profile, Slot, SlotPart};
pub use route::{CallFailed, HttpAnswer, Outgoing, Route};
pub use secret::Redactor;
#[cfg(feature = "mail")]
pub use smtp::{Letter, NotAccepted, SmtpTarget};
pub(crate) use webhook::keys_of;
pub use webhook::{SigningKey, WebhookTarget};
pub use window::Window;

use crate::access::workspaces;
use crate::config::Secret;

/// Maximum time of an attempt, if neither the connection nor the step says it.
pub const TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of an answer that is read, in bytes; equal to the limit of a value in the ledger.
pub const ANSWER: usize = semel::rules::json::MAX_BYTES;
/// Maximum size of a result in bytes, if the connection does not say it: a ledger is read as a whole, so results should be small.
pub const RESULT: usize = 256 * 1024;
/// Maximum number of tasks that use one connection at the same time, if it does not say it: others wait for their turn.
pub const TASKS: usize = 64;

/// All connections of a server.
pub struct Connections {
    by_name: BTreeMap<String, Arc<Connection>>,
    public: Arc<Connection>,
    store: Arc<dyn Store>,
    /// Workspaces by name, as far as they were asked for. A name never moves to another workspace.
    workspaces: Mutex<HashMap<String, WorkspaceId>>,
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.by_name.keys()).finish()
    }
}

/// A connection: another system, and what is known about it.
#[derive(Debug)]
pub struct Connection {
    /// Name of the connection, by which definitions call it.
    pub name: String,
    /// Names or ids of the workspaces that may use it; all if absent.
    pub workspaces: Option<Vec<String>>,
    /// Maximum time of an attempt of a step that does not say its own.
    pub timeout: Duration,
    /// Maximum size of a result in bytes.
    pub max_result: usize,
    /// Secrets with which the other side signs the webhooks that it sends; several while they are exchanged.
    pub sender_secrets: Vec<Secret>,
    /// What is at the other end.
    pub target: Box<dyn Target>,
    /// Turns of the tasks that use it; they are given in the order in which they were asked for.
    pub turns: Arc<Semaphore>,
}

/// A connection as lists show it, without addresses of users and secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionView {
    /// Name of the connection, as definitions have it in `on`.
    pub name: String,
    /// Kind of the connection, such as `http` or `postgres`.
    pub kind: String,
    /// Class of a step that writes through it: `keyed`, `keyed-in-window`, `reconcile`, `transactional` or
    /// `at-most-once`.
    pub class: String,
    /// What the other side can do about a repetition: the built-in profile, and how it recognises one.
    pub profile: String,
}

/// Answer of `GET /connections`.
#[derive(Clone, Debug, Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct ConnectionList {
    /// The connections that the workspace may use, by name.
    pub connections: Vec<ConnectionView>,
}

impl Connection {
    /// Kind of the connection, as the configuration has it.
    pub fn kind(&self) -> &'static str {
        self.target.kind()
    }

    /// What is at the other end, if it is of this type.
    pub fn target<T: Target>(&self) -> Option<&T> {
        let target: &dyn Any = &*self.target;
        target.downcast_ref()
    }

    /// The connection as lists show it.
    pub fn view(&self) -> ConnectionView {
        ConnectionView {
            name: self.name.clone(),
            kind: self.kind().to_owned(),
            class: self.target.class().to_owned(),
            profile: self.target.summary(),
        }
    }

    /// Says that a step needs a connection of one of these kinds, and that this is none.
    pub fn of_wrong_kind(&self, kinds: &[&str]) -> String {
        let needed = kinds.iter().map(|kind| format!("`{kind}`")).collect::<Vec<_>>().join(" or ");
        format!("the connection `{}` is of the kind `{}`, and {needed} is needed", self.name, self.kind())
    }

    /// Why a step of this task with these arguments cannot use it, although its kind fits; none if it can.
    pub fn unfit(&self, task: &str, given: &[String]) -> Option<String> {
        self.target
            .unfit(task, given)
            .map(|why| format!("the connection `{}` cannot be used: {why}", self.name))
    }

    /// Looks whether the other side can be used; `install` makes what is missing there and is ours to make.
    pub async fn look(&self, connections: &Connections, install: bool) -> Checked {
        self.target.check(TargetCheck { connections, timeout: self.timeout, install }).await
    }
}

impl Connections {
    /// The connection with this name, if the workspace may use it.
    pub async fn find(&self, workspace: WorkspaceId, name: &str) -> Result<Option<Arc<Connection>>, Error> {
        let Some(connection) = self.by_name.get(name) else { return Ok(None) };
        Ok(self.is_open(connection, workspace).await?.then(|| connection.clone()))
    }

    /// All connections that the workspace may use, by name.
    pub async fn names(&self, workspace: WorkspaceId) -> Result<Vec<Arc<Connection>>, Error> {
        let mut open = Vec::new();
        for connection in self.by_name.values() {
            if self.is_open(connection, workspace).await? {
                open.push(connection.clone());
            }
        }
        Ok(open)
    }

    /// All connections, by name, also those that are open to some workspaces only: for the operator.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Connection>> {
        self.by_name.values()
    }

    /// What is wrong with a step that names this connection and needs one of these kinds; none if it can be used.
    pub async fn check(
        &self,
        workspace: WorkspaceId,
        name: &str,
        kinds: &[&str],
    ) -> Result<Option<String>, Error> {
        Ok(match self.find(workspace, name).await? {
            Some(connection) if kinds.contains(&connection.kind()) => None,
            Some(connection) => Some(connection.of_wrong_kind(kinds)),
            // What is closed to the workspace is not told from what does not exist: a tenant learns no names of another.
            None => {
                let open = self.names(workspace).await?;
                let near = crate::definitions::problem::nearest(
                    name,
                    open.iter().map(|connection| connection.name.as_str()),
                );
                let hint = near.map(|near| format!("; is it `{near}`?")).unwrap_or_default();
                Some(format!("there is no connection `{name}` for this workspace{hint}"))
            }
        })
    }

    /// Why a step of this task with these arguments cannot use this connection, although its kind fits; none if it can.
    pub async fn unfit(
        &self,
        workspace: WorkspaceId,
        name: &str,
        task: &str,
        given: &[String],
    ) -> Result<Option<String>, Error> {
        let found = self.find(workspace, name).await?;
        Ok(found.and_then(|connection| connection.unfit(task, given)))
    }

    /// The connection of `http` without one: public addresses only, and no credentials.
    pub fn public(&self) -> &Arc<Connection> {
        &self.public
    }

    /// The way of `http` without a connection.
    pub fn public_route(&self) -> &Route {
        let http: &HttpTarget = self.public.target().expect("it was opened as one of HTTP");
        &http.route
    }

    async fn is_open(&self, connection: &Connection, workspace: WorkspaceId) -> Result<bool, Error> {
        let Some(allowed) = &connection.workspaces else { return Ok(true) };
        for name in allowed {
            if self.workspace(name).await? == Some(workspace) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The workspace with this name or id; none if there is none yet.
    async fn workspace(&self, name: &str) -> Result<Option<WorkspaceId>, Error> {
        if let Ok(id) = name.parse() {
            return Ok(Some(id));
        }
        // Nothing is left half done by a panic in here.
        let known = || self.workspaces.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(id) = known().get(name) {
            return Ok(Some(*id));
        }
        let found = workspaces::id_of(&*self.store, name).await?;
        if let Some(id) = found {
            known().insert(name.to_owned(), id);
        }
        Ok(found)
    }
}

/// A text as a part of an address: as forms encode it.
pub(crate) fn encoded(text: &str) -> String {
    form(&[(String::new(), text.to_owned())]).trim_start_matches('=').to_owned()
}

/// Fields as a form has them.
pub(crate) fn form(fields: &[(String, String)]) -> String {
    let mut url = reqwest::Url::parse("http://form").expect("it is an address");
    url.query_pairs_mut().extend_pairs(fields);
    url.query().unwrap_or_default().to_owned()
}
