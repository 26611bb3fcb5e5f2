//! Checks of the source as ordinary tests: what a reviewer should not have to look for.
//!
//! A check says which files it reads and how many there are at least, so that a renamed folder cannot make it pass
//! on nothing, and it brings a sample which it must refuse. Needles are cut in two (`concat!`) where this file would
//! otherwise find itself. All of it is text search: it catches slips, not deliberate evasion.

mod docs;
mod names;
mod quotes;
mod words;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use libtest_mimic::{Failed, Trial};
use semel::error::failure_code;

/// Folders that hold nothing we wrote.
const SKIPPED_FOLDERS: [&str; 6] = ["target", ".git", ".semel", "node_modules", ".venv", "dist"];
/// Names that say nothing about what is inside.
const EMPTY_NAMES: [&str; 7] = ["util", "utils", "helper", "helpers", "common", "types", "manager"];
/// A file of this length holds more than one thing.
const LONGEST_FILE: usize = 700;
/// Words of ARCHITECTURE.md: more is not read by a newcomer.
const MOST_WORDS: usize = 1_200;

const UNFINISHED: [&str; 6] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("todo", "!("),
    concat!("unimplemented", "!("),
    concat!("dbg", "!("),
];
const SLEEPS: [&str; 2] = [concat!("sle", "ep("), concat!("sle", "ep_until(")];
const CLOCKS: [&str; 6] = ["SystemTime", "Instant::now", "now_v7", "new_v4", "thread_rng", "rand::"];
const NOT_FOR_RULES: [&str; 8] = [
    "async ",
    ".await",
    "tokio",
    "std::time::Instant",
    "crate::store",
    "crate::engine",
    "store::",
    "engine::",
];
const LINT_EXCEPTIONS: [&str; 4] =
    [concat!("#[al", "low("), concat!("#![al", "low("), concat!("#[ex", "pect("), concat!("#![ex", "pect(")];
const MACHINE_PATHS: [&str; 2] = [concat!("/w", "ork/"), concat!("/ro", "ot/")];

/// A text file of the repository; the path is relative to its root, with `/`.
struct Source {
    path: String,
    text: String,
}

/// Line number and what is wrong there.
type Finding = (usize, String);

struct Check {
    name: &'static str,
    reads: fn(&str) -> bool,
    at_least: usize,
    finds: fn(&Source) -> Vec<Finding>,
    /// Path and text of a file that the check must refuse.
    refuses: (&'static str, String),
}

/// One trial per check.
pub(crate) fn trials() -> Vec<Trial> {
    let trial = |check: Check| Trial::test(format!("tidy::{}", check.name), move || run(&check));
    checks_of_code()
        .into_iter()
        .chain(checks_of_words())
        .map(trial)
        .chain([docs::trial(), names::trial(), words::trial()])
        .chain([Trial::test("tidy::every_code_of_a_failure_is_given_somewhere", every_code_is_given)])
        .collect()
}

/// Checks of what the code does.
fn checks_of_code() -> Vec<Check> {
    vec![
        Check {
            name: "no_source_file_is_longer_than_700_lines",
            reads: is_rust,
            at_least: 20,
            finds: too_long,
            refuses: ("crates/semel/src/lib.rs", "\n".repeat(LONGEST_FILE + 1)),
        },
        Check {
            name: "every_name_says_what_is_inside",
            reads: |path| path.starts_with("crates/"),
            at_least: 20,
            finds: empty_name,
            refuses: ("crates/semel/src/utils/json.rs", String::new()),
        },
        Check {
            name: "nothing_is_marked_as_unfinished",
            reads: |path| is_rust(path) || has_extension(path, "sql") || is_script(path),
            at_least: 20,
            finds: |file| mentions(file, &UNFINISHED, |_| true, "finish it or open an issue"),
            refuses: ("crates/semel/src/lib.rs", format!("// {}: more", UNFINISHED[0])),
        },
        Check {
            name: "no_test_sleeps",
            reads: |path| is_rust(path) && (path.contains("/tests/") || path.contains("/testing/")),
            at_least: 3,
            finds: |file| mentions(file, &SLEEPS, is_code, "wait for a signal or use the manual clock"),
            refuses: (
                "crates/semel/tests/semel/main.rs",
                format!("tokio::time::{}second).await;", SLEEPS[0]),
            ),
        },
        Check {
            name: "library_code_does_not_unwrap",
            reads: is_library,
            at_least: 10,
            finds: unwraps,
            refuses: ("crates/semel/src/lib.rs", "fn f() {\n    g().unwrap();\n}\n".into()),
        },
        Check {
            name: "only_the_clock_reads_time_or_randomness",
            reads: |path| is_library(path) && path != "crates/semel/src/clock.rs",
            at_least: 10,
            finds: |file| mentions(file, &CLOCKS, is_code, "take a Time, an id or a Clock instead"),
            refuses: ("crates/semel/src/lib.rs", "let now = SystemTime::now();".into()),
        },
        Check {
            name: "rules_know_no_io_no_clock_and_no_async",
            reads: |path| path.starts_with("crates/semel/src/rules/") && is_rust(path),
            at_least: 5,
            finds: |file| mentions(file, &NOT_FOR_RULES, is_code, "rules are data in, decision out"),
            refuses: ("crates/semel/src/rules/start.rs", "use crate::{id, store::Store};".into()),
        },
        Check {
            name: "the_sdk_reaches_runs_through_their_port_only",
            reads: |path| path.starts_with("crates/semel/src/sdk/") && is_rust(path),
            at_least: 10,
            finds: engine_internals,
            refuses: ("crates/semel/src/sdk/step.rs", "use crate::engine::run::state::CellState;".into()),
        },
        Check {
            name: "the_engine_knows_nothing_of_the_sdk",
            reads: |path| path.starts_with("crates/semel/src/engine/") && is_rust(path),
            at_least: 20,
            finds: |file| mentions(file, &["crate::sdk"], is_code, "sdk stands on the engine, not below it"),
            refuses: ("crates/semel/src/engine/drive.rs", "use crate::sdk::ctx::Ctx;".into()),
        },
        Check {
            name: "statements_of_three_lines_stand_in_files_of_their_own",
            reads: |path| path.starts_with("crates/semel/src/store/") && is_rust(path),
            at_least: 40,
            finds: long_statements,
            refuses: (
                "crates/semel/src/store/postgres/tx.rs",
                "let sql = \"SELECT num \\\n FROM runs \\\n WHERE id = $1\";".into(),
            ),
        },
        Check {
            name: "codes_of_failures_are_those_of_the_table",
            reads: docs::is_source,
            at_least: 200,
            finds: unknown_codes,
            refuses: ("crates/semel-server/src/tasks/http.rs", "fatal(why).with_code(\"TO_LARGE\")".into()),
        },
    ]
}

/// Checks of what is said: comments, documents, manifests.
fn checks_of_words() -> Vec<Check> {
    vec![
        Check {
            name: "the_architecture_is_read_in_ten_minutes",
            reads: |path| path == "ARCHITECTURE.md",
            at_least: 1,
            finds: too_wordy,
            refuses: ("ARCHITECTURE.md", "word ".repeat(MOST_WORDS + 1)),
        },
        Check {
            name: "every_dependency_has_its_reason",
            reads: |path| file_name(path) == "Cargo.toml",
            at_least: 2,
            finds: unexplained_dependencies,
            refuses: ("Cargo.toml", "[dev-dependencies]\nserde = \"1\"\n".into()),
        },
        Check {
            name: "every_relative_link_leads_somewhere",
            reads: |path| has_extension(path, "md"),
            at_least: 4,
            finds: broken_links,
            refuses: ("docs/start.md", "See [nowhere](no/such/file.md#part).".into()),
        },
        Check {
            name: "what_is_quoted_from_a_file_stands_in_it",
            reads: |path| path == "docs/languages.md",
            at_least: 1,
            finds: quotes::invented,
            refuses: ("docs/languages.md", quotes::sample()),
        },
        Check {
            name: "every_vector_file_is_json",
            reads: |path| path.starts_with("vectors/") && has_extension(path, "json"),
            at_least: 1,
            finds: not_json,
            refuses: ("vectors/keys.json", "{\n  \"a\": }".into()),
        },
        Check {
            name: "the_changelog_names_its_versions",
            reads: |path| path == "CHANGELOG.md",
            at_least: 1,
            finds: no_version_heading,
            refuses: ("CHANGELOG.md", "# Changelog\n\n- news\n".into()),
        },
        Check {
            name: "every_lint_exception_has_its_reason",
            reads: is_rust,
            at_least: 20,
            finds: unexplained_exceptions,
            refuses: (
                "crates/semel/src/lib.rs",
                format!("{}dead_code)]\nfn reason() {{}}", LINT_EXCEPTIONS[0]),
            ),
        },
        Check {
            name: "plain_words",
            reads: words::is_prose_or_code,
            at_least: 300,
            finds: words::riddles,
            refuses: ("docs/plain-words.md", words::sample()),
        },
        Check {
            name: "docs_of_public_items_have_four_words",
            reads: docs::is_source,
            at_least: 200,
            finds: docs::too_short,
            refuses: ("crates/semel/src/lib.rs", "/// The run.\npub run: RunId,\n".into()),
        },
        Check {
            name: "no_file_names_a_place_on_one_machine",
            reads: |_| true,
            at_least: 30,
            finds: |file| mentions(file, &MACHINE_PATHS, |_| true, "it is there on one machine only"),
            refuses: ("README.md", format!("cd {}semel", MACHINE_PATHS[0])),
        },
    ]
}

/// The check must refuse its sample, see enough files, and find nothing in them.
fn run(check: &Check) -> Result<(), Failed> {
    let sample = Source { path: check.refuses.0.into(), text: check.refuses.1.clone() };
    if !(check.reads)(&sample.path) || (check.finds)(&sample).is_empty() {
        return Err("this check does not refuse its own sample, so it would refuse nothing".into());
    }
    let files: Vec<&Source> = FILES.iter().filter(|file| (check.reads)(&file.path)).collect();
    if files.len() < check.at_least {
        return Err(format!("read {} files, at least {} expected", files.len(), check.at_least).into());
    }
    let found: Vec<String> = files
        .iter()
        .flat_map(|file| {
            (check.finds)(file).into_iter().map(|(line, what)| format!("{}:{line}: {what}", file.path))
        })
        .collect();
    if found.is_empty() { Ok(()) } else { Err(found.join("\n").into()) }
}

/// Statements of SQL in the code that are longer than two lines. Those that are composed have to stand there.
fn long_statements(file: &Source) -> Vec<Finding> {
    const VERBS: [&str; 5] = ["\"SELECT ", "\"WITH ", "\"INSERT ", "\"UPDATE ", "\"DELETE "];
    let lines = untested_lines(&file.text);
    let is_long = |(index, (_, line)): &(usize, &(usize, &str))| {
        let statement = VERBS.iter().find_map(|verb| line.split_once(verb).map(|(_, rest)| rest));
        let open = |text: &str| !text.contains('"');
        let next = |lines_on: usize| lines.get(index + lines_on).is_some_and(|(_, line)| open(line));
        let is_composed = *index > 0 && lines[index - 1].1.ends_with("format!(");
        is_code(line) && !is_composed && statement.is_some_and(open) && next(1)
    };
    let long = lines.iter().enumerate().filter(is_long);
    long.map(|(_, (number, _))| (*number, "move the statement into sql/".into())).collect()
}

/// The codes of the table that none of these sources gives.
fn codes_not_given<'a>(sources: impl Iterator<Item = &'a Source>) -> Vec<&'static str> {
    let mut missing: Vec<&'static str> = failure_code::ALL.iter().map(|(code, _)| *code).collect();
    for source in sources {
        let lines = untested_lines(&source.text);
        missing.retain(|code| {
            let (constant, text) = (format!("failure_code::{code}"), format!("\"{code}\""));
            !lines.iter().any(|(_, line)| line.contains(&constant) || line.contains(&text))
        });
    }
    missing
}

fn every_code_is_given() -> Result<(), Failed> {
    let sample = Source { path: String::new(), text: "fatal(why).with_code(\"HTTP\")\n".to_owned() };
    assert_eq!(codes_not_given(std::iter::once(&sample)).len() + 1, failure_code::ALL.len());
    let gives = |file: &&Source| {
        let folders = ["tasks/", "databases/", "definitions/", "engine/run/"];
        is_rust(&file.path) && folders.iter().any(|folder| file.path.contains(&format!("/src/{folder}")))
    };
    let missing = codes_not_given(FILES.iter().filter(gives));
    if missing.is_empty() { Ok(()) } else { Err(format!("nothing fails with {missing:?}").into()) }
}

/// Codes that are spelled out, and are not in the table.
fn unknown_codes(file: &Source) -> Vec<Finding> {
    let is_known = |code: &str| failure_code::ALL.iter().any(|(known, _)| *known == code);
    let code_of = |(number, line): (usize, &str)| {
        let (_, rest) = Some(line).filter(|line| is_code(line))?.split_once("with_code(\"")?;
        let code = rest.split('"').next().filter(|code| !is_known(code))?;
        Some((number, format!("`{code}` is not in semel::error::failure_code: use one of its constants")))
    };
    untested_lines(&file.text).into_iter().filter_map(code_of).collect()
}

// The tree

static FILES: LazyLock<Vec<Source>> = LazyLock::new(|| {
    let mut files = Vec::new();
    read_folder(&root(), "", &mut files);
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
});

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Files that are not text are left out; so is one that another test removes while we look.
fn read_folder(folder: &Path, prefix: &str, files: &mut Vec<Source>) {
    for item in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = item.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        let is_folder = item.file_type().is_ok_and(|kind| kind.is_dir());
        if SKIPPED_FOLDERS.contains(&name.as_str()) {
            // In a worktree `.git` is a file, and no less skipped.
        } else if is_folder {
            read_folder(&item.path(), &format!("{path}/"), files);
        } else if let Ok(text) = fs::read_to_string(item.path()) {
            files.push(Source { path, text });
        }
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn has_extension(path: &str, extension: &str) -> bool {
    Path::new(path).extension().is_some_and(|found| found == extension)
}

fn is_rust(path: &str) -> bool {
    has_extension(path, "rs")
}

fn is_script(path: &str) -> bool {
    has_extension(path, "sh")
        || path.starts_with("scripts/")
        || path.starts_with(".ci/")
        || path == "Makefile"
}

/// What users run: the library without its testing kit and without files that are test modules.
fn is_library(path: &str) -> bool {
    let in_tests = path.starts_with("crates/semel/src/testing") || path.contains("/tests");
    path.starts_with("crates/semel/src/") && is_rust(path) && !in_tests
}

// Looking at lines

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.lines())
}

fn line_at(text: &str, position: usize) -> usize {
    text[..position].matches('\n').count() + 1
}

fn is_code(line: &str) -> bool {
    !line.trim_start().starts_with("//")
}

/// Whether the needle occurs as a word of its own: `rand::` is not in `operand::`. A sleep that is a method is
/// a durable timer of a workflow, not a nap of the test.
fn has_word(line: &str, needle: &str) -> bool {
    let in_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(needle).any(|(at, _)| {
        let (before, after) = (line[..at].chars().next_back(), line[at + needle.len()..].chars().next());
        let joined_before = needle.starts_with(in_word) && before.is_some_and(in_word);
        let joined_after = needle.ends_with(in_word) && after.is_some_and(in_word);
        let durable_timer = SLEEPS.contains(&needle) && before == Some('.');
        !(joined_before || joined_after || durable_timer)
    })
}

fn mentions(file: &Source, needles: &[&str], counts: fn(&str) -> bool, advice: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    for (number, line) in numbered(&file.text).filter(|(_, line)| counts(line)) {
        let hits = needles.iter().filter(|needle| has_word(line, needle));
        found.extend(hits.map(|needle| (number, format!("`{}`: {advice}", needle.trim()))));
    }
    found
}

/// The lines outside `#[cfg(test)]` items. Relies on rustfmt: an item ends on the first line with the attribute's
/// own indentation that closes a block or a statement.
fn untested_lines(text: &str) -> Vec<(usize, &str)> {
    let indentation = |line: &str| line.len() - line.trim_start().len();
    let mut test_item = None;
    let mut kept = Vec::new();
    for (number, line) in numbered(text) {
        if line.trim() == "#[cfg(test)]" {
            test_item = Some(indentation(line));
        } else if let Some(depth) = test_item {
            let closes = line.ends_with('}') || line.ends_with(';');
            if closes && indentation(line) == depth {
                test_item = None;
            }
        } else {
            kept.push((number, line));
        }
    }
    kept
}

// The checks that look at more than one line or word

fn too_long(file: &Source) -> Vec<Finding> {
    let length = file.text.lines().count();
    if length <= LONGEST_FILE { vec![] } else { vec![(length, format!("{length} lines: split it"))] }
}

fn too_wordy(file: &Source) -> Vec<Finding> {
    let words = file.text.split_whitespace().count();
    let advice = format!("{words} words; keep {MOST_WORDS} at most, and move reasons to docs/design");
    (words > MOST_WORDS).then_some((1, advice)).into_iter().collect()
}

fn empty_name(file: &Source) -> Vec<Finding> {
    let parts = file.path.split('/').map(|part| part.split('.').next().unwrap_or(part));
    parts
        .filter(|part| EMPTY_NAMES.contains(part))
        .map(|part| (1, format!("`{part}` does not say what is inside")))
        .collect()
}

/// The public items of the engine and the port of a run are all that the SDK may name.
fn engine_internals(file: &Source) -> Vec<Finding> {
    let is_item = |rest: &str| rest.starts_with(|c: char| c.is_uppercase() || c == '{');
    let may = |rest: &str| is_item(rest) || rest.strip_prefix("run::").is_some_and(is_item);
    let offends = |line: &str| {
        let inside = line.split("engine::").skip(1).any(|rest| !may(rest));
        inside || ["cell.lock()", "cell.core", "cell.store()"].iter().any(|part| line.contains(part))
    };
    numbered(&file.text)
        .filter(|(_, line)| is_code(line) && offends(line))
        .map(|(number, _)| (number, "ask the run through its port, engine::run".into()))
        .collect()
}

fn unwraps(file: &Source) -> Vec<Finding> {
    let offends = |line: &str| is_code(line) && line.contains(".unwrap()");
    untested_lines(&file.text)
        .into_iter()
        .filter(|(_, line)| offends(line))
        .map(|(number, _)| (number, "return the error, or state the invariant with expect".into()))
        .collect()
}

/// A dependency with a version needs a comment, on its line or on the one above. What is inherited from the
/// workspace or is a path has none to explain.
fn unexplained_dependencies(file: &Source) -> Vec<Finding> {
    let (mut found, mut in_table, mut above) = (Vec::new(), false, "");
    for (number, line) in numbered(&file.text) {
        let explained = above.trim_start().starts_with('#') || has_comment(line);
        above = line;
        if let Some(table) = line.strip_prefix('[') {
            let table = table.split(']').next().unwrap_or(table);
            in_table = table.ends_with("dependencies");
            if table.contains("dependencies.") && !explained {
                found.push((number, "a dependency without a reason beside it".into()));
            }
        } else if in_table && has_version(line) && !explained {
            found.push((number, "a dependency without a reason beside it".into()));
        }
    }
    found
}

/// `name = "1"`, `name = { version = "1" }` or `name.version = "1"`. Further lines of a long entry do not begin
/// with a name.
fn has_version(line: &str) -> bool {
    let Some((name, value)) = line.split_once('=') else { return false };
    name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && (value.trim_start().starts_with('"') || value.contains("version"))
}

/// Whether there is a `#` outside of quotes.
fn has_comment(line: &str) -> bool {
    line.split('"').step_by(2).any(|outside| outside.contains('#'))
}

fn broken_links(file: &Source) -> Vec<Finding> {
    let (mut found, mut in_code_block) = (Vec::new(), false);
    for (number, line) in numbered(&file.text) {
        if line.trim_start().starts_with("```") {
            in_code_block = !in_code_block;
        } else if !in_code_block {
            let broken = link_targets(line).into_iter().filter(|target| !leads_somewhere(&file.path, target));
            found.extend(broken.map(|target| (number, format!("`{target}` does not exist"))));
        }
    }
    found
}

/// Targets of `[text](target "title")` and `[name]: target`, code spans left out.
fn link_targets(line: &str) -> Vec<String> {
    let prose: String = line.split('`').step_by(2).collect();
    let inline = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let definition = prose.trim_start().strip_prefix('[').and_then(|rest| rest.split_once("]: "));
    inline
        .chain(definition.map(|(_, target)| target))
        .filter_map(|target| target.split_whitespace().next())
        .map(|target| target.trim_matches(['<', '>']).to_owned())
        .collect()
}

/// A link elsewhere or inside its own page is none of ours. A leading `/` means the repository.
fn leads_somewhere(from: &str, target: &str) -> bool {
    let file = target.split(['#', '?']).next().unwrap_or(target);
    if target.contains("://") || target.starts_with("mailto:") || file.is_empty() {
        return true;
    }
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    let place =
        file.strip_prefix('/').map_or_else(|| root().join(folder).join(file), |file| root().join(file));
    place.exists()
}

fn not_json(file: &Source) -> Vec<Finding> {
    let parsed = serde_json::from_str::<serde_json::Value>(&file.text);
    parsed.err().map(|error| (error.line(), error.to_string())).into_iter().collect()
}

fn no_version_heading(file: &Source) -> Vec<Finding> {
    let is_version =
        |title: &str| title.starts_with("Unreleased") || title.starts_with(|c: char| c.is_ascii_digit());
    let titles = file.text.lines().filter_map(|line| line.strip_prefix("## "));
    if titles.map(|title| title.trim_start_matches(['[', 'v'])).any(is_version) {
        return vec![];
    }
    vec![(1, "no heading `## Unreleased` or `## 1.2.3`".into())]
}

fn unexplained_exceptions(file: &Source) -> Vec<Finding> {
    let mut found = Vec::new();
    for needle in LINT_EXCEPTIONS {
        for (at, _) in file.text.match_indices(needle) {
            let attribute = file.text[at..].split(")]").next().unwrap_or_default();
            if !attribute.contains("reason =") {
                found.push((line_at(&file.text, at), format!("`{needle}` without a reason")));
            }
        }
    }
    found
}
