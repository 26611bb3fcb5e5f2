//! A server process and worker processes: killed in the middle, stopped past their lease.

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use libtest_mimic::{Failed, Trial};
use tempfile::TempDir;

const PARCELS: u64 = 20;
/// A label, three items and a letter.
const EFFECTS: u64 = 5;

pub(super) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("workers::a_worker_that_is_killed_is_followed_by_another_and_effects_are_once", killed),
        Trial::test("workers::a_worker_that_was_stopped_past_its_lease_repeats_nothing", stopped),
    ]
}

/// A process that ends with its value, and what it says.
struct WorkerProcess {
    child: Child,
    said: Lines<BufReader<ChildStdout>>,
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl WorkerProcess {
    fn spawn(command: &mut Command) -> Result<Self, Failed> {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let said = BufReader::new(child.stdout.take().ok_or("a pipe")?).lines();
        Ok(Self { child, said })
    }

    /// Reads until a line that is wanted.
    fn until(&mut self, wanted: impl Fn(&str) -> bool) -> Result<String, Failed> {
        for line in self.said.by_ref() {
            let line = line?;
            if wanted(&line) {
                return Ok(line);
            }
        }
        Err("the process has ended without saying it".into())
    }

    fn signal(&self, name: &str) -> Result<(), Failed> {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status()?;
        if sent.success() { Ok(()) } else { Err("the signal was not sent".into()) }
    }
}

fn server(folder: &Path) -> Result<(WorkerProcess, String), Failed> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_semel"));
    let mut process =
        WorkerProcess::spawn(command.args(["dev", "--listen", "127.0.0.1:0", "--folder"]).arg(folder))?;
    let line = process.until(|line| line.contains("http://"))?;
    let at = line.find("http://").ok_or("an address")?;
    let url = line[at..].split([',', ' ']).next().ok_or("an address")?.to_owned();
    Ok((process, url))
}

fn worker(url: &str, outbox: &Path) -> Result<WorkerProcess, Failed> {
    let this = std::env::current_exe()?;
    let built = this.parent().and_then(Path::parent).ok_or("a target folder")?;
    let program = built.join("examples").join("remote_worker");
    if !program.exists() {
        return Err("the example is not built: run `cargo test` without `--test`, which builds it".into());
    }
    let mut command = Command::new(program);
    WorkerProcess::spawn(
        command.env("SEMEL_URL", url).env("OUTBOX", outbox).env("PARCELS", PARCELS.to_string()),
    )
}

/// Every effect is there, each under a key of its own, each what it should be.
fn assert_each_once(outbox: &Path) -> Result<(), Failed> {
    let mut effects = HashSet::new();
    for file in std::fs::read_dir(outbox)? {
        let effect = std::fs::read_to_string(file?.path())?;
        assert!(effects.insert(effect.clone()), "{effect} took place twice");
    }
    assert_eq!(effects.len() as u64, PARCELS * EFFECTS);
    Ok(())
}

fn all_sent(line: &str) -> bool {
    line == format!("all {PARCELS} parcels are sent")
}

fn killed() -> Result<(), Failed> {
    let folder = TempDir::new()?;
    let outbox = folder.path().join("outbox");
    let (_server, url) = server(&folder.path().join("server"))?;
    let mut first = worker(&url, &outbox)?;
    for _ in 0..30 {
        first.until(|line| line.starts_with("done "))?;
    }
    first.signal("KILL")?;
    drop(first);
    let mut second = worker(&url, &outbox)?;
    second.until(all_sent)?;
    assert!(second.child.wait()?.success());
    assert_each_once(&outbox)
}

fn stopped() -> Result<(), Failed> {
    let folder = TempDir::new()?;
    let outbox = folder.path().join("outbox");
    let (_server, url) = server(&folder.path().join("server"))?;
    let mut zombie = worker(&url, &outbox)?;
    for _ in 0..30 {
        zombie.until(|line| line.starts_with("done "))?;
    }
    zombie.signal("STOP")?;
    let mut second = worker(&url, &outbox)?;
    second.until(all_sent)?;
    assert_each_once(&outbox)?;
    zombie.signal("CONT")?;
    // It hears that others have finished its runs, and ends in the same way.
    zombie.until(all_sent)?;
    assert!(zombie.child.wait()?.success());
    assert_each_once(&outbox)
}
