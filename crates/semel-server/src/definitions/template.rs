//! Values of a definition with compiled expressions: the arguments of a step, before they are evaluated for a run.

use std::time::Duration;

use serde_json::Value as Json;

use super::document::{Node, Value};
use super::duration;
use super::expression::{Compiled, Data, Failed, has_holes};
use super::language::{ToolList, tools};
use super::limits;
use super::problem::{At, Problem, Problems, Severity, nearest};
use super::schema;
use super::shape::{Field, Shape};

/// A value, perhaps with holes, and its place.
#[derive(Debug)]
pub struct Template {
    /// Pointer and place of the value.
    pub at: At,
    /// The value, with its holes compiled.
    pub value: Filled,
}

/// The value of a template.
#[derive(Debug)]
pub enum Filled {
    /// A value without holes.
    Plain(Json),
    /// A text with holes.
    Hole(Box<Compiled>),
    /// A list of templates.
    List(Vec<Template>),
    /// An object, members in the order of the text.
    Object(Vec<(String, Template)>),
    /// What a model may have done. It has no value of its own.
    Tools(Box<ToolList>),
}

/// An expression that has failed, and where it is.
#[derive(Debug)]
pub struct FailedAt {
    /// JSON pointer to the expression in the definition.
    pub pointer: String,
    /// Text of the expression as written.
    pub source: String,
    /// Why the expression has no value.
    pub failed: Failed,
}

impl Template {
    /// Reads a value of a shape. What does not fit is a problem, and the result must then not be used.
    pub fn read(node: &Node, shape: &Shape, at: &At, problems: &mut Problems) -> Self {
        TemplateReader { problems }.value(node, shape, at)
    }

    fn plain(at: &At, value: Json) -> Self {
        Self { at: at.clone(), value: Filled::Plain(value) }
    }

    /// The member of an object.
    pub fn get(&self, name: &str) -> Option<&Self> {
        let Filled::Object(members) = &self.value else { return None };
        members.iter().find(|(found, _)| found == name).map(|(_, member)| member)
    }

    /// The tools among the members of an object.
    pub fn tools(&self) -> Option<&ToolList> {
        let Filled::Object(members) = &self.value else { return None };
        members.iter().find_map(|(_, member)| match &member.value {
            Filled::Tools(tools) => Some(&**tools),
            _ => None,
        })
    }

    /// The names of the members, if it is an object.
    pub fn names(&self) -> Vec<String> {
        let Filled::Object(members) = &self.value else { return Vec::new() };
        members.iter().map(|(name, _)| name.clone()).collect()
    }

    /// The text, if it is one without holes.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Filled::Plain(Json::String(text)) => Some(text),
            _ => None,
        }
    }

    /// The duration, if it is one without holes.
    pub fn duration(&self) -> Option<Duration> {
        self.text().and_then(|text| duration::read(text).ok())
    }

    /// The integer, if it is one without holes.
    pub fn integer(&self) -> Option<i64> {
        match &self.value {
            Filled::Plain(value) => value.as_i64(),
            _ => None,
        }
    }

    /// The text with holes as it was written, if it is one.
    pub fn source(&self) -> Option<&str> {
        match &self.value {
            Filled::Hole(compiled) => Some(compiled.source()),
            _ => None,
        }
    }

    /// Whether it is this truth value.
    pub fn is(&self, wanted: bool) -> bool {
        matches!(&self.value, Filled::Plain(Json::Bool(value)) if *value == wanted)
    }

    /// Evaluates all expressions of the template. Fails at the first one that fails.
    pub fn evaluate(&self, scope: &Data) -> Result<Json, FailedAt> {
        Ok(match &self.value {
            Filled::Plain(value) => value.clone(),
            Filled::Hole(compiled) => {
                compiled.evaluate(scope).map_err(|failed| self.failed(compiled, failed))?
            }
            Filled::List(items) => {
                Json::Array(items.iter().map(|item| item.evaluate(scope)).collect::<Result<_, _>>()?)
            }
            Filled::Object(members) => {
                let members = members.iter().map(|(name, value)| Ok((name.clone(), value.evaluate(scope)?)));
                Json::Object(members.collect::<Result<_, FailedAt>>()?)
            }
            Filled::Tools(_) => Json::Null,
        })
    }

    /// Evaluates it as a condition.
    pub fn is_true(&self, scope: &Data) -> Result<bool, FailedAt> {
        match &self.value {
            Filled::Hole(compiled) => compiled.is_true(scope).map_err(|failed| self.failed(compiled, failed)),
            _ => Ok(self.is(true)),
        }
    }

    fn failed(&self, compiled: &Compiled, failed: Failed) -> FailedAt {
        FailedAt { pointer: self.at.pointer.clone(), source: compiled.source().to_owned(), failed }
    }

    /// Visits every text with holes, but those of tools: they see other names.
    pub fn each_hole<'a>(&'a self, visit: &mut impl FnMut(&'a At, &'a Compiled)) {
        match &self.value {
            Filled::Plain(_) | Filled::Tools(_) => {}
            Filled::Hole(compiled) => visit(&self.at, compiled),
            Filled::List(items) => items.iter().for_each(|item| item.each_hole(visit)),
            Filled::Object(members) => members.iter().for_each(|(_, member)| member.each_hole(visit)),
        }
    }
}

struct TemplateReader<'a> {
    problems: &'a mut Problems,
}

impl TemplateReader<'_> {
    fn value(&mut self, node: &Node, shape: &Shape, at: &At) -> Template {
        match (shape, &node.value) {
            (Shape::Any | Shape::Items, Value::List(items)) => self.list(items, &Shape::Any, at),
            (Shape::Any, Value::Object(_)) => self.map(node, &Shape::Any, at),
            (Shape::Schema, _) => {
                schema::check(node, at, self.problems);
                Template::plain(at, node.plain())
            }
            (Shape::Any | Shape::Text | Shape::Scalar, Value::Text(text)) => self.text(text, at),
            (Shape::AnyDuration, Value::Text(text)) if has_holes(text) => self.text(text, at),
            (Shape::Any, _)
            | (Shape::Scalar, Value::Number(_) | Value::Bool(_))
            | (Shape::Flag | Shape::Condition | Shape::FixedFlag, Value::Bool(_)) => {
                Template::plain(at, node.plain())
            }
            (Shape::Flag | Shape::Condition | Shape::Items, Value::Text(text)) if has_holes(text) => {
                self.typed(text, shape, at)
            }
            (Shape::List(items), Value::List(nodes)) => self.bounded_list(nodes, items, at),
            (Shape::Map(values), Value::Object(_)) => self.map(node, values, at),
            (Shape::Tools, Value::List(nodes)) => {
                let tools = tools(nodes, at, self.problems);
                Template { at: at.clone(), value: Filled::Tools(Box::new(tools)) }
            }
            (Shape::Object(fields), Value::Object(_)) => self.object(node, fields, at),
            (Shape::TextOr(text, _), Value::Text(_)) => self.value(node, text, at),
            (Shape::TextOr(_, other), value) => {
                let fits = !matches!(other, Shape::Object(_)) || matches!(value, Value::Object(_));
                if fits { self.value(node, other, at) } else { self.fixed(node, shape, at) }
            }
            (Shape::Nothing, Value::Null) => Template::plain(at, Json::Null),
            (Shape::Nothing, Value::Object(members)) if members.is_empty() => Template::plain(at, Json::Null),
            _ => self.fixed(node, shape, at),
        }
    }

    /// Values that have no holes.
    fn fixed(&mut self, node: &Node, shape: &Shape, at: &At) -> Template {
        let text = node.text();
        if text.is_some_and(has_holes) {
            let message = format!("`{{{{ }}}}` is not possible here: {} is expected", shape.expected());
            let hint = match shape {
                Shape::Statement => {
                    "write `:name` in the statement, and the value in `args`: `args: {name: \"{{ … }}\"}`"
                }
                _ => "this value is known when the definition is pushed",
            };
            self.problems.structure(at, message).hint = Some(hint.to_owned());
            return Template::plain(at, Json::Null);
        }
        let fits = match (shape, &node.value) {
            (Shape::Fixed | Shape::Statement, Value::Text(text)) => !text.trim().is_empty(),
            (Shape::Name, Value::Text(text)) => return self.name(text, at),
            (Shape::Word(words), Value::Text(text)) => return self.word(text, words, at),
            (Shape::Duration | Shape::AnyDuration, Value::Text(text)) => return self.duration(text, at),
            (Shape::Integer(least, most), Value::Number(number)) => {
                number.integer().is_some_and(|n| (i128::from(*least)..=i128::from(*most)).contains(&n))
            }
            (Shape::Number(least, most), Value::Number(number)) => {
                (*least..=*most).contains(&number.double())
            }
            _ => false,
        };
        if !fits {
            self.unexpected(node, shape, at);
        }
        Template::plain(at, node.plain())
    }

    fn unexpected(&mut self, node: &Node, shape: &Shape, at: &At) {
        let found = match &node.value {
            Value::Number(number) => number.text().to_owned(),
            Value::Text(text) if text.chars().count() < 40 => format!("`{text}`"),
            _ => node.kind().to_owned(),
        };
        let problem =
            self.problems.structure(at, format!("{} is expected, and this is {found}", shape.expected()));
        let hint = match (shape, &node.value) {
            (
                Shape::Text | Shape::Fixed | Shape::Statement | Shape::Name,
                Value::Number(_) | Value::Bool(_),
            ) => "quotes make it a text",
            (Shape::Duration | Shape::AnyDuration | Shape::TextOr(Shape::AnyDuration, _), _) => {
                duration::HINT
            }
            (Shape::Condition, Value::Text(_)) => "put it in `{{ }}`",
            _ => return,
        };
        problem.hint = Some(hint.to_owned());
    }

    fn text(&mut self, text: &str, at: &At) -> Template {
        if !has_holes(text) {
            return Template::plain(at, Json::String(text.to_owned()));
        }
        match Compiled::new(text) {
            Ok(compiled) => Template { at: at.clone(), value: Filled::Hole(Box::new(compiled)) },
            Err(refused) => {
                self.problems.meaning(at, refused.message).hint = refused.hint;
                Template::plain(at, Json::Null)
            }
        }
    }

    /// A single `{{ }}`, as its value must be of another type than text.
    fn typed(&mut self, text: &str, shape: &Shape, at: &At) -> Template {
        let template = self.text(text, at);
        if matches!(&template.value, Filled::Hole(compiled) if !compiled.is_typed()) {
            let message = format!("{} is expected, and this is always a text", shape.expected());
            self.problems.structure(at, message).hint =
                Some("put all of it into one `{{ }}`, without text around".to_owned());
        }
        template
    }

    fn name(&mut self, text: &str, at: &At) -> Template {
        if let Err(why) = check_name(text) {
            self.problems.structure(at, why);
        }
        Template::plain(at, Json::String(text.to_owned()))
    }

    fn word(&mut self, text: &str, words: &[&'static str], at: &At) -> Template {
        if !words.contains(&text) {
            let message = format!("`{text}` is not one of {}", words.join(", "));
            self.problems.structure(at, message).hint = is_it(nearest(text, words.iter().copied()));
        }
        Template::plain(at, Json::String(text.to_owned()))
    }

    fn duration(&mut self, text: &str, at: &At) -> Template {
        if let Err(why) = duration::read(text) {
            self.problems.structure(at, why).hint = Some(duration::HINT.to_owned());
        }
        Template::plain(at, Json::String(text.to_owned()))
    }

    fn list(&mut self, nodes: &[Node], items: &Shape, at: &At) -> Template {
        let items = nodes
            .iter()
            .enumerate()
            .map(|(index, node)| self.value(node, items, &at.element(index, node.place)));
        Template { at: at.clone(), value: Filled::List(items.collect()) }
    }

    fn bounded_list(&mut self, nodes: &[Node], items: &Shape, at: &At) -> Template {
        if nodes.is_empty() || nodes.len() > limits::BRANCHES {
            let message =
                format!("the list has {} elements; 1 to {} are accepted", nodes.len(), limits::BRANCHES);
            self.problems.structure(at, message);
        }
        self.list(nodes, items, at)
    }

    fn map(&mut self, node: &Node, values: &Shape, at: &At) -> Template {
        let Value::Object(members) = &node.value else { return Template::plain(at, Json::Null) };
        let members = members.iter().map(|member| {
            let at = at.member(&member.name, member.node.place);
            (member.name.clone(), self.value(&member.node, values, &at))
        });
        Template { at: at.clone(), value: Filled::Object(members.collect()) }
    }

    fn object(&mut self, node: &Node, fields: &[Field], at: &At) -> Template {
        check_members(node, fields, at, self.problems);
        let Value::Object(members) = &node.value else { return Template::plain(at, Json::Null) };
        let known = members.iter().filter_map(|member| {
            let field = fields.iter().find(|field| field.name == member.name)?;
            let at = at.member(&member.name, member.node.place);
            Some((member.name.clone(), self.value(&member.node, &field.shape, &at)))
        });
        Template { at: at.clone(), value: Filled::Object(known.collect()) }
    }
}

/// Reports members that are unknown or missing.
pub fn check_members(node: &Node, fields: &[Field], at: &At, problems: &mut Problems) {
    let Value::Object(members) = &node.value else { return };
    for member in members.iter().filter(|member| !fields.iter().any(|field| field.name == member.name)) {
        let names = || fields.iter().map(|field| field.name);
        problems.add(unknown_member(&member.name, names(), &at.member(&member.name, member.place)));
    }
    for field in fields.iter().filter(|field| field.required && node.get(field.name).is_none()) {
        let problem = problems.structure(at, format!("`{}` is missing", field.name));
        problem.hint = Some(field.about.to_owned());
    }
}

/// The problem of a member that nothing knows.
pub fn unknown_member<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone, at: &At) -> Problem {
    let problem = Problem::new(Severity::Structure, at, format!("there is no member `{name}` here"));
    let hint = is_it(nearest(name, known.clone()));
    problem.hint(hint.unwrap_or_else(|| format!("the members are {}", known.collect::<Vec<_>>().join(", "))))
}

/// The hint about a word that is near.
pub fn is_it(near: Option<&str>) -> Option<String> {
    near.map(|near| format!("is it `{near}`?"))
}

/// Names that the language gives to parts of paths.
const PARTS: [&str; 3] = ["undo", "catch", "finally"];

/// Checks a name of a step, branch, hook or definition.
pub fn check_name(name: &str) -> Result<(), String> {
    let length = name.chars().count();
    if length == 0 || length > limits::NAME {
        return Err(format!("a name has 1 to {} characters, and this one has {length}", limits::NAME));
    }
    if PARTS.contains(&name) {
        return Err(format!("`{name}` is a part of paths already, as in `charge/{name}/…`"));
    }
    let wrong = name.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-')));
    match wrong {
        Some(wrong) => {
            Err(format!("a name has letters of ASCII, digits, `_` and `-`, and `{name}` has `{wrong}`"))
        }
        None => Ok(()),
    }
}
