//! The stores that the suite runs on.

use std::sync::Arc;

use semel::error::Result;
use semel::store::Store;
use semel::store::memory::MemoryStore;
use semel::testing::ManualClock;
use semel::testing::suite::{Home, Stores, SuiteFuture};

/// Every store that this build has.
pub(crate) fn all() -> Vec<Arc<dyn Stores>> {
    vec![
        Arc::new(Memory),
        #[cfg(feature = "sqlite")]
        Arc::new(sqlite::Sqlite),
        #[cfg(feature = "postgres")]
        Arc::new(postgres::Postgres),
    ]
}

/// In memory there is one store: to open it again, or a second time, is to clone it.
struct Memory;

struct MemoryHome(MemoryStore);

impl Stores for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn fresh(&self, clock: Arc<ManualClock>) -> SuiteFuture<'_, Result<Box<dyn Home>>> {
        Box::pin(async { Ok(Box::new(MemoryHome(MemoryStore::new(clock))) as Box<dyn Home>) })
    }
}

impl Home for MemoryHome {
    fn open(&self) -> SuiteFuture<'_, Result<Arc<dyn Store>>> {
        Box::pin(async { Ok(Arc::new(self.0.clone()) as Arc<dyn Store>) })
    }

    fn second(&self) -> SuiteFuture<'_, Result<Option<Arc<dyn Store>>>> {
        Box::pin(async { self.open().await.map(Some) })
    }
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use super::{Arc, Home, ManualClock, Result, Store, Stores, SuiteFuture};
    use semel::store::sqlite::{SqliteOptions, SqliteStore};
    use tempfile::TempDir;

    /// One file in a folder of its own.
    pub(super) struct Sqlite;

    struct SqliteHome {
        folder: TempDir,
        clock: Arc<ManualClock>,
    }

    impl Stores for Sqlite {
        fn name(&self) -> &'static str {
            "sqlite"
        }

        fn fresh(&self, clock: Arc<ManualClock>) -> SuiteFuture<'_, Result<Box<dyn Home>>> {
            let folder = TempDir::new().expect("a folder for the file");
            Box::pin(async { Ok(Box::new(SqliteHome { folder, clock }) as Box<dyn Home>) })
        }
    }

    impl Home for SqliteHome {
        fn open(&self) -> SuiteFuture<'_, Result<Arc<dyn Store>>> {
            let mut options = SqliteOptions::new(self.folder.path().join("semel.db"));
            options.clock = self.clock.clone();
            Box::pin(async { Ok(Arc::new(SqliteStore::open(options).await?) as Arc<dyn Store>) })
        }

        fn second(&self) -> SuiteFuture<'_, Result<Option<Arc<dyn Store>>>> {
            Box::pin(async { Ok(None) })
        }
    }
}

#[cfg(feature = "postgres")]
mod postgres {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::{Arc, Home, ManualClock, Result, Store, Stores, SuiteFuture};
    use semel::store::postgres::{PgClock, PostgresOptions, PostgresStore};

    /// One schema per case, on the server of `scripts/with-postgres`.
    pub(super) struct Postgres;

    struct PostgresHome(PostgresOptions);

    impl Stores for Postgres {
        fn name(&self) -> &'static str {
            "postgres"
        }

        fn fresh(&self, clock: Arc<ManualClock>) -> SuiteFuture<'_, Result<Box<dyn Home>>> {
            static CASES: AtomicUsize = AtomicUsize::new(0);
            let url =
                std::env::var("SEMEL_TEST_POSTGRES").expect("main has seen to it that there is a server");
            let options = PostgresOptions {
                // A server that was not started for us may have seen other runs of this program.
                schema: Some(format!(
                    "case_{}_{}",
                    std::process::id(),
                    CASES.fetch_add(1, Ordering::Relaxed)
                )),
                clock: PgClock::Given(clock),
                // Hundreds of cases share one server.
                connections: 8,
                ..PostgresOptions::new(url)
            };
            Box::pin(async { Ok(Box::new(PostgresHome(options)) as Box<dyn Home>) })
        }
    }

    impl Home for PostgresHome {
        fn open(&self) -> SuiteFuture<'_, Result<Arc<dyn Store>>> {
            let options = self.0.clone();
            Box::pin(async { Ok(Arc::new(PostgresStore::open(options).await?) as Arc<dyn Store>) })
        }

        fn second(&self) -> SuiteFuture<'_, Result<Option<Arc<dyn Store>>>> {
            Box::pin(async { self.open().await.map(Some) })
        }
    }
}
