//! How values stand in columns.

use rusqlite::Row;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use uuid::Uuid;

use crate::clock::Time;
use crate::error::{Error, Result};
use crate::id::{NodeId, RunId, WorkspaceId};
use crate::rules::attention::Attention;
use crate::rules::deliver::Unconsumed;
use crate::rules::json::Payload;
use crate::rules::key::{CallId, Key, Label, RecordId, Token};
use crate::rules::path::{Name, Visit};
use crate::rules::status::Status;

/// How much a run has not consumed; SQLite knows the length of a text without reading it.
pub(super) const UNCONSUMED: &str =
    "SELECT count(*), coalesce(sum(octet_length(message)), 0) FROM inbox WHERE run = ?";

pub(super) fn unconsumed(row: &Row<'_>) -> rusqlite::Result<Unconsumed> {
    Ok(Unconsumed { count: row.get(0)?, bytes: row.get(1)? })
}

/// An id as 16 bytes.
pub(super) struct Id(pub(super) Uuid);

impl FromSql for Id {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Uuid::from_slice(value.as_blob()?).map(Self).map_err(FromSqlError::other)
    }
}

/// A checked text.
pub(super) struct Text<T>(pub(super) T);

/// A type that is read from a text column.
pub(super) trait Stored: Sized {
    fn stored(text: &str) -> Result<Self>;
}

impl Stored for Name {
    fn stored(text: &str) -> Result<Self> {
        Ok(Self::new(text)?)
    }
}

impl Stored for Key {
    fn stored(text: &str) -> Result<Self> {
        Ok(Self::new(text)?)
    }
}

impl Stored for Label {
    fn stored(text: &str) -> Result<Self> {
        Ok(Self::new(text)?)
    }
}

impl Stored for RecordId {
    fn stored(text: &str) -> Result<Self> {
        Ok(Self::new(text)?)
    }
}

impl Stored for Token {
    fn stored(text: &str) -> Result<Self> {
        Ok(Self::new(text)?)
    }
}

impl Stored for CallId {
    fn stored(text: &str) -> Result<Self> {
        Ok(Self::new(text)?)
    }
}

impl Stored for Payload {
    fn stored(text: &str) -> Result<Self> {
        Ok(Self::parse(text)?)
    }
}

impl Stored for RunId {
    fn stored(text: &str) -> Result<Self> {
        text.parse().map_err(|error: crate::id::InvalidId| Error::Validation(error.to_string()))
    }
}

impl Stored for Visit {
    fn stored(text: &str) -> Result<Self> {
        Self::parse(text).ok_or_else(|| Error::Validation(format!("{text:?} is not a visit")))
    }
}

impl<T: Stored> FromSql for Text<T> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        T::stored(value.as_str()?).map(Self).map_err(FromSqlError::other)
    }
}

/// A list kept as JSON.
pub(super) struct JsonColumn<T>(pub(super) T);

impl<T: serde::de::DeserializeOwned> FromSql for JsonColumn<T> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        serde_json::from_str(value.as_str()?).map(Self).map_err(FromSqlError::other)
    }
}

impl FromSql for Status {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        i16::column_result(value).and_then(|code| Self::from_code(code).ok_or(FromSqlError::InvalidType))
    }
}

impl FromSql for Attention {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        i16::column_result(value).and_then(|code| Self::from_code(code).ok_or(FromSqlError::InvalidType))
    }
}

impl ToSql for Status {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.code().into())
    }
}

impl ToSql for Time {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.0.into())
    }
}

macro_rules! id_to_sql {
    ($($id:ty),*) => {$(
        impl ToSql for $id {
            fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
                Ok(ToSqlOutput::Borrowed(ValueRef::Blob(self.0.as_bytes())))
            }
        }
    )*};
}

id_to_sql!(RunId, WorkspaceId, NodeId);
