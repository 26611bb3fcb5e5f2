//! The words of good technical manuals: the thing as subject, the usual verb, the usual term of the field.
//!
//! Refused are the words that made readers solve riddles.

use libtest_mimic::{Failed, Trial};

use super::{Finding, Source, file_name, has_extension, is_script, numbered};

/// What is refused, and what a manual says instead. Cut in two, so that this file does not find itself.
const REFUSED: [(&str, &str); 24] = [
    (concat!("who", "ever"), "name the caller, worker, node or reader"),
    (concat!("whom", "ever"), "name the caller, worker, node or reader"),
    (concat!("some", "body"), "name the caller, operator, node or user"),
    (concat!("no", "body"), "no caller, no node, no other run; or put the thing first"),
    (concat!("any", "body"), "any caller, any node"),
    (concat!("every", "body"), "all callers, all nodes"),
    (concat!("come", " by"), "visit, reach, replay"),
    (concat!("comes", " by"), "visits, reaches, replays"),
    (concat!("came", " by"), "visited, reached"),
    (concat!("coming", " by"), "visiting, reaching"),
    (concat!("a ", "once"), "a `run_once` value, a shared result"),
    (concat!("as good as", " gone"), "expired"),
    (concat!("what came", " of"), "the outcome, the result"),
    (concat!("whole", " show"), "say which part"),
    (concat!("come", " to its end"), "end, finish"),
    (concat!("come", " to their end"), "end, finish"),
    (concat!("comes", " to its end"), "ends, finishes"),
    (concat!("is had", " by"), "say who gets it and how"),
    (concat!("for", " good"), "permanently, finally"),
    (concat!("so", " long"), "name the duration: its timeout, its window, while a condition holds"),
    (concat!("what becomes", " of"), "what happens to, what is done with, the fate of"),
    (concat!("stands", " for"), "means, is replaced by, belongs to"),
    (concat!("stand", " for"), "mean, are replaced by, belong to"),
    (concat!("whose", " turn"), "name what is next"),
];

/// Refused too, but not in [`OLDER_TEXT`].
const REFUSED_OUTSIDE_OLDER_TEXT: [(&str, &str); 10] = [
    (concat!("what became", " of"), "the outcome, the result, whether it took place"),
    (concat!("come", " to"), "reach, end, have the result"),
    (concat!("comes", " to"), "reaches, ends, has the result"),
    (concat!("came", " to"), "reached, ended, had the result"),
    (concat!("is", " so."), "is true; or name the condition"),
    (concat!("are", " so."), "are true; or name the condition"),
    (concat!("to", " whom"), "name the caller, node or owner"),
    (concat!("so", " many"), "this number of, `count`, the maximum number of"),
    (concat!("one", " who"), "name the caller, node or user"),
    (concat!("those", " who"), "name the callers, nodes or users"),
];

/// Folders whose comments still have these phrases.
const OLDER_TEXT: [&str; 3] =
    ["clients/", "crates/semel-server/src/tasks/", "crates/semel-server/tests/proof/"];

fn refused_in(path: &str) -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    let is_older = OLDER_TEXT.iter().any(|folder| path.starts_with(folder));
    let others = if is_older { &[][..] } else { &REFUSED_OUTSIDE_OLDER_TEXT[..] };
    REFUSED.iter().chain(others)
}

/// Names that contain a refused word: the Unix account without rights.
const ACCOUNT: [&str; 2] = [concat!("user=no", "body"), concat!("service_user no", "body")];

/// Ends of the names of files with text that people read, or with comments.
const EXTENSIONS: [&str; 15] = [
    "c", "html", "js", "json", "jsonl", "md", "mjs", "py", "rs", "service", "sql", "toml", "ts", "yaml",
    "yml",
];

/// Names of packages in lock files are not ours.
pub(super) fn is_prose_or_code(path: &str) -> bool {
    let is_read = is_script(path) || EXTENSIONS.iter().any(|end| has_extension(path, end));
    is_read && file_name(path) != "package-lock.json"
}

/// Every refused phrase is found, at the end of a sentence too, and every kind of file is read.
pub(super) fn trial() -> Trial {
    Trial::test("tidy::each_riddle_is_refused_in_each_kind_of_file", || {
        let files = EXTENSIONS.map(|end| format!("docs/sample.{end}"));
        let scripts = ["scripts/sample", "Makefile", ".ci/run"].map(str::to_owned);
        for path in files.into_iter().chain(scripts) {
            if !is_prose_or_code(&path) {
                return Err(Failed::from(format!("{path} is not read")));
            }
            for (phrase, _) in refused_in(&path) {
                let text = format!("It is a sentence.\nIt says {}.\n", phrase.to_uppercase());
                let found = riddles(&Source { path: path.clone(), text });
                if !matches!(&found[..], [(2, what)] if what.contains(*phrase)) {
                    return Err(Failed::from(format!("`{phrase}` is not refused in {path}")));
                }
            }
        }
        Ok(())
    })
}

/// A text that must be refused.
pub(super) fn sample() -> String {
    format!("The result goes to {} asks.", REFUSED[0].0)
}

/// The lines of a file with refused words.
pub(super) fn riddles(file: &Source) -> Vec<Finding> {
    let mut found = Vec::new();
    for (number, line) in numbered(&file.text) {
        let line = ACCOUNT.iter().fold(line.to_lowercase(), |line, account| line.replace(account, ""));
        let hit = refused_in(&file.path).find(|(refused, _)| has_phrase(&line, refused));
        found.extend(hit.map(|(refused, better)| (number, format!("`{refused}`; better: {better}"))));
    }
    found
}

/// Whether the phrase is there between other characters than letters, in names of functions too.
fn has_phrase(line: &str, phrase: &str) -> bool {
    line.match_indices(phrase).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + phrase.len()..].chars().next();
        !before.is_some_and(char::is_alphabetic) && !after.is_some_and(char::is_alphabetic)
    })
}
