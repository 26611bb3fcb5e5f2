//! Drawings of a graph, for Mermaid and Graphviz.

use std::fmt::Write as _;

use super::{Graph, GraphNode};

impl Graph {
    /// A flowchart for Mermaid, which many pages show as a picture.
    pub fn mermaid(&self) -> String {
        let mut out = String::from("flowchart TD\n");
        for (index, node) in self.nodes.iter().enumerate() {
            line(
                &mut out,
                format_args!("    n{index}[\"{}<br/><i>{}</i>\"]", encoded(&node.path), encoded(&node.kind)),
            );
        }
        for edge in &self.edges {
            let label =
                edge.label.as_deref().map_or_else(String::new, |label| format!("|\"{}\"|", encoded(label)));
            line(
                &mut out,
                format_args!("    n{} -->{label} n{}", self.index(&edge.from), self.index(&edge.to)),
            );
        }
        out
    }

    /// A graph for Graphviz.
    pub fn dot(&self) -> String {
        let mut out = String::from("digraph definition {\n    node [shape=box];\n");
        for (index, node) in self.nodes.iter().enumerate() {
            let label = format!("{}\n{}", node.path, node.kind);
            line(&mut out, format_args!("    n{index} [label={}];", quoted(&label)));
        }
        for edge in &self.edges {
            let label =
                edge.label.as_deref().map_or_else(String::new, |label| format!(" [label={}]", quoted(label)));
            line(
                &mut out,
                format_args!("    n{} -> n{}{label};", self.index(&edge.from), self.index(&edge.to)),
            );
        }
        out.push_str("}\n");
        out
    }

    fn index(&self, path: &str) -> usize {
        let is_it = |node: &GraphNode| node.path == path;
        self.nodes.iter().position(is_it).expect("an edge has two nodes")
    }
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(out, "{text}").expect("a String takes every write");
}

/// Mermaid takes characters by their numbers; anything that could end a label is written so.
fn encoded(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || " _-./*,:=".contains(c);
    text.chars().map(|c| if plain(c) { c.to_string() } else { format!("#{};", u32::from(c)) }).collect()
}

/// A quoted text of Graphviz.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}
