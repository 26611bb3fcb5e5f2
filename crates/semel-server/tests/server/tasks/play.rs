//! Definitions in plays with crashes: the real interpreter and catalog, connections to a provider that really answers.

use std::sync::Arc;

use semel::clock::{Clock as _, SystemClock};
use semel::engine::Builder;
use semel::id::WorkspaceId;
use semel::store::memory::MemoryStore;
use semel::testing::{Crasher, Ended, Scene};
use semel::{Error, RunHandle, WorkflowName};
use semel_server::access::ChildBounds;
use semel_server::approvals::Approvals;
use semel_server::config::Config;
use semel_server::connections::{Connections, Opening, SystemNames};
use semel_server::definitions::catalog::{Catalog, NewDefinition, Pusher};
use semel_server::definitions::check::check;
use semel_server::definitions::interpret::Interpreter;
use serde_json::Value;

use super::provider::{Account, SECRET};

/// What survives every crash: the definitions, which were pushed before, and the account at the provider.
#[derive(Clone)]
pub(crate) struct Stage {
    catalog: Arc<Catalog>,
    /// Workflow and version of the definition that is played.
    workflow: WorkflowName,
    pub(super) account: Account,
}

impl std::fmt::Debug for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}: {:#?}", self.account, self.account.done())
    }
}

impl Stage {
    /// Pushes definitions; the first one is played.
    pub(super) fn new(documents: &[String], loses: bool) -> Self {
        let clock = Arc::new(SystemClock::new());
        let catalog = Arc::new(Catalog::new(Arc::new(MemoryStore::new(clock.clone()))));
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime can be made");
        let mut ids = Vec::new();
        for document in documents {
            let accepted = check(document).unwrap_or_else(|problems| panic!("{document}\n{problems:#?}"));
            ids.push((accepted.definition.name.clone(), accepted.id.to_string()));
            let pushed = Pusher { by: "a test".to_owned(), at: clock.now(), call: clock.uuid() };
            let new = NewDefinition { accepted, text: document.clone(), pushed, current: true };
            runtime.block_on(catalog.push(WorkspaceId::DEFAULT, new)).expect("it is pushed");
        }
        let (name, id) = &ids[0];
        Self { catalog, workflow: WorkflowName::new(name).version(id), account: Account::open(loses) }
    }

    pub(super) fn engine(&self, builder: Builder) -> Builder {
        builder
            .shared_state(Arc::new(self.connections()))
            .shared_state(self.catalog.clone())
            .programs(Interpreter::new(self.catalog.clone()))
            .state_of_store(Approvals::new)
            .state_of_store(|store| ChildBounds::new(store, Arc::new(SystemClock::new()), Arc::default()))
    }

    /// The provider under several names, each with what is known about it.
    fn connections(&self) -> Connections {
        let at = |part: &str| self.account.address(part);
        let by_key = "by = 'key', header = 'Idempotency-Key', other = [422]";
        let search = "find = { get = '/found?reference={{ effect.key }}' }, found = '{{ body.items }}'";
        let text = format!(
            "[connections]
for-ever = {{ kind = 'http', base = '{keyed}', profile = {{ {by_key}, window = 'for-ever' }} }}
locked = {{ kind = 'http', base = '{locked}', profile = {{ {by_key}, window = 'for-ever' }} }}
window = {{ kind = 'http', base = '{keyed}', profile = {{ {by_key}, window = '24h' }} }}
searched = {{ kind = 'http', base = '{searched}', profile = {{ by = 'look-up', put = {{ json = '/reference' }}, {search} }} }}
plain = {{ kind = 'http', base = '{plain}' }}
silent = {{ kind = 'http', base = '{silent}' }}
notices = {{ kind = 'webhook', url = '{notices}', secret = {{ env = 'SECRET' }} }}",
            keyed = at("keyed"),
            locked = at("locked"),
            searched = at("searched"),
            plain = at("plain"),
            silent = at("silent"),
            notices = at("notices"),
        );
        let doubtful = format!(
            "\ndoubtful = {{ kind = 'http', base = '{}', profile = {{ {by_key}, busy = [409], replayed = 'Idempotent-Replayed', window = 'for-ever' }} }}",
            at("keyed")
        );
        match self.account.is_connected() {
            true => configured(&(text + &doubtful)),
            false => configured(&text),
        }
    }

    /// Starts the definition that is played.
    pub(crate) async fn start(scene: &Scene<Self>, input: &Value) -> Result<RunHandle<Value>, Error> {
        scene.engine().start(scene.world().workflow.clone(), input).key("k").await
    }
}

/// The connections of a configuration. Each secret is that of the provider.
pub(super) fn configured(text: &str) -> Connections {
    let mut config: Config = toml::from_str(text).expect("it is a configuration");
    // The provider is on this machine, also for calls without a connection.
    config.http.loopback = true;
    let environment = |_: &str| Some(SECRET.to_owned());
    let store = Arc::new(MemoryStore::new(Arc::new(SystemClock::new())));
    let opening = Opening { config: &config, store, environment: &environment, names: Arc::new(SystemNames) };
    Connections::open_with(opening).expect("the connections can be opened")
}

/// A play of definitions; the first one is started by the script.
pub(crate) fn crasher<T: PartialEq + std::fmt::Debug + 'static>(
    documents: Vec<String>,
    loses: bool,
    script: impl AsyncFn(Scene<Stage>) -> Result<T, Error> + 'static,
) -> Crasher<Stage, T> {
    Crasher::new(move || Stage::new(&documents, loses), Stage::engine, script)
}

/// Plays with a crash at every boundary, and with a lost answer of the store at each.
pub(super) fn everywhere<T: PartialEq + std::fmt::Debug + 'static>(
    crasher: &Crasher<Stage, T>,
    check: impl Fn(&Ended<Stage, T>),
) -> usize {
    crasher.every_boundary(&check) + crasher.every_fault(&check)
}
