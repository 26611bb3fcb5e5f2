//! `semel duplicate ls`: the calls that were absorbed or refused, newest first.

use clap::Subcommand;

use super::client::{ApiCall, Client, ServerArgs};
use super::exit::Done;
use super::output::{Rows, ago, note, plain};
use crate::api::{AbsorbedView, DuplicateList};

/// Show the calls that changed nothing: absorbed duplicates and refused calls.
#[derive(Debug, Subcommand)]
pub(super) enum DuplicateCommand {
    Ls(DuplicateLs),
}

/// List absorbed duplicates and refused calls, by run and kind, the latest first.
#[derive(Debug, clap::Args)]
#[command(
    visible_alias = "list",
    after_help = "Examples:
  semel duplicate ls
  semel duplicate ls --kind refused --since 2026-01-31T12:00:00Z
  semel duplicate ls --key order-7 -o json"
)]
pub(super) struct DuplicateLs {
    /// Only calls of this kind: `start`, `delivery`, `result`, `control`, `refused`.
    #[arg(long, value_parser = ["start", "delivery", "result", "control", "refused"])]
    kind: Option<String>,
    /// Only on runs that were started under this key.
    #[arg(long)]
    key: Option<String>,
    /// Only where the latest call came at this time or later, such as 2026-01-31T12:00:00Z.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Maximum number of rows to list.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=200))]
    limit: u16,
    /// The `next` of the previous page.
    #[arg(long)]
    cursor: Option<String>,
}

impl DuplicateCommand {
    pub(super) async fn execute(self, server: &ServerArgs) -> Done {
        let Self::Ls(ls) = self;
        let call = ApiCall::get(["duplicates"])
            .query("kind", ls.kind.as_ref())
            .query("key", ls.key.as_ref())
            .query("since", ls.since.as_ref())
            .query("cursor", ls.cursor.as_ref())
            .query("limit", Some(ls.limit));
        let answer = Client::new(server)?.call(&call).await?;
        answer.print(server.output, |list: &DuplicateList| {
            if let Some(next) = &list.next {
                note(&format!("there are more: --cursor {next}"));
            }
            table(list)
        })
    }
}

fn table(list: &DuplicateList) -> String {
    let heads = ["KIND", "KEY", "RUN", "COUNT", "LAST", "BY", "LATEST"];
    let mut rows = Rows::new(heads, "no duplicates").whole([0, 2, 3, 4]);
    for one in &list.duplicates {
        rows.add([
            super::start::word(&one.kind),
            plain(&one.key),
            one.run.clone(),
            one.count.to_string(),
            ago(&one.latest.at),
            one.latest.by.as_deref().map(plain).unwrap_or_default(),
            latest(&one.latest),
        ]);
    }
    rows.text()
}

/// What the latest call asked for, and why it was refused.
fn latest(call: &AbsorbedView) -> String {
    let mut text = plain(&call.detail);
    if let Some(code) = &call.code {
        text = format!("{text}: {}", plain(code));
    }
    let places: Vec<_> = call.pointers.iter().map(|place| plain(&place.pointer)).collect();
    if places.is_empty() { text } else { format!("{text} at {}", places.join(", ")) }
}
