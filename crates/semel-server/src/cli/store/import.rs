//! `semel store import`: an archive becomes a store.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use semel::rules::archive::{Checker, Line};
use semel::store::archive::Imported;
use serde_json::json;

use super::export::{FORMAT, Written};
use super::{Open, Place};
use crate::cli::exit::{Done, Exit, Failure};
use crate::cli::output::{Format, facts, json as text, print, progress};

/// So many lines are one transaction.
const BATCH: usize = 200;

/// Put an archive into an empty store; open runs go on there.
///
/// The whole file is read and checked before the first line is written. With `--continue` an import that broke off goes on:
/// lines that are there, exactly like this, are absorbed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  semel store import --store postgres://semel@localhost/semel semel.ndjson
  semel store import --store sqlite:new.db semel.ndjson --continue")]
pub(in crate::cli) struct Import {
    #[command(flatten)]
    place: Place,
    /// The file, or the folder that holds `semel.ndjson`.
    from: PathBuf,
    /// Go on with an import of the same file that broke off.
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

/// Writes all lines, batch by batch.
async fn fill(open: &Open, path: &Path, lines: u64) -> Done<Imported> {
    let (bar, mut sum, mut batch) = (progress(Some(lines), "importing"), Imported::default(), Vec::new());
    let mut file = Lines::open(path)?;
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

/// Reads the whole file and checks what it says; how many lines it has.
fn check(path: &Path) -> Done<u64> {
    let (mut file, mut checker) = (Lines::open(path)?, Checker::default());
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

/// The lines of a file, without its first and last one.
struct Lines {
    path: PathBuf,
    file: std::io::Lines<BufReader<File>>,
    /// Of the line that was read last, from 1.
    number: u64,
}

impl Lines {
    fn open(path: &Path) -> Done<Self> {
        let file = File::open(path).map_err(|error| {
            Failure::new(Exit::NotFound, format!("{} cannot be read: {error}", path.display()))
        })?;
        let mut lines = Self { path: path.to_owned(), file: BufReader::new(file).lines(), number: 0 };
        match lines.written()? {
            Some(Written::Head { semel, format: FORMAT }) if semel == "archive" => Ok(lines),
            Some(Written::Head { format, .. }) => {
                let failure = lines.wrong(&format!("it has format {format}, this Semel knows {FORMAT}"));
                Err(failure.help("use a newer Semel"))
            }
            _ => Err(lines.wrong("it is no archive of Semel")),
        }
    }

    fn next(&mut self) -> Done<Option<Line>> {
        match self.written()? {
            Some(Written::Line(line)) => Ok(Some(line)),
            Some(Written::End { end }) if end + 2 == self.number && self.file.next().is_none() => Ok(None),
            Some(_) => Err(self.wrong("its last line does not fit the others")),
            None => Err(self.wrong("it is cut off: its last line is missing")),
        }
    }

    fn written(&mut self) -> Done<Option<Written>> {
        let Some(text) = self.file.next() else { return Ok(None) };
        self.number += 1;
        let text = text.map_err(|error| self.wrong(&error.to_string()))?;
        let read = serde_json::from_str(&text);
        read.map(Some).map_err(|_| self.wrong("it is no line of an archive"))
    }

    fn wrong(&self, what: &str) -> Failure {
        let message = format!("{}, line {}: {what}", self.path.display(), self.number);
        Failure::new(Exit::Refused, message).help("nothing was imported; export the store again")
    }
}
