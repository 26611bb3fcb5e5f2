//! The world outside, as a process that is never killed: it applies effects, and treats its callers as badly as the
//! network and providers do.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use libtest_mimic::Failed;
use semel::clock::{Clock as _, SystemClock};
use semel::testing::Dice;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::books::{Books, Mode};
use crate::execute::Rows;
use crate::outside::{Ask, PATIENCE};
use crate::program::Kind;
use crate::rows::Row;

/// What a recorder is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) port: u16,
    pub(crate) rows: String,
    pub(crate) seed: u64,
}

/// Longer questions are none.
const LONGEST: usize = 64 * 1024;

struct Recorder {
    books: Mutex<Books>,
    /// How many calls are not answered yet.
    pending: watch::Sender<usize>,
    dice: Mutex<Dice>,
    clock: SystemClock,
    rows: String,
}

/// Answers until the process ends.
pub(crate) async fn record(place: Place) -> Result<(), Failed> {
    let recorder = Arc::new(Recorder {
        books: Mutex::default(),
        pending: watch::Sender::new(0),
        dice: Mutex::new(Dice::named(place.seed, "recorder")),
        clock: SystemClock::new(),
        rows: place.rows,
    });
    let listener = TcpListener::bind(("127.0.0.1", place.port)).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        let recorder = recorder.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| respond(recorder.clone(), request));
            // It ends with an error on purpose, or because the caller was killed.
            drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
        });
    }
}

/// What goes wrong with a question. Without an answer the connection ends.
type Wrong = Box<dyn std::error::Error + Send + Sync>;

/// A call is processed even if its caller has died: only so can a call arrive too late.
async fn respond(recorder: Arc<Recorder>, request: Request<Incoming>) -> Result<Response<Body>, Wrong> {
    let path = request.uri().path().to_owned();
    let body = to_bytes(Body::new(request.into_body()), LONGEST).await?;
    let (status, text) = tokio::spawn(async move { recorder.answer(&path, &body).await }).await??;
    Ok(Response::builder().status(status).body(Body::from(text))?)
}

type Answer = Result<(StatusCode, String), Wrong>;

fn ok(value: &impl Serialize) -> Answer {
    Ok((StatusCode::OK, serde_json::to_string(value)?))
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Wrong> {
    Ok(serde_json::from_slice(body)?)
}

impl Recorder {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().expect("no holder of the lock panics")
    }

    async fn answer(&self, path: &str, body: &[u8]) -> Answer {
        match path {
            "/effects" => self.effect(read(body)?).await,
            "/look-ups" => ok(&self.books().look(&read(body)?)),
            "/rates" => ok(&self.books().rate()),
            "/books" => {
                // What hangs is still going to be applied: books without it would be closed too early.
                self.pending.subscribe().wait_for(|pending| *pending == 0).await?;
                let rows = self.rows().await?;
                let mut books = self.books();
                books.rows = rows;
                ok(&*books)
            }
            "/doubled" => {
                let (mut seen, rows) = (HashSet::new(), self.rows().await?);
                let books = self.books();
                let blind = books.calls.iter().filter(|call| call.applied && call.ask.kind == Kind::Blind);
                let done = rows.iter().map(|row| &row.at).chain(blind.map(|call| &call.ask.at));
                ok(&done.filter(|at| !seen.insert(*at)).collect::<Vec<_>>())
            }
            // Tells the parent process that it listens.
            "/" => ok(&()),
            other => Err(format!("{other} is no question").into()),
        }
    }

    async fn rows(&self) -> Result<Vec<Row>, Wrong> {
        let rows = Rows::open(&self.rows).await.map_err(|fail| fail.to_string())?;
        Ok(rows.read().await.map_err(|fail| fail.to_string())?)
    }

    fn draw(&self) -> (Mode, Duration) {
        let mut dice = self.dice.lock().expect("no holder of the lock panics");
        let mode = match dice.below(1000) {
            0..40 => Mode::ApplyThenDrop,
            40..70 => Mode::ApplyThenError,
            70..100 => Mode::ErrorBefore,
            100..110 => Mode::Hang,
            110..190 => Mode::Slow,
            _ => Mode::Ok,
        };
        let pause = match mode {
            Mode::Slow => Duration::from_millis(dice.between(5, 120)),
            Mode::Hang => PATIENCE + Duration::from_millis(dice.between(50, 1500)),
            _ => Duration::ZERO,
        };
        (mode, pause)
    }

    async fn effect(&self, ask: Ask) -> Answer {
        let _pending = Pending::new(&self.pending);
        let (mode, pause) = self.draw();
        let call = self.books().come(ask, mode, self.clock.now());
        self.clock.until(self.clock.now().after(pause)).await;
        let error = Ok((StatusCode::INTERNAL_SERVER_ERROR, "something is wrong".to_owned()));
        if mode == Mode::ErrorBefore {
            return error;
        }
        let Some(number) = self.books().apply(call) else {
            return Ok((
                StatusCode::CONFLICT,
                "a look-up has reported that this would not happen".to_owned(),
            ));
        };
        match mode {
            Mode::ApplyThenDrop => Err("the answer is lost on purpose".into()),
            Mode::ApplyThenError => error,
            _ => ok(&number),
        }
    }
}

/// A call that is under way, as long as this is there.
struct Pending<'a>(&'a watch::Sender<usize>);

impl<'a> Pending<'a> {
    fn new(count: &'a watch::Sender<usize>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count)
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
