//! Where all takes place: a folder, the servers, the workers, the recorder.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use libtest_mimic::Failed;
use semel::clock::{Clock as _, SystemClock};

use crate::api::Api;
use crate::disk::SmallDisk;
use crate::execute::Rows;
use crate::faults::Haunted;
use crate::findings::Findings;
use crate::languages::Language;
use crate::outside::{Outside, client};
use crate::process::{Process, mortal};
use crate::proxy::Proxy;
use crate::{recorder, worker};

/// How long the servers believe in a worker that says nothing.
pub(crate) const LEASE: Duration = Duration::from_millis(1500);
/// Nothing takes this long to come up.
const PATIENCE: Duration = Duration::from_mins(1);
const ROUND: Duration = Duration::from_millis(20);

/// Where the servers live.
#[derive(Clone, Default)]
pub(crate) enum Surroundings {
    #[default]
    Ordinary,
    Haunted(Arc<Haunted>),
    Small(Arc<SmallDisk>),
}

/// What there is to be of everything.
#[derive(Clone)]
pub(crate) struct Layout {
    /// What the phase is called, and its folder.
    pub(crate) name: &'static str,
    pub(crate) servers: usize,
    pub(crate) workers: usize,
    /// The language of the workers; Rust if nothing is said.
    pub(crate) language: Option<Language>,
    /// A copy of that language's SDK with a deliberate bug; the SDK itself if nothing is said.
    pub(crate) planted: Option<PathBuf>,
    /// Where the servers keep runs; a file in the folder if nothing is said.
    pub(crate) store: Option<String>,
    /// Where transactional steps write; a file in the folder if nothing is said.
    pub(crate) rows: Option<String>,
    pub(crate) surroundings: Surroundings,
    /// Whether all processes reach the servers by lines that can be cut.
    pub(crate) lines: bool,
    /// Variables for servers and workers.
    pub(crate) env: Vec<(String, String)>,
}

/// A process that is put back whenever it was killed. `None` while it is not there.
#[derive(Default)]
pub(crate) struct Slot {
    process: Mutex<Option<Arc<Process>>>,
    /// Held while the process is being disturbed.
    pub(crate) turn: tokio::sync::Mutex<()>,
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Option<Arc<Process>>> {
        self.process.lock().expect("no holder of the lock panics")
    }

    pub(crate) fn process(&self) -> Option<Arc<Process>> {
        self.lock().clone()
    }

    /// SIGKILL, at once. Refused if the process has died before by itself.
    pub(crate) fn kill(&self) -> Result<(), Failed> {
        let process = self.lock().take().ok_or("a disturbance puts the process back")?;
        if !process.lives() {
            return Err(format!("a process has ended by itself; see {}", process.log().display()).into());
        }
        process.kill()
    }
}

/// Where all takes place.
pub(crate) struct Site {
    pub(crate) folder: PathBuf,
    pub(crate) servers: Vec<Slot>,
    pub(crate) workers: Vec<Slot>,
    pub(crate) outside: Outside,
    pub(crate) api: Api,
    /// The way to each server, if it can be cut.
    pub(crate) lines: Vec<Arc<Proxy>>,
    pub(crate) clock: SystemClock,
    ports: Vec<u16>,
    /// Addresses at which all processes reach the servers.
    bases: Vec<String>,
    recorder: String,
    _recorder: Process,
    http: reqwest::Client,
    /// Servers that have ended before they listened, because their disk or database was away.
    pub(crate) failed_starts: AtomicU64,
    /// The last to go: disks and folders of the servers are its own.
    pub(crate) layout: Layout,
}

/// A port that is free, below those that outgoing connections take: a server that was killed finds its own again.
pub(crate) fn free_port() -> Result<u16, Failed> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 20_000 + (std::process::id() % 97) as u16 * 100;
    for _ in 0..5_000 {
        let port = 20_000 + (first - 20_000 + NEXT.fetch_add(1, Ordering::Relaxed)) % 12_000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    Err("no port of the loopback is free".into())
}

impl Site {
    /// Starts the recorder, the servers and the workers, and waits until they listen.
    pub(crate) async fn open(
        layout: Layout,
        folder: &Path,
        seed: u64,
        findings: Arc<Findings>,
    ) -> Result<Self, Failed> {
        let folder = folder.join(layout.name);
        std::fs::create_dir_all(&folder)?;
        let rows = layout.rows.clone().unwrap_or_else(|| folder.join("rows.db").display().to_string());
        Rows::open(&rows).await?.install().await?;
        let port = free_port()?;
        let recorder = format!("http://127.0.0.1:{port}");
        let place = recorder::Place { port, rows: rows.clone(), seed };
        let process = Process::role("recorder", &place, &[], &folder.join("recorder.log"))?;
        let ports: Vec<u16> = (0..layout.servers).map(|_| free_port()).collect::<Result<_, _>>()?;
        let (mut lines, mut bases) = (Vec::new(), Vec::new());
        for port in &ports {
            let mut address = SocketAddr::from(([127, 0, 0, 1], *port));
            if layout.lines {
                let line = Arc::new(Proxy::to(address).await?);
                address = line.address();
                lines.push(line);
            }
            bases.push(format!("http://{address}"));
        }
        let site = Self {
            servers: (0..layout.servers).map(|_| Slot::default()).collect(),
            workers: (0..layout.workers).map(|_| Slot::default()).collect(),
            outside: Outside::new(recorder.clone()),
            api: Api::new(bases.clone(), findings),
            lines,
            bases,
            clock: SystemClock::new(),
            folder,
            ports,
            recorder,
            _recorder: process,
            http: client(),
            failed_starts: AtomicU64::new(0),
            layout: Layout { rows: Some(rows), ..layout },
        };
        site.await_http(&site.recorder, None).await?;
        for server in 0..site.servers.len() {
            site.start_server(server).await?;
        }
        for worker in 0..site.workers.len() {
            site.start_worker(worker)?;
        }
        Ok(site)
    }

    /// Waits until something answers with 200; false if its process has ended before.
    async fn await_http(&self, url: &str, process: Option<&Process>) -> Result<bool, Failed> {
        let end = self.clock.now().after(PATIENCE);
        while self.clock.now() < end {
            let asked = self.http.post(url).timeout(Duration::from_secs(1)).body("null");
            let asked =
                if process.is_some() { self.http.get(url).timeout(Duration::from_secs(1)) } else { asked };
            if asked.send().await.is_ok_and(|answer| answer.status().is_success()) {
                return Ok(true);
            }
            if process.is_some_and(|process| !process.lives()) {
                return Ok(false);
            }
            self.clock.until(self.clock.now().after(ROUND)).await;
        }
        Err(format!("{url} does not answer; see {}", self.folder.display()).into())
    }

    /// Starts a server. Where a disk or a database is struck it may end before it listens, and is started again.
    pub(crate) async fn start_server(&self, server: usize) -> Result<(), Failed> {
        let store = match (&self.layout.surroundings, &self.layout.store) {
            (Surroundings::Haunted(haunted), _) => haunted.store.clone(),
            (Surroundings::Small(disk), _) => disk.store(),
            (Surroundings::Ordinary, Some(url)) => url.clone(),
            (Surroundings::Ordinary, None) => format!("sqlite:{}", self.folder.join("semel.db").display()),
        };
        let listen = format!("127.0.0.1:{}", self.ports[server]);
        let log = self.folder.join(format!("server-{server}.log"));
        let end = self.clock.now().after(PATIENCE);
        while self.clock.now() < end {
            let said = std::fs::read(&log).map_or(0, |said| said.len());
            let process = Arc::new(Process::start(&mut self.serve(&listen, &store), &log)?);
            *self.servers[server].lock() = Some(process.clone());
            if self.await_http(&format!("http://{listen}/readyz"), Some(&process)).await? {
                return Ok(());
            }
            self.may_fail(&String::from_utf8_lossy(&std::fs::read(&log)?[said..]))?;
            self.clock.until(self.clock.now().after(ROUND * 5)).await;
        }
        Err(format!("a server does not start; see {}", log.display()).into())
    }

    fn serve(&self, listen: &str, store: &str) -> Command {
        let mut command = mortal(env!("CARGO_BIN_EXE_semel"));
        command.env_clear().args(["serve", "--listen", listen, "--store", store, "--log", "json"]);
        command.env("SEMEL_AUTH", "none").env("SEMEL_LOG", "warn");
        command.envs(self.layout.env.iter().cloned());
        match &self.layout.surroundings {
            Surroundings::Ordinary => command,
            Surroundings::Haunted(haunted) => haunted.faults.haunt(command),
            Surroundings::Small(disk) => disk.wrap(command),
        }
    }

    /// Counts a server that has ended before it listened; it may not if nothing but itself was killed.
    fn may_fail(&self, said: &str) -> Result<(), Failed> {
        // Another program on this machine may have tried its port while it was down.
        if said.contains("Address already in use") {
            return Ok(());
        }
        self.failed_starts.fetch_add(1, Ordering::Relaxed);
        let struck =
            !matches!(self.layout.surroundings, Surroundings::Ordinary) || self.layout.store.is_some();
        if struck { Ok(()) } else { Err(format!("a server has ended before it listened: {said}").into()) }
    }

    /// How many lines of the servers' logs have some words in them.
    pub(crate) fn server_lines(&self, words: &str) -> Result<usize, Failed> {
        let mut lines = 0;
        for server in 0..self.servers.len() {
            let said = std::fs::read(self.folder.join(format!("server-{server}.log")))?;
            lines += String::from_utf8_lossy(&said).lines().filter(|line| line.contains(words)).count();
        }
        Ok(lines)
    }

    /// Refuses logs of servers and workers that tell of a panic.
    pub(crate) fn no_process_panicked(&self) -> Result<(), Failed> {
        for file in std::fs::read_dir(&self.folder)? {
            let file = file?.path();
            if file.extension().is_none_or(|extension| extension != "log") {
                continue;
            }
            let said = std::fs::read(&file)?;
            let said = String::from_utf8_lossy(&said);
            if let Some(line) = said.lines().find(|line| line.contains("panicked")) {
                return Err(format!("{}: {line}", file.display()).into());
            }
        }
        Ok(())
    }

    /// Starts a worker; it looks for its server by itself.
    pub(crate) fn start_worker(&self, worker: usize) -> Result<(), Failed> {
        let place = worker::Place {
            server: self.bases[worker % self.servers.len()].clone(),
            recorder: self.recorder.clone(),
            rows: self.layout.rows.clone().unwrap_or_default(),
            lease: LEASE,
        };
        let log = self.folder.join(format!("worker-{worker}.log"));
        let process = match self.layout.language {
            None => Process::role("worker", &place, &self.layout.env, &log)?,
            Some(language) => {
                Process::start(&mut language.worker(&place, self.layout.planted.as_deref())?, &log)?
            }
        };
        *self.workers[worker].lock() = Some(Arc::new(process));
        Ok(())
    }
}
