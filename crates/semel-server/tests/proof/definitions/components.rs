//! The other products that the tasks of the phase work with: databases, brokers, a mail server, a model, an MCP server. Each is a
//! process that is killed, and that keeps what was done through it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use libtest_mimic::Failed;
use semel::clock::{Clock as _, SystemClock};
use serde_json::{Value, json};

use super::brokers::Brokers;
use super::databases::Databases;
use super::deeds::Deeds;
use super::mails::Mails;
use super::stand_in::{self, StandInPlace};
use super::{MODEL, TOOLS};
use crate::outside::client;
use crate::process::Process;
use crate::site::free_port;

/// How long a process may take until it answers.
const PATIENCE: Duration = Duration::from_mins(1);
const ROUND: Duration = Duration::from_millis(20);

/// A process that can be killed and started again.
pub(super) enum Component {
    Service(Arc<Service>),
    /// The mail server.
    Mails {
        mails: Arc<Mails>,
        process: Mutex<Option<Process>>,
    },
    /// A model, or an MCP server.
    StandIn {
        stand_in: Arc<StandIn>,
        process: Mutex<Option<Process>>,
    },
}

/// A server of the scripts. It is left alive for the tests that come later, whatever becomes of this one.
pub(super) struct Service {
    /// Program that kills and starts it.
    ctl: String,
}

/// A stand-in of this program.
pub(super) struct StandIn {
    place: StandInPlace,
    log: PathBuf,
    http: reqwest::Client,
}

/// What is known here about a step in doubt.
pub(super) enum DoubtLook {
    /// Its other side is none of the components.
    Elsewhere,
    /// It took place, and this is its value.
    Happened(Value),
    /// It did not take place.
    Absent,
}

/// All of them.
pub(super) struct Components {
    databases: Databases,
    pub(super) brokers: Brokers,
    mails: Arc<Mails>,
    model: Arc<StandIn>,
    tools: Arc<StandIn>,
    /// Their processes, in the order of [`COMPONENTS`](super::COMPONENTS).
    pub(super) all: Vec<Arc<Component>>,
}

impl Components {
    /// Starts everything, with names that nothing else uses.
    pub(super) async fn open(folder: &Path, seed: u64) -> Result<Self, Failed> {
        static OPENED: AtomicU64 = AtomicU64::new(0);
        let name = format!("proof{}x{}", std::process::id(), OPENED.fetch_add(1, Ordering::Relaxed));
        let [postgres, mariadb] = [service("SEMEL_TEST_POSTGRES")?, service("SEMEL_TEST_MARIADB")?];
        let pgvector = service("SEMEL_TEST_PGVECTOR")?;
        let [nats, redis] = [service("SEMEL_TEST_NATS")?, service("SEMEL_TEST_REDIS")?];
        let killed = |url: &str| {
            let ctl = service(&format!("{url}_CTL"))?;
            Ok::<_, Failed>(Component::Service(Arc::new(Service { ctl })))
        };
        let mails = Arc::new(Mails::open(folder, free_port()?, seed)?);
        let model = Arc::new(StandIn::new(folder, "model", seed)?);
        let tools = Arc::new(StandIn::new(folder, "tools", seed)?);
        let stand_in = |stand_in: &Arc<StandIn>| Component::StandIn {
            stand_in: stand_in.clone(),
            process: Mutex::default(),
        };
        let all = [
            killed("SEMEL_TEST_POSTGRES")?,
            killed("SEMEL_TEST_MARIADB")?,
            killed("SEMEL_TEST_NATS")?,
            killed("SEMEL_TEST_REDIS")?,
            Component::Mails { mails: mails.clone(), process: Mutex::default() },
            stand_in(&model),
            stand_in(&tools),
            killed("SEMEL_TEST_PGVECTOR")?,
        ];
        let all: Vec<Arc<Component>> = all.map(Arc::new).into();
        // A phase that has ended early may have left one of them dead.
        for component in &all {
            component.start().await?;
        }
        Ok(Self {
            databases: Databases::open(&name, folder, [&postgres, &mariadb, &pgvector]).await?,
            brokers: Brokers::open(&name, [&nats, &redis]).await?,
            mails,
            model,
            tools,
            all,
        })
    }

    /// The connections, as the server's file has them.
    pub(super) fn config(&self) -> String {
        let (model, tools) = (self.model.base(), self.tools.base());
        format!(
            "{}{}{}[connections.model]\nkind = \"openai\"\nbase = \"{model}/v1\"\nmodel = \"small\"\n\
             [connections.claude]\nkind = \"anthropic\"\nbase = \"{model}/v1\"\nmodel = \"small\"\n\
             [connections.tools]\nkind = \"mcp\"\nurl = \"{tools}/mcp\"\n\
             tools = {{ find = \"reads\", book = {{ key-in = \"request\" }} }}\n",
            self.databases.config,
            self.brokers.config,
            self.mails.config()
        )
    }

    /// Variables for the server.
    pub(super) fn env(&self) -> &[(String, String)] {
        &self.databases.env
    }

    /// Everything that was done through them.
    pub(super) async fn deeds(&self) -> Result<Deeds, Failed> {
        let mut deeds = Deeds::default();
        self.databases.count(&mut deeds).await?;
        self.brokers.count(&mut deeds).await?;
        self.mails.count(&mut deeds)?;
        for (stand_in, killed) in [(&self.model, MODEL), (&self.tools, TOOLS)] {
            stand_in::count(&stand_in.place.journal, killed, &mut deeds)?;
        }
        Ok(deeds)
    }

    /// Names of the branches of these runs that are still prepared.
    pub(super) async fn branches(&self, runs: &[String]) -> Result<Vec<String>, Failed> {
        let branches = self.databases.branches(runs).await?;
        Ok(branches.iter().map(ToString::to_string).collect())
    }

    /// What became of a step in doubt.
    pub(super) async fn look(&self, at: &str) -> Result<DoubtLook, Failed> {
        let (_, path) = at.split_once(' ').ok_or("a place has a path behind it")?;
        let value = match path {
            "work/letters/post" => self.mails.has(at).await?.then(|| json!({"id": at})),
            "work/models/once/model" => self.model.look(at).await?.map(|number| json!(number.to_string())),
            "work/tools/push" => self.tools.look(at).await?.map(|number| json!({"n": number})),
            "work/agents/agent/tool[2-1]/push" => {
                self.tools.look(at).await?.map(|number| json!({"output": {"n": number}, "text": "push"}))
            }
            _ => return Ok(DoubtLook::Elsewhere),
        };
        Ok(value.map_or(DoubtLook::Absent, DoubtLook::Happened))
    }
}

impl Component {
    /// Starts it if it does not live, and waits until it answers.
    pub(super) async fn start(&self) -> Result<(), Failed> {
        match self {
            Self::Service(service) => service.command("start").await,
            Self::Mails { mails, process } => {
                put(process, mails.start()?);
                self.until_it_answers().await
            }
            Self::StandIn { stand_in, process } => {
                put(process, stand_in.start()?);
                self.until_it_answers().await
            }
        }
    }

    async fn answers(&self) -> bool {
        match self {
            // Its program has waited for that.
            Self::Service(_) => true,
            Self::Mails { mails, .. } => mails.greets().await,
            Self::StandIn { stand_in, .. } => stand_in.ask("/", &Value::Null).await.is_ok(),
        }
    }

    async fn until_it_answers(&self) -> Result<(), Failed> {
        let clock = SystemClock::new();
        let end = clock.now().after(PATIENCE);
        while !self.answers().await {
            if clock.now() > end {
                return Err("a component that was started does not answer".into());
            }
            clock.until(clock.now().after(ROUND)).await;
        }
        Ok(())
    }

    /// SIGKILL, or what the script takes for it.
    pub(super) async fn kill(&self) -> Result<(), Failed> {
        match self {
            Self::Service(service) => service.command("kill").await,
            Self::Mails { process, .. } | Self::StandIn { process, .. } => {
                let process = process.lock().expect("no holder of the lock panics").take();
                let process = process.ok_or("a disturbance puts the process back")?;
                if !process.lives() {
                    return Err(format!("it has ended by itself; see {}", process.log().display()).into());
                }
                process.kill()
            }
        }
    }
}

impl Service {
    /// On a thread that a runtime waits for when it ends: what was begun is then over before the server is started for the last time.
    async fn command(self: &Arc<Self>, what: &'static str) -> Result<(), Failed> {
        let service = self.clone();
        let ended = tokio::task::spawn_blocking(move || Command::new(&service.ctl).arg(what).status());
        let ended = ended.await??;
        if ended.success() { Ok(()) } else { Err(format!("{} {what}: {ended}", self.ctl).into()) }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // If it does not start, the next test that needs it says so.
        drop(Command::new(&self.ctl).arg("start").status());
    }
}

/// What the scripts have set.
fn service(variable: &str) -> Result<String, Failed> {
    let missing =
        |_| format!("{variable} is not set: run the tests as `make check` does, with scripts/with-*");
    Ok(std::env::var(variable).map_err(missing)?)
}

fn put(place: &Mutex<Option<Process>>, process: Process) {
    *place.lock().expect("no holder of the lock panics") = Some(process);
}

impl StandIn {
    fn new(folder: &Path, name: &str, seed: u64) -> Result<Self, Failed> {
        let journal = folder.join(format!("{name}.calls"));
        std::fs::write(&journal, "")?;
        let place = StandInPlace { port: free_port()?, journal, seed };
        Ok(Self { place, log: folder.join(format!("{name}.log")), http: client() })
    }

    fn base(&self) -> String {
        format!("http://127.0.0.1:{}", self.place.port)
    }

    fn start(&self) -> Result<Process, Failed> {
        Process::role("stand-in", &self.place, &[], &self.log)
    }

    async fn ask(&self, path: &str, body: &Value) -> Result<Value, Failed> {
        let response = self.http.post(format!("{}{path}", self.base())).body(body.to_string()).send().await?;
        Ok(serde_json::from_str(&response.text().await?)?)
    }

    /// The number of what was done at a place, when all that was sent before is noted. It may be away for a moment.
    async fn look(&self, at: &str) -> Result<Option<u64>, Failed> {
        let clock = SystemClock::new();
        let end = clock.now().after(PATIENCE);
        loop {
            match self.ask("/look", &json!(at)).await {
                Ok(number) => return Ok(number.as_u64()),
                Err(failed) if clock.now() > end => return Err(failed),
                Err(_) => clock.until(clock.now().after(ROUND)).await,
            }
        }
    }
}
