//! YAML with places, from the events of the parser.

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput};

use super::json::no_number;
use super::number::{NoNumber, Number};
use super::{Member, Node, Value, check_depth, check_member, check_text, refusal};
use crate::definitions::limits;
use crate::definitions::problem::{Problem, TextPosition};

/// Reads a text as YAML.
pub(super) fn read(text: &str) -> Result<Node, Problem> {
    let mut events = YamlEvents { parser: Parser::new_from_str(text) };
    let begins = loop {
        match events.next()? {
            (Event::StreamStart, _) => {}
            (Event::DocumentStart(_), place) => break place,
            _ => return Err(refusal(TextPosition { line: 1, column: 1 }, "the document is empty")),
        }
    };
    let node = events.node(1)?;
    if node.value == Value::Null {
        return Err(refusal(begins, "the document is empty"));
    }
    loop {
        match events.next()? {
            (Event::DocumentEnd, _) => {}
            (Event::StreamEnd, _) => return Ok(node),
            (_, place) => return Err(refusal(place, "a definition is one document; here begins another")),
        }
    }
}

struct YamlEvents<'a> {
    parser: Parser<'a, StrInput<'a>>,
}

fn place(span: &Span) -> TextPosition {
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    TextPosition {
        line: number(span.start.line()).max(1),
        column: number(span.start.col()).saturating_add(1),
    }
}

fn broken(error: &ScanError) -> Problem {
    let marker = error.marker();
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let place =
        TextPosition { line: number(marker.line()).max(1), column: number(marker.col()).saturating_add(1) };
    let info = error.info();
    if info.contains("anchor") {
        return no_anchor(place);
    }
    let problem = refusal(place, format!("this is no YAML: {info}"));
    problem.hint("look at the indentation and the quotes here and on the line above")
}

fn no_anchor(place: TextPosition) -> Problem {
    refusal(place, "anchors and aliases are not part of the language")
        .hint("write the value where it is used")
}

impl<'a> YamlEvents<'a> {
    fn next(&mut self) -> Result<(Event<'a>, TextPosition), Problem> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => Ok((event, place(&span))),
            Some(Err(error)) => Err(broken(&error)),
            None => Ok((Event::StreamEnd, TextPosition { line: 1, column: 1 })),
        }
    }

    fn node(&mut self, depth: usize) -> Result<Node, Problem> {
        let (event, place) = self.next()?;
        self.node_of(event, place, depth)
    }

    fn node_of(&mut self, event: Event<'a>, place: TextPosition, depth: usize) -> Result<Node, Problem> {
        check_plain(&event, place)?;
        let value = match event {
            Event::Scalar(text, style, ..) => scalar(&text, style, place)?,
            Event::SequenceStart(..) => {
                check_depth(depth, limits::DOCUMENT_DEPTH, place)?;
                Value::List(self.list(depth)?)
            }
            Event::MappingStart(..) => {
                check_depth(depth, limits::DOCUMENT_DEPTH, place)?;
                Value::Object(self.object(depth)?)
            }
            _ => return Err(refusal(place, "a value is expected here")),
        };
        Ok(Node { place, value })
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Node>, Problem> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(items),
                (event, place) => items.push(self.node_of(event, place, depth + 1)?),
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Vec<Member>, Problem> {
        let mut members = Vec::new();
        loop {
            let (event, place) = self.next()?;
            if event == Event::MappingEnd {
                return Ok(members);
            }
            let name = name(event, place)?;
            check_member(&members, &name, place)?;
            members.push(Member { name, place, node: self.node(depth + 1)? });
        }
    }
}

fn name(event: Event<'_>, place: TextPosition) -> Result<String, Problem> {
    check_plain(&event, place)?;
    match event {
        Event::Scalar(text, ScalarStyle::Plain, ..) if text == "<<" => {
            let problem = refusal(place, "merge keys (`<<`) are not part of the language");
            Err(problem.hint("write the members where they are used"))
        }
        Event::Scalar(text, ..) => Ok(text.into_owned()),
        _ => Err(refusal(place, "the name of a member is a text")),
    }
}

/// Refuses anchors, aliases and tags.
fn check_plain(event: &Event<'_>, place: TextPosition) -> Result<(), Problem> {
    let (anchor, tag) = match event {
        Event::Alias(_) => return Err(no_anchor(place)),
        Event::Scalar(_, _, anchor, tag)
        | Event::SequenceStart(anchor, tag)
        | Event::MappingStart(anchor, tag) => (*anchor, tag),
        _ => return Ok(()),
    };
    if anchor != 0 {
        return Err(no_anchor(place));
    }
    match tag {
        Some(_) => {
            let problem = refusal(place, "tags such as `!!str` are not part of the language");
            Err(problem.hint("quotes make a text; anything else is read as JSON reads it"))
        }
        None => Ok(()),
    }
}

fn scalar(text: &str, style: ScalarStyle, place: TextPosition) -> Result<Value, Problem> {
    check_text(text, place)?;
    if style != ScalarStyle::Plain {
        return Ok(Value::Text(text.to_owned()));
    }
    match text {
        "" | "null" => Ok(Value::Null),
        "true" => Ok(Value::Bool(true)),
        "false" => Ok(Value::Bool(false)),
        _ => match Number::new(text) {
            Ok(number) => Ok(Value::Number(number)),
            Err(NoNumber::Text) => Ok(Value::Text(text.to_owned())),
            Err(why) => Err(no_number(place, why)),
        },
    }
}
