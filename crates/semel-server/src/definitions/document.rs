//! Text to values: YAML or JSON becomes one tree, in which every value knows its line and column.
//!
//! YAML is read as JSON is: `true`, `false`, `null` and JSON's numbers, digit by digit; all other plain scalars are text.
//! Anchors, tags, merge keys and repeated members are refused.

mod json;
mod number;
mod yaml;

use std::fmt::Write as _;

pub use number::{Number, holds};

use semel::rules::json::MAX_DEPTH;

use super::limits;
use super::problem::{At, Problem, Severity, TextPosition};

/// A value and its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Where the value begins.
    pub place: TextPosition,
    /// The value, whose parts know their places.
    pub value: Value,
}

/// A JSON value whose parts know their places. Members keep the order of the text, which has no meaning.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// The value `null`, or an empty place.
    Null,
    /// The value `true` or `false`.
    Bool(bool),
    /// A number with all its digits.
    Number(Number),
    /// A number with more digits than a double holds: never in a definition, perhaps in a payload.
    Inexact(String),
    /// A text, without quotes and escapes.
    Text(String),
    /// A list, in its order.
    List(Vec<Node>),
    /// An object, with its members in their order.
    Object(Vec<Member>),
}

/// A member of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Name of the member.
    pub name: String,
    /// Where its name begins.
    pub place: TextPosition,
    /// The value of the member.
    pub node: Node,
}

/// Reads a document: JSON if it is JSON, else YAML.
pub fn read(text: &str) -> Result<Node, Problem> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.len() > limits::DOCUMENT_BYTES {
        let bytes = text.len();
        let most = limits::DOCUMENT_BYTES;
        let problem = refusal(
            TextPosition { line: 1, column: 1 },
            format!("the document has {bytes} bytes; at most {most} are accepted"),
        );
        return Err(
            problem.hint("move a part of it into a definition of its own, and call that with `child`")
        );
    }
    match json::is_json(text) {
        true => json::read(text, Reading { deepest: limits::DOCUMENT_DEPTH, inexact: false }),
        false => yaml::read(text),
    }
}

/// Reads a JSON text that is known to be JSON, such as a payload. It may have numbers that a double does not hold.
pub fn read_json(text: &str) -> Result<Node, Problem> {
    json::read(text, Reading { deepest: MAX_DEPTH, inexact: true })
}

/// What a reader accepts.
#[derive(Clone, Copy)]
struct Reading {
    /// Maximum depth of nesting.
    deepest: usize,
    /// Whether numbers may have more digits than a double holds.
    inexact: bool,
}

/// A problem that ends the reading.
fn refusal(place: TextPosition, message: impl Into<String>) -> Problem {
    Problem::new(Severity::Syntax, &At { pointer: String::new(), place }, message)
}

/// Refuses what the store could not keep.
fn check_text(text: &str, place: TextPosition) -> Result<(), Problem> {
    match text.contains('\0') {
        true => Err(refusal(place, "the text contains the character U+0000, which databases cannot keep")),
        false => Ok(()),
    }
}

/// Refuses a member that is there already, or has no name.
fn check_member(members: &[Member], name: &str, place: TextPosition) -> Result<(), Problem> {
    check_text(name, place)?;
    if name.is_empty() {
        return Err(refusal(place, "a member has no name"));
    }
    match members.iter().find(|member| member.name == name) {
        Some(first) => {
            let TextPosition { line, column } = first.place;
            let problem = refusal(place, format!("`{name}` is there twice"));
            Err(problem.hint(format!("the first one is at {line}:{column}")))
        }
        None => Ok(()),
    }
}

/// Refuses a document that is nested too deeply.
fn check_depth(depth: usize, most: usize, place: TextPosition) -> Result<(), Problem> {
    match depth > most {
        true => Err(refusal(place, format!("lists and objects are nested more than {most} levels deep"))),
        false => Ok(()),
    }
}

impl Node {
    /// What kind of value it is, for messages.
    pub fn kind(&self) -> &'static str {
        match &self.value {
            Value::Null => "nothing",
            Value::Bool(_) => "true or false",
            Value::Number(_) | Value::Inexact(_) => "a number",
            Value::Text(_) => "a text",
            Value::List(_) => "a list",
            Value::Object(_) => "an object",
        }
    }

    /// The member of an object.
    pub fn get(&self, name: &str) -> Option<&Node> {
        let Value::Object(members) = &self.value else { return None };
        members.iter().find(|member| member.name == name).map(|member| &member.node)
    }

    /// The text, if it is one.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The value as JSON text, members in the order of the document.
    pub fn json(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    /// The value without places.
    pub fn plain(&self) -> serde_json::Value {
        serde_json::from_str(&self.json()).expect("a document is written as JSON")
    }

    fn write(&self, out: &mut String) {
        match &self.value {
            Value::Null => out.push_str("null"),
            Value::Bool(value) => write!(out, "{value}").expect("a String takes every write"),
            Value::Number(number) => out.push_str(number.text()),
            Value::Inexact(text) => out.push_str(text),
            Value::Text(text) => write_text(text, out),
            Value::List(items) => {
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    out.push_str(if i == 0 { "" } else { "," });
                    item.write(out);
                }
                out.push(']');
            }
            Value::Object(members) => {
                out.push('{');
                for (i, member) in members.iter().enumerate() {
                    out.push_str(if i == 0 { "" } else { "," });
                    write_text(&member.name, out);
                    out.push(':');
                    member.node.write(out);
                }
                out.push('}');
            }
        }
    }
}

fn write_text(text: &str, out: &mut String) {
    out.push_str(&serde_json::to_string(text).expect("a string is always JSON"));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn place(line: u32, column: u32) -> TextPosition {
        TextPosition { line, column }
    }

    #[test]
    fn yaml_is_read_as_json_is() {
        for (text, json) in [
            ("a: true", r#"{"a":true}"#),
            ("a: null", r#"{"a":null}"#),
            ("a:", r#"{"a":null}"#),
            ("country: NO", r#"{"country":"NO"}"#),
            ("a: [yes, off, ~, True, NULL]", r#"{"a":["yes","off","~","True","NULL"]}"#),
            ("a: 012", r#"{"a":"012"}"#),
            ("a: [0x10, .5, 1., +1, 1_000, .inf]", r#"{"a":["0x10",".5","1.","+1","1_000",".inf"]}"#),
            ("a: [0, -1, 1.50, 1e3, 18446744073709551615]", r#"{"a":[0,-1,1.50,1e3,18446744073709551615]}"#),
            ("a: '1'\nb: \"true\"", r#"{"a":"1","b":"true"}"#),
            ("a: |\n  x\n  y\n", r#"{"a":"x\ny\n"}"#),
            ("true: 1\n1: 2", r#"{"true":1,"1":2}"#),
            ("a: 2026-11-18", r#"{"a":"2026-11-18"}"#),
            ("- {a: 1, b: [2]}\n- c", r#"[{"a":1,"b":[2]},"c"]"#),
            (r#"{"a": "\ud83d\ude00\/", "b": [1, {}]}"#, r#"{"a":"😀/","b":[1,{}]}"#),
            ("{\n\t\"a\": 1\n}", r#"{"a":1}"#),
            ("\u{feff}a: 1", r#"{"a":1}"#),
            ("# nothing but this\na: 1\n", r#"{"a":1}"#),
        ] {
            assert_eq!(read(text).map(|node| node.json()), Ok(json.to_owned()), "{text}");
        }
    }

    #[test]
    fn every_value_knows_its_place() {
        for text in ["a:\n  - b: 1\n    ü: [2, x]\n", "{\"a\":\n[ {\"b\":1,\n\"ü\":[2,\"x\"]}]}"] {
            let node = read(text).unwrap();
            let Value::List(items) = &node.get("a").unwrap().value else { panic!("{text}") };
            let list = items[0].get("ü").unwrap();
            let Value::List(inner) = &list.value else { panic!("{text}") };
            let found = (node.place, items[0].get("b").unwrap().place, list.place, inner[1].place);
            let yaml = (place(1, 1), place(2, 8), place(3, 8), place(3, 12));
            let json = (place(1, 1), place(2, 8), place(3, 5), place(3, 8));
            assert!(found == yaml || found == json, "{text}: {found:?}");
        }
    }

    #[test]
    fn what_json_has_not_is_refused_where_it_is() {
        let deep = format!("{}1{}", "[".repeat(33), "]".repeat(33));
        for (text, at, part) in [
            ("a: &x 1\nb: *x", (1, 4), "anchor"),
            ("a: *x", (1, 4), "anchor"),
            ("a:\n  b: !!str 1", (2, 6), "tag"),
            ("a: 1\n<<: {b: 1}", (2, 1), "merge"),
            ("a: 1\nb: 2\na: 3", (3, 1), "`a` is there twice"),
            (r#"{"a": 1, "a": 2}"#, (1, 10), "`a` is there twice"),
            ("a: 1\n---\nb: 2", (2, 1), "one document"),
            ("", (1, 1), "empty"),
            ("# only this", (1, 1), "empty"),
            ("? [a]\n: 1", (1, 3), "name of a member"),
            ("'': 1", (1, 1), "has no name"),
            ("a: \"\\0\"", (1, 4), "U+0000"),
            ("a: 123456789012345678901", (1, 4), "64 bits"),
            ("a: 0.1000000000000000055", (1, 4), "digits"),
            ("a: 1e999", (1, 4), "digits"),
            ("a: [1, 2\nb: 3", (2, 2), "no YAML"),
            (deep.as_str(), (1, 33), "levels"),
        ] {
            let problem = read(text).unwrap_err();
            assert!(problem.message.contains(part), "{text}: {}", problem.message);
            assert_eq!((problem.place.line, problem.place.column), at, "{text}: {}", problem.message);
        }
    }

    #[test]
    fn a_document_that_is_too_large_is_refused() {
        let text = "#".repeat(limits::DOCUMENT_BYTES + 1);
        assert!(read(&text).unwrap_err().message.contains("bytes"));
    }

    /// Pieces of documents, so that random texts get past the first character.
    fn pieces() -> impl Strategy<Value = String> {
        let piece = prop::sample::select(vec![
            "a", ":", " ", "\n", "- ", "{", "}", "[", "]", ",", "\"", "'", "|", ">", "&", "*", "!", "%", "#",
            "?", "---", "...", "\t", "\\", "\u{0}", "é", "{{", "}}", "1", "-", "0.1", "true", "\r", "  ",
            "<<", "\u{2028}", "\u{feff}", "@", "`", "~",
        ]);
        prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in prop_oneof![".*", pieces()]) {
            if let Ok(node) = read(&text) {
                prop_assert_eq!(read(&node.json()).map(|node| node.json()), Ok(node.json()));
            }
        }

        #[test]
        fn no_damage_to_a_document_makes_the_reader_panic(
            at in 0..2_000usize, cut in 0..20usize, piece in pieces()
        ) {
            let whole = include_str!("../../tests/definitions/right/process-order.yaml");
            let mut text: Vec<char> = whole.chars().collect();
            let from = at.min(text.len());
            let to = (from + cut).min(text.len());
            text.splice(from..to, piece.chars());
            drop(read(&text.into_iter().collect::<String>()));
        }
    }
}
