//! Connections of the kind `mysql`: MariaDB and MySQL.

use std::time::Duration;

use semel::tx::sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};
use semel::tx::sqlx::{AssertSqlSafe, MySqlPool, Row as _, query, raw_sql};

use super::database::{Database, DatabaseFound, DatabaseSettings, IDLE, ServerSettings, told};
use super::kind::{ConnectionKind, Environment, Settings, Target};
use super::members::Members;
use crate::databases::queue::QUEUE;

pub(super) static KIND: ConnectionKind = ConnectionKind { name: "mysql", read };

/// Maximum time to wait for a connection: shorter than a step may take, which then says that it is the connection.
const PATIENCE: Duration = Duration::from_secs(10);

struct MysqlSettings {
    database: DatabaseSettings,
    server: ServerSettings,
}

fn read(members: &mut Members<'_>) -> Option<Box<dyn Settings>> {
    let database = DatabaseSettings::read(members);
    let server = ServerSettings::read(members)?;
    Some(Box::new(MysqlSettings { database, server }))
}

impl Settings for MysqlSettings {
    fn open(self: Box<Self>, environment: Environment<'_>) -> Result<Box<dyn Target>, Vec<(String, String)>> {
        let wrong = |why: String| vec![("url".to_owned(), why)];
        let (url, redactor) = self.server.address(environment, &["mysql", "mariadb"]).map_err(wrong)?;
        let options: MySqlConnectOptions =
            url.parse().map_err(|error| wrong(redactor.text(&format!("{error}"))))?;
        // Statements are taken apart by these rules of quoting; a value that does not fit is an error.
        // MariaDB ends a session whose transaction is left alone; MySQL has no such limit, and takes that part for a comment.
        let setting = format!(
            "SET SESSION sql_mode = CONCAT_WS(',', REPLACE(REPLACE(@@sql_mode, 'NO_BACKSLASH_ESCAPES', ''), \
             'ANSI_QUOTES', ''), 'STRICT_TRANS_TABLES'), innodb_lock_wait_timeout = {}\
             /*M! , idle_transaction_timeout = {} */",
            self.server.lock_timeout.as_secs().max(1),
            IDLE.as_secs()
        );
        let pool = MySqlPoolOptions::new()
            .max_connections(u32::try_from(self.server.pool).unwrap_or(u32::MAX))
            .acquire_timeout(PATIENCE)
            .after_connect(move |conn, _| {
                let setting = raw_sql(AssertSqlSafe(setting.clone()));
                Box::pin(async move { setting.execute(conn).await.map(drop) })
            })
            .connect_lazy_with(options);
        Ok(self.database.target(Database::Mysql(pool), redactor))
    }
}

/// Looks what is there.
pub(super) async fn look(pool: &MySqlPool, fence_table: &str) -> Result<DatabaseFound, String> {
    let look = "SELECT version(), \
                (SELECT count(*) FROM information_schema.tables WHERE table_schema = COALESCE(?, database()) AND table_name = ?), \
                (SELECT count(*) FROM information_schema.tables WHERE table_schema = database() AND table_name = ?)";
    let (schema, table) = match fence_table.split_once('.') {
        Some((schema, table)) => (Some(schema), table),
        None => (None, fence_table),
    };
    let asked = query(look).bind(schema).bind(table).bind(QUEUE).fetch_one(pool);
    let row = asked.await.map_err(|error| error.to_string())?;
    let version: String = row.try_get(0).map_err(|error| error.to_string())?;
    let there =
        |index: usize| row.try_get::<i64, _>(index).map(|count| count > 0).map_err(|error| error.to_string());
    let mut about = String::from("reached, ");
    if !version.contains("MariaDB") {
        about.push_str("MySQL ");
    }
    about.push_str(&version);
    if let Some(why) = refuses_to_prepare(pool).await? {
        about.push_str("; it cannot commit together with other databases: ");
        about.push_str(&why);
    }
    Ok(DatabaseFound { about, has_fence: there(1)?, has_queue: there(2)? })
}

/// Why transactions of this database cannot be prepared; none if they can. Every server here can, but branches that it does not list
/// could not be ended after a crash.
pub(super) async fn refuses_to_prepare(pool: &MySqlPool) -> Result<Option<String>, String> {
    match raw_sql("XA RECOVER").fetch_all(pool).await {
        Ok(_) => Ok(None),
        Err(error) if error.as_database_error().is_some() => Ok(Some(format!(
            "it does not list prepared transactions ({error}); MySQL wants the privilege XA_RECOVER_ADMIN for the user of the connection"
        ))),
        Err(error) => Err(told(&error)),
    }
}
