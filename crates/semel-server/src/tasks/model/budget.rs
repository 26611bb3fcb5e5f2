//! What the calls of a task may use: looked at before each call.

use semel::{Fail, Result, fatal};
use serde_json::{Value as Json, json};

use super::answer::ModelAnswer;
use crate::models::{Cost, Usage};

/// Calls of the model in an `agent` or `planner` that does not say it.
const ROUNDS: u32 = 10;
/// Maximum number of calls that can be said.
pub(in crate::tasks) const MOST_ROUNDS: u32 = 20;

/// What may be used, and what has been used.
#[derive(Debug)]
pub(in crate::tasks) struct Budget {
    rounds: u32,
    tokens: Option<u64>,
    cost: Option<Cost>,
    /// Number of calls so far.
    calls: u32,
    usage: Usage,
    /// None if the cost of one of the calls is not known.
    spent: Option<Cost>,
    /// Whether one of the answers did not say what it used.
    is_unknown: bool,
}

impl Budget {
    /// The limits of evaluated arguments; without `rounds` the given number of calls is allowed.
    pub(in crate::tasks) fn read(args: &Json, rounds: Option<u32>) -> Self {
        let limits = &args["limits"];
        let said = limits["rounds"].as_u64().and_then(|rounds| u32::try_from(rounds).ok());
        Self {
            rounds: rounds.or(said).unwrap_or(ROUNDS),
            tokens: limits["tokens"].as_u64(),
            cost: limits["cost"].as_f64().and_then(Cost::read),
            calls: 0,
            usage: Usage::default(),
            spent: Some(Cost::default()),
            is_unknown: false,
        }
    }

    /// Whether there may be another call; `LIMIT` if not.
    pub(in crate::tasks) fn check(&self) -> Result<()> {
        if self.calls >= self.rounds {
            return Err(self.reached(&format!("the model was called {} times", self.calls), "rounds"));
        }
        if let Some(most) = self.tokens {
            if self.is_unknown {
                return Err(self.reached("the server does not say how many tokens it uses", "tokens"));
            }
            if self.usage.tokens() >= most {
                return Err(self.reached(&format!("{} tokens were used", self.usage.tokens()), "tokens"));
            }
        }
        match (self.cost, self.spent) {
            (Some(_), None) => {
                let why = "what a call costs is not known: the connection has no price for the model, or its server tells no usage";
                Err(self.reached(why, "cost"))
            }
            (Some(most), Some(spent)) if spent >= most => {
                Err(self.reached(&format!("the calls cost {}", spent.amount()), "cost"))
            }
            _ => Ok(()),
        }
    }

    fn reached(&self, why: &str, limit: &str) -> Fail {
        fatal(format!("{why}, and `limits.{limit}` allows no further call"))
            .with_code("LIMIT")
            .with_data(&json!({"limit": limit, "calls": self.calls, "usage": self.usage, "cost": self.spent}))
    }

    /// Counts a call.
    pub(in crate::tasks) fn add(&mut self, answer: &ModelAnswer) {
        self.calls += 1;
        self.usage = self.usage + answer.usage.unwrap_or_default();
        self.is_unknown |= answer.usage.is_none();
        self.spent = self.spent.zip(answer.cost).map(|(spent, cost)| spent + cost);
    }

    /// Number of calls so far.
    pub(in crate::tasks) fn calls(&self) -> u32 {
        self.calls
    }

    /// Adds to a value what was used.
    pub(in crate::tasks) fn tell(&self, value: &mut serde_json::Map<String, Json>) {
        value.insert("calls".to_owned(), json!(self.calls));
        value.insert("usage".to_owned(), json!(self.usage));
        if let Some(cost) = self.spent {
            value.insert("cost".to_owned(), json!(cost));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::ReplyEnd;

    fn answer(tokens: Option<u64>, cost: Option<f64>) -> ModelAnswer {
        ModelAnswer {
            connection: "model".to_owned(),
            model: "m".to_owned(),
            message: Json::Null,
            text: String::new(),
            output: Json::Null,
            misfits: Vec::new(),
            calls: Vec::new(),
            end: ReplyEnd::Done,
            usage: tokens.map(|output| Usage { input: 0, output }),
            cost: cost.and_then(Cost::read),
            refused: None,
        }
    }

    #[test]
    fn a_limit_is_reached_before_the_next_call() {
        for (limits, used, reached) in [
            (json!({"rounds": 2}), (Some(1), Some(0.1)), 2),
            (json!({"tokens": 15}), (Some(5), Some(0.1)), 3),
            (json!({"cost": 0.3}), (Some(5), Some(0.1)), 3),
            (json!({"cost": 0.0}), (Some(5), Some(0.1)), 0),
            (json!({"tokens": 15}), (None, Some(0.1)), 1),
            (json!({"cost": 1}), (Some(1), None), 1),
            (json!({}), (None, None), 10),
        ] {
            let mut budget = Budget::read(&json!({"limits": limits}), None);
            while budget.check().is_ok() {
                budget.add(&answer(used.0, used.1));
            }
            assert_eq!(budget.calls(), reached, "{limits}");
            assert_eq!(budget.check().unwrap_err().code(), Some("LIMIT"));
        }
    }
}
