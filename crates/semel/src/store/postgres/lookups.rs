//! Look-ups of many keys in one statement: the first look of every start, which is all that a duplicate needs.

use std::sync::Arc;

use deadpool_postgres::Object;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::queue::{BatchError, Worker, failed};
use super::rows::{self, LOOK_UP_KEYS, column, runs_again, unavailable};
use super::server::Server;
use super::tx::PgStoreTx;
use crate::clock::Time;
use crate::error::{Error, Result};
use crate::id::WorkspaceId;
use crate::rules::key::{Key, Scope};
use crate::store::tx::Verb;
use crate::store::verbs::StartRun;

/// Batches under way at once, beside a look-up that is answered by its caller alone.
pub(super) const LOOKERS: usize = 2;
/// How often a batch is sent whose connection is gone.
const ATTEMPTS: usize = 20;

/// A key that is looked for.
pub(super) struct Wanted {
    workspace: WorkspaceId,
    scope: Scope,
    key: Key,
}

impl Wanted {
    pub(super) fn by(verb: &StartRun) -> Self {
        let start = &verb.start;
        Self { workspace: start.workspace, scope: start.key_scope(), key: start.key.clone() }
    }
}

/// Answer to a look-up, with the time of the database.
pub(super) struct Looked {
    pub(super) now: Time,
    /// With the connection for whatever else has to be read of it. It is the pool's, and must not be held while waiting
    /// for another one: if all of them were held like this, every caller would wait for ever.
    found: Option<(Row, Arc<Object>)>,
}

impl Looked {
    pub(super) fn is_found(&self) -> bool {
        self.found.is_some()
    }

    /// Runs a verb that looks for this key first and only reads.
    pub(super) async fn peek<V: Verb>(self, server: &Server, verb: &V) -> Result<V::Answer> {
        let Some((row, client)) = self.found else { return server.execute(verb).await };
        let answer = match PgStoreTx::beside(server, &client, self.now, &row)? {
            Some(mut tx) => Some(verb.run(&mut tx).await),
            // It did not come along with all the others: a look-up of its own brings header and end in one statement.
            None => None,
        };
        drop(client);
        let Some(answer) = answer else { return server.execute(verb).await };
        match answer {
            Err(error) if runs_again(&error) => server.execute(verb).await,
            answer => answer,
        }
    }
}

/// Looks up what is wanted, on a connection of the pool.
pub(super) struct Looker(Arc<Server>);

impl Looker {
    pub(super) fn new(server: &Arc<Server>) -> Self {
        Self(server.clone())
    }

    async fn look(&self, calls: &[Wanted]) -> Result<(Arc<Object>, Vec<Row>), BatchError> {
        let workspaces: Vec<Uuid> = calls.iter().map(|call| call.workspace.0).collect();
        let scopes: Vec<&str> = calls.iter().map(|call| call.scope.as_str()).collect();
        let keys: Vec<&str> = calls.iter().map(|call| call.key.as_str()).collect();
        let params: [&(dyn ToSql + Sync); 3] = [&workspaces, &scopes, &keys];
        let mut attempt = 1;
        loop {
            let looking = async {
                let session = self.0.session().await?;
                let client = session.client();
                let query =
                    async { client.query(&client.prepare_cached(LOOK_UP_KEYS).await?, &params).await };
                let rows = self.0.answered(query).await?.map_err(unavailable)?;
                Ok::<_, Error>((Arc::new(session.settled()), rows))
            };
            match looking.await {
                Ok(found) => return Ok(found),
                Err(error) if attempt < ATTEMPTS && runs_again(&error) => attempt += 1,
                Err(error) => return Err((Error::Unavailable, Arc::new(error))),
            }
        }
    }
}

impl Worker for Looker {
    type Call = Wanted;
    type Answer = Looked;
    const MOST: usize = 1024;

    /// Keys are short, and so is what is found under each (see [`LOOK_UP_KEYS`]).
    fn weight(_: &Wanted) -> usize {
        0
    }

    async fn work(&mut self, calls: Vec<Wanted>) -> Vec<Result<Looked>> {
        let given = self.0.given();
        let looked = self.look(&calls).await;
        let sorted = looked.and_then(|(client, rows)| match placed(rows, calls.len()) {
            Ok((now, rows)) => Ok((client, given.unwrap_or(now), rows)),
            Err(error) => Err((Error::Unavailable as _, Arc::new(error) as _)),
        });
        match sorted {
            Ok((client, now, rows)) => {
                let found = |row: Option<Row>| row.map(|row| (row, client.clone()));
                rows.into_iter().map(|row| Ok(Looked { now, found: found(row) })).collect()
            }
            Err(failure) => calls.iter().map(|_| Err(failed(&failure))).collect(),
        }
    }
}

/// The time, and the rows in the places of the keys that they were found for.
fn placed(found: Vec<Row>, calls: usize) -> Result<(Time, Vec<Option<Row>>)> {
    let mut now = None;
    let mut rows: Vec<Option<Row>> = std::iter::repeat_with(|| None).take(calls).collect();
    for row in found {
        now = Some(rows::time_beside(&row)?);
        let place =
            column::<Option<i64>>(&row, rows::PLACE)?.and_then(|place| usize::try_from(place - 1).ok());
        if let Some(slot) = place.and_then(|place| rows.get_mut(place)) {
            *slot = Some(row);
        }
    }
    let now = now.ok_or_else(|| Error::Unavailable("the database tells no time".into()))?;
    Ok((now, rows))
}
