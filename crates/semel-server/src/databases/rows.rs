//! The rows of a result as JSON, written while they arrive: every digit stays, and what is too large is noticed at once.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use semel::rules::json::Payload;
use semel::{Result, fatal};
use serde_json::Value as Json;

use crate::connections::Redactor;
use semel::error::failure_code;

/// Maximum number of rows of a result: a ledger is read as a whole. More are for a query of their own, or for a file.
pub(crate) const ROWS: usize = 1_000;

/// A value of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cell {
    Null,
    Bool(bool),
    /// A number, digit by digit.
    Number(String),
    Text(String),
    /// JSON, as it was written.
    Json(String),
    List(Vec<Self>),
    Object(Vec<(String, Self)>),
}

impl Cell {
    /// An integer.
    pub(crate) fn integer(number: impl std::fmt::Display) -> Self {
        Self::Number(number.to_string())
    }

    /// A double. What is no number of JSON is a text: `NaN`, `Infinity`.
    pub(crate) fn double(number: f64) -> Self {
        match serde_json::Number::from_f64(number) {
            Some(number) => Self::Number(number.to_string()),
            None if number.is_nan() => Self::Text("NaN".to_owned()),
            None => Self::Text(if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned()),
        }
    }

    /// A decimal, as databases write it. What is no number of JSON is a text.
    pub(crate) fn decimal(text: &str) -> Self {
        match serde_json::from_str::<&serde_json::value::RawValue>(text) {
            Ok(_) if text.starts_with(|c: char| c == '-' || c.is_ascii_digit()) => {
                Self::Number(text.to_owned())
            }
            _ => Self::Text(text.to_owned()),
        }
    }

    /// Bytes, in base64.
    pub(crate) fn bytes(bytes: &[u8]) -> Self {
        Self::Text(STANDARD.encode(bytes))
    }

    fn write(&self, to: &mut String, redactor: &Redactor) {
        let text = |text: &str| Json::String(redactor.text(text)).to_string();
        match self {
            Self::Null => to.push_str("null"),
            Self::Bool(value) => to.push_str(if *value { "true" } else { "false" }),
            Self::Number(digits) => to.push_str(digits),
            Self::Text(value) => to.push_str(&text(value)),
            Self::Json(json) if redactor.is_clean(json) => to.push_str(json),
            Self::Json(json) => match serde_json::from_str(json) {
                Ok(value) => to.push_str(&redactor.json(value).to_string()),
                Err(_) => to.push_str(&text(json)),
            },
            Self::List(items) => {
                to.push('[');
                for (index, item) in items.iter().enumerate() {
                    to.push_str(if index == 0 { "" } else { "," });
                    item.write(to, redactor);
                }
                to.push(']');
            }
            Self::Object(members) => {
                to.push('{');
                for (index, (name, value)) in members.iter().enumerate() {
                    to.push_str(if index == 0 { "" } else { "," });
                    to.push_str(&text(name));
                    to.push(':');
                    value.write(to, redactor);
                }
                to.push('}');
            }
        }
    }
}

/// What bounds a result.
#[derive(Clone, Debug)]
pub(crate) struct ResultBounds {
    /// Maximum size in bytes.
    pub(crate) bytes: usize,
    /// Takes secrets of the connection out of the rows.
    pub(crate) redactor: Arc<Redactor>,
}

/// Rows that are being written.
#[derive(Debug)]
pub(crate) struct RowsWriter {
    bounds: ResultBounds,
    /// Names of the columns as JSON, each with its colon.
    columns: Vec<String>,
    json: String,
    count: usize,
}

impl RowsWriter {
    /// Begins a result with these columns.
    pub(crate) fn new<'c>(columns: impl IntoIterator<Item = &'c str>, bounds: &ResultBounds) -> Result<Self> {
        let mut names: Vec<&str> = Vec::new();
        for name in columns {
            if names.contains(&name) {
                let why =
                    format!("two columns of the result have the name `{name}`; name one of them with AS");
                return Err(fatal(why).with_code(failure_code::SQL));
            }
            names.push(name);
        }
        let columns = names.into_iter().map(|name| format!("{}:", Json::String(name.to_owned()))).collect();
        Ok(Self { bounds: bounds.clone(), columns, json: String::new(), count: 0 })
    }

    /// Adds a row. The cells are those of the columns, in their order.
    pub(crate) fn add(&mut self, cells: impl IntoIterator<Item = Result<Cell>>) -> Result<()> {
        if self.count == ROWS {
            let why = format!(
                "the result has more than {ROWS} rows; add a LIMIT, or count and sum in the statement"
            );
            return Err(fatal(why).with_code(failure_code::TOO_LARGE));
        }
        self.json.push_str(if self.count == 0 { "{" } else { ",{" });
        for (index, (column, cell)) in self.columns.iter().zip(cells).enumerate() {
            self.json.push_str(if index == 0 { "" } else { "," });
            self.json.push_str(column);
            cell?.write(&mut self.json, &self.bounds.redactor);
            if self.json.len() > self.bounds.bytes {
                let most = self.bounds.bytes;
                let why = format!("the result has more than {most} bytes; select fewer columns or rows");
                return Err(fatal(why).with_code(failure_code::TOO_LARGE));
            }
        }
        self.json.push('}');
        self.count += 1;
        Ok(())
    }

    /// The result; `affected` is how many rows were written, absent for a query.
    pub(crate) fn finish(self, affected: Option<u64>) -> Result<SqlResult> {
        let counted = affected.map(|count| format!("\"affected\":{count},")).unwrap_or_default();
        let value = Payload::parse(&format!("{{{counted}\"rows\":[{}]}}", self.json));
        let value = value.map_err(|refused| fatal(refused).with_code(failure_code::TOO_LARGE))?;
        Ok(SqlResult { value, count: affected.unwrap_or(self.count as u64) })
    }
}

/// The result of a statement.
#[derive(Clone, Debug)]
pub(crate) struct SqlResult {
    /// `{affected, rows}`, or `{rows}` of a query.
    pub(crate) value: Payload,
    /// Number of rows that were written, or read by a query.
    pub(crate) count: u64,
}

impl SqlResult {
    /// Refuses another number of rows than the author expects.
    pub(crate) fn expect(self, expected: Option<u64>) -> Result<Self> {
        let Some(expected) = expected.filter(|expected| *expected != self.count) else { return Ok(self) };
        let found = self.count;
        let rows = |n: u64| if n == 1 { "1 row".to_owned() } else { format!("{n} rows") };
        let why = format!("{} expected, and {} were found; nothing was changed", rows(expected), rows(found));
        Err(fatal(why)
            .with_code(failure_code::EXPECT)
            .with_data(&serde_json::json!({"expected": expected, "affected": found})))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(bytes: usize) -> ResultBounds {
        ResultBounds { bytes, redactor: Arc::default() }
    }

    fn one(cell: Cell) -> String {
        let mut rows = RowsWriter::new(["a"], &bounds(10_000)).unwrap();
        rows.add([Ok(cell)]).unwrap();
        let text = rows.finish(None).unwrap().value.text().to_owned();
        text.trim_start_matches("{\"rows\":[{\"a\":").trim_end_matches("}]}").to_owned()
    }

    #[test]
    fn every_digit_stays_and_what_is_no_number_is_text() {
        for (cell, text) in [
            (Cell::decimal("12345678901234567890.10"), "12345678901234567890.10"),
            (Cell::decimal("NaN"), "\"NaN\""),
            (Cell::decimal("-Infinity"), "\"-Infinity\""),
            (Cell::double(f64::NAN), "\"NaN\""),
            (Cell::double(f64::NEG_INFINITY), "\"-Infinity\""),
            (Cell::double(0.1), "0.1"),
            (Cell::integer(i64::MIN), "-9223372036854775808"),
            (Cell::bytes(&[0, 255]), "\"AP8=\""),
            (Cell::Text("a\"\u{1}ü".to_owned()), "\"a\\\"\\u0001ü\""),
            (Cell::List(vec![Cell::Null, Cell::Bool(true)]), "[null,true]"),
            (
                Cell::Object(vec![("b\"".to_owned(), Cell::Json("{\"c\": 1.0}".to_owned()))]),
                "{\"b\\\"\":{\"c\": 1.0}}",
            ),
        ] {
            assert_eq!(one(cell.clone()), text, "{cell:?}");
        }
    }

    #[test]
    fn results_are_bounded_and_columns_have_names_of_their_own() {
        let mut rows = RowsWriter::new(["a"], &bounds(100_000)).unwrap();
        for _ in 0..ROWS {
            rows.add([Ok(Cell::Null)]).unwrap();
        }
        assert_eq!(rows.add([Ok(Cell::Null)]).unwrap_err().code(), Some("TOO_LARGE"));
        let mut rows = RowsWriter::new(["a"], &bounds(50)).unwrap();
        assert_eq!(rows.add([Ok(Cell::Text("x".repeat(50)))]).unwrap_err().code(), Some("TOO_LARGE"));
        assert_eq!(RowsWriter::new(["a", "b", "a"], &bounds(1)).unwrap_err().code(), Some("SQL"));
        let empty = RowsWriter::new([], &bounds(1)).unwrap().finish(Some(3)).unwrap();
        assert_eq!(empty.value.text(), r#"{"affected":3,"rows":[]}"#);
        let refused = empty.expect(Some(1)).unwrap_err();
        assert_eq!((refused.code(), refused.is_fatal()), (Some("EXPECT"), true));
        assert!(refused.to_string().starts_with("1 row expected, and 3 rows"), "{refused}");
    }
}
