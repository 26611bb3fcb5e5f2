//! The execution of an HTTP call, or of a message through a channel: what is sent, and how the look-up of a profile is asked. When
//! another try is safe follows from what the other side can do: see [`tries`](crate::tasks::tries).

use std::sync::Arc;
use std::time::Duration;

use semel::rules::json::Payload;
use semel::sdk::FailExt as _;
use semel::{Attempt, Fail, Result, fatal};
use serde_json::Value as Json;

use super::KIND as HTTP;
use super::request;
use super::result::{self, Tried};
use crate::connections::{
    ANSWER, By, CallFailed, Channel, Connection, Connections, Find, HttpAnswer, HttpTarget, KeyProfile,
    Outgoing, Route, Slot,
};
#[cfg(feature = "mail")]
use crate::connections::{Letter, SmtpTarget};
use crate::tasks::channel::message;
#[cfg(feature = "mail")]
use crate::tasks::channel::smtp;
use crate::tasks::connection::{missing, target, within};
use crate::tasks::tries::{self, Sender, Tries, Way, pause_before_next};
use crate::tasks::{TaskCall, TaskEnd, connection, read, record};

/// How often a look-up is asked before its silence counts as no answer.
const LOOKS: u32 = 3;
/// Pause before a look-up is asked again.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// Executes an `http` step, or sends a message through a channel.
pub(in crate::tasks) async fn perform(call: TaskCall<'_>, channel: Option<Channel>) -> Result<TaskEnd> {
    let connections = call.ctx.state::<Connections>();
    let connection = match call.args.get("on").and_then(|on| on.text()) {
        Some(name) => connection::connection(&call, &connections, name).await,
        None => Ok(connections.public().clone()),
    };
    let way = way(&call, channel, &connection);
    let is_dated = matches!(line(&call, channel, &connection), Ok((_, line)) if line.is_dated());
    let first = match way {
        Way::InWindow(_) => call.ctx.first_try(&*call.step.name).await?,
        _ if is_dated => call.ctx.first_try(&*call.step.name).await?,
        _ => None,
    };
    let tries = Tries::new(way, call.step.retry, first);
    let effect = Effect { call, channel, connections, connection, tries };
    read(tries::run(&effect, call.begin_untimed()).await?)
}

/// What a try goes through.
#[derive(Clone, Copy)]
enum Line<'c> {
    Http(&'c HttpTarget),
    #[cfg(feature = "mail")]
    Smtp(&'c SmtpTarget),
}

impl<'c> Line<'c> {
    /// The HTTP API, if it is one.
    fn http(self) -> Option<&'c HttpTarget> {
        match self {
            Self::Http(http) => Some(http),
            #[cfg(feature = "mail")]
            Self::Smtp(_) => None,
        }
    }

    /// Whether what is sent has the time of the first try in it.
    fn is_dated(self) -> bool {
        self.http().is_none()
    }
}

/// What a try sends: nothing was sent yet, and nothing can be wrong with it any more.
enum PreparedTry<'c> {
    Http(&'c HttpTarget, Outgoing),
    #[cfg(feature = "mail")]
    Smtp(&'c SmtpTarget, Letter),
}

/// What the connection of the step is good for, or why it cannot be used: an operator can mend that.
fn line<'c>(
    call: &TaskCall<'_>,
    channel: Option<Channel>,
    connection: &'c std::result::Result<Arc<Connection>, String>,
) -> std::result::Result<(&'c Connection, Line<'c>), String> {
    let Some(channel) = channel else {
        return target(connection, HTTP.on).map(|(connection, http)| (connection, Line::Http(http)));
    };
    #[cfg(feature = "mail")]
    if let (Channel::Mail, Ok(connection)) = (channel, connection)
        && let Some(smtp) = connection.target::<SmtpTarget>()
    {
        return Ok((connection, Line::Smtp(smtp)));
    }
    let kinds = crate::tasks::find(channel.name()).map_or(HTTP.on, |kind| kind.on);
    let (connection, http) = target(connection, kinds)?;
    match connection.unfit(channel.name(), &call.args.names()) {
        Some(why) => Err(why),
        None => Ok((connection, Line::Http(http))),
    }
}

fn way(
    call: &TaskCall<'_>,
    channel: Option<Channel>,
    connection: &std::result::Result<Arc<Connection>, String>,
) -> Way {
    let is_read = channel.is_none() && call.args.get("get").or_else(|| call.args.get("head")).is_some();
    match line(call, channel, connection) {
        _ if is_read => Way::Read,
        _ if call.step.at_most_once => Way::Once,
        Ok((_, Line::Http(http))) => match &http.profile.by {
            By::Key(key) => key.window.last_send().map_or(Way::Key, Way::InWindow),
            By::LookUp(..) => Way::LookUp,
            By::Nothing => Way::Once,
        },
        #[cfg(feature = "mail")]
        Ok((_, Line::Smtp(smtp))) => match smtp.drops_repetitions {
            true => Way::Key,
            false => Way::Once,
        },
        // A connection of another kind is an error like one that is missing.
        Err(_) => Way::Missing,
    }
}

/// One call, over all its tries in this execution.
struct Effect<'a> {
    call: TaskCall<'a>,
    /// The channel of a message; none for an `http` step.
    channel: Option<Channel>,
    connections: Arc<Connections>,
    connection: std::result::Result<Arc<Connection>, String>,
    tries: Tries,
}

impl Sender for Effect<'_> {
    fn tries(&self) -> &Tries {
        &self.tries
    }

    async fn attempt(&self, attempt: Attempt) -> Result<Payload> {
        self.tries.begin(&attempt);
        let (connection, line) = match line(&self.call, self.channel, &self.connection) {
            Ok(found) => found,
            Err(why) => return self.tries.not_now(&attempt, missing(why), None),
        };
        let ready = self.ready(&attempt, line).map_err(|fail| self.tries.sent_nothing(fail))?;
        let _turn = connection.turns.acquire().await.map_err(Fail::retryable)?;
        if let Some(found) = self.tries.before_resend(&attempt, self).await? {
            return Ok(found);
        }
        let tried = self.send_ready(&attempt, connection, ready).await;
        if matches!(self.tries.way(), Way::Read) {
            return self.read_end(&attempt, connection, tried);
        }
        self.tries.end(&attempt, tried, |answer| self.recorded(&attempt, connection, line, &answer))
    }

    async fn search(&self, attempt: &Attempt) -> Result<Option<Payload>> {
        let (connection, line) = line(&self.call, self.channel, &self.connection).map_err(Fail::uncertain)?;
        let Some((http, way)) = line.http().and_then(|http| Some((http, find(http)?))) else {
            return Err(Fail::uncertain(match self.tries.is_final() {
                true => "no other answer can be expected, and the profile has no look-up",
                false => "the key may be forgotten by now, and the profile has no look-up",
            }));
        };
        let look = || self.look(attempt, connection, http, way);
        let Some((answer, found)) = self.tries.settled(attempt, way.0.settle, look).await? else {
            return Ok(None);
        };
        let body = Payload::of(&found).map_err(Fail::uncertain)?;
        let answer = HttpAnswer { body: String::new(), json: Some(body), ..answer };
        self.recorded(attempt, connection, line, &answer).map(Some)
    }
}

impl Effect<'_> {
    /// What is recorded of an answer.
    fn recorded(
        &self,
        attempt: &Attempt,
        connection: &Connection,
        line: Line<'_>,
        answer: &HttpAnswer,
    ) -> Result<Payload> {
        let kept = self.value(attempt, line, answer);
        record(kept.and_then(|value| self.call.keep(attempt, value, connection.max_result)))
    }

    /// What is sent: the request of the step, or that of the provider, or a mail.
    fn ready<'c>(&self, attempt: &Attempt, line: Line<'c>) -> Result<PreparedTry<'c>> {
        match line {
            Line::Http(http) => Ok(PreparedTry::Http(http, self.request(attempt, http)?)),
            #[cfg(feature = "mail")]
            Line::Smtp(smtp) => {
                let from = smtp.from.to_string();
                let mail = crate::tasks::channel::mail(&self.call.args_of(attempt)?, Some(&from))?;
                let at = self.tries.first().unwrap_or_else(|| self.call.ctx.started());
                Ok(PreparedTry::Smtp(smtp, smtp::letter(&mail, &smtp::message_id(smtp, attempt), at)?))
            }
        }
    }

    async fn send_ready(&self, attempt: &Attempt, connection: &Connection, ready: PreparedTry<'_>) -> Tried {
        match ready {
            PreparedTry::Http(http, request) => {
                let what = format!("{}: {} {}", connection.name, request.method, request.url.path());
                let what = http.route.redactor.text(&what);
                let called = self.send(attempt, connection, http, request).await;
                self.tries.ended(attempt.now());
                result::judge(&what, &http.profile, called, attempt.now())
            }
            #[cfg(feature = "mail")]
            PreparedTry::Smtp(smtp, letter) => {
                let limit = self.call.step.timeout.unwrap_or(connection.timeout);
                smtp::send(attempt, &connection.name, smtp, &letter, limit).await
            }
        }
    }

    /// The id of a message, where there is one.
    fn id(&self, attempt: &Attempt, line: Line<'_>, answer: &HttpAnswer) -> Option<Json> {
        let channel = self.channel?;
        Some(match line {
            Line::Http(http) => {
                let plain =
                    result::value(answer, None).and_then(|value| value.read().map_err(Fail::retryable));
                let mapping = http.profile.mappings.get(&channel);
                mapping
                    .zip(plain.ok())
                    .map_or(Json::Null, |(mapping, plain)| mapping.id(&plain, attempt.key()))
            }
            #[cfg(feature = "mail")]
            Line::Smtp(smtp) => Json::String(smtp::message_id(smtp, attempt)),
        })
    }

    /// The value of a step that took place.
    fn value(&self, attempt: &Attempt, line: Line<'_>, answer: &HttpAnswer) -> Result<Payload> {
        result::value(answer, self.id(attempt, line, answer))
    }

    fn request(&self, attempt: &Attempt, http: &HttpTarget) -> Result<Outgoing> {
        let args = match self.channel {
            None => self.call.args_of(attempt)?,
            Some(channel) => self.mapped(attempt, channel, http)?,
        };
        let slot = match (self.tries.way(), &http.profile.by) {
            (Way::Read, _) | (_, By::Nothing) => None,
            (_, By::Key(KeyProfile { put, .. }) | By::LookUp(put, _)) => Some(put),
        };
        let key = slot.map(|slot| sent_key(slot, attempt));
        request::request(http.base.as_ref(), &args, slot.zip(key.as_deref()))
    }

    /// The request that the profile makes of a message.
    fn mapped(&self, attempt: &Attempt, channel: Channel, http: &HttpTarget) -> Result<Json> {
        let message = message(channel, &self.call.args_of(attempt)?, http.from.as_deref())?;
        let mapping = http.profile.mappings.get(&channel);
        let mapping = mapping.ok_or_else(|| missing("the profile does not say how the message is sent"))?;
        mapping.request(&message, attempt.key()).map_err(|failed| {
            let said =
                format!("the profile's `[{}]{}`: {}", channel.name(), failed.pointer, failed.failed.message);
            fatal(format!("{said}: it may need an argument that the step does not give"))
                .with_code("EXPRESSION")
        })
    }

    async fn send(
        &self,
        attempt: &Attempt,
        connection: &Connection,
        http: &HttpTarget,
        request: Outgoing,
    ) -> std::result::Result<HttpAnswer, CallFailed> {
        let replayed = match &http.profile.by {
            By::Key(key) => key.replayed.as_ref(),
            _ => None,
        };
        let limit = self.call.step.timeout.unwrap_or(connection.timeout);
        send(attempt, &self.connections, &http.route, request, limit, replayed).await
    }

    /// A read has no effect: whatever fails can be tried again, unless the answer says that this is of no use.
    fn read_end(&self, attempt: &Attempt, connection: &Connection, tried: Tried) -> Result<Payload> {
        match tried {
            Tried::Done(answer) => {
                self.call.keep(attempt, result::value(&answer, None)?, connection.max_result)
            }
            Tried::Refused { fail, .. } | Tried::Unknown { fail, .. } => Err(fail),
            Tried::NotNow { fail, pause: Some(pause), .. } => {
                let retry = self.call.step.retry.unwrap_or_default();
                Err(fail).retry_after(pause_before_next(retry, attempt, Some(pause)))
            }
            Tried::NotNow { fail, pause: None, .. } => Err(fail),
        }
    }

    /// One search, asked again if there is no answer.
    async fn look(
        &self,
        attempt: &Attempt,
        connection: &Connection,
        http: &HttpTarget,
        (find, slot): (&Find, &Slot),
    ) -> Result<Option<(HttpAnswer, Json)>> {
        let key = sent_key(slot, attempt);
        let path = find.path(&key).map_err(Fail::uncertain)?;
        let base = http.base.as_ref().ok_or_else(|| Fail::uncertain("the connection has no address"))?;
        let mut said = String::new();
        for look in 1..=LOOKS {
            let request = request::search(base, &path)?;
            match self.send(attempt, connection, http, request).await {
                Ok(answer) if answer.is_whole => {
                    let body = match &answer.json {
                        Some(json) => json.read().map_err(Fail::uncertain)?,
                        None => Json::String(answer.body.clone()),
                    };
                    match find.found(&key, answer.status, &body) {
                        Ok(found) => return Ok(found.map(|found| (answer, found))),
                        Err(why) => said = why,
                    }
                }
                Ok(_) => "the answer of the look-up is too large".clone_into(&mut said),
                Err(failed) => said = failed.message(),
            }
            if look < LOOKS {
                attempt.clock().until(attempt.clock().now().after(LOOK_PAUSE * look)).await;
            }
        }
        Err(Fail::uncertain(format!("the look-up at {} gave no answer: {said}", connection.name)))
    }
}

/// The look-up of the profile, and where the reference was put.
fn find(http: &HttpTarget) -> Option<(&Find, &Slot)> {
    match &http.profile.by {
        By::LookUp(slot, find) => Some((find, slot)),
        By::Key(KeyProfile { put, find, .. }) => find.as_ref().map(|find| (find, put)),
        By::Nothing => None,
    }
}

/// Sends a request and reads its answer within a time. What has not answered by then may have taken place.
pub(in crate::tasks) async fn send(
    attempt: &Attempt,
    connections: &Connections,
    route: &Route,
    request: Outgoing,
    limit: Duration,
    replayed: Option<&reqwest::header::HeaderName>,
) -> std::result::Result<HttpAnswer, CallFailed> {
    let calling = route.call(connections.public_route(), request, ANSWER, replayed);
    within(attempt, limit, calling).await.unwrap_or(Err(CallFailed::TimedOut(limit)))
}

/// The key in the form in which it is sent.
fn sent_key(slot: &Slot, attempt: &Attempt) -> String {
    if slot.uuid { attempt.key_uuid().to_string() } else { attempt.key().to_owned() }
}
