//! The words of good technical manuals: the thing as subject, the usual verb, the usual term of the field.
//!
//! Refused are the words that made readers solve riddles.

use super::{Finding, Source, has_extension, is_rust, numbered};

/// What is refused, and what a manual says instead. Cut in two, so that this file does not find itself.
const REFUSED: [(&str, &str); 19] = [
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
    (concat!("come to its", " end"), "end, finish"),
    (concat!("come to their", " end"), "end, finish"),
    (concat!("comes to its", " end"), "ends, finishes"),
    (concat!("is had", " by"), "say who gets it and how"),
    (concat!("for", " good"), "permanently, finally"),
];

pub(super) fn is_prose_or_code(path: &str) -> bool {
    is_rust(path) || ["md", "sql", "toml", "yaml", "c", "py"].iter().any(|end| has_extension(path, end))
}

/// A text that must be refused.
pub(super) fn sample() -> String {
    format!("The result goes to {} asks.", REFUSED[0].0)
}

/// The lines of a file with refused words.
pub(super) fn riddles(file: &Source) -> Vec<Finding> {
    let mut found = Vec::new();
    for (number, line) in numbered(&file.text) {
        let line = line.to_lowercase();
        let hit = REFUSED.iter().find(|(refused, _)| has_phrase(&line, refused));
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
