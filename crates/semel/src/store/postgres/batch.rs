//! Group commit: plain calls of many runs in one statement.
//!
//! A batch does the same as the verb would do for each of its calls, or leaves it alone: what a batch leaves alone is run
//! by the verb, which gives it its reason.

use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error as PgError, Row, Statement};
use uuid::Uuid;

use super::queue::{Failure, Worker, failed};
use super::rows::{is_collision, is_refused};
use super::server::{Line, PAUSE, Server};
use crate::clock::Clock;
use crate::error::{Error, Result, Source};
use crate::store::BATCH_CALLS;

/// Batches of one kind under way at once: while one waits for the disk the other uses the processor.
pub(super) const WRITERS: usize = 2;
/// How often a batch is sent that meets others, before it leaves its calls alone.
const ATTEMPTS: usize = 5;

/// The rows of a statement, made of its parameters.
#[derive(Clone, Copy)]
pub(super) enum Rows {
    /// One: whoever is alone waits for every part of a plan.
    One,
    /// One for each element of arrays.
    Many,
}

impl Rows {
    /// The columns of these types, from this parameter on.
    pub(super) fn of(self, first: usize, types: &[&str]) -> String {
        let array = matches!(self, Self::Many).then_some("[]").unwrap_or_default();
        let columns = types.iter().zip(first..).map(|(ty, n)| format!("${n}::{ty}{array}"));
        let columns = columns.collect::<Vec<_>>().join(", ");
        match self {
            Self::One => format!("(SELECT {columns})"),
            Self::Many => format!("unnest({columns})"),
        }
    }
}

/// A kind of call that can be written with many of its like.
pub(super) trait Kind: Send + Sync + 'static {
    type Call: Send + Sync + 'static;
    type Batch<'a>: Batch<'a, Call = Self::Call, Told = Self::Told>;
    /// What is told of a call that is done.
    type Told: Copy + Send + Sync + 'static;
    const MOST: usize;
    /// The statements, of which each batch takes one.
    fn sql() -> Vec<String>;
    /// Settings that this statement needs beside those of every connection.
    const SETTINGS: &'static str;
}

/// What a batch is sent with.
#[derive(Default)]
pub(super) struct Stamp {
    pub(super) mark: Option<Uuid>,
    /// The time, if it is not the database's.
    pub(super) now: Option<i64>,
}

/// The calls of one statement.
pub(super) trait Batch<'a>: Send + Sync + Sized {
    type Call: 'a;
    fn of(calls: &[&'a Self::Call]) -> Self;
    /// Whether it needs a mark, by which it is known whether it took place if its answer is lost. One that does nothing the
    /// second time is sent again instead.
    fn needs_mark(&self) -> bool;
    /// Which of the statements it takes.
    fn statement(&self) -> usize;
    /// The parameters.
    fn params<'p>(&'p self, stamp: &'p Stamp) -> Vec<&'p (dyn ToSql + Sync)>;
    type Told;
    /// Reads the statement's answer: what it tells of each call, if that is done.
    fn done(&self, answer: &[Row]) -> Result<Vec<Option<Self::Told>>, PgError>;
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

/// What came of sending a batch.
enum Sent<T> {
    Answered(T),
    /// It has met another, and did nothing.
    Met,
    /// The database does not take it.
    Refused(PgError),
    /// Nobody knows.
    Lost(Source),
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

    async fn work(&mut self, calls: Vec<K::Call>) -> Vec<Result<Self::Answer>> {
        self.sizes.record(f64::from(calls.len() as u32));
        let written = {
            let calls: Vec<_> = calls.iter().collect();
            self.write(&K::Batch::of(&calls)).await
        };
        let answer = |(i, call)| match &written {
            Ok(told) => Ok(match told.get(i).copied().flatten() {
                Some(told) => Done::Saved(call, told),
                None => Done::Left(call),
            }),
            Err(failure) => Err(failed(failure)),
        };
        calls.into_iter().enumerate().map(answer).collect()
    }
}

/// What each call of a batch is told, if it is done.
type Told<K> = Vec<Option<<K as Kind>::Told>>;

impl<K: Kind> Writer<K> {
    pub(super) fn new(server: &Arc<Server>) -> Self {
        let sizes = metrics::histogram!(BATCH_CALLS, "store" => "postgres");
        Self { server: server.clone(), session: None, sizes, kind: PhantomData }
    }

    /// Writes a batch, and tells of those calls that are done.
    async fn write(&mut self, batch: &K::Batch<'_>) -> Result<Told<K>, Failure> {
        for _ in 0..ATTEMPTS {
            let mark = batch.needs_mark().then(|| self.server.ids.uuid());
            let error = match self.send(batch, mark).await? {
                Sent::Answered(told) => return Ok(told),
                Sent::Met => continue,
                Sent::Refused(error) => {
                    tracing::warn!(%error, "a batch was refused; its calls go on singly");
                    break;
                }
                Sent::Lost(error) => error,
            };
            self.session = None;
            let Some(mark) = mark else {
                tracing::warn!(%error, "the answer to a batch is lost; it is sent again");
                return self.send_again(batch).await;
            };
            tracing::warn!(%error, "the answer to a batch is lost; its mark will tell");
            if self.server.settle(mark).await.map_err(unknown)? {
                return self.found(batch).await;
            }
        }
        Ok(Vec::new())
    }

    /// Sends a batch once.
    async fn send(&mut self, batch: &K::Batch<'_>, mark: Option<Uuid>) -> Result<Sent<Told<K>>, Failure> {
        let server = self.server.clone();
        let stamp = Stamp { mark, now: server.given().map(|now| now.0) };
        let (line, statements) = self.session().await?;
        let params = batch.params(&stamp);
        let answer = server.answered(line.query(&statements[batch.statement()], &params)).await;
        Ok(match answer.map(|answer| answer.and_then(|rows| batch.done(&rows))) {
            Ok(Ok(told)) => Sent::Answered(told),
            Ok(Err(error)) if is_collision(&error) => {
                tracing::debug!(%error, "a batch has met another; again");
                Sent::Met
            }
            Ok(Err(error)) if is_refused(&error) => Sent::Refused(error),
            Ok(Err(error)) => Sent::Lost(error.into()),
            Err(silent) => Sent::Lost(silent.into()),
        })
    }

    /// Sends a batch whose answer is lost, until there is one. If the lost one is still under way, this waits behind its locks
    /// for its end; if it comes later, it finds nothing to do. What it has done is found.
    async fn send_again(&mut self, batch: &K::Batch<'_>) -> Result<Told<K>, Failure> {
        let server = self.server.clone();
        let asking = async {
            loop {
                let error = match self.send(batch, None).await {
                    Ok(Sent::Answered(mut told)) => match self.look(batch).await {
                        Ok(found) => {
                            told.resize(told.len().max(found.len()), None);
                            told.iter_mut().zip(found).for_each(|(told, found)| *told = told.or(found));
                            return Ok(told);
                        }
                        Err(error) => error,
                    },
                    Ok(Sent::Met) => continue,
                    // It was not, the first time: this says nothing of what became of that.
                    Ok(Sent::Refused(error)) => return Err(unknown(error)),
                    Ok(Sent::Lost(error)) => error,
                    Err((_, error)) => error.into(),
                };
                tracing::debug!(%error, "a batch could not be sent again; trying once more");
                self.session = None;
                tokio::time::sleep(PAUSE).await;
            }
        };
        tokio::time::timeout(server.patience, asking).await.map_err(unknown)?
    }

    /// Looks for what a batch has done.
    async fn look(&mut self, batch: &K::Batch<'_>) -> Result<Told<K>, Source> {
        let server = self.server.clone();
        let (line, _) = self.session().await.map_err(|(_, error)| Source::from(error))?;
        server.asked(batch.found(line)).await
    }

    async fn session(&mut self) -> Result<&(Line, Vec<Statement>), Failure> {
        if self.session.as_ref().is_none_or(|(line, _)| line.is_closed()) {
            match self.server.prepared(K::SETTINGS, &K::sql()).await {
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

    async fn found(&self, batch: &K::Batch<'_>) -> Result<Told<K>, Failure> {
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
        tokio::time::timeout(self.server.patience, asking).await.map_err(unknown)
    }
}

/// Nobody knows what became of a batch.
fn unknown(error: impl std::error::Error + Send + Sync + 'static) -> Failure {
    (Error::Unknown, Arc::new(error))
}
