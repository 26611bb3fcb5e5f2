//! JSON with places. Only text that is JSON gets here, so that the walk need not look for mistakes.

use std::str::CharIndices;

use serde::de::IgnoredAny;

use super::number::{NoNumber, Number};
use super::{Member, Node, Reading, Value, check_depth, check_member, check_text, refusal};
use crate::definitions::problem::{Problem, TextPosition};

/// Whether the text is JSON, and an object or a list. Plain values are left to YAML, which reads them alike.
pub(super) fn is_json(text: &str) -> bool {
    text.trim_start().starts_with(['{', '[']) && serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// Reads a text that is JSON.
pub(super) fn read(text: &str, reading: Reading) -> Result<Node, Problem> {
    let mut walk =
        JsonWalk { text, reading, chars: text.char_indices(), place: TextPosition { line: 1, column: 1 } };
    walk.value(1)
}

struct JsonWalk<'a> {
    text: &'a str,
    reading: Reading,
    chars: CharIndices<'a>,
    place: TextPosition,
}

impl JsonWalk<'_> {
    fn peek(&self) -> Option<(usize, char)> {
        self.chars.clone().next()
    }

    fn step(&mut self) {
        match self.chars.next() {
            Some((_, '\n')) => self.place = TextPosition { line: self.place.line + 1, column: 1 },
            Some(_) => self.place.column += 1,
            None => {}
        }
    }

    fn skip_blanks(&mut self) {
        while self.peek().is_some_and(|(_, c)| matches!(c, ' ' | '\t' | '\n' | '\r')) {
            self.step();
        }
    }

    /// Skips blanks, and the character if it is next.
    fn skips(&mut self, wanted: char) -> bool {
        self.skip_blanks();
        let found = self.peek().is_some_and(|(_, c)| c == wanted);
        if found {
            self.step();
        }
        found
    }

    fn value(&mut self, depth: usize) -> Result<Node, Problem> {
        self.skip_blanks();
        let place = self.place;
        let value = match self.peek().map(|(_, c)| c) {
            Some('{') => self.object(depth)?,
            Some('[') => self.list(depth)?,
            Some('"') => Value::Text(self.string()?),
            _ => self.word(place)?,
        };
        Ok(Node { place, value })
    }

    fn object(&mut self, depth: usize) -> Result<Value, Problem> {
        check_depth(depth, self.reading.deepest, self.place)?;
        self.step();
        let mut members = Vec::new();
        while !self.skips('}') {
            self.skips(',');
            self.skip_blanks();
            let place = self.place;
            let name = self.string()?;
            check_member(&members, &name, place)?;
            self.skips(':');
            members.push(Member { name, place, node: self.value(depth + 1)? });
        }
        Ok(Value::Object(members))
    }

    fn list(&mut self, depth: usize) -> Result<Value, Problem> {
        check_depth(depth, self.reading.deepest, self.place)?;
        self.step();
        let mut items = Vec::new();
        while !self.skips(']') {
            self.skips(',');
            items.push(self.value(depth + 1)?);
        }
        Ok(Value::List(items))
    }

    fn string(&mut self) -> Result<String, Problem> {
        let (place, from) = (self.place, self.at());
        self.step();
        while let Some((_, c)) = self.peek().filter(|(_, c)| *c != '"') {
            self.step();
            if c == '\\' {
                self.step();
            }
        }
        self.step();
        let read = serde_json::from_str(&self.text[from..self.at()]);
        // A lone surrogate passes the check, as nothing is made of the text there.
        let text: String = read.map_err(|error| refusal(place, format!("the text is no JSON: {error}")))?;
        check_text(&text, place)?;
        Ok(text)
    }

    fn word(&mut self, place: TextPosition) -> Result<Value, Problem> {
        let from = self.at();
        while self.peek().is_some_and(|(_, c)| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.')) {
            self.step();
        }
        match &self.text[from..self.at()] {
            "null" => Ok(Value::Null),
            "true" => Ok(Value::Bool(true)),
            "false" => Ok(Value::Bool(false)),
            number => match Number::new(number) {
                Ok(number) => Ok(Value::Number(number)),
                Err(NoNumber::Large | NoNumber::Digits) if self.reading.inexact => {
                    Ok(Value::Inexact(number.to_owned()))
                }
                Err(why) => Err(no_number(place, why)),
            },
        }
    }

    /// Offset of the next character.
    fn at(&self) -> usize {
        self.peek().map_or(self.text.len(), |(at, _)| at)
    }
}

/// The refusal of a number.
pub(super) fn no_number(place: TextPosition, why: NoNumber) -> Problem {
    refusal(place, why.message()).hint("write it as a text, in quotes")
}
