//! Reading tables of the configuration member by member, so that all problems are found at once and each names its member.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use toml::{Table, Value};

use super::secret::SecretPlace;
use crate::definitions::duration;
use crate::definitions::problem::nearest;

/// What is wrong with a connection, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionProblem {
    /// Member of the configuration, such as `connections.stripe.base`.
    pub member: String,
    /// What is wrong, as a sentence that says what to do.
    pub message: String,
}

impl fmt::Display for ConnectionProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.member, self.message)
    }
}

/// Reads a table; what is not asked for is unknown.
pub(super) struct Members<'a> {
    table: &'a Table,
    at: String,
    known: BTreeSet<&'static str>,
    problems: Vec<ConnectionProblem>,
}

impl<'a> Members<'a> {
    pub(super) fn new(at: impl Into<String>, table: &'a Table) -> Self {
        Self { table, at: at.into(), known: BTreeSet::new(), problems: Vec::new() }
    }

    /// The value of a member, if it is there.
    pub(super) fn get(&mut self, name: &'static str) -> Option<&'a Value> {
        self.known.insert(name);
        self.table.get(name)
    }

    /// Path of a member in the configuration.
    pub(super) fn path(&self, name: &str) -> String {
        format!("{}.{name}", self.at)
    }

    /// Reports what is wrong with a member.
    pub(super) fn refuse(&mut self, name: &str, message: impl Into<String>) {
        let member = self.path(name);
        self.problems.push(ConnectionProblem { member, message: message.into() });
    }

    /// Adds problems that were found inside of a member.
    pub(super) fn add(&mut self, problems: Vec<ConnectionProblem>) {
        self.problems.extend(problems);
    }

    pub(super) fn text(&mut self, name: &'static str) -> Option<&'a str> {
        match self.get(name)? {
            Value::String(text) if !text.trim().is_empty() => Some(text),
            _ => {
                self.refuse(name, "a text is expected");
                None
            }
        }
    }

    /// A text that must be there.
    pub(super) fn needed(&mut self, name: &'static str, what: &str) -> Option<&'a str> {
        if self.get(name).is_none() {
            self.refuse(name, format!("it is missing; give {what}"));
            return None;
        }
        self.text(name)
    }

    pub(super) fn texts(&mut self, name: &'static str) -> Option<Vec<String>> {
        let texts = match self.get(name)? {
            Value::Array(items) => {
                items.iter().map(|item| item.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
            }
            _ => None,
        };
        if texts.is_none() {
            self.refuse(name, "a list of texts is expected");
        }
        texts
    }

    pub(super) fn duration(&mut self, name: &'static str) -> Option<Duration> {
        let text = self.text(name)?;
        match duration::read(text) {
            Ok(duration) => Some(duration),
            Err(why) => {
                self.refuse(name, format!("{why}; {}", duration::HINT));
                None
            }
        }
    }

    /// A whole number in these bounds.
    pub(super) fn number(&mut self, name: &'static str, least: usize, most: usize) -> Option<usize> {
        let number = self.get(name)?.as_integer().and_then(|number| usize::try_from(number).ok());
        let number = number.filter(|number| (least..=most).contains(number));
        if number.is_none() {
            self.refuse(name, format!("a whole number from {least} to {most} is expected"));
        }
        number
    }

    /// Where a secret is kept.
    #[cfg(any(feature = "nats", feature = "redis"))]
    pub(super) fn secret(&mut self, name: &'static str) -> Option<SecretPlace> {
        match SecretPlace::read(self.get(name)?) {
            Ok(place) => Some(place),
            Err(why) => {
                self.refuse(name, why);
                None
            }
        }
    }

    /// A number that is not negative, in decimals too.
    pub(super) fn amount(&mut self, name: &'static str) -> Option<f64> {
        let amount = match self.get(name)? {
            Value::Float(amount) => Some(*amount),
            Value::Integer(amount) => u32::try_from(*amount).ok().map(f64::from),
            _ => None,
        };
        let amount = amount.filter(|amount| amount.is_finite() && *amount >= 0.0);
        if amount.is_none() {
            self.refuse(name, "a number that is not negative is expected");
        }
        amount
    }

    /// One secret, or several while they are exchanged.
    pub(super) fn secrets(&mut self, name: &'static str) -> Option<Vec<SecretPlace>> {
        let read = match self.get(name)? {
            Value::Array(items) if !items.is_empty() => items.iter().map(SecretPlace::read).collect(),
            one => SecretPlace::read(one).map(|place| vec![place]),
        };
        read.map_err(|why| self.refuse(name, why)).ok()
    }

    pub(super) fn table(&mut self, name: &'static str) -> Option<&'a Table> {
        let table = self.get(name)?.as_table();
        if table.is_none() {
            self.refuse(name, "a table is expected");
        }
        table
    }

    /// All problems; members that were never asked for are among them.
    pub(super) fn finish(mut self) -> Vec<ConnectionProblem> {
        for name in self.table.keys().filter(|name| !self.known.contains(name.as_str())) {
            let near = nearest(name, self.known.iter().copied());
            let hint = match near {
                Some(near) => format!("is it `{near}`?"),
                None => {
                    format!("the members are {}", self.known.iter().copied().collect::<Vec<_>>().join(", "))
                }
            };
            let (member, message) = (format!("{}.{name}", self.at), format!("it is not known; {hint}"));
            self.problems.push(ConnectionProblem { member, message });
        }
        self.problems
    }
}

/// The line, from 1, on which a member begins in the text of a configuration; that of the table around it if the text does not
/// have the member.
pub(crate) fn line_of(text: &str, member: &str) -> Option<usize> {
    let root = toml::de::DeTable::parse(text).ok()?;
    let (mut table, mut found) = (root.into_inner(), None);
    for part in member.split('.') {
        let Some((key, value)) = table.into_iter().find(|(key, _)| key.get_ref().as_ref() == part) else {
            break;
        };
        found = Some(key.span().start);
        match value.into_inner() {
            toml::de::DeValue::Table(inner) => table = inner,
            _ => break,
        }
    }
    found.map(|start| text[..start].matches('\n').count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_has_the_line_on_which_it_stands() {
        let text = "listen = 'x'\n\n[connections.stripe]\nkind = 'http'\nheaders = { a = 'b' }\n";
        for (member, line) in [
            ("connections.stripe.kind", Some(4)),
            ("connections.stripe.headers.a", Some(5)),
            ("connections.stripe.base", Some(3)),
            ("nothing", None),
        ] {
            assert_eq!(line_of(text, member), line, "{member}");
        }
    }

    #[test]
    fn everything_that_is_wrong_with_a_table_is_told_at_once() {
        let table: Table = toml::from_str("timeut = '1s'\ntasks = 0\nbase = 7").unwrap();
        let mut members = Members::new("connections.a", &table);
        assert_eq!(
            (members.number("tasks", 1, 64), members.text("base"), members.duration("timeout")),
            (None, None, None)
        );
        let found: Vec<_> = members.finish().iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(
            found
                .iter()
                .any(|problem| problem.contains("connections.a.timeut") && problem.contains("`timeout`"))
        );
    }
}
