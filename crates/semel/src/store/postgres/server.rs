//! Connections and transactions: how a verb runs, and how its fate is found out when the answer to COMMIT is lost.

use std::time::Duration;

use deadpool_postgres::{Object, Pool};
use tokio::time::error::Elapsed;
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage, Statement};
use uuid::Uuid;

use super::PgClock;
use super::rows::{clock, runs_again, unavailable};
use super::tx::PgTx;
use crate::clock::{Clock, SystemClock, Time};
use crate::error::{Error, Result};
use crate::store::tx::{Verb, race};

/// How often a verb is run that meets others, before its caller is told. Each time somebody else got on.
const ATTEMPTS: usize = 20;
/// Between two attempts to reach a server that is down: short against a restart, long against a connection.
pub(super) const PAUSE: Duration = Duration::from_millis(50);

/// The database, and the ways to it.
pub(super) struct Server {
    pub(super) config: Config,
    pub(super) pool: Pool,
    pub(super) clock: PgClock,
    /// Ids of marks: random ones whatever the clock, because two transactions with one mark would be taken for one.
    pub(super) ids: SystemClock,
    /// How long a lost answer is asked for.
    pub(super) patience: Duration,
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
        let client = self.client().await?;
        verb.run(&mut PgTx::reading(&client, self.given())).await
    }

    async fn write<V: Verb>(&self, verb: &V) -> Result<V::Answer> {
        let mut session = self.session().await?;
        let client = session.client();
        let mut tx = PgTx::writing(client, self.begin(client).await?);
        let answer = verb.run(&mut tx).await;
        // What has written nothing has nothing to make durable, and waits for no disk.
        if answer.is_err() || tx.is_untouched() {
            session.open = client.batch_execute("ROLLBACK").await.is_err();
            return answer;
        }
        let mark = self.ids.uuid();
        match commit(client, mark).await {
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

    /// Opens a connection beside the pool.
    pub(super) async fn connect(&self) -> Result<Client, tokio_postgres::Error> {
        let (client, connection) = self.config.connect(NoTls).await?;
        tokio::spawn(async move {
            // Whoever uses the client is told as well.
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to PostgreSQL has ended");
            }
        });
        Ok(client)
    }

    /// Opens a connection beside the pool for some statements, with settings of its own.
    pub(super) async fn prepared(
        &self,
        settings: &str,
        sql: &[&str],
    ) -> Result<(Client, Vec<Statement>), tokio_postgres::Error> {
        let client = self.connect().await?;
        if !settings.is_empty() {
            client.batch_execute(settings).await?;
        }
        let mut statements = Vec::with_capacity(sql.len());
        for sql in sql {
            statements.push(client.prepare(sql).await?);
        }
        Ok((client, statements))
    }

    /// Opens a connection as soon as the server can be reached.
    pub(super) async fn reconnect(&self) -> Client {
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
    /// put there: the unique index makes us wait for whoever is putting it there too, and if we are the first, the
    /// transaction can no longer commit.
    pub(super) async fn settle(&self, mark: Uuid) -> Result<bool, Elapsed> {
        let asking = async {
            loop {
                match ask(&self.reconnect().await, mark).await {
                    Ok(took) => return took,
                    Err(error) => tracing::debug!(%error, "a mark could not be looked up; trying again"),
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        tokio::time::timeout(self.patience, asking).await
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

/// A connection from the pool that may have a transaction open. It goes back only when that is certainly over: a
/// caller that goes away in the middle must not leave its locks to the next one.
pub(super) struct Session {
    client: Option<Object>,
    pub(super) open: bool,
}

impl Session {
    pub(super) fn client(&self) -> &Object {
        self.client.as_ref().expect("taken out on drop only")
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(client) = self.client.take().filter(|_| self.open) {
            drop(Object::take(client));
        }
    }
}
