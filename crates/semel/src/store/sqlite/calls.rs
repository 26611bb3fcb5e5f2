//! Calls that were accepted under an id.

use rusqlite::params;

use super::tx::SqliteTx;
use crate::error::Result;
use crate::id::RunId;
use crate::rules::deliver::PastCall;
use crate::store::tx::CallAt;

impl SqliteTx {
    pub(super) fn remember_call(
        &self,
        at: CallAt<'_>,
        num: i64,
        call: &PastCall,
        replaces: Option<RunId>,
    ) -> Result<bool> {
        // Without a run to replace, the condition is null and the row stays as it is.
        let sql = "INSERT INTO calls (workspace, scope, id, run, owner, fingerprint, result) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (workspace, scope, id) DO UPDATE \
             SET run = ?4, owner = ?5, fingerprint = ?6, result = ?7 WHERE owner = ?8";
        let CallAt { workspace, scope, id } = at;
        let (fingerprint, result) = (call.fingerprint.0, call.result);
        let params = params![workspace, scope, id.as_str(), num, call.run, fingerprint, result, replaces];
        Ok(self.write(sql, params)? == 1)
    }
}
