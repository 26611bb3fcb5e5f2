//! JSON to values of expressions, and back.

use std::fmt;
use std::sync::Arc;

use minijinja::value::{Object, Serde, Value, ValueKind};
use minijinja::{Error, ErrorKind};
use semel::rules::json::{MAX_DEPTH, Payload};
use serde_json::Map;

use super::Failed;
use crate::definitions::document::{self, Node, holds};
use crate::definitions::limits;

/// A value that expressions can read. Clones share it.
#[derive(Clone, Debug)]
pub struct Data(pub(super) Value);

impl Data {
    /// Converts a payload. A number that a double does not hold makes an expression fail that reads it, and no other.
    pub fn of_payload(payload: &Payload) -> Self {
        let text = payload.text();
        if !is_exact(text) {
            // Payloads are checked when they are accepted, so that only a broken store gets to the second line.
            let node = document::read_json(text).map_err(|problem| problem.message);
            return Self(node.map_or_else(|why| invalid(&why), |node| of_node(&node)));
        }
        match serde_json::from_str(text) {
            Ok(value) => Self(value),
            Err(error) => Self(invalid(&error.to_string())),
        }
    }

    /// Converts a JSON value.
    pub fn of_json(value: &serde_json::Value) -> Self {
        Self(Value::from(Serde(value)))
    }

    /// An object of these members.
    pub fn object<'a>(members: impl IntoIterator<Item = (&'a str, Self)>) -> Self {
        Self(Value::from_pairs(members.into_iter().map(|(name, value)| (name, value.0))))
    }

    /// A list of these values.
    pub fn list(items: impl IntoIterator<Item = Self>) -> Self {
        Self(items.into_iter().map(|data| data.0).collect())
    }

    /// The value as JSON.
    pub fn json(&self) -> Result<serde_json::Value, Failed> {
        to_json(&self.0)
    }

    /// Names that are looked up when an expression reads them.
    pub fn names(names: impl Names) -> Self {
        Self(Value::from_object(Looked(names)))
    }

    /// The same names, and this one; it hides one of the same name.
    #[must_use]
    pub fn with(&self, name: &str, value: Self) -> Self {
        Self::names(With { name: name.to_owned(), value, around: self.clone() })
    }

    /// The member of this value; none if it has no such member.
    pub fn get(&self, name: &str) -> Option<Self> {
        self.0.get_attr(name).ok().filter(|value| !value.is_undefined()).map(Self)
    }

    /// A value that holds this text.
    pub fn text(text: &str) -> Self {
        Self(Value::from(text))
    }
}

/// Names that expressions can read, and their values at the moment.
pub trait Names: fmt::Debug + Send + Sync + 'static {
    /// The value of a name; none if it is not there.
    fn get(&self, name: &str) -> Option<Data>;
}

#[derive(Debug)]
struct Looked<T>(T);

impl<T: Names> Object for Looked<T> {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.0.get(key.as_str()?).map(|data| data.0)
    }
}

#[derive(Debug)]
struct With {
    name: String,
    value: Data,
    around: Data,
}

impl Names for With {
    fn get(&self, name: &str) -> Option<Data> {
        if name == self.name { Some(self.value.clone()) } else { self.around.get(name) }
    }
}

fn invalid(why: &str) -> Value {
    Value::from(Error::new(ErrorKind::BadSerialization, why.to_owned()))
}

/// Whether an expression loses no digit of the numbers in a JSON text.
fn is_exact(text: &str) -> bool {
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c == '"' || c == '-' || c.is_ascii_digit()) {
        rest = &rest[at..];
        if rest.starts_with('"') {
            let Some(length) = string_length(rest) else { return true };
            rest = &rest[length..];
            continue;
        }
        let end = rest.find(|c: char| !matches!(c, '0'..='9' | '-' | '+' | '.' | 'e' | 'E'));
        let number = &rest[..end.unwrap_or(rest.len())];
        if !is_exact_number(number) {
            return false;
        }
        rest = &rest[number.len()..];
    }
    true
}

fn string_length(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().enumerate().skip(1).find_map(|(at, byte)| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends.then_some(at + 1)
    })
}

/// Fifteen digits always fit.
fn is_exact_number(text: &str) -> bool {
    let short = text.len() <= 15 && !text.contains(['e', 'E']);
    short
        || text.parse::<i64>().is_ok()
        || text.parse::<u64>().is_ok()
        || (text.contains(['.', 'e', 'E']) && holds(text))
}

fn of_node(node: &Node) -> Value {
    match &node.value {
        document::Value::Null => Value::from(()),
        document::Value::Bool(value) => Value::from(*value),
        document::Value::Number(number) => match number.integer() {
            Some(integer) => Value::from(integer),
            None => Value::from(number.double()),
        },
        document::Value::Inexact(text) => {
            invalid(&format!("{text} has more digits than a double holds; use a text instead"))
        }
        document::Value::Text(text) => Value::from(text.as_str()),
        document::Value::List(items) => items.iter().map(of_node).collect(),
        document::Value::Object(members) => {
            Value::from_pairs(members.iter().map(|member| (member.name.as_str(), of_node(&member.node))))
        }
    }
}

/// Converts the result of an expression. What is not there, and what JSON cannot say, is an error.
pub(super) fn to_json(value: &Value) -> Result<serde_json::Value, Failed> {
    Output { left: limits::RENDERED_BYTES }.json(value, 1)
}

/// Writes a value into a text: texts as they are, everything else as JSON. Nothing (`null`) is an error.
pub(super) fn to_text(value: &Value) -> Result<String, Failed> {
    if let Some(text) = value.as_str() {
        return Ok(text.to_owned());
    }
    if value.is_none() {
        return Err(Failed::new("a text has null in it; `default('', true)` writes nothing instead"));
    }
    Ok(to_json(value)?.to_string())
}

/// Bounds the size of a result.
struct Output {
    left: usize,
}

impl Output {
    fn takes(&mut self, bytes: usize) -> Result<(), Failed> {
        let left = self.left.checked_sub(bytes);
        self.left = left.ok_or_else(|| Failed::new("the value is too large; at most 2 MiB are accepted"))?;
        Ok(())
    }

    fn json(&mut self, value: &Value, depth: usize) -> Result<serde_json::Value, Failed> {
        use serde_json::Value as Json;
        if depth > MAX_DEPTH {
            return Err(Failed::new("the value is nested too deeply"));
        }
        self.takes(2)?;
        Ok(match value.kind() {
            ValueKind::Undefined => return Err(Failed::undefined()),
            ValueKind::None => Json::Null,
            ValueKind::Bool => Json::Bool(value.is_true()),
            ValueKind::Number => number(value)?,
            ValueKind::String => {
                let text = value.as_str().unwrap_or_default();
                self.takes(text.len())?;
                Json::String(text.to_owned())
            }
            ValueKind::Seq | ValueKind::Iterable => {
                let items = value.try_iter()?.checked();
                Json::Array(items.map(|item| self.json(&item?, depth + 1)).collect::<Result<_, Failed>>()?)
            }
            ValueKind::Map => {
                let mut members = Map::new();
                for key in value.try_iter()?.checked() {
                    let key = key?;
                    let Some(name) = key.as_str() else {
                        return Err(Failed::new("the names of an object are texts"));
                    };
                    self.takes(name.len())?;
                    members.insert(name.to_owned(), self.json(&value.get_item(&key)?, depth + 1)?);
                }
                Json::Object(members)
            }
            _ => return Err(Failed::of_invalid(value)),
        })
    }
}

fn number(value: &Value) -> Result<serde_json::Value, Failed> {
    if value.is_integer() {
        let integer = i128::try_from(value.clone())?;
        let (signed, unsigned) = (i64::try_from(integer).ok(), u64::try_from(integer).ok());
        return match (signed, unsigned) {
            (Some(integer), _) => Ok(integer.into()),
            (None, Some(integer)) => Ok(integer.into()),
            (None, None) => Err(Failed::new("the integer has more than 64 bits")),
        };
    }
    let double = f64::try_from(value.clone())?;
    let number = serde_json::Number::from_f64(double).map(serde_json::Value::Number);
    number.ok_or_else(|| Failed::new("the number is infinite or none at all; was something divided by zero?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_and_doubles_are_exact_and_other_numbers_are_noticed() {
        for text in
            ["1", "[1.5,-2]", "\"0.1000000000000000055\"", "{\"a-1\":18446744073709551615}", "0.10", "1e3"]
        {
            assert!(is_exact(text), "{text}");
        }
        for text in ["0.1000000000000000055", "{\"a\":\"x\\\"\",\"b\":18446744073709551616}", "[1,1e400]"] {
            assert!(!is_exact(text), "{text}");
        }
    }
}
