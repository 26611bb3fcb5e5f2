//! `publish`: a message for others.
//!
//! In a database it is a row of `semel_queue`, in one commit with its outcome, alone or with the other steps of a `transaction`. In a
//! broker it is a message of a stream: `nats`, `redis`.

#[cfg(any(feature = "nats", feature = "redis"))]
mod broker;
#[cfg(feature = "nats")]
mod nats;
#[cfg(feature = "redis")]
mod redis;

use semel::{Fail, Result, fatal};
use serde_json::Value as Json;

use super::connection::{self, target};
use super::database::{self, AnyPool, StatementLimits};
use super::{Checks, Class, Executing, Kind, TaskCall};
use crate::connections::{Connections, DatabaseTarget, on_database};
use crate::databases::Guarded;
use crate::definitions::shape::{Field, Shape};
use crate::definitions::template::{Filled, Template};

/// The members of which one says where the message goes. `stream` is that of Redis.
const PLACES: [&str; 2] = ["subject", "stream"];
/// Maximum length of a subject in bytes.
const SUBJECT: usize = 255;

pub(super) static KIND: Kind = Kind {
    name: "publish",
    about: "Puts a message into a broker or a queue table. Its value has the message's `id`, which is the effect key.",
    args: Shape::Object(&[
        Field::required("on", Shape::Name, "Connection that is the broker, or the database with the table."),
        Field::new(
            "subject",
            Shape::Text,
            "Subject, such as `orders.paid`: of a database, or of a stream of NATS.",
        ),
        Field::new("stream", Shape::Text, "Key of the stream of Redis; it is made if it does not exist."),
        Field::required("data", Shape::Any, "Content of the message: JSON, and in a broker a text as it is."),
        Field::new("headers", Shape::Map(&Shape::Text), "Headers of NATS, or further fields in Redis."),
    ]),
    on: &["postgres", "sqlite", "mysql", "nats", "redis"],
    tries: true,
    class: |_| Class::ByConnection,
    check,
    execute,
};

fn check(args: &Template, checks: &mut Checks<'_>) {
    let place = checks.exactly_one(args, &PLACES);
    if let Some(("subject", subject)) = place
        && let Some(Err(why)) = subject.text().map(check_subject)
    {
        checks.refuse(&subject.at, why, "write it as `orders.paid`");
    }
    let Some(Filled::Object(headers)) = args.get("headers").map(|headers| &headers.value) else { return };
    for (name, value) in headers {
        let why = match place {
            Some(("stream", _)) => wrong_field(name),
            _ => wrong_header(name),
        };
        if let Some(why) = why {
            checks.refuse(&value.at, format!("the header `{name}` cannot be set here"), why);
        }
    }
}

/// Why a header of NATS cannot have this name.
fn wrong_header(name: &str) -> Option<&'static str> {
    let is_token = !name.is_empty() && name.bytes().all(|b| b.is_ascii_graphic() && b != b':');
    match name {
        _ if !is_token => Some("a name has visible characters of ASCII, and no colon"),
        _ if name.to_ascii_lowercase().starts_with("nats-") => {
            Some("names with `Nats-` are the server's own")
        }
        _ => None,
    }
}

/// Why a field of an entry in Redis cannot have this name.
fn wrong_field(name: &str) -> Option<&'static str> {
    match name {
        "" => Some("it needs a name"),
        "key" | "data" => Some("`key` is the effect key, and `data` the message"),
        _ => None,
    }
}

fn check_subject(text: &str) -> std::result::Result<(), String> {
    match text {
        _ if text.is_empty() || text.len() > SUBJECT => {
            Err(format!("a subject has 1 to {SUBJECT} bytes, and this one has {}", text.len()))
        }
        _ if text.chars().any(|c| c.is_whitespace() || c.is_control()) => {
            Err("a subject has no blanks and no control characters".to_owned())
        }
        _ => Ok(()),
    }
}

/// The subject of a row in a queue table, which has no headers.
pub(super) fn subject_of_row(args: &Json) -> Result<&str> {
    if args.get("headers").is_some() {
        return Err(wrong("a queue table has no headers; put them into `data`"));
    }
    let subject = args["subject"].as_str().unwrap_or_default();
    check_subject(subject).map_err(wrong)?;
    Ok(subject)
}

fn execute(call: TaskCall<'_>) -> Executing<'_> {
    Box::pin(async move {
        let connections = call.ctx.state::<Connections>();
        let on = call.args.get("on").and_then(Template::text).unwrap_or_default();
        let connection = connection::connection(&call, &connections, on).await;
        #[cfg(feature = "redis")]
        if call.args.get("stream").is_some() {
            return redis::execute(call, connection).await;
        }
        #[cfg(feature = "nats")]
        if nats::is_meant(&call, &connection)? {
            return nats::execute(call, connection).await;
        }
        let (connection, target): (_, &DatabaseTarget) = match target(&connection, KIND.on) {
            Ok(found) => found,
            Err(why) => {
                let source = Guarded::<AnyPool>::missing(why);
                return database::write(call, &KIND, &source, &StatementLimits::missing()).await;
            }
        };
        let limits = StatementLimits::new(call.step, connection, target);
        on_database!(target, connection, source => database::write(call, &KIND, &source, &limits).await)
    })
}

/// A mistake in what was evaluated: no other attempt mends it, and nothing was sent.
fn wrong(message: impl Into<String>) -> Fail {
    fatal(message.into()).with_code("EXPRESSION")
}
