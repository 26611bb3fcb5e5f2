//! Prepared branches: their names, the decision to commit, and what is done about a branch that is found.
//!
//! A branch is one database's part of a transaction over several. Its name says everything that a later owner of the run, or
//! an operator, has to know: which run prepared it, under which effect key, claim and attempt.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::entry::Entry;
use super::fence::{FenceMark, FenceRow};
use super::json::Payload;
use super::path::{DECISION, Name, Visit};
use super::status::Status;
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
    /// The decision to commit the branches of an attempt. A branch is absent where an outcome was there already.
    pub fn new(key: &str, attempt: u32, branches: Vec<(Option<BranchName>, Payload)>) -> Self {
        let (names, results): (Vec<_>, Vec<_>) = branches.into_iter().unzip();
        let commit = names.into_iter().map(|name| name.map(|name| name.to_string())).collect();
        Self { key: key.to_owned(), attempt, commit, results }
    }

    /// Whether it decides this attempt at the block with this effect key.
    pub fn is_of(&self, key: &str, attempt: u32) -> bool {
        self.attempt == attempt && self.key == key
    }

    /// The branches by their names; none where there is nothing to commit.
    pub fn branches(&self) -> Vec<Option<BranchName>> {
        self.commit.iter().map(|name| BranchName::parse(name.as_deref()?)).collect()
    }
}

/// Visits at which the decision about an attempt may be recorded: `@decision` below the block, or the same with the attempt's
/// number if an earlier attempt has used the first.
pub fn decision_visits(block: &Visit, attempt: u32) -> impl Iterator<Item = Visit> {
    let plain = Name::new(DECISION).and_then(|name| block.path.join(&name)).ok();
    let keyed = plain.as_ref().and_then(|path| path.keyed(&Name::new(&attempt.to_string()).ok()?).ok());
    let tick = block.tick;
    [plain, keyed].into_iter().flatten().map(move |path| Visit { path, tick })
}

/// How a prepared branch is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndAs {
    /// Its changes are there from now on.
    Committed,
    /// Its changes are discarded.
    RolledBack,
}

/// Decision about a branch, by the ledger of its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BranchFate {
    /// It is ended like this.
    End(EndAs),
    /// Its run goes on and ends it itself.
    Open,
}

/// Decides about a branch by its run's status and ledger. A run that has ended decides nothing any more: without a decision
/// in its ledger the branch is rolled back.
pub fn fate<'e>(
    branch: &BranchName,
    status: Status,
    ledger: impl IntoIterator<Item = &'e Entry>,
) -> BranchFate {
    if !status.is_terminal() {
        return BranchFate::Open;
    }
    let name = branch.to_string();
    let decides = |entry: &Entry| match entry {
        Entry::Recorded { at, value, .. } if at.path.is_decision() => value
            .read::<CommitDecision>()
            .is_ok_and(|decision| decision.commit.iter().flatten().any(|of| *of == name)),
        _ => false,
    };
    let is_decided = ledger.into_iter().any(decides);
    BranchFate::End(if is_decided { EndAs::Committed } else { EndAs::RolledBack })
}

/// State of a branch that was to be committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitLook {
    /// It is committed, and its row can be read.
    Done,
    /// It is not known yet: the database is asked again.
    Again,
    /// It is neither prepared nor committed: it was rolled back by hand.
    Gone,
}

/// Judges a branch whose commit gave an error, by two answers of its database: whether the branch is listed as prepared, and,
/// read after that, whether its row has an outcome. None where the database did not answer or was not asked. The order
/// matters: a branch leaves the list when its row can be read.
pub fn judge(is_listed: Option<bool>, has_outcome: Option<bool>) -> CommitLook {
    match (is_listed, has_outcome) {
        (Some(false), Some(true)) => CommitLook::Done,
        (Some(false), Some(false)) => CommitLook::Gone,
        _ => CommitLook::Again,
    }
}

/// What an attempt does about a prepared branch that its database lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clearance {
    /// It belongs to another effect: leave it alone.
    Leave,
    /// A later claim or attempt of the same run prepared it, under this fence: the attempt is a zombie.
    Superseded(i64),
    /// An earlier attempt of the same run prepared it, without a decision: roll it back.
    RollBack,
    /// Another run prepared it, such as the source of a fork: that run's ledger decides, see [`fate`].
    AskItsRun,
}

/// Decides what the attempt with this mark does about a branch.
pub fn clear(mark: &FenceMark, branch: &BranchName) -> Clearance {
    match branch {
        _ if branch.key != mark.key => Clearance::Leave,
        _ if branch.run != mark.run => Clearance::AskItsRun,
        _ if (branch.fence, branch.attempt) > (mark.fence, mark.attempt) => {
            Clearance::Superseded(branch.fence)
        }
        _ => Clearance::RollBack,
    }
}

/// The fence of the later claim that refused the fence of this mark; none if the row is another attempt's outcome.
pub fn refused_by(mark: &FenceMark, row: Option<&FenceRow>) -> Option<i64> {
    row.filter(|row| row.outcome.is_none() && row.run == mark.run).map(|row| row.fence)
}

/// Whether a branch of database `index` belongs to an attempt that has committed in another database of the block, so that it
/// is to be committed as well.
pub fn finishes(branch: &BranchName, key: &str, index: usize, committed: &[FenceRow]) -> bool {
    let of =
        |row: &FenceRow| (branch.fence, branch.attempt) == (row.fence, row.attempt) && branch.run == row.run;
    branch.key == key && branch.index as usize == index && committed.iter().any(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn branch(run: &str, fence: i64, attempt: i64) -> BranchName {
        BranchName { run: run.into(), key: "e1".into(), fence, attempt, index: 1, since: Time(0) }
    }

    #[test]
    fn only_a_decision_in_the_ledger_of_an_ended_run_commits_its_branch() {
        let ours = branch("run_a", 2, 1);
        let block = Visit::parse("book").unwrap();
        let at = decision_visits(&block, 1).next().unwrap();
        let decision = |name: &BranchName, at: &Visit| {
            let decision = CommitDecision::new(
                "e1",
                1,
                vec![(None, Payload::null()), (Some(name.clone()), Payload::null())],
            );
            Entry::Recorded { at: at.clone(), value: Payload::of(&decision).unwrap(), failed: None }
        };
        let decided = [decision(&ours, &at)];
        let of_another = [decision(&branch("run_a", 2, 2), &at)];
        let elsewhere = [decision(&ours, &block)];
        let (commit, roll_back) = (BranchFate::End(EndAs::Committed), BranchFate::End(EndAs::RolledBack));
        for (status, ledger, expected) in [
            (Status::Running, &decided[..], BranchFate::Open),
            (Status::Waiting, &[], BranchFate::Open),
            (Status::Paused, &[], BranchFate::Open),
            (Status::Completed, &decided, commit),
            (Status::Cancelled, &decided, commit),
            (Status::Cancelled, &[], roll_back),
            (Status::Failed, &of_another, roll_back),
            (Status::TimedOut, &elsewhere, roll_back),
        ] {
            assert_eq!(fate(&ours, status, ledger), expected, "{status:?} {ledger:?}");
        }
    }

    #[test]
    fn a_branch_is_gone_only_if_it_is_neither_listed_nor_committed() {
        for (is_listed, has_outcome, expected) in [
            (None, None, CommitLook::Again),
            (None, Some(true), CommitLook::Again),
            (None, Some(false), CommitLook::Again),
            (Some(true), None, CommitLook::Again),
            (Some(true), Some(true), CommitLook::Again),
            (Some(true), Some(false), CommitLook::Again),
            (Some(false), None, CommitLook::Again),
            (Some(false), Some(true), CommitLook::Done),
            (Some(false), Some(false), CommitLook::Gone),
        ] {
            assert_eq!(judge(is_listed, has_outcome), expected, "{is_listed:?} {has_outcome:?}");
        }
    }

    fn mark() -> FenceMark {
        FenceMark { key: "e1".into(), run: "run_a".into(), step: "book".into(), fence: 5, attempt: 2 }
    }

    #[test]
    fn an_attempt_rolls_back_what_earlier_attempts_of_its_run_prepared() {
        let foreign = BranchName { key: "e2".into(), ..branch("run_a", 9, 9) };
        for (branch, expected) in [
            (foreign, Clearance::Leave),
            (branch("run_b", 9, 9), Clearance::AskItsRun),
            (branch("run_b", 1, 1), Clearance::AskItsRun),
            (branch("run_a", 4, 9), Clearance::RollBack),
            (branch("run_a", 5, 1), Clearance::RollBack),
            (branch("run_a", 5, 2), Clearance::RollBack),
            (branch("run_a", 5, 3), Clearance::Superseded(5)),
            (branch("run_a", 6, 1), Clearance::Superseded(6)),
        ] {
            assert_eq!(clear(&mark(), &branch), expected, "{branch}");
        }
    }

    fn row(run: &str, fence: i64, attempt: i64, outcome: Option<&str>) -> FenceRow {
        FenceRow { run: run.into(), fence, attempt, outcome: outcome.map(Into::into) }
    }

    #[test]
    fn a_fence_is_refused_by_a_later_claim_or_by_an_outcome() {
        for (row, expected) in [
            (None, None),
            (Some(row("run_a", 7, 1, None)), Some(7)),
            (Some(row("run_a", 7, 1, Some("1"))), None),
            (Some(row("run_b", 7, 1, None)), None),
        ] {
            assert_eq!(refused_by(&mark(), row.as_ref()), expected, "{row:?}");
        }
    }

    #[test]
    fn a_branch_is_committed_if_its_attempt_has_committed_in_another_database() {
        let ours = branch("run_a", 2, 1);
        for (key, index, committed, expected) in [
            ("e1", 1, vec![row("run_a", 2, 1, Some("1"))], true),
            ("e1", 1, vec![row("run_a", 1, 1, Some("1")), row("run_a", 2, 1, Some("1"))], true),
            ("e1", 1, vec![], false),
            ("e1", 0, vec![row("run_a", 2, 1, Some("1"))], false),
            ("e2", 1, vec![row("run_a", 2, 1, Some("1"))], false),
            ("e1", 1, vec![row("run_b", 2, 1, Some("1"))], false),
            ("e1", 1, vec![row("run_a", 3, 1, Some("1"))], false),
            ("e1", 1, vec![row("run_a", 2, 2, Some("1"))], false),
        ] {
            assert_eq!(finishes(&ours, key, index, &committed), expected, "{key} {index} {committed:?}");
        }
    }

    #[test]
    fn a_decision_is_of_one_attempt_under_one_key_and_has_two_visits() {
        let ours = branch("run_a", 2, 3);
        let decision = CommitDecision::new("e1", 3, vec![(Some(ours.clone()), Payload::null())]);
        assert!(decision.is_of("e1", 3) && !decision.is_of("e1", 2) && !decision.is_of("e2", 3));
        assert_eq!(decision.commit, [Some(ours.to_string())]);
        let block = Visit::parse("book#2").unwrap();
        let visits: Vec<String> = decision_visits(&block, 3).map(|visit| visit.to_string()).collect();
        assert_eq!(visits, ["book/@decision#2", "book/@decision[3]#2"]);
    }

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
