//! PostgreSQL with a synchronous standby: killed, restarted, failed over.
//!
//! Every commit that the primary has acknowledged is on the standby too, as long as there is one. So a fail-over loses
//! nothing that was acknowledged; a client of a [`Proxy`](crate::proxy::Proxy) only has to find the new primary.

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use libtest_mimic::{Failed, Trial};
use semel::clock::{Clock as _, SystemClock};

use crate::process::{bound, mortal};
use crate::proxy::{Cut, Proxy};
use crate::said::{PATIENCE, Said};
use crate::starts::{Starters, assert_all_there};
use crate::victim::Victim;

/// Short waits, so that a standby is back soon after its primary. Durability settings are PostgreSQL's own.
const SETTINGS: &str = "
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
shared_buffers = 64MB
wal_retrieve_retry_interval = 200ms
wal_receiver_status_interval = 1s
";
/// What a primary logs when commits wait for the standby from now on, and the standby does not lag behind.
const IN_STEP: &str = "is now a synchronous standby";
/// Ports, or processes that are not quite dead, may be in the way of a new server.
const TRIES: usize = 100;

/// A primary and its standby, on loopback. Dropped, both are killed.
pub(crate) struct Cluster {
    programs: Programs,
    primary: Postgres,
    standby: Option<Postgres>,
    /// How many servers there have been: the names of their folders.
    made: usize,
    folder: PathBuf,
    /// Deleted last; none for a folder that was given.
    _temporary: Option<Folder>,
}

impl Cluster {
    /// A new cluster with an empty database, in a folder that is removed with it.
    pub(crate) async fn start() -> Result<Self, Failed> {
        let programs = Programs::find().await?;
        let folder = programs.run("mktemp", &["-d", "-t", "semel-cluster.XXXXXX"]).await?;
        let temporary = Folder(folder.trim().into());
        let cluster = Self::make(programs, temporary.0.clone()).await?;
        Ok(Self { _temporary: Some(temporary), ..cluster })
    }

    /// The same in the given folder, which is kept.
    pub(crate) async fn start_in(folder: &Path) -> Result<Self, Failed> {
        let folder = folder.join("cluster");
        fs::create_dir(&folder)?;
        // The server's user may be another one than ours.
        for (folder, mode) in [(folder.parent(), 0o755), (Some(folder.as_path()), 0o777)] {
            fs::set_permissions(folder.ok_or("a folder in a folder")?, Permissions::from_mode(mode))?;
        }
        Self::make(Programs::find().await?, folder).await
    }

    async fn make(programs: Programs, folder: PathBuf) -> Result<Self, Failed> {
        let data = folder.join("1");
        let at = format!("--pgdata={}", data.display());
        let plain = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"];
        programs.run("initdb", &[&[at.as_str()], &plain[..]].concat()).await?;
        fs::OpenOptions::new()
            .append(true)
            .open(data.join("postgresql.conf"))?
            .write_all(SETTINGS.as_bytes())?;
        let primary = Postgres::launch(&programs, data, None).await?;
        let mut cluster = Self { programs, primary, standby: None, made: 1, folder, _temporary: None };
        cluster.sql("postgres", "CREATE DATABASE semel").await?;
        cluster.replicate().await?;
        Ok(cluster)
    }

    /// Where the primary listens: the target of the proxy.
    pub(crate) fn address(&self) -> SocketAddr {
        self.primary.address()
    }

    /// The database's URL through a proxy at this address, with connections given up after three seconds of silence.
    pub(crate) fn url(address: SocketAddr) -> String {
        format!("postgres://postgres@{address}/semel?tcp_user_timeout=3")
    }

    /// Kills the primary with SIGKILL, the postmaster and all of its children.
    pub(crate) fn kill(&mut self) -> Result<(), Failed> {
        self.primary.kill()
    }

    /// Starts a primary again that was killed, at its old address. Is over when it takes commits and its standby follows.
    pub(crate) async fn restart(&mut self) -> Result<(), Failed> {
        let Postgres { data, port, .. } = &self.primary;
        self.primary = Postgres::launch(&self.programs, data.clone(), Some(*port)).await?;
        match self.standby {
            Some(_) => self.primary.said.line(0, IN_STEP).await.map(drop),
            None => Ok(()),
        }
    }

    /// Kills the primary, never to start it again, and makes its standby the new one: gives its address. Commits go on without a standby
    /// until there is a new one by [`replicate`](Self::replicate).
    pub(crate) async fn fail_over(&mut self) -> Result<SocketAddr, Failed> {
        let standby = self.standby.take().ok_or("there is no standby: replicate first")?;
        self.primary.kill()?;
        let data = format!("--pgdata={}", standby.data.display());
        self.programs.run("pg_ctl", &[&data, "--silent", "--wait", "--timeout=60", "promote"]).await?;
        let old = std::mem::replace(&mut self.primary, standby);
        remove(&old.data)?;
        Ok(self.address())
    }

    /// Makes a standby for a primary that has none. Is over when commits wait for it.
    pub(crate) async fn replicate(&mut self) -> Result<(), Failed> {
        self.made += 1;
        let data = self.folder.join(self.made.to_string());
        let (port, slot) = (self.primary.port.to_string(), format!("--slot=standby_{}", self.made));
        let at = format!("--pgdata={}", data.display());
        let from = ["--host=127.0.0.1", "--username=postgres", "--port", &port, &at, "--create-slot", &slot];
        // The WAL comes along, a checkpoint is made at once, and the copy is set up as a standby.
        let how = ["--wal-method=stream", "--checkpoint=fast", "--write-recovery-conf", "--no-sync"];
        self.programs.run("pg_basebackup", &[&from[..], &how[..]].concat()).await?;
        self.standby = Some(Postgres::launch(&self.programs, data, None).await?);
        let from = self.primary.said.so_far();
        self.sql("postgres", "ALTER SYSTEM SET synchronous_standby_names = '*'").await?;
        self.sql("postgres", "SELECT pg_reload_conf()").await?;
        self.primary.said.line(from, IN_STEP).await.map(drop)
    }

    async fn sql(&self, database: &str, sql: &str) -> Result<(), Failed> {
        let port = self.primary.port.to_string();
        let at = ["--host=127.0.0.1", "--username=postgres", "--port", &port, "--dbname", database];
        self.programs.run("psql", &[&at[..], &["--no-psqlrc", "--quiet", "--command", sql]].concat()).await?;
        Ok(())
    }
}

/// PostgreSQL's programs, and as whom they run.
struct Programs {
    bin: PathBuf,
    as_server: Vec<String>,
}

impl Programs {
    async fn find() -> Result<Self, Failed> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/postgres-env");
        let found = output(&mut Command::new(script)).await?;
        let mut lines = found.lines().map(str::to_owned);
        let bin = PathBuf::from(lines.next().ok_or("the script names no folder")?);
        for program in ["pg_basebackup", "psql"] {
            if !bin.join(program).exists() {
                return Err(format!(
                    "there is no {program} in {}: install PostgreSQL's client programs",
                    bin.display()
                )
                .into());
            }
        }
        Ok(Self { bin, as_server: lines.collect() })
    }

    /// One of the programs, or one of the system, as the server's user.
    fn command(&self, program: &str) -> Command {
        let own = self.bin.join(program);
        // What runs it as another user dies with us, and it with that.
        let mut command = mortal(&self.as_server[0]);
        command.args(&self.as_server[1..]).args(bound());
        command.arg(if own.exists() { own } else { program.into() });
        // The server's user may not be allowed where we are; and the caller's PGHOST and so on speak of another server.
        command.current_dir("/").stdin(Stdio::null());
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PG")) {
            command.env_remove(name);
        }
        command
    }

    async fn run(&self, program: &str, arguments: &[&str]) -> Result<String, Failed> {
        output(self.command(program).args(arguments)).await
    }
}

/// Runs a command to its end, which comes in time.
async fn output(command: &mut Command) -> Result<String, Failed> {
    let shown = format!("{command:?}");
    let mut command = tokio::process::Command::from(std::mem::replace(command, Command::new("")));
    let ended = tokio::time::timeout(PATIENCE, command.kill_on_drop(true).output()).await;
    let ended = ended.map_err(|_| format!("{shown} does not end"))??;
    if !ended.status.success() {
        return Err(format!("{shown}: {}", String::from_utf8_lossy(&ended.stderr)).into());
    }
    Ok(String::from_utf8(ended.stdout)?)
}

/// A server process.
struct Postgres {
    data: PathBuf,
    port: u16,
    /// What runs it as the server's user; it ends with it.
    child: Child,
    said: Said,
}

impl Postgres {
    /// Starts a server and waits until it takes connections.
    async fn launch(programs: &Programs, data: PathBuf, port: Option<u16>) -> Result<Self, Failed> {
        let mut last = Failed::from("never tried");
        for _ in 0..TRIES {
            // Below 32768, where no outgoing connection takes it while the server is down.
            let port = port.unwrap_or_else(|| 20_000 + (SystemClock::new().uuid().as_u128() % 12_000) as u16);
            let mut command = programs.command("postgres");
            command.arg("-D").arg(&data).arg("-p").arg(port.to_string());
            let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
            let said = Said::by(child.stderr.take().ok_or("a pipe")?);
            let server = Self { data: data.clone(), port, child, said };
            match server.said.line(0, "ready to accept").await {
                Ok(_) => return Ok(server),
                Err(failed) => {
                    let text = server.said.text();
                    let in_the_way = ["could not bind", "still in use", "is another postmaster"];
                    if !in_the_way.iter().any(|words| text.contains(words)) {
                        return Err(failed);
                    }
                    last = failed;
                }
            }
        }
        Err(last)
    }

    fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Kills it with its children, and waits until it is gone.
    fn kill(&mut self) -> Result<(), Failed> {
        if self.child.try_wait()?.is_none() {
            let file = fs::read_to_string(self.data.join("postmaster.pid"))?;
            let postmaster: u32 = file.lines().next().ok_or("no pid in its file")?.trim().parse()?;
            // Stopped, it makes no more children while they are counted.
            signal("-STOP", &[postmaster])?;
            let mut all = children(postmaster)?;
            all.push(postmaster);
            signal("-KILL", &all)?;
            // What runs it as another user stops along with it, and would not see its end.
            signal("-CONT", &[self.child.id()])?;
        }
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // Without a pid file it has not come that far, or has ended.
        if self.kill().is_err() {
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }
}

fn signal(name: &str, pids: &[u32]) -> Result<(), Failed> {
    let pids = pids.iter().map(ToString::to_string);
    let ended = Command::new("kill").arg(name).args(pids).stderr(Stdio::piped()).output()?;
    // A child may end by itself before it is killed.
    match ended.status.success() || String::from_utf8_lossy(&ended.stderr).contains("No such process") {
        true => Ok(()),
        false => Err(format!("kill {name}: {}", String::from_utf8_lossy(&ended.stderr)).into()),
    }
}

/// The processes that have this parent, by what Linux tells of all.
fn children(parent: u32) -> Result<Vec<u32>, Failed> {
    let mut children = Vec::new();
    for process in fs::read_dir("/proc")? {
        let path = process?.path();
        let Some(pid) = path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok()) else {
            continue;
        };
        // One that has ended meanwhile has no file.
        let stat = fs::read_to_string(path.join("stat")).unwrap_or_default();
        // `pid (name) state parent`: the name may contain anything.
        let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
        if after.split_whitespace().nth(1).is_some_and(|found| found == parent.to_string()) {
            children.push(pid);
        }
    }
    Ok(children)
}

/// A folder that is removed with everything in it.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.0) {
            eprintln!("{} could not be removed: {error}", self.0.display());
        }
    }
}

/// A process that was killed a moment ago may just have made one more file.
pub(crate) fn remove(folder: &Path) -> std::io::Result<()> {
    fs::remove_dir_all(folder).or_else(|_| fs::remove_dir_all(folder))
}

pub(crate) fn trials() -> Vec<Trial> {
    crate::trials![
        every_start_that_was_answered_survives_a_kill_and_a_fail_over,
        servers_leave_connections_that_have_fallen_silent,
    ]
}

/// Both sides of the line are there and acknowledge what comes; but nothing arrives, and neither side is told.
async fn servers_leave_connections_that_have_fallen_silent() -> Result<(), Failed> {
    let cluster = Cluster::start().await?;
    let proxy = Proxy::to(cluster.address()).await?;
    let store = Cluster::url(proxy.address());
    let here = Victim::serve(Victim::command(), &store).await?;
    let there = Victim::serve(Victim::command(), &store).await?;
    let mut starters = Starters::begin(&[here.base(), there.base()], 8);
    for _ in 0..2 {
        starters.more(100).await?;
        proxy.silence();
        proxy.pass();
    }
    starters.more(100).await?;
    let started = starters.end().await?;
    assert_all_there(&here.base(), &started).await?;
    assert_all_there(&there.base(), &started).await
}

async fn every_start_that_was_answered_survives_a_kill_and_a_fail_over() -> Result<(), Failed> {
    let mut cluster = Cluster::start().await?;
    let proxy = Proxy::to(cluster.address()).await?;
    let store = Cluster::url(proxy.address());
    let here = Victim::serve(Victim::command(), &store).await?;
    let there = Victim::serve(Victim::command(), &store).await?;
    let mut starters = Starters::begin(&[here.base(), there.base()], 8);
    starters.more(100).await?;

    cluster.kill()?;
    cluster.restart().await?;
    starters.more(100).await?;

    for cut in [Cut::Reset, Cut::Close] {
        proxy.retarget(cluster.fail_over().await?);
        proxy.cut(cut);
        starters.more(100).await?;
        cluster.replicate().await?;
        starters.more(100).await?;
    }
    let started = starters.end().await?;
    assert_all_there(&here.base(), &started).await?;
    assert_all_there(&there.base(), &started).await
}
