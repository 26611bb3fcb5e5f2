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
    /// The SQLite store answers before COMMIT has made durable what it answers for.
    AnswerBeforeCommit = "answer-before-commit",
    /// A transactional step neither looks at the fence table nor obeys it.
    IgnoreFenceTable = "ignore-fence-table",
    /// A server believes a worker that has lost its lease, and takes its late commits for saved ones.
    BelieveZombies = "believe-zombies",
    /// A remote worker takes a commit whose answer was lost for one that was saved.
    AssumeSaved = "assume-saved",
    /// A server does not keep the ids of deliveries.
    ForgetDeliveryIds = "forget-delivery-ids",
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
