//! A server process, which is made to suffer.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use libtest_mimic::Failed;
use serde_json::Value;

use crate::process::mortal;
use crate::said::Said;

/// A server on a port of its own, without authentication. It is killed when dropped.
pub(crate) struct Victim {
    child: Child,
    said: Said,
    base: String,
}

impl Victim {
    /// The binary, without arguments and with an empty environment.
    pub(crate) fn command() -> Command {
        let mut command = mortal(env!("CARGO_BIN_EXE_semel"));
        command.env_clear();
        command
    }

    /// Adds what makes it serve a store, and starts it; waits until it listens.
    pub(crate) async fn serve(mut command: Command, store: impl AsRef<OsStr>) -> Result<Self, Failed> {
        command.args(["serve", "--listen", "127.0.0.1:0", "--log", "json", "--store"]).arg(store);
        // What happens, but not every request.
        command.env("SEMEL_AUTH", "none").env("SEMEL_LOG", "info,semel_server::serve::observe=warn");
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let said = Said::by(child.stderr.take().ok_or("a pipe")?);
        let mut victim = Self { child, said, base: String::new() };
        let line = victim.said.line(0, "\"listening\"").await?;
        let line: Value = serde_json::from_str(&line)?;
        victim.base = format!("http://{}", line["address"].as_str().ok_or("it says where")?);
        Ok(victim)
    }

    /// Where it listens.
    pub(crate) fn base(&self) -> String {
        self.base.clone()
    }

    /// The same as an address, for a proxy.
    pub(crate) fn address(&self) -> Result<SocketAddr, Failed> {
        Ok(self.base.trim_start_matches("http://").parse()?)
    }

    /// Whether it has not ended by itself.
    pub(crate) fn lives(&mut self) -> Result<bool, Failed> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// What it has logged.
    pub(crate) fn said(&self) -> &Said {
        &self.said
    }

    /// Ends it as a crash does.
    pub(crate) fn kill(mut self) -> Result<(), Failed> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Victim {
    /// One that has ended cannot be ended again, and need not be.
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
