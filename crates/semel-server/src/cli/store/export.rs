//! `semel store export`: writes an archive, line by line.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use semel::id::WorkspaceId;
use semel::rules::archive::ArchiveLine;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::StoreArgs;
use crate::cli::exit::{Done, Exit, Failure};
use crate::cli::output::{Format, facts, json as text, note, print, progress};

/// Version of the archive format.
pub(super) const FORMAT: u32 = 1;

/// A line of the archive file: the lines of the store, between a first and a last one.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum ArchiveFileLine {
    /// The first line: identifies the file.
    Head { semel: String, format: u32 },
    /// The last line: the number of lines in between. Without it the file is incomplete.
    End { end: u64 },
    /// A line of the store.
    Line(ArchiveLine),
}

/// Write a whole store to a file, one JSON document per line.
///
/// A PostgreSQL store may be in use: the archive is a snapshot. A SQLite store is open in one process only, so stop
/// its server first. `semel store import` reads the archive into another store.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  semel store export --store sqlite:semel.db semel.ndjson
  semel store export --store postgres://semel@localhost/semel backup/
  semel store export --store sqlite:semel.db - | gzip > semel.ndjson.gz")]
pub(in crate::cli) struct Export {
    #[command(flatten)]
    place: StoreArgs,
    /// File to write, a folder (for `semel.ndjson` in it), or `-` for stdout. An existing file is not overwritten.
    to: PathBuf,
    /// Export only this workspace, by id.
    #[arg(long, value_name = "ID")]
    workspace: Option<WorkspaceId>,
}

impl Export {
    pub(super) async fn execute(self, output: Format) -> Done {
        let open = self.place.open_existing().await?;
        let target = ExportTarget::new(&self.to)?;
        let mut out = Out { to: target.open()?, lines: 0 };
        let mut failed =
            out.write(&ArchiveFileLine::Head { semel: "archive".to_owned(), format: FORMAT }).err();
        let bar = progress(None, "exporting");
        let mut each = |line: ArchiveLine| {
            bar.inc(1);
            out.lines += 1;
            if failed.is_none() {
                failed = out.write(&ArchiveFileLine::Line(line)).err();
            }
            if failed.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        open.archive().export(self.workspace, &mut each).await?;
        bar.finish_and_clear();
        open.close().await?;
        let lines = out.lines;
        let ended = match failed {
            Some(error) => Err(error),
            None => out.write(&ArchiveFileLine::End { end: lines }).and_then(|()| out.to.flush()),
        };
        ended.and_then(|()| target.keep()).map_err(|error| cannot_write(&self.to, &error))?;
        told(&target, lines, output)
    }
}

fn told(target: &ExportTarget, lines: u64, output: Format) -> Done {
    match (target, output) {
        (ExportTarget::Stdout, _) => {
            note(&format!("{lines} lines exported"));
            Ok(())
        }
        (ExportTarget::File { path, .. }, Format::Table) => {
            print(&facts(&[("file", path.display().to_string()), ("lines", lines.to_string())]))
        }
        (ExportTarget::File { path, .. }, _) => {
            print(&text(&json!({"file": path.display().to_string(), "lines": lines})))
        }
    }
}

/// Destination of the archive. A file gets its final name when it is complete, so that a partial archive is never
/// mistaken for a whole one.
enum ExportTarget {
    Stdout,
    File { path: PathBuf, part: PathBuf },
}

impl ExportTarget {
    fn new(to: &Path) -> Done<Self> {
        if to.as_os_str() == "-" {
            return Ok(Self::Stdout);
        }
        let path = if to.is_dir() { to.join("semel.ndjson") } else { to.to_owned() };
        if path.exists() {
            let failure = Failure::new(Exit::Refused, format!("{} is there already", path.display()));
            return Err(failure.help("choose another name, or move the file away"));
        }
        let mut part = path.clone().into_os_string();
        part.push(".part");
        Ok(Self::File { path, part: part.into() })
    }

    fn open(&self) -> Done<Box<dyn Write + Send>> {
        match self {
            Self::Stdout => Ok(Box::new(BufWriter::new(io::stdout()))),
            Self::File { part, .. } => {
                let file = File::create(part).map_err(|error| cannot_write(part, &error))?;
                Ok(Box::new(BufWriter::new(file)))
            }
        }
    }

    /// Syncs the file and gives it its final name.
    fn keep(&self) -> io::Result<()> {
        let Self::File { path, part } = self else { return Ok(()) };
        File::open(part)?.sync_all()?;
        std::fs::rename(part, path)
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    let failure = Failure::new(Exit::Failed, format!("{} cannot be written: {error}", path.display()));
    failure.help("check the free space and the permissions")
}

struct Out {
    to: Box<dyn Write + Send>,
    lines: u64,
}

impl Out {
    fn write(&mut self, line: &ArchiveFileLine) -> io::Result<()> {
        serde_json::to_writer(&mut self.to, line)?;
        self.to.write_all(b"\n")
    }
}
