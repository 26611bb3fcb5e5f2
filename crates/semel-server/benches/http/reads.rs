//! Reads at a server with many ended runs: every list with every filter, `/readyz`, a ledger beside them, and the first
//! answer after a start.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::figures::Figures;
use crate::fill::{self, RARE};
use crate::server::Process;
use crate::wire::Wire;
use crate::{Anything, setting};

/// What is asked for: 99 of 100 answers come within this many milliseconds.
const GOAL: f64 = 25.0;
/// Answers for each question.
const TIMES: usize = 100;
/// Callers at the same time, where there are several.
const CALLERS: usize = 8;
/// Servers that are started one after the other.
const SERVERS: usize = 10;

pub(crate) async fn measure(figures: &mut Figures) -> Anything<()> {
    let runs: u64 = setting("SEMEL_BENCH_ENDED", 1_000_000);
    let mut server = Process::spawn()?;
    println!("Reads at a server on SQLite with {runs} ended runs");
    let template = template(&server).await?;
    server.kill()?;
    let begun = Instant::now();
    fill::sqlite(&server.file(), runs)?;
    println!("  filled in {:.0} s", begun.elapsed().as_secs_f64());
    all(&mut server, "reads.sqlite", &template, figures).await?;
    drop(server);
    let Ok(url) = std::env::var("SEMEL_TEST_POSTGRES") else {
        println!("PostgreSQL is left out: run under scripts/with-postgres");
        return Ok(());
    };
    println!("Reads at a server on PostgreSQL with {runs} ended runs");
    let mut server = Process::spawn_on(&url).await?;
    let template = self::template(&server).await?;
    server.kill()?;
    let begun = Instant::now();
    fill::postgres(&url, runs).await?;
    println!("  filled in {:.0} s", begun.elapsed().as_secs_f64());
    all(&mut server, "reads.postgres", &template, figures).await
}

/// The id of a run that is copied: started, then cancelled.
pub(crate) async fn template(server: &Process) -> Anything<String> {
    let mut wire = Wire::connect(&server.url).await?;
    let (status, answer) = wire
        .post("/workflow-runs", r#"{"workflow":"order","idempotencyKey":"template","input":{"cents":1999}}"#)
        .await?;
    if status >= 300 {
        return Err(answer.into());
    }
    let (_, id) = answer.split_once("\"run_").ok_or("a run")?;
    let id = format!("run_{}", &id[..26]);
    let (status, answer) = wire.post(&format!("/workflow-runs/{id}/cancel"), "{}").await?;
    if status == 200 { Ok(id) } else { Err(answer.into()) }
}

async fn all(server: &mut Process, name: &str, template: &str, figures: &mut Figures) -> Anything<()> {
    let mut first = Vec::new();
    for question in questions().iter().cycle().step_by(7).take(SERVERS) {
        server.kill()?;
        server.start()?;
        first.push(timed(&mut Wire::connect(&server.url).await?, question).await?.0);
    }
    figures.limit(&format!("{name}.firstAnswerMs"), millis(worst(first)), GOAL);
    lists(server, name, figures).await?;
    let ready = crowd(server, "/readyz", TIMES).await?;
    figures.limit(&format!("{name}.readyzMs"), millis(p99(ready)), GOAL);
    beside(server, name, template, figures).await
}

/// Questions beside the lists of states and workflows.
const OTHERS: [&str; 22] = [
    "workflow-runs?limit=500&status=FAILED&status=CANCELLED&status=TIMED_OUT",
    "workflow-runs?limit=500&workflow=order&workflow=refund&order=oldest",
    "workflow-runs?limit=500&workflowVersion=absent",
    "workflow-runs?limit=500&keyPrefix=filled-1",
    "workflow-runs?limit=500&keyPrefix=filled-99999",
    "workflow-runs?limit=500&keyPrefix=absent",
    "workflow-runs?limit=500&until=2020-01-01T00:00:00Z",
    "workflow-runs?limit=500&endedSince=2999-01-01T00:00:00Z",
    "workflow-runs?limit=500&order=oldest&status=COMPLETED&workflow=refund",
    "workflow-runs?limit=500&attention=in-doubt",
    "workflow-runs?limit=500&parent=run_01j0000000e00800000000007z",
    "workflow-runs?limit=500&lineage=run_01j0000000e00800000000007z",
    "workflow-runs?limit=500&node=node_01j0000000e00800000000007z",
    "counts",
    "counts?workflow=refund",
    "counts?since=2020-01-01T00:00:00Z",
    "doubts",
    "hooks?order=age",
    "keys?prefix=filled-1&limit=200",
    "nodes",
    "workflows",
    "queues",
];

/// Every combination of filters, and the other questions.
fn questions() -> Vec<String> {
    let statuses =
        ["", "PENDING", "RUNNING", "WAITING", "PAUSED", "COMPLETED", "FAILED", "CANCELLED", "TIMED_OUT"];
    let mut questions = Vec::new();
    for status in statuses {
        for workflow in ["", "order", RARE, "absent"] {
            for since in ["", "2020-01-01T00:00:00Z", "2999-01-01T00:00:00Z"] {
                let named = [("status", status), ("workflow", workflow), ("since", since)];
                let said = named.iter().filter(|(_, value)| !value.is_empty());
                let said: Vec<_> = said.map(|(name, value)| format!("{name}={value}")).collect();
                questions.push(format!("/api/v1/workflow-runs?limit=500&{}", said.join("&")));
            }
        }
    }
    questions.extend(OTHERS.map(|other| format!("/api/v1/{other}")));
    questions.iter().map(|question| question.trim_end_matches('&').to_owned()).collect()
}

/// Every list, its first page and the pages behind it.
async fn lists(server: &Process, name: &str, figures: &mut Figures) -> Anything<()> {
    let mut wire = Wire::connect(&server.url).await?;
    let (mut slowest, mut partial, mut all) = ((Duration::ZERO, String::new()), 0, Vec::new());
    let questions = questions();
    for question in &questions {
        let (mut times, mut cursor) = (Vec::new(), String::new());
        for n in 0..TIMES {
            let (took, answer) = timed(&mut wire, &format!("{question}{cursor}")).await?;
            partial += usize::from(n == 0 && answer.contains("\"partial\":true"));
            times.push(took);
            // Some pages onward, then from the beginning.
            cursor = match answer.rsplit_once("\"next\":\"") {
                Some((_, next)) if n % 10 != 9 => {
                    let sign = if question.contains('?') { '&' } else { '?' };
                    format!("{sign}cursor={}", next.split('"').next().unwrap_or_default())
                }
                _ => String::new(),
            };
        }
        all.extend(&times);
        let took = p99(times);
        if took > slowest.0 {
            slowest = (took, question.clone());
        }
    }
    println!(
        "  {} of {} questions have a partial first page; the slowest: {}",
        partial,
        questions.len(),
        slowest.1
    );
    figures.limit(&format!("{name}.listMs"), millis(p99(all)), GOAL);
    figures.limit(&format!("{name}.slowestListMs"), millis(slowest.0), GOAL);
    Ok(())
}

/// A ledger, while several callers ask for lists that read as much as a list may.
async fn beside(server: &Process, name: &str, template: &str, figures: &mut Figures) -> Anything<()> {
    let mut callers = JoinSet::new();
    let question = "/api/v1/workflow-runs?limit=500";
    let worst = "/api/v1/workflow-runs?status=COMPLETED&workflow=order&limit=500";
    for n in 0..CALLERS {
        let (url, question) = (server.url.clone(), if n % 2 == 0 { question } else { worst });
        callers.spawn(async move {
            let mut wire = Wire::connect(&url).await?;
            loop {
                timed(&mut wire, question).await?;
            }
            #[allow(unreachable_code, reason = "the type of the task")]
            Anything::Ok(())
        });
    }
    let mut wire = Wire::connect(&server.url).await?;
    let (mut ledgers, mut details) = (Vec::new(), Vec::new());
    for _ in 0..TIMES {
        let (took, _) = timed(&mut wire, &format!("/api/v1/workflow-runs/{template}/ledger")).await?;
        ledgers.push(took);
        let (took, _) = timed(&mut wire, &format!("/api/v1/workflow-runs/{template}")).await?;
        details.push(took);
    }
    callers.abort_all();
    figures.number(&format!("{name}.ledgerBesideListsMs"), millis(p99(ledgers)));
    figures.number(&format!("{name}.runBesideListsMs"), millis(p99(details)));
    Ok(())
}

/// Several callers at the same time.
async fn crowd(server: &Process, path: &'static str, times: usize) -> Anything<Vec<Duration>> {
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let url = server.url.clone();
        callers.spawn(async move {
            let mut wire = Wire::connect(&url).await?;
            let mut took = Vec::new();
            for _ in 0..times {
                took.push(timed(&mut wire, path).await?.0);
            }
            Anything::Ok(took)
        });
    }
    let mut all = Vec::new();
    while let Some(took) = callers.join_next().await {
        all.extend(took??);
    }
    Ok(all)
}

pub(crate) async fn timed(wire: &mut Wire, path: &str) -> Anything<(Duration, String)> {
    let begun = Instant::now();
    let (status, answer) = wire.get(path).await?;
    let took = begun.elapsed();
    if status == 200 { Ok((took, answer)) } else { Err(format!("{path}: {status} {answer}").into()) }
}

fn p99(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[(times.len() * 99).div_ceil(100) - 1]
}

fn worst(times: Vec<Duration>) -> Duration {
    times.into_iter().max().unwrap_or_default()
}

pub(crate) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}
