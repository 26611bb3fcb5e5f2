//! Commits as they travel: the entries that they append, and the answer for each.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::ItemAnswer;
use crate::clock::Time;
use crate::error::Error;
use crate::id::{NodeId, RunId};
use crate::rules::commit::{ChildStart, Commit, Content, Draft, Saved, Write};
use crate::rules::entry::{Entry, Lines};
use crate::rules::json::{InvalidJson, Payload};
use crate::rules::key::Token;
use crate::rules::ledger::{Ledger, RefusedEntry};
use crate::rules::path::{Name, Visit};

/// Entries of many runs. `E` is the text of entries: borrowed where it is read, owned where it is written.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CommitCall<E> {
    /// The commits, one for each run.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<described::CommitItemSchema>))]
    pub commits: Vec<CommitItem<E>>,
}

/// One commit: the entries to append to one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CommitItem<E> {
    /// The run whose ledger grows.
    pub run: RunId,
    /// Id that the worker has registered under, as in its claim: this node must hold the run. If absent, the run must be
    /// held by a node that was registered with the same API key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// Length of the ledger that the driver has seen. The commit is refused if the ledger is longer.
    pub expected: u64,
    /// How many messages of its inbox the driver has seen.
    #[serde(default)]
    pub seen: u64,
    /// The entries to append, as a JSON list.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Entry>))]
    pub entries: E,
    /// Entries that the store completes, and their positions.
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    pub drafts: Vec<PlacedDraft>,
}

/// The schemas of calls with a type parameter, under names without it.
#[cfg(feature = "openapi")]
pub(super) mod described {
    use std::borrow::Cow;

    use utoipa::openapi::RefOr;
    use utoipa::openapi::schema::Schema;
    use utoipa::{PartialSchema, ToSchema};

    use super::{CommitCall, CommitItem, Entry};

    macro_rules! named {
        ($($(#[$doc:meta])* $name:ident is $type:ty as $text:literal)+) => {$(
            $(#[$doc])*
            #[derive(Debug)]
            pub enum $name {}

            impl PartialSchema for $name {
                fn schema() -> RefOr<Schema> {
                    <$type>::schema()
                }
            }

            impl ToSchema for $name {
                fn name() -> Cow<'static, str> {
                    Cow::Borrowed($text)
                }

                fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
                    <$type>::schemas(schemas);
                }
            }
        )+};
    }

    named! {
        /// Schema of [`CommitCall`] for `OpenAPI`.
        CommitCallSchema is CommitCall<Vec<Entry>> as "CommitCall"
        /// Schema of [`CommitItem`] for `OpenAPI`.
        CommitItemSchema is CommitItem<Vec<Entry>> as "CommitItem"
    }
}

/// A draft and its position among the entries.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlacedDraft {
    /// How many of the entries precede it.
    pub after: u64,
    /// The draft that the store completes.
    pub draft: DraftView,
}

/// An entry whose final form the store decides.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
#[expect(missing_docs, reason = "the fields say what they are; each variant has its line")]
pub enum DraftView {
    /// Opens a hook under a token, unless another run owns the token.
    OpenHook { hook: Visit, token: Token },
    /// Starts a child run, or attaches the one that exists.
    StartChild {
        child: Visit,
        run: RunId,
        workflow: Name,
        #[serde(rename = "workflowVersion")]
        workflow_version: Name,
        input: Payload,
    },
}

impl CommitItem<Box<RawValue>> {
    /// A commit as it travels.
    pub fn of(commit: &Commit) -> Result<Self, Error> {
        let (mut lines, mut drafts) = (Lines::default(), Vec::new());
        let text = match &commit.content {
            Content::Ready(text) => text.clone(),
            Content::Drafts(all) => {
                for draft in all {
                    let draft = match draft {
                        Draft::Entries(before) => {
                            lines.extend(before);
                            continue;
                        }
                        Draft::OpenHook { hook, token } => {
                            DraftView::OpenHook { hook: hook.clone(), token: token.clone() }
                        }
                        Draft::StartChild(start) => {
                            let ChildStart { child, run, workflow, workflow_version, input, .. } =
                                (**start).clone();
                            DraftView::StartChild { child, run, workflow, workflow_version, input }
                        }
                    };
                    drafts.push(PlacedDraft { after: lines.count(), draft });
                }
                lines.finish()
            }
        };
        let entries = RawValue::from_string(text).map_err(|wrong| InvalidJson::Refused(wrong.to_string()))?;
        let Write { run, node, expected, seen, .. } = **commit;
        Ok(Self { run, node, expected, seen, entries, drafts })
    }
}

impl DraftView {
    /// Puts it into the next commit of a ledger, or refuses it.
    pub fn record(self, ledger: &mut Ledger) -> Result<(), RefusedEntry> {
        match self {
            Self::OpenHook { hook, token } => ledger.open_hook(hook, token),
            Self::StartChild { child, run, workflow, workflow_version, input } => {
                ledger.start_child(child, run, workflow, workflow_version, input)
            }
        }
    }

    /// Refuses a value that could not be kept exactly.
    pub fn check(&self) -> Result<(), InvalidJson> {
        match self {
            Self::OpenHook { .. } => Ok(()),
            Self::StartChild { input, .. } => input.check(),
        }
    }
}

/// One answer for each commit of a call.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CommitAnswers {
    /// In the order of the commits.
    pub answers: Vec<ItemAnswer<SavedCommit>>,
    /// Time of the store when it wrote the latest of the commits. Absent if it has written none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<Time>,
}

impl CommitAnswers {
    /// The answers to the commits of a call, in their order.
    pub fn of(answers: Vec<Result<Saved, Error>>) -> Self {
        let now = answers.iter().flatten().filter_map(|saved| saved.written).max();
        Self { answers: answers.into_iter().map(|saved| saved.map(SavedCommit::from).into()).collect(), now }
    }
}

/// The answer to a commit that took place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Saved))]
#[serde(rename_all = "camelCase")]
pub struct SavedCommit {
    /// Version of the run after the commit.
    pub version: u64,
    /// Number of the latest message in the run's inbox, 0 if none has ever arrived. If it is more than the worker has seen, it
    /// reads the inbox. Absent if the run is already forgotten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<u64>,
    /// The settled drafts, in order. Absent if there were none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settled: Vec<Entry>,
    /// Whether the run has ended or gone to rest while it had the grant of a `run_once` value: another run may
    /// make it now. False if absent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub freed: bool,
}

impl From<Saved> for SavedCommit {
    fn from(saved: Saved) -> Self {
        let Saved { version, settled, freed, arrivals, written: _ } = saved;
        Self { version, arrivals, settled, freed }
    }
}

impl From<SavedCommit> for Saved {
    fn from(saved: SavedCommit) -> Self {
        let SavedCommit { version, arrivals, settled, freed } = saved;
        Self { version, settled, freed, arrivals, written: None }
    }
}

/// The entries of a commit that came over the wire.
pub fn entries(text: &RawValue) -> Result<Vec<Entry>, InvalidJson> {
    let entries = crate::rules::entry::decode(text.get())
        .map_err(|wrong| InvalidJson::Refused(format!("no entries: {wrong}")))?;
    entries.iter().try_for_each(Entry::check)?;
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_entries_are_checked_like_payloads() {
        let read = |value: &str| {
            let text = format!(r#"[{{"completed":{{"value":{value}}}}}]"#);
            let raw = RawValue::from_string(text).unwrap();
            entries(&raw)
        };
        assert!(read(r#"{"a":[1,2.5,"\u00e9"]}"#).is_ok());
        for bad in
            [r#"{"a":1,"a":2}"#, r#""\u0000""#, "1e400", r#""\ud800""#, &("[".repeat(65) + &"]".repeat(65))]
        {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
