//! What an engine says of itself: a record beside its lease, so that operators see who drives runs.
//!
//! The record is written when the engine joins and seldom afterwards. The sweep removes it with the node.

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
