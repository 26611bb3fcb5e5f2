//! Docs of public items are API text: OpenAPI and docs.rs show them. "The run." says nothing that the name does not.

use super::{Finding, Source, is_rust, untested_lines};

/// A doc of fewer words cannot say what the item holds.
const FEWEST_WORDS: usize = 4;

pub(super) fn is_source(path: &str) -> bool {
    path.starts_with("crates/") && path.contains("/src/") && is_rust(path) && !path.contains("/tests")
}

/// Public items and variants whose doc is too short.
pub(super) fn too_short(file: &Source) -> Vec<Finding> {
    let (mut found, mut doc) = (Vec::new(), Vec::new());
    for (number, line) in untested_lines(&file.text) {
        let line = line.trim();
        if let Some(text) = line.strip_prefix("///") {
            doc.push(text);
        } else if line.starts_with("#[doc") {
            // The doc goes on with the text of a file.
            doc.extend([line; FEWEST_WORDS]);
        } else if !line.starts_with("#[") {
            let words = doc.iter().flat_map(|text| text.split_whitespace()).count();
            if (1..FEWEST_WORDS).contains(&words) && (line.starts_with("pub ") || is_variant(line)) {
                found.push((number, "say what it holds: meaning, unit, default, when it is absent".into()));
            }
            doc.clear();
        }
    }
    found
}

/// `Name,`, `Name(..)`, `Name {..}` or `Name = 1,`: only variants of an enum begin a line with a capital and have a doc.
fn is_variant(line: &str) -> bool {
    let name = line.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
    name.starts_with(|c: char| c.is_ascii_uppercase())
}
