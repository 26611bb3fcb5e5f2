//! A database with accounts, and an engine with a connection to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use semel::clock::SystemClock;
use semel::engine::{Builder, Code, Programs};
use semel::id::WorkspaceId;
use semel::rules::entry::Outcome;
use semel::rules::family::Family;
use semel::rules::path::Name;
use semel::store::memory::MemoryStore;
use semel::tx::deadpool_postgres::Pool;
use semel::tx::sqlx::MySqlPool;
use semel::tx::{PgPoolOptions, SqliteDb, TxSource, sqlx};
use semel::{Engine, WorkflowRef};
use semel_server::config::Config;
use semel_server::connections::{Checked, Connections, Opening, SystemNames};
use semel_server::definitions::check::check;
use semel_server::definitions::interpret::code_of;
use semel_server::definitions::language::Definition;
use serde_json::Value;
use tempfile::TempDir;

use crate::overtaken::{HeldLine, Route};

/// The databases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SiteKind {
    Sqlite,
    Postgres,
    Mariadb,
}

impl SiteKind {
    pub(crate) const ALL: [Self; 3] = [Self::Sqlite, Self::Postgres, Self::Mariadb];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::Mariadb => "mariadb",
        }
    }
}

/// A fresh database with two accounts of 1,000 cents, and the configuration of a connection `bank` to it.
#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) kind: SiteKind,
    pub(crate) url: String,
    pub(crate) folder: Arc<TempDir>,
}

/// A database without the server.
enum Plain {
    Sqlite(SqliteDb),
    Postgres(Pool),
    Mariadb(MySqlPool),
}

pub(crate) const TESTED: WorkflowRef<Value, Value> = WorkflowRef::new("tested").version("def1_tested");

/// One definition, for every version of its family.
pub(crate) struct Fixed(Arc<Definition>);

impl Fixed {
    pub(crate) fn new(steps: &str) -> Self {
        let text = format!("semel: 1\nname: tested\n{steps}");
        Self(Arc::new(check(&text).unwrap_or_else(|problems| panic!("{problems:#?}")).definition))
    }
}

impl Programs for Fixed {
    fn families(&self) -> Vec<Family> {
        vec![Family::new("def1_").unwrap()]
    }

    fn code(&self, _: WorkspaceId, _: &Name, _: &Name) -> Option<Code> {
        Some(code_of(self.0.clone()))
    }
}

/// Opens connections to databases by their names, as a server does; `lines` are further ones in the table of the last.
pub(crate) fn open(sites: &[(&str, &Site)], lines: &str) -> Result<Connections, String> {
    let table = |(name, site): &(&str, &Site)| {
        let place = match site.kind {
            SiteKind::Sqlite => format!("kind = 'sqlite'\npath = '{}'", site.url),
            SiteKind::Postgres => format!("kind = 'postgres'\nurl = {{ env = '{name}' }}"),
            SiteKind::Mariadb => format!("kind = 'mysql'\nurl = {{ env = '{name}' }}"),
        };
        format!("[{name}]\n{place}\n")
    };
    let tables: String = sites.iter().map(table).collect();
    let config =
        Config { connections: toml::from_str(&format!("{tables}{lines}")).unwrap(), ..Config::default() };
    let environment =
        |name: &str| sites.iter().find(|(known, _)| *known == name).map(|(_, site)| site.url.clone());
    let store = Arc::new(MemoryStore::new(Arc::new(SystemClock::new())));
    let opening = Opening { config: &config, store, environment: &environment, names: Arc::new(SystemNames) };
    Connections::open_with(opening)
        .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

impl Site {
    /// A database that nothing else uses, with its tables.
    pub(crate) async fn new(kind: SiteKind) -> Self {
        let site = Self::empty(kind).await;
        let checked = site.checked(true).await;
        assert!(checked.is_fine, "{checked:?}");
        site
    }

    /// The same, without the tables of Semel.
    pub(crate) async fn empty(kind: SiteKind) -> Self {
        static SITES: AtomicUsize = AtomicUsize::new(0);
        let name = format!("site_{}_{}", std::process::id(), SITES.fetch_add(1, Ordering::Relaxed));
        let folder = Arc::new(TempDir::new().unwrap());
        let server =
            |variable: &str| std::env::var(variable).expect("main has seen to it that there is a server");
        let url = match kind {
            SiteKind::Sqlite => folder.path().join("bank.db").display().to_string(),
            SiteKind::Postgres => {
                let url = server("SEMEL_TEST_POSTGRES");
                let pool = PgPoolOptions::new(&url).build().unwrap();
                pool.script(&format!("CREATE SCHEMA {name}")).await.unwrap();
                let sign = if url.contains('?') { '&' } else { '?' };
                format!("{url}{sign}schema={name}")
            }
            SiteKind::Mariadb => {
                let url = server("SEMEL_TEST_MARIADB");
                let pool = MySqlPool::connect(&url).await.unwrap();
                sqlx::raw_sql(sqlx::AssertSqlSafe(format!("CREATE DATABASE {name} CHARACTER SET utf8mb4")))
                    .execute(&pool)
                    .await
                    .unwrap();
                format!("{}/{name}", url.rsplit_once('/').unwrap().0)
            }
        };
        if kind == SiteKind::Sqlite {
            drop(std::fs::File::create(&url).unwrap());
        }
        let site = Self { kind, url, folder };
        site.script("CREATE TABLE account (owner varchar(40) PRIMARY KEY, cents bigint NOT NULL)").await;
        site.script("INSERT INTO account VALUES ('ann', 1000), ('ben', 1000)").await;
        site
    }

    /// The connections, as a server opens them.
    pub(crate) fn connections(&self) -> Connections {
        self.connections_with("").unwrap_or_else(|why| panic!("{why}"))
    }

    /// The same with further lines in the table of the connection.
    pub(crate) fn connections_with(&self, lines: &str) -> Result<Connections, String> {
        open(&[("bank", self)], lines)
    }

    /// What `semel connection check` finds.
    pub(crate) async fn checked(&self, install: bool) -> Checked {
        let connections = self.connections();
        let bank = connections.all().next().unwrap().clone();
        bank.look(&connections, install).await
    }

    /// Gives an engine its connection and its definition.
    pub(crate) fn build(&self, builder: Builder, steps: &str) -> Builder {
        builder.state(self.connections()).programs(Fixed::new(steps))
    }

    /// Executes a definition.
    pub(crate) async fn outcome(&self, steps: &str, input: Value) -> Outcome {
        let builder = self.build(Engine::builder().store("memory:"), steps);
        let engine = builder.open().await.unwrap();
        let run = engine.start(TESTED, input).await.unwrap();
        let outcome = run.outcome().await.unwrap();
        let replay = engine.replay(run.id()).await.unwrap();
        assert!(replay.is_identical(), "{replay}");
        outcome
    }

    pub(crate) async fn value(&self, steps: &str, input: Value) -> Value {
        super::value_of(self.outcome(steps, input).await)
    }

    /// The code of the failure of a definition.
    pub(crate) async fn failure(&self, steps: &str, input: Value) -> String {
        match self.outcome(steps, input).await {
            Outcome::Failed(failure) => failure.code.unwrap_or(failure.message),
            other => panic!("{other:?}"),
        }
    }

    async fn plain(&self) -> Plain {
        match self.kind {
            SiteKind::Sqlite => Plain::Sqlite(SqliteDb::open(&self.url).await.unwrap()),
            SiteKind::Postgres => Plain::Postgres(PgPoolOptions::new(&self.url).build().unwrap()),
            SiteKind::Mariadb => Plain::Mariadb(MySqlPool::connect(&self.url).await.unwrap()),
        }
    }

    /// Executes a statement without the server.
    pub(crate) async fn script(&self, sql: &str) {
        match self.plain().await {
            Plain::Sqlite(db) => db.script(sql).await,
            Plain::Postgres(pool) => pool.script(sql).await,
            Plain::Mariadb(pool) => sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned()))
                .execute(&pool)
                .await
                .map(drop)
                .map_err(Into::into),
        }
        .unwrap_or_else(|fail| panic!("{sql}: {fail}"));
    }

    /// The one number that a query gives.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        self.text(&format!("SELECT CAST(({sql}) AS CHAR(40)) AS number")).await.trim().parse().unwrap()
    }

    /// The one text that a query gives.
    pub(crate) async fn text(&self, sql: &str) -> String {
        match self.plain().await {
            Plain::Sqlite(db) => {
                let sql = sql.to_owned();
                db.call(move |conn| conn.query_row(&sql, [], |row| row.get(0))).await.unwrap()
            }
            Plain::Postgres(pool) => {
                let rows = pool.get().await.unwrap().simple_query(sql).await.unwrap();
                let text = rows.into_iter().find_map(|message| match message {
                    semel::tx::tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
                    _ => None,
                });
                text.unwrap_or_else(|| panic!("{sql} gives no row"))
            }
            Plain::Mariadb(pool) => {
                let bytes: Vec<u8> =
                    sqlx::query_scalar(sqlx::AssertSqlSafe(sql.to_owned())).fetch_one(&pool).await.unwrap();
                String::from_utf8(bytes).unwrap()
            }
        }
    }

    /// Host and port of the server of the database.
    pub(crate) fn host(&self) -> &str {
        let (_, rest) = self.url.split_once('@').expect("the URL has a user");
        rest.split(['/', '?']).next().unwrap_or(rest)
    }

    /// The same database by a route.
    pub(crate) fn by(&self, line: &HeldLine, route: Route) -> Self {
        match route {
            Route::Direct => self.clone(),
            Route::Held => Self { url: self.url.replace(self.host(), &line.address()), ..self.clone() },
        }
    }

    /// A folder that lives as long as the database.
    pub(crate) fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }
}
