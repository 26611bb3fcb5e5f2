//! What an engine says of itself: a record beside its lease, so that operators see who drives runs.
//!
//! The record is written when the engine joins and seldom afterwards. The sweep removes it with the node.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::key::RecordId;
use super::path::Name;
use crate::clock::Time;
use crate::id::{NodeId, WorkspaceId};

/// Description of an engine in a process that opens the store itself. Workers of a server are described by that server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EngineRecord {
    /// Name of the engine: that of its program, unless its builder has set another.
    pub name: String,
    /// Host name of the machine; empty if it is unknown.
    pub host: String,
    /// Process id on that machine.
    pub pid: u32,
    /// Workspace in which it drives the workflows of `serves`.
    pub workspace: WorkspaceId,
    /// Workflows that it drives there, as `name@version`, sorted.
    pub serves: Vec<String>,
    /// Families of workflow versions that it drives in all workspaces, sorted.
    pub families: Vec<String>,
    /// Time at which it joined.
    pub since: Time,
}

impl EngineRecord {
    /// Kind of these records in a store.
    pub fn kind() -> Name {
        Name::new("engine").expect("it is a name")
    }

    /// Id of the record of an engine that drives runs as this node.
    pub fn id(node: NodeId) -> RecordId {
        RecordId::new(node.to_string()).expect("a node's id is short and printable")
    }
}

/// Description of a remote worker's node, written by the server at which it registers. The sweep removes it with the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerNode {
    /// Name that the worker has registered with.
    pub name: String,
    /// Workspace of the worker.
    pub workspace: WorkspaceId,
    /// Workflows and queues that it serves, sorted.
    pub serves: Vec<String>,
}

impl WorkerNode {
    /// Kind of these records in a store. Their ids are those of [`EngineRecord::id`].
    pub fn kind() -> Name {
        Name::new("worker-node").expect("it is a name")
    }
}

/// Description of a node that was found dead. The sweep writes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LostNode {
    /// Name of the engine or worker.
    pub name: String,
    /// Host name of an engine; empty if it is unknown, and for a worker.
    pub host: String,
    /// Workspace in which it drove workflows.
    pub workspace: WorkspaceId,
    /// Workflows and queues that it served, sorted.
    pub serves: Vec<String>,
    /// Whether it was a remote worker.
    pub remote: bool,
    /// Time at which it was found dead.
    pub lost: Time,
}

impl LostNode {
    /// How long a lost node is remembered.
    pub const KEPT: Duration = Duration::from_hours(24);

    /// Kind of these records in a store. Their ids are those of [`EngineRecord::id`].
    pub fn kind() -> Name {
        Name::new("lost-node").expect("it is a name")
    }

    /// What is remembered of an engine.
    pub fn engine(engine: EngineRecord, lost: Time) -> Self {
        let EngineRecord { name, host, workspace, serves, .. } = engine;
        Self { name, host, workspace, serves, remote: false, lost }
    }

    /// What is remembered of a worker.
    pub fn worker(worker: WorkerNode, lost: Time) -> Self {
        let WorkerNode { name, workspace, serves } = worker;
        Self { name, host: String::new(), workspace, serves, remote: true, lost }
    }
}

/// Title of a workflow version in a record: `name@version`.
pub fn title(workflow: &Name, version: &Name) -> String {
    format!("{workflow}@{version}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_engine_has_a_record_of_its_own() {
        let [one, other] = [1, 2].map(|n| EngineRecord::id(NodeId(uuid::Uuid::from_u128(n))));
        assert!(one != other && one.to_string().starts_with("node_"));
        assert_eq!(EngineRecord::kind(), EngineRecord::kind());
    }

    #[test]
    fn a_record_is_written_in_camel_case() {
        let name = |text| Name::new(text).unwrap();
        let engine = EngineRecord {
            name: "shop".to_owned(),
            host: "web-1".to_owned(),
            pid: 7,
            workspace: WorkspaceId::DEFAULT,
            serves: vec![title(&name("order"), &name("2"))],
            families: vec!["doc1_".to_owned()],
            since: Time(5),
        };
        let text = serde_json::to_string(&engine).unwrap();
        assert!(text.contains(r#""serves":["order@2"],"families":["doc1_"]"#), "{text}");
        assert_eq!(serde_json::from_str::<EngineRecord>(&text).unwrap(), engine);
    }
}
