//! Prepared branches of transactions over several databases, as the databases list them.

use std::time::Duration;

use semel::tx::{BranchName, TwoPhase as _};

use super::database::{Database, DatabaseTarget};

/// A branch that is older than this is worth a look: the server that has prepared it settles it within seconds when it is up.
pub(crate) const OLD: Duration = Duration::from_mins(5);

impl DatabaseTarget {
    /// The branches of ours that are prepared there, the oldest first; none where branches cannot be prepared.
    pub(crate) async fn branches(&self) -> Result<Vec<BranchName>, String> {
        let listed = match &self.database {
            Database::Postgres(pool) => pool.prepared().await,
            Database::Sqlite(_) => Ok(Vec::new()),
            #[cfg(feature = "mysql")]
            Database::Mysql(pool) => pool.prepared().await,
        };
        let mut branches = listed.map_err(|fail| self.redactor.text(&fail.to_string()))?;
        branches.sort_by_key(|branch| branch.since);
        Ok(branches)
    }
}
