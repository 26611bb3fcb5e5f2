//! What an answer with embeddings leaves in the ledger.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use semel::rules::json::Payload;
use semel::{Result, fatal};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::Look;
use super::table::Table;
use crate::connections::{Connection, ModelTarget};
use crate::models::{Cost, Embedded, Usage};
use crate::tasks::model::answer::ANSWERED;

/// Maximum number of chunks in one call: what is lost with an answer is little.
const MOST_BATCH: usize = 64;
/// Maximum size of the vectors of one answer in the ledger, in bytes. As JSON they are four times as large, and are still read.
const BATCH_BYTES: usize = 192 * 1024;

/// Number of chunks of which vectors of this length are asked in one call.
pub(super) fn batch(dimension: usize) -> usize {
    // Four bytes a number, and base64.
    (BATCH_BYTES / (dimension.max(1) * 16 / 3)).clamp(1, MOST_BATCH)
}

/// The vectors of some chunks. Its first four members are those that the cost of a run is added up from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Vectors {
    /// Connection that was used.
    connection: String,
    /// Model that was asked.
    model: String,
    /// Tokens that were used; absent if the server does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
    /// What it cost; absent if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cost: Option<Cost>,
    /// Length of the vectors.
    length: usize,
    /// The vectors: numbers of four bytes, the lowest byte first, in base64. Empty if their length is not that of the table.
    #[serde(rename = "vectors")]
    encoded: Vec<String>,
}

impl Vectors {
    /// What is recorded of an answer.
    pub(super) fn of(connection: &Connection, target: &ModelTarget, look: &Look, answer: Embedded) -> Self {
        let Embedded { vectors, usage } = answer;
        let length = vectors.first().map_or(0, Vec::len);
        let encoded = |vector: &Vec<f32>| {
            let bytes: Vec<u8> = vector.iter().flat_map(|number| number.to_le_bytes()).collect();
            STANDARD.encode(bytes)
        };
        let fits = length == look.dimension;
        Self {
            connection: connection.name.clone(),
            model: look.model.clone(),
            usage,
            cost: usage.and_then(|usage| Some(target.price(&look.model)?.of(usage))),
            length,
            encoded: if fits { vectors.iter().map(encoded).collect() } else { Vec::new() },
        }
    }

    pub(super) fn record(&self) -> Result<Payload> {
        Payload::of(&BTreeMap::from([(ANSWERED, self)])).map_err(|why| fatal(why).with_code("TOO_LARGE"))
    }

    /// The recorded answer.
    pub(super) fn read(recorded: &Payload) -> Result<Self> {
        let mut read: BTreeMap<String, Self> = recorded.read().map_err(fatal)?;
        read.remove(ANSWERED)
            .ok_or_else(|| fatal("what is recorded of the embeddings is no answer of a model"))
    }

    /// The vectors as pgvector reads them, if they have the length of the table's.
    pub(super) fn literals(&self, dimension: usize, table: &Table) -> Result<Vec<String>> {
        if self.length != dimension {
            let (model, length) = (&self.model, self.length);
            let why = format!(
                "the vectors of the model `{model}` have {length} numbers, and those of the table {table} have {dimension}: \
                 name another model, or another table with `vector vector({length})`"
            );
            return Err(fatal(why).with_code("MODEL"));
        }
        self.encoded.iter().map(|vector| literal(vector)).collect()
    }
}

fn literal(encoded: &str) -> Result<String> {
    let bytes = STANDARD.decode(encoded).map_err(fatal)?;
    let (numbers, _) = bytes.as_chunks::<4>();
    let numbers: Vec<String> = numbers.iter().map(|bytes| f32::from_le_bytes(*bytes).to_string()).collect();
    Ok(format!("[{}]", numbers.join(",")))
}

/// What the calls of a step have used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bill {
    /// Number of chunks whose vectors were asked for.
    embedded: usize,
    /// None if one of the answers did not say it.
    usage: Option<Usage>,
    /// None if the cost of one of the calls is not known.
    cost: Option<Cost>,
}

impl Default for Bill {
    fn default() -> Self {
        Self { embedded: 0, usage: Some(Usage::default()), cost: Some(Cost::default()) }
    }
}

impl Bill {
    pub(super) fn add(&mut self, answer: &Vectors, chunks: usize) {
        self.embedded += chunks;
        self.usage = self.usage.zip(answer.usage).map(|(sum, usage)| sum + usage);
        self.cost = self.cost.zip(answer.cost).map(|(sum, cost)| sum + cost);
    }

    /// Adds to a value what was used.
    pub(super) fn tell(&self, value: &mut Json) {
        value["embedded"] = json!(self.embedded);
        if let Some(usage) = self.usage {
            value["usage"] = json!(usage);
        }
        if let Some(cost) = self.cost {
            value["cost"] = json!(cost);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::ModelUse;

    fn answer(vectors: &[&[f32]]) -> Vectors {
        let encoded = |vector: &&[f32]| {
            STANDARD.encode(vector.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>())
        };
        Vectors {
            connection: "model".to_owned(),
            model: "m".to_owned(),
            usage: Some(Usage { input: 7, output: 0 }),
            cost: Cost::read(0.5),
            length: vectors[0].len(),
            encoded: vectors.iter().map(encoded).collect(),
        }
    }

    #[test]
    fn a_recorded_vector_keeps_every_digit_and_is_part_of_the_cost() {
        let recorded = answer(&[&[0.1, -2.5e-12, 3e30], &[0.0, 1.0, 2.0]]).record().unwrap();
        let table = Table::new("t");
        let literals = Vectors::read(&recorded).unwrap().literals(3, &table).unwrap();
        let numbers: Vec<f32> =
            literals[0].trim_matches(['[', ']']).split(',').map(|number| number.parse().unwrap()).collect();
        assert_eq!(numbers, [0.1, -2.5e-12, 3e30]);
        assert_eq!(literals[1], "[0,1,2]");
        let used = ModelUse::of(&recorded).unwrap();
        assert_eq!((used.usage, used.cost), (Some(Usage { input: 7, output: 0 }), Cost::read(0.5)));
    }

    #[test]
    fn vectors_of_another_length_are_told_with_what_to_do() {
        let fail = answer(&[&[1.0, 2.0]]).literals(3, &Table::new("docs.chunks")).unwrap_err();
        assert_eq!((fail.code(), fail.is_fatal()), (Some("MODEL"), true));
        let told = fail.to_string();
        assert!(
            told.contains("have 2 numbers") && told.contains("vector(2)") && told.contains("docs"),
            "{told}"
        );
    }

    #[test]
    fn a_batch_fits_into_an_entry() {
        for (dimension, chunks) in [(2, 64), (384, 64), (1_536, 24), (3_072, 12), (16_000, 2), (0, 64)] {
            assert_eq!(batch(dimension), chunks, "{dimension}");
        }
    }
}
