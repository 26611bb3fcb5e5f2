//! The mail server of the phase: `scripts/smtp-sink`, which is killed, and keeps what it has accepted in a file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use libtest_mimic::Failed;
use semel::clock::{Clock as _, SystemClock};
use semel::testing::Dice;
use serde_json::Value;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use super::deeds::Deeds;
use crate::process::{Process, mortal};

/// Where the server breaks off, or what it answers, in some of the first connections.
const STAGES: [&str; 6] = ["dot", "lost", "data", "greeting", "refuse-rcpt:450", "refuse-dot:451"];
/// How many connections have a stage drawn for them.
const PLANNED: u64 = 500;
/// What a sender that was killed has sent is read by then.
const SETTLED: Duration = Duration::from_millis(300);

/// The mail server, at a port of its own.
pub(super) struct Mails {
    folder: PathBuf,
    port: u16,
}

impl Mails {
    /// Makes its folder, with what is to go wrong.
    pub(super) fn open(folder: &Path, port: u16, seed: u64) -> Result<Self, Failed> {
        let folder = folder.join("mails");
        std::fs::create_dir_all(&folder)?;
        let mut dice = Dice::named(seed, "mails");
        let plan: Vec<&str> = (0..PLANNED)
            .map(|_| if dice.percent(12) { STAGES[dice.below(STAGES.len() as u64) as usize] } else { "ok" })
            .collect();
        std::fs::write(folder.join("plan"), plan.join("\n"))?;
        std::fs::write(folder.join("mails"), "")?;
        Ok(Self { folder, port })
    }

    /// Starts its process.
    pub(super) fn start(&self) -> Result<Process, Failed> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/smtp-sink");
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().ok_or("there is a target folder")?;
        let mut command = mortal(script);
        command.arg(&self.folder).arg(self.port.to_string()).env("CARGO_TARGET_DIR", target);
        Process::start(&mut command, &self.folder.join("sink.log"))
    }

    /// Whether it greets.
    pub(super) async fn greets(&self) -> bool {
        let Ok(mut line) = TcpStream::connect(("127.0.0.1", self.port)).await else { return false };
        matches!(line.read(&mut [0; 3]).await, Ok(1..))
    }

    /// The connection, as the server's file has it.
    pub(super) fn config(&self) -> String {
        format!(
            "[connections.post]\nkind = \"smtp\"\nhost = \"127.0.0.1\"\nport = {}\ntls = \"off\"\n\
             from = \"Shop <shop@example.com>\"\n",
            self.port
        )
    }

    /// The subjects of all mails.
    fn subjects(&self) -> Result<Vec<String>, Failed> {
        let text = std::fs::read_to_string(self.folder.join("mails"))?;
        let subject = |line: &str| -> Result<String, Failed> {
            let mail: Value = serde_json::from_str(line)?;
            let bytes = STANDARD.decode(mail["bytes"].as_str().ok_or("a mail has bytes")?)?;
            let text = String::from_utf8(bytes)?;
            let subject = text.lines().find_map(|line| line.strip_prefix("Subject: "));
            Ok(subject.ok_or("a mail has a subject")?.to_owned())
        };
        text.lines().map(subject).collect()
    }

    /// Adds all mails.
    pub(super) fn count(&self, deeds: &mut Deeds) -> Result<(), Failed> {
        for (number, subject) in (1..).zip(self.subjects()?) {
            deeds.add(&subject, number);
        }
        Ok(())
    }

    /// Whether a mail was accepted, when all that was sent before is read.
    pub(super) async fn has(&self, at: &str) -> Result<bool, Failed> {
        let clock = SystemClock::new();
        clock.until(clock.now().after(SETTLED)).await;
        // It greets after it has read what was there before; if it is away, so are its connections.
        self.greets().await;
        Ok(self.subjects()?.iter().any(|subject| subject == at))
    }
}
