//! Group commit: plain calls of many runs in one statement.
//!
//! A batch does the same as the verb would do for each of its calls, or leaves it alone: what a batch leaves alone is run
//! by the verb, which gives it its reason.

use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error as PgError, Row, Statement};

use super::queue::{Failure, Job, Worker, failed};
use super::rows::{is_collision, is_refused};
use super::server::{Line, PAUSE, Server};
use crate::clock::Clock;
use crate::error::{Error, Source};
use crate::store::BATCH_CALLS;

/// Batches of one kind under way at once: while one waits for the disk the other uses the processor.
const WRITERS: usize = 2;
/// How often a batch is sent that meets others, before it leaves its calls alone.
const ATTEMPTS: usize = 5;

/// A kind of call that can be written with many of its like.
pub(super) trait Kind: Send + Sync + 'static {
    type Call: Send + Sync + 'static;
    type Batch<'a>: Batch<'a, Call = Self::Call, Told = Self::Told>;
    /// What is told of a call that is done.
    type Told: Copy + Send + Sync + 'static;
    const MOST: usize;
    /// The statements, of which each batch takes one. The first two parameters are the mark and the time (null: the
    /// database's).
    const SQL: &'static [&'static str];
    /// Settings that this statement needs beside those of every connection.
    const SETTINGS: &'static str;
}

/// The calls of one statement.
pub(super) trait Batch<'a>: Send + Sync + Sized {
    type Call: 'a;
    fn of(calls: &[&'a Self::Call]) -> Self;
    /// Which of the statements it takes.
    fn statement(&self) -> usize;
    /// The parameters after the first two.
    fn params(&self) -> Vec<&(dyn ToSql + Sync)>;
    type Told;
    /// Reads the statement's answer: what it tells of each call, if that is done.
    fn done(&self, answer: &Row) -> Result<Vec<Option<Self::Told>>, PgError>;
    /// The same for a batch that took place, but whose answer is lost.
    fn found(&self, client: &Client)
    -> impl Future<Output = Result<Vec<Option<Self::Told>>, PgError>> + Send;
}

/// What a batch did with a call.
pub(super) enum Done<C, T> {
    /// It is durable; and what is told of it.
    Saved(C, T),
    /// Nothing.
    Left(C),
}

/// One connection of its own, and the batches that go over it.
pub(super) struct Writer<K> {
    server: Arc<Server>,
    session: Option<(Line, Vec<Statement>)>,
    /// How many calls share a statement.
    sizes: metrics::Histogram,
    kind: PhantomData<K>,
}

impl<K: Kind> Worker for Writer<K> {
    type Call = K::Call;
    type Answer = Done<K::Call, K::Told>;
    const MOST: usize = K::MOST;

    async fn work(&mut self, jobs: &mut Vec<Job<K::Call, Self::Answer>>) {
        self.sizes.record(f64::from(jobs.len() as u32));
        let written = {
            let calls: Vec<_> = jobs.iter().map(|job| &job.call).collect();
            self.write(&K::Batch::of(&calls)).await
        };
        for (i, job) in jobs.drain(..).enumerate() {
            job.answer(|call| match &written {
                Ok(told) => Ok(match told.get(i).copied().flatten() {
                    Some(told) => Done::Saved(call, told),
                    None => Done::Left(call),
                }),
                Err(failure) => Err(failed(failure)),
            });
        }
    }
}

impl<K: Kind> Writer<K> {
    pub(super) fn several(server: &Arc<Server>) -> impl Iterator<Item = Self> {
        let sizes = metrics::histogram!(BATCH_CALLS, "store" => "postgres");
        (0..WRITERS).map(move |_| {
            let (server, sizes) = (server.clone(), sizes.clone());
            Self { server, session: None, sizes, kind: PhantomData }
        })
    }

    /// Writes a batch, and tells of those calls that are done.
    async fn write(&mut self, batch: &K::Batch<'_>) -> Result<Vec<Option<K::Told>>, Failure> {
        for _ in 0..ATTEMPTS {
            let (mark, now) = (self.server.ids.uuid(), self.server.given().map(|now| now.0));
            let server = self.server.clone();
            let session = self.session().await?;
            let mut params: Vec<&(dyn ToSql + Sync)> = vec![&mark, &now];
            params.extend(batch.params());
            let asking = session.0.query_one(&session.1[batch.statement()], &params);
            let answer = server.answered(asking).await;
            let error: Source = match answer.map(|answer| answer.and_then(|row| batch.done(&row))) {
                Ok(Ok(told)) => return Ok(told),
                Ok(Err(error)) if is_collision(&error) => {
                    tracing::debug!(%error, "a batch has met another; again");
                    continue;
                }
                Ok(Err(error)) if is_refused(&error) => {
                    tracing::warn!(%error, "a batch was refused; its calls go on singly");
                    break;
                }
                Ok(Err(error)) => error.into(),
                Err(silent) => silent.into(),
            };
            tracing::warn!(%error, "the answer to a batch is lost; its mark will tell");
            self.session = None;
            let took = self.server.settle(mark).await;
            if took.map_err(|elapsed| (Error::Unknown as _, Arc::new(elapsed) as _))? {
                return self.found(batch).await;
            }
        }
        Ok(Vec::new())
    }

    async fn session(&mut self) -> Result<&(Line, Vec<Statement>), Failure> {
        if self.session.as_ref().is_none_or(|(line, _)| line.is_closed()) {
            match self.server.prepared(K::SETTINGS, K::SQL).await {
                Ok(session) => self.session = Some(session),
                Err(error) => {
                    // Callers may try again at once; the server that is down need not hear of it as often.
                    tokio::time::sleep(PAUSE).await;
                    return Err((Error::Unavailable, error.into()));
                }
            }
        }
        Ok(self.session.as_ref().expect("just made, if it was not there"))
    }

    async fn found(&self, batch: &K::Batch<'_>) -> Result<Vec<Option<K::Told>>, Failure> {
        let asking = async {
            loop {
                let line = self.server.reconnect().await;
                match self.server.asked(batch.found(&line)).await {
                    Ok(told) => return told,
                    Err(error) => tracing::debug!(%error, "a batch could not be looked up; trying again"),
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        let found = tokio::time::timeout(self.server.patience, asking).await;
        found.map_err(|elapsed| (Error::Unknown as _, Arc::new(elapsed) as _))
    }
}
