//! What a process says, line by line: kept, and waited for.

use std::io::{BufRead as _, BufReader, Read};
use std::time::Duration;

use libtest_mimic::Failed;
use tokio::sync::watch;

/// Whatever is waited for comes within this time, or never.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// The lines of a process so far. A thread reads them as they come, so that the process never waits for a reader.
#[derive(Clone)]
pub(crate) struct Said(watch::Receiver<Vec<String>>);

impl Said {
    /// Listens to what a process writes into a pipe.
    pub(crate) fn by(pipe: impl Read + Send + 'static) -> Self {
        let (lines, said) = watch::channel(Vec::new());
        std::thread::spawn(move || {
            // Bytes that are no text end it like a closed pipe.
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                lines.send_modify(|lines| lines.push(line));
            }
        });
        Self(said)
    }

    /// The number of lines so far; pass it to [`line`](Self::line) to wait for a line after this moment.
    pub(crate) fn so_far(&self) -> usize {
        self.0.borrow().len()
    }

    /// Waits for a line that contains some words, and stands at `from` or later.
    pub(crate) async fn line(&self, from: usize, words: &str) -> Result<String, Failed> {
        let (mut lines, mut next, mut found) = (self.0.clone(), from, None);
        let coming = lines.wait_for(|lines| {
            found = lines.iter().skip(next).find(|line| line.contains(words)).cloned();
            next = next.max(lines.len());
            found.is_some()
        });
        let waited = tokio::time::timeout(PATIENCE, coming).await.map(|waited| waited.is_ok());
        match (found, waited) {
            (Some(line), _) => Ok(line),
            (None, Ok(_)) => Err(format!("it has ended without saying {words:?}:\n{}", self.text()).into()),
            (None, Err(_)) => Err(format!("it does not say {words:?}:\n{}", self.text()).into()),
        }
    }

    /// The last lines, for the message of a failure.
    pub(crate) fn text(&self) -> String {
        let lines = self.0.borrow();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }
}
