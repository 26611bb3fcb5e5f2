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
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$bug,)+];

            /// The name by which it is switched on.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$bug => $name,)+ }
            }
        }
    };
}

bugs! {
    /// A commit is appended whatever the version is.
    SkipVersionGuard = "skip-version-guard",
    /// SQLite syncs nothing.
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
}

/// Whether this process is to commit a bug.
#[cfg(feature = "sabotage")]
pub fn commits(bug: Bug) -> bool {
    static CHOSEN: std::sync::LazyLock<Option<Bug>> = std::sync::LazyLock::new(|| {
        let name = std::env::var("SEMEL_SABOTAGE").ok()?;
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
