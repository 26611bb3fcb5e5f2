//! `webhook`: tells a receiver of something, signed as the Standard Webhooks say.
//!
//! The receiver drops repetitions by `webhook-id`, which is the effect key: so the step is keyed. Its body has the time of the event,
//! which is recorded before the first attempt: every attempt sends the same bytes. What a lost answer means is decided where it is for
//! every write: see [`tries`](super::tries). No receiver promises that it looks at the id before it refuses a notice, so a refusal
//! never speaks for an earlier try.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use reqwest::Method;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use semel::clock::Time;
use semel::rules::json::Payload;
use semel::{Attempt, Fail, Result, fatal};
use serde_json::{Value as Json, json};
use sha2::Sha256;

use super::connection::{connection, missing, target};
use super::http::effect::send;
use super::http::request::below;
use super::http::result::{judge, value};
use super::tries::{self, Sender, Tries, Way};
use super::{Checks, Executing, Kind, TaskCall, keyed, read, record};
use crate::connections::{Connection, Connections, Outgoing, Profile, SigningKey, WebhookTarget};
use crate::definitions::shape::{Field, Shape};
use crate::definitions::template::Template;

pub(super) static KIND: Kind = Kind {
    name: "webhook",
    about: "Sends a signed webhook (Standard Webhooks). Its id is the effect key, by which the receiver drops repetitions.",
    args: Shape::Object(&[
        Field::required("on", Shape::Name, "Connection that has the receiver's address and the secret."),
        Field::new("path", Shape::Text, "Path below the connection's address."),
        Field::required("type", Shape::Text, "Type of the event, such as `order.paid`."),
        Field::required("data", Shape::Any, "Data of the event."),
    ]),
    on: &["webhook"],
    tries: true,
    class: keyed,
    check,
    execute,
};

fn check(args: &Template, checks: &mut Checks<'_>) {
    let path = args.get("path").and_then(|path| Some((path, path.text()?)));
    if let Some((path, text)) = path.filter(|(_, text)| !text.starts_with('/')) {
        let hint = "the address is in the connection";
        checks.refuse(&path.at, format!("`{text}` is not a path: it does not begin with `/`"), hint);
    }
}

fn execute(call: TaskCall<'_>) -> Executing<'_> {
    Box::pin(async move {
        let connections = call.ctx.state::<Connections>();
        let on = call.args.get("on").and_then(Template::text).unwrap_or_default();
        let connection = connection(&call, &connections, on).await;
        let at = call.ctx.now(&*call.step.name).await?;
        let way = if call.step.at_most_once { Way::Once } else { Way::Key };
        let tries = Tries::new(way, call.step.retry, None);
        let notice = Notice { call, connections: &connections, connection: &connection, at, tries };
        read(tries::run(&notice, call.begin_untimed()).await?)
    })
}

/// A notice to a receiver.
struct Notice<'a> {
    call: TaskCall<'a>,
    connections: &'a Connections,
    connection: &'a std::result::Result<std::sync::Arc<Connection>, String>,
    /// Time of the event.
    at: Time,
    tries: Tries,
}

impl Sender for Notice<'_> {
    fn tries(&self) -> &Tries {
        &self.tries
    }

    async fn attempt(&self, attempt: Attempt) -> Result<Payload> {
        self.tries.begin(&attempt);
        let (connection, webhook): (_, &WebhookTarget) = match target(self.connection, KIND.on) {
            Ok(found) => found,
            Err(why) => return self.tries.not_now(&attempt, missing(why), None),
        };
        let request = self.request(&attempt, webhook).map_err(|fail| self.tries.sent_nothing(fail))?;
        let _turn = connection.turns.acquire().await.map_err(Fail::retryable)?;
        let what =
            webhook.route.redactor.text(&format!("{}: webhook {}", connection.name, request.url.path()));
        let limit = self.call.step.timeout.unwrap_or(connection.timeout);
        let called = send(&attempt, self.connections, &webhook.route, request, limit, None).await;
        self.tries.ended(attempt.now());
        let tried = judge(&what, &Profile::default(), called, attempt.now());
        self.tries.end(&attempt, tried, |answer| {
            let kept =
                value(&answer, None).and_then(|value| self.call.keep(&attempt, value, connection.max_result));
            record(kept)
        })
    }

    async fn search(&self, _: &Attempt) -> Result<Option<Payload>> {
        Err(Fail::uncertain("a receiver of webhooks cannot be asked what it has processed"))
    }
}

impl Notice<'_> {
    fn request(&self, attempt: &Attempt, webhook: &WebhookTarget) -> Result<Outgoing> {
        let args = self.call.args_of(attempt)?;
        let url = match args.get("path").and_then(Json::as_str) {
            Some(path) => below(&webhook.url, path)?,
            None => webhook.url.clone(),
        };
        let time = jiff::Timestamp::from_millisecond(self.at.0).map_err(fatal)?;
        let body =
            json!({"type": args["type"], "timestamp": time.to_string(), "data": args["data"]}).to_string();
        let sent = attempt.now().0.div_euclid(1000);
        let headers = signed(&webhook.keys, attempt.key(), sent, &body)?;
        Ok(Outgoing { method: Method::POST, url, headers, body: Some(body.into_bytes()) })
    }
}

/// The headers of Standard Webhooks. The signature covers id, time of sending and body.
fn signed(keys: &[SigningKey], id: &str, sent: i64, body: &str) -> Result<HeaderMap> {
    let signatures: Vec<_> = keys.iter().map(|key| signature(key, id, sent, body)).collect();
    let headers = [
        ("content-type", "application/json".to_owned()),
        ("webhook-id", id.to_owned()),
        ("webhook-timestamp", sent.to_string()),
        ("webhook-signature", signatures.join(" ")),
    ];
    let header = |(name, value): (&'static str, String)| {
        Ok((HeaderName::from_static(name), HeaderValue::from_str(&value).map_err(fatal)?))
    };
    headers.into_iter().map(header).collect()
}

fn signature(key: &SigningKey, id: &str, sent: i64, body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(key.bytes()).expect("a key of HMAC has any length");
    mac.update(format!("{id}.{sent}.{body}").as_bytes());
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;

    /// The example of the specification and of its reference libraries.
    #[test]
    fn the_test_vector_of_standard_webhooks() {
        let key = SigningKey::read(&Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")).unwrap();
        let headers = signed(
            std::slice::from_ref(&key),
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            r#"{"test": 2432232314}"#,
        )
        .unwrap();
        assert_eq!(headers["webhook-signature"], "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert_eq!(headers["webhook-timestamp"], "1614265330");
        assert_eq!(headers["webhook-id"], "msg_p5jXN8AQM9LWM0D4loKWxJek");
        let other = SigningKey::read(&Secret::new("a raw secret of some length")).unwrap();
        let both = signed(&[key, other], "m", 1, "{}").unwrap();
        let both = both["webhook-signature"].to_str().unwrap();
        assert_eq!(both.split(' ').filter(|signature| signature.starts_with("v1,")).count(), 2, "{both}");
    }

    #[test]
    fn a_secret_that_is_none_is_refused() {
        for text in ["short", "whsec_!!!", "whsec_c2hvcnQ="] {
            assert!(SigningKey::read(&Secret::new(text)).is_err(), "{text}");
        }
    }
}
