//! `semel run cost`: tokens and money that models have used.

use crate::api::{ModelCost, ModelSum, RunCost};
use crate::cli::client::{ApiCall, Client, ServerArgs};
use crate::cli::exit::Done;
use crate::cli::output::{Rows, plain};

/// Add up what the model calls of a run and of its children have used.
///
/// The sums are made of what is recorded: each call once, however often its run was interrupted. Prices are those of the server's
/// configuration at the time of the call.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  semel run cost run_01j0000000e00800000000007z\n  semel run cost run_01j0000000e00800000000007z -o json"
)]
pub(in crate::cli) struct CostOf {
    /// Id of the run.
    run: String,
}

impl CostOf {
    pub(super) async fn execute(self, server: &ServerArgs) -> Done {
        let answer = Client::new(server)?.call(&ApiCall::get(["workflow-runs", &self.run, "cost"])).await?;
        answer.print(server.output, |cost: &RunCost| {
            let columns = ["CONNECTION", "MODEL", "CALLS", "IN", "OUT", "COST"];
            let mut rows = Rows::new(columns, "the run has called no model").whole([0, 1]);
            for ModelCost { connection, model, sum } in &cost.models {
                rows.add(row(plain(connection), plain(model), sum));
            }
            if cost.models.len() > 1 {
                rows.add(row("all".to_owned(), String::new(), &cost.total));
            }
            let more =
                if cost.complete { "" } else { "\nnot everything was added up: the sums are lower bounds" };
            format!("{}{more}", rows.text())
        })
    }
}

fn row(connection: String, model: String, sum: &ModelSum) -> [String; 6] {
    let cost = match sum.unpriced {
        0 => sum.cost.amount().to_string(),
        unpriced => format!("{} and {unpriced} calls without a price", sum.cost.amount()),
    };
    [
        connection,
        model,
        sum.calls.to_string(),
        sum.usage.input.to_string(),
        sum.usage.output.to_string(),
        cost,
    ]
}
