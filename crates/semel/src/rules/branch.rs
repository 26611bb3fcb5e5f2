//! Names of prepared branches, and the decision about them: the parts of two-phase commit that are data.
//!
//! A branch is one database's part of a transaction over several. Its name says everything that a later owner of the run, or
//! an operator, has to know: which run prepared it, under which effect key, claim and attempt.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::json::Payload;
use crate::clock::Time;

/// What names of our branches begin with in PostgreSQL, where one text is the name.
const OURS: &str = "semel/";

/// The name of a prepared branch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BranchName {
    /// Id of the run that prepared it.
    pub run: String,
    /// Effect key of the block: the same for all of its branches and attempts.
    pub key: String,
    /// Version of the claim under which it was prepared.
    pub fence: i64,
    /// Number of the attempt, from 1.
    pub attempt: i64,
    /// Place of the database in its block, from 0. Two databases of one server list each other's branches.
    pub index: u32,
    /// When the attempt began, by the clock of the engine that made it.
    pub since: Time,
}

impl BranchName {
    /// Parses what `Display` writes, one spelling each; none if it is no branch of ours.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix(OURS)?.split('/');
        let (run, key, rest) = (parts.next()?, parts.next()?, parts.next()?);
        let mut numbers = rest.split('.');
        let mut number = || numbers.next()?.parse::<i64>().ok();
        let name = Self {
            run: run.to_owned(),
            key: key.to_owned(),
            fence: number()?,
            attempt: number()?,
            index: u32::try_from(number()?).ok()?,
            since: Time(number()?.checked_mul(1000)?),
        };
        // It is put into statements as it is.
        let plain =
            |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        (plain(run) && plain(key) && name.to_string() == text).then_some(name)
    }

    /// The name in MariaDB and MySQL, where it has two parts of at most 64 bytes each.
    pub fn xid(&self) -> (String, String) {
        let rest = format!("{}.{}", self.run, self.rest());
        (self.key.clone(), rest)
    }

    /// The name that has these two parts; none if it is no branch of ours.
    pub fn of_xid(key: &str, rest: &str) -> Option<Self> {
        let (run, numbers) = rest.split_once('.')?;
        Self::parse(&format!("{OURS}{run}/{key}/{numbers}"))
    }

    fn rest(&self) -> String {
        // In seconds: there is no room for more in MariaDB.
        format!("{}.{}.{}.{}", self.fence, self.attempt, self.index, self.since.0 / 1000)
    }
}

impl fmt::Display for BranchName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{OURS}{}/{}/{}", self.run, self.key, self.rest())
    }
}

/// The decision to commit, as it stands in the ledger. There is no other: what is not decided is rolled back.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CommitDecision {
    /// Effect key of the block. A fork with keys of its own inherits the entry, and not the decision.
    pub key: String,
    /// Number of the attempt whose branches these are.
    pub attempt: u32,
    /// The branches to commit, one for each database; null where an outcome was there already.
    pub commit: Vec<Option<String>>,
    /// The outcome of each branch.
    pub results: Vec<Payload>,
}

impl CommitDecision {
    /// The branches by their names; none where there is nothing to commit.
    pub fn branches(&self) -> Vec<Option<BranchName>> {
        self.commit.iter().map(|name| BranchName::parse(name.as_deref()?)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> BranchName {
        BranchName {
            run: format!("run_{}", "x".repeat(26)),
            key: format!("e1{}", "y".repeat(32)),
            fence: 123_456_789,
            attempt: 12,
            index: 31,
            since: Time(1_795_000_000_000),
        }
    }

    #[test]
    fn a_name_is_read_as_it_was_written_and_fits_both_databases() {
        let name = name();
        assert!(name.to_string().len() < 200, "PostgreSQL refuses longer names");
        assert_eq!(BranchName::parse(&name.to_string()), Some(name.clone()));
        let (key, rest) = name.xid();
        assert!(key.len() <= 64 && rest.len() <= 64, "MariaDB refuses longer names: {rest}");
        assert_eq!(BranchName::of_xid(&key, &rest), Some(name));
    }

    #[test]
    fn what_is_not_a_name_of_ours_is_left_alone() {
        let good = name().to_string();
        for bad in [
            "",
            "semel/",
            "semel/a/b/1.2.3",
            "semel/a/b/1.2.3.4.5",
            "semel/a/b/01.2.3.4",
            "other/a/b/1.2.3.4",
        ] {
            assert_eq!(BranchName::parse(bad), None, "{bad}");
        }
        assert_eq!(BranchName::parse(&good.replace("x/", "'/")), None, "no quotes get into a statement");
    }
}
