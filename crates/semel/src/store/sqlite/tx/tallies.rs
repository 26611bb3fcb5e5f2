//! Numbers of a workspace, in SQLite.

use rusqlite::{Row, ToSql, params};

use super::SqliteStoreTx;
use crate::clock::Time;
use crate::error::Result;
use crate::id::{NodeId, WorkspaceId};
use crate::rules::path::Name;
use crate::rules::status::Status;
use crate::store::list::Index;
use crate::store::sqlite::values::{Id, Text};
use crate::store::tx::{CountScan, DueScan, LATE_MS, TallyRows, due_version};
use crate::store::{DueVersion, OpenVersion};

/// The next version of a workspace with runs that are due or will be.
const NEXT_VERSION: &str = include_str!("../sql/next_version.sql");
/// How many runs of a version are due at ?4, and since when.
const DUE_OF: &str = include_str!("../sql/due_of.sql");
/// The nodes of driven runs of a workspace.
const HELD: &str = include_str!("../sql/held_in.sql");

/// The partial indexes in which the runs of a state stand, with their conditions: for `runs_driven` word for word.
fn stretches(status: Status) -> &'static [(&'static str, &'static str)] {
    const UNDRIVEN: (&str, &str) = ("runs_status", "status <> 4 AND node IS NULL AND status = ?4");
    const DRIVEN: (&str, &str) = ("runs_driven", "node IS NOT NULL AND ?4 = 1");
    if status == Status::Running { &[UNDRIVEN, DRIVEN] } else { &[UNDRIVEN] }
}

/// Which runs of a stretch are counted: ?5 is a workflow and ?6 a state, or null.
fn counting(index: &str, condition: &str, filtered: bool) -> String {
    let wanted = if filtered { "(?5 IS NULL OR workflow = ?5) AND (?6 IS NULL OR status = ?6)" } else { "1" };
    format!(
        "SELECT coalesce(sum(wanted), 0), count(*) FROM (SELECT {wanted} AS wanted FROM runs INDEXED BY {index} \
         WHERE workspace = ?1 AND created >= ?2 AND {condition} LIMIT ?3)"
    )
}

/// The statements of numbers, each with the index that it reads.
#[cfg(all(feature = "testing", feature = "postgres"))]
pub(crate) fn count_statements() -> Vec<(String, &'static str)> {
    let runs = stretches(Status::Running).iter().chain(&[
        ("runs_list", "?4 IS NULL"),
        ("runs_workflow", "workflow = ?4"),
        ("runs_attention", "attention IS NOT NULL AND attention = ?4"),
    ]);
    let counted = runs.flat_map(|(index, condition)| {
        [true, false].map(|filtered| (counting(index, condition, filtered), *index))
    });
    counted.chain([NEXT_VERSION, DUE_OF].map(|text| (text.to_owned(), "runs_due"))).collect()
}

impl TallyRows for SqliteStoreTx {
    async fn count_runs(&mut self, scan: &CountScan<'_>) -> Result<(u64, usize)> {
        let workflow = |name: &Name| Box::new(name.to_string()) as Box<dyn ToSql>;
        let (stretches, value): (&[_], Box<dyn ToSql>) = match scan.index {
            Index::Workspace => (&[("runs_list", "?4 IS NULL")], Box::new(None::<i64>)),
            Index::Workflow(name) => (&[("runs_workflow", "workflow = ?4")], workflow(name)),
            Index::Status(status) => (stretches(status), Box::new(status)),
            Index::Attention(kind) => {
                let stretch = ("runs_attention", "attention IS NOT NULL AND attention = ?4");
                (&[stretch], Box::new(kind.code()))
            }
            Index::Parent(run) => (&[("runs_parent", "parent IS NOT NULL AND parent = ?4")], Box::new(run)),
            Index::Lineage(run) => (&[("runs_lineage", "lineage <> id AND lineage = ?4")], Box::new(run)),
        };
        let (mut count, mut read) = (0, 0);
        for (index, condition) in stretches {
            let left = i64::try_from(scan.rows - read).unwrap_or(i64::MAX);
            let filtered = scan.workflow.is_some() || scan.status.is_some();
            let mut params: Vec<&dyn ToSql> = vec![&scan.workspace, &scan.since, &left, &*value];
            let (workflow, status) = (scan.workflow.map(Name::as_str), scan.status.map(Status::code));
            if filtered {
                params.extend([&workflow as &dyn ToSql, &status]);
            }
            let read_row = |row: &Row<'_>| Ok((row.get::<_, u64>(0)?, row.get::<_, usize>(1)?));
            let found = self.first(&counting(index, condition, filtered), &*params, read_row)?;
            let (counted, rows) = found.unwrap_or_default();
            (count, read) = (count + counted, read + rows);
        }
        Ok((count, read))
    }

    async fn due_versions(&mut self, scan: &DueScan<'_>) -> Result<Vec<DueVersion>> {
        let mut versions: Vec<DueVersion> = Vec::new();
        let first = scan.workflow.map_or("", Name::as_str);
        let read = |row: &Row<'_>| Ok((row.get::<_, Text<Name>>(0)?.0, row.get::<_, Text<Name>>(1)?.0));
        while versions.len() < scan.versions {
            let after = versions
                .last()
                .map_or((first, ""), |last| (last.workflow.as_str(), last.workflow_version.as_str()));
            let Some((workflow, version)) =
                self.first(NEXT_VERSION, params![scan.workspace, after.0, after.1], read)?
            else {
                break;
            };
            if scan.workflow.is_some_and(|wanted| *wanted != workflow) {
                break;
            }
            versions.push(self.due_of(scan, &workflow, &version)?);
        }
        Ok(versions)
    }

    async fn open_versions(
        &mut self,
        workspace: WorkspaceId,
        status: Status,
        cap: usize,
    ) -> Result<Vec<OpenVersion>> {
        let mut found = std::collections::BTreeMap::<(Name, Name), u64>::new();
        let mut left = cap;
        for (index, condition) in stretches(status) {
            let sql = format!(
                "SELECT workflow, workflow_version, count(*) FROM (SELECT workflow, workflow_version FROM runs \
                 INDEXED BY {index} WHERE workspace = ?1 AND {condition} AND ?2 IS NULL LIMIT ?3) GROUP BY 1, 2"
            );
            let read = |row: &Row<'_>| {
                let version = (row.get::<_, Text<Name>>(0)?.0, row.get::<_, Text<Name>>(1)?.0);
                Ok((version, row.get::<_, u64>(2)?))
            };
            let params = params![workspace, None::<i64>, left as i64, status];
            for (version, count) in self.all(&sql, params, read)? {
                left = left.saturating_sub(count as usize);
                *found.entry(version).or_default() += count;
            }
        }
        let shown =
            |((workflow, workflow_version), count)| OpenVersion { workflow, workflow_version, status, count };
        Ok(found.into_iter().map(shown).collect())
    }

    async fn leases(&mut self, limit: usize) -> Result<Vec<(NodeId, Option<Time>)>> {
        let sql = "SELECT id, lease FROM nodes ORDER BY id LIMIT ?";
        let read =
            |row: &Row<'_>| Ok((NodeId(row.get::<_, Id>(0)?.0), row.get::<_, Option<i64>>(1)?.map(Time)));
        self.all(sql, [limit as i64], read)
    }

    async fn held_in(&mut self, workspace: WorkspaceId, cap: usize) -> Result<Vec<(NodeId, u64)>> {
        self.all(HELD, params![workspace, cap as i64], |row| {
            Ok((NodeId(row.get::<_, Id>(0)?.0), row.get::<_, u64>(1)?))
        })
    }
}

impl SqliteStoreTx {
    fn due_of(&self, scan: &DueScan<'_>, workflow: &Name, version: &Name) -> Result<DueVersion> {
        let most = i64::try_from(scan.cap).unwrap_or(i64::MAX).saturating_add(1);
        let count = |time: Time| -> Result<(u64, Option<i64>)> {
            let params = params![scan.workspace, workflow.as_str(), version.as_str(), time, most];
            let found =
                self.first(DUE_OF, params, |row| Ok((row.get::<_, u64>(0)?, row.get::<_, Option<i64>>(1)?)))?;
            Ok::<_, crate::error::Error>(found.unwrap_or_default())
        };
        let (due, oldest) = count(self.now)?;
        let (late, _) = count(Time(self.now.0.saturating_sub(LATE_MS)))?;
        Ok(due_version((workflow.clone(), version.clone()), (due, late, oldest), scan.cap))
    }
}
