//! Deliberate bugs, each behind a switch, for the tools that must find them: see docs/reliability.md.
//!
//! A process commits the one that the variable `SEMEL_SABOTAGE` names, if this crate was built with the feature `sabotage`.
//! Optimised builds refuse that feature, and without it [`commits`] is a constant: the switches are in no release.

#[cfg(all(feature = "sabotage", not(debug_assertions)))]
compile_error!(
    "the feature `sabotage` is for debug builds: no optimised program may have a deliberate bug in it"
);

/// Declares the bugs with their names.
macro_rules! bugs {
    ($($(#[$doc:meta])* $bug:ident = $name:literal,)+) => {
        /// Something that a correct engine does not do.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Bug {
            $($(#[$doc])* $bug,)+
        }

        #[cfg(feature = "sabotage")]
        impl Bug {
            /// All bugs that can be switched on.
            pub const ALL: &[Self] = &[$(Self::$bug,)+];

            /// The name by which it is switched on.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$bug => $name,)+ }
            }
        }
    };
}

// Sorted by where they sit.
bugs! {
    // rules
    /// Another request under the key counts as the same.
    IgnoreFingerprint = "ignore-fingerprint",
    /// A delayed run is due at once.
    IgnoreDelay = "ignore-delay",
    /// A start that finds its run says that it made it.
    DuplicateSaysCreated = "duplicate-says-created",
    /// A restart forgets which steps must not simply be tried again.
    RestartForgetsIntents = "restart-forgets-intents",
    /// A step that was given up in doubt is simply tried again after a restart.
    GiveUpIsForgotten = "give-up-is-forgotten",
    /// A race that a failure decided stays decided when what failed is tried again.
    RaceOutlivesFailure = "race-outlives-failure",
    /// A fork takes over what is settled, and nothing of steps that must not simply be tried again.
    ForkForgetsIntents = "fork-forgets-intents",
    /// A child has a key of its own each time it is asked for.
    ChildKeyIsNew = "child-key-is-new",
    /// The grant of a `run_once` value is given to every run that asks.
    OnceGivenTwice = "once-given-twice",
    /// The second visit of a path is taken for the first.
    TicksAreNotCounted = "ticks-are-not-counted",

    // verbs: what all stores do. Most are done by the rows beneath the verbs, in `store/lying.rs`.
    /// A commit is appended whatever the version is.
    SkipVersionGuard = "skip-version-guard",
    /// A timer that fires before its time is believed, and fires half a second too early.
    TimersFireEarly = "timers-fire-early",
    /// A message that was consumed stays in the inbox.
    ConsumedStays = "consumed-stays",
    /// A run that goes to rest does not look whether something has arrived meanwhile.
    RestMissesArrivals = "rest-misses-arrivals",
    /// A run that goes to rest lets go of its tokens.
    RestFreesTokens = "rest-frees-tokens",
    /// A run that ends keeps its tokens.
    EndKeepsTokens = "end-keeps-tokens",
    /// A run that ends does not tell its waiters.
    EndIsNotTold = "end-is-not-told",
    /// A run that ends does not let others do what it had the right to do once.
    EndKeepsOnces = "end-keeps-onces",
    /// A cancelled run does not tell its children.
    CancelForgetsChildren = "cancel-forgets-children",
    /// A start looks whether the key is free, and later inserts its run without looking.
    ReadThenInsert = "read-then-insert",
    /// The run that is superseded goes on.
    SupersededGoesOn = "superseded-goes-on",
    /// A dead node may claim.
    ClaimWithoutLease = "claim-without-lease",
    /// A run that is taken over keeps its version.
    TakeoverKeepsVersion = "takeover-keeps-version",
    /// A claimed run stays due.
    ClaimedStaysDue = "claimed-stays-due",
    /// A claim empties the inbox.
    ClaimDropsInbox = "claim-drops-inbox",
    /// The id of a delivery is not remembered.
    DeliveryIdForgotten = "delivery-id-forgotten",
    /// A cancel that came too late is answered as won.
    EveryCancelWins = "every-cancel-wins",
    /// A wish that a run should end is accepted and not kept.
    WishForgotten = "wish-forgotten",
    /// What comes with a start is accepted and not kept.
    StartForgetsDelivery = "start-forgets-delivery",
    /// That a step in doubt has happened is noted as if it had not.
    HappenedIgnored = "happened-ignored",
    /// A fork with effects of its own has those of the other.
    FreshForkSharesKeys = "fresh-fork-shares-keys",
    /// The sweep forgets a dead node together with its runs.
    SweepForgetsOrphans = "sweep-forgets-orphans",
    /// The sweep leaves runs alone whose time is up.
    OverdueIsNotEnded = "overdue-is-not-ended",
    /// The second death of a node counts as proof against every run in its hands.
    BlameBystanders = "blame-bystanders",

    // engine and SDK
    /// A ledger that others have written to since the claim is driven all the same.
    NewerLedgerIsDriven = "newer-ledger-is-driven",
    /// A driver whose commit is refused because the run is another's goes on as if it had been saved.
    LostGoesOn = "lost-goes-on",
    /// A commit that was not answered is taken for saved.
    UnknownIsSaved = "unknown-is-saved",
    /// A commit that was not answered is taken for refused.
    UnknownIsRefused = "unknown-is-refused",
    /// A claim that was not answered is forgotten.
    UnknownClaimForgotten = "unknown-claim-forgotten",
    /// A start that was not answered is forgotten once another answer is there.
    UnknownStartForgotten = "unknown-start-forgotten",
    /// The driver of a cancelled run is not told.
    CancelLeavesDriver = "cancel-leaves-driver",
    /// What is delivered last is consumed first.
    LastDeliveryFirst = "last-delivery-first",
    /// The body of a step that must not run twice begins before its intent is durable.
    IntentAfterBody = "intent-after-body",
    /// Every try has an effect key of its own.
    KeyPerTry = "key-per-try",
    /// The body of a step that has its result is called again in a replay.
    ReplayCallsBodies = "replay-calls-bodies",
    /// A failed try is followed by the next one at once.
    RetryAtOnce = "retry-at-once",
    /// A commit that was not answered is a reason to pause the run.
    UnknownPauses = "unknown-pauses",
    /// What cleans up after a cancel is cancelled too.
    CleanUpIsCancelled = "clean-up-is-cancelled",
    /// A step that fails is not tried again.
    FirstTryIsTheLast = "first-try-is-the-last",
    /// A step with a look-up is tried again without it.
    ReconcileNeverAsks = "reconcile-never-asks",
    /// A look-up that failed is taken for one that found nothing.
    UnknownIsAbsent = "unknown-is-absent",
    /// A `run_once` result that arrives under an earlier grant is kept back for ever.
    OnceLostForEver = "once-lost-for-ever",
    /// A run whose time is over goes on beginning steps until it ends.
    DeadlineIsIgnored = "deadline-is-ignored",
    /// An effect begins before what the workflow knows is durable.
    EffectBeforeDurable = "effect-before-durable",
    /// Times to come are counted from the earliest that it may be for the store.
    TimesCountFromTheEarliest = "times-count-from-the-earliest",
    /// Who has won a race is not recorded.
    RaceIsNotRecorded = "race-is-not-recorded",

    // SQLite
    /// SQLite never syncs its files.
    SyncNever = "sync-never",
    /// SQLite syncs at checkpoints only, not at commits.
    SyncAtCheckpoints = "sync-at-checkpoints",
    /// SQLite syncs each commit, but after it was answered.
    AnswerBeforeSync = "answer-before-sync",
    /// A checkpoint of SQLite does not sync the file before the log begins anew.
    CheckpointWithoutSync = "checkpoint-without-sync",
    /// After a checkpoint of SQLite that could not be synced the next one goes on where it stopped.
    TrustFailedCheckpoint = "trust-failed-checkpoint",
    /// A commit of SQLite that answered with an error is taken for done.
    AssumeFailedCommit = "assume-failed-commit",
    /// The SQLite store answers before COMMIT has made durable what it answers for.
    AnswerBeforeCommit = "answer-before-commit",
    /// A SQLite file that is opened again ends all leases in it, also those of remote workers.
    LeasesClearedOnOpen = "leases-cleared-on-open",

    // transactional steps, server, remote workers
    /// A transactional step neither looks at the fence table nor obeys it.
    IgnoreFenceTable = "ignore-fence-table",
    /// A new owner rolls earlier branches back and leaves no fence, so that a zombie can still prepare.
    BranchesWithoutFence = "branches-without-fence",
    /// Branches are committed before the decision to do so is durable.
    DecisionIsNotAwaited = "decision-is-not-awaited",
    /// A branch that the database does not know any more is taken for committed.
    UnknownBranchIsDone = "unknown-branch-is-done",
    /// Every try of a mail has a `Message-ID` of its own.
    MessageIdPerTry = "message-id-per-try",
    /// A server believes a worker that has lost its lease, and takes its late commits for saved ones.
    BelieveZombies = "believe-zombies",

    /// A stream is not searched for a message before it is sent again.
    SearchIsSkipped = "search-is-skipped",
    /// A message is put into a stream of Redis without its marker.
    MarkerIsNotSet = "marker-is-not-set",
    // definitions and their tasks
    /// What is undone is undone once more under another name.
    UndoTwice = "undo-twice",
    /// What has completed inside of a block is not undone when something around it fails.
    UndoForgetsBlocks = "undo-forgets-blocks",
    /// All passes of a `for_each` have the same key.
    PassKeyForgotten = "pass-key-forgotten",
    /// The case that a `switch` has chosen is not recorded.
    DecisionNotRecorded = "decision-not-recorded",
    /// The steps of `finally` do not take place.
    FinallyIsSkipped = "finally-is-skipped",
    /// A key is sent again although the other side may have forgotten it.
    WindowIgnored = "window-ignored",
}

/// The variable that names the bug which a process is to commit.
#[cfg(feature = "sabotage")]
pub const VARIABLE: &str = "SEMEL_SABOTAGE";

/// Whether this process is to commit a bug.
#[cfg(feature = "sabotage")]
pub fn commits(bug: Bug) -> bool {
    static CHOSEN: std::sync::LazyLock<Option<Bug>> = std::sync::LazyLock::new(|| {
        let name = std::env::var(VARIABLE).ok()?;
        let chosen = Bug::ALL.iter().copied().find(|bug| bug.name() == name);
        Some(chosen.unwrap_or_else(|| panic!("there is no deliberate bug named {name}")))
    });
    *CHOSEN == Some(bug)
}

/// Whether this process is to commit a bug: never.
#[cfg(not(feature = "sabotage"))]
#[inline]
pub const fn commits(_: Bug) -> bool {
    false
}
