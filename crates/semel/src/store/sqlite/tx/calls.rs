//! Calls that are remembered under an id, and receipts of absorbed duplicates.

use rusqlite::types::FromSqlError;
use rusqlite::{Row, params};

use super::SqliteStoreTx;
use crate::clock::Time;
use crate::error::Result;
use crate::id::{RunId, WorkspaceId};
use crate::rules::deliver::PastCall;
use crate::rules::key::{CallId, Fingerprint, Key, Scope};
use crate::rules::receipt::{Absorbed, ReceiptKind, Receipts};
use crate::store::duplicates::{AbsorbedCalls, DuplicatePlace, DuplicateRow, DuplicatesQuery};
use crate::store::sqlite::values::{Id, JsonColumn, Text};
use crate::store::tx::{CallAt, CallRows};

impl CallRows for SqliteStoreTx {
    async fn call(&mut self, workspace: WorkspaceId, scope: &str, id: &CallId) -> Result<Option<PastCall>> {
        let sql = "SELECT owner, fingerprint, result FROM calls WHERE workspace = ? AND scope = ? AND id = ?";
        self.first(sql, params![workspace, scope, id.as_str()], |row| {
            Ok(PastCall {
                run: RunId(row.get::<_, Id>(0)?.0),
                fingerprint: Fingerprint(row.get(1)?),
                result: row.get(2)?,
            })
        })
    }

    async fn insert_call(
        &mut self,
        at: CallAt<'_>,
        num: i64,
        call: &PastCall,
        replaces: Option<RunId>,
    ) -> Result<bool> {
        let CallAt { workspace, scope, id } = at;
        let (fingerprint, result) = (call.fingerprint.0, call.result);
        let params = params![workspace, scope, id.as_str(), num, call.run, fingerprint, result, replaces];
        Ok(self.write(include_str!("../sql/insert_call.sql"), params)? == 1)
    }

    async fn add_receipts(&mut self, num: i64, kind: ReceiptKind, receipts: &Receipts) -> Result<()> {
        let sql = "SELECT kind, count, first, last, recent FROM receipts WHERE run = ? AND kind = ?";
        let held = self.first(sql, params![num, kind.code()], read_receipts)?;
        let all = match held {
            Some((_, mut held)) => {
                held.merge(receipts.clone());
                held
            }
            None => receipts.clone(),
        };
        let recent = serde_json::to_string(&all.recent).expect("receipts are plain data");
        let params = params![num, kind.code(), all.count, all.first, all.last, recent];
        self.write(include_str!("../sql/add_receipts.sql"), params).map(drop)
    }

    async fn duplicates(
        &mut self,
        query: &DuplicatesQuery,
        before: Option<DuplicatePlace>,
    ) -> Result<Vec<DuplicateRow>> {
        let before = before.unwrap_or(DuplicatePlace::FIRST);
        let (kind, key) = (query.kind.map(ReceiptKind::code), query.key.as_ref().map(Key::as_str));
        let since = query.since.map_or(i64::MIN, |since| since.0);
        let (last, limit) = (before.last, i64::try_from(query.rows()).unwrap_or(i64::MAX));
        let params = params![query.workspace, last, before.num, before.kind.code(), since, kind, key, limit];
        self.all(duplicates_statement(), params, read_duplicate)
    }

    async fn receipts(&mut self, num: i64) -> Result<Vec<(ReceiptKind, Receipts)>> {
        let sql = "SELECT kind, count, first, last, recent FROM receipts WHERE run = ? ORDER BY kind";
        self.all(sql, [num], read_receipts)
    }
}

/// The statement that reads the receipts of a workspace, the latest first.
pub(crate) const fn duplicates_statement() -> &'static str {
    include_str!("../sql/duplicates.sql")
}

fn read_duplicate(row: &Row<'_>) -> rusqlite::Result<DuplicateRow> {
    let kind = ReceiptKind::from_code(row.get(5)?).ok_or(FromSqlError::InvalidType)?;
    let at = DuplicatePlace { last: Time(row.get(8)?), num: row.get(4)?, kind };
    let run = RunId(row.get::<_, Id>(0)?.0);
    let Some(latest) = row.get::<_, Option<JsonColumn<Absorbed>>>(9)? else {
        return Ok(DuplicateRow { at, run, calls: None });
    };
    let calls = AbsorbedCalls {
        run,
        workflow: row.get::<_, Text<_>>(1)?.0,
        scope: Scope::stored(row.get(2)?),
        key: row.get::<_, Text<_>>(3)?.0,
        kind,
        count: row.get(6)?,
        first: Time(row.get(7)?),
        latest: latest.0,
    };
    Ok(DuplicateRow { at, run, calls: Some(calls) })
}

fn read_receipts(row: &Row<'_>) -> rusqlite::Result<(ReceiptKind, Receipts)> {
    let kind = ReceiptKind::from_code(row.get(0)?).ok_or(FromSqlError::InvalidType)?;
    let receipts = Receipts {
        count: row.get(1)?,
        first: Time(row.get(2)?),
        last: Time(row.get(3)?),
        recent: row.get::<_, JsonColumn<_>>(4)?.0,
    };
    Ok((kind, receipts))
}
