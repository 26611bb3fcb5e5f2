//! A tap on the way to the databases of a block: it counts their calls, and stops one of them.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use semel::tx::{BranchName, Dialect, FenceMark, FenceRow, TwoPhase, TxSource};
use semel::{Fail, Result};
use tokio::sync::Notify;

use super::super::bank::{Bank, Place};

/// How the chosen call is disturbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It waits until it is let go, and takes place then.
    Before,
    /// It is under way when the test hears of it, and not stopped.
    During,
    /// It takes place, and its answer waits until it is let go.
    After,
    /// It does not take place, and that is its answer.
    Fails,
    /// It takes place, and its answer is an error.
    Lost,
    /// It does not take place, and its answer is that it has.
    Lies,
}

/// The calls of one engine to all databases of a block, in their order.
#[derive(Default)]
pub(crate) struct Line {
    stop: Option<(u32, Stop)>,
    count: AtomicU32,
    met: AtomicBool,
    log: Mutex<Vec<&'static str>>,
    /// Told when the chosen call is met.
    stopped: Notify,
    go: Notify,
}

impl Line {
    pub(crate) fn free() -> Arc<Self> {
        Arc::default()
    }

    /// The n-th call is stopped, from 1.
    pub(crate) fn stops(number: u32, how: Stop) -> Arc<Self> {
        Arc::new(Self { stop: Some((number, how)), ..Self::default() })
    }

    /// The calls so far.
    pub(crate) fn log(&self) -> Vec<&'static str> {
        self.log.lock().expect("no test panics with it").clone()
    }

    pub(crate) fn count(&self, what: &str) -> usize {
        self.log().iter().filter(|call| **call == what).count()
    }

    pub(crate) async fn stopped(&self) {
        self.stopped.notified().await;
    }

    pub(crate) fn has_met(&self) -> bool {
        self.met.load(Ordering::SeqCst)
    }

    pub(crate) fn let_go(&self) {
        self.go.notify_one();
    }

    fn meet(&self) {
        self.met.store(true, Ordering::SeqCst);
        self.stopped.notify_one();
    }

    /// Counts a call; gives what is to become of it.
    fn count_call(&self, what: &'static str) -> Option<Stop> {
        let number = self.count.fetch_add(1, Ordering::SeqCst) + 1;
        self.log.lock().expect("no test panics with it").push(what);
        self.stop.filter(|(at, _)| *at == number).map(|(_, how)| how)
    }

    async fn call<T>(&self, what: &'static str, call: impl Future<Output = Result<T>>) -> Result<T> {
        let stop = self.count_call(what);
        self.answer(stop, call).await
    }

    async fn answer<T>(&self, stop: Option<Stop>, call: impl Future<Output = Result<T>>) -> Result<T> {
        match stop {
            None => call.await,
            Some(Stop::Before) => {
                self.meet();
                self.go.notified().await;
                call.await
            }
            Some(Stop::During) => {
                self.meet();
                call.await
            }
            Some(Stop::After) => {
                let answer = call.await;
                self.meet();
                self.go.notified().await;
                answer
            }
            Some(Stop::Fails | Stop::Lies) => Err(Fail::retryable("the call failed, on purpose")),
            Some(Stop::Lost) => {
                drop(call.await);
                Err(Fail::retryable("the answer is lost, on purpose"))
            }
        }
    }
}

/// A database with a tap on the way to it.
#[derive(Clone)]
pub(crate) struct Lined<S> {
    bank: S,
    line: Arc<Line>,
}

impl<S: Bank> Lined<S> {
    pub(crate) fn new(bank: &S, line: &Arc<Line>) -> Self {
        Self { bank: bank.clone(), line: line.clone() }
    }
}

impl<S: Bank> TxSource for Lined<S> {
    type Open = (S::Open, Arc<Line>);
    type Conn = S::Conn;
    const DIALECT: Dialect = S::DIALECT;

    async fn begin(&self) -> Result<Self::Open> {
        let begin = TxSource::begin(&self.bank);
        Ok((self.line.call("begin", begin).await?, self.line.clone()))
    }

    async fn script(&self, sql: &str) -> Result<()> {
        match self.line.count_call("script") {
            Some(Stop::Lies) => {
                self.line.meet();
                Ok(())
            }
            stop => self.line.answer(stop, self.bank.script(sql)).await,
        }
    }

    async fn find((open, line): &mut Self::Open, sql: &str, key: &str) -> Result<Option<FenceRow>> {
        line.call("find", S::find(open, sql, key)).await
    }

    async fn put(
        (open, line): &mut Self::Open,
        sql: &str,
        mark: &FenceMark,
        outcome: Option<&str>,
    ) -> Result<u64> {
        line.call("put", S::put(open, sql, mark, outcome)).await
    }

    async fn commit((open, line): Self::Open) -> Result<()> {
        line.call("commit", S::commit(open)).await
    }

    async fn rollback((open, line): Self::Open) -> Result<()> {
        line.call("rollback", S::rollback(open)).await
    }

    fn conn(open: &Self::Open) -> &S::Conn {
        S::conn(&open.0)
    }

    fn conn_mut(open: &mut Self::Open) -> &mut S::Conn {
        S::conn_mut(&mut open.0)
    }
}

impl<S: Bank + TwoPhase> TwoPhase for Lined<S> {
    async fn begin_branch(&self, name: &BranchName) -> Result<Self::Open> {
        let begin = self.bank.begin_branch(name);
        Ok((self.line.call("begin_branch", begin).await?, self.line.clone()))
    }

    async fn begin_brief(&self) -> Result<Self::Open> {
        Ok((self.line.call("begin_brief", self.bank.begin_brief()).await?, self.line.clone()))
    }

    async fn prepare((open, line): Self::Open, name: &BranchName) -> Result<()> {
        line.call("prepare", S::prepare(open, name)).await
    }

    async fn prepared(&self) -> Result<Vec<BranchName>> {
        self.line.call("prepared", self.bank.prepared()).await
    }
}

/// Two accounts in two databases, and what lies between them and one engine.
pub(crate) struct Pair<A, B> {
    pub(crate) left: Lined<A>,
    pub(crate) right: Lined<B>,
}

/// Two accounts that outlive their engines.
pub(crate) struct Accounts<A, B> {
    pub(crate) left: A,
    pub(crate) right: B,
    _places: [Place; 2],
}

impl<A: Bank + TwoPhase, B: Bank + TwoPhase> Accounts<A, B> {
    pub(crate) async fn open() -> Result<Self> {
        let places = [Place::new(), Place::new()];
        Ok(Self { left: places[0].fresh().await?, right: places[1].fresh().await?, _places: places })
    }

    pub(crate) fn through(&self, line: &Arc<Line>) -> Pair<A, B> {
        Pair { left: Lined::new(&self.left, line), right: Lined::new(&self.right, line) }
    }

    /// What is left, how many entries there are, and how many outcomes, in each of them.
    pub(crate) async fn state(&self) -> Result<[(i64, i64, i64); 2]> {
        Ok([self.left.state().await?, self.right.state().await?])
    }

    /// The prepared branches of a run, in both.
    pub(crate) async fn prepared(&self, run: &str) -> Result<Vec<BranchName>> {
        let mut all = self.left.prepared().await?;
        all.extend(self.right.prepared().await?);
        all.retain(|branch| branch.run == run);
        all.sort();
        all.dedup();
        Ok(all)
    }
}
