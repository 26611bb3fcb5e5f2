//! Does what a person would do about paused runs: asks the recorder what became of a step in doubt and says so, and lets go on
//! what was paused because it had cost too many claims.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use libtest_mimic::Failed;
use semel::clock::Clock as _;
use serde_json::{Value, json};

use crate::api::Question;
use crate::findings::{Findings, Sort};
use crate::outside::{Ask, Outside};
use crate::program::Kind;
use crate::site::Site;

const ROUND: Duration = Duration::from_millis(150);

/// Knows what became of a step in doubt.
pub(crate) trait Witness: Send + Sync {
    /// The value of the step, if its effect took place. If it did not, no earlier try may have it from now on.
    fn look<'a>(&'a self, ask: &'a Ask) -> Looking<'a>;
}

/// A look that is under way.
pub(crate) type Looking<'a> = Pin<Box<dyn Future<Output = Result<Option<Value>, Failed>> + Send + 'a>>;

impl Witness for Outside {
    fn look<'a>(&'a self, ask: &'a Ask) -> Looking<'a> {
        Box::pin(async move { Ok(Self::look(self, ask).await?.map(Value::from)) })
    }
}

/// An operator that looks after paused runs.
pub(crate) struct Operator {
    site: Arc<Site>,
    findings: Arc<Findings>,
    witness: Arc<dyn Witness>,
    over: AtomicBool,
    /// Places and paths of the steps that were in doubt.
    doubted: Mutex<Vec<String>>,
    pub(crate) doubts: AtomicU64,
    pub(crate) poisoned: AtomicU64,
}

impl Operator {
    pub(crate) fn new(site: Arc<Site>, findings: Arc<Findings>, witness: Arc<dyn Witness>) -> Self {
        let (doubts, poisoned) = (AtomicU64::new(0), AtomicU64::new(0));
        Self {
            site,
            findings,
            witness,
            over: AtomicBool::new(false),
            doubted: Mutex::default(),
            doubts,
            poisoned,
        }
    }

    /// Places and paths of the steps that were in doubt.
    pub(crate) fn doubted(&self) -> Vec<String> {
        self.doubted.lock().expect("no holder of the lock panics").clone()
    }

    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    pub(crate) async fn operate(self: Arc<Self>) {
        while !self.over.load(Ordering::SeqCst) {
            // If there is no answer for that long, other checks notice as well.
            if let Err(error) = self.round().await {
                let said = error.message().unwrap_or("no reason").to_owned();
                self.findings.add(Sort::Stuck, "of the operator", "", said);
            }
            self.site.clock.until(self.site.clock.now().after(ROUND)).await;
        }
    }

    async fn round(&self) -> Result<(), Failed> {
        let list = self.site.api.ask(&Question::get(0, "/workflow-runs?status=PAUSED&limit=500")).await?;
        for run in list.body["runs"].as_array().into_iter().flatten() {
            self.settle(run["id"].as_str().unwrap_or_default()).await?;
        }
        Ok(())
    }

    async fn settle(&self, run: &str) -> Result<(), Failed> {
        let detail = self.site.api.ask(&Question::get(0, format!("/workflow-runs/{run}"))).await?.body;
        if detail["status"] != "PAUSED" {
            return Ok(());
        }
        let steps = detail["steps"].as_array().cloned().unwrap_or_default();
        let doubts: Vec<&Value> = steps.iter().filter(|step| step["status"] == "IN_DOUBT").collect();
        for step in &doubts {
            self.resolve(run, &detail, step).await?;
        }
        let reason = detail["pauseReason"].as_str().unwrap_or_default();
        if reason.contains("nodes died") {
            let version = &detail["version"];
            let (path, id) = (format!("/workflow-runs/{run}/resume"), format!("resume-{run}-{version}"));
            let reply = self.site.api.ask(&Question::post(0, path, &id, json!({}))).await?;
            self.poisoned.fetch_add(u64::from(reply.is_ok()), Ordering::Relaxed);
            // A client may have cancelled it meanwhile.
            if !reply.is_ok() && reply.status != 409 {
                let said = format!("a resume is answered with {} {}", reply.status, reply.body);
                self.findings.add(Sort::Wrong, run, "", said);
            }
        } else if doubts.is_empty() {
            self.findings.add(Sort::Stuck, run, "", format!("it is paused: {reason}"));
        }
        Ok(())
    }

    async fn resolve(&self, run: &str, detail: &Value, step: &Value) -> Result<(), Failed> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (path, version) = (text(&step["path"]), detail["version"].as_u64().unwrap_or_default());
        let (place, tick) = (text(&detail["input"]["place"]), &step["tick"]);
        // Earlier owners of the run must not apply it any more if this says that it did not happen.
        let (fence, attempt) = (version, u32::MAX);
        let at = format!("{place} {path}");
        self.doubted.lock().expect("no holder of the lock panics").push(at.clone());
        let ask =
            Ask { at, run: run.to_owned(), key: text(&step["effectKey"]), fence, attempt, kind: Kind::Blind };
        let body = match self.witness.look(&ask).await? {
            Some(value) => json!({"resolution": "happened", "tick": tick, "value": value}),
            None => json!({"resolution": "did-not-happen", "tick": tick}),
        };
        let escaped: String = path.replace('/', "%2F").replace('[', "%5B").replace(']', "%5D");
        let route = format!("/workflow-runs/{run}/steps/{escaped}/resolve");
        let id = format!("resolve-{run}-{path}-{version}");
        let reply = self.site.api.ask(&Question::post(0, route, &id, body)).await?;
        self.doubts.fetch_add(u64::from(reply.is_ok()), Ordering::Relaxed);
        // A client may have cancelled it meanwhile.
        if !reply.is_ok() && reply.status != 409 {
            let said = format!("a resolution is answered with {} {}", reply.status, reply.body);
            self.findings.add(Sort::Wrong, run, &path, said);
        }
        Ok(())
    }
}
