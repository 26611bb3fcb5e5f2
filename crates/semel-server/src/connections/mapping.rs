//! Mappings: how the arguments of `mail`, `sms` and `call`, which are the same for all providers, become the request of one.
//!
//! A mapping is the request of an `http` step as a template, so that everything else is done by `http`. Members that are null are left
//! out. An element `{ each = "{{ … }}", item = … }` of a list becomes as many elements as the list in `each` has.

use std::collections::BTreeSet;

use serde_json::{Map, Value as Json, json};
use toml::{Table, Value};

use super::members::{ConnectionProblem, Members};
use crate::definitions::document;
use crate::definitions::expression::{Compiled, Data};
use crate::definitions::problem::{At, Problems, nearest};
use crate::definitions::shape::{Field, Shape};
use crate::definitions::template::{FailedAt, Filled, Template};

/// What a message goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Channel {
    /// A mail to addresses.
    Mail,
    /// A text message to a telephone.
    Sms,
    /// A telephone call, in which a text is spoken.
    Call,
}

impl Channel {
    /// All channels, in the order of the documentation.
    pub const ALL: [Self; 3] = [Self::Mail, Self::Sms, Self::Call];

    /// Name of the task, and of the table in a profile.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mail => "mail",
            Self::Sms => "sms",
            Self::Call => "call",
        }
    }

    /// The channel of a task; none if it is another task.
    pub fn of_task(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|channel| channel.name() == name)
    }

    /// What a mapping can read of a message, and the argument of the step that it is made of.
    pub const fn members(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Mail => &[
                ("from", "from"),
                ("from_text", "from"),
                ("to", "to"),
                ("to_text", "to"),
                ("cc", "cc"),
                ("cc_text", "cc"),
                ("bcc", "bcc"),
                ("bcc_text", "bcc"),
                ("reply_to", "reply-to"),
                ("reply_to_text", "reply-to"),
                ("subject", "subject"),
                ("text", "text"),
                ("html", "html"),
                ("headers", "headers"),
                ("attachments", "attachments"),
            ],
            Self::Sms => &[("from", "from"), ("to", "to"), ("text", "text")],
            Self::Call => &[
                ("from", "from"),
                ("to", "to"),
                ("text", "text"),
                ("text_xml", "text"),
                ("language", "language"),
                ("voice", "voice"),
            ],
        }
    }
}

/// How a message becomes the request of a provider.
#[derive(Debug)]
pub struct Mapping {
    request: Template,
    id: Option<Compiled>,
    /// Arguments of the step that the request has a place for.
    takes: BTreeSet<&'static str>,
}

/// What a mapping has beside where its knowledge is from: the members of an `http` step that writes.
static REQUEST: Shape = Shape::Object(&[
    Field::required("post", Shape::Text, "the path of the request"),
    Field::new("query", Shape::Map(&Shape::Scalar), "parameters of the query"),
    Field::new("headers", Shape::Map(&Shape::Text), "headers of the request"),
    Field::new("json", Shape::Any, "body as JSON"),
    Field::new("form", Shape::Map(&Shape::Scalar), "body as a form"),
]);

impl Mapping {
    /// Reads the table of a channel in a profile. `at` is its path in the configuration.
    pub(super) fn read(channel: Channel, at: &str, table: &Table) -> Result<Self, Vec<ConnectionProblem>> {
        let mut members = Members::new(at, table);
        // Where the knowledge is from.
        let (_, _) = (members.text("source"), members.text("read"));
        let id = members.text("id").and_then(|text| match Compiled::new(text) {
            Ok(compiled) => Some(compiled),
            Err(refused) => {
                members.refuse("id", refused.message);
                None
            }
        });
        let mut request = Map::new();
        for name in ["post", "query", "headers", "json", "form"] {
            if let Some(value) = members.get(name) {
                match json_of(value) {
                    Some(value) => drop(request.insert(name.to_owned(), value)),
                    None => members.refuse(name, "a date is no value here; write a text"),
                }
            }
        }
        let request = read_request(&Json::Object(request), at, &mut members);
        let takes = request.as_ref().map(|request| takes(channel, request, &mut members)).unwrap_or_default();
        let problems = members.finish();
        match request {
            Some(request) if problems.is_empty() => Ok(Self { request, id, takes }),
            _ => Err(problems),
        }
    }

    /// Whether the request has a place for this argument of a step.
    pub fn takes(&self, argument: &str) -> bool {
        self.takes.contains(argument)
    }

    /// The arguments of an `http` step that sends the message.
    pub fn request(&self, message: &Json, key: &str) -> Result<Json, FailedAt> {
        let scope = Data::object([
            ("message", Data::of_json(message)),
            ("effect", Data::of_json(&json!({ "key": key }))),
        ]);
        let mut request = fill(&self.request, &scope)?;
        prune(&mut request);
        Ok(request)
    }

    /// The provider's id of the message, as its answer has it; null if it has none.
    pub fn id(&self, answer: &Json, key: &str) -> Json {
        let Some(id) = &self.id else { return Json::Null };
        let part = |name: &str| Data::of_json(answer.get(name).unwrap_or(&Json::Null));
        let scope = Data::object([
            ("effect", Data::of_json(&json!({ "key": key }))),
            ("status", part("status")),
            ("headers", part("headers")),
            ("body", part("body")),
        ]);
        id.evaluate(&scope).unwrap_or(Json::Null)
    }
}

/// The value as JSON; none if it is a date, which JSON does not have.
fn json_of(value: &Value) -> Option<Json> {
    Some(match value {
        Value::String(text) => Json::String(text.clone()),
        Value::Integer(number) => json!(number),
        Value::Float(number) => json!(number),
        Value::Boolean(value) => Json::Bool(*value),
        Value::Array(items) => Json::Array(items.iter().map(json_of).collect::<Option<_>>()?),
        Value::Table(table) => Json::Object(
            table.iter().map(|(name, value)| Some((name.clone(), json_of(value)?))).collect::<Option<_>>()?,
        ),
        Value::Datetime(_) => return None,
    })
}

/// Compiles the request. Problems name the member of the configuration.
fn read_request(request: &Json, at: &str, members: &mut Members<'_>) -> Option<Template> {
    let refuse = |pointer: &str, message: String| ConnectionProblem {
        member: format!("{at}{}", pointer.replace('/', ".")),
        message,
    };
    let node = match document::read(&request.to_string()) {
        Ok(node) => node,
        Err(problem) => {
            members.add(vec![refuse(&problem.pointer, problem.message)]);
            return None;
        }
    };
    let mut problems = Problems::default();
    let template = Template::read(&node, &REQUEST, &At::default(), &mut problems);
    let found: Vec<_> = problems
        .sorted()
        .into_iter()
        .map(|problem| {
            refuse(
                &problem.pointer,
                problem.hint.map_or(problem.message.clone(), |hint| format!("{}; {hint}", problem.message)),
            )
        })
        .collect();
    let is_fine = found.is_empty();
    members.add(found);
    is_fine.then_some(template)
}

/// The arguments that a request reads. Names that are not there are problems.
fn takes(channel: Channel, request: &Template, members: &mut Members<'_>) -> BTreeSet<&'static str> {
    let (mut takes, mut unknown) = (BTreeSet::new(), Vec::new());
    let known = channel.members();
    request.each_hole(&mut |at, compiled| {
        for reference in compiled.references() {
            match (reference[0].as_str(), reference.get(1).map(String::as_str)) {
                ("effect", Some("key")) | ("item", _) => {}
                ("message", None) => takes.extend(known.iter().map(|(_, argument)| *argument)),
                ("message", Some(name)) => match known.iter().find(|(member, _)| *member == name) {
                    Some((_, argument)) => drop(takes.insert(*argument)),
                    None => unknown.push((at.pointer.clone(), format!("message.{name}"))),
                },
                _ => unknown.push((at.pointer.clone(), reference.join("."))),
            }
        }
    });
    for (pointer, name) in unknown {
        let names: Vec<_> = known.iter().map(|(member, _)| format!("message.{member}")).collect();
        let hint = match nearest(&name, names.iter().map(String::as_str)) {
            Some(near) => format!("is it `{near}`?"),
            None => format!("a mapping of `{}` reads effect.key, {}", channel.name(), names.join(", ")),
        };
        let member = format!("{}{}", members.path("").trim_end_matches('.'), pointer.replace('/', "."));
        members
            .add(vec![ConnectionProblem { member, message: format!("there is no `{name}` here; {hint}") }]);
    }
    takes
}

/// Evaluates a request, with elements for each item of a list.
fn fill(template: &Template, scope: &Data) -> Result<Json, FailedAt> {
    Ok(match &template.value {
        Filled::List(items) => {
            let mut filled = Vec::new();
            for item in items {
                match repeated(item) {
                    Some((each, item)) => {
                        let Json::Array(values) = each.evaluate(scope)? else { continue };
                        for value in values {
                            filled.push(fill(item, &scope.with("item", Data::of_json(&value)))?);
                        }
                    }
                    None => filled.push(fill(item, scope)?),
                }
            }
            // A list of nothing but repetitions is left out if there is nothing to repeat.
            let is_repeated = !items.is_empty() && items.iter().all(|item| repeated(item).is_some());
            if is_repeated && filled.is_empty() { Json::Null } else { Json::Array(filled) }
        }
        Filled::Object(members) => {
            let members = members.iter().map(|(name, value)| Ok((name.clone(), fill(value, scope)?)));
            Json::Object(members.collect::<Result<_, FailedAt>>()?)
        }
        _ => template.evaluate(scope)?,
    })
}

/// An element that is repeated: the list, and what each of its items becomes.
fn repeated(element: &Template) -> Option<(&Template, &Template)> {
    match &element.value {
        Filled::Object(members) if members.len() == 2 => element.get("each").zip(element.get("item")),
        _ => None,
    }
}

/// Leaves out members that are null.
fn prune(value: &mut Json) {
    match value {
        Json::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(prune);
        }
        Json::Array(items) => items.iter_mut().for_each(prune),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(channel: Channel, text: &str) -> Result<Mapping, Vec<ConnectionProblem>> {
        Mapping::read(channel, "profile.x", &toml::from_str(text).unwrap())
    }

    #[test]
    fn a_mapping_leaves_out_what_is_null_and_repeats_for_each_item() {
        let mapping = read(
            Channel::Mail,
            r#"
post = "/send"
id = "{{ body.ids[0] }}"
[json]
subject = "{{ message.subject }}"
cc = "{{ message.cc_text | join(', ') if message.cc else none }}"
key = "{{ effect.key }}"
recipients = [
  { each = "{{ message.to }}", item = { address = "{{ item }}", kind = "to" } },
  { each = "{{ message.bcc }}", item = { address = "{{ item }}" } },
  "end",
]
"#,
        )
        .unwrap();
        let to = json!([{"email": "a@example.com", "name": "A"}, {"email": "b@example.com", "name": null}]);
        let message = json!({"subject": "{{ 7 }}", "cc": null, "cc_text": null, "to": to, "bcc": null});
        let request = mapping.request(&message, "e1k").unwrap();
        assert_eq!(
            request,
            json!({"post": "/send", "json": {"subject": "{{ 7 }}", "key": "e1k", "recipients": [
                {"address": {"email": "a@example.com", "name": "A"}, "kind": "to"},
                {"address": {"email": "b@example.com"}, "kind": "to"},
                "end",
            ]}})
        );
        assert!(mapping.takes("cc") && mapping.takes("bcc") && !mapping.takes("attachments"));
        assert_eq!(mapping.id(&json!({"body": {"ids": [7]}}), "e1k"), json!(7));
        assert_eq!(mapping.id(&json!({"body": "no"}), "e1k"), Json::Null);
    }

    #[test]
    fn a_mapping_that_is_none_is_refused_by_its_member() {
        for (channel, text, member, said) in [
            (Channel::Mail, "json = {}", "profile.x", "`post` is missing"),
            (Channel::Mail, "post = '/a'\njason = 1", "profile.x.jason", "`json`"),
            (Channel::Mail, "post = '/a'\nid = '{{'", "profile.x.id", "}}"),
            (
                Channel::Mail,
                "post = '/a'\njson = { a = '{{ message.too }}' }",
                "profile.x.json.a",
                "`message.to`",
            ),
            (Channel::Sms, "post = '/a'\nform = { a = '{{ input.x }}' }", "profile.x.form.a", "effect.key"),
            (Channel::Sms, "post = '/a'\nform = { a = '{{ message.to' }", "profile.x.form.a", "}}"),
            (Channel::Call, "post = '/a'\njson = { a = 2026-11-19 }", "profile.x.json", "date"),
        ] {
            let problems = read(channel, text).unwrap_err();
            let found =
                |problem: &ConnectionProblem| problem.member == member && problem.message.contains(said);
            assert!(problems.iter().any(found), "{text}: {problems:?}");
        }
    }
}
