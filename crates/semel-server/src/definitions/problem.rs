//! What is wrong in a document, with its place.

use serde::Serialize;

use super::limits;

/// Position in the text as sent: both numbers count from 1, columns in characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct TextPosition {
    /// Line, the first one is 1.
    pub line: u32,
    /// Column in characters, the first one is 1.
    pub column: u32,
}

/// How bad a problem is; the worst is the smallest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The text is neither YAML nor JSON, or too large; nothing else can be said about it.
    Syntax,
    /// A member is unknown, missing, or of the wrong type.
    Structure,
    /// A name, reference or value that is not acceptable where it is.
    Meaning,
    /// Accepted, but probably a mistake.
    Warning,
}

/// One problem of a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// How bad it is: only a `warning` lets the document pass.
    pub severity: Severity,
    /// JSON pointer (RFC 6901) to the value in question; empty for the whole document.
    pub pointer: String,
    /// Position of the value in the text as sent.
    #[serde(flatten)]
    pub place: TextPosition,
    /// What is wrong, as a sentence.
    pub message: String,
    /// What to do about it; absent if the message says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Problem {
    /// A problem without a hint.
    pub fn new(severity: Severity, at: &At, message: impl Into<String>) -> Self {
        Self { severity, pointer: at.pointer.clone(), place: at.place, message: message.into(), hint: None }
    }

    /// Adds a hint how to repair it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Where a value is: in the document and in its text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct At {
    /// JSON pointer to the place in the document.
    pub pointer: String,
    /// Position in the text.
    pub place: TextPosition,
}

impl At {
    /// The place of the member `name` of this value.
    #[must_use]
    pub fn member(&self, name: &str, place: TextPosition) -> Self {
        let name = name.replace('~', "~0").replace('/', "~1");
        Self { pointer: format!("{}/{name}", self.pointer), place }
    }

    /// The place of element `index` of this list.
    #[must_use]
    pub fn element(&self, index: usize, place: TextPosition) -> Self {
        Self { pointer: format!("{}/{index}", self.pointer), place }
    }
}

/// Collects the problems of a document.
#[derive(Debug, Default)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// Adds a problem of structure.
    pub fn structure(&mut self, at: &At, message: impl Into<String>) -> &mut Problem {
        self.add(Problem::new(Severity::Structure, at, message))
    }

    /// Adds a problem of meaning.
    pub fn meaning(&mut self, at: &At, message: impl Into<String>) -> &mut Problem {
        self.add(Problem::new(Severity::Meaning, at, message))
    }

    /// Adds a warning about a place.
    pub fn warning(&mut self, at: &At, message: impl Into<String>) -> &mut Problem {
        self.add(Problem::new(Severity::Warning, at, message))
    }

    /// Adds a problem; the result is for adding a hint.
    pub fn add(&mut self, problem: Problem) -> &mut Problem {
        self.0.push(problem);
        self.0.last_mut().expect("one was just added")
    }

    /// Whether the document is refused.
    pub fn refuses(&self) -> bool {
        self.0.iter().any(|problem| problem.severity != Severity::Warning)
    }

    /// The problems, the worst first and otherwise in the order of the text, at most [`limits::PROBLEMS`].
    pub fn sorted(mut self) -> Vec<Problem> {
        self.0.sort_by(|a, b| (a.severity, a.place, &a.message).cmp(&(b.severity, b.place, &b.message)));
        self.0.dedup();
        self.0.truncate(limits::PROBLEMS);
        self.0
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self(vec![problem])
    }
}

/// The nearest of some known words to a word that is not known, if one is near.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let far = word.chars().count() / 3 + 1;
    let near = known.into_iter().map(|known| (distance(word, known), known));
    near.filter(|(distance, _)| *distance <= far).min().map(|(_, known)| known)
}

/// Levenshtein distance; words of the language are short, longer ones are never near.
fn distance(a: &str, b: &str) -> usize {
    const LONG: usize = 40;
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(LONG).collect(), b.chars().take(LONG).collect());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_problem_is_first_and_the_rest_in_the_order_of_the_text() {
        let at = |line| At { pointer: String::new(), place: TextPosition { line, column: 1 } };
        let mut problems = Problems::default();
        problems.warning(&at(1), "odd");
        problems.meaning(&at(2), "unknown");
        problems.structure(&at(9), "second");
        problems.structure(&at(3), "first");
        let sorted: Vec<_> = problems.sorted().into_iter().map(|problem| problem.message).collect();
        assert_eq!(sorted, ["first", "second", "unknown", "odd"]);
    }

    #[test]
    fn a_word_that_is_near_is_found() {
        for (word, found) in [("tiemout", Some("timeout")), ("retries", Some("retry")), ("xyz", None)] {
            assert_eq!(nearest(word, ["timeout", "retry", "undo"]), found, "{word}");
        }
    }

    #[test]
    fn names_are_escaped_in_pointers() {
        let at = At::default().member("a/b~c", TextPosition::default()).element(3, TextPosition::default());
        assert_eq!(at.pointer, "/a~1b~0c/3");
    }
}
