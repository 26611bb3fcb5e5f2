//! What the model calls of a run have cost.

use serde::{Deserialize, Serialize};

use crate::models::{Cost, Usage};

/// Answer of `GET /workflow-runs/{id}/cost`: the recorded model calls of a run and of its children.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunCost {
    /// Id of the run whose model calls these are.
    pub run: String,
    /// Number of runs that were added up: this one, its children and their children.
    pub runs: u64,
    /// Whether everything was added up. False if there are more than 100 runs or too many entries, or if the history of a child
    /// is no longer kept: then the sums are lower bounds.
    pub complete: bool,
    /// What all calls together have used.
    #[serde(flatten)]
    pub total: ModelSum,
    /// The calls by connection and model.
    pub models: Vec<ModelCost>,
}

/// A sum of model calls.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelSum {
    /// Number of calls that are recorded.
    pub calls: u64,
    /// Tokens of questions and answers, as far as the servers have said it.
    pub usage: Usage,
    /// Cost of the calls whose cost is known, in the currency of the prices in the server's configuration.
    #[schema(value_type = f64)]
    pub cost: Cost,
    /// Number of calls whose cost is not known: the connection has no price for the model, or its server tells no usage.
    pub unpriced: u64,
}

/// Calls of one model through one connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelCost {
    /// Connection that was used.
    pub connection: String,
    /// Model that was asked.
    pub model: String,
    /// The sum of its calls.
    #[serde(flatten)]
    pub sum: ModelSum,
}

impl ModelSum {
    /// Adds what one call has used.
    pub fn add(&mut self, usage: Option<Usage>, cost: Option<Cost>) {
        self.calls += 1;
        self.usage = self.usage + usage.unwrap_or_default();
        self.cost = self.cost + cost.unwrap_or_default();
        self.unpriced += u64::from(cost.is_none());
    }
}
