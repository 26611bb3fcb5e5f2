//! The suite that every store passes, passed by the store of a server elsewhere.

use std::sync::Arc;

use libtest_mimic::Trial;
use semel::clock::Time;
use semel::error::Result;
use semel::id::{RunId, WorkspaceId};
use semel::remote::RemoteStore;
use semel::rules::claim::Claim;
use semel::rules::commit::{Commit, Saved};
use semel::rules::control::{Control, Controlled};
use semel::rules::deliver::{Deliver, Delivered};
use semel::rules::entry::Outcome;
use semel::rules::once::{OnceAnswer, OnceCall};
use semel::rules::receipt::{ReceiptKind, Receipts};
use semel::rules::run::Run;
use semel::rules::start::Start;
use semel::store::layer::{Layered, StoreCall, StoreLayer, StoreWork};
use semel::store::memory::MemoryStore;
use semel::store::sqlite::{SqliteOptions, SqliteStore};
use semel::store::{
    Answer, Archive, Arrival, Claims, Find, Lease, LedgerPart, Numbered, Page, Part, Query, RunCounts,
    Started, Store, Wake, Watch,
};
use semel::testing::ManualClock;
use semel::testing::suite::{Home, Stores, SuiteFuture, World, cases};
use tempfile::TempDir;
use tokio::sync::broadcast;

use super::runtime;
use super::site::ServedSite;

/// Cases that do not apply to a store elsewhere, and why.
const NOT_HERE: &[(&str, &str)] = &[
    // A server answers a repeated commit as saved: `workers::a_commit_that_is_repeated_answers_as_saved`.
    ("a_repeated_commit_is_refused_and_recorded_once", REPEATED),
    ("a_repeated_commit_is_recorded_once", REPEATED),
    ("a_fired_timer_is_refused_before_its_time", REPEATED),
    // `workers::a_ledger_in_memory_is_not_sent_again`
    (
        "a_ledger_that_the_node_holds_is_not_read_again",
        "the server knows by itself what a worker put to rest",
    ),
    // `large.rs` has more than one answer of a server may hold.
    ("a_claim_takes_what_fits_into_its_bytes", BOUNDED),
    ("a_claim_leaves_runs_whose_messages_do_not_fit", BOUNDED),
    ("a_family_is_claimed_in_all_workspaces_whatever_the_workflow", HOSTED),
    ("a_claim_by_version_and_by_family_takes_the_longest_due_first", HOSTED),
    ("a_claim_of_a_family_tells_when_its_next_run_is_due", HOSTED),
    ("a_plain_commit_alone_does_what_the_rule_says", GUARDED),
    ("plain_commits_together_do_what_the_rule_says", GUARDED),
    ("a_commit_after_a_takeover_does_what_the_rule_says", GUARDED),
    ("ends_of_children_do_what_the_rule_says", GUARDED),
    ("an_engines_record_goes_with_its_node", "a server describes its workers itself"),
    // `waiting::what_a_leaving_worker_held_is_due_at_once`
    ("a_node_that_leaves_frees_its_runs", FREED),
    ("running_runs_are_listed_when_their_node_has_gone", FREED),
    // `ownership::the_numbers_of_runs_tell_nothing_of_other_tenants`
    ("numbers_rise_also_after_reopening", "a worker sees numbers that are in no order"),
    ("two_instances_are_one_store", "a node that another client has drawn is shown as the server's"),
    ("live_nodes_are_counted", "a node that serves two workspaces is two nodes of the server"),
    ("an_export_has_all_and_is_sound", ARCHIVE),
    ("what_is_imported_is_exported_again_byte_for_byte", ARCHIVE),
    ("what_is_imported_goes_on", ARCHIVE),
    ("an_import_can_be_repeated_and_nothing_else_goes_in_between", ARCHIVE),
    ("an_import_waits_until_no_node_is_at_work", ARCHIVE),
    ("in_which_order_an_archive_has_the_waiters_does_not_matter", ARCHIVE),
    ("a_workspace_can_be_exported_alone", ARCHIVE),
    // `access::a_receipt_names_the_key…` has the callers of a server.
    (
        "a_duplicate_start_says_who_sent_it_and_whether_it_asked_for_the_same",
        "the server notes its own callers",
    ),
    ("orphans_come_in_portions", "the last pass remembers the worker that was lost"),
    ("a_page_tells_what_its_runs_do_now", PAGES),
    ("a_glance_tells_the_origin_of_a_run_and_its_duplicates", PAGES),
    ("glances_come_in_the_order_of_the_runs", PAGES),
    ("a_node_shows_its_lease_and_its_runs", PAGES),
    ("a_late_commit_is_counted_on_its_node", PAGES),
    ("a_node_that_was_lost_is_remembered_for_a_day", PAGES),
    ("a_node_that_left_in_good_order_is_not_remembered", PAGES),
    ("who_watches_a_run_hears_of_its_entries_and_of_no_other_run", BLIND),
    ("an_end_in_a_second_instance_is_heard_by_who_watches", BLIND),
];
const PAGES: &str = "what pages show is asked of the server's own store, under the server's ids of nodes";
const BOUNDED: &str = "a server bounds the bytes of its answers by itself";
const HOSTED: &str = "families are driven by engines that open the server's own store";
const GUARDED: &str = "it sends the guard of a store what no ledger makes; a server refuses that by the ledger before its store sees it";
const FREED: &str =
    "the server frees the runs of a worker that leaves with its call, and leaves nothing to a sweep";
const ARCHIVE: &str = "it is the way to a store, not a store that could be exported";
const BLIND: &str = "the server's own streams have an eye on a run; a worker hears wakes";
const REPEATED: &str = "it ends with a commit that is repeated, which a server answers as saved";

/// Cases about wakes look for them in the moment of the answer; from elsewhere they come a moment later.
const HEARD_LATER: &[&str] = &[
    "a_run_that_becomes_due_is_told",
    "what_arrives_in_an_inbox_is_told",
    "an_end_is_told_and_the_parent_hears_of_it",
    "an_operators_action_is_told_to_the_driver_it_takes_the_run_from",
    "a_superseded_run_is_taken_and_ended",
    "a_once_that_is_settled_or_free_again_is_told",
    "a_run_that_ends_frees_its_once_and_that_is_told",
    "a_pause_by_the_driver_is_told",
    "children_of_a_cancelled_run_are_due_and_that_is_told",
];

pub(super) fn trials() -> Vec<Trial> {
    let left_out = |name: &str| HEARD_LATER.contains(&name) || NOT_HERE.iter().any(|(not, _)| *not == name);
    for name in HEARD_LATER.iter().chain(NOT_HERE.iter().map(|(name, _)| name)) {
        assert!(cases().iter().any(|case| case.name == *name), "{name} is no case any more");
    }
    let kinds: [Arc<dyn Stores>; 2] = [Arc::new(OnMemory), Arc::new(OnSqlite)];
    let mut trials = Vec::new();
    for stores in kinds {
        for case in cases().into_iter().filter(|case| !left_out(case.name)) {
            let (name, stores) = (format!("{}::{}", stores.name(), case.name), stores.clone());
            trials.push(Trial::test(name, move || {
                runtime(case.threads).block_on(async {
                    (case.run)(World::new(&*stores).await?).await;
                    Ok(())
                })
            }));
        }
    }
    trials
}

/// The other tenant of the suite.
const STRANGER: WorkspaceId = WorkspaceId(uuid::Uuid::from_u128(77));

/// A server on the memory store; a second instance is at a second server.
struct OnMemory;

struct MemoryHome(MemoryStore, Arc<ManualClock>);

impl Stores for OnMemory {
    fn name(&self) -> &'static str {
        "remote_on_memory"
    }

    fn fresh(&self, clock: Arc<ManualClock>) -> SuiteFuture<'_, Result<Box<dyn Home>>> {
        Box::pin(async { Ok(Box::new(MemoryHome(MemoryStore::new(clock.clone()), clock)) as Box<dyn Home>) })
    }
}

impl Home for MemoryHome {
    fn open(&self) -> SuiteFuture<'_, Result<Arc<dyn Store>>> {
        let store: Arc<dyn Store> = Arc::new(self.0.clone());
        Box::pin(async {
            Ok(Arc::new(Layered(Elsewhere::open(store, self.1.clone()).await?)) as Arc<dyn Store>)
        })
    }

    fn second(&self) -> SuiteFuture<'_, Result<Option<Arc<dyn Store>>>> {
        Box::pin(async { self.open().await.map(Some) })
    }
}

/// A server on a SQLite file.
struct OnSqlite;

struct SqliteHome {
    folder: TempDir,
    clock: Arc<ManualClock>,
}

impl Stores for OnSqlite {
    fn name(&self) -> &'static str {
        "remote_on_sqlite"
    }

    fn fresh(&self, clock: Arc<ManualClock>) -> SuiteFuture<'_, Result<Box<dyn Home>>> {
        let folder = TempDir::new().expect("a folder for the file");
        Box::pin(async { Ok(Box::new(SqliteHome { folder, clock }) as Box<dyn Home>) })
    }
}

impl Home for SqliteHome {
    fn open(&self) -> SuiteFuture<'_, Result<Arc<dyn Store>>> {
        let mut options = SqliteOptions::new(self.folder.path().join("semel.db"));
        options.clock = self.clock.clone();
        Box::pin(async {
            let store: Arc<dyn Store> = Arc::new(SqliteStore::open(options).await?);
            Ok(Arc::new(Layered(Elsewhere::open(store, self.clock.clone()).await?)) as Arc<dyn Store>)
        })
    }

    fn second(&self) -> SuiteFuture<'_, Result<Option<Arc<dyn Store>>>> {
        Box::pin(async { Ok(None) })
    }
}

/// A client for each tenant, as the workspace is the credential's. The server's own affairs (the sweep, the end) are done at
/// the server.
struct Elsewhere {
    own: RemoteStore,
    stranger: RemoteStore,
    server: Arc<dyn Store>,
    _site: ServedSite,
}

impl Elsewhere {
    async fn open(server: Arc<dyn Store>, clock: Arc<ManualClock>) -> Result<Self> {
        let site = ServedSite::open(server.clone(), clock).await;
        let (own, stranger) = (site.remote(WorkspaceId::DEFAULT).await?, site.remote(STRANGER).await?);
        Ok(Self { own, stranger, server, _site: site })
    }

    fn of(&self, workspace: WorkspaceId) -> &RemoteStore {
        if workspace == STRANGER { &self.stranger } else { &self.own }
    }
}

impl StoreLayer for Elsewhere {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.server
    }

    /// Records, the sweep and numbers over all tenants are the server's own.
    fn around<T: Send + 'static>(&self, _: StoreCall, work: StoreWork<T>) -> Answer<'_, T> {
        work(self.server.clone())
    }

    fn start(&self, start: Start) -> Answer<'_, Started> {
        self.of(start.workspace).start(start)
    }

    fn claim(&self, claim: Claim) -> Answer<'_, Claims> {
        let workspace = claim.workflows.first().map_or(WorkspaceId::DEFAULT, |drives| drives.workspace);
        self.of(workspace).claim(claim)
    }

    fn commit(&self, commit: Commit) -> Answer<'_, Saved> {
        self.own.commit(commit)
    }

    fn deliver(&self, deliver: Deliver) -> Answer<'_, Delivered> {
        self.of(deliver.workspace).deliver(deliver)
    }

    fn control(&self, control: Control) -> Answer<'_, Controlled> {
        self.of(control.workspace).control(control)
    }

    fn once(&self, once: OnceCall) -> Answer<'_, OnceAnswer> {
        self.of(once.workspace).once(once)
    }

    /// A node is its workspace's: one that shall serve both is two.
    fn lease(&self, lease: Lease) -> Answer<'_, Time> {
        Box::pin(async move {
            let theirs = self.stranger.lease(lease).await;
            let ours = self.own.lease(lease).await?;
            assert_eq!(theirs?, ours);
            Ok(ours)
        })
    }

    /// Records are the server's.
    fn find(&self, find: Find) -> Answer<'_, Option<(Run, Option<Outcome>)>> {
        self.of(find.workspace).find(find)
    }

    fn list(&self, query: Query) -> Answer<'_, Page> {
        self.of(query.workspace).list(query)
    }

    fn counts_in(&self, workspace: WorkspaceId, cap: u64) -> Answer<'_, RunCounts> {
        self.of(workspace).counts_in(workspace, cap)
    }

    fn ledger(&self, workspace: WorkspaceId, run: RunId, from: u64) -> Answer<'_, Vec<Numbered>> {
        self.of(workspace).ledger(workspace, run, from)
    }

    fn ledger_part(&self, part: Part) -> Answer<'_, LedgerPart> {
        self.of(part.workspace).ledger_part(part)
    }

    fn unconsumed(&self, workspace: WorkspaceId, run: RunId) -> Answer<'_, u64> {
        self.of(workspace).unconsumed(workspace, run)
    }

    fn inbox(&self, workspace: WorkspaceId, run: RunId, from: u64) -> Answer<'_, Vec<Arrival>> {
        self.of(workspace).inbox(workspace, run, from)
    }

    fn receipts(&self, workspace: WorkspaceId, run: RunId) -> Answer<'_, Vec<(ReceiptKind, Receipts)>> {
        self.of(workspace).receipts(workspace, run)
    }

    fn wakes(&self) -> broadcast::Receiver<Wake> {
        self.own.wakes()
    }

    /// A client tells nothing of what it does not do itself.
    fn archive(&self) -> Option<&dyn Archive> {
        None
    }

    fn watch(&self, run: RunId) -> Watch {
        self.own.watch(run)
    }

    fn close(&self) -> Answer<'_, ()> {
        Box::pin(async {
            self.own.close().await?;
            self.stranger.close().await?;
            self.server.close().await
        })
    }
}
