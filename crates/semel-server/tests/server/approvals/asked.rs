//! Runs of definitions that wait for a person.

use std::sync::Arc;

use semel::Engine;
use semel::clock::SystemClock;
use semel::id::WorkspaceId;
use semel_server::access::Caller;
use semel_server::api::Permission;
use semel_server::app::App;
use semel_server::approvals::Approvals;
use semel_server::definitions::catalog::Catalog;
use semel_server::definitions::interpret::Interpreter;
use serde_json::{Value, json};

use crate::world::{Api, World};

/// A run that waits for a person.
pub(super) struct Asking {
    /// Id of the approval.
    pub(super) id: String,
    pub(super) run: String,
    _engine: Engine,
}

impl Asking {
    /// A path below that of the approval.
    pub(super) fn path(&self, rest: &str) -> String {
        format!("/approvals/{}{rest}", self.id)
    }
}

/// A definition with one task.
pub(super) fn definition(task: &str) -> String {
    format!("semel: 1\nname: asks\nsteps:\n  - name: ask\n    {task}\n")
}

/// Starts a run that asks, and waits until its approval is listed.
pub(super) async fn asking(world: &World, task: &str) -> Asking {
    let catalog = Arc::new(Catalog::new(world.store.clone()));
    let interpreter = Interpreter::new(catalog.clone());
    let build = |builder: semel::engine::Builder| {
        builder.state_of_store(Approvals::new).shared_state(catalog).programs(interpreter)
    };
    let engine = world.engine(build).await;
    let pushed = world.client.post("/workflow-definitions", definition(task)).await.ok();
    let run =
        world.client.post("/workflow-runs", json!({"definitionId": pushed["id"]}).to_string()).await.run_id();
    world.client.reached(&run, "WAITING").await;
    let open = Approvals::new(world.store.clone()).page(WorkspaceId::DEFAULT, None, 100).await;
    let (open, _) = open.expect("the store is open");
    let found = open.into_iter().find(|(_, approval)| approval.run.to_string() == run);
    let (id, _) = found.expect("a run that waits for a person is listed");
    Asking { id: id.to_string(), run, _engine: engine }
}

/// A server on the same store, all of whose calls this caller makes.
pub(super) async fn caller(world: &World, name: &str, permissions: &[Permission], roles: &[&str]) -> Api {
    let mut caller = Caller::new(WorkspaceId::DEFAULT, name, permissions.to_vec());
    caller.roles = roles.iter().map(ToString::to_string).collect();
    Api::serve_as(App::open(world.store.clone(), Arc::new(SystemClock::new())), caller).await
}

/// The titles in a list.
pub(super) fn titles(list: &Value) -> Vec<String> {
    let all = list["approvals"].as_array().expect("a list");
    all.iter().map(|approval| approval["title"].as_str().expect("a text").to_owned()).collect()
}
