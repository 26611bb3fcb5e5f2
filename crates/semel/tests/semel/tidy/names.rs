//! One word, one type: a reader who meets `Call` must not have to ask which one. Tests, benchmarks and examples are crates as
//! well.

use std::collections::BTreeMap;

use libtest_mimic::{Failed, Trial};

use super::{FILES, Source, docs, is_rust, untested_lines};

/// Type names that stand in a crate more than once, and why.
const EXCEPTIONS: [(&str, &str); 3] = [
    (
        "Problem",
        "an answer to a request, and a finding in a definition: both modules say `problem`, as RFC 9457 does",
    ),
    ("Result", "the crate's alias for its own errors, and the alias for what workflows and steps return"),
    ("Value", "a JSON value over HTTP as it was sent, and one of a definition that knows its place"),
];
/// A test program whose names are not read yet.
const UNREAD: &str = "crates/semel-server/tests/proof/";
const KEYWORDS: [&str; 5] = ["struct", "enum", "trait", "union", "type"];

pub(super) fn trial() -> Trial {
    Trial::test("tidy::a_type_name_stands_once_per_crate", || {
        let sample =
            |path: &str| Source { path: path.into(), text: "pub(crate) struct Call<T> {\n}\n".into() };
        for folder in ["src", "tests/semel"] {
            let sample = |name: &str| sample(&format!("crates/semel/{folder}/{name}.rs"));
            if repeated(&[&sample("a"), &sample("b")]).len() != 1 {
                return Err("this check does not refuse its own sample, so it would refuse nothing".into());
            }
        }
        let is_read = |path: &str| docs::is_source(path) || is_test(path);
        let files: Vec<&Source> = FILES.iter().filter(|file| is_read(&file.path)).collect();
        let found = repeated(&files);
        if found.is_empty() { Ok(()) } else { Err(Failed::from(found.join("\n"))) }
    })
}

/// Tests, benchmarks and examples, which are crates of their own; not those of [`UNREAD`].
fn is_test(path: &str) -> bool {
    let is_crate = ["/tests/", "/benches/", "/examples/"].iter().any(|folder| path.contains(folder));
    path.starts_with("crates/")
        && is_rust(path)
        && is_crate
        && !path.contains("/src/")
        && !path.starts_with(UNREAD)
}

/// The crate of a file: that of a folder in `crates`, or a test program, a benchmark or the examples beside it.
fn crate_of(path: &str) -> &str {
    let depth = if path.contains("/src/") { 2 } else { 4 };
    let end = path.match_indices('/').nth(depth - 1).map_or(path.len(), |(at, _)| at);
    &path[..end]
}

/// Names that two places of one crate define. Associated types are named by their trait.
fn repeated(files: &[&Source]) -> Vec<String> {
    let mut places: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    for file in files {
        let is_test = is_test(&file.path);
        for (number, line) in untested_lines(&file.text) {
            // An alias in a test abbreviates the result of its functions.
            let is_alias = line.starts_with("type ");
            if let Some(name) = defined_type(line).filter(|_| !(is_test && is_alias)) {
                places
                    .entry((crate_of(&file.path), name))
                    .or_default()
                    .push(format!("{}:{number}", file.path));
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
