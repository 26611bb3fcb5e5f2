//! The one workflow that executes every program. Its result tells each effect's number, so that what a run believes can be
//! held against what the recorder knows.

use std::pin::Pin;
use std::time::Duration;

use semel::sdk::Either;
use semel::tx::deadpool_postgres::Pool;
use semel::tx::{SqliteDb, SqliteTx};
use semel::{Attempt, Ctx, Fail, Once, Result, Retry, fatal};

use crate::outside::{Ask, Outside, PATIENCE};
use crate::program::{Act, Kind, PARTS, Program, below, token};
use crate::rows::ANSWER;

/// The name of the workflow, and of the queue of its remote steps.
pub(crate) const WORKFLOW: &str = "program";
pub(crate) const QUEUE: &str = "elsewhere";

/// What a run tells of itself: where something took place, and its number.
pub(crate) type Told = Vec<(String, u64)>;

/// The database of transactional steps.
#[derive(Clone)]
pub(crate) enum Rows {
    Sqlite(SqliteDb),
    Postgres(Pool),
}

/// The database may be away for a while, and the recorder fails often: no step gives up.
pub(crate) fn stubborn() -> Retry {
    Retry::fixed(Duration::from_millis(40)).max_attempts(10_000)
}

pub(crate) async fn execute(ctx: Ctx, program: Program) -> Result<Told> {
    let Program { place, acts } = program;
    match run_all(&ctx, &place, String::new(), &acts).await {
        Err(fail) if fail.is_cancelled() => {
            clean_up(&ctx.cleanup(), &place).await?;
            Err(fail)
        }
        ended => ended,
    }
}

async fn clean_up(ctx: &Ctx, place: &str) -> Result<()> {
    for part in PARTS {
        step(ctx, place, "clean up", Some(part)).await?;
        ctx.sleep(format!("after {part}"), Duration::from_millis(20)).await?;
    }
    Ok(())
}

type Running<'a> = Pin<Box<dyn Future<Output = Result<Told>> + Send + 'a>>;

fn run_all<'a>(ctx: &'a Ctx, place: &'a str, scope: String, acts: &'a [Act]) -> Running<'a> {
    Box::pin(async move {
        let mut told = Vec::new();
        for act in acts {
            told.extend(run(ctx, place, &scope, act).await?);
        }
        Ok(told)
    })
}

async fn run(ctx: &Ctx, place: &str, scope: &str, act: &Act) -> Result<Told> {
    match act {
        Act::Step { .. }
        | Act::Fatal { .. }
        | Act::Letter { .. }
        | Act::Asked { .. }
        | Act::Tx { .. }
        | Act::Remote { .. }
        | Act::Repeat { .. } => effects(ctx, place, scope, act).await,
        Act::Loop { n, times, acts } => {
            let mut told = Vec::new();
            for i in 0..*times {
                let part = format!("l{n}-{i}");
                told.extend(run_all(&ctx.scope(&part), place, format!("{scope}{part}/"), acts).await?);
            }
            Ok(told)
        }
        Act::Join { n, left, right } => {
            let (one, two) = (format!("left{n}"), format!("right{n}"));
            let (left_ctx, right_ctx) = (ctx.scope(&one), ctx.scope(&two));
            let (left, right) = tokio::join!(
                run_all(&left_ctx, place, format!("{scope}{one}/"), left),
                run_all(&right_ctx, place, format!("{scope}{two}/"), right),
            );
            Ok([left?, right?].concat())
        }
        Act::Race { n, millis, acts } => {
            let name = format!("race{n}");
            let part = ctx.scope(&name);
            let work = run_all(&part, place, format!("{scope}{name}/"), acts);
            let limit = ctx.sleep(format!("limit{n}"), Duration::from_millis(*millis));
            match ctx.race(&name, work, limit).await? {
                Either::A(told) => told,
                Either::B(fired) => fired.map(|()| Vec::new()),
            }
        }
        Act::Nap { n, millis } => {
            let before = step(ctx, place, &format!("b{n}"), None).await?;
            ctx.sleep(format!("nap{n}"), Duration::from_millis(*millis)).await?;
            let after = step(ctx, place, &format!("a{n}"), None).await?;
            Ok(vec![before, after])
        }
        Act::Hook { n, payloads } => {
            let token = token(place, scope, *n);
            let (mut hook, mut told) = (ctx.hook::<u64>(token.clone()), Vec::new());
            for i in 0..*payloads {
                told.push((format!("{token} {i}"), hook.recv().await?));
            }
            Ok(told)
        }
        Act::Bulk(bulk) => bulk.run(ctx, place).await,
        Act::Ballast { text } => Ok(vec![(text.clone(), 0)]),
        Act::Once { label } => {
            let outside = ctx.state::<Outside>();
            let name = format!("once {label}");
            let rate = ctx.run_once(name.clone(), async || outside.rate(*label).await);
            Ok(vec![(name, rate.scope(Once::Workspace).await?)])
        }
        Act::Child { n, acts } => {
            let program = Program { place: below(place, scope, *n), acts: acts.clone() };
            ctx.child(execute, program).key(format!("{}{n}", scope.replace('/', "."))).await?.result().await
        }
    }
}

/// A step with a key; gives where it took place and its number.
async fn step(ctx: &Ctx, place: &str, name: &str, key: Option<&str>) -> Result<(String, u64)> {
    let outside = ctx.state::<Outside>();
    let step = ctx.step(name).retry(stubborn()).timeout(PATIENCE);
    let step = match key {
        Some(key) => step.key(key),
        None => step,
    };
    let call = async |attempt: Attempt| {
        let ask = Ask::of(Kind::Keyed, place, &attempt);
        let number = outside.effect(&ask).await?;
        Ok((ask.at, number))
    };
    step.run(call).await
}

async fn effects(ctx: &Ctx, place: &str, scope: &str, act: &Act) -> Result<Told> {
    let outside = ctx.state::<Outside>();
    let blind = async |attempt: Attempt| outside.effect(&Ask::of(Kind::Blind, place, &attempt)).await;
    let at = |name: &str| format!("{place} {scope}{name}");
    match act {
        Act::Fatal { n } => {
            let call = async |attempt: Attempt| {
                outside.effect(&Ask::of(Kind::Keyed, place, &attempt)).await?;
                Err::<(), _>(fatal("as planned"))
            };
            let failed = ctx.step(format!("s{n}")).retry(stubborn()).timeout(PATIENCE).run(call).await;
            match failed {
                Err(fail) if fail.is_fatal() => Ok(Vec::new()),
                Err(fail) => Err(fail),
                Ok(()) => Err(fatal("a step that always fails has succeeded")),
            }
        }
        Act::Letter { n } => {
            let name = format!("s{n}");
            // What the recorder says it has refused has not taken place, but others have asked meanwhile.
            let number = ctx.step(&name).at_most_once().timeout(PATIENCE).run(blind).await?;
            Ok(vec![(at(&name), number)])
        }
        Act::Asked { n } => {
            let name = format!("s{n}");
            let look = async |attempt: Attempt| outside.look(&Ask::of(Kind::Blind, place, &attempt)).await;
            let step = ctx.step(&name).retry(stubborn()).timeout(PATIENCE).reconcile(look);
            Ok(vec![(at(&name), step.run(blind).await?)])
        }
        Act::Tx { n } => {
            let name = format!("s{n}");
            let number = row(ctx, &name, at(&name)).await?;
            Ok(vec![(at(&name), number)])
        }
        Act::Remote { n } => {
            let name = format!("s{n}");
            let remote = ctx.remote::<u64>(&name, QUEUE, place).retry(stubborn()).timeout(PATIENCE);
            Ok(vec![(at(&name), remote.await?)])
        }
        Act::Repeat { n, times, indexed } => {
            let mut told = Vec::new();
            for i in 1..=*times {
                let step = ctx.step(format!("s{n}")).retry(stubborn()).timeout(PATIENCE);
                let step = if *indexed { step.indexed() } else { step.key(i) };
                let call = async |attempt: Attempt| {
                    let ask = Ask::of(Kind::Keyed, place, &attempt);
                    let number = outside.effect(&ask).await?;
                    Ok((ask.at, number))
                };
                told.push(step.run(call).await?);
            }
            Ok(told)
        }
        Act::Step { n } => Ok(vec![step(ctx, place, &format!("s{n}"), None).await?]),
        other => Err(Fail::retryable(format_args!("{other:?} is no step"))),
    }
}

/// A row in the database of the harness, whose table refuses nothing: only the fence keeps it from being there twice.
pub(crate) async fn row(ctx: &Ctx, name: &str, at: String) -> Result<u64> {
    let rows = ctx.state::<Rows>();
    match &*rows {
        Rows::Sqlite(db) => {
            let insert = async |mut tx: SqliteTx| {
                let (at, key) = (at.clone(), tx.attempt().key().to_owned());
                let number: i64 = tx
                    .call(move |conn| {
                        let sql = "INSERT INTO effects (place, effect_key) VALUES (?1, ?2) RETURNING number";
                        Ok(conn.query_row(sql, [at, key], |row| row.get(0))?)
                    })
                    .await?;
                tx.commit(number as u64).await
            };
            ctx.tx(name, db).retry(stubborn()).timeout(2 * ANSWER).run(insert).await
        }
        Rows::Postgres(pool) => {
            let insert = async |tx: semel::tx::PgTx| {
                let sql = "INSERT INTO effects (place, effect_key) VALUES ($1, $2) RETURNING number";
                let number: i64 = tx.query_one(sql, &[&at, &tx.attempt().key()]).await?.try_get(0)?;
                tx.commit(number as u64).await
            };
            ctx.tx(name, pool).retry(stubborn()).timeout(2 * ANSWER).run(insert).await
        }
    }
}
