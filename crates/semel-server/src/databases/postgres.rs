//! Statements in PostgreSQL: values are sent as text, which PostgreSQL reads as its own literals; results are decoded by their types.

use std::error::Error as StdError;
use std::fmt;

use futures_util::{StreamExt as _, pin_mut};
use semel::error::failure_code;
use semel::tx::deadpool_postgres::Pool;
use semel::tx::tokio_postgres::types::{FromSql, IsNull, Kind, ToSql, Type};
use semel::tx::{PgOpen, TxSource};
use semel::{Result, fatal};
use serde_json::Value as Json;

use super::rows::{Cell, RowsWriter};
use super::{Bound, ResultBounds, Spelling, SqlResult, SqlSource};

mod decode;

impl SqlSource for Pool {
    const SPELLING: Spelling = Spelling::Postgres;

    async fn execute(conn: &mut PgOpen, bound: Bound, bounds: &ResultBounds) -> Result<SqlResult> {
        execute(conn, bound, bounds, true).await
    }

    async fn read(&self, bound: Bound, bounds: &ResultBounds) -> Result<SqlResult> {
        let open = self.begin().await?;
        open.batch_execute("SET TRANSACTION READ ONLY").await?;
        let read = execute(&open, bound, bounds, false).await;
        Self::rollback(open).await?;
        read
    }
}

async fn execute(open: &PgOpen, bound: Bound, bounds: &ResultBounds, writes: bool) -> Result<SqlResult> {
    // Not from the cache of statements: a table may be another one than when it was prepared.
    let statement = open.prepare(&bound.text).await?;
    let columns = statement.columns();
    let mut rows = RowsWriter::new(columns.iter().map(semel::tx::tokio_postgres::Column::name), bounds)?;
    let values: Vec<_> = bound.values.into_iter().map(PgValue).collect();
    let stream = open.query_raw(&statement, &values).await?;
    pin_mut!(stream);
    while let Some(row) = stream.next().await {
        let row = row?;
        rows.add((0..columns.len()).map(|index| {
            let PgCell(cell) = row.try_get(index)?;
            cell.map_err(|no| {
                let (name, of) = (columns[index].name(), no.0);
                let why = format!(
                    "the column `{name}` is of the type {of}, which has no form in JSON: write `{name}::text`"
                );
                fatal(why).with_code(failure_code::SQL)
            })
        }))?;
    }
    let affected = stream.rows_affected().unwrap_or_default();
    rows.finish(writes.then_some(affected))
}

/// A value of JSON as a parameter.
#[derive(Debug)]
struct PgValue(Json);

/// A value that has no form in the type of its parameter.
#[derive(Debug)]
pub(super) struct NotSendable(String);

impl fmt::Display for NotSendable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for NotSendable {}

impl ToSql for PgValue {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut bytes::BytesMut,
    ) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        match literal(&self.0, ty)? {
            Some(text) => {
                out.extend_from_slice(text.as_bytes());
                Ok(IsNull::No)
            }
            None => Ok(IsNull::Yes),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> semel::tx::tokio_postgres::types::Format {
        semel::tx::tokio_postgres::types::Format::Text
    }

    semel::tx::tokio_postgres::types::to_sql_checked!();
}

/// The element type of an array, through domains.
fn element(ty: &Type) -> Option<&Type> {
    match ty.kind() {
        Kind::Array(element) => Some(element),
        Kind::Domain(base) => element(base),
        _ => None,
    }
}

fn is_json(ty: &Type) -> bool {
    match ty.kind() {
        Kind::Domain(base) => is_json(base),
        _ => *ty == Type::JSON || *ty == Type::JSONB,
    }
}

/// A value as PostgreSQL reads it; none for null.
fn literal(value: &Json, ty: &Type) -> Result<Option<String>, NotSendable> {
    if value.is_null() {
        return Ok(None);
    }
    if is_json(ty) {
        return Ok(Some(value.to_string()));
    }
    let text = match (value, element(ty)) {
        (Json::Array(items), Some(element)) => array(items, element)?,
        (Json::String(text), _) => text.clone(),
        (Json::Bool(value), _) => value.to_string(),
        (Json::Number(number), _) => digits(number, ty),
        (Json::Array(_) | Json::Object(_), _) => {
            let what = if value.is_array() { "a list" } else { "an object" };
            return Err(NotSendable(format!(
                "an argument is {what}, and the database expects a value of the type {ty}: give a part of it, or write \
                 `:name::jsonb`"
            )));
        }
        (Json::Null, _) => return Ok(None),
    };
    if text.contains('\0') {
        return Err(NotSendable("an argument has a character 0, which PostgreSQL does not keep".to_owned()));
    }
    Ok(Some(text))
}

/// A whole number that an expression has made a double, such as `6 / 2`, is one of an integer's literals too.
fn digits(number: &serde_json::Number, ty: &Type) -> String {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let is_integer = matches!(*ty, Type::INT2 | Type::INT4 | Type::INT8);
    match number.as_f64() {
        Some(double) if number.is_f64() && is_integer && double.fract() == 0.0 && double.abs() <= EXACT => {
            format!("{double:.0}")
        }
        _ => number.to_string(),
    }
}

fn array(items: &[Json], element: &Type) -> Result<String, NotSendable> {
    let mut text = String::from("{");
    for (index, item) in items.iter().enumerate() {
        text.push_str(if index == 0 { "" } else { "," });
        if let (Json::Array(inner), false) = (item, is_json(element)) {
            text.push_str(&array(inner, element)?);
            continue;
        }
        match literal(item, element)? {
            None => text.push_str("NULL"),
            Some(item) => {
                let quoted = item.replace('\\', "\\\\").replace('"', "\\\"");
                text.push_str(&format!("\"{quoted}\""));
            }
        }
    }
    text.push('}');
    Ok(text)
}

/// A type that has no form in JSON.
#[derive(Debug)]
struct NoForm(String);

/// A value of a result.
struct PgCell(Result<Cell, NoForm>);

impl<'a> FromSql<'a> for PgCell {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Self(match decode::cell(ty, raw)? {
            Some(cell) => Ok(cell),
            None => Err(NoForm(ty.to_string())),
        }))
    }

    fn from_sql_null(_: &Type) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Self(Ok(Cell::Null)))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_literals_of_their_type_and_never_more() {
        for (value, ty, text) in [
            (json!("it's; DROP"), Type::TEXT, Some("it's; DROP")),
            (json!(9_007_199_254_740_993_i64), Type::INT8, Some("9007199254740993")),
            (json!(3.0), Type::INT8, Some("3")),
            (json!(3.0), Type::NUMERIC, Some("3.0")),
            (json!(true), Type::BOOL, Some("true")),
            (json!(null), Type::JSONB, None),
            (json!("a"), Type::JSONB, Some("\"a\"")),
            (json!({"a": [1]}), Type::JSON, Some("{\"a\":[1]}")),
            (json!(["a\"b\\", null, 1]), Type::TEXT_ARRAY, Some("{\"a\\\"b\\\\\",NULL,\"1\"}")),
            (json!([[1, 2], [3, 4]]), Type::INT4_ARRAY, Some("{{\"1\",\"2\"},{\"3\",\"4\"}}")),
            (json!([{"a": 1}, [2]]), Type::JSONB_ARRAY, Some("{\"{\\\"a\\\":1}\",\"[2]\"}")),
        ] {
            assert_eq!(literal(&value, &ty).unwrap().as_deref(), text, "{value}");
        }
        for (value, ty) in [(json!([1]), Type::TEXT), (json!({}), Type::INT4), (json!("\0"), Type::TEXT)] {
            assert!(literal(&value, &ty).is_err(), "{value}");
        }
    }
}
