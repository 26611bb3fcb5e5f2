//! Lines of an archive become rows again. All of a call is looked at before the first row is written.

use std::collections::HashSet;

use super::export::{line_of, once_line};
use crate::clock::Time;
use crate::error::{Error, Result};
use crate::id::RunId;
use crate::rules::archive::{ArchiveLine, OnceLine, RecordLine, RunLine, WatcherLine};
use crate::rules::json::Payload;
use crate::rules::once::OnceRow;
use crate::store::archive::Imported;
use crate::store::tx::{CallAt, HeldOnce, NewHook, StoreTx, Verb, Watcher, race};

/// Puts lines into the store, all or none.
pub(crate) struct Import(pub(crate) Vec<ArchiveLine>);

impl Verb for Import {
    type Answer = Imported;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Imported> {
        if let Some(node) = tx.live_node().await? {
            let what = format!("{node} is at work on this store; stop its server, and import then");
            return Err(Error::Validation(what));
        }
        let mut batch = ImportBatch::default();
        let mut new = Vec::new();
        for line in &self.0 {
            if !batch.is_there(tx, line).await? {
                new.push(line);
            }
        }
        for line in &new {
            write(tx, line).await?;
        }
        Ok(Imported { made: new.len(), absorbed: self.0.len() - new.len() })
    }
}

/// Keys, ids and tokens that the lines so far take: two lines of one import must not take the same.
#[derive(Default)]
struct ImportBatch {
    ids: HashSet<RunId>,
    taken: HashSet<String>,
}

impl ImportBatch {
    /// Whether a line is in the store already. Refused if it is there otherwise, or if something is in its way.
    async fn is_there<T: StoreTx>(&mut self, tx: &mut T, line: &ArchiveLine) -> Result<bool> {
        match line {
            ArchiveLine::Run(run) => self.run(tx, run).await,
            ArchiveLine::Watcher(watcher) => self.watcher(tx, watcher).await,
            ArchiveLine::Once(once) => self.once(tx, once).await,
            ArchiveLine::Record(record) => self.record(tx, record).await,
        }
    }

    /// Notes something that only one can have.
    fn take(&mut self, what: &str) -> Result<()> {
        match self.taken.insert(what.to_owned()) {
            true => Ok(()),
            false => Err(in_the_way(&format!("the archive has {what} twice"))),
        }
    }

    async fn run<T: StoreTx>(&mut self, tx: &mut T, line: &RunLine) -> Result<bool> {
        if let Some(found) = tx.run(line.id).await? {
            let same = line_of(tx, &found).await? == *line;
            return if same { Ok(true) } else { Err(differs(&line.id.to_string())) };
        }
        self.take(&line.id.to_string())?;
        self.ids.insert(line.id);
        let workspace = line.workspace;
        if line.holds_key {
            self.take(&format!("the key {:?} of {workspace} in {:?}", line.key, line.scope))?;
            if let Some(holder) = tx.holder(workspace, &line.scope, &line.key).await? {
                return Err(Error::DuplicateRun { owner: holder.id(), status: holder.status() });
            }
        }
        for token in &line.tokens {
            self.take(&format!("the token {token:?} of {workspace}"))?;
            if let Some(owner) = tx.hook_owner(workspace, token).await? {
                return Err(in_the_way(&format!("{owner} owns the token {token}")));
            }
        }
        for call in &line.calls {
            self.take(&format!("the call {:?} of {workspace} on {:?}", call.id, call.scope))?;
            if tx.call(workspace, &call.scope, &call.id).await?.is_some() {
                return Err(in_the_way(&format!("the call id {} is taken", call.id)));
            }
        }
        Ok(false)
    }

    async fn watcher<T: StoreTx>(&mut self, tx: &mut T, line: &WatcherLine) -> Result<bool> {
        let mut nums = [None; 2];
        for (num, id) in nums.iter_mut().zip([line.waits_for, line.run]) {
            *num = tx.run(id).await?.map(|run| run.num);
            if num.is_none() && !self.ids.contains(&id) {
                return Err(in_the_way(&format!("{id} is in neither the archive nor the store")));
            }
        }
        let [Some(num), Some(watcher)] = nums else { return Ok(false) };
        let there = tx.watchers_of(num).await?;
        Ok(there.iter().any(|found| found.num == watcher && found.visit == line.visit))
    }

    async fn once<T: StoreTx>(&mut self, tx: &mut T, line: &OnceLine) -> Result<bool> {
        row_of(line)?;
        let OnceLine { workspace, scope, label, .. } = line;
        self.take(&format!("once {label:?} of {workspace} in {scope:?}"))?;
        // The look-up locks a row also if it does not exist: no other transaction inserts it meanwhile.
        match tx.once(*workspace, scope, label).await? {
            None => Ok(false),
            Some(row) => {
                let held =
                    HeldOnce { workspace: *workspace, scope: scope.clone(), label: label.clone(), row };
                // Earlier archives have them in the order in which they came.
                let mut line = line.clone();
                line.waiters.sort_unstable();
                match once_line(tx, held).await? == line {
                    true => Ok(true),
                    false => Err(differs(&format!("once {label}"))),
                }
            }
        }
    }
}

impl ImportBatch {
    async fn record<T: StoreTx>(&mut self, tx: &mut T, line: &RecordLine) -> Result<bool> {
        let what = format!("the {} {}", line.kind, line.id);
        if !line.has_version() {
            return Err(in_the_way(&format!("{what} has the version {}", line.version)));
        }
        line.record()?;
        self.take(&what)?;
        match tx.record(&line.kind, &line.id).await? {
            None => Ok(false),
            Some(found) if RecordLine::of(&found) == *line => Ok(true),
            Some(_) => Err(differs(&what)),
        }
    }
}

async fn write<T: StoreTx>(tx: &mut T, line: &ArchiveLine) -> Result<()> {
    match line {
        ArchiveLine::Run(run) => write_run(tx, run).await,
        ArchiveLine::Watcher(line) => {
            let waits_for = tx.run(line.waits_for).await?.ok_or_else(race)?;
            let num = tx.run(line.run).await?.ok_or_else(race)?.num;
            tx.insert_watcher(waits_for.num, &Watcher { num, visit: line.visit.clone() }).await
        }
        ArchiveLine::Once(line) => write_once(tx, line).await,
        ArchiveLine::Record(line) => match tx.put_record(&line.record()?, None).await? {
            true => Ok(()),
            false => Err(race()),
        },
    }
}

async fn write_run<T: StoreTx>(tx: &mut T, line: &RunLine) -> Result<()> {
    let num = tx.restore_run(&line.run(0)).await?.ok_or_else(race)?;
    for commit in &line.commits {
        tx.restore_commit(num, commit.seq, commit.at, &commit.entries).await?;
    }
    for message in &line.inbox {
        tx.restore_message(num, message.arrival, message.at, &message.message).await?;
    }
    for (kind, receipts) in &line.receipts {
        tx.add_receipts(num, *kind, receipts).await?;
    }
    for token in &line.tokens {
        let opened = line.opened(token);
        let (visit, opened) = opened.map_or((None, Time(0)), |(visit, at)| (Some(visit), at));
        let hook = NewHook { workspace: line.workspace, token, num, visit: visit.as_ref(), opened };
        if !tx.insert_hook(hook).await? {
            return Err(race());
        }
    }
    for call in &line.calls {
        let at = CallAt { workspace: line.workspace, scope: &call.scope, id: &call.id };
        if !tx.insert_call(at, num, &call.call(), None).await? {
            return Err(race());
        }
    }
    Ok(())
}

fn row_of(line: &OnceLine) -> Result<OnceRow> {
    Ok(OnceRow {
        owner: line.owner,
        fence: line.fence,
        value: line.value.as_deref().map(Payload::parse).transpose()?,
        expires: line.expires,
    })
}

async fn write_once<T: StoreTx>(tx: &mut T, line: &OnceLine) -> Result<()> {
    tx.put_once(line.workspace, &line.scope, &line.label, Some(&row_of(line)?)).await?;
    let at = (line.workspace, line.scope.clone(), line.label.clone());
    for waiter in &line.waiters {
        tx.insert_once_waiter(&at, *waiter).await?;
    }
    Ok(())
}

fn differs(what: &str) -> Error {
    in_the_way(&format!("{what} is in the store, and is another than in the archive"))
}

fn in_the_way(what: &str) -> Error {
    Error::Validation(format!("{what}; import into an empty store"))
}
