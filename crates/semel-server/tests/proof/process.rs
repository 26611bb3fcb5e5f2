//! A process of the proof, seen from outside: started, signalled, read.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{LazyLock, Mutex, MutexGuard};

use libtest_mimic::Failed;

/// The variable that makes this program a recorder or a worker, and the one that tells it where it is.
pub(crate) const ROLE: &str = "SEMEL_PROOF_ROLE";
pub(crate) const PLACE: &str = "SEMEL_PROOF_PLACE";

/// A command that is killed as soon as its parent process has died, where the system can do that.
pub(crate) fn mortal(program: impl AsRef<OsStr>) -> Command {
    let mut words = bound().iter().map(OsStr::new).chain([program.as_ref()]);
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    command
}

/// The words before a command that bind its life to that of its parent.
pub(crate) fn bound() -> &'static [&'static str] {
    const WORDS: &[&str] = &["setpriv", "--pdeathsig", "KILL", "--"];
    static KNOWN: LazyLock<bool> = LazyLock::new(|| {
        let mut tried = Command::new(WORDS[0]);
        tried.args(&WORDS[1..]).arg("true").stderr(Stdio::null());
        tried.status().is_ok_and(|status| status.success())
    });
    if *KNOWN { WORDS } else { &[] }
}

/// A process. It is killed when this is dropped.
pub(crate) struct Process {
    child: Mutex<Child>,
    pid: u32,
    log: PathBuf,
}

impl Process {
    /// Starts a program whose words go to a file, after those of the ones before it.
    pub(crate) fn start(command: &mut Command, log: &Path) -> Result<Self, Failed> {
        let file = OpenOptions::new().create(true).append(true).open(log)?;
        command.stdin(Stdio::piped()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn()?;
        Ok(Self { pid: child.id(), child: Mutex::new(child), log: log.to_owned() })
    }

    /// Starts this program in another role.
    pub(crate) fn role(
        role: &str,
        place: &impl serde::Serialize,
        env: &[(String, String)],
        log: &Path,
    ) -> Result<Self, Failed> {
        let mut command = mortal(std::env::current_exe()?);
        command.env(ROLE, role).env(PLACE, serde_json::to_string(place)?).envs(env.iter().cloned());
        Self::start(&mut command, log)
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().expect("no holder of the lock panics")
    }

    /// SIGKILL, and waits until it is dead.
    pub(crate) fn kill(&self) -> Result<(), Failed> {
        let mut child = self.child();
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// STOP or CONT.
    pub(crate) fn signal(&self, name: &str) -> Result<(), Failed> {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.pid.to_string()).status()?;
        if sent.success() { Ok(()) } else { Err(format!("{name} could not be sent to {}", self.pid).into()) }
    }

    /// Whether it has not ended by itself.
    pub(crate) fn lives(&self) -> bool {
        matches!(self.child().try_wait(), Ok(None))
    }

    pub(crate) fn log(&self) -> &Path {
        &self.log
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.kill());
    }
}
