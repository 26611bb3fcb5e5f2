//! A definition as nodes and edges. Paths are those of runs with the keys of passes replaced by `*`, so that the steps of a run can be
//! laid over it.

mod draw;

use serde::{Deserialize, Serialize};

use super::language::{Case, DefinedStep, Definition, StepBody};
use crate::tasks::Class;

/// Nodes and edges of a definition.
#[derive(Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Graph {
    /// Steps, in the order of the document.
    pub nodes: Vec<GraphNode>,
    /// Order of the steps, and the ways into blocks.
    pub edges: Vec<Edge>,
}

/// A step as a node of the graph.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct GraphNode {
    /// Path in a run, with `*` for the key of a pass.
    pub path: String,
    /// Name of the task or block that the step is.
    pub kind: String,
    /// What is known about repeating its effect.
    pub class: Class,
    /// Connection that it uses; absent if none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection: Option<String>,
    /// Path of the block around it; absent at the top.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
}

/// From a step to one that may follow it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = GraphEdge)]
pub struct Edge {
    /// Path of the first step.
    pub from: String,
    /// Path of the second.
    pub to: String,
    /// Branch or condition; absent if there is no choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

impl Graph {
    /// The graph of a definition.
    pub fn of(definition: &Definition) -> Self {
        let mut graph = Self::default();
        graph.list(&definition.steps, None, None, "");
        graph
    }

    /// Adds a list of steps: below `parent`, and with `scope` before their names.
    fn list(&mut self, steps: &[DefinedStep], parent: Option<&str>, label: Option<&str>, scope: &str) {
        let mut before: Option<String> = None;
        for step in steps {
            let path = format!("{scope}{}", step.name);
            let (from, label) = match &before {
                Some(before) => (Some(before.as_str()), None),
                None => (parent, label),
            };
            if let Some(from) = from {
                self.edge(from, &path, label);
            }
            self.step(step, &path, parent);
            before = Some(path);
        }
    }

    fn edge(&mut self, from: &str, to: &str, label: Option<&str>) {
        let edge = Edge { from: from.to_owned(), to: to.to_owned(), label: label.map(str::to_owned) };
        if !self.edges.contains(&edge) {
            self.edges.push(edge);
        }
    }

    fn step(&mut self, step: &DefinedStep, path: &str, parent: Option<&str>) {
        let (kind, class, connection) = described(step);
        // Cases of a `switch` may use the same names: one of them takes place.
        if !self.nodes.iter().any(|node| node.path == path) {
            let parent = parent.map(str::to_owned);
            self.nodes.push(GraphNode {
                path: path.to_owned(),
                kind: kind.to_owned(),
                class,
                connection,
                parent,
            });
        }
        let (inside, passes) = (format!("{path}/"), format!("{path}[*]/"));
        match &step.body {
            StepBody::Task(kind, args) => {
                for part in crate::tasks::parts(kind.name, step, args) {
                    self.part(path, &part);
                }
            }
            StepBody::Absent(_) | StepBody::Unknown => {}
            StepBody::Parallel(branches) => {
                for (name, steps) in branches {
                    self.list(steps, Some(path), Some(name), &format!("{path}/{name}/"));
                }
            }
            StepBody::ForEach(each) => self.list(&each.steps, Some(path), Some("each"), &passes),
            StepBody::Loop(looped) => self.list(&looped.steps, Some(path), Some("again"), &passes),
            StepBody::Switch(cases) => self.cases(cases, path, "otherwise", &inside),
            StepBody::Try(tried) => {
                self.list(&tried.steps, Some(path), Some("try"), &inside);
                self.cases(&tried.catch, path, "catch", &format!("{path}/catch/"));
                self.list(&tried.finally, Some(path), Some("finally"), &format!("{path}/finally/"));
            }
            StepBody::Transaction(steps) => self.list(steps, Some(path), None, &inside),
        }
        self.list(&step.undo, Some(path), Some("undo"), &format!("{path}/undo/"));
    }

    /// Adds a part of a task, such as a call of a model.
    fn part(&mut self, step: &str, part: &crate::tasks::TaskPart<'_>) {
        let path = format!("{step}/{}", part.path);
        self.edge(step, &path, None);
        self.nodes.push(GraphNode {
            path,
            kind: part.kind.to_owned(),
            class: part.class,
            connection: part.connection.map(str::to_owned),
            parent: Some(step.to_owned()),
        });
    }

    fn cases(&mut self, cases: &[Case], path: &str, otherwise: &str, scope: &str) {
        for case in cases {
            let label = case.when.as_ref().and_then(|when| when.source()).unwrap_or(otherwise);
            self.list(&case.steps, Some(path), Some(label), scope);
        }
    }
}

/// Kind, class and connection of a step.
fn described(step: &DefinedStep) -> (&str, Class, Option<String>) {
    match &step.body {
        StepBody::Task(kind, args) => {
            let class = if step.at_most_once { Class::AtMostOnce } else { (kind.class)(args) };
            (kind.name, class, args.get("on").and_then(|on| on.text()).map(str::to_owned))
        }
        StepBody::Absent(name) => (name, Class::None, None),
        StepBody::Parallel(_) => ("parallel", Class::None, None),
        StepBody::ForEach(_) => ("for_each", Class::None, None),
        StepBody::Loop(_) => ("loop", Class::None, None),
        StepBody::Switch(_) => ("switch", Class::None, None),
        StepBody::Try(_) => ("try", Class::None, None),
        StepBody::Transaction(_) => ("transaction", Class::Transaction, None),
        StepBody::Unknown => ("unknown", Class::None, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definitions::check::check;

    fn graph(name: &str) -> Graph {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/definitions/right/");
        let text = std::fs::read_to_string(format!("{folder}{name}.yaml")).unwrap();
        Graph::of(&check(&text).unwrap().definition)
    }

    fn nodes(graph: &Graph) -> Vec<String> {
        let class = |class: Class| serde_json::to_value(class).unwrap().as_str().unwrap().to_owned();
        graph.nodes.iter().map(|node| format!("{} {} {}", node.path, node.kind, class(node.class))).collect()
    }

    #[test]
    fn paths_are_those_of_runs_with_stars_for_keys() {
        for (name, expected) in [
            ("pack", vec!["pack for_each none", "pack[*]/label worker keyed", "pack[*]/shelf worker keyed"]),
            (
                "guarded",
                vec![
                    "charge try none",
                    "charge/card http at-most-once",
                    "charge/catch/other child none",
                    "charge/catch/told fail none",
                    "charge/finally/closed worker keyed",
                ],
            ),
            (
                "both",
                vec![
                    "ask parallel none",
                    "ask/price/look http keyed",
                    "ask/stock/look http keyed",
                    "offer set none",
                ],
            ),
            #[cfg(feature = "ingest")]
            (
                "library",
                vec![
                    "pages for_each none",
                    "pages[*]/know ingest transaction",
                    "pages[*]/know/look look keyed",
                    "pages[*]/know/embed embed keyed",
                    "pages[*]/know/store store transaction",
                    "pages[*]/plain ingest transaction",
                    "pages[*]/plain/look look keyed",
                    "pages[*]/plain/embed embed keyed",
                    "pages[*]/plain/store store transaction",
                ],
            ),
            ("refund", vec!["refund http by-connection"]),
        ] {
            assert_eq!(nodes(&graph(name)), expected, "{name}");
        }
        assert_eq!(graph("refund").nodes[0].connection.as_deref(), Some("stripe"));
    }

    #[test]
    fn edges_follow_the_document_and_lead_into_blocks() {
        let edges: Vec<String> = graph("large-orders")
            .edges
            .iter()
            .map(|edge| format!("{} > {} {}", edge.from, edge.to, edge.label.as_deref().unwrap_or("-")))
            .collect();
        assert_eq!(
            edges,
            [
                "large > large/approve {{ input.cents > 100000 }}",
                "large/approve > large/refused -",
                "large > large/small otherwise",
                "large > told -",
            ]
        );
    }

    #[test]
    fn drawings_have_every_node_and_quote_what_people_wrote() {
        let graph = graph("large-orders");
        let (mermaid, dot) = (graph.mermaid(), graph.dot());
        assert!(mermaid.starts_with("flowchart TD\n") && dot.starts_with("digraph definition {\n"));
        for node in &graph.nodes {
            let name = node.path.rsplit('/').next().unwrap();
            assert!(mermaid.contains(name) && dot.contains(name), "{name}");
        }
        assert!(
            mermaid.contains("n0 -->|\"#123;#123; input.cents #62; 100000 #125;#125;\"| n1"),
            "{mermaid}"
        );
        assert!(dot.contains("n0 -> n1 [label=\"{{ input.cents > 100000 }}\"];"), "{dot}");
    }
}
