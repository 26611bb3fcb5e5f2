//! Lists of runs: what is asked, the page that answers it, and the passes over an index that make the page.
//!
//! Every list reads indexes in the order of creation. A filter that the index does not answer is applied to the rows that
//! are read, and the number of these rows is bounded: a page may therefore be partial, and names the run at which the
//! next one goes on.

mod passes;

use serde::{Deserialize, Serialize};

pub(crate) use self::passes::{Index, ListCursor, Merged, Pass, Range, Scan, Scanned, place};
use crate::clock::Time;
use crate::id::{NodeId, RunId, WorkspaceId};
use crate::rules::attention::Attention;
use crate::rules::key::{Key, Scope};
use crate::rules::path::Name;
use crate::rules::run::Run;
use crate::rules::status::Status;

/// A question for a page of runs. Filters are combined: a run has to pass all of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = RunQuery))]
#[serde(rename_all = "camelCase")]
pub struct Query {
    /// Workspace whose runs are listed.
    #[serde(skip, default = "WorkspaceId::unsaid")]
    pub workspace: WorkspaceId,
    /// Only runs in one of these states; any state if empty. One state may be given without a list.
    #[serde(default, with = "one_or_more")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Status>))]
    pub status: Vec<Status>,
    /// Only runs of one of these workflows; any workflow if empty. One name may be given without a list.
    #[serde(default, with = "one_or_more")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub workflow: Vec<Name>,
    /// Only runs created at this time or later.
    pub since: Option<Time>,
    /// Only runs behind this one in the order of the list: the [`next`](Page::next) of the page before. The run has to
    /// exist still.
    pub before: Option<RunId>,
    /// Most runs of the page.
    pub limit: usize,
    /// Most runs read for a filter that no index answers; 1,000 by default.
    #[serde(default = "look_at")]
    pub look_at: usize,
    /// Only runs of this version of their workflow; any version if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub workflow_version: Option<Name>,
    /// Only runs whose key begins like this, whether or not they still hold it; any key if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_prefix: Option<KeyPrefix>,
    /// Only runs created before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// Only runs that ended at this time or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_since: Option<Time>,
    /// Only runs that this run has started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<RunId>,
    /// Only runs whose effect keys are those of this lineage: the run of this id, and the forks that inherit from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lineage: Option<RunId>,
    /// Only runs that this node drives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// Only runs that are paused for a reason of this kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attention: Option<Attention>,
    /// Order of the list; the newest first by default.
    #[serde(default, skip_serializing_if = "Order::is_newest")]
    pub order: Order,
}

/// Order of a list of runs, by the time of their creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = RunOrder))]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// The newest run comes first.
    #[default]
    Newest,
    /// The oldest run comes first.
    Oldest,
}

impl Order {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
    fn is_newest(&self) -> bool {
        *self == Self::Newest
    }
}

/// The beginning of keys in a scope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct KeyPrefix {
    /// Scope of the keys.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub scope: Scope,
    /// Text with which the keys begin; all keys if empty.
    pub prefix: String,
}

impl KeyPrefix {
    /// Whether a run has such a key.
    pub fn fits(&self, run: &Run) -> bool {
        run.new.scope == self.scope && run.new.key.as_str().starts_with(&self.prefix)
    }

    /// The least text that is greater than every key with this prefix.
    pub(crate) fn end(&self) -> String {
        text_after(&self.prefix)
    }
}

/// The least text that is greater than every key or token with this prefix.
pub(crate) fn text_after(prefix: &str) -> String {
    let mut chars: Vec<char> = prefix.chars().collect();
    while let Some(last) = chars.pop() {
        // `char` ranges skip the surrogates.
        if let Some(next) = (last..=char::MAX).nth(1) {
            chars.push(next);
            return chars.into_iter().collect();
        }
    }
    // Longer than any of them.
    char::MAX.to_string().repeat(crate::rules::key::MAX_KEY + 1)
}

const fn look_at() -> usize {
    Query::LOOK_AT
}

impl Query {
    /// Default bound on the runs that one page reads. A thousand rows take a few milliseconds on either database, so a
    /// list holds up the reads behind it no longer than that.
    pub const LOOK_AT: usize = 1_000;

    /// All runs of a workspace, at most this many, the newest first.
    pub const fn all(workspace: WorkspaceId, limit: usize) -> Self {
        Self {
            workspace,
            status: Vec::new(),
            workflow: Vec::new(),
            since: None,
            before: None,
            limit,
            look_at: Self::LOOK_AT,
            workflow_version: None,
            key_prefix: None,
            until: None,
            ended_since: None,
            parent: None,
            lineage: None,
            node: None,
            attention: None,
            order: Order::Newest,
        }
    }

    /// Whether a run is one of those that are asked for, wherever it stands among the pages.
    pub fn wants(&self, run: &Run) -> bool {
        fn is<T: PartialEq>(wanted: Option<&T>, found: &T) -> bool {
            wanted.is_none_or(|wanted| wanted == found)
        }
        let (new, state) = (&run.new, &run.state);
        new.workspace == self.workspace
            && (self.status.is_empty() || self.status.contains(&state.status))
            && (self.workflow.is_empty() || self.workflow.contains(&new.workflow))
            && self.since.is_none_or(|since| new.created >= since)
            && self.until.is_none_or(|until| new.created < until)
            && self.ended_since.is_none_or(|since| state.ended.is_some_and(|ended| ended >= since))
            && is(self.workflow_version.as_ref(), &new.workflow_version)
            && self.key_prefix.as_ref().is_none_or(|prefix| prefix.fits(run))
            && (self.parent.is_none() || self.parent == new.parent)
            && is(self.lineage.as_ref(), &new.lineage)
            && (self.node.is_none() || self.node == state.node)
            && (self.attention.is_none() || self.attention == state.attention)
    }
}

/// A page of runs, in the order that was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The runs of this page.
    pub runs: Vec<Run>,
    /// The run after which the next page begins: the [`before`](Query::before) of the next question. Absent if this page
    /// is the last.
    pub next: Option<RunId>,
    /// Whether the bound on the runs to read was reached before the page was full. The next page may hold more.
    pub partial: bool,
}

impl IntoIterator for Page {
    type Item = Run;
    type IntoIter = std::vec::IntoIter<Run>;

    fn into_iter(self) -> Self::IntoIter {
        self.runs.into_iter()
    }
}

/// A question for a page of keys: those that runs hold, and those that they have lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyQuery {
    /// Workspace whose keys are listed.
    pub workspace: WorkspaceId,
    /// Scope and beginning of the keys.
    pub keys: KeyPrefix,
    /// Only keys after this one, in the order of their bytes: the [`next`](KeyPage::next) of the page before.
    pub after: Option<Key>,
    /// Most runs of the page.
    pub limit: usize,
}

/// A page of keys, in the order of their bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyPage {
    /// Runs by their keys. Of one key, the run that holds it comes first, then those that have lost it, the latest first.
    pub runs: Vec<Run>,
    /// The key after which the next page begins. Absent if this page is the last.
    pub next: Option<Key>,
}

/// A list that is written as null if it is empty, and as its element if it has one: so clients of earlier releases write it.
mod one_or_more {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Listed<T> {
        None,
        One(T),
        More(Vec<T>),
    }

    pub(super) fn serialize<T: Serialize, S: Serializer>(
        all: &[T],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match all {
            [] => serializer.serialize_none(),
            [one] => one.serialize(serializer),
            more => more.serialize(serializer),
        }
    }

    pub(super) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<T>, D::Error> {
        Ok(match Listed::deserialize(deserializer)? {
            Listed::None => Vec::new(),
            Listed::One(one) => vec![one],
            Listed::More(more) => more,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_of_an_earlier_client_is_read_and_written_as_before() {
        for text in [
            r#"{"status":null,"workflow":null,"since":null,"before":null,"limit":5,"lookAt":1000}"#,
            r#"{"status":"FAILED","workflow":"order","since":7,"before":null,"limit":5,"lookAt":1000}"#,
        ] {
            let query: Query = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&query).unwrap(), text);
        }
        let several = r#"{"status":["FAILED","PAUSED"],"workflow":["a","b"],"since":null,"before":null,"limit":5,"lookAt":1000,"order":"oldest"}"#;
        let query: Query = serde_json::from_str(several).unwrap();
        assert_eq!((query.status.len(), query.workflow.len(), query.order), (2, 2, Order::Oldest));
        assert_eq!(serde_json::to_string(&query).unwrap(), several);
    }

    #[test]
    fn the_end_of_a_prefix_is_behind_every_key_with_it() {
        let last = char::MAX.to_string();
        let table = [("a", "b"), ("az", "a{"), ("\u{d7ff}", "\u{e000}"), (&*format!("a{last}"), "b")];
        for (prefix, end) in table {
            assert_eq!(text_after(prefix), end, "{prefix:?}");
            assert!(format!("{prefix}{last}{last}").as_str() < end, "{prefix:?}");
        }
        assert!(text_after("") > last.repeat(255) && text_after(&last) > last.repeat(255));
    }
}
