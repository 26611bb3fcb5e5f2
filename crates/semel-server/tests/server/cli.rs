//! The command line, as people and scripts meet it: the binary itself, its output and its exit codes.
#![expect(clippy::unwrap_used, reason = "a test that fails by unwrap says where")]

mod definitions;
mod machine;
mod people;
mod runs;
mod store;

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};

use libtest_mimic::Trial;
use serde_json::Value;
use tempfile::TempDir;

/// The trials of a module, by the names of their functions.
macro_rules! tests {
    ($($name:ident),+ $(,)?) => {
        pub(super) fn trials() -> Vec<libtest_mimic::Trial> {
            vec![$(libtest_mimic::Trial::test(concat!("cli::", stringify!($name)), || {
                $name();
                Ok(())
            })),+]
        }
    };
}
use tests;

pub(crate) fn trials() -> Vec<Trial> {
    let all = [definitions::trials(), people::trials(), runs::trials(), store::trials(), machine::trials()];
    all.into_iter().flatten().collect()
}

/// What a command has said, and how it ended.
pub(crate) struct Said {
    code: i32,
    out: String,
    err: String,
}

impl Said {
    /// Its output as one JSON document.
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// It must have ended like this.
    pub(crate) fn ends(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        self
    }

    /// Its errors must say this.
    pub(crate) fn tells(self, what: &str) -> Self {
        assert!(self.err.contains(what), "{what:?} is not in {self:?}");
        self
    }
}

impl Said {
    /// All that it has said.
    pub(crate) fn all(&self) -> String {
        format!("{}{}", self.out, self.err)
    }

    /// Its output.
    pub(crate) fn stdout(&self) -> &str {
        &self.out
    }

    /// Whether its output says this.
    pub(crate) fn tells_on_stdout(&self, what: &str) -> bool {
        self.out.contains(what)
    }
}

impl std::fmt::Debug for Said {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "exit code {}\n--- stdout\n{}\n--- stderr\n{}", self.code, self.out, self.err)
    }
}

/// The binary, without whatever the environment of the tests says about servers.
pub(crate) fn semel(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_semel"));
    for name in ["SEMEL_URL", "SEMEL_TOKEN", "SEMEL_STORE", "NO_COLOR"] {
        command.env_remove(name);
    }
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Waits for a command.
pub(crate) fn ended(child: Child) -> Said {
    let output = child.wait_with_output().expect("the command ends");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Said { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

/// Runs a command that needs no server.
pub(crate) fn say(arguments: &[&str]) -> Said {
    ended(semel(arguments).spawn().expect("the binary is there"))
}

/// `semel dev` in a folder of its own.
struct Server {
    folder: TempDir,
    child: Child,
    url: String,
}

impl Server {
    fn start() -> Self {
        let folder = TempDir::new().expect("a folder");
        let (child, url) = Self::dev(&folder, "127.0.0.1:0");
        Self { folder, child, url }
    }

    /// The same, with this configuration of its connections.
    fn configured(text: &str) -> Self {
        let folder = TempDir::new().expect("a folder");
        std::fs::write(folder.path().join("semel.toml"), text).expect("the folder is ours");
        let (child, url) = Self::dev(&folder, "127.0.0.1:0");
        Self { folder, child, url }
    }

    fn dev(folder: &TempDir, listen: &str) -> (Child, String) {
        let path = folder.path().to_str().expect("UTF-8");
        let mut command = semel(&["dev", "--listen", listen, "--folder", path]);
        let config = folder.path().join("semel.toml");
        if config.exists() {
            command.arg("--config").arg(config);
        }
        let mut child =
            command.env("SEMEL_LOG", "off").stderr(Stdio::null()).spawn().expect("the binary is there");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let url = lines.find_map(|line| {
            let line = line.expect("UTF-8");
            let (_, rest) = line.split_once("http://")?;
            let end = rest.find(|c: char| c == ',' || c == '/' || c.is_whitespace()).unwrap_or(rest.len());
            Some(format!("http://{}", &rest[..end]))
        });
        // A command that writes to a closed pipe is stopped by it.
        std::thread::spawn(move || lines.for_each(drop));
        (child, url.expect("it says where it listens"))
    }

    /// Kills it; its files stay.
    fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it was killed");
    }

    /// Kills it and starts another one on the same store and port.
    fn crash(&mut self) {
        self.kill();
        let listen = self.url.trim_start_matches("http://").to_owned();
        (self.child, _) = Self::dev(&self.folder, &listen);
    }

    /// The store's file.
    fn file(&self) -> String {
        self.folder.path().join("semel.db").to_str().expect("UTF-8").to_owned()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = semel(arguments);
        command.env("SEMEL_URL", &self.url);
        command
    }

    /// Runs a command on it.
    fn say(&self, arguments: &[&str]) -> Said {
        ended(self.command(arguments).spawn().expect("the binary is there"))
    }

    /// The same, with something to read.
    fn say_with(&self, arguments: &[&str], stdin: &str) -> Said {
        let mut child = self.command(arguments).stdin(Stdio::piped()).spawn().expect("the binary is there");
        child.stdin.take().expect("piped").write_all(stdin.as_bytes()).expect("it reads");
        ended(child)
    }

    /// Starts a run that no engine drives; gives its id.
    fn run(&self, key: &str) -> String {
        let said = self.say(&["start", "idle", "--key", key, "-o", "json"]).ends(0);
        said.json()["run"]["id"].as_str().expect("a run has an id").to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // One that is dead already is what is wanted.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
