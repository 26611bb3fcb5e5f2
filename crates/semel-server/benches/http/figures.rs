//! Figures, printed as they come and written at the end.

use std::path::PathBuf;

use serde_json::{Map, Value, json};

use crate::Anything;

/// All figures by name.
pub(crate) struct Figures(Map<String, Value>);

fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/bench/http.json")
}

impl Figures {
    /// Those of the last time; none if there are none.
    pub(crate) fn read() -> Self {
        let text = std::fs::read_to_string(file()).unwrap_or_default();
        Self(serde_json::from_str(&text).unwrap_or_default())
    }

    /// A figure that is to be at least so large.
    pub(crate) fn goal(&mut self, name: &str, found: f64, least: f64) {
        let met = found >= least;
        println!("  {name:<40} {found:>12.0}  at least {least:.0}: {}", if met { "met" } else { "MISSED" });
        self.0.insert(name.to_owned(), json!({ "found": found.round(), "atLeast": least, "met": met }));
    }

    /// A figure that is to be at most so large.
    pub(crate) fn limit(&mut self, name: &str, found: f64, most: f64) {
        let met = found <= most;
        println!("  {name:<40} {found:>12.0}  at most {most:.0}: {}", if met { "met" } else { "MISSED" });
        self.0.insert(name.to_owned(), json!({ "found": found.round(), "atMost": most, "met": met }));
    }

    /// A ratio that is to be at most so large.
    pub(crate) fn ratio(&mut self, name: &str, found: f64, most: f64) {
        let met = found <= most;
        println!("  {name:<40} {found:>12.2}  at most {most:.2}: {}", if met { "met" } else { "MISSED" });
        let found = (found * 100.0).round() / 100.0;
        self.0.insert(name.to_owned(), json!({ "found": found, "atMost": most, "met": met }));
    }

    /// Any other figure.
    pub(crate) fn number(&mut self, name: &str, found: f64) {
        println!("  {name:<40} {found:>12.1}");
        self.0.insert(name.to_owned(), json!((found * 10.0).round() / 10.0));
    }

    /// Writes them to `target/bench/http.json`.
    pub(crate) fn write(&self) -> Anything<()> {
        let file = file();
        std::fs::create_dir_all(file.parent().ok_or("a folder")?)?;
        std::fs::write(&file, serde_json::to_string_pretty(&self.0)? + "\n")?;
        println!("written to target/bench/http.json");
        Ok(())
    }
}
