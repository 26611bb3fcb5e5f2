//! Calls that are remembered under an id, and receipts of absorbed duplicates.

use tokio_postgres::Row;
use uuid::Uuid;

use super::{Params, PgStoreTx};
use crate::clock::Time;
use crate::error::Result;
use crate::id::{RunId, WorkspaceId};
use crate::rules::deliver::PastCall;
use crate::rules::key::{CallId, Key, Scope};
use crate::rules::receipt::{ReceiptKind, Receipts};
use crate::store::duplicates::{AbsorbedCalls, DuplicatePlace, DuplicateRow, DuplicatesQuery};
use crate::store::postgres::rows::{self, bigint, column, corrupt};
use crate::store::tx::{CallAt, CallRows, race};

impl CallRows for PgStoreTx<'_> {
    async fn call(&mut self, workspace: WorkspaceId, scope: &str, id: &CallId) -> Result<Option<PastCall>> {
        let past =
            "SELECT owner, fingerprint, result FROM calls WHERE workspace = $1 AND scope = $2 AND id = $3";
        let Some(row) = self.row(past, &[&workspace.0, &scope, &id.as_str()]).await? else { return Ok(None) };
        let fingerprint = rows::fingerprint_of(column(&row, 1)?).map_err(|e| corrupt(&row, e))?;
        let result = column::<i64>(&row, 2)? as u64;
        Ok(Some(PastCall { run: RunId(column(&row, 0)?), fingerprint, result }))
    }

    async fn insert_call(
        &mut self,
        at: CallAt<'_>,
        num: i64,
        call: &PastCall,
        replaces: Option<RunId>,
    ) -> Result<bool> {
        let insert = include_str!("../sql/insert_call.sql");
        let (fingerprint, result) = (call.fingerprint.0.as_slice(), call.result as i64);
        let (scope, id, replaces) = (at.scope, at.id.as_str(), replaces.map(|run| run.0));
        let params: Params<'_> =
            &[&at.workspace.0, &scope, &id, &num, &call.run.0, &fingerprint, &result, &replaces];
        Ok(self.write(insert, params).await? == 1)
    }

    async fn add_receipts(&mut self, num: i64, kind: ReceiptKind, receipts: &Receipts) -> Result<()> {
        // The lock keeps the run from being forgotten meanwhile, and does not block changes of it. The sum is
        // read by another statement: what waits for a lock reads other rows as they were before it has waited.
        let lock = "SELECT workspace FROM runs WHERE num = $1 FOR KEY SHARE";
        let read = "SELECT kind, count, first, last, recent FROM receipts WHERE run = $1 AND kind = $2";
        let Some(locked) = self.row(lock, &[&num]).await? else { return Ok(()) };
        let workspace: Uuid = column(&locked, 0)?;
        let found = self.row(read, &[&num, &kind.code()]).await?;
        let sum = match &found {
            Some(row) => {
                let mut sum = receipts_of(row)?;
                sum.merge(receipts.clone());
                sum
            }
            None => receipts.clone(),
        };
        let before = found.as_ref().map(|row| column::<i64>(row, 1)).transpose()?;
        // Guarded by the count, which only grows: another process may have added to it since.
        let recent = serde_json::to_string(&sum.recent).expect("receipts are plain data");
        let params: Params<'_> = &[
            &num,
            &kind.code(),
            &(sum.count as i64),
            &sum.first.0,
            &sum.last.0,
            &recent,
            &before,
            &workspace,
        ];
        match self.write(include_str!("../sql/put_receipts.sql"), params).await? {
            1 => Ok(()),
            _ => Err(race()),
        }
    }

    async fn duplicates(
        &mut self,
        query: &DuplicatesQuery,
        before: Option<DuplicatePlace>,
    ) -> Result<Vec<DuplicateRow>> {
        let before = before.unwrap_or(DuplicatePlace::FIRST);
        let (kind, key) = (query.kind.map(ReceiptKind::code), query.key.as_ref().map(Key::as_str));
        let since = query.since.map_or(i64::MIN, |since| since.0);
        let (workspace, last, code) = (query.workspace.0, before.last.0, before.kind.code());
        let limit = bigint(query.rows());
        let params: Params<'_> = &[&workspace, &last, &before.num, &code, &since, &kind, &key, &limit];
        self.rows(duplicates_statement(), params).await?.iter().map(duplicate_of).collect()
    }

    async fn receipts(&mut self, num: i64) -> Result<Vec<(ReceiptKind, Receipts)>> {
        let read = "SELECT kind, count, first, last, recent FROM receipts WHERE run = $1 ORDER BY kind";
        let of = |row: &Row| {
            let code = column(row, 0)?;
            let kind =
                ReceiptKind::from_code(code).ok_or_else(|| corrupt(row, format!("{code} is no kind")))?;
            Ok((kind, receipts_of(row)?))
        };
        self.rows(read, &[&num]).await?.iter().map(of).collect()
    }
}

/// The statement that reads the receipts of a workspace, the latest first.
pub(crate) const fn duplicates_statement() -> &'static str {
    include_str!("../sql/duplicates.sql")
}

fn duplicate_of(row: &Row) -> Result<DuplicateRow> {
    let code = column(row, 5)?;
    let kind = ReceiptKind::from_code(code).ok_or_else(|| corrupt(row, format!("{code} is no kind")))?;
    let at = DuplicatePlace { last: Time(column(row, 8)?), num: column(row, 4)?, kind };
    let run = RunId(column(row, 0)?);
    let Some(latest) = column::<Option<&str>>(row, 9)? else {
        return Ok(DuplicateRow { at, run, calls: None });
    };
    let calls = AbsorbedCalls {
        run,
        workflow: rows::name(row, 1)?,
        scope: Scope::stored(column(row, 2)?),
        key: Key::new(column::<&str>(row, 3)?).map_err(|e| corrupt(row, e))?,
        kind,
        count: column::<i64>(row, 6)? as u64,
        first: Time(column(row, 7)?),
        latest: serde_json::from_str(latest).map_err(|e| corrupt(row, e))?,
    };
    Ok(DuplicateRow { at, run, calls: Some(calls) })
}

/// Reads the columns after the first.
fn receipts_of(row: &Row) -> Result<Receipts> {
    Ok(Receipts {
        count: column::<i64>(row, 1)? as u64,
        first: Time(column(row, 2)?),
        last: Time(column(row, 3)?),
        recent: serde_json::from_str(column(row, 4)?).map_err(|e| corrupt(row, e))?,
    })
}
