//! `semel doubt ls`.

use clap::Subcommand;

use super::client::{ApiCall, Client, ServerArgs};
use super::exit::Done;
use super::output::{Rows, ago, note, plain};
use crate::api::{DoubtList, DoubtView};

/// Show the steps of which it is not known whether their effects took place.
#[derive(Debug, Subcommand)]
pub(super) enum DoubtCommand {
    Ls(DoubtLs),
}

/// List steps in doubt, those of the oldest run first. `semel step resolve` decides them.
#[derive(Debug, clap::Args)]
#[command(visible_alias = "list", after_help = "Examples:\n  semel doubt ls\n  semel doubt ls -o json")]
pub(super) struct DoubtLs {
    /// Maximum number of runs whose steps are on the page.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Cursor of the page, as the previous page has named it.
    #[arg(long)]
    cursor: Option<String>,
}

impl DoubtCommand {
    pub(super) async fn execute(self, server: &ServerArgs) -> Done {
        let Self::Ls(ls) = self;
        let call = ApiCall::get(["doubts"]).query("limit", ls.limit).query("cursor", ls.cursor);
        let answer = Client::new(server)?.call(&call).await?;
        if let Some(next) = answer.read::<DoubtList>()?.next {
            note(&format!("more: --cursor {next}"));
        }
        answer.print(server.output, |list: &DoubtList| {
            let columns = ["RUN", "STEP", "KEY", "SINCE", "EFFECT KEY", "REASON"];
            let mut rows = Rows::new(columns, "no steps in doubt").whole([0, 3]).only_from(140, [4]);
            for doubt in &list.doubts {
                rows.add([
                    doubt.run.clone(),
                    step(doubt),
                    plain(&doubt.key),
                    ago(&doubt.since),
                    doubt.effect_key.clone(),
                    plain(&doubt.reason),
                ]);
            }
            rows.text()
        })
    }
}

/// The path of a step, with the number of the visit unless it is the first.
fn step(doubt: &DoubtView) -> String {
    match doubt.tick {
        1 => plain(&doubt.path),
        tick => format!("{}#{tick}", plain(&doubt.path)),
    }
}
