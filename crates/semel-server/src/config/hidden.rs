//! What must not be seen in logs and answers.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize, Serializer};

const HIDDEN: &str = "(hidden)";

/// A secret. `Debug` and serialisation hide it; only `expose` returns it.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Wraps a text that logs and error messages must not show.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text in the clear: for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(HIDDEN)
    }
}

/// Where a store is. Its password is not shown.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct StoreAddress(String);

impl StoreAddress {
    /// An address as [`semel::engine::open_store`] takes it.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The address itself, with its password.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The folder in which it is, if it is a file.
    pub fn folder(&self) -> Option<PathBuf> {
        if self.0.contains("://") || self.0 == "memory:" {
            return None;
        }
        let file = Path::new(self.0.strip_prefix("sqlite:").unwrap_or(&self.0));
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
        Some(folder.unwrap_or(Path::new(".")).to_owned())
    }
}

impl fmt::Display for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((scheme, rest)) = self.0.split_once("://") else {
            // A file, or a mistyped address.
            return match (self.0.split_once(':'), self.0.rsplit_once('@')) {
                (Some((before, _)), Some((_, after))) => write!(f, "{before}:{HIDDEN}@{after}"),
                _ => f.write_str(&self.0),
            };
        };
        // The password may be before the host, and among the parameters.
        let rest = rest.split_once('?').map_or(rest, |(rest, _)| rest);
        match rest.rsplit_once('@') {
            Some((user, place)) => {
                let user = user.split_once(':').map_or(user, |(user, _)| user);
                write!(f, "{scheme}://{user}@{place}")
            }
            None => write!(f, "{scheme}://{rest}"),
        }
    }
}

impl fmt::Debug for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for StoreAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_way_of_printing_shows_a_secret() {
        let secret = Secret::new("canary");
        assert_eq!(format!("{secret:?}"), HIDDEN);
        assert_eq!(serde_json::to_string(&secret).unwrap(), format!("{HIDDEN:?}"));
    }

    #[test]
    fn a_store_is_shown_without_its_password() {
        for (address, shown) in [
            ("sqlite:semel.db", "sqlite:semel.db"),
            ("postgres://me:canary@host/db", "postgres://me@host/db"),
            ("postgres://me:ca@nary@host/db?password=canary", "postgres://me@host/db"),
            ("postgres://host/db", "postgres://host/db"),
            ("postgres:/me:canary@host/db", "postgres:(hidden)@host/db"),
            ("/home/me@corp/semel.db", "/home/me@corp/semel.db"),
        ] {
            assert_eq!(StoreAddress::new(address).to_string(), shown);
        }
    }
}
