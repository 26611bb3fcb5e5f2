//! The graph of a definition as a drawing: layers from left to right, each step behind those that lead to it.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::parts::Markup;
use crate::definitions::graph::{Edge, Graph, GraphNode};
use crate::http::escaped;

/// Size of a node, and of the space between nodes.
const WIDTH: usize = 168;
const HEIGHT: usize = 40;
const GAP_X: usize = 56;
const GAP_Y: usize = 16;
const MARGIN: usize = 12;
/// Longest name in a node, in characters.
const NAME: usize = 22;
/// Maximum number of nodes that are drawn; the list has all.
const DRAWN: usize = 300;

/// A drawing, and the same as a list.
pub(super) struct GraphDrawing {
    pub(super) svg: Markup,
    pub(super) nodes: Vec<NodeRow>,
}

/// A node of the list.
pub(super) struct NodeRow {
    pub(super) path: String,
    pub(super) kind: String,
    pub(super) class: String,
    pub(super) then: String,
}

/// Draws a graph.
pub(super) fn draw(graph: &Graph) -> GraphDrawing {
    let shown = &graph.nodes[..graph.nodes.len().min(DRAWN)];
    let places = places(shown, &graph.edges);
    let (columns, rows) =
        places.values().fold((0, 0), |(columns, rows), (x, y)| (columns.max(x + 1), rows.max(y + 1)));
    let (width, height) = (MARGIN * 2 + columns * (WIDTH + GAP_X), MARGIN * 2 + rows * (HEIGHT + GAP_Y));
    let mut out = format!(
        r#"<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" aria-label="Graph of {} steps">"#,
        graph.nodes.len()
    );
    for edge in &graph.edges {
        if let (Some(from), Some(to)) = (places.get(edge.from.as_str()), places.get(edge.to.as_str())) {
            line(&mut out, *from, *to, edge);
        }
    }
    for node in shown {
        if let Some(place) = places.get(node.path.as_str()) {
            boxed(&mut out, *place, node);
        }
    }
    out.push_str("</svg>");
    GraphDrawing {
        svg: Markup::made(out),
        nodes: graph.nodes.iter().map(|node| listed(node, &graph.edges)).collect(),
    }
}

/// Column and row of a node.
type GridPlace = (usize, usize);

/// Each node is one column behind the last node that leads to it. Edges lead forward in the order of the document, so that one
/// pass is enough; a row is the first that is free in the column.
fn places<'a>(nodes: &'a [GraphNode], edges: &[Edge]) -> HashMap<&'a str, GridPlace> {
    let mut places: HashMap<&str, GridPlace> = HashMap::new();
    let mut filled: HashMap<usize, usize> = HashMap::new();
    for node in nodes {
        let before = edges
            .iter()
            .filter(|edge| edge.to == node.path)
            .filter_map(|edge| places.get(edge.from.as_str()));
        let before: Vec<GridPlace> = before.copied().collect();
        let column = before.iter().map(|(x, _)| x + 1).max().unwrap_or(0);
        let wanted = before.iter().map(|(_, y)| *y).min().unwrap_or(0);
        let row = filled.get(&column).copied().unwrap_or(0).max(wanted);
        filled.insert(column, row + 1);
        places.insert(&node.path, (column, row));
    }
    places
}

fn corner((x, y): GridPlace) -> GridPlace {
    (MARGIN + x * (WIDTH + GAP_X), MARGIN + y * (HEIGHT + GAP_Y))
}

fn line(out: &mut String, from: GridPlace, to: GridPlace, edge: &Edge) {
    let ((x, y), (to_x, to_y)) = (corner(from), corner(to));
    let (x, y, to_y) = (x + WIDTH, y + HEIGHT / 2, to_y + HEIGHT / 2);
    let middle = usize::midpoint(x, to_x);
    let path = format!(r#"<path class="edge" d="M{x} {y}C{middle} {y} {middle} {to_y} {to_x} {to_y}"/>"#);
    let label = edge.label.as_deref().map(|label| {
        format!(
            r#"<text x="{middle}" y="{}" text-anchor="middle">{}</text>"#,
            usize::midpoint(y, to_y) - 4,
            escaped(&cut(label))
        )
    });
    write!(out, "{path}{}", label.unwrap_or_default()).expect("a text takes everything");
}

fn boxed(out: &mut String, place: GridPlace, node: &GraphNode) {
    let (x, y) = corner(place);
    let name = node.path.rsplit('/').next().unwrap_or(&node.path);
    write!(
        out,
        r#"<g><title>{path}: {kind}</title><rect class="node" x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="8"/><text class="w" x="{text_x}" y="{first}">{name}</text><text x="{text_x}" y="{second}">{kind}</text></g>"#,
        path = escaped(&node.path),
        kind = escaped(&cut(&node.kind)),
        name = escaped(&cut(name)),
        text_x = x + 12,
        first = y + 17,
        second = y + 32,
    )
    .expect("a text takes everything");
}

fn cut(text: &str) -> String {
    let mut cut: String = text.chars().take(NAME).collect();
    if cut.len() < text.len() {
        cut.push('…');
    }
    cut
}

fn listed(node: &GraphNode, edges: &[Edge]) -> NodeRow {
    let next = edges.iter().filter(|edge| edge.from == node.path).map(|edge| match &edge.label {
        Some(label) => format!("{} ({label})", edge.to),
        None => edge.to.clone(),
    });
    let class = serde_json::to_value(node.class).ok().and_then(|class| class.as_str().map(str::to_owned));
    NodeRow {
        path: node.path.clone(),
        kind: node.kind.clone(),
        class: class.unwrap_or_default(),
        then: next.collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::Class;

    fn node(path: &str) -> GraphNode {
        GraphNode {
            path: path.to_owned(),
            kind: "set".to_owned(),
            class: Class::None,
            connection: None,
            parent: None,
        }
    }

    fn edge(from: &str, to: &str) -> Edge {
        Edge { from: from.to_owned(), to: to.to_owned(), label: Some("<b>".to_owned()) }
    }

    #[test]
    fn a_step_is_behind_those_that_lead_to_it_and_no_two_are_in_one_place() {
        let nodes = ["a", "b", "c", "d"].map(node);
        let edges = vec![edge("a", "b"), edge("a", "c"), edge("b", "d"), edge("c", "d")];
        let drawn = places(&nodes, &edges);
        let mut all: Vec<_> = ["a", "b", "c", "d"].iter().map(|path| drawn[path]).collect();
        assert_eq!(all, [(0, 0), (1, 0), (1, 1), (2, 0)]);
        all.dedup();
        assert_eq!(all.len(), 4);
    }

    #[test]
    fn what_people_wrote_is_no_markup_in_a_drawing() {
        let graph = Graph { nodes: vec![node("<script>"), node("x")], edges: vec![edge("<script>", "x")] };
        let drawn = draw(&graph);
        let svg = drawn.svg.to_string();
        assert!(!svg.contains("<script>") && !svg.contains("<b>") && svg.contains("&lt;script&gt;"), "{svg}");
        assert_eq!(drawn.nodes[0].then, "x (<b>)");
    }
}
