//! The address of a database: the parameters that are ours, taken out of the URL before the driver reads it.
//!
//! `sslmode` and `sslrootcert` mean what they mean to libpq, of which the driver knows only a part. `schema` is ours alone.

use std::fmt;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use super::tls::{Check, Roots, TlsSettings};
use crate::error::{Error, Result};

/// A URL, read.
pub(super) struct Address {
    /// Settings of the driver.
    pub(super) config: Config,
    pub(super) tls: TlsSettings,
    pub(super) schema: Option<SchemaName>,
}

/// The name of a schema, which is put into statements and settings as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SchemaName(String);

impl SchemaName {
    /// Where tables of Semel are, unless something else is asked for.
    pub(super) fn default_one() -> Self {
        Self("semel".to_owned())
    }

    pub(super) fn new(text: &str) -> Result<Self> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if text.is_empty() || text.len() > 63 || !text.chars().all(plain) {
            let hint = format!("{text:?} is no schema: give 1 to 63 lower-case letters, digits and _");
            return Err(wrong(hint));
        }
        Ok(Self(text.to_owned()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SchemaName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

pub(super) fn wrong(why: impl Into<crate::error::Source>) -> Error {
    Error::Open { what: "the PostgreSQL database".to_owned(), source: why.into() }
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self> {
        let mut ours = OurParameters::default();
        // As the driver reads it: the first `@` ends user and password, whatever they contain.
        let host = url.find('@').unwrap_or_default();
        let query = url[host..].find('?').map_or(url.len(), |at| host + at);
        let (place, query) = (&url[..query], url[query..].trim_start_matches('?'));
        let mut theirs = Vec::new();
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            if !ours.take(name, value)? {
                theirs.push(parameter);
            }
        }
        let rest = if theirs.is_empty() { place.to_owned() } else { format!("{place}?{}", theirs.join("&")) };
        let mut config: Config = rest.parse().map_err(|e: tokio_postgres::Error| wrong(told(&e)))?;
        let tls = ours.tls()?;
        // No TLS is spoken over a local socket, whatever is asked for, as with libpq.
        let is_local = config.get_hosts().iter().all(|host| !matches!(host, Host::Tcp(_)));
        config.ssl_mode(if is_local { SslMode::Disable } else { tls.driver_mode() });
        let schema = ours.schema.as_deref().map(SchemaName::new).transpose()?;
        Ok(Self { config, tls, schema })
    }
}

/// Message of a driver's error, with its source.
fn told(error: &tokio_postgres::Error) -> String {
    let reason = std::error::Error::source(error).map(|source| format!(": {source}"));
    format!("{error}{}", reason.unwrap_or_default())
}

#[derive(Default)]
struct OurParameters {
    mode: Option<String>,
    roots: Option<String>,
    schema: Option<String>,
}

impl OurParameters {
    /// Whether it is one of ours.
    fn take(&mut self, name: &str, value: &str) -> Result<bool> {
        let place = match name {
            "sslmode" => &mut self.mode,
            "sslrootcert" => &mut self.roots,
            "schema" => &mut self.schema,
            _ => return Ok(false),
        };
        let value = percent_encoding::percent_decode_str(value).decode_utf8();
        let value = value.map_err(|_| wrong(format!("the parameter `{name}` of the URL is not UTF-8")))?;
        if place.replace(value.into_owned()).is_some() {
            return Err(wrong(format!("the URL has the parameter `{name}` twice: give it once")));
        }
        Ok(true)
    }

    fn tls(&self) -> Result<TlsSettings> {
        let roots = self.roots.as_deref().map(|roots| match roots {
            "system" => Roots::System,
            path => Roots::File(path.into()),
        });
        let mode = self.mode.as_deref();
        let roots = match (mode, roots) {
            // As with libpq, the certificates of the system mean the strictest check.
            (None, Some(Roots::System)) => return Ok(TlsSettings::verified(Check::Full, Roots::System)),
            (Some("disable"), _) => return Ok(TlsSettings::Disable),
            (_, Some(Roots::System)) if mode != Some("verify-full") => {
                let told = mode.unwrap_or_default();
                return Err(wrong(format!(
                    "`sslmode={told}` does not go with `sslrootcert=system`: public authorities sign for anyone, \
                     so only the name tells servers apart; set `sslmode=verify-full`"
                )));
            }
            (None | Some("prefer"), Some(_)) => {
                return Err(wrong(
                    "`sslrootcert` has no effect with `sslmode=prefer`, which is the default: set `sslmode=verify-full`",
                ));
            }
            (_, roots) => roots,
        };
        match (mode.unwrap_or("prefer"), roots) {
            ("prefer", _) => Ok(TlsSettings::Prefer),
            ("require", None) => Ok(TlsSettings::Require),
            // As with libpq: with an authority at hand, its signature is checked.
            ("require" | "verify-ca", Some(roots)) => Ok(TlsSettings::verified(Check::Authority, roots)),
            ("verify-full", Some(roots)) => Ok(TlsSettings::verified(Check::Full, roots)),
            (mode @ ("verify-ca" | "verify-full"), None) => Err(wrong(format!(
                "`sslmode={mode}` needs to know whom to trust: set `sslrootcert` to the file with the certificate of the \
                 authority, or with verify-full to `system`"
            ))),
            ("allow", _) => Err(wrong(
                "`sslmode=allow` is not supported, because it encrypts only if the server insists: set `sslmode=prefer`",
            )),
            (other, _) => Err(wrong(format!(
                "`sslmode={other}` is unknown: give disable, prefer, require, verify-ca or verify-full"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(parameters: &str) -> Result<Address> {
        Address::parse(&format!("postgres://me:secret@db.example/orders?{parameters}"))
    }

    fn refused(parameters: &str) -> String {
        address(parameters).err().expect("it is refused").to_string()
    }

    #[test]
    fn modes_mean_what_they_mean_to_libpq() {
        let file = || Roots::File("/ca.pem".into());
        for (parameters, expected) in [
            ("", TlsSettings::Prefer),
            ("sslmode=prefer", TlsSettings::Prefer),
            ("sslmode=disable&sslrootcert=/ca.pem", TlsSettings::Disable),
            ("sslmode=require", TlsSettings::Require),
            ("sslmode=require&sslrootcert=/ca.pem", TlsSettings::verified(Check::Authority, file())),
            ("sslmode=verify-ca&sslrootcert=%2Fca.pem", TlsSettings::verified(Check::Authority, file())),
            ("sslrootcert=/ca.pem&sslmode=verify-full", TlsSettings::verified(Check::Full, file())),
            ("sslrootcert=system", TlsSettings::verified(Check::Full, Roots::System)),
        ] {
            assert_eq!(address(parameters).expect(parameters).tls, expected, "{parameters}");
        }
    }

    #[test]
    fn what_would_be_weaker_than_it_looks_is_refused() {
        for (parameters, hint) in [
            ("sslmode=verify-full", "set `sslrootcert`"),
            ("sslmode=verify-ca", "set `sslrootcert`"),
            ("sslrootcert=/ca.pem", "set `sslmode=verify-full`"),
            ("sslmode=prefer&sslrootcert=/ca.pem", "set `sslmode=verify-full`"),
            ("sslmode=require&sslrootcert=system", "set `sslmode=verify-full`"),
            ("sslmode=allow", "set `sslmode=prefer`"),
            ("sslmode=verify", "give disable, prefer"),
            ("sslmode=require&sslmode=disable", "give it once"),
            ("schema=", "is no schema"),
            ("schema=a%22b", "is no schema"),
        ] {
            assert!(refused(parameters).contains(hint), "{parameters}: {}", refused(parameters));
        }
    }

    #[test]
    fn the_driver_sees_its_own_parameters_only() {
        let odd = Address::parse("postgres://me:a?b@db.example/orders?schema=app")
            .expect("a password may have anything");
        assert_eq!(odd.config.get_password(), Some(&b"a?b"[..]));
        let all = "schema=app&connect_timeout=7&sslmode=require&application_name=shop";
        let Address { config, schema, .. } = address(all).expect("a URL");
        assert_eq!(schema, Some(SchemaName::new("app").expect("a name")));
        assert_eq!(config.get_application_name(), Some("shop"));
        assert_eq!(config.get_connect_timeout(), Some(&std::time::Duration::from_secs(7)));
        assert_eq!(config.get_password(), Some(&b"secret"[..]));
        assert_eq!(config.get_ssl_mode(), SslMode::Require);
        assert!(refused("sslmood=require").contains("sslmood"), "an unknown parameter");
    }

    #[test]
    fn a_local_socket_is_not_encrypted_whatever_is_asked_for() {
        let socket = "postgres://me@%2Frun%2Fpostgresql/orders?sslmode=require";
        assert_eq!(Address::parse(socket).expect("a URL").config.get_ssl_mode(), SslMode::Disable);
    }
}
