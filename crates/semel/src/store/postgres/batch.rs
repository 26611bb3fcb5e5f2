//! Group commit: plain calls of many runs in one statement.
//!
//! For each of its calls a batch either does the same as the verb, or writes nothing. The calls for which it wrote nothing are
//! then executed by the verb, which also says why a call is refused.

use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error as PgError, Row, Statement};
use uuid::Uuid;

use super::queue::{BatchError, Worker, failed};
use super::rows::{is_collision, is_refused};
use super::server::{DedicatedConnection, PAUSE, Server};
use crate::clock::Clock;
use crate::error::{Error, Result, Source};
use crate::metrics::BATCH_CALLS;

/// Batches of one kind under way at once, beside a call that is answered by its caller alone: while one waits for the disk the other uses
/// the processor.
pub(super) const WRITERS: usize = 2;
/// How often a batch that collides with others is sent, before its calls are left to the verb.
const ATTEMPTS: usize = 5;

/// How the parameters of a statement become its rows.
#[derive(Clone, Copy)]
pub(super) enum Rows {
    /// One row of parameters. A single call waits for every part of a plan, so its statement has no arrays.
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

    /// A column of them as a parameter.
    pub(super) fn column<T: ToSql + Sync>(self, all: &Vec<T>) -> &(dyn ToSql + Sync) {
        match self {
            Self::One => &all[0],
            Self::Many => all,
        }
    }
}

/// A kind of call of which many can be written by one statement.
pub(super) trait CallKind: Send + Sync + 'static {
    type Call: Send + Sync + 'static;
    type Batch<'a>: StatementBatch<'a, Call = Self::Call, Told = Self::Told>;
    /// Answer to a call of this kind.
    type Told: Copy + Send + Sync + 'static;
    const MOST: usize;
    /// How many bytes of values a call sends, roughly.
    fn weight(call: &Self::Call) -> usize;
    /// The statements, of which each batch takes one.
    fn sql() -> Vec<String>;
    /// Settings that this statement needs beside those of every connection.
    const SETTINGS: &'static str;
}

/// Mark and time of a batch.
#[derive(Default)]
pub(super) struct Stamp {
    pub(super) mark: Option<Uuid>,
    /// The time, if it is not the database's.
    pub(super) now: Option<i64>,
}

/// The calls of one statement.
pub(super) trait StatementBatch<'a>: Send + Sync + Sized {
    type Call: 'a;
    fn of(calls: &[&'a Self::Call]) -> Self;
    /// Whether it needs a mark, which tells whether it took place if its answer is lost. A batch that can be repeated needs
    /// none: it is sent again.
    fn needs_mark(&self) -> bool;
    /// A statement that is executed first, in the same transaction, with its parameter. It locks rows that the main statement
    /// reads without changing them. Most batches need none.
    fn lock(&self) -> Option<(usize, &(dyn ToSql + Sync))> {
        None
    }
    /// Index of its statement in [`CallKind::sql`].
    fn statement(&self) -> usize;
    /// The parameters.
    fn params<'p>(&'p self, stamp: &'p Stamp) -> Vec<&'p (dyn ToSql + Sync)>;
    type Told: Send;
    /// Reads the statement's answer: for each call its own, or `None` if it was not written.
    fn done(&self, answer: &[Row]) -> Result<Vec<Option<Self::Told>>, PgError>;
    /// Looks for the effects of a batch that was sent again because its answer was lost. The default finds none, for batches
    /// whose outcome is found in another way.
    fn found(
        &self,
        client: &Client,
    ) -> impl Future<Output = Result<Vec<Option<Self::Told>>, PgError>> + Send {
        let _ = client;
        std::future::ready(Ok(Vec::new()))
    }
}

/// Result of one call of a batch.
pub(super) enum Done<C, T> {
    /// It is durable, with this answer.
    Saved(C, T),
    /// It was not written and can be tried again.
    Left(C),
    /// Its answer is lost, and it was not found.
    Lost(C),
}

/// The result of sending a batch.
enum Sent<T> {
    Answered(T),
    /// It collided with another batch, and wrote nothing.
    Met,
    /// The database refused it.
    Refused(PgError),
    /// The answer is lost: the outcome is unknown.
    Lost(Source),
}

/// One connection of its own, and the batches that go over it.
pub(super) struct BatchWriter<K> {
    server: Arc<Server>,
    session: Option<(DedicatedConnection, Vec<Statement>)>,
    /// How many calls share a statement.
    sizes: metrics::Histogram,
    kind: PhantomData<K>,
}

impl<K: CallKind> Worker for BatchWriter<K> {
    type Call = K::Call;
    type Answer = Done<K::Call, K::Told>;
    const MOST: usize = K::MOST;

    fn weight(call: &K::Call) -> usize {
        K::weight(call)
    }

    async fn work(&mut self, calls: Vec<K::Call>) -> Vec<Result<Self::Answer>> {
        self.sizes.record(f64::from(calls.len() as u32));
        let written = {
            let calls: Vec<_> = calls.iter().collect();
            self.write(&K::Batch::of(&calls)).await
        };
        let answer = |(i, call)| match &written {
            Ok(Written { told, lost }) => Ok(match told.get(i).copied().flatten() {
                Some(told) => Done::Saved(call, told),
                None if *lost => Done::Lost(call),
                None => Done::Left(call),
            }),
            Err(failure) => Err(failed(failure)),
        };
        calls.into_iter().enumerate().map(answer).collect()
    }
}

/// Answers to the calls of a batch, in their order. None for a call that was not done.
type BatchAnswers<K> = Vec<Option<<K as CallKind>::Told>>;

/// Result of writing a batch.
struct Written<K: CallKind> {
    told: BatchAnswers<K>,
    /// Whether its answer was lost. Then the outcome of a call without an answer is unknown.
    lost: bool,
}

impl<K: CallKind> BatchWriter<K> {
    pub(super) fn new(server: &Arc<Server>) -> Self {
        let sizes = metrics::histogram!(BATCH_CALLS, "store" => "postgres");
        Self { server: server.clone(), session: None, sizes, kind: PhantomData }
    }

    /// Writes a batch, and tells of those calls that are done.
    async fn write(&mut self, batch: &K::Batch<'_>) -> Result<Written<K>, BatchError> {
        for _ in 0..ATTEMPTS {
            let mark = batch.needs_mark().then(|| self.server.ids.uuid());
            match (self.send(batch, mark).await?, mark) {
                (Sent::Answered(told), _) => return Ok(Written { told, lost: false }),
                (Sent::Met, _) => {}
                (Sent::Refused(error), _) => {
                    tracing::warn!(%error, "a batch was refused; its calls go on singly");
                    break;
                }
                (Sent::Lost(error), None) => {
                    tracing::warn!(%error, "the answer to a batch is lost; it is sent again");
                    return Ok(Written { told: self.send_again(batch).await?, lost: true });
                }
                (Sent::Lost(error), Some(mark)) => {
                    tracing::warn!(%error, "the answer to a batch is lost; its mark will tell");
                    if self.server.settle(mark).await.map_err(unknown)? {
                        return Ok(Written { told: Vec::new(), lost: true });
                    }
                }
            }
        }
        Ok(Written { told: Vec::new(), lost: false })
    }

    /// Sends a batch once.
    async fn send(
        &mut self,
        batch: &K::Batch<'_>,
        mark: Option<Uuid>,
    ) -> Result<Sent<BatchAnswers<K>>, BatchError> {
        let (server, session) = (self.server.clone(), self.take_session().await?);
        let (line, statements) = &session;
        let stamp = Stamp { mark, now: server.given().map(|now| now.0) };
        let params = batch.params(&stamp);
        let asking = async {
            let main = line.query(&statements[batch.statement()], &params);
            match batch.lock() {
                None => main.await,
                Some((lock, locked)) => {
                    let lock = async { line.query(&statements[lock], &[locked]).await };
                    in_transaction(line, lock, main).await
                }
            }
        };
        let answer = server.answered(asking).await;
        let sent = match answer.map(|answer| answer.and_then(|rows| batch.done(&rows))) {
            Ok(Ok(told)) => Sent::Answered(told),
            Ok(Err(error)) if is_collision(&error) => {
                tracing::debug!(%error, "a batch has met another; again");
                Sent::Met
            }
            Ok(Err(error)) if is_refused(&error) => Sent::Refused(error),
            Ok(Err(error)) => return Ok(Sent::Lost(error.into())),
            Err(silent) => return Ok(Sent::Lost(silent.into())),
        };
        self.session = Some(session);
        Ok(sent)
    }

    /// Sends a batch again whose answer was lost, until there is an answer. If the first one is still under way, this one waits
    /// for its locks; if the first one arrives later, it finds nothing to do. What either of them wrote is found.
    async fn send_again(&mut self, batch: &K::Batch<'_>) -> Result<BatchAnswers<K>, BatchError> {
        let patience = self.server.patience;
        let asking = async {
            loop {
                let error = match self.send(batch, None).await {
                    Ok(Sent::Answered(told)) => match self.look(batch).await {
                        Ok(found) => return either(told, found),
                        Err(error) => error,
                    },
                    Ok(Sent::Met) => continue,
                    // The first one was accepted, so this refusal says nothing about its outcome.
                    Ok(Sent::Refused(error)) => error.into(),
                    Ok(Sent::Lost(error)) => error,
                    Err((_, error)) => error.into(),
                };
                tracing::debug!(%error, "a batch could not be sent again; trying once more");
                tokio::time::sleep(PAUSE).await;
            }
        };
        tokio::time::timeout(patience, asking).await.map_err(unknown)
    }

    /// Looks for what a batch has done.
    async fn look(&mut self, batch: &K::Batch<'_>) -> Result<BatchAnswers<K>, Source> {
        let session = self.take_session().await.map_err(|(_, error)| Source::from(error))?;
        let found = self.server.asked(batch.found(&session.0)).await?;
        self.session = Some(session);
        Ok(found)
    }

    /// The connection. It is taken while a statement is under way and put back after the answer. If the caller is cancelled
    /// meanwhile, the connection is closed, so that the next call does not wait behind that statement.
    async fn take_session(&mut self) -> Result<(DedicatedConnection, Vec<Statement>), BatchError> {
        if let Some(session) = self.session.take().filter(|(line, _)| !line.is_closed()) {
            return Ok(session);
        }
        match self.server.prepared(K::SETTINGS, &K::sql()).await {
            Ok(session) => Ok(session),
            Err(error) => {
                // Callers may try again at once; a server that is down should not get each of these calls.
                tokio::time::sleep(PAUSE).await;
                Err((Error::Unavailable, error.into()))
            }
        }
    }
}

/// Two statements in one transaction, the answer of the second; one round trip.
async fn in_transaction<L, T>(
    line: &DedicatedConnection,
    lock: impl Future<Output = Result<L, PgError>>,
    main: impl Future<Output = Result<T, PgError>>,
) -> Result<T, PgError> {
    let (begin, commit) = (line.batch_execute("BEGIN"), line.batch_execute("COMMIT"));
    let (opened, locked, answer, committed) = tokio::join!(biased; begin, lock, main, commit);
    opened?;
    locked?;
    let answer = answer?;
    committed.map(|()| answer)
}

/// Joins two lists of answers to the same calls: of each call the answer that is there.
fn either<T: Copy>(told: Vec<Option<T>>, found: Vec<Option<T>>) -> Vec<Option<T>> {
    let found = found.into_iter().chain(std::iter::repeat(None));
    told.into_iter().zip(found).map(|(told, found)| told.or(found)).collect()
}

/// The error of a batch whose outcome is not known.
fn unknown(error: impl std::error::Error + Send + Sync + 'static) -> BatchError {
    (Error::Unknown, Arc::new(error))
}
