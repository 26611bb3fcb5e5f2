//! An entry in a stream of Redis.
//!
//! One script looks for the marker of the effect key, adds the entry and sets the marker, all or nothing. The marker holds the id of
//! the entry, and lives for the connection's `window`. Within the window the script can be repeated; beyond it, a missing marker proves
//! nothing.

use std::sync::Arc;

use redis::{ErrorKind, RedisError, RedisResult, ServerErrorKind};
use semel::rules::json::Payload;
use semel::sabotage::{self, Bug};
use semel::{Attempt, Fail, Result, fatal};
use serde_json::{Value as Json, json};

use super::broker::{SETTLE, body, headers, patiently, text};
use super::wrong_field;
use crate::connections::{Connection, RedisTarget, Target as _};
use crate::tasks::connection::{missing, target, within};
use crate::tasks::tries::{self, Sender, Tries, TryEnd, Way};
use crate::tasks::{TaskCall, TaskEnd, read, record};

const KINDS: &[&str] = &["redis"];

/// `KEYS`: the marker, the stream. `ARGV`: the life of the marker in milliseconds or 0, then fields and values. The entry comes before
/// the marker: if it is refused, as by a key that is no stream, nothing has happened.
const SCRIPT: &str = "
local known = redis.call('GET', KEYS[1])
if known then return known end
local id = redis.call('XADD', KEYS[2], '*', unpack(ARGV, 2))
if ARGV[1] == '0' then redis.call('SET', KEYS[1], id) else redis.call('SET', KEYS[1], id, 'PX', ARGV[1]) end
return id
";
/// The same without a marker.
const WITHOUT_MARKER: &str = "return redis.call('XADD', KEYS[2], '*', unpack(ARGV, 2))";

/// Executes the task.
pub(super) async fn execute(
    call: TaskCall<'_>,
    connection: std::result::Result<Arc<Connection>, String>,
) -> Result<TaskEnd> {
    let redis = target::<RedisTarget>(&connection, KINDS).ok().map(|(_, redis)| redis);
    let way = match redis {
        _ if call.step.at_most_once => Way::Once,
        Some(redis) => redis.window.last_send().map_or(Way::Key, Way::InWindow),
        None => Way::Missing,
    };
    let first = match way {
        Way::InWindow(_) => call.ctx.first_try(&*call.step.name).await?,
        _ => None,
    };
    let tries = Tries::new(way, call.step.retry, first);
    let message = RedisMessage { call, connection, tries };
    read(tries::run(&message, call.begin_untimed()).await?)
}

/// The key of the marker of an effect. The braces keep it where the stream is, if a proxy spreads keys over servers.
fn marker(attempt: &Attempt, stream: &str) -> String {
    format!("semel:published:{{{stream}}}:{}", attempt.key())
}

/// One entry, over all its tries in this execution.
struct RedisMessage<'a> {
    call: TaskCall<'a>,
    connection: std::result::Result<Arc<Connection>, String>,
    tries: Tries,
}

impl Sender for RedisMessage<'_> {
    fn tries(&self) -> &Tries {
        &self.tries
    }

    async fn attempt(&self, attempt: Attempt) -> Result<Payload> {
        self.tries.begin(&attempt);
        let (connection, redis): (_, &RedisTarget) = match target(&self.connection, KINDS) {
            Ok(found) => found,
            Err(why) => return self.tries.not_now(&attempt, missing(why), None),
        };
        let args: Json = self.call.args_of(&attempt).map_err(|fail| self.tries.sent_nothing(fail))?;
        let command = Self::command(&attempt, redis, &args).map_err(|fail| self.tries.sent_nothing(fail))?;
        let _turn = connection.turns.acquire().await.map_err(Fail::retryable)?;
        if let Some(found) = self.tries.before_resend(&attempt, self).await? {
            return Ok(found);
        }
        let limit = self.call.step.timeout.unwrap_or(connection.timeout);
        let tried = match within(&attempt, limit, send(redis, &command)).await {
            Some(tried) => tried,
            None => {
                redis.drop_line().await;
                let message = format!("{}: there was no answer within {limit:?}", connection.name);
                TryEnd::Unknown { fail: Fail::retryable(message).with_code("TIMEOUT"), is_final: false }
            }
        };
        self.tries.ended(attempt.now());
        self.tries.end(&attempt, tried, |id| self.recorded(&attempt, connection, &args, &id))
    }

    async fn search(&self, attempt: &Attempt) -> Result<Option<Payload>> {
        let (connection, redis): (_, &RedisTarget) =
            target(&self.connection, KINDS).map_err(Fail::uncertain)?;
        let args = self.call.args_of(attempt)?;
        let key = marker(attempt, text(&args, "stream")?);
        let ask = || self.known(attempt, connection, redis, &key);
        if let Some(id) = self.tries.settled(attempt, SETTLE, ask).await? {
            return self.recorded(attempt, connection, &args, &id).map(Some);
        }
        match self.tries.is_old(attempt.now()) {
            true => Err(Fail::uncertain(
                "there is no marker of the message; its window has passed, so it may have been forgotten",
            )),
            false => Ok(None),
        }
    }
}

impl RedisMessage<'_> {
    fn recorded(
        &self,
        attempt: &Attempt,
        connection: &Connection,
        args: &Json,
        entry: &str,
    ) -> Result<Payload> {
        let value = Payload::of(&json!({ "id": attempt.key(), "stream": args["stream"], "entry": entry }))
            .map_err(fatal);
        record(value.and_then(|value| self.call.keep(attempt, value, connection.max_result)))
    }

    /// The id that the marker of the message holds.
    async fn known(
        &self,
        attempt: &Attempt,
        connection: &Connection,
        redis: &RedisTarget,
        key: &str,
    ) -> Result<Option<String>> {
        let ask = async || {
            let mut line = redis.line().await?;
            let asked: RedisResult<Option<String>> = redis::cmd("GET").arg(key).query_async(&mut line).await;
            match asked {
                Ok(found) => Ok(found),
                Err(error) => {
                    redis.drop_line().await;
                    Err(redis.redactor().text(&error.to_string()))
                }
            }
        };
        patiently(attempt, &format!("{}: the marker of the message", connection.name), ask).await
    }

    fn command(attempt: &Attempt, redis: &RedisTarget, args: &Json) -> Result<redis::Cmd> {
        let life = redis.window.length().map_or(0, |window| window.as_millis());
        let script = if sabotage::commits(Bug::MarkerIsNotSet) { WITHOUT_MARKER } else { SCRIPT };
        let mut command = redis::cmd("EVAL");
        let stream = text(args, "stream")?;
        command.arg(script).arg(2).arg(marker(attempt, stream)).arg(stream);
        command.arg(life.to_string()).arg("key").arg(attempt.key()).arg("data").arg(body(args));
        for (name, value) in headers(args, wrong_field)? {
            command.arg(name).arg(value);
        }
        Ok(command)
    }
}

async fn send(redis: &RedisTarget, command: &redis::Cmd) -> TryEnd<String> {
    let mut line = match redis.line().await {
        Ok(line) => line,
        Err(why) => return TryEnd::NotNow { fail: missing(why), pause: None, is_at_work: false },
    };
    let sent: RedisResult<String> = command.query_async(&mut line).await;
    match sent {
        Ok(id) => TryEnd::Done(id),
        Err(error) => judge(redis, &error).await,
    }
}

/// What an error says about the message. The script is executed as a whole or not at all: what the server refuses did nothing.
async fn judge(redis: &RedisTarget, error: &RedisError) -> TryEnd<String> {
    let message = redis.redactor().text(&format!("the message was not published: {error}"));
    let Some(code) = error.code().filter(|_| is_answer(error)) else {
        redis.drop_line().await;
        return TryEnd::Unknown { fail: Fail::retryable(message).with_code("PUBLISH"), is_final: false };
    };
    let data = json!({ "code": code });
    match code {
        // What the author has written, or what the user may not do.
        "ERR" | "WRONGTYPE" | "NOPERM" | "CROSSSLOT" => {
            let fail = fatal(message).with_code("PUBLISH").with_data(&data);
            TryEnd::Refused { fail, is_about_effect: false }
        }
        // The state of the server, which passes or can be mended.
        _ => {
            let fail = Fail::retryable(message).with_code("PUBLISH").with_data(&data);
            TryEnd::NotNow { fail, pause: None, is_at_work: false }
        }
    }
}

/// Whether an error is what the server has answered.
fn is_answer(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Extension | ErrorKind::Server(_))
        && error.kind() != ErrorKind::Server(ServerErrorKind::ExecAbort)
}
