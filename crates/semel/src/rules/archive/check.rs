//! Checks that the content of a store is consistent: each ledger by itself, and the runs with each other.

use std::collections::{HashMap, HashSet};
use std::fmt;

use super::{ArchiveLine, OnceLine, RecordLine, RunLine, WatcherLine};
use crate::id::{RunId, WorkspaceId};
use crate::rules::entry::{Created, Entry, Message, decode};
use crate::rules::json::Payload;
use crate::rules::key::{Key, RecordId, Scope, Token};
use crate::rules::ledger::{HookState, Ledger, VisitRecord};
use crate::rules::path::Name;
use crate::rules::status::Status;

/// An inconsistency that the check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Where it was found: a run's id, or a description of the line.
    pub at: String,
    /// Description of what is wrong.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.what)
    }
}

/// Checks one line after the other, and remembers what must be unique.
#[derive(Debug, Default)]
pub struct Checker {
    ids: HashMap<RunId, Status>,
    keys: HashMap<(WorkspaceId, Scope, Key), RunId>,
    tokens: HashMap<(WorkspaceId, Token), RunId>,
    once: HashSet<(WorkspaceId, String, String)>,
    records: HashSet<(Name, RecordId)>,
    lines: u64,
}

impl Checker {
    /// Number of runs checked so far.
    pub fn runs(&self) -> u64 {
        self.ids.len() as u64
    }

    /// Number of lines checked so far.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// Findings in a line: each a rule of the format that it breaks.
    pub fn check(&mut self, line: &ArchiveLine) -> Vec<Finding> {
        self.lines += 1;
        let (at, wrong) = match line {
            ArchiveLine::Run(run) => (run.id.to_string(), self.run(run)),
            ArchiveLine::Watcher(watcher) => (watcher.run.to_string(), self.watcher(watcher)),
            ArchiveLine::Once(once) => (format!("once {}", once.label), self.once(once)),
            ArchiveLine::Record(record) => (format!("{} {}", record.kind, record.id), self.record(record)),
        };
        wrong.into_iter().map(|what| Finding { at: at.clone(), what }).collect()
    }

    fn run(&mut self, run: &RunLine) -> Vec<String> {
        let mut wrong = header(run);
        if run.purged {
            let left = !run.commits.is_empty() || !run.inbox.is_empty();
            wrong.extend(left.then(|| "its history is forgotten, and some of it is there".to_owned()));
        } else {
            wrong.extend(inbox(run));
            wrong.extend(ledger(run));
        }
        if self.ids.insert(run.id, run.status).is_some() {
            wrong.push("it is there twice".to_owned());
        }
        if run.holds_key {
            let key = (run.workspace, run.scope.clone(), run.key.clone());
            if let Some(other) = self.keys.insert(key, run.id) {
                wrong.push(format!("{other} holds its key {} as well", run.key));
            }
        }
        for token in &run.tokens {
            if let Some(other) = self.tokens.insert((run.workspace, token.clone()), run.id) {
                wrong.push(format!("{other} owns its token {token} as well"));
            }
        }
        wrong
    }

    fn watcher(&self, watcher: &WatcherLine) -> Vec<String> {
        let mut wrong = Vec::new();
        match self.ids.get(&watcher.waits_for) {
            None => wrong.push(format!("it waits for {}, which is not there", watcher.waits_for)),
            Some(status) if status.is_terminal() => {
                wrong.push(format!("it waits for {}, which has ended", watcher.waits_for));
            }
            Some(_) => {}
        }
        if !self.ids.contains_key(&watcher.run) {
            wrong.push(format!("it waits for {}, and is not there itself", watcher.waits_for));
        }
        wrong
    }

    fn once(&mut self, once: &OnceLine) -> Vec<String> {
        let mut wrong = Vec::new();
        if !self.once.insert((once.workspace, once.scope.clone(), once.label.as_str().to_owned())) {
            wrong.push("it is there twice".to_owned());
        }
        if let Some(Err(error)) = once.value.as_deref().map(Payload::parse) {
            wrong.push(format!("its result cannot be read: {error}"));
        }
        wrong
    }

    fn record(&mut self, record: &RecordLine) -> Vec<String> {
        let mut wrong = Vec::new();
        if !self.records.insert((record.kind.clone(), record.id.clone())) {
            wrong.push("it is there twice".to_owned());
        }
        if let Err(error) = record.record() {
            wrong.push(format!("what it says cannot be read: {error}"));
        }
        if !record.has_version() {
            wrong.push(format!("it has the version {}", record.version));
        }
        wrong
    }
}

/// Inconsistencies within the header.
fn header(run: &RunLine) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut unless = |right: bool, what: &str| {
        if !right {
            wrong.push(format!("it is {}, {what}", run.status));
        }
    };
    let ended = run.status.is_terminal();
    unless(ended == run.ended.is_some(), "and its time of ending says otherwise");
    unless(ended == run.purge.is_some(), "and the time at which it is forgotten says otherwise");
    unless(!ended || run.due.is_none(), "and yet due");
    unless(!ended || run.tokens.is_empty(), "and yet owns a token");
    let stuck = matches!(run.status, Status::Pending | Status::Running) && run.due.is_none();
    unless(!stuck, "and no node will ever claim it");
    wrong
}

fn inbox(run: &RunLine) -> Vec<String> {
    let (mut wrong, mut last) = (Vec::new(), 0);
    for message in &run.inbox {
        if message.arrival <= last || message.arrival > run.arrivals {
            wrong.push(format!("message {} is out of order: {} have arrived", message.arrival, run.arrivals));
        }
        last = message.arrival;
        if let Err(error) = serde_json::from_str::<Message>(&message.message) {
            wrong.push(format!("message {} cannot be read: {error}", message.arrival));
        }
    }
    wrong
}

/// Reads all entries; the error says which of them cannot be read.
fn entries(run: &RunLine) -> Result<Vec<Entry>, String> {
    let mut entries = Vec::new();
    for commit in &run.commits {
        if commit.seq != entries.len() as u64 {
            return Err(format!("{} entries, then a commit after {}", entries.len(), commit.seq));
        }
        let more = decode(&commit.entries).map_err(|error| format!("entry {}: {error}", commit.seq + 1))?;
        entries.extend(more);
    }
    if entries.len() as u64 != run.version {
        return Err(format!("it has version {} and {} entries", run.version, entries.len()));
    }
    Ok(entries)
}

fn ledger(run: &RunLine) -> Vec<String> {
    let entries = match entries(run) {
        Ok(entries) => entries,
        Err(what) => return vec![what],
    };
    match Ledger::read(run.run(0), entries) {
        Ok(ledger) => folded(run, &ledger),
        Err(refused) => vec![format!("its ledger does not fold: {refused}")],
    }
}

/// Inconsistencies between the folded ledger and the header.
fn folded(run: &RunLine, ledger: &Ledger) -> Vec<String> {
    let mut wrong = Vec::new();
    let status = ledger.run().status();
    if status != run.status {
        wrong.push(format!("it is {}, and its ledger says {status}", run.status));
    }
    let Created { workflow, workflow_version, key, scope, lineage, parent, .. } = ledger.created();
    let parent = parent.as_ref().map(|parent| parent.run);
    let same = (workflow, workflow_version, key, scope, *lineage, parent)
        == (&run.workflow, &run.workflow_version, &run.key, &run.scope, run.lineage, run.parent);
    if !same {
        wrong.push("it was created with other names than it has".to_owned());
    }
    for (visit, record) in ledger.records() {
        if let VisitRecord::Hook { token, state: HookState::Open(_) } = record
            && !status.is_terminal()
            && !run.tokens.contains(token)
        {
            wrong.push(format!("its hook {visit} is open, and it does not own the token {token}"));
        }
    }
    // The fold iterates in no particular order.
    wrong.sort_unstable();
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Time;
    use crate::rules::archive::CommitLine;
    use crate::rules::entry::encode;
    use crate::rules::run::tests::run;

    fn sound() -> RunLine {
        let mut line = RunLine::bare(&run(Status::Pending));
        let created = Entry::Created(Box::new(Created {
            workflow: line.workflow.clone(),
            workflow_version: line.workflow_version.clone(),
            input: Payload::null(),
            key: line.key.clone(),
            scope: line.scope.clone(),
            lineage: line.lineage,
            not_before: None,
            deadline: None,
            parent: None,
            forked_from: None,
        }));
        line.due = Some(Time(0));
        line.commits = vec![CommitLine { seq: 0, at: Time(0), entries: encode(&[created]) }];
        line
    }

    fn found(change: impl FnOnce(&mut RunLine)) -> Vec<String> {
        let mut line = sound();
        change(&mut line);
        let found = Checker::default().check(&ArchiveLine::Run(Box::new(line)));
        found.into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn what_does_not_fit_is_found() {
        assert_eq!(found(|_| {}), Vec::<String>::new());
        assert_eq!(found(|run| run.version = 2), ["it has version 2 and 1 entries"]);
        assert_eq!(found(|run| run.due = None), ["it is PENDING, and no node will ever claim it"]);
        assert_eq!(found(|run| run.status = Status::Waiting), ["it is WAITING, and its ledger says PENDING"]);
        assert_eq!(found(|run| run.commits[0].seq = 3), ["0 entries, then a commit after 3"]);
        assert_eq!(
            found(|run| run.key = Key::new("other").unwrap()),
            ["it was created with other names than it has"]
        );
        assert_eq!(found(|run| run.purged = true), ["its history is forgotten, and some of it is there"]);
        assert_eq!(found(|run| run.commits[0].entries = "[]".to_owned()).len(), 1);
        assert_eq!(found(|run| run.commits[0].entries = "{".to_owned()).len(), 1);
        assert_eq!(found(|run| run.ended = Some(Time(1))).len(), 1);
    }

    #[test]
    fn a_key_has_one_holder() {
        let mut checker = Checker::default();
        let mut other = sound();
        other.id = RunId(uuid::Uuid::from_u128(9));
        assert!(checker.check(&ArchiveLine::Run(Box::new(sound()))).is_empty());
        let found = checker.check(&ArchiveLine::Run(Box::new(other)));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].what.contains("holds its key k as well"), "{found:?}");
    }
}
