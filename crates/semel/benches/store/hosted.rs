//! Claims of hosted workflows: many definitions in many workspaces against a single one.
//!
//! A server hosts workflows of which it learns while it runs, all versions of which begin with the same prefix. What a claim
//! costs must not depend on how many there are.

use std::time::{Duration, Instant};

use semel::error::Result;
use semel::id::WorkspaceId;
use semel::rules::claim::Claim;
use semel::rules::control::{Control, ControlAction};
use semel::rules::family::Family;
use semel::rules::path::Name;
use semel::rules::start::Start;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::load::Load;
use crate::report::Report;

/// Hosted workflows, the versions of each, and the workspaces that have all of them. Each version in each workspace has a run that is due.
const WORKFLOWS: usize = 10_000;
const VERSIONS: usize = 3;
const WORKSPACES: usize = 20;
/// Runs that one claim takes, and claims that are measured.
const TAKEN: usize = 10;
const CLAIMS: usize = 500;
/// Starts on their way at a time while the store is filled.
const STARTERS: usize = 256;
/// Most that a claim among all hosted workflows may take, compared with a claim of one.
const MOST: f64 = 1.2;

/// Hosted workflows whose runs are due, under a family of their own.
struct Hosted {
    family: Family,
    workflows: usize,
    versions: usize,
    workspaces: usize,
    /// Due runs in all.
    runs: usize,
}

/// Measures claims of one hosted workflow and of many, in turns on the same store.
pub(crate) async fn measure(report: &mut Report, name: &str, load: &Load) -> Result<()> {
    let due = TAKEN * CLAIMS;
    let one = Hosted { family: family("one1_"), workflows: 1, versions: 1, workspaces: 1, runs: due };
    let many = Hosted {
        family: family("def1_"),
        workflows: WORKFLOWS,
        versions: VERSIONS,
        workspaces: WORKSPACES,
        runs: WORKFLOWS * VERSIONS * WORKSPACES,
    };
    for hosted in [&one, &many] {
        load.host(hosted).await?;
    }
    let (mut alone, mut among) = (Vec::with_capacity(CLAIMS), Vec::with_capacity(CLAIMS));
    for _ in 0..CLAIMS {
        alone.push(load.claim(&one.family).await?);
        among.push(load.claim(&many.family).await?);
    }
    let (alone, among) = (median(alone), median(among));
    report.number(&format!("{name}.claim.hosted.1 in µs"), alone.as_secs_f64() * 1e6);
    report.number(&format!("{name}.claim.hosted.600000 in µs"), among.as_secs_f64() * 1e6);
    let ratio = among.as_secs_f64() / alone.as_secs_f64();
    report.limit(&format!("{name}: a claim among 10,000 hosted x 3 x 20 / of one"), ratio, MOST);
    Ok(())
}

fn family(prefix: &str) -> Family {
    Family::new(prefix).expect("a family's prefix")
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

impl Hosted {
    fn start(&self, load: &Load, n: usize) -> Result<Start> {
        let (workflow, rest) = (n % self.workflows, n / self.workflows);
        let (version, rest) = (rest % self.versions, rest / self.versions);
        let workspace = WorkspaceId(Uuid::from_u128((rest % self.workspaces) as u128 + 1));
        Ok(Start {
            workspace,
            workflow: Name::new(&format!("hosted-{workflow}"))?,
            workflow_version: Name::new(&format!("{}{workflow}-{version}", self.family))?,
            ..load.request(None)?
        })
    }
}

impl Load {
    /// Starts the runs, each due at once.
    async fn host(&self, hosted: &Hosted) -> Result<()> {
        let mut starting = JoinSet::new();
        for n in 0..hosted.runs {
            if starting.len() == STARTERS
                && let Some(started) = starting.join_next().await
            {
                started.expect("a start does not panic")?;
            }
            let (store, start) = (self.store.clone(), hosted.start(self, n)?);
            starting.spawn(async move { store.start(start).await.map(drop) });
        }
        while let Some(started) = starting.join_next().await {
            started.expect("a start does not panic")?;
        }
        Ok(())
    }

    /// Claims due runs of a family, ends them, and gives how long the claim took.
    async fn claim(&self, family: &Family) -> Result<Duration> {
        let claim = Claim { families: vec![family.clone()], ..Claim::new(self.node, Vec::new(), TAKEN) };
        let asked = Instant::now();
        let claimed = self.store.claim(claim).await?.runs;
        let took = asked.elapsed();
        assert_eq!(claimed.len(), TAKEN, "this number of runs is due");
        for claimed in claimed {
            let action = ControlAction::Cancel { reason: "measured".to_owned() };
            let (workspace, run, by) = (claimed.run.new.workspace, claimed.run.id(), "bench".to_owned());
            self.store.control(Control { workspace, run, action, by, id: None, expected: None }).await?;
        }
        Ok(took)
    }
}
