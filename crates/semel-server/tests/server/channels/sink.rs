//! A mail server in a process of its own: aiosmtpd, started by `scripts/smtp-sink`.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// The server, and what it has accepted. It ends with its standard input, that is with this value.
pub(crate) struct Sink {
    child: Child,
    port: u16,
    folder: TempDir,
}

/// A mail as it was accepted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Accepted {
    pub(crate) to: Vec<String>,
    /// Value of `Message-ID`.
    pub(crate) id: String,
    pub(crate) text: String,
}

impl Sink {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same with options of the script.
    pub(crate) fn start_with(options: &[&str]) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/smtp-sink");
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("there is a target folder");
        let folder = TempDir::new().expect("a folder for mails");
        let log = folder.path().join("log");
        let mut child = Command::new(script)
            .arg(folder.path())
            .args(options)
            .env("CARGO_TARGET_DIR", target)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&log).expect("the folder is ours"))
            .spawn()
            .expect("the mail server starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("it was asked for");
        BufReader::new(stdout).read_line(&mut line).expect("it tells its port");
        let port = line.trim().parse().unwrap_or_else(|_| {
            panic!("the mail server did not start: {}", std::fs::read_to_string(&log).unwrap_or_default())
        });
        Self { child, port, folder }
    }

    /// Forgets all mails, and takes a new plan: one word for each connection.
    pub(crate) fn plan(&self, plan: &[&str]) {
        let write = |name: &str, text: &str| std::fs::write(self.folder.path().join(name), text);
        write("mails", "").and_then(|()| write("plan", &plan.join("\n"))).expect("the folder is ours");
    }

    /// Everything that was accepted, in its order.
    pub(crate) fn accepted(&self) -> Vec<Accepted> {
        let text = std::fs::read_to_string(self.folder.path().join("mails")).expect("the folder is ours");
        text.lines()
            .map(|line| Accepted::read(&serde_json::from_str(line).expect("a line is JSON")))
            .collect()
    }

    /// Where it listens on this machine.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The configuration of a connection `post` to it.
    pub(crate) fn config(&self, more: &str) -> String {
        let port = self.port;
        format!(
            "[connections.post]\nkind = 'smtp'\nhost = '127.0.0.1'\nport = {port}\ntls = 'off'\n\
             from = 'Shop <shop@example.com>'\n{more}\n"
        )
    }
}

impl Accepted {
    fn read(mail: &Value) -> Self {
        use base64::Engine as _;
        let coded = mail["bytes"].as_str().expect("it has bytes");
        let bytes = base64::engine::general_purpose::STANDARD.decode(coded).expect("they are base64");
        let text = String::from_utf8(bytes).expect("a mail is ASCII");
        let id = text.lines().find_map(|line| line.strip_prefix("Message-ID: ")).expect("it has an id");
        let to = mail["to"].as_array().expect("it has receivers");
        let to = to.iter().map(|to| to.as_str().expect("an address").to_owned()).collect();
        Self { to, id: id.to_owned(), text }
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // It has ended by itself, or is not needed any more.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
