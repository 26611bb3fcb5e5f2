//! The brokers of the phase: two streams of NATS, one with a window that runs out all the time, and a stream of Redis.

use std::time::Duration;

use async_nats::jetstream::stream::Config;
use async_nats::jetstream::{self, Context};
use libtest_mimic::Failed;
use redis::aio::MultiplexedConnection;
use serde_json::Value;

use super::deeds::Deeds;

/// How long NATS remembers a message of the second stream: shorter than it is away when it is killed, so that the stream is searched.
const BRIEF: Duration = Duration::from_millis(300);
const WINDOW: Duration = Duration::from_mins(2);

/// The streams.
pub(super) struct Brokers {
    nats_url: String,
    redis_url: String,
    /// Name of the stream in Redis, and of the first one in NATS; the second one has `brief` behind it.
    pub(super) stream: String,
    /// The connections, as the server's file has them.
    pub(super) config: String,
}

impl Brokers {
    /// Makes streams that nothing else uses.
    pub(super) async fn open(stream: &str, [nats_url, redis_url]: [&str; 2]) -> Result<Self, Failed> {
        let brokers = Self {
            nats_url: nats_url.to_owned(),
            redis_url: redis_url.to_owned(),
            stream: stream.to_owned(),
            config: format!(
                "[connections.events]\nkind = \"nats\"\nurl = \"{nats_url}\"\n\
                 [connections.cache]\nkind = \"redis\"\nurl = \"{redis_url}\"\nwindow = \"24h\"\n"
            ),
        };
        let nats = brokers.nats().await?;
        for (name, window) in brokers.names().into_iter().zip([WINDOW, BRIEF]) {
            let subjects = vec![format!("{name}.>")];
            let config = Config { name, subjects, duplicate_window: window, ..Config::default() };
            nats.create_stream(config).await?;
        }
        Ok(brokers)
    }

    fn names(&self) -> [String; 2] {
        [self.stream.clone(), format!("{}brief", self.stream)]
    }

    async fn nats(&self) -> Result<Context, Failed> {
        Ok(jetstream::new(async_nats::connect(self.nats_url.as_str()).await?))
    }

    async fn redis(&self) -> Result<MultiplexedConnection, Failed> {
        Ok(redis::Client::open(&*self.redis_url)?.get_multiplexed_async_connection().await?)
    }

    /// Adds all messages.
    pub(super) async fn count(&self, deeds: &mut Deeds) -> Result<(), Failed> {
        let nats = self.nats().await?;
        for name in self.names() {
            let stream = nats.get_stream(&name).await?;
            let state = &stream.cached_info().state;
            for sequence in state.first_sequence..=state.last_sequence {
                let message = stream.get_raw_message(sequence).await?;
                deeds.add(&at(&message.payload)?, sequence);
            }
        }
        let mut asking = redis::cmd("XRANGE");
        asking.arg(&self.stream).arg("-").arg("+");
        let entries: Vec<(String, Vec<String>)> = asking.query_async(&mut self.redis().await?).await?;
        for (number, (_, fields)) in (1..).zip(entries) {
            let data = fields.chunks(2).find(|field| field[0] == "data").ok_or("an entry has no data")?;
            deeds.add(&at(data[1].as_bytes())?, number);
        }
        Ok(())
    }
}

/// The place and path that a message names.
fn at(data: &[u8]) -> Result<String, Failed> {
    let data: Value = serde_json::from_slice(data)?;
    Ok(data["at"].as_str().ok_or("a message names no place")?.to_owned())
}
