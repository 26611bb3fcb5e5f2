//! `semel store check`: reads every run and checks its consistency.

use std::ops::ControlFlow;

use semel::rules::archive::{ArchiveLine, Checker, Finding};
use serde_json::json;

use super::StoreArgs;
use crate::cli::exit::{Done, Exit, Failure};
use crate::cli::output::{Format, facts, json as text, note, plain, print, progress};

/// Number of findings that are shown; all are counted.
const SHOWN: usize = 100;

/// Check the consistency of a store.
///
/// Reads every run: its entries must be valid, its version must be their number, its header must agree with them;
/// every key has one holder, and every open hook has its token. For SQLite the pages and indexes are checked as well.
/// Nothing is changed. The exit code is 1 if something was found.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  semel store check --store sqlite:semel.db
  semel store check --store postgres://semel@localhost/semel -o json")]
pub(in crate::cli) struct Check {
    #[command(flatten)]
    place: StoreArgs,
}

impl Check {
    pub(super) async fn execute(self, output: Format) -> Done {
        let open = self.place.open_existing().await?;
        let below = open.archive().sound().await?;
        let at = |what| Finding { at: "the file".to_owned(), what };
        let mut findings: Vec<Finding> = below.into_iter().map(at).collect();
        let (mut checker, bar) = (Checker::default(), progress(None, "checking"));
        let mut each = |line: ArchiveLine| {
            bar.inc(1);
            findings.extend(checker.check(&line));
            ControlFlow::Continue(())
        };
        open.archive().export(None, &mut each).await?;
        bar.finish_and_clear();
        open.close().await?;
        report(&checker, &findings, output)?;
        match findings.len() {
            0 => Ok(()),
            found => {
                let failure = Failure::new(Exit::Failed, format!("{found} things do not fit together"));
                Err(failure.help("keep a copy of the store as it is, and restore a backup from before"))
            }
        }
    }
}

fn report(checker: &Checker, findings: &[Finding], output: Format) -> Done {
    if output == Format::Table {
        for finding in findings.iter().take(SHOWN) {
            print(&plain(&finding.to_string()))?;
        }
        if findings.len() > SHOWN {
            note(&format!("… and {} more; -o json shows all", findings.len() - SHOWN));
        }
        return print(&facts(&[
            ("runs", checker.runs().to_string()),
            ("lines", checker.lines().to_string()),
            ("findings", findings.len().to_string()),
        ]));
    }
    let found: Vec<_> = findings.iter().map(|found| json!({"at": found.at, "what": found.what})).collect();
    if output == Format::Ndjson {
        return found.iter().try_for_each(|found| print(&text(found)));
    }
    print(&text(&json!({"runs": checker.runs(), "lines": checker.lines(), "findings": found})))
}
