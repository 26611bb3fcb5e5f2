//! Checks of the databases that are connections: whether branches of transactions over several of them were left prepared.

use std::path::Path;
use std::sync::Arc;

use semel::clock::{Clock as _, SystemClock};
use semel::store::memory::MemoryStore;

use super::{Exit, Found};
use crate::config::Config;
use crate::connections::branches::OLD;
use crate::connections::{Connection, Connections, DatabaseTarget};

const FIX: &str = "start the server that drives the run: it settles the branch by what the run has decided. If the run is gone, see \
                   docs/tasks.md, transaction";

pub(super) async fn look(config: &Path) -> Vec<Found> {
    let opened = Config::load(Some(config), std::iter::empty(), std::iter::empty()).and_then(|config| {
        let store = Arc::new(MemoryStore::new(Arc::new(SystemClock::new())));
        Connections::open(&config, store)
    });
    let connections = match opened {
        Ok(connections) => connections,
        Err(error) => {
            let fix = "correct the configuration; `semel connection check` tells more";
            return vec![Found::wrong(
                "connections",
                Exit::Usage,
                error.to_string().replace('\n', "; "),
                fix,
            )];
        }
    };
    let mut found = Vec::new();
    for connection in connections.all() {
        if let Some(target) = connection.target::<DatabaseTarget>() {
            found.extend(branches(connection, target).await);
        }
    }
    found
}

async fn branches(connection: &Connection, target: &DatabaseTarget) -> Vec<Found> {
    let name = &connection.name;
    let listed = match tokio::time::timeout(connection.timeout, target.branches()).await {
        Ok(listed) => listed,
        Err(_) => Err(format!("there was no answer within {:?}", connection.timeout)),
    };
    let listed = match listed {
        Ok(listed) => listed,
        Err(why) => {
            let fix = "`semel connection check` tells more";
            return vec![Found::look("database", format!("{name} cannot be asked: {why}"), fix)];
        }
    };
    let now = SystemClock::new().now();
    let old: Vec<_> = listed.iter().filter(|branch| now > branch.since.after(OLD)).collect();
    if old.is_empty() {
        let what = format!("{name} has no branches of transactions that were left prepared");
        return vec![Found::fine("database", what)];
    }
    old.into_iter()
        .map(|branch| {
            let age = (now.0 - branch.since.0) / 60_000;
            let what =
                format!("{name} has the branch {branch} of {}, prepared {age} minutes ago", branch.run);
            Found::look("database", what, FIX)
        })
        .collect()
}
