//! One word, one type: a reader who meets `Call` must not have to ask which one.

use std::collections::BTreeMap;

use libtest_mimic::{Failed, Trial};

use super::{FILES, Source, docs, untested_lines};

/// Type names that stand in a crate more than once, and why.
const EXCEPTIONS: [(&str, &str); 3] = [
    (
        "Problem",
        "an answer to a request, and a finding in a definition: both modules say `problem`, as RFC 9457 does",
    ),
    ("Result", "the crate's alias for its own errors, and the alias for what workflows and steps return"),
    ("Value", "a JSON value over HTTP as it was sent, and one of a definition that knows its place"),
];
const KEYWORDS: [&str; 5] = ["struct", "enum", "trait", "union", "type"];

pub(super) fn trial() -> Trial {
    Trial::test("tidy::a_type_name_stands_once_per_crate", || {
        let sample =
            |path: &str| Source { path: path.into(), text: "pub(crate) struct Call<T> {\n}\n".into() };
        let (one, other) = (sample("crates/semel/src/a.rs"), sample("crates/semel/src/b.rs"));
        if repeated(&[&one, &other]).len() != 1 {
            return Err("this check does not refuse its own sample, so it would refuse nothing".into());
        }
        let files: Vec<&Source> = FILES.iter().filter(|file| docs::is_source(&file.path)).collect();
        let found = repeated(&files);
        if found.is_empty() { Ok(()) } else { Err(Failed::from(found.join("\n"))) }
    })
}

/// Names that two places of one crate define. Associated types are named by their trait.
fn repeated(files: &[&Source]) -> Vec<String> {
    let mut places: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    for file in files {
        let folder = file.path.split('/').nth(1).unwrap_or_default();
        for (number, line) in untested_lines(&file.text) {
            if let Some(name) = defined_type(line) {
                places.entry((folder, name)).or_default().push(format!("{}:{number}", file.path));
            }
        }
    }
    let excused = |name: &str| EXCEPTIONS.iter().any(|(exception, _)| *exception == name);
    places
        .into_iter()
        .filter(|((_, name), places)| places.len() > 1 && !excused(name))
        .map(|((_, name), places)| format!("{name} is defined in {}: rename one", places.join(" and ")))
        .collect()
}

/// The name of the type that a line defines. An alias counts where it is not an associated type.
fn defined_type(line: &str) -> Option<&str> {
    let indented = line.starts_with(' ');
    let line = line.trim_start();
    let line = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.trim_start(),
        None => line,
    };
    let (keyword, rest) = line.split_once(' ')?;
    if !KEYWORDS.contains(&keyword) || (keyword == "type" && indented) {
        return None;
    }
    rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().filter(|name| !name.is_empty())
}
