//! Profiles: what the other side can do about a repeated request. They decide the class of a call.

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::header::HeaderName;
use serde_json::Value as Json;
use toml::{Table, Value};

use super::mapping::{Channel, Mapping};
use super::members::{ConnectionProblem, Members};
use super::window::Window;
use crate::definitions::expression::{Compiled, Data, has_holes};

/// The built-in profiles, each with the page that it was taken from.
pub(super) const BUILT_IN: [(&str, &str); 14] = [
    ("brevo", include_str!("profiles/brevo.toml")),
    ("mailgun", include_str!("profiles/mailgun.toml")),
    ("postmark", include_str!("profiles/postmark.toml")),
    ("resend", include_str!("profiles/resend.toml")),
    ("sendgrid", include_str!("profiles/sendgrid.toml")),
    ("ses", include_str!("profiles/ses.toml")),
    ("sinch", include_str!("profiles/sinch.toml")),
    ("sinch-sms", include_str!("profiles/sinch-sms.toml")),
    ("sparkpost", include_str!("profiles/sparkpost.toml")),
    ("stripe", include_str!("profiles/stripe.toml")),
    ("telnyx", include_str!("profiles/telnyx.toml")),
    ("telnyx-sms", include_str!("profiles/telnyx-sms.toml")),
    ("twilio", include_str!("profiles/twilio.toml")),
    ("vonage", include_str!("profiles/vonage.toml")),
];
/// How long a search may lag behind, if the profile does not say.
const SETTLE: Duration = Duration::from_mins(2);

/// What the other side can do about a repeated request.
#[derive(Debug, Default)]
pub struct Profile {
    /// Its name, if it is a built-in one.
    pub name: Option<String>,
    /// How the provider handles a repeated request.
    pub by: By,
    /// How messages become its requests, by channel; empty if it is no provider of channels.
    pub mappings: BTreeMap<Channel, Mapping>,
}

/// How a repeated request is recognised.
#[derive(Debug, Default)]
pub enum By {
    /// By a key that is sent along.
    Key(KeyProfile),
    /// By a look-up under a reference that is sent along.
    LookUp(Slot, Find),
    /// Not at all: nothing is repeated.
    #[default]
    Nothing,
}

/// A key by which the other side recognises a repetition.
#[derive(Debug)]
pub struct KeyProfile {
    /// Where the key is put, and in which form.
    pub put: Slot,
    /// How long the other side remembers a key.
    pub window: Window,
    /// Answers that say that the first request is still at work.
    pub busy: Vec<AnswerMark>,
    /// Answers that say that the key was used with another request.
    pub other: Vec<AnswerMark>,
    /// Answers that refuse a repetition, and so say that the first request was carried out.
    pub repeated: Vec<AnswerMark>,
    /// Header by which an answer says that it is that of an earlier request, errors included.
    pub replayed: Option<HeaderName>,
    /// Look-up for keys that are older than the window.
    pub find: Option<Find>,
}

/// Where the key or the reference is put.
#[derive(Debug)]
pub struct Slot {
    /// The part of the request.
    pub part: SlotPart,
    /// Whether it is sent as a UUID.
    pub uuid: bool,
}

/// A part of a request that takes the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotPart {
    /// The header with this name.
    Header(HeaderName),
    /// The parameter of the query with this name.
    Query(String),
    /// The field of the form with this name.
    Form(String),
    /// The value at this pointer of the JSON body.
    Json(String),
}

/// An answer that means something particular: a status, and a word that its body must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerMark {
    status: u16,
    word: Option<String>,
}

/// A search for what an earlier request has done.
#[derive(Debug)]
pub struct Find {
    get: HoledText,
    found: HoledText,
    absent: Vec<AnswerMark>,
    /// How long after the last try a search that finds nothing is believed.
    pub settle: Duration,
}

/// A text, perhaps with holes.
#[derive(Debug)]
enum HoledText {
    Plain(String),
    Hole(Box<Compiled>),
}

impl HoledText {
    fn read(text: &str) -> Result<Self, String> {
        if !has_holes(text) {
            return Ok(Self::Plain(text.to_owned()));
        }
        Compiled::new(text).map(|compiled| Self::Hole(Box::new(compiled))).map_err(|refused| refused.message)
    }

    fn evaluate(&self, scope: &Data) -> Result<Json, String> {
        match self {
            Self::Plain(text) => Ok(Json::String(text.clone())),
            Self::Hole(compiled) => compiled.evaluate(scope).map_err(|failed| failed.message),
        }
    }
}

impl AnswerMark {
    /// Reads `409`, or `"409/1601"` with a word that the body must have.
    fn read(value: &Value) -> Option<Self> {
        let (status, word) = match value {
            Value::Integer(status) => (u16::try_from(*status).ok()?, None),
            Value::String(text) => {
                let (status, word) = text.split_once('/')?;
                (status.parse().ok()?, Some(word.to_ascii_lowercase()).filter(|word| !word.is_empty()))
            }
            _ => return None,
        };
        (400..=599).contains(&status).then_some(Self { status, word })
    }

    /// Whether an answer is the one that is meant.
    pub fn is(&self, status: u16, body: &str) -> bool {
        self.status == status && self.word.as_ref().is_none_or(|word| has_word(body, word))
    }
}

/// Whether a text has a word, whatever its case, that does not go on before or after it.
fn has_word(text: &str, word: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let goes_on = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    text.match_indices(word).any(|(at, _)| {
        !goes_on(text[..at].chars().next_back()) && !goes_on(text[at + word.len()..].chars().next())
    })
}

impl Find {
    /// Path of the search, with its query.
    pub fn path(&self, key: &str) -> Result<String, String> {
        let scope = Data::object([("effect", Data::of_json(&serde_json::json!({ "key": key })))]);
        match self.get.evaluate(&scope)? {
            Json::String(path) if path.starts_with('/') => Ok(path),
            other => Err(format!("{other:.80} is no path")),
        }
    }

    /// What an answer of the search says: the element that was found, or that there is none. An error if it says neither.
    pub fn found(&self, key: &str, status: u16, body: &Json) -> Result<Option<Json>, String> {
        if self.absent.iter().any(|mark| mark.is(status, &body.to_string())) {
            return Ok(None);
        }
        if !(200..300).contains(&status) {
            return Err(format!("the look-up was answered with status {status}"));
        }
        let scope = Data::object([
            ("effect", Data::of_json(&serde_json::json!({ "key": key }))),
            ("status", Data::of_json(&Json::from(status))),
            ("body", Data::of_json(body)),
        ]);
        Ok(match self.found.evaluate(&scope)? {
            Json::Array(items) => items.into_iter().next(),
            Json::Null | Json::Bool(false) => None,
            Json::String(text) if text.is_empty() => None,
            found => Some(found),
        })
    }
}

impl Profile {
    /// Reads the profile of a connection: the name of a built-in one, or a table.
    pub(crate) fn read(at: &str, value: &Value) -> Result<Self, Vec<ConnectionProblem>> {
        let refuse = |message: String| Err(vec![ConnectionProblem { member: at.to_owned(), message }]);
        match value {
            Value::Table(table) => Self::of_table(at, table),
            Value::String(name) => match BUILT_IN.iter().find(|(known, _)| known == name) {
                Some((name, text)) => {
                    let table: Table = toml::from_str(text).expect("a test reads all built-in profiles");
                    Ok(Self { name: Some((*name).to_owned()), ..Self::of_table(at, &table)? })
                }
                None => refuse(format!("there is no profile `{name}`; {}", known())),
            },
            _ => refuse(format!("a profile is a table, or a name; {}", known())),
        }
    }

    fn of_table(at: &str, table: &Table) -> Result<Self, Vec<ConnectionProblem>> {
        let mut members = Members::new(at, table);
        // Of built-in profiles: where the knowledge is from.
        let (_, _, _) = (members.text("about"), members.text("source"), members.text("read"));
        // Of a provider that this server cannot call: why, and what to do instead.
        if let Some(why) = members.text("refused") {
            return Err(vec![ConnectionProblem { member: at.to_owned(), message: why.to_owned() }]);
        }
        let mappings = mappings(&mut members);
        let by = match members.needed("by", "`key`, `look-up` or `nothing`") {
            Some("key") => key(&mut members).map(By::Key),
            Some("look-up") => {
                let slot = put(&mut members);
                let find = find(&mut members, true);
                slot.zip(find).map(|(slot, find)| By::LookUp(slot, find))
            }
            Some("nothing") => Some(By::Nothing),
            Some(other) => {
                members.refuse("by", format!("`{other}` is not one of `key`, `look-up` and `nothing`"));
                None
            }
            None => None,
        };
        let problems = members.finish();
        match by {
            Some(by) if problems.is_empty() => Ok(Self { name: None, by, mappings }),
            _ => Err(problems),
        }
    }

    /// Class of a step that writes, for lists.
    pub fn class(&self) -> &'static str {
        match &self.by {
            By::Key(key) => key.window.class(),
            By::LookUp(..) => "reconcile",
            By::Nothing => "at-most-once",
        }
    }

    /// Short description of what it can do, for lists.
    pub fn summary(&self) -> String {
        let by = match &self.by {
            By::Nothing => "nothing".to_owned(),
            By::LookUp(..) => "look-up".to_owned(),
            By::Key(key) if key.window.length().is_none() => "key".to_owned(),
            By::Key(key) => format!("key, {}", key.window),
        };
        match &self.name {
            Some(name) => format!("{name} ({by})"),
            None => by,
        }
    }
}

/// The mappings of all channels that a profile has.
fn mappings(members: &mut Members<'_>) -> BTreeMap<Channel, Mapping> {
    let mut mappings = BTreeMap::new();
    for channel in Channel::ALL {
        let Some(table) = members.table(channel.name()) else { continue };
        match Mapping::read(channel, &members.path(channel.name()), table) {
            Ok(mapping) => drop(mappings.insert(channel, mapping)),
            Err(problems) => members.add(problems),
        }
    }
    mappings
}

fn known() -> String {
    let names: Vec<_> = BUILT_IN.iter().map(|(name, _)| *name).collect();
    format!("the built-in ones are {}", names.join(", "))
}

fn key(members: &mut Members<'_>) -> Option<KeyProfile> {
    let part = slot_part(members)?;
    let uuid = match members.text("format") {
        None | Some("key") => false,
        Some("uuid") => true,
        Some(other) => {
            members.refuse("format", format!("`{other}` is not one of `key` and `uuid`"));
            false
        }
    };
    let window = Window::read(members, "how long is a key remembered?");
    let replayed = members.text("replayed").and_then(|name| match name.parse() {
        Ok(name) => Some(name),
        Err(_) => {
            members.refuse("replayed", format!("`{name}` is no name of a header"));
            None
        }
    });
    Some(KeyProfile {
        put: Slot { part, uuid },
        window: window?,
        busy: marks(members, "busy"),
        other: marks(members, "other"),
        repeated: marks(members, "repeated"),
        replayed,
        find: find(members, false),
    })
}

fn marks(members: &mut Members<'_>, name: &'static str) -> Vec<AnswerMark> {
    let read = match members.get(name) {
        None => return Vec::new(),
        Some(Value::Array(items)) => items.iter().map(AnswerMark::read).collect::<Option<Vec<_>>>(),
        Some(_) => None,
    };
    read.unwrap_or_else(|| {
        members.refuse(
            name,
            "a list of statuses is expected, such as `[409, \"409/1601\"]` with a word of the body",
        );
        Vec::new()
    })
}

/// Exactly one place for the key.
fn slot_part(members: &mut Members<'_>) -> Option<SlotPart> {
    let given: Vec<(&'static str, &str)> = ["header", "query", "form", "json"]
        .into_iter()
        .filter_map(|name| members.get(name).map(|_| name))
        .collect::<Vec<_>>()
        .into_iter()
        .filter_map(|name| members.text(name).map(|text| (name, text)))
        .collect();
    let [(name, text)] = given[..] else {
        members.refuse(
            "header",
            "exactly one of `header`, `query`, `form` and `json` says where the key is put",
        );
        return None;
    };
    match name {
        "header" => match text.parse() {
            Ok(header) => return Some(SlotPart::Header(header)),
            Err(_) => members.refuse(name, format!("`{text}` is no name of a header")),
        },
        "query" => return Some(SlotPart::Query(text.to_owned())),
        "form" => return Some(SlotPart::Form(text.to_owned())),
        _ if text.starts_with('/') => return Some(SlotPart::Json(text.to_owned())),
        _ => members.refuse(name, "a pointer into the body is expected, such as `/idempotency_key`"),
    }
    None
}

fn put(members: &mut Members<'_>) -> Option<Slot> {
    let Some(table) = members.table("put") else {
        if members.get("put").is_none() {
            members.refuse(
                "put",
                "it is missing; say where the reference is put, such as `{ json = \"/Metadata/semel\" }`",
            );
        }
        return None;
    };
    let mut inner = Members::new(members.path("put"), table);
    let part = slot_part(&mut inner);
    members.add(inner.finish());
    Some(Slot { part: part?, uuid: false })
}

fn find(members: &mut Members<'_>, is_needed: bool) -> Option<Find> {
    let (table, found, settle) = (members.table("find"), members.text("found"), members.duration("settle"));
    let absent = marks(members, "absent");
    let (Some(table), Some(found)) = (table, found) else {
        if is_needed || table.is_some() || found.is_some() {
            members.refuse("find", "a look-up has `find = { get = \"/path?with={{ effect.key }}\" }` and `found = \"{{ body.items }}\"`");
        }
        return None;
    };
    let mut inner = Members::new(members.path("find"), table);
    let get = inner.needed("get", "the path of the search").map(HoledText::read);
    members.add(inner.finish());
    let found = match HoledText::read(found) {
        Ok(found @ HoledText::Hole(_)) => Some(found),
        Ok(HoledText::Plain(_)) => {
            members.refuse("found", "it has no `{{ }}`, so that every answer would count as found");
            None
        }
        Err(why) => {
            members.refuse("found", why);
            None
        }
    };
    match (get, found) {
        (Some(Ok(get)), Some(found)) => Some(Find { get, found, absent, settle: settle.unwrap_or(SETTLE) }),
        (Some(Err(why)), _) => {
            members.refuse("find.get", why);
            None
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
