//! `semel definition graph`: draws a definition.

use std::path::PathBuf;

use super::accepted;
use crate::cli::exit::Done;
use crate::cli::output::{json, print};
use crate::definitions::graph::Graph;

/// How a graph is written.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum Drawing {
    /// Flowchart in the language of Mermaid.
    #[default]
    Mermaid,
    /// Graph in the language of Graphviz.
    Dot,
    /// Nodes and edges as JSON.
    Json,
}

/// Draw a definition: its steps, and what follows what.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  semel definition graph order.yaml
  semel definition graph order.yaml --format dot | dot -Tsvg > order.svg
  semel definition graph order.yaml --format json")]
pub(in crate::cli) struct DrawGraph {
    /// File with the definition, in YAML or JSON; `-` is stdin.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Format of the drawing.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: Drawing,
}

impl DrawGraph {
    pub(super) fn execute(self) -> Done {
        let graph = Graph::of(&accepted(&self.file)?.definition);
        print(
            match self.format {
                Drawing::Mermaid => graph.mermaid(),
                Drawing::Dot => graph.dot(),
                Drawing::Json => json(&graph),
            }
            .trim_end(),
        )
    }
}
