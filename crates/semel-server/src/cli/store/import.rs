//! `semel store import`: reads an archive into a store.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use semel::rules::archive::{ArchiveLine, Checker};
use semel::store::archive::Imported;
use serde_json::json;

use super::export::{ArchiveFileLine, FORMAT};
use super::{Open, StoreArgs};
use crate::cli::exit::{Done, Exit, Failure};
use crate::cli::output::{Format, facts, json as text, print, progress};

/// Number of lines per transaction.
const BATCH: usize = 200;

/// Read an archive into an empty store; open runs continue there.
///
/// The whole file is read and checked before the first line is written. With `--continue`, an interrupted import is
/// resumed: identical lines that are already present are skipped.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  semel store import --store postgres://semel@localhost/semel semel.ndjson
  semel store import --store sqlite:new.db semel.ndjson --continue")]
pub(in crate::cli) struct Import {
    #[command(flatten)]
    place: StoreArgs,
    /// Archive file, or the folder that holds `semel.ndjson`.
    from: PathBuf,
    /// Resume an interrupted import of the same file.
    #[arg(long = "continue")]
    go_on: bool,
}

impl Import {
    pub(super) async fn execute(self, output: Format) -> Done {
        let path = if self.from.is_dir() { self.from.join("semel.ndjson") } else { self.from.clone() };
        let lines = check(&path)?;
        let open = self.place.open().await?;
        if !self.go_on && !is_empty(&open).await? {
            let failure = Failure::new(Exit::Refused, "the store is not empty");
            return Err(
                failure.help("import into a new one; --continue goes on with an import that broke off")
            );
        }
        let imported = fill(&open, &path, lines).await?;
        open.close().await?;
        match output {
            Format::Table => print(&facts(&[
                ("imported", format!("{} lines", imported.made)),
                ("absorbed", format!("{} lines that were there", imported.absorbed)),
            ])),
            _ => print(&text(&json!({"imported": imported.made, "absorbed": imported.absorbed}))),
        }
    }
}

async fn is_empty(open: &Open) -> Done<bool> {
    let mut empty = true;
    let mut each = |_| {
        empty = false;
        ControlFlow::Break(())
    };
    open.archive().export(None, &mut each).await?;
    Ok(empty)
}

/// Writes all lines, in batches.
async fn fill(open: &Open, path: &Path, lines: u64) -> Done<Imported> {
    let (bar, mut sum, mut batch) = (progress(Some(lines), "importing"), Imported::default(), Vec::new());
    let mut file = ArchiveLines::open(path)?;
    loop {
        let line = file.next()?;
        let ended = line.is_none();
        batch.extend(line);
        if batch.len() == BATCH || ended {
            bar.inc(batch.len() as u64);
            let imported = open.archive().import(std::mem::take(&mut batch)).await?;
            sum.made += imported.made;
            sum.absorbed += imported.absorbed;
        }
        if ended {
            bar.finish_and_clear();
            return Ok(sum);
        }
    }
}

/// Reads and checks the whole file; returns the number of its lines.
fn check(path: &Path) -> Done<u64> {
    let (mut file, mut checker) = (ArchiveLines::open(path)?, Checker::default());
    let bar = progress(None, "reading");
    while let Some(line) = file.next()? {
        bar.inc(1);
        if let Some(finding) = checker.check(&line).first() {
            let message = format!("{}, line {}: {finding}", path.display(), file.number);
            return Err(
                Failure::new(Exit::Refused, message).help("nothing was imported; export the store again")
            );
        }
    }
    bar.finish_and_clear();
    Ok(checker.lines())
}

/// Lines of a file, without its first and last one.
struct ArchiveLines {
    path: PathBuf,
    file: std::io::Lines<BufReader<File>>,
    /// Number of the line that was read last, from 1.
    number: u64,
}

impl ArchiveLines {
    fn open(path: &Path) -> Done<Self> {
        let file = File::open(path).map_err(|error| {
            Failure::new(Exit::NotFound, format!("{} cannot be read: {error}", path.display()))
        })?;
        let mut lines = Self { path: path.to_owned(), file: BufReader::new(file).lines(), number: 0 };
        match lines.written()? {
            Some(ArchiveFileLine::Head { semel, format: FORMAT }) if semel == "archive" => Ok(lines),
            Some(ArchiveFileLine::Head { format, .. }) => {
                let failure = lines.wrong(&format!("it has format {format}, this Semel knows {FORMAT}"));
                Err(failure.help("use a newer Semel"))
            }
            _ => Err(lines.wrong("it is no archive of Semel")),
        }
    }

    fn next(&mut self) -> Done<Option<ArchiveLine>> {
        match self.written()? {
            Some(ArchiveFileLine::Line(line)) => Ok(Some(line)),
            Some(ArchiveFileLine::End { end }) if end + 2 == self.number && self.file.next().is_none() => {
                Ok(None)
            }
            Some(_) => Err(self.wrong("the last line does not match the others")),
            None => Err(self.wrong("the archive is incomplete: its last line is missing")),
        }
    }

    fn written(&mut self) -> Done<Option<ArchiveFileLine>> {
        let Some(text) = self.file.next() else { return Ok(None) };
        self.number += 1;
        let text = text.map_err(|error| self.wrong(&error.to_string()))?;
        let read = serde_json::from_str(&text);
        read.map(Some).map_err(|_| self.wrong("this is not a line of an archive"))
    }

    fn wrong(&self, what: &str) -> Failure {
        let message = format!("{}, line {}: {what}", self.path.display(), self.number);
        Failure::new(Exit::Refused, message).help("nothing was imported; export the store again")
    }
}
