//! Parameters of statements whose text depends on what is asked.

use tokio_postgres::types::ToSql;
use uuid::Uuid;

/// A value that is bound to a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    Big(i64),
    Small(i16),
    Smalls(Vec<i16>),
    Text(String),
    Texts(Vec<String>),
    Id(Uuid),
}

impl Bound {
    fn param(&self) -> &(dyn ToSql + Sync) {
        match self {
            Self::Big(value) => value,
            Self::Small(value) => value,
            Self::Smalls(values) => values,
            Self::Text(text) => text,
            Self::Texts(texts) => texts,
            Self::Id(id) => id,
        }
    }

    /// The value as a literal, for statements that are explained.
    #[cfg(feature = "testing")]
    pub(crate) fn literal(&self) -> String {
        match self {
            Self::Big(value) => value.to_string(),
            Self::Small(value) => format!("{value}::smallint"),
            Self::Smalls(values) => format!("'{{{}}}'", join(values)),
            Self::Text(text) => format!("'{text}'"),
            Self::Texts(texts) => format!("'{{{}}}'", join(texts)),
            Self::Id(id) => format!("'{id}'"),
        }
    }
}

#[cfg(feature = "testing")]
fn join(values: &[impl ToString]) -> String {
    values.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// The values of a statement, in the order of their places.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Binds(pub(crate) Vec<Bound>);

impl Binds {
    /// Adds a value; gives its place, such as `$3`.
    pub(crate) fn add(&mut self, value: Bound) -> String {
        self.0.push(value);
        format!("${}", self.0.len())
    }

    pub(crate) fn params(&self) -> Vec<&(dyn ToSql + Sync)> {
        self.0.iter().map(Bound::param).collect()
    }
}
