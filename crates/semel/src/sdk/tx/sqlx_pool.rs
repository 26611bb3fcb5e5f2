//! PostgreSQL and SQLite, through pools of sqlx.

use sqlx::{AssertSqlSafe, Pool, Row as _, Transaction};

use super::{Dialect, FenceMark, FenceRow, TxSource, begin_with};
use crate::fail::Result;

// Once for each database: the bounds that would make it generic are longer than the code.
macro_rules! source {
    ($database:ty, $connection:ty, $dialect:expr, $begin:literal) => {
        impl TxSource for Pool<$database> {
            type Open = Transaction<'static, $database>;
            type Conn = $connection;
            const DIALECT: Dialect = $dialect;

            async fn begin(&self) -> Result<Self::Open> {
                begin_with(self, $begin).await
            }

            async fn script(&self, sql: &str) -> Result<()> {
                sqlx::raw_sql(AssertSqlSafe(sql)).execute(self).await?;
                Ok(())
            }

            async fn find(open: &mut Self::Open, sql: &str, key: &str) -> Result<Option<FenceRow>> {
                let row = sqlx::query(AssertSqlSafe(sql)).bind(key).fetch_optional(&mut **open).await?;
                let Some(row) = row else { return Ok(None) };
                Ok(Some(FenceRow {
                    run: row.try_get(0)?,
                    fence: row.try_get(1)?,
                    attempt: row.try_get(2)?,
                    outcome: row.try_get(3)?,
                }))
            }

            async fn put(
                open: &mut Self::Open,
                sql: &str,
                mark: &FenceMark,
                outcome: Option<&str>,
            ) -> Result<u64> {
                let FenceMark { key, run, step, fence, attempt } = mark;
                let put = sqlx::query(AssertSqlSafe(sql)).bind(key).bind(run).bind(step);
                let put = put.bind(fence).bind(attempt).bind(outcome);
                Ok(put.execute(&mut **open).await?.rows_affected())
            }

            async fn commit(open: Self::Open) -> Result<()> {
                Ok(open.commit().await?)
            }

            async fn rollback(open: Self::Open) -> Result<()> {
                Ok(open.rollback().await?)
            }

            fn conn(open: &Self::Open) -> &$connection {
                open
            }

            fn conn_mut(open: &mut Self::Open) -> &mut $connection {
                open
            }
        }
    };
}

#[cfg(feature = "sqlx-postgres")]
source!(sqlx::Postgres, sqlx::PgConnection, Dialect::Postgres, "BEGIN");
// Immediate: a transaction that reads first and writes later would be refused as soon as another one has written.
#[cfg(feature = "sqlx-sqlite")]
source!(sqlx::Sqlite, sqlx::SqliteConnection, Dialect::Sqlite, "BEGIN IMMEDIATE");
