//! A message in a stream of NATS JetStream.
//!
//! JetStream drops a message whose `Nats-Msg-Id` it has stored within the stream's duplicate window; the effect key is that id. So
//! within the window the message is sent again. Beyond it the stream is searched, from where it ended before the first try: that place
//! is noted, as the step `<name>/from`, in the same commit as the intent. What is found is adopted; what certainly is not there is sent.

use std::sync::Arc;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::context::{GetStreamByNameErrorKind, PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::publish::PublishAck;
use async_nats::jetstream::stream::{InfoWithSubjects, RawMessageErrorKind};
use async_nats::jetstream::{self, Context};
use semel::clock::Time;
use semel::rules::json::Payload;
use semel::sabotage::{self, Bug};
use semel::{Attempt, Fail, Result, fatal};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::broker::{PATIENCE, SETTLE, body, headers, patiently, text};
use super::{wrong, wrong_header};
use crate::connections::{Connection, NatsTarget, Window, told};
use crate::tasks::call::evaluated;
use crate::tasks::connection::{missing, target, within};
use crate::tasks::tries::{self, Sender, Tries, TryEnd, Way};
use crate::tasks::{TaskCall, TaskEnd, read, record};

const KINDS: &[&str] = &["nats"];
/// Name of the step that notes where the stream ends, below the step itself.
const FROM: &str = "from";
/// Maximum number of messages of the subject that a search reads; each costs a request.
const SEARCHED: usize = 10_000;

/// What is noted before the first try.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct StreamEnd {
    /// Name of the stream that takes the subject.
    stream: String,
    /// Time at which the stream was made, in milliseconds since 1970: one that is made anew counts from 1 again.
    created: i64,
    /// Its last sequence at that time.
    after: u64,
    /// Its duplicate window in milliseconds.
    window: u64,
    /// Time before the first try.
    at: Time,
}

/// Executes the task.
pub(super) async fn execute(
    call: TaskCall<'_>,
    connection: std::result::Result<Arc<Connection>, String>,
) -> Result<TaskEnd> {
    let end = match call.step.at_most_once {
        true => None,
        false => Some(note(&call, &connection).await?),
    };
    let way = match &end {
        None => Way::Once,
        Some(end) => {
            let window = Window::of(Duration::from_millis(end.window));
            window.last_send().map_or(Way::LookUp, Way::InWindow)
        }
    };
    let tries = Tries::new(way, call.step.retry, end.as_ref().map(|end| end.at));
    let message = NatsMessage { call, connection, end, tries };
    read(tries::run(&message, call.begin_untimed()).await?)
}

/// Whether the message goes to NATS. While the connection is missing, a step that has begun so goes on so.
pub(super) fn is_meant(
    call: &TaskCall<'_>,
    connection: &std::result::Result<Arc<Connection>, String>,
) -> Result<bool> {
    match target::<NatsTarget>(connection, KINDS) {
        Ok(_) => Ok(true),
        Err(_) => call.ctx.scope(&*call.step.name).has_begun(FROM),
    }
}

/// Notes where the stream ends before the first try. It has no effect, so it is a step of its own that can be repeated.
async fn note(
    call: &TaskCall<'_>,
    connection: &std::result::Result<Arc<Connection>, String>,
) -> Result<StreamEnd> {
    let step = call.ctx.scope(&*call.step.name).step(FROM);
    let step = match &call.step.retry {
        Some(retry) => step.retry(*retry),
        None => step,
    };
    step.run(async |attempt| {
        let (connection, nats): (_, &NatsTarget) = target(connection, KINDS).map_err(missing)?;
        let subject = call.args.get("subject").ok_or_else(|| wrong("`subject` is missing"))?;
        // The key is that of the message, not that of this step.
        let subject = evaluated(subject, &call.scope_before()?)?;
        let subject = checked(subject.as_str().unwrap_or_default())?;
        let at = attempt.now();
        let limit = limit(call, connection);
        let noting = async {
            let jetstream = nats.jetstream(limit).await.map_err(missing)?;
            let stream = stream_of(&jetstream, subject).await?;
            let info =
                info(&jetstream, &stream).await.map_err(|why| Fail::retryable(why).with_code("PUBLISH"))?;
            let info = info.info;
            if info.config.no_ack {
                let why = format!(
                    "the stream `{stream}` acknowledges nothing (`no_ack`), so it is never known what it has"
                );
                return Err(fatal(why).with_code("PUBLISH"));
            }
            let window = u64::try_from(info.config.duplicate_window.as_millis()).unwrap_or(u64::MAX);
            Ok(StreamEnd {
                stream,
                created: milliseconds(&info),
                after: info.state.last_sequence,
                window,
                at,
            })
        };
        let noted = within(&attempt, limit, noting).await;
        let noted =
            noted.unwrap_or_else(|| Err(missing(format!("{}: there was no answer", connection.name))));
        // What the server says may have the credentials in it.
        noted.map_err(|fail| redacted(nats, fail))
    })
    .await
}

/// The same failure without secrets.
fn redacted(nats: &NatsTarget, fail: Fail) -> Fail {
    use crate::connections::Target as _;
    let text = fail.to_string();
    match nats.redactor().is_clean(&text) {
        true => fail,
        false if fail.is_fatal() => fatal(nats.redactor().text(&text)).with_code("PUBLISH"),
        false => missing(nats.redactor().text(&text)),
    }
}

/// Maximum time of an attempt.
fn limit(call: &TaskCall<'_>, connection: &Connection) -> Duration {
    call.step.timeout.unwrap_or(connection.timeout)
}

/// A subject that a message can have in NATS: it names one place, not several.
fn checked(subject: &str) -> Result<&str> {
    let is_token = |token: &str| {
        let is_plain = !token.chars().any(|c| c.is_whitespace() || c.is_control());
        !token.is_empty() && !matches!(token, "*" | ">") && is_plain
    };
    match subject.split('.').all(is_token) {
        true => Ok(subject),
        false => {
            let shown: String = subject.chars().take(80).collect();
            let why = format!(
                "NATS takes no subject `{shown}`: write one such as `orders.paid`, without `*` and `>`"
            );
            Err(wrong(why))
        }
    }
}

async fn stream_of(jetstream: &Context, subject: &str) -> Result<String> {
    jetstream.stream_by_subject(subject).await.map_err(|error| {
        let why = match error.kind() {
            GetStreamByNameErrorKind::NotFound => {
                format!(
                    "no stream of the NATS server takes the subject `{subject}`; an operator can make one"
                )
            }
            _ => format!("the stream of the subject `{subject}` is not known: {}", told(&error)),
        };
        Fail::retryable(why).with_code("PUBLISH")
    })
}

async fn info(jetstream: &Context, stream: &str) -> std::result::Result<InfoWithSubjects, String> {
    let stream = jetstream.get_stream_no_info(stream).await.map_err(|error| told(&error))?;
    stream.info_builder().with_deleted(true).fetch().await.map_err(|error| told(&error))
}

fn milliseconds(info: &jetstream::stream::Info) -> i64 {
    i64::try_from(info.created.unix_timestamp_nanos() / 1_000_000).unwrap_or_default()
}

/// One message, over all its tries in this execution.
struct NatsMessage<'a> {
    call: TaskCall<'a>,
    connection: std::result::Result<Arc<Connection>, String>,
    /// What was noted before the first try; nothing if there is only one.
    end: Option<StreamEnd>,
    tries: Tries,
}

/// A message that is ready to be sent.
struct ReadyMessage {
    subject: String,
    message: PublishMessage,
}

impl Sender for NatsMessage<'_> {
    /// The stream can say that it never had the message. So a former owner of the run that wakes up late does not send it once more.
    const ASKS_IF_OLD: bool = true;

    fn tries(&self) -> &Tries {
        &self.tries
    }

    async fn attempt(&self, attempt: Attempt) -> Result<Payload> {
        self.tries.begin(&attempt);
        let (connection, nats): (_, &NatsTarget) = match target(&self.connection, KINDS) {
            Ok(found) => found,
            Err(why) => return self.tries.not_now(&attempt, missing(why), None),
        };
        let ready = self.ready(&attempt).map_err(|fail| self.tries.sent_nothing(fail))?;
        let _turn = connection.turns.acquire().await.map_err(Fail::retryable)?;
        if let Some(found) = self.tries.before_resend(&attempt, self).await? {
            return Ok(found);
        }
        let limit = limit(&self.call, connection);
        let sent = within(&attempt, limit, self.send(nats, ready, limit)).await;
        self.tries.ended(attempt.now());
        let tried = sent.unwrap_or_else(|| {
            let message = format!("{}: there was no acknowledgement within {limit:?}", connection.name);
            TryEnd::Unknown { fail: Fail::retryable(message).with_code("TIMEOUT"), is_final: false }
        });
        let max_result = connection.max_result;
        self.tries.end(&attempt, tried, |ack| self.recorded(&attempt, &ack.stream, ack.sequence, max_result))
    }

    async fn search(&self, attempt: &Attempt) -> Result<Option<Payload>> {
        let (connection, nats): (_, &NatsTarget) =
            target(&self.connection, KINDS).map_err(Fail::uncertain)?;
        let Some(end) = &self.end else {
            return Err(Fail::uncertain("it was not noted where the stream ended before the first try"));
        };
        if sabotage::commits(Bug::SearchIsSkipped) {
            return Ok(None);
        }
        let args = self.call.args_of(attempt)?;
        let subject = text(&args, "subject")?;
        // One that is sent again is dropped if an earlier one arrives after all. If none is sent any more, it must not arrive either.
        let settle = if self.tries.is_final() { SETTLE } else { Duration::ZERO };
        let ask = || self.asked(attempt, nats, end, subject);
        let found = self.tries.settled(attempt, settle, ask).await?;
        found.map(|sequence| self.recorded(attempt, &end.stream, sequence, connection.max_result)).transpose()
    }
}

impl NatsMessage<'_> {
    fn recorded(&self, attempt: &Attempt, stream: &str, sequence: u64, most: usize) -> Result<Payload> {
        let value = Payload::of(&json!({ "id": attempt.key(), "stream": stream, "sequence": sequence }))
            .map_err(fatal);
        record(value.and_then(|value| self.call.keep(attempt, value, most)))
    }

    fn ready(&self, attempt: &Attempt) -> Result<ReadyMessage> {
        let args: Json = self.call.args_of(attempt)?;
        let subject = checked(text(&args, "subject")?)?.to_owned();
        let mut map = HeaderMap::new();
        for (name, value) in headers(&args, wrong_header)? {
            let value: async_nats::HeaderValue =
                value.parse().map_err(|_| wrong(format!("the header `{name}` has a line end in it")))?;
            map.insert(name, value);
        }
        let message =
            PublishMessage::build().headers(map).payload(body(&args).into()).message_id(attempt.key());
        let message = match &self.end {
            // The search is in this stream, so the message must not get into another one.
            Some(end) => message.expected_stream(&end.stream),
            None => message,
        };
        Ok(ReadyMessage { subject, message })
    }

    async fn send(&self, nats: &NatsTarget, ready: ReadyMessage, limit: Duration) -> TryEnd<PublishAck> {
        let jetstream = match nats.jetstream(limit).await {
            Ok(jetstream) => jetstream,
            Err(why) => return TryEnd::NotNow { fail: missing(why), pause: None, is_at_work: false },
        };
        let ReadyMessage { subject, message } = ready;
        match jetstream.send_publish(subject, message).await {
            Ok(sent) => match sent.await {
                Ok(ack) => TryEnd::Done(ack),
                Err(error) => not_acknowledged(nats, &error),
            },
            Err(error) => not_sent(nats, &error),
        }
    }

    /// Searches the stream for the message.
    async fn asked(
        &self,
        attempt: &Attempt,
        nats: &NatsTarget,
        end: &StreamEnd,
        subject: &str,
    ) -> Result<Option<u64>> {
        let what = format!("what the stream `{}` has", end.stream);
        let found = patiently(attempt, &what, || search(nats, end, subject, attempt.key())).await?;
        match found {
            StreamSearch::At(sequence) => Ok(Some(sequence)),
            StreamSearch::Absent => Ok(None),
            StreamSearch::Unknown(why) => Err(Fail::uncertain(why)),
        }
    }
}

/// What a search has found.
enum StreamSearch {
    /// The message, with this sequence.
    At(u64),
    /// The stream certainly never had the message.
    Absent,
    /// The stream cannot say any more whether it had the message.
    Unknown(String),
}

/// Searches a stream for a message with this id. An error means that there is no answer.
async fn search(
    nats: &NatsTarget,
    end: &StreamEnd,
    subject: &str,
    id: &str,
) -> std::result::Result<StreamSearch, String> {
    let jetstream = nats.jetstream(PATIENCE).await?;
    let stream = jetstream.get_stream_no_info(&end.stream).await.map_err(|error| told(&error))?;
    let now = info(&jetstream, &end.stream).await?.info;
    if milliseconds(&now) != end.created {
        let why = format!("the stream `{}` was deleted and made anew since the first try", end.stream);
        return Ok(StreamSearch::Unknown(why));
    }
    let mut next = end.after + 1;
    for _ in 0..SEARCHED {
        if next > now.state.last_sequence {
            return Ok(removed(&now, end).map_or(StreamSearch::Absent, StreamSearch::Unknown));
        }
        match stream.raw_message_builder().sequence(next).next_by_subject(subject).send().await {
            Ok(message) if message.headers.get("Nats-Msg-Id").is_some_and(|value| value.as_str() == id) => {
                return Ok(StreamSearch::At(message.sequence));
            }
            Ok(message) => next = message.sequence + 1,
            Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => {
                next = now.state.last_sequence + 1;
            }
            Err(error) => return Err(told(&error)),
        }
    }
    Ok(StreamSearch::Unknown(format!(
        "the stream `{}` has more than {SEARCHED} messages of the subject `{subject}` since the first try",
        end.stream
    )))
}

/// Whether the stream has lost messages that came after the end: then what it does not have may have been there.
fn removed(now: &jetstream::stream::Info, end: &StreamEnd) -> Option<String> {
    let state = &now.state;
    let is_in_range = |sequence: &u64| *sequence > end.after;
    let from_the_front = state.last_sequence > end.after && state.first_sequence > end.after + 1;
    let from_between = state.deleted.iter().flatten().any(is_in_range);
    (from_the_front || from_between || state.last_sequence < end.after).then(|| {
        format!(
            "the stream `{}` has removed messages since the first try, so it may have had this one",
            end.stream
        )
    })
}

/// What an error before sending says: nothing was sent.
fn not_sent<T>(nats: &NatsTarget, error: &PublishError) -> TryEnd<T> {
    let message = said(nats, error);
    match error.kind() {
        PublishErrorKind::MaxPayloadExceeded => {
            TryEnd::Refused { fail: fatal(message).with_code("TOO_LARGE"), is_about_effect: false }
        }
        PublishErrorKind::Other => {
            TryEnd::Refused { fail: fatal(message).with_code("PUBLISH"), is_about_effect: false }
        }
        // The client did not get to hand it over.
        _ => TryEnd::NotNow { fail: missing(message), pause: None, is_at_work: false },
    }
}

/// What it says that there is no acknowledgement.
fn not_acknowledged<T>(nats: &NatsTarget, error: &PublishError) -> TryEnd<T> {
    use std::error::Error as _;
    let message = said(nats, error);
    let answered = error.source().and_then(|source| source.downcast_ref::<jetstream::Error>());
    match (error.kind(), answered) {
        (PublishErrorKind::StreamNotFound, _) => {
            let fail = Fail::retryable(message).with_code("PUBLISH");
            TryEnd::NotNow { fail, pause: None, is_at_work: false }
        }
        // JetStream has answered that it did not store the message.
        (_, Some(answer)) => {
            let data = json!({ "status": answer.code(), "code": answer.error_code().0 });
            match answer.code() {
                400..=499 => {
                    let fail = fatal(message).with_code("PUBLISH").with_data(&data);
                    TryEnd::Refused { fail, is_about_effect: false }
                }
                _ => {
                    let fail = Fail::retryable(message).with_code("PUBLISH").with_data(&data);
                    TryEnd::NotNow { fail, pause: None, is_at_work: false }
                }
            }
        }
        (_, None) => TryEnd::Unknown { fail: Fail::retryable(message).with_code("PUBLISH"), is_final: false },
    }
}

fn said(nats: &NatsTarget, error: &PublishError) -> String {
    use crate::connections::Target as _;
    nats.redactor().text(&format!("the message was not acknowledged: {}", told(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_names_one_place() {
        for subject in ["orders", "orders.paid", "a.b-c.ü", "$KV.x"] {
            assert_eq!(checked(subject).unwrap(), subject);
        }
        for subject in ["", "orders.*", "orders.>", "*", "a b", "a..b", ".a", "a.", "a\r\nPUB x 0"] {
            assert_eq!(checked(subject).unwrap_err().code(), Some("EXPRESSION"), "{subject:?}");
        }
    }
}
