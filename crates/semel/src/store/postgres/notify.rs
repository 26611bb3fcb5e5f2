//! Wake-ups between processes: one task tells the others by NOTIFY what happened here, one hears by LISTEN what they
//! tell. Nothing depends on either (see [`Wakes`]): a message may be lost with a connection, and a listener that has heard
//! nothing for a while is told to look at everything.

use std::collections::HashSet;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, Client, Statement};
use uuid::Uuid;

use super::rows::is_refused;
use super::server::{DedicatedConnection, PAUSE, Server};
use super::tasks::{Stop, Tasks};
use crate::clock::Clock;
use crate::error::Source;
use crate::id::{RunId, WorkspaceId};
use crate::store::wakes::{Wake, Wakes};

/// Pause between two messages of one process: each costs the server a transaction, and every listener a query.
const GAP: Duration = Duration::from_millis(5);
/// More than this many wake-ups are not told one by one: PostgreSQL takes less than 8,000 bytes in one message, and one
/// wake-up has up to 34.
const MOST: usize = 230;
/// How long a store that is being closed tries to send its last wake-ups.
const LAST_WORD: Duration = Duration::from_secs(1);

/// Name of the channel of a schema: several schemas of one database must not wake each other.
const CHANNEL: &str = "SELECT 'semel_' || relnamespace FROM pg_class WHERE oid = 'semel_schema'::regclass";

const NOTIFY: &str = "SELECT pg_notify($1, $2)";

/// Starts both tasks. From here on wake-ups are exchanged with other processes in both directions.
pub(super) async fn start(
    tasks: &Tasks,
    server: &Arc<Server>,
    client: &Client,
    wakes: &Arc<Wakes>,
) -> Result<(), Source> {
    let channel: String = server.asked(client.query_one(CHANNEL, &[])).await?.try_get(0)?;
    let me = server.ids.uuid();
    let ears = Ears::open(server, &channel).await?;
    let listener =
        NotifyListener { server: server.clone(), channel: channel.clone(), me, wakes: wakes.clone() };
    tasks.spawn(|stop| listener.listen(ears, stop));
    if let Some(own) = wakes.own() {
        let teller = Teller { server: server.clone(), channel, me, session: None };
        tasks.spawn(|stop| teller.tell(own, stop));
    }
    Ok(())
}

/// Wake-ups of this process that other processes have not been told yet, without repetitions.
#[derive(Default)]
struct News {
    wakes: Vec<Wake>,
    known: HashSet<Wake>,
}

impl News {
    fn add(&mut self, wake: Wake) {
        if self.known.contains(&Wake::All) || !self.known.insert(wake) {
            return;
        }
        self.wakes.push(wake);
        if wake == Wake::All || self.wakes.len() > MOST {
            // This one covers all others.
            self.known = HashSet::from([Wake::All]);
            self.wakes = vec![Wake::All];
        }
    }

    /// Adds the wake-ups that have happened since.
    fn add_waiting(&mut self, own: &mut broadcast::Receiver<Wake>) {
        loop {
            match own.try_recv() {
                Ok(wake) => self.add(wake),
                Err(TryRecvError::Lagged(_)) => self.add(Wake::All),
                Err(TryRecvError::Empty | TryRecvError::Closed) => return,
            }
        }
    }

    fn take_text(&mut self, me: Uuid) -> String {
        let Self { wakes, .. } = std::mem::take(self);
        let mut text = me.simple().to_string();
        for wake in wakes {
            text.push(' ');
            text.push_str(&word(wake));
        }
        text
    }
}

fn word(wake: Wake) -> String {
    match wake {
        Wake::Due => "d".to_owned(),
        Wake::DueIn(workspace) => format!("d{}", workspace.0.simple()),
        Wake::Settled => "s".to_owned(),
        Wake::All => "*".to_owned(),
        Wake::Arrived(run) => format!("a{}", run.0.simple()),
        Wake::Taken(run) => format!("t{}", run.0.simple()),
        Wake::Ended(run) => format!("e{}", run.0.simple()),
        Wake::Paused(run) => format!("p{}", run.0.simple()),
    }
}

/// Parses a wake-up. A word that this version does not know wakes all listeners.
fn wake_of(word: &str) -> Wake {
    let run = |of: fn(RunId) -> Wake, id: &str| Uuid::try_parse(id).ok().map(|id| of(RunId(id)));
    let known = match word.split_at_checked(1) {
        Some(("d", "")) => Some(Wake::Due),
        Some(("d", id)) => Uuid::try_parse(id).ok().map(|id| Wake::DueIn(WorkspaceId(id))),
        Some(("s", "")) => Some(Wake::Settled),
        Some(("a", id)) => run(Wake::Arrived, id),
        Some(("t", id)) => run(Wake::Taken, id),
        Some(("e", id)) => run(Wake::Ended, id),
        Some(("p", id)) => run(Wake::Paused, id),
        _ => None,
    };
    known.unwrap_or(Wake::All)
}

/// Sends the wake-ups of this process.
struct Teller {
    server: Arc<Server>,
    channel: String,
    me: Uuid,
    session: Option<(DedicatedConnection, Vec<Statement>)>,
}

impl Teller {
    async fn tell(mut self, mut own: broadcast::Receiver<Wake>, mut stop: Stop) {
        let mut news = News::default();
        loop {
            tokio::select! {
                biased;
                () = stop.asked() => break,
                first = own.recv() => match first {
                    Ok(wake) => news.add(wake),
                    Err(RecvError::Lagged(_)) => news.add(Wake::All),
                    Err(RecvError::Closed) => break,
                },
            }
            news.add_waiting(&mut own);
            let text = news.take_text(self.me);
            let telling = async {
                self.send(&text).await;
                // More wake-ups are collected meanwhile.
                tokio::time::sleep(GAP).await;
            };
            tokio::select! {
                biased;
                () = telling => {}
                () = stop.asked() => break,
            }
        }
        news.add_waiting(&mut own);
        if !news.wakes.is_empty() && self.session.is_some() {
            let text = news.take_text(self.me);
            if let Err(late) = tokio::time::timeout(LAST_WORD, self.send(&text)).await {
                tracing::warn!(error = %late, "the store is closed, and its last news are not told to others");
            }
        }
    }

    /// Sends a message, repeatedly until it is accepted. A message that is sent twice does no harm.
    async fn send(&mut self, text: &str) {
        while let Err(error) = self.try_send(text).await {
            if error.downcast_ref().is_some_and(is_refused) {
                tracing::warn!(%error, "PostgreSQL refuses to tell other processes what happened");
                return;
            }
            tracing::warn!(%error, "the connection that tells other processes is lost; it is opened again");
            self.session = None;
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn try_send(&mut self, text: &str) -> Result<(), Source> {
        let (line, statements) = match &mut self.session {
            Some(session) => session,
            // Without waiting for the disk: a wake-up that a crash of the server loses only costs time.
            none => none.insert(self.server.prepared("SET synchronous_commit = off", &[NOTIFY]).await?),
        };
        self.server.asked(line.execute(&statements[0], &[&self.channel, &text])).await.map(drop)
    }
}

/// A connection that listens, with the notifications that it has received.
struct Ears {
    heard: mpsc::UnboundedReceiver<String>,
    /// Without it the connection ends.
    line: DedicatedConnection,
}

impl Ears {
    async fn open(server: &Server, channel: &str) -> Result<Self, Source> {
        let (client, mut connection) = server.asked(server.connection()).await?;
        let (ear, heard) = mpsc::unbounded_channel();
        let carrying = tokio::spawn(async move {
            while let Some(message) = poll_fn(|cx| connection.poll_message(cx)).await {
                match message {
                    // The receiver is gone: then the client is gone too, and the connection ends.
                    Ok(AsyncMessage::Notification(said)) => drop(ear.send(said.payload().to_owned())),
                    Ok(other) => tracing::debug!(?other, "PostgreSQL remarks"),
                    Err(error) => {
                        tracing::debug!(%error, "a connection to PostgreSQL has ended");
                        return;
                    }
                }
            }
        });
        let line = DedicatedConnection::new(client, carrying);
        server.asked(line.batch_execute(&format!("LISTEN {channel}"))).await?;
        Ok(Self { heard, line })
    }

    /// Waits for the next notification. None if the connection has ended, which is checked after a long silence.
    async fn next(&mut self, server: &Server) -> Option<String> {
        loop {
            match tokio::time::timeout(server.silence, self.heard.recv()).await {
                Ok(heard) => return heard,
                Err(_) => server.asked(self.line.batch_execute("")).await.ok()?,
            }
        }
    }

    /// Opens it as soon as the server can be reached.
    async fn again(server: &Server, channel: &str) -> Self {
        loop {
            match Self::open(server, channel).await {
                Ok(ears) => return ears,
                Err(error) => tracing::debug!(%error, "PostgreSQL cannot be listened to; trying again"),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Receives the wake-ups of other processes.
struct NotifyListener {
    server: Arc<Server>,
    channel: String,
    me: Uuid,
    wakes: Arc<Wakes>,
}

impl NotifyListener {
    async fn listen(self, ears: Ears, mut stop: Stop) {
        tokio::select! {
            biased;
            () = stop.asked() => {}
            () = self.hear(ears) => {}
        }
    }

    async fn hear(&self, mut ears: Ears) {
        loop {
            while let Some(text) = ears.next(&self.server).await {
                self.understand(&text);
            }
            tracing::warn!("the connection that hears other processes is lost; it is opened again");
            ears = Ears::again(&self.server, &self.channel).await;
            // Wake-ups that were sent while there was no connection are lost.
            self.wakes.pass_on(Wake::All);
        }
    }

    fn understand(&self, text: &str) {
        let mut words = text.split(' ');
        if words.next() == Some(&self.me.simple().to_string()) {
            return;
        }
        for word in words {
            self.wakes.pass_on(wake_of(word));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(n: u128) -> RunId {
        RunId(Uuid::from_u128(n))
    }

    fn understood(text: &str) -> Vec<Wake> {
        text.split(' ').skip(1).map(wake_of).collect()
    }

    #[test]
    fn what_is_told_is_understood_and_each_of_it_once() {
        let wakes = [
            Wake::Due,
            Wake::Settled,
            Wake::DueIn(WorkspaceId(Uuid::from_u128(3))),
            Wake::Arrived(run(1)),
            Wake::Taken(run(1)),
            Wake::Ended(run(2)),
            Wake::Paused(run(2)),
        ];
        let mut news = News::default();
        for wake in wakes.into_iter().chain(wakes) {
            news.add(wake);
        }
        let text = news.take_text(Uuid::from_u128(7));
        assert!(text.starts_with("00000000000000000000000000000007 d s d"), "{text}");
        assert_eq!(understood(&text), wakes);
        assert!(news.wakes.is_empty() && news.known.is_empty(), "told");
    }

    #[test]
    fn a_message_fits_whatever_happened() {
        let mut news = News::default();
        (0..MOST as u128).for_each(|n| news.add(Wake::Ended(run(n))));
        assert_eq!(news.wakes.len(), MOST);
        let full = News { wakes: news.wakes.clone(), known: HashSet::new() }.take_text(Uuid::from_u128(7));
        assert!(full.len() < 8_000, "{}", full.len());
        news.add(Wake::Due);
        news.add(Wake::Settled);
        assert_eq!(understood(&news.take_text(Uuid::from_u128(7))), [Wake::All]);
    }

    #[test]
    fn what_is_not_understood_may_be_anything() {
        for word in ["", "*", "x", "dd", "e", "e12", "ä", "z00000000000000000000000000000007"] {
            assert_eq!(wake_of(word), Wake::All, "{word}");
        }
    }
}
