//! One run that kills its worker each time it is driven, beside runs that do nothing wrong. It is parked as poisoned, and no
//! other run is: they complete, and each of their effects takes place once.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Failed;
use semel::clock::Clock as _;
use semel::rules::claim::MAX_DEATHS;
use semel::{Ctx, Result};
use serde_json::{Value, json};

use crate::api::Question;
use crate::books::Books;
use crate::findings::{Findings, Sort};
use crate::restarts::Letters;
use crate::site::{Layout, Site};

/// The name of the workflow that kills its worker.
pub(crate) const POISON: &str = "poison";
/// Runs that do nothing wrong, the steps of each, and how long one takes: longer than the poisonous run lives.
const RUNS: usize = 30;
const COUNT: u32 = 3;
const MILLIS: u64 = 400;
/// Nothing takes this long.
const PATIENCE: Duration = Duration::from_mins(2);
const ROUND: Duration = Duration::from_millis(50);

/// Takes the whole process along.
pub(crate) async fn kill(ctx: Ctx, (): ()) -> Result<()> {
    ctx.step("kill").run(async |_| -> Result<()> { std::process::abort() }).await
}

/// Plays until no run moves any more; gives how many workers have died.
pub(crate) async fn play(
    layout: Layout,
    folder: &Path,
    seed: u64,
    findings: &Arc<Findings>,
) -> Result<u64, Failed> {
    let site = Site::open(layout, folder, seed, findings.clone()).await?;
    let mut poison = String::new();
    for n in 0..RUNS {
        Letters { place: format!("b{n}"), count: COUNT, millis: MILLIS, at_most_once: false }
            .start(&site)
            .await?;
        if n == RUNS / 2 {
            let body = json!({"workflow": POISON, "input": null});
            let reply = site.api.ask(&Question::post(0, "/workflow-runs", POISON, body)).await?;
            poison = reply.text("/run/id");
        }
    }
    let (mut deaths, end) = (0, site.clock.now().after(PATIENCE));
    let runs = loop {
        deaths += revive(&site)?;
        let list = site.api.ask(&Question::get(0, "/workflow-runs?limit=500")).await?.body;
        let runs = list["runs"].as_array().cloned().ok_or_else(|| format!("no list: {list}"))?;
        let moves = |run: &Value| run["endedAt"].is_null() && run["status"] != "PAUSED";
        if !runs.iter().any(moves) || site.clock.now() > end {
            break runs;
        }
        site.clock.until(site.clock.now().after(ROUND)).await;
    };
    judge(&runs, &poison, findings);
    if findings.is_empty() {
        letters(&site.outside.books().await?, findings);
        let expected = u64::from(MAX_DEATHS)..=3 * u64::from(MAX_DEATHS);
        if !expected.contains(&deaths) {
            let said = format!("{deaths} workers have died of it, and not {expected:?}");
            findings.add(Sort::Wrong, &poison, POISON, said);
        }
    }
    Ok(deaths)
}

/// Starts workers in the place of those that have died; how many there were.
fn revive(site: &Site) -> Result<u64, Failed> {
    let mut dead = 0;
    for (worker, slot) in site.workers.iter().enumerate() {
        if !slot.process().is_some_and(|process| process.lives()) {
            site.start_worker(worker)?;
            dead += 1;
        }
    }
    Ok(dead)
}

/// The run that kills workers is parked for it; all others have completed.
fn judge(runs: &[Value], poison: &str, findings: &Findings) {
    if runs.len() != RUNS + 1 {
        findings.add(Sort::Lost, "", "", format!("{} runs are there", runs.len()));
    }
    for run in runs {
        let text = |name: &str| run[name].as_str().unwrap_or_default();
        let (id, status, reason) = (text("id"), text("status"), text("pauseReason"));
        let is_right = match id == poison {
            true => status == "PAUSED" && reason.contains("nodes died"),
            false => status == "COMPLETED",
        };
        if !is_right {
            findings.add(Sort::Wrong, id, text("workflow"), format!("it is {status} {reason}"));
        }
    }
}

/// Each letter was written once, however many workers have begun it.
fn letters(books: &Books, findings: &Findings) {
    let mut written: BTreeMap<&str, u64> = BTreeMap::new();
    for call in books.calls.iter().filter(|call| call.applied) {
        *written.entry(&call.ask.at).or_default() += 1;
    }
    for (at, times) in written.iter().filter(|(_, times)| **times > 1) {
        findings.add(Sort::Doubled, "", at, format!("it was written {times} times"));
    }
    if written.len() != RUNS * COUNT as usize {
        findings.add(Sort::Lost, "", "", format!("{} letters were written", written.len()));
    }
}
