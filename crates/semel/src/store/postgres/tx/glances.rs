//! What a list shows of runs beside their headers.

use tokio_postgres::Row;

use super::PgStoreTx;
use crate::error::Result;
use crate::rules::key::Token;
use crate::rules::path::Visit;
use crate::store::postgres::rows::{bigint, column, corrupt};
use crate::store::tx::{GLANCE_BYTES, GLANCE_TAIL, GlanceRow, GlanceRows, NOT_ABSORBED};

impl GlanceRows for PgStoreTx<'_> {
    async fn glances(&mut self, nums: &[i64]) -> Result<Vec<GlanceRow>> {
        let bytes = i32::try_from(GLANCE_BYTES).unwrap_or(i32::MAX);
        let sql = include_str!("../sql/glances.sql");
        let rows = self.rows(sql, &[&nums, &bytes, &bigint(GLANCE_TAIL), &NOT_ABSORBED]).await?;
        rows.iter().map(glance_of).collect()
    }
}

fn glance_of(row: &Row) -> Result<GlanceRow> {
    let visit =
        |text: String| Visit::parse(&text).ok_or_else(|| corrupt(row, format!("{text:?} is not a visit")));
    let hook = match column::<Option<String>>(row, 4)? {
        None => None,
        Some(token) => {
            let token = Token::new(token).map_err(|e| corrupt(row, e))?;
            Some((token, column::<Option<String>>(row, 5)?.map(visit).transpose()?))
        }
    };
    Ok(GlanceRow {
        num: column(row, 0)?,
        duplicates: column::<i64>(row, 1)? as u64,
        first: column(row, 2)?,
        tail: column::<Option<Vec<String>>>(row, 3)?.unwrap_or_default(),
        hook,
    })
}
