//! Semel: a durable workflow engine in which every effect takes place once.
//!
//! A workflow is a plain async function. What it does that must happen once, it does through its [`Ctx`], under a name:
//!
//! ```
//! use semel::{Ctx, Engine, Result, Retry};
//! use std::time::Duration;
//!
//! async fn process_order(ctx: Ctx, cents: u64) -> Result<String> {
//!     // Keyed: the body may run again after a crash, always with the same key for the provider.
//!     let charge = ctx
//!         .step("charge")
//!         .retry(Retry::exponential().max_attempts(5))
//!         .timeout(Duration::from_secs(10))
//!         .run(async |attempt| Ok(format!("{cents} cents under {}", &attempt.key()[..2])))
//!         .await?;
//!     for item in ["ink", "pens"] {
//!         // A name per item: `pack[ink]`, `pack[pens]`.
//!         ctx.step("pack").key(item).run(async |_| Ok(())).await?;
//!     }
//!     Ok(charge)
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<()> {
//! # let file = "memory:";
//! // One SQLite file, or `postgres://…` for several engines that share the work.
//! let engine = Engine::builder().store(file).workflow("process-order", process_order).open().await?;
//!
//! // The same request twice is one run: the key identifies it, over crashes and deploys, for 90 days after its end.
//! let run = engine.start(process_order, 1999).key("order-7").await?;
//! let again = engine.start(process_order, 1999).key("order-7").await?;
//! assert!(run.created() && !again.created());
//! assert_eq!(again.result().await?, "1999 cents under e1");
//!
//! // The same key for something else is refused.
//! let error = engine.start(process_order, 5000).key("order-7").await.unwrap_err();
//! assert_eq!(error.code(), "KEY_REUSED");
//! # Ok(())
//! # }
//! ```
//!
//! # The tour
//!
//! | you want | you write | what is promised |
//! |---|---|---|
//! | an effect with a key | [`ctx.step("charge").run(..)`](Ctx::step) | once recorded, never run again; until then the same [key](Attempt::key) on every attempt |
//! | an effect that must not repeat | [`.at_most_once()`](sdk::Step::at_most_once) | never twice; if a crash hides its end it is `IN_DOUBT`, and [an operator decides](RunHandle::happened) |
//! | … and a provider that can be asked | [`.reconcile(look_up)`](sdk::Step::reconcile) | found: adopted; absent: run again; unknown: in doubt |
//! | a call of a known provider | [`.profile(&RESEND)`](sdk::Step::profile) | repeated with the same key while the provider remembers it; then in doubt ([`profiles`]) |
//! | rows in your own database | [`ctx.tx("debit", &pool).run(..)`](Ctx::tx) | rows and outcome in one commit: exactly once ([`tx`]) |
//! | the same thing once for many | [`ctx.run_once("rates", ..)`](Ctx::run_once) | one execution per label: in the run, under the key, or in the workspace |
//! | to wait | [`ctx.sleep("cool-off", ..)`](Ctx::sleep) | never early, once; needs no memory meanwhile |
//! | input from outside | [`ctx.hook("order:7")`](Ctx::hook), [`engine.deliver(..)`](Engine::deliver) | each delivery consumed once, in order; one owner per token |
//! | other runs | [`ctx.child(total_of, items)`](Ctx::child) | started once, heard of at its end, told of a cancel |
//! | a step done elsewhere | [`ctx.remote("charge", "payments", input)`](Ctx::remote) | taken by any worker of the queue, always with the same key; late reports are refused |
//! | things side by side | `tokio::join!` over [`ctx.scope("left")`](Ctx::scope) | names, not counters: any order will do |
//! | a pass of a loop with several steps | [`ctx.scope_keyed("pack", item)`](Ctx::scope_keyed) | paths of its own: `pack[ink]/label` |
//! | whichever comes first | [`ctx.race("first", a, b)`](Ctx::race) | the winner is recorded |
//! | time, random values | [`ctx.now("ordered")`](Ctx::now), [`ctx.random("sample")`](Ctx::random), [`ctx.uuid("invoice")`](Ctx::uuid) | the same in every replay |
//! | a decision that must stay | [`ctx.record("is-large", large)`](Ctx::record) | the recorded value in every replay; no write of its own |
//! | to change code under open runs | [`ctx.patched("check-stock-first")`](Ctx::patched) | decided once per run, and recorded |
//! | an error that programs can read | [`fatal("no").with_code("DECLINED")`](Fail::with_code) | code and data are recorded with the failure |
//! | workflows that are not known at compile time | [`builder.programs(..)`](engine::Builder::programs), [`builder.family("doc1_", interpret)`](engine::Builder::family) | driven in every workspace; a claim costs the same for ten thousand as for one |
//! | to clean up | [`run.request_cancel(..)`](RunHandle::request_cancel), [`ctx.cleanup()`](Ctx::cleanup) | clean-up steps run, then the run is cancelled |
//! | to end it now | [`run.cancel(..)`](RunHandle::cancel) | the answer says who won; after a won cancel nothing is recorded, and no step begins here |
//! | to see runs | [`engine.list()`](Engine::list), [`engine.counts()`](Engine::counts) | by status, workflow and time, page by page; open and paused runs by workflow |
//! | to start runs from another program | [`Client`] | drives nothing; over PostgreSQL or a server |
//! | to decide about duplicates | [`.on_conflict(OnConflict::SUPERSEDE)`](engine::Begin::on_conflict) | decided in the transaction of the start |
//!
//! Before an effect begins, everything the workflow has recorded so far is durable; a run of n steps costs one start
//! and n writes, shared with all other runs of the process. After a crash, a deploy or a takeover the function is
//! called again and given its recorded results, until it has visited all of them. If its code no longer fits, because
//! a step was renamed, removed or moved, no effect begins: the run is paused, and says which step.
//!
//! # Layers
//!
//! - [`sdk`]: what workflows are written with. [`engine`]: what starts, drives and controls runs.
//! - [`store`]: where runs are kept, one method for each durable transition: [`memory`](store::memory),
//!   [`sqlite`](store::sqlite), `postgres`. [`rules`]: every decision, as pure functions over plain data.
//!
//! # Features
//!
//! - `sqlite` (default): the embedded store.
//! - `postgres`: the store for several processes.
//! - `sqlx`, or one of `sqlx-postgres` and `sqlx-sqlite`: transactional steps ([`tx`]) on pools of sqlx 0.9. A program
//!   links one SQLite: sqlx 0.9 and Semel agree on that of rusqlite 0.39.
//! - `remote`: the store of a server elsewhere ([`remote`]): workflows in another process than their runs.
//! - `testing`: for tests of your workflows: a clock that stands still, effects that count, a crash at every boundary; and the
//!   suite that every store passes. It adds no dependency.
//! - `openapi`: schemas of what travels between workers and a server, for the server's description of its routes.
//! - `proptest`: `testing`, with random calls that compare several stores and damaged texts for readers.

pub mod clock;
pub mod engine;
pub mod error;
mod fail;
pub mod id;
mod map;
pub mod metrics;
#[cfg(feature = "openapi")]
mod openapi;
pub mod profiles;
#[cfg(feature = "remote")]
pub mod remote;
pub mod rules;
#[doc(hidden)]
pub mod sabotage;
pub mod sdk;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;

pub use engine::{Client, Engine, History, Limits, Replay, Replays, RunHandle};
pub use error::{Error, ErrorCode};
pub use fail::{Fail, FailExt, Result, fatal};
pub use rules::retry::Retry;
pub use rules::start::Policy as OnConflict;
pub use sdk::tx;
pub use sdk::{Attempt, Ctx, Once, WorkflowName, WorkflowRef};
