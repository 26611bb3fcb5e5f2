//! A place in a broker that messages are put into, and what the test sees of it.

use std::future::Future;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{Config as StreamConfig, Stream};
use async_nats::jetstream::{self, Context};
use semel::clock::SystemClock;
use semel::store::memory::MemoryStore;
use semel_server::config::Config;
use semel_server::connections::{Connections, Opening, SystemNames};
use tokio::runtime::Runtime;

/// A kind of broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broker {
    Nats,
    Redis,
}

/// A stream of its own in the broker of the tests.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) broker: Broker,
    pub(crate) name: String,
    window: Duration,
}

/// The window in which a broker remembers, if a test does not say.
const WINDOW: Duration = Duration::from_mins(2);

/// What the tests themselves ask runs here: the engines that they kill have runtimes of their own.
static OUTSIDE: LazyLock<Runtime> = LazyLock::new(crate::world::runtime);
static NATS: LazyLock<Context> = LazyLock::new(|| {
    outside(async {
        jetstream::new(async_nats::connect(Broker::Nats.url()).await.expect("the broker is there"))
    })
});

/// Does something outside of all engines, and waits for it; also from inside of a runtime.
pub(crate) fn outside<T: Send>(work: impl Future<Output = T> + Send) -> T {
    std::thread::scope(|scope| scope.spawn(|| OUTSIDE.block_on(work)).join().expect("it does not panic"))
}

impl Broker {
    /// The URL of the server of the tests.
    pub(crate) fn url(self) -> String {
        std::env::var(self.variable()).expect("main has seen to it that there is a server")
    }

    fn variable(self) -> &'static str {
        match self {
            Self::Nats => "SEMEL_TEST_NATS",
            Self::Redis => "SEMEL_TEST_REDIS",
        }
    }

    /// Its host and port.
    pub(crate) fn address(self) -> String {
        self.url().split_once("//").expect("it is a URL").1.trim_end_matches('/').to_owned()
    }

    /// The URL of it at another address.
    pub(crate) fn url_at(self, address: impl std::fmt::Display) -> String {
        match self {
            Self::Nats => format!("nats://{address}"),
            Self::Redis => format!("redis://{address}"),
        }
    }

    /// Kills the server with SIGKILL, and starts it again.
    pub(crate) fn crash(self) {
        let ctl = std::env::var(format!("{}_CTL", self.variable())).expect("the script has set it");
        let status = Command::new(ctl).arg("crash").status().expect("it can be started");
        assert!(status.success(), "{self:?} comes back after a crash");
    }
}

async fn redis() -> ::redis::aio::MultiplexedConnection {
    let client = ::redis::Client::open(Broker::Redis.url()).expect("it is a URL");
    client.get_multiplexed_async_connection().await.expect("the broker is there")
}

impl Place {
    pub(crate) fn fresh(broker: Broker) -> Self {
        Self::with_window(broker, WINDOW)
    }

    /// A stream that no other test has, of a broker that remembers messages for this window.
    pub(crate) fn with_window(broker: Broker, window: Duration) -> Self {
        static PLACES: AtomicUsize = AtomicUsize::new(0);
        let name = format!("p{}x{}", std::process::id(), PLACES.fetch_add(1, Ordering::Relaxed));
        let place = Self { broker, name, window };
        if broker == Broker::Nats {
            place.make_stream();
        }
        place
    }

    fn make_stream(&self) {
        let config = StreamConfig {
            name: self.name.clone(),
            subjects: vec![format!("{}.>", self.name)],
            duplicate_window: self.window,
            ..StreamConfig::default()
        };
        outside(async { NATS.create_stream(config).await.map(drop) }).expect("a stream can be made");
    }

    /// The member of a step that says where the message goes.
    pub(crate) fn place(&self) -> String {
        match self.broker {
            Broker::Nats => format!("subject: {}.orders", self.name),
            Broker::Redis => format!("stream: {}", self.name),
        }
    }

    /// The connection `events` at this URL.
    pub(crate) fn connections(&self, url: &str) -> Connections {
        let mut text = format!("[connections.events]\nkind = \"{}\"\nurl = \"{url}\"\n", self.kind());
        if self.broker == Broker::Redis {
            text.push_str(&format!("window = \"{}ms\"\n", self.window.as_millis()));
        }
        connections(&text)
    }

    fn kind(&self) -> &'static str {
        match self.broker {
            Broker::Nats => "nats",
            Broker::Redis => "redis",
        }
    }

    async fn stream(&self) -> Stream {
        NATS.get_stream(&self.name).await.expect("it was made")
    }

    /// The effect keys of all messages, in their order, each as often as it is there.
    pub(crate) fn keys(&self) -> Vec<String> {
        outside(async {
            match self.broker {
                Broker::Nats => self.keys_of_nats().await,
                Broker::Redis => self.entries().await.into_iter().map(|fields| fields[1].clone()).collect(),
            }
        })
    }

    async fn keys_of_nats(&self) -> Vec<String> {
        let (mut keys, stream) = (Vec::new(), self.stream().await);
        let subject = format!("{}.orders", self.name);
        for sequence in stream.cached_info().state.first_sequence..=stream.cached_info().state.last_sequence {
            let Ok(message) = stream.get_raw_message(sequence).await else { continue };
            if message.subject.as_str() == subject {
                keys.push(message.headers.get("Nats-Msg-Id").expect("it has an id").to_string());
            }
        }
        keys
    }

    /// The fields of all entries of a stream of Redis.
    pub(crate) async fn entries(&self) -> Vec<Vec<String>> {
        let mut asking = ::redis::cmd("XRANGE");
        asking.arg(&self.name).arg("-").arg("+");
        let found: Vec<(String, Vec<String>)> =
            asking.query_async(&mut redis().await).await.expect("a stream");
        found.into_iter().map(|(_, fields)| fields).collect()
    }

    /// Each message is there once.
    pub(crate) fn has_each_once(&self, messages: usize) {
        let mut keys = self.keys();
        assert_eq!(keys.len(), messages, "{keys:?}");
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), messages, "a message is there twice");
    }

    /// Waits until the broker has forgotten what it was told before this.
    pub(crate) fn forget(&self) {
        let probe = format!("{}-probe", self.name);
        outside(async {
            match self.broker {
                Broker::Nats => loop {
                    let message = PublishMessage::build().message_id(&probe);
                    let sent = NATS.send_publish(format!("{}.probe", self.name), message).await;
                    let stored = sent.expect("it is sent").await.expect("it is acknowledged");
                    // The first one is stored, and those after it are dropped until the window has passed.
                    if !stored.duplicate && self.probes().await > 1 {
                        return;
                    }
                },
                Broker::Redis => {
                    let mut line = redis().await;
                    let life = self.window.as_millis().to_string();
                    let mut set = ::redis::cmd("SET");
                    set.arg(&probe).arg("1").arg("PX").arg(life);
                    set.exec_async(&mut line).await.expect("it is set");
                    while ::redis::cmd("EXISTS")
                        .arg(&probe)
                        .query_async::<bool>(&mut line)
                        .await
                        .expect("asked")
                    {}
                }
            }
        });
    }

    async fn probes(&self) -> usize {
        let stream = self.stream().await;
        let state = &stream.cached_info().state;
        let mut probes = 0;
        for sequence in state.first_sequence..=state.last_sequence {
            let message = stream.get_raw_message(sequence).await;
            probes += usize::from(message.is_ok_and(|message| message.subject.ends_with(".probe")));
        }
        probes
    }

    /// Removes all messages.
    pub(crate) fn purge(&self) {
        outside(async { self.stream().await.purge().await.map(drop) }).expect("it can be purged");
    }

    /// What holds the name is not what messages can be put into.
    pub(crate) fn spoil(&self) {
        outside(async {
            match self.broker {
                Broker::Nats => drop(NATS.delete_stream(&self.name).await.expect("it was there")),
                Broker::Redis => {
                    let mut set = ::redis::cmd("SET");
                    set.arg(&self.name).arg("x").exec_async(&mut redis().await).await.expect("it is set");
                }
            }
        });
    }
}

/// The connections of a configuration.
pub(crate) fn connections(text: &str) -> Connections {
    let config: toml::Table = text.parse().expect("it is TOML");
    let connections = config["connections"].as_table().expect("a table").clone();
    let config = Config { connections, ..Config::default() };
    let store = Arc::new(MemoryStore::new(Arc::new(SystemClock::new())));
    let environment = |name: &str| std::env::var(name).ok();
    let opening = Opening { config: &config, store, environment: &environment, names: Arc::new(SystemNames) };
    Connections::open_with(opening).unwrap_or_else(|problems| panic!("{problems:?}"))
}

impl Place {
    /// Data and the header `kind` of the first message.
    pub(crate) fn carried(&self) -> (String, String) {
        outside(async {
            match self.broker {
                Broker::Nats => {
                    let message = self.stream().await.get_raw_message(1).await.expect("it is there");
                    let kind = message.headers.get("kind").map(ToString::to_string).unwrap_or_default();
                    (String::from_utf8(message.payload.to_vec()).expect("it is text"), kind)
                }
                Broker::Redis => {
                    let fields = self.entries().await.remove(0);
                    assert_eq!((&*fields[2], &*fields[4]), ("data", "kind"), "{fields:?}");
                    (fields[3].clone(), fields[5].clone())
                }
            }
        })
    }
}
