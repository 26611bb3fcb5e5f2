//! The other processes, seen from here: started, heard, killed, ended.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::mpsc::UnboundedSender;

use super::folder::Folder;
use super::tally::ShowEvent;
use crate::demo::DemoError;

/// Nothing takes this long to start or to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// A process. It is killed when this is dropped; it ends by itself when its input does, and so when this process dies.
pub(super) struct Process {
    child: Child,
    pid: u32,
    address: SocketAddr,
    name: &'static str,
}

/// Starts the provider, and passes on what it tells.
pub(super) async fn provider(
    folder: &Folder,
    seed: u64,
    tell: UnboundedSender<ShowEvent>,
) -> Result<Process, DemoError> {
    let args = ["--seed".into(), seed.to_string().into()];
    let (process, mut lines) = Process::start("demo-provider", folder.path(), &args).await?;
    tokio::spawn(async move {
        while let Ok(Some(line)) = lines.next_line().await {
            let Ok(note) = serde_json::from_str(&line) else { continue };
            if tell.send(ShowEvent::Provider(note)).is_err() {
                return;
            }
        }
    });
    Ok(process)
}

/// Starts an engine; on this address, if that is free.
pub(super) async fn engine(
    folder: &Path,
    provider: SocketAddr,
    address: Option<SocketAddr>,
) -> Result<Process, DemoError> {
    let mut args: Vec<OsString> = vec!["--provider".into(), format!("http://{provider}").into()];
    if let Some(address) = address {
        args.extend(["--listen".into(), address.to_string().into()]);
    }
    Ok(Process::start("demo-engine", folder, &args).await?.0)
}

impl Process {
    async fn start(
        name: &'static str,
        folder: &Path,
        args: &[OsString],
    ) -> Result<(Self, Lines<BufReader<ChildStdout>>), DemoError> {
        let failed = |what: &str| DemoError::io(format!("{name}: {what}"));
        let log = OpenOptions::new().create(true).append(true).open(folder.join(format!("{name}.log")));
        let mut command = Command::new(std::env::current_exe().map_err(failed("where is this program?"))?);
        command.arg(name).arg("--folder").arg(folder).args(args).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log.map_err(failed("its log"))?);
        let mut child = command.spawn().map_err(failed("it does not start"))?;
        let pid = child.id().unwrap_or_default();
        let output = child.stdout.take().expect("it was asked for");
        let mut lines = BufReader::new(output).lines();
        let first = tokio::time::timeout(PATIENCE, lines.next_line()).await;
        let address = first.ok().and_then(Result::ok).flatten().and_then(|line| line.parse().ok());
        match address {
            Some(address) => Ok((Self { child, pid, address, name }, lines)),
            None => Err(DemoError::Process(format!(
                "{name} does not say where it listens:\n{}",
                said(folder, name)
            ))),
        }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// SIGKILL, and waits until it is dead.
    pub(super) async fn kill(mut self) -> Result<(), DemoError> {
        self.child.kill().await.map_err(DemoError::io(format!("{} cannot be killed", self.name)))
    }

    /// Closes its standard input, and waits until the process has ended by itself.
    pub(super) async fn end(mut self) -> Result<(), DemoError> {
        drop(self.child.stdin.take());
        let ended = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        match ended {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => Err(DemoError::Process(format!("{} has ended with {status}", self.name))),
            Ok(Err(source)) => Err(DemoError::Io { what: self.name.to_owned(), source }),
            Err(_) => Err(DemoError::Process(format!("{} does not end", self.name))),
        }
    }
}

/// The log of a process that has failed.
fn said(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(format!("{name}.log"))).unwrap_or_default()
}
