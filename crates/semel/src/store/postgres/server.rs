//! Connections and transactions: how a verb runs, and how its fate is found out when the answer to COMMIT is lost.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use deadpool_postgres::{Object, Pool};
use tokio::task::JoinHandle;
use tokio::time::error::Elapsed;
use tokio_postgres::{Client, Config, Connection, SimpleQueryMessage, Socket, Statement};
use uuid::Uuid;

use super::PgClock;
use super::rows::{clock, runs_again, unavailable};
use super::tls::{Connector, Encrypted};
use super::tx::PgStoreTx;
use crate::clock::{Clock, SystemClock, Time};
use crate::error::{Error, Result, Source};
use crate::store::tx::{self, Verb, race};

/// How often a verb is executed again after a conflict, before its caller gets the error. Each time another one succeeded.
const ATTEMPTS: usize = 20;
/// Between two attempts to reach a server that is down: short against a restart, long against a connection.
pub(super) const PAUSE: Duration = Duration::from_millis(50);

/// The database, and the ways to it.
pub(super) struct Server {
    pub(super) config: Config,
    pub(super) tls: Connector,
    pub(super) pool: Pool,
    pub(super) clock: PgClock,
    /// Ids of marks: random ones whatever the clock, because two transactions with one mark would be taken for one.
    pub(super) ids: SystemClock,
    /// How long a lost answer is asked for.
    pub(super) patience: Duration,
    /// How long an answer is waited for before it is taken for lost.
    pub(super) silence: Duration,
}

/// The database has not answered within this time.
#[derive(Debug, thiserror::Error)]
#[error("the database has not answered for {} s", .0.as_secs_f32())]
pub(super) struct DatabaseSilent(Duration);

impl From<DatabaseSilent> for Error {
    fn from(silent: DatabaseSilent) -> Self {
        Self::Unavailable(Box::new(silent))
    }
}

/// Whether a call failed because there was no answer: its connection must be closed.
fn is_silent<T>(answer: &Result<T>) -> bool {
    matches!(answer, Err(Error::Unavailable(source)) if source.is::<DatabaseSilent>())
}

impl Server {
    /// The time, if it is not the database's.
    pub(super) fn given(&self) -> Option<Time> {
        match &self.clock {
            PgClock::Database => None,
            PgClock::Given(clock) => Some(clock.now()),
        }
    }

    /// Runs a verb in one transaction, again if it met another.
    pub(super) async fn execute<V: Verb>(&self, verb: &V) -> Result<V::Answer> {
        let mut attempt = 1;
        loop {
            let answer = if V::READS { self.read(verb).await } else { self.write(verb).await };
            match answer {
                Err(error) if attempt < ATTEMPTS && runs_again(&error) => attempt += 1,
                answer => return answer,
            }
        }
    }

    /// A verb that reads sees each of its statements in a view of its own; no transaction is opened around them. That
    /// is enough for these verbs: what must agree (a header and its outcome) comes in one statement, what is read after
    /// a header belongs to it whenever it is read.
    async fn read<V: Verb>(&self, verb: &V) -> Result<V::Answer> {
        let mut session = self.session().await?;
        let mut tx = PgStoreTx::reading(self, session.client(), self.given());
        let answer = tx::run(verb, &mut tx).await;
        session.open = is_silent(&answer);
        answer
    }

    async fn write<V: Verb>(&self, verb: &V) -> Result<V::Answer> {
        let mut session = self.session().await?;
        let client = session.client();
        let begun = self.answered(self.begin(client)).await?;
        let mut tx = PgStoreTx::writing(self, client, begun?);
        let answer = tx::run(verb, &mut tx).await;
        if is_silent(&answer) {
            return answer;
        }
        // What has written nothing has nothing to make durable, and waits for no disk.
        if answer.is_err() || tx.is_untouched() {
            session.open = self.asked(client.batch_execute("ROLLBACK")).await.is_err();
            return answer;
        }
        let mark = self.ids.uuid();
        match self.asked(commit(client, mark)).await {
            Ok(()) => session.open = false,
            Err(error) => {
                tracing::warn!(%error, "the answer to a COMMIT is lost; its mark will tell");
                drop(session);
                let took = self.settle(mark).await;
                if !took.map_err(|elapsed| Error::Unknown(Box::new(elapsed)))? {
                    return Err(race());
                }
            }
        }
        answer
    }

    /// A connection on which a transaction is about to begin.
    pub(super) async fn session(&self) -> Result<Session> {
        Ok(Session { client: Some(self.client().await?), open: true })
    }

    pub(super) async fn client(&self) -> Result<Object> {
        self.pool.get().await.map_err(|error| Error::Unavailable(Box::new(error)))
    }

    /// Begins a transaction, and gives its time; one round trip.
    async fn begin(&self, client: &Client) -> Result<Time> {
        if let Some(now) = self.given() {
            client.batch_execute("BEGIN").await.map_err(unavailable)?;
            return Ok(now);
        }
        let begun = client.simple_query(concat!("BEGIN; SELECT ", clock!())).await.map_err(unavailable)?;
        let shown = begun.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        let now = shown.and_then(|text| text.parse().ok());
        now.map(Time).ok_or_else(|| Error::Unavailable("the database tells no time".into()))
    }

    /// Waits for the database, but not for ever: a connection can be dead although everything on the way to it says that
    /// it is not.
    pub(super) async fn answered<T>(&self, asking: impl Future<Output = T>) -> Result<T, DatabaseSilent> {
        let answer = tokio::time::timeout(self.silence, asking).await;
        answer.map_err(|_| {
            // Those that rest in the pool went the same way.
            self.pool.retain(|_, _| false);
            DatabaseSilent(self.silence)
        })
    }

    /// The same for a statement, where it does not matter why there is no answer.
    pub(super) async fn asked<T>(
        &self,
        asking: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Source> {
        Ok(self.answered(asking).await??)
    }

    /// A client, and the connection that has to be polled for it.
    pub(super) async fn connection(
        &self,
    ) -> Result<(Client, Connection<Socket, Encrypted<Socket>>), tokio_postgres::Error> {
        self.config.connect(self.tls.clone()).await
    }

    /// Opens a connection beside the pool.
    pub(super) async fn connect(&self) -> Result<DedicatedConnection, Source> {
        let (client, connection) = self.asked(self.connection()).await?;
        let carrying = tokio::spawn(async move {
            // The user of the client is told as well.
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to PostgreSQL has ended");
            }
        });
        Ok(DedicatedConnection::new(client, carrying))
    }

    /// Opens a connection beside the pool for some statements, with settings of its own.
    pub(super) async fn prepared(
        &self,
        settings: &str,
        sql: &[impl AsRef<str>],
    ) -> Result<(DedicatedConnection, Vec<Statement>), Source> {
        let line = self.connect().await?;
        if !settings.is_empty() {
            self.asked(line.batch_execute(settings)).await?;
        }
        let mut statements = Vec::with_capacity(sql.len());
        for sql in sql {
            statements.push(self.asked(line.prepare(sql.as_ref())).await?);
        }
        Ok((line, statements))
    }

    /// Opens a connection as soon as the server can be reached.
    pub(super) async fn reconnect(&self) -> DedicatedConnection {
        loop {
            match self.connect().await {
                Ok(client) => return client,
                Err(error) => tracing::debug!(%error, "PostgreSQL cannot be reached; trying again"),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Whether the transaction with this mark took place. If it did not, it never will.
    ///
    /// The server may still be at work on it, behind a connection that is gone. So its mark is not just looked up, but
    /// inserted: the unique index waits for a transaction that inserts it too, and if this insert is the first, that
    /// transaction can no longer commit.
    pub(super) async fn settle(&self, mark: Uuid) -> Result<bool, Elapsed> {
        let asking = async {
            loop {
                let line = self.reconnect().await;
                match self.asked(ask(&line, mark)).await {
                    Ok(took) => return took,
                    Err(error) => tracing::debug!(%error, "a mark could not be looked up; trying again"),
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        tokio::time::timeout(self.patience, asking).await
    }
}

/// A connection beside the pool. Dropped, it is closed, whatever is still waited for on it.
pub(super) struct DedicatedConnection {
    client: Client,
    carrying: JoinHandle<()>,
}

impl DedicatedConnection {
    /// Of a client, and the task that carries what it says.
    pub(super) fn new(client: Client, carrying: JoinHandle<()>) -> Self {
        Self { client, carrying }
    }
}

impl Deref for DedicatedConnection {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl DerefMut for DedicatedConnection {
    fn deref_mut(&mut self) -> &mut Client {
        &mut self.client
    }
}

impl Drop for DedicatedConnection {
    fn drop(&mut self) {
        self.carrying.abort();
    }
}

/// Commits with a mark; one round trip. The INSERT goes first: if it fails, COMMIT rolls back.
async fn commit(client: &Object, mark: Uuid) -> Result<(), tokio_postgres::Error> {
    let insert = concat!("INSERT INTO marks (id, at, took) VALUES ($1, ", clock!(), ", true)");
    let insert = client.prepare_cached(insert).await?;
    let params: [&(dyn tokio_postgres::types::ToSql + Sync); 1] = [&mark];
    let (marked, committed) =
        tokio::join!(biased; client.execute(&insert, &params), client.batch_execute("COMMIT"));
    marked.and(committed)
}

async fn ask(client: &Client, mark: Uuid) -> Result<bool, tokio_postgres::Error> {
    let insert = concat!(
        "INSERT INTO marks (id, at, took) VALUES ($1, ",
        clock!(),
        ", false) ON CONFLICT (id) DO NOTHING"
    );
    client.execute(insert, &[&mark]).await?;
    // Not by what the INSERT answered: it may be the second attempt of ours, after a lost answer of its own.
    client.query_one("SELECT took FROM marks WHERE id = $1", &[&mark]).await?.try_get(0)
}

/// A connection from the pool that may have a transaction open, or wait for an answer that never comes. It goes back only
/// when that is certainly over: a caller that goes away in the middle must not leave its locks to the next one.
pub(super) struct Session {
    client: Option<Object>,
    pub(super) open: bool,
}

impl Session {
    pub(super) fn client(&self) -> &Object {
        self.client.as_ref().expect("taken out at the end only")
    }

    /// The connection, on which nothing is open and nothing is waited for.
    pub(super) fn settled(mut self) -> Object {
        self.client.take().expect("taken out at the end only")
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(client) = self.client.take().filter(|_| self.open) {
            drop(Object::take(client));
        }
    }
}
