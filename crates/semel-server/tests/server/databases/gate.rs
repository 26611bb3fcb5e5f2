//! A lock of the database server at which the first transaction of a test waits, until it is let through or killed.

use semel::tx::deadpool_postgres::Object;
use semel::tx::sqlx::{
    AssertSqlSafe, MySqlConnection, MySqlPool, pool::PoolConnection, query_scalar, raw_sql,
};
use semel::tx::{PgPoolOptions, sqlx};
use tokio::sync::Mutex;

use super::site::{Site, SiteKind};

/// A closed gate, and the database that it stands in.
pub(super) struct Gate {
    pub(super) site: Site,
    /// The session that holds the lock.
    holder: Mutex<Holder>,
}

enum Holder {
    Postgres(Object),
    Mariadb(PoolConnection<sqlx::MySql>),
}

impl Gate {
    /// A fresh database whose gate is closed.
    pub(super) async fn closed(kind: SiteKind) -> Self {
        let site = Site::new(kind).await;
        // A sequence is not rolled back: it counts the tries.
        site.script("CREATE SEQUENCE tries").await;
        let holder = match kind {
            SiteKind::Postgres => {
                let pool = PgPoolOptions::new(&site.url).build().expect("an address");
                let client = pool.get().await.expect("the database is there");
                client
                    .batch_execute("SELECT pg_advisory_lock('tries'::regclass::oid::bigint)")
                    .await
                    .expect("a lock");
                Holder::Postgres(client)
            }
            SiteKind::Mariadb => {
                let pool = MySqlPool::connect(&site.url).await.expect("the database is there");
                let mut client = pool.acquire().await.expect("a session");
                raw_sql("DO GET_LOCK(DATABASE(), 0)").execute(&mut *client).await.expect("a lock");
                Holder::Mariadb(client)
            }
            SiteKind::Sqlite => panic!("SQLite has no locks of its own for a test to hold"),
        };
        Self { site, holder: Mutex::new(holder) }
    }

    /// A query that waits at the gate in the first try, and does nothing in later ones.
    pub(super) fn waiting(&self) -> &'static str {
        match self.site.kind {
            SiteKind::Mariadb => "SELECT IF(NEXTVAL(tries) = 1, GET_LOCK(DATABASE(), 600), 0) AS waited",
            _ => {
                "SELECT CASE WHEN nextval('tries') = 1 THEN pg_advisory_xact_lock('tries'::regclass::oid::bigint)::text END AS waited"
            }
        }
    }

    /// How many tries there were.
    pub(super) async fn tries(&self) -> i64 {
        let next = match self.site.kind {
            SiteKind::Mariadb => "SELECT NEXTVAL(tries)",
            _ => "SELECT nextval('tries')",
        };
        self.site.number(next).await - 1
    }

    /// Waits until a session stands at the gate, and gives its id.
    pub(super) async fn until_waiting(&self) -> String {
        let sql = match self.site.kind {
            SiteKind::Mariadb => {
                "SELECT COALESCE(MAX(id), '') FROM information_schema.processlist WHERE db = DATABASE() AND state = 'User lock'"
            }
            _ => {
                "SELECT COALESCE(max(pid)::text, '') FROM pg_locks WHERE locktype = 'advisory' AND NOT granted \
                 AND objid = 'tries'::regclass::oid AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            }
        };
        loop {
            let session = self.ask(sql).await;
            if !session.is_empty() {
                return session;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Waits until a session has no transaction any more.
    pub(super) async fn until_idle(&self, session: &str) {
        let sql = match self.site.kind {
            SiteKind::Mariadb => format!(
                "SELECT CONCAT(COUNT(*), '') FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = {session}"
            ),
            _ => format!(
                "SELECT count(*)::text FROM pg_stat_activity WHERE pid = {session} AND state <> 'idle'"
            ),
        };
        while self.ask(&sql).await != "0" {
            tokio::task::yield_now().await;
        }
    }

    /// Ends a session, as an administrator does.
    pub(super) async fn kill(&self, session: &str) {
        let sql = match self.site.kind {
            SiteKind::Mariadb => format!("KILL {session}"),
            _ => format!("SELECT pg_terminate_backend({session})"),
        };
        self.execute(&sql).await;
    }

    /// Lets the session through that waits.
    pub(super) async fn open(&self) {
        self.execute(match self.site.kind {
            SiteKind::Mariadb => "DO RELEASE_LOCK(DATABASE())",
            _ => "SELECT pg_advisory_unlock('tries'::regclass::oid::bigint)",
        })
        .await;
    }

    async fn execute(&self, sql: &str) {
        match &mut *self.holder.lock().await {
            Holder::Postgres(client) => client.batch_execute(sql).await.expect("it can be executed"),
            Holder::Mariadb(client) => {
                let done = raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut **client).await;
                done.map(drop).expect("it can be executed");
            }
        }
    }

    /// The one text that a query gives.
    async fn ask(&self, sql: &str) -> String {
        match &mut *self.holder.lock().await {
            Holder::Postgres(client) => client.query_one(sql, &[]).await.expect("it gives a row").get(0),
            Holder::Mariadb(client) => {
                let client: &mut MySqlConnection = client;
                let bytes: Vec<u8> = query_scalar(AssertSqlSafe(sql.to_owned()))
                    .fetch_one(client)
                    .await
                    .expect("it gives a row");
                String::from_utf8(bytes).expect("UTF-8")
            }
        }
    }
}
