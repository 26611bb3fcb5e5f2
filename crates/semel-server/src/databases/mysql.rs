//! Statements in MariaDB and MySQL, as prepared statements. Decimals and times come in the protocol's own forms.

use std::fmt::Write as _;

use futures_util::TryStreamExt as _;
use semel::error::failure_code;
use semel::tx::sqlx::mysql::types::MySqlTime;
use semel::tx::sqlx::mysql::{MySqlArguments, MySqlRow};
use semel::tx::sqlx::query::Query;
use semel::tx::sqlx::{
    AssertSqlSafe, Either, Executor as _, MySql, MySqlConnection, MySqlPool, Row as _, Type, TypeInfo as _,
    ValueRef as _, query,
};
use semel::{Result, fatal};
use serde_json::Value as Json;

use super::rows::{Cell, RowsWriter};
use super::{Bound, ResultBounds, Spelling, SqlResult, SqlSource};

/// How a query begins that cannot write.
const READ: &str = "START TRANSACTION READ ONLY";

impl SqlSource for MySqlPool {
    const SPELLING: Spelling = Spelling::Mysql;

    async fn execute(conn: &mut MySqlConnection, bound: Bound, bounds: &ResultBounds) -> Result<SqlResult> {
        execute(conn, bound, bounds, true).await
    }

    async fn read(&self, bound: Bound, bounds: &ResultBounds) -> Result<SqlResult> {
        let mut open = semel::tx::begin_with(self, READ).await?;
        let read = execute(&mut open, bound, bounds, false).await;
        open.rollback().await?;
        read
    }
}

async fn execute(
    conn: &mut MySqlConnection,
    bound: Bound,
    bounds: &ResultBounds,
    writes: bool,
) -> Result<SqlResult> {
    let Bound { text, values } = bound;
    // Not kept by the connection: a table may be another one than when the statement was prepared.
    let mut asked = query(AssertSqlSafe(text)).persistent(false);
    for value in values {
        asked = bind(asked, value)?;
    }
    let mut rows: Option<RowsWriter> = None;
    let (mut affected, mut count) = (0, 0);
    let mut stream = conn.fetch_many(asked);
    while let Some(next) = stream.try_next().await? {
        match next {
            Either::Left(done) => affected += done.rows_affected(),
            Either::Right(row) => {
                count += 1;
                let columns = row.columns().iter().map(semel::tx::sqlx::Column::name);
                let rows = match &mut rows {
                    Some(rows) => rows,
                    none => none.insert(RowsWriter::new(columns, bounds)?),
                };
                rows.add((0..row.len()).map(|index| cell(&row, index)))?;
            }
        }
    }
    // A query has affected nothing: what counts are its rows, as in PostgreSQL.
    let rows = rows.map_or_else(|| RowsWriter::new([], bounds), Ok)?;
    rows.finish(writes.then_some(if affected == 0 { count } else { affected }))
}

type MySqlQuery = Query<'static, MySql, MySqlArguments>;

fn bind(asked: MySqlQuery, value: Json) -> Result<MySqlQuery> {
    Ok(match value {
        Json::Null => asked.bind(None::<String>),
        Json::Bool(value) => asked.bind(value),
        Json::String(text) => asked.bind(text),
        Json::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(integer), _, _) => asked.bind(integer),
            (None, Some(integer), _) => asked.bind(integer),
            (None, None, Some(double)) => asked.bind(double),
            _ => {
                return Err(
                    fatal(format!("{number} cannot be sent; give it as a text")).with_code(failure_code::SQL)
                );
            }
        },
        list => asked.bind(list.to_string()),
    })
}

fn cell(row: &MySqlRow, index: usize) -> Result<Cell> {
    let raw = row.try_get_raw(index)?;
    if raw.is_null() {
        return Ok(Cell::Null);
    }
    let info = raw.type_info().into_owned();
    let bytes = || row.try_get_unchecked::<&[u8], _>(index);
    let text = || Ok::<_, semel::Fail>(String::from_utf8_lossy(bytes()?).replace('\0', "\u{fffd}"));
    Ok(match info.name() {
        "BOOLEAN" => Cell::Bool(row.try_get_unchecked::<i64, _>(index)? != 0),
        name if name.ends_with("UNSIGNED") => Cell::integer(row.try_get_unchecked::<u64, _>(index)?),
        "TINYINT" | "SMALLINT" | "INT" | "MEDIUMINT" | "BIGINT" => {
            Cell::integer(row.try_get_unchecked::<i64, _>(index)?)
        }
        "YEAR" => Cell::integer(row.try_get_unchecked::<u64, _>(index)?),
        "BIT" => Cell::integer(bytes()?.iter().fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte))),
        // Its own shortest digits, not those of the double that it would become.
        "FLOAT" => Cell::decimal(&row.try_get_unchecked::<f32, _>(index)?.to_string()),
        "DOUBLE" => Cell::double(row.try_get_unchecked(index)?),
        "DECIMAL" => Cell::decimal(&text()?),
        "JSON" => Cell::Json(text()?),
        "TIMESTAMP" => Cell::Text(format!("{}Z", moment(bytes()?)?)),
        "DATETIME" | "DATE" => Cell::Text(moment(bytes()?)?),
        "TIME" => Cell::Text(time(row.try_get_unchecked::<MySqlTime, _>(index)?)),
        _ if <str as Type<MySql>>::compatible(&info) => Cell::Text(text()?),
        "ENUM" | "SET" | "NULL" => Cell::Text(text()?),
        _ => Cell::bytes(bytes()?),
    })
}

/// A date, perhaps with a time: a length, and as much as is not zero.
fn moment(raw: &[u8]) -> Result<String> {
    let cut = || fatal("a date of the database ends early").with_code(failure_code::SQL);
    let [_, year_low, year_high, month, day, rest @ ..] = raw else { return Err(cut()) };
    let year = u16::from_le_bytes([*year_low, *year_high]);
    let mut text = format!("{year:04}-{month:02}-{day:02}");
    if let [hour, minute, second, rest @ ..] = rest {
        let _infallible = write!(text, "T{hour:02}:{minute:02}:{second:02}");
        if let Ok(micros) = <[u8; 4]>::try_from(rest) {
            let fraction = format!(".{:06}", u32::from_le_bytes(micros));
            text.push_str(fraction.trim_end_matches('0').trim_end_matches('.'));
        }
    }
    Ok(text)
}

/// A time of the day, or a span of up to 838 hours, with two digits for hours at least.
fn time(time: MySqlTime) -> String {
    let text = time.to_string();
    if text.find(':') == Some(1) { format!("0{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_read_as_far_as_they_go() {
        for (raw, text) in [
            (&[4, 0xEA, 7, 11, 19][..], "2026-11-19"),
            (&[7, 0xEA, 7, 1, 2, 3, 4, 5], "2026-01-02T03:04:05"),
            (&[11, 0xEA, 7, 1, 2, 3, 4, 5, 0x20, 0xA1, 7, 0], "2026-01-02T03:04:05.5"),
        ] {
            assert_eq!(moment(raw).unwrap(), text);
        }
        assert!(moment(&[1, 2]).is_err());
    }
}
