//! What answers cost: exact sums, in millionths of a millionth of the currency of the prices.

use std::iter::Sum;
use std::ops::Add;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Tokens that a question and its answer have used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ModelUsage)]
pub struct Usage {
    /// Tokens of the questions, those from a cache of the provider included.
    #[serde(rename = "in")]
    pub input: u64,
    /// Tokens of the answers.
    #[serde(rename = "out")]
    pub output: u64,
}

impl Usage {
    /// Tokens of questions and answers.
    pub fn tokens(self) -> u64 {
        self.input.saturating_add(self.output)
    }
}

impl Add for Usage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
        }
    }
}

impl Sum for Usage {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Add::add)
    }
}

/// Parts of a unit of the currency in a [`Cost`]: then a price of a millionth per million tokens is a whole number per token.
const PARTS: f64 = 1e12;

/// The largest amount that is read, in units of the currency.
pub const MOST: f64 = 1e6;

/// An amount of money, in the currency of the operator's prices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cost(u64);

impl Cost {
    /// The amount that is meant by a number, to the twelfth place; none if it is negative or too large.
    pub fn read(amount: f64) -> Option<Self> {
        let parts = (amount * PARTS).round();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is a whole number within the bounds"
        )]
        (0.0..=MOST * PARTS).contains(&parts).then_some(Self(parts as u64))
    }

    /// The amount as a number.
    pub fn amount(self) -> f64 {
        #[expect(
            clippy::cast_precision_loss,
            reason = "beyond nine thousand units of the currency, its last places"
        )]
        let parts = self.0 as f64;
        parts / PARTS
    }
}

impl Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sum for Cost {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Add::add)
    }
}

impl Serialize for Cost {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.amount())
    }
}

impl<'de> Deserialize<'de> for Cost {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let amount = f64::deserialize(deserializer)?;
        Self::read(amount)
            .ok_or_else(|| serde::de::Error::custom("a cost is neither negative nor that large"))
    }
}

/// Prices of a model, per million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Price {
    /// Price of the tokens of a question.
    pub input: Cost,
    /// Price of the tokens of an answer.
    pub output: Cost,
}

impl Price {
    /// The price of this number of tokens.
    pub fn of(self, usage: Usage) -> Cost {
        let of = |price: Cost, tokens: u64| u128::from(price.0) * u128::from(tokens) / 1_000_000;
        let sum = of(self.input, usage.input) + of(self.output, usage.output);
        Cost(u64::try_from(sum).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_added_up_exactly() {
        let price = Price { input: Cost::read(0.15).unwrap(), output: Cost::read(0.6).unwrap() };
        let one = price.of(Usage { input: 1, output: 1 });
        assert_eq!(serde_json::to_string(&one).unwrap(), "7.5e-7");
        let all: Cost = std::iter::repeat_n(one, 1_000_000).sum();
        assert_eq!(serde_json::to_string(&all).unwrap(), "0.75");
        assert_eq!(
            price.of(Usage { input: u64::MAX, output: 0 }),
            price.of(Usage { input: u64::MAX, output: 0 })
        );
        let read: Cost = serde_json::from_str("0.0123").unwrap();
        assert_eq!(read, Cost::read(0.0123).unwrap());
        for wrong in [-0.1, f64::NAN, 1e9] {
            assert_eq!(Cost::read(wrong), None, "{wrong}");
        }
    }
}
