//! What the kinds `postgres`, `sqlite` and `mysql` have in common: the fence table, the queue table, and what is missing there.

use std::fmt;
use std::sync::Arc;

use semel::tx::{self, TABLE, TxSource};

use super::kind::{Checked, Checking, Environment, Target, TargetCheck};
use super::members::Members;
use super::secret::{Redactor, SecretPlace};
use super::{Connection, postgres, sqlite};
use crate::databases::queue::{self, QUEUE};
use crate::databases::sqlite::SqliteFile;
use crate::databases::{Guarded, Spelling, SqlSource};

/// Maximum number of connections to a server, if the operator does not say it.
const POOL: usize = 10;

/// A database of the user's.
pub struct DatabaseTarget {
    pub(crate) database: Database,
    /// Name of the fence table, perhaps with a schema.
    pub(crate) fence_table: String,
    pub(crate) redactor: Arc<Redactor>,
}

/// How a database is reached.
#[derive(Clone)]
pub(crate) enum Database {
    Postgres(tx::deadpool_postgres::Pool),
    Sqlite(SqliteFile),
    #[cfg(feature = "mysql")]
    Mysql(tx::sqlx::MySqlPool),
}

/// Does something with the source of a database, whichever it is: with its turns, as transactional steps see it.
macro_rules! on_database {
    ($target:expr, $connection:expr, $source:ident => $work:expr) => {
        match &$target.database {
            $crate::connections::Database::Postgres(pool) => {
                let $source = $target.guarded(pool, $connection);
                $work
            }
            $crate::connections::Database::Sqlite(file) => {
                let $source = $target.guarded(file, $connection);
                $work
            }
            #[cfg(feature = "mysql")]
            $crate::connections::Database::Mysql(pool) => {
                let $source = $target.guarded(pool, $connection);
                $work
            }
        }
    };
}
pub(crate) use on_database;

impl fmt::Debug for DatabaseTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatabaseTarget({})", self.kind())
    }
}

impl DatabaseTarget {
    /// A database of this connection as transactional steps see it.
    pub(crate) fn guarded<S: SqlSource>(&self, source: &S, connection: &Connection) -> Guarded<S> {
        Guarded::new(source.clone(), connection.turns.clone(), self.redactor.clone())
    }

    /// How statements are quoted there.
    pub(crate) fn spelling(&self) -> Spelling {
        match self.database {
            Database::Postgres(_) => Spelling::Postgres,
            Database::Sqlite(_) => Spelling::Sqlite,
            #[cfg(feature = "mysql")]
            Database::Mysql(_) => Spelling::Mysql,
        }
    }

    /// Why it cannot commit together with other databases; none if it can.
    pub(crate) async fn refuses_to_prepare(&self) -> Result<Option<String>, String> {
        let asked = match &self.database {
            Database::Postgres(pool) => postgres::refuses_to_prepare(pool).await,
            Database::Sqlite(_) => Ok(Some(
                "SQLite has no prepared transactions; put its statement into a step of its own, before or after".to_owned(),
            )),
            #[cfg(feature = "mysql")]
            Database::Mysql(_) => Ok(None),
        };
        asked.map_err(|why| self.redactor.text(&why))
    }

    async fn look(&self, check: TargetCheck<'_>) -> Checked {
        let looking = async {
            match &self.database {
                Database::Postgres(pool) => {
                    if check.install {
                        self.install(pool).await?;
                    }
                    postgres::look(pool, &self.fence_table).await
                }
                Database::Sqlite(file) => {
                    if check.install {
                        self.install(file).await?;
                    }
                    sqlite::look(file, &self.fence_table).await
                }
                #[cfg(feature = "mysql")]
                Database::Mysql(pool) => {
                    if check.install {
                        self.install(pool).await?;
                    }
                    super::mysql::look(pool, &self.fence_table).await
                }
            }
        };
        let looked = match tokio::time::timeout(check.timeout, looking).await {
            Ok(looked) => looked,
            Err(_) => Err(format!("there was no answer within {:?}", check.timeout)),
        };
        match looked {
            Ok(DatabaseFound { about, has_fence, has_queue }) => {
                let Self { fence_table, .. } = self;
                let fence = if has_fence {
                    format!("the fence table `{fence_table}` is there")
                } else {
                    format!(
                        "the fence table `{fence_table}` is missing: make it with `--install`, or as a migration"
                    )
                };
                let queue = if has_queue {
                    format!("so is `{QUEUE}`")
                } else {
                    format!("`{QUEUE}` is missing, which only `publish` needs: `--install` makes it")
                };
                let found = self.redactor.text(&format!("{about}; {fence}; {queue}"));
                if has_fence { Checked::fine(found) } else { Checked::wrong(found) }
            }
            Err(why) => Checked::wrong(self.redactor.text(&why)),
        }
    }

    /// Makes the tables that are ours. An error names the statement, for a user who has the right to execute it.
    async fn install<S: TxSource>(&self, source: &S) -> Result<(), String> {
        let fence = S::DIALECT.create(&self.fence_table).map_err(|error| error.to_string())?;
        let refused = |why: String, statement: &str| {
            format!("{why}; let an administrator execute this:\n{}", statement.trim_end())
        };
        if let Err(error) = tx::install_as(source, &self.fence_table).await {
            return Err(refused(told(&error), &fence));
        }
        let table = queue::create(S::DIALECT);
        source.script(&table).await.map_err(|fail| refused(fail.to_string(), &table))
    }
}

/// What was found in a database.
pub(super) struct DatabaseFound {
    /// Product and version, and what else is worth knowing.
    pub(super) about: String,
    pub(super) has_fence: bool,
    pub(super) has_queue: bool,
}

impl Target for DatabaseTarget {
    fn kind(&self) -> &'static str {
        match self.database {
            Database::Postgres(_) => postgres::KIND.name,
            Database::Sqlite(_) => sqlite::KIND.name,
            #[cfg(feature = "mysql")]
            Database::Mysql(_) => super::mysql::KIND.name,
        }
    }

    fn class(&self) -> &'static str {
        "transactional"
    }

    fn summary(&self) -> String {
        format!("fence table {}", self.fence_table)
    }

    fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    fn check<'a>(&'a self, check: TargetCheck<'a>) -> Checking<'a> {
        Box::pin(self.look(check))
    }
}

/// An error with its causes.
pub(crate) fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}

/// What all databases are configured with.
#[derive(Debug)]
pub(super) struct DatabaseSettings {
    pub(super) fence_table: String,
}

impl DatabaseSettings {
    pub(super) fn read(members: &mut Members<'_>) -> Self {
        let fence_table = members.text("fence-table").unwrap_or(TABLE);
        if let Err(error) = tx::Dialect::Postgres.create(fence_table) {
            members.refuse("fence-table", error.to_string());
        }
        Self { fence_table: fence_table.to_owned() }
    }

    pub(super) fn target(self, database: Database, redactor: Redactor) -> Box<dyn Target> {
        Box::new(DatabaseTarget { database, fence_table: self.fence_table, redactor: Arc::new(redactor) })
    }
}

/// What the databases that are servers are configured with.
#[derive(Debug)]
pub(super) struct ServerSettings {
    pub(super) url: SecretPlace,
    pub(super) pool: usize,
    pub(super) lock_timeout: std::time::Duration,
}

/// How long a statement waits for a lock, if the operator does not say it: longer than a transaction takes, and shorter than a step.
const LOCK: std::time::Duration = std::time::Duration::from_secs(10);

impl ServerSettings {
    pub(super) fn read(members: &mut Members<'_>) -> Option<Self> {
        let url = match members.get("url") {
            None => {
                members.refuse("url", "it is missing; give `{ env = \"NAME\" }`");
                None
            }
            Some(value) => SecretPlace::read(value).map_err(|why| members.refuse("url", why)).ok(),
        };
        let pool = members.number("pool", 1, 1_000).unwrap_or(POOL);
        let lock_timeout = members.duration("lock-timeout").unwrap_or(LOCK);
        Some(Self { url: url?, pool, lock_timeout })
    }

    /// Fetches the address; the redactor knows it and its password from then on.
    pub(super) fn address(
        &self,
        environment: Environment<'_>,
        schemes: &[&str],
    ) -> Result<(String, Redactor), String> {
        let mut redactor = Redactor::default();
        let url = self.url.fetch(environment)?.expose().to_owned();
        redactor.hide(&url);
        let place = url.split_once("://").filter(|(scheme, _)| schemes.contains(scheme));
        let Some((_, place)) = place else {
            let scheme = schemes.first().copied().unwrap_or_default();
            return Err(format!(
                "{} has no address such as `{scheme}://user:password@host/database`",
                self.url
            ));
        };
        let user = place.split_once('@').map_or("", |(user, _)| user);
        if let Some((_, password)) = user.split_once(':') {
            redactor.hide(password);
            redactor.hide(&decoded(password));
        }
        Ok((url, redactor))
    }
}

/// A part of an address without its percent signs.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escaped = (*first == b'%').then(|| after.get(..2)).flatten();
        let byte = escaped.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_hidden_in_both_forms() {
        let environment = |_: &str| Some("postgres://ann:p%40ss%2Fword@db/bank".to_owned());
        let url = SecretPlace::Env("BANK_URL".to_owned());
        let server = ServerSettings { url, pool: 1, lock_timeout: LOCK };
        let (_, redactor) = server.address(&environment, &["postgres"]).unwrap();
        assert_eq!(redactor.text("p@ss/word and p%40ss%2Fword"), "*** and ***");
        let refused = server.address(&environment, &["mysql"]).unwrap_err();
        assert!(refused.contains("mysql://user") && !refused.contains("p%40ss"), "{refused}");
    }
}
