//! Definitions on a server that is killed again and again: every effect takes place once, whatever the task and the block.
//!
//! [`parts`]: what the definition has in it, and what must come of it. [`provider`]: the other side, which counts. [`caller`]: who starts
//! the runs, and does what people do. [`verdict`]: what was found at the end.

mod caller;
mod parts;
pub(crate) mod provider;
mod verdict;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use semel::clock::Clock as _;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use self::caller::DefinitionCaller;
use self::provider::{ProviderPlace, Sales};
use crate::findings::{Findings, Sort};
use crate::forms::{CALM, in_folder, number, seed, sqlite};
use crate::nemesis::{Disturbance, Nemesis, Pace};
use crate::operator::{Looking, Operator, Witness};
use crate::outside::{Ask, client};
use crate::phase::{Tally, all, at_rest};
use crate::process::Process;
use crate::report::{self, Least};
use crate::site::{Layout, Site, free_port};
use crate::trap::Trap;

pub(crate) fn trials() -> Vec<Trial> {
    vec![Trial::test("definitions::runs_of_killed_servers_have_every_effect_once", short)]
}

/// How much is played.
pub(crate) struct Scale {
    pub(crate) runs: u64,
    pub(crate) kills: u64,
    pub(crate) callers: usize,
}

impl Scale {
    fn least(&self) -> [Least; 3] {
        [("server kills", self.kills), ("runs", self.runs), ("effects", self.runs * 20)]
    }
}

/// The form of `make check`.
pub(crate) const SHORT: Scale = Scale { runs: 50, kills: 5, callers: 16 };
/// The form of `make proof`.
pub(crate) const LONG: Scale = Scale { runs: 500, kills: 50, callers: 32 };

fn short() -> Result<(), Failed> {
    let scale = Scale {
        runs: number("SEMEL_PROOF_RUNS", SHORT.runs)?,
        kills: number("SEMEL_PROOF_KILLS", SHORT.kills)?,
        ..SHORT
    };
    let least = scale.least();
    in_folder(async |folder| {
        let layout = Layout { workers: 2, ..sqlite("definitions") };
        let findings = Arc::new(Findings::default());
        let tallies = [play(&scale, layout, Vec::new(), &folder, seed()?, &findings).await?];
        println!("\n{}", report::table(&tallies));
        report::judge(&tallies, &least)
    })
}

/// Mean time between two kills of a server: longer than it takes to come up, to notice that its predecessor is dead, and to get some
/// steps done.
const KILLS: Duration = Duration::from_millis(2500);
/// Nothing takes this long.
const PATIENCE: Duration = Duration::from_mins(10);
const ROUND: Duration = Duration::from_millis(50);

/// The way to the provider.
#[derive(Clone)]
pub(crate) struct ProviderDesk {
    http: reqwest::Client,
    base: String,
}

impl ProviderDesk {
    async fn post(&self, path: &str, body: Value) -> Result<Value, Failed> {
        let response = self.http.post(format!("{}{path}", self.base)).body(body.to_string()).send().await?;
        Ok(serde_json::from_str(&response.text().await?)?)
    }

    /// What was done, when nothing is under way any more.
    async fn sales(&self) -> Result<Sales, Failed> {
        Ok(serde_json::from_value(self.post("/sales", Value::Null).await?)?)
    }
}

impl Witness for ProviderDesk {
    fn look<'a>(&'a self, ask: &'a Ask) -> Looking<'a> {
        Box::pin(async move {
            let number = self.post("/asked-by-the-operator", json!(ask.at)).await?;
            Ok((!number.is_null()).then(|| json!({ "n": number })))
        })
    }
}

/// The server's file: a connection for everything that a provider can do about a repetition.
fn connections(base: &str) -> String {
    let find = "find = { get = \"/found?reference={{ effect.key }}\" }, found = \"{{ body.found }}\", settle = \"1s\"";
    let profiles = [
        ("key", "{ by = \"key\", header = \"Idempotency-Key\", window = \"for-ever\" }".to_owned()),
        (
            "kept",
            format!(
                "{{ by = \"key\", header = \"Idempotency-Key\", window = \"24h\", replayed = \"Idempotent-Replayed\", {find} }}"
            ),
        ),
        ("found", format!("{{ by = \"key\", header = \"Idempotency-Key\", window = \"1s\", {find} }}")),
        (
            "repeated",
            "{ by = \"key\", header = \"Idempotency-Key\", window = \"for-ever\", repeated = [\"400/duplicate\"] }"
                .to_owned(),
        ),
        ("window", "{ by = \"key\", json = \"/reference\", format = \"uuid\", window = \"1s\" }".to_owned()),
        ("look-up", format!("{{ by = \"look-up\", put = {{ json = \"/reference\" }}, {find} }}")),
        ("nothing", "{ by = \"nothing\" }".to_owned()),
    ];
    let mut text = String::new();
    for (name, profile) in profiles {
        text += &format!(
            "[connections.{name}]\nkind = \"http\"\nbase = \"{base}/{name}\"\ntimeout = \"500ms\"\nprofile = {profile}\n\
             headers = {{ authorization = {{ bearer = {{ env = \"PROVIDER_KEY\" }} }} }}\n"
        );
    }
    text + &format!(
        "[connections.told]\nkind = \"webhook\"\nurl = \"{base}/told\"\ntimeout = \"500ms\"\nsecret = {{ env = \"PROVIDER_KEY\" }}\n"
    )
}

/// Plays the phase in a folder: `others` are components that are disturbed beside the server and the workers.
pub(crate) async fn play(
    scale: &Scale,
    mut layout: Layout,
    others: Vec<Box<dyn Disturbance>>,
    folder: &Path,
    seed: u64,
    findings: &Arc<Findings>,
) -> Result<Tally, Failed> {
    let name = layout.name.to_owned();
    let folder = folder.join(layout.name);
    std::fs::create_dir_all(&folder)?;
    let port = free_port()?;
    let provider = ProviderDesk { http: client(), base: format!("http://127.0.0.1:{port}") };
    let _process =
        Process::role("provider", &ProviderPlace { port, seed }, &[], &folder.join("provider.log"))?;
    let config = folder.join("semel.toml");
    std::fs::write(&config, connections(&provider.base))?;
    layout.env.push(("SEMEL_CONFIG".to_owned(), config.display().to_string()));
    layout.env.push(("PROVIDER_KEY".to_owned(), "the-key-of-the-provider".to_owned()));
    let outer = folder.parent().ok_or("a folder in a folder")?;
    let site = Arc::new(Site::open(layout, outer, seed, findings.clone()).await?);
    let (trap, from) = (Arc::new(Trap::default()), site.clock.now());
    let caller = Arc::new(DefinitionCaller::new(site.clone(), seed, findings.clone(), trap.clone()));
    caller.push(&parts::definitions()).await?;
    let witness = Arc::new(provider.clone());
    let operator = Arc::new(Operator::new(site.clone(), findings.clone(), witness));
    let pace = Pace { server_kills: KILLS, worker_kills: KILLS * 2, ..Pace::default() };
    let nemesis = Arc::new(Nemesis::new(site.clone(), seed, pace, trap));
    let (mut calls, mut helpers, over) = (JoinSet::new(), JoinSet::new(), Arc::new(AtomicBool::new(false)));
    for _ in 0..scale.callers {
        calls.spawn(caller.clone().call());
    }
    helpers.spawn(operator.clone().operate());
    helpers.spawn(caller.clone().decide(over.clone()));
    let mut blows = nemesis.begin(others);
    let latest = site.clock.now().after(PATIENCE);
    let enough =
        || nemesis.blows.server_kills.load(Ordering::Relaxed) >= scale.kills && caller.begun() >= scale.runs;
    while !enough() && site.clock.now() < latest {
        tokio::select! {
            () = site.clock.until(site.clock.now().after(ROUND)) => {}
            // A stream of blows ends early only by what went wrong.
            Some(ended) = blows.join_next() => ended??,
        }
    }
    caller.end();
    nemesis.end();
    while let Some(ended) = blows.join_next().await {
        ended??;
    }
    let end = site.clock.now().after(CALM * 2);
    let came_to_rest = tokio::select! {
        joined = all(&mut calls) => {
            joined?;
            at_rest(&site, end).await?
        }
        () = site.clock.until(end) => false,
    };
    calls.abort_all();
    if !came_to_rest {
        findings.add(Sort::Stuck, "some", "", "not all has ended after the last blow");
    }
    operator.end();
    over.store(true, Ordering::SeqCst);
    all(&mut helpers).await?;
    site.no_process_panicked()?;
    let (sales, books) = (provider.sales().await?, site.outside.books().await?);
    let counted = verdict::check(&caller.lives(), &sales, &books, &operator, findings);
    let count = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
    let figures = vec![
        ("server kills", count(&nemesis.blows.server_kills)),
        ("at an answer", count(&nemesis.blows.ambushes)),
        ("worker kills", count(&nemesis.blows.worker_kills)),
        ("starts", count(&caller.starts)),
        ("duplicate starts", count(&caller.duplicates)),
        ("deliveries", count(&caller.deliveries)),
        ("decisions", count(&caller.decisions)),
        ("doubts", count(&operator.doubts)),
    ];
    let of = |sort| findings.count(sort) as u64;
    Ok(Tally {
        name,
        figures,
        counted,
        lost: of(Sort::Lost),
        doubled: of(Sort::Doubled),
        stuck: of(Sort::Stuck),
        wrong: of(Sort::Wrong),
        millis: (site.clock.now().0 - from.0) as u64,
    })
}
