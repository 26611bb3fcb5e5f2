//! Records: small documents whose writes are guarded by a version. They belong to the process that runs the store (a
//! server's workspaces, API keys, workers, audit), not to a workspace.
//!
//! A writer states the version that it has seen. An expired record counts as deleted, so a record that is written
//! again begins at version 1.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::json::Payload;
use super::key::RecordId;
use super::path::Name;
use crate::clock::Time;
use crate::error::Error;

/// A record as the store holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Kind of the record, such as `workspace`.
    pub kind: Name,
    /// Id, unique among records of its kind.
    pub id: RecordId,
    /// Number of times that it was written.
    pub version: u64,
    /// Content as a JSON value.
    pub body: Payload,
    /// Time of the latest write.
    pub at: Time,
    /// Time at which it is forgotten; none: never.
    pub expires: Option<Time>,
}

/// A guarded write of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keep {
    /// Kind of the record to write.
    pub kind: Name,
    /// Id of the record to write.
    pub id: RecordId,
    /// JSON value that the record is to hold.
    pub body: Payload,
    /// The version that must be there: 0 if there must be no record; none if any is accepted.
    pub expected: Option<u64>,
    /// How long it is remembered; for ever if absent. Zero deletes it at once.
    pub ttl: Option<Duration>,
}

/// A query for records of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// Kind of the wanted records.
    pub kind: Name,
    /// Which of them to return.
    pub by: LookBy,
}

/// Selects the records to return.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LookBy {
    /// The record with this id.
    Id(RecordId),
    /// A page of records, ordered by the bytes of their ids.
    Page {
        /// Only records after this id: the last one of the previous page.
        after: Option<RecordId>,
        /// Maximum number of records.
        limit: usize,
        /// Descending order. Ids that begin with the time are then newest first.
        newest_first: bool,
    },
}

/// Decision about a guarded write of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeepStep {
    /// Write this record, in place of the version that was found.
    Write(Record),
    /// The write has been made before, and its answer was lost. Writers whose writes could be equal, and must not be
    /// taken for one, name themselves in the body.
    Repeated(Record),
}

/// Decides a write, given the existing record.
pub fn decide(keep: &Keep, existing: Option<Record>, now: Time) -> Result<KeepStep, Error> {
    // It must make no difference whether a sweep has removed an expired record.
    let existing = existing.filter(|record| record.expires.is_none_or(|at| at > now));
    let version = existing.as_ref().map_or(0, |record| record.version);
    match existing {
        Some(record) if keep.expected == Some(record.version - 1) && is_of(&record, keep) => {
            Ok(KeepStep::Repeated(record))
        }
        _ if keep.expected.is_some_and(|expected| expected != version) => {
            Err(Error::RecordChanged { kind: keep.kind.clone(), id: keep.id.clone() })
        }
        _ => Ok(KeepStep::Write(Record {
            kind: keep.kind.clone(),
            id: keep.id.clone(),
            version: version + 1,
            body: keep.body.clone(),
            at: now,
            expires: keep.ttl.map(|ttl| now.after(ttl)),
        })),
    }
}

/// Whether a record is the result of this write.
fn is_of(record: &Record, keep: &Keep) -> bool {
    record.body == keep.body && record.expires == keep.ttl.map(|ttl| record.at.after(ttl))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(body: &str, expected: Option<u64>, ttl: Option<u64>) -> Keep {
        Keep {
            kind: Name::new("workspace").unwrap(),
            id: RecordId::new("acme").unwrap(),
            body: Payload::parse(body).unwrap(),
            expected,
            ttl: ttl.map(Duration::from_millis),
        }
    }

    fn record(version: u64, body: &str, expires: Option<i64>) -> Record {
        let Keep { kind, id, body, .. } = keep(body, None, None);
        Record { kind, id, version, body, at: Time(5), expires: expires.map(Time) }
    }

    #[test]
    fn the_guard_is_the_version() {
        // Existing record, expected version, and the version that is written or was written before.
        let table = [
            (None, None, Ok(1)),
            (None, Some(0), Ok(1)),
            (None, Some(1), Err(())),
            (Some(3), None, Ok(4)),
            (Some(3), Some(3), Ok(4)),
            (Some(3), Some(0), Err(())),
            (Some(3), Some(2), Err(())),
            (Some(3), Some(4), Err(())),
            (Some(3), Some(u64::MAX), Err(())),
        ];
        for (there, expected, wanted) in table {
            let existing = there.map(|version| record(version, "1", None));
            let written = match decide(&keep("2", expected, None), existing, Time(9)) {
                Ok(KeepStep::Write(record)) => Ok((record.version, record.at)),
                Err(Error::RecordChanged { .. }) => Err(()),
                other => panic!("{other:?}"),
            };
            assert_eq!(written, wanted.map(|version| (version, Time(9))), "{there:?} {expected:?}");
        }
    }

    #[test]
    fn the_same_write_again_is_answered_as_the_first_time() {
        let there = record(3, "1", Some(15));
        let again = decide(&keep("1", Some(2), Some(10)), Some(there.clone()), Time(9)).unwrap();
        assert_eq!(again, KeepStep::Repeated(there.clone()));
        for (body, expected, ttl) in
            [("2", 2, Some(10)), ("1", 1, Some(10)), ("1", 2, Some(11)), ("1", 2, None)]
        {
            let other = decide(&keep(body, Some(expected), ttl), Some(there.clone()), Time(9));
            assert!(other.is_err(), "{body} {expected} {ttl:?}");
        }
    }

    #[test]
    fn what_has_expired_is_as_good_as_gone() {
        let there = || Some(record(3, "1", Some(15)));
        assert!(decide(&keep("2", Some(0), None), there(), Time(14)).is_err());
        assert!(decide(&keep("2", Some(3), None), there(), Time(15)).is_err());
        let KeepStep::Write(new) = decide(&keep("2", Some(0), Some(10)), there(), Time(15)).unwrap() else {
            panic!("it is new");
        };
        assert_eq!((new.version, new.expires), (1, Some(Time(25))));
    }
}
