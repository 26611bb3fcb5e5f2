//! Records: small documents of the program around the store.

use tokio_postgres::Row;

use super::{Params, PgStoreTx};
use crate::clock::Time;
use crate::error::Result;
use crate::rules::json::Payload;
use crate::rules::key::RecordId;
use crate::rules::path::Name;
use crate::rules::record::{Look, LookBy, Record};
use crate::store::postgres::rows::{bigint, clock, column, corrupt, time};
use crate::store::tx::{RecordRows, TxTime};

impl RecordRows for PgStoreTx<'_> {
    async fn record(&mut self, kind: &Name, id: &RecordId) -> Result<Option<Record>> {
        let read =
            "SELECT kind, id, version, body, at, expires FROM records WHERE kind = $1 AND id = $2 FOR UPDATE";
        self.row(read, &[&kind.as_str(), &id.as_str()]).await?.as_ref().map(record_of).transpose()
    }

    async fn put_record(&mut self, record: &Record, replaces: Option<u64>) -> Result<bool> {
        let (kind, id) = (record.kind.as_str(), record.id.as_str());
        let (version, body) = (record.version as i64, record.body.text());
        let (at, expires) = (record.at.0, record.expires.map(|at| at.0));
        let written = match replaces {
            None => {
                let insert = "INSERT INTO records (kind, id, version, body, at, expires) \
                     VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING";
                self.write(insert, &[&kind, &id, &version, &body, &at, &expires]).await?
            }
            Some(seen) => {
                let update = "UPDATE records SET version = $3, body = $4, at = $5, expires = $6 \
                     WHERE kind = $1 AND id = $2 AND version = $7";
                let seen = seen as i64;
                self.write(update, &[&kind, &id, &version, &body, &at, &expires, &seen]).await?
            }
        };
        Ok(written == 1)
    }

    // A read brings no time along, so the statement asks for it.
    async fn records(&mut self, look: &Look) -> Result<Vec<Record>> {
        const SELECT: &str = concat!(
            "SELECT kind, id, version, body, at, expires FROM records \
             WHERE kind = $1 AND (expires IS NULL OR expires > coalesce($2, ",
            clock!(),
            "))"
        );
        let (kind, now) = (look.kind.as_str(), self.now.map(|now| now.0));
        let rows = match &look.by {
            LookBy::Id(id) => {
                let sql = format!("{SELECT} AND id = $3");
                self.rows(&sql, &[&kind, &now, &id.as_str()]).await?
            }
            LookBy::Page { after, limit, newest_first } => {
                let (behind, order) = if *newest_first { ("<", "DESC") } else { (">", "ASC") };
                // Not `OR`: the index is to begin behind that id.
                let behind = match after {
                    Some(_) => format!("id {behind} $3"),
                    None => "$3::text IS NULL".to_owned(),
                };
                let sql = format!("{SELECT} AND {behind} ORDER BY id {order} LIMIT $4");
                let params: Params<'_> =
                    &[&kind, &now, &after.as_ref().map(RecordId::as_str), &bigint(*limit)];
                self.rows(&sql, params).await?
            }
        };
        rows.iter().map(record_of).collect()
    }

    async fn delete_expired_records(&mut self, limit: usize) -> Result<usize> {
        let delete = "DELETE FROM records WHERE (kind, id) IN (SELECT kind, id FROM records \
             WHERE expires <= $1 ORDER BY expires LIMIT $2 FOR UPDATE SKIP LOCKED)";
        Ok(self.write(delete, &[&self.now().0, &bigint(limit)]).await? as usize)
    }
}

pub(in crate::store::postgres) fn record_of(row: &Row) -> Result<Record> {
    Ok(Record {
        kind: Name::new(column(row, 0)?).map_err(|e| corrupt(row, e))?,
        id: RecordId::new(column::<String>(row, 1)?).map_err(|e| corrupt(row, e))?,
        version: column::<i64>(row, 2)? as u64,
        body: Payload::parse(column(row, 3)?).map_err(|e| corrupt(row, e))?,
        at: Time(column(row, 4)?),
        expires: time(row, 5)?,
    })
}
