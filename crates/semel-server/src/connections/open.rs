//! From the configuration to connections that can be used, with all problems of all of them at once.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use reqwest::header::HeaderMap;
use semel::store::Store;
use tokio::sync::Semaphore;
use toml::{Table, Value};

use super::address::AddressPolicy;
use super::client::{ClientOptions, client};
use super::http::HttpTarget;
use super::kind::{self, Environment, Settings};
use super::members::{ConnectionProblem, Members};
use super::names::{CheckedNames, HostNames, SystemNames};
use super::profile::Profile;
use super::route::Route;
use super::secret::{Redactor, SecretPlace};
use super::{Connection, Connections, RESULT, TASKS, TIMEOUT};
use crate::config::Config;
use crate::serve::Error;

/// What connections are opened with.
pub struct Opening<'a> {
    /// Configuration of the server.
    pub config: &'a Config,
    /// Store that knows the workspaces.
    pub store: Arc<dyn Store>,
    /// Variables of the environment, for secrets.
    pub environment: &'a dyn Fn(&str) -> Option<String>,
    /// Resolver of calls without a connection.
    pub names: Arc<dyn HostNames>,
}

impl fmt::Debug for Opening<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Opening")
    }
}

/// A connection as the configuration describes it.
struct ConnectionSettings {
    name: String,
    workspaces: Option<Vec<String>>,
    timeout: Duration,
    tasks: usize,
    max_result: usize,
    sender_secrets: Vec<SecretPlace>,
    kind: Box<dyn Settings>,
}

impl Connections {
    /// Opens all connections of a configuration; the environment and the resolver are the machine's.
    pub fn open(config: &Config, store: Arc<dyn Store>) -> Result<Self, Error> {
        let environment = |name: &str| std::env::var(name).ok();
        let opening = Opening { config, store, environment: &environment, names: Arc::new(SystemNames) };
        Self::open_with(opening).map_err(|problems| Error::Config(told(&problems, None)))
    }

    /// Opens all connections; the error has all problems of all of them.
    pub fn open_with(opening: Opening<'_>) -> Result<Self, Vec<ConnectionProblem>> {
        let Opening { config, store, environment, names } = opening;
        let (settings, mut problems) = read(&config.connections);
        let mut by_name = BTreeMap::new();
        for settings in settings {
            match settings.open(environment) {
                Ok(connection) => drop(by_name.insert(connection.name.clone(), Arc::new(connection))),
                Err(found) => problems.extend(found),
            }
        }
        let public = public(config, names).map_err(|found| problems.extend(found));
        match public {
            Ok(public) if problems.is_empty() => {
                Ok(Self { by_name, public: Arc::new(public), store, workspaces: Mutex::new(HashMap::new()) })
            }
            _ => Err(problems),
        }
    }
}

/// Checks the connections in the text of a configuration; the error names the lines.
pub fn check(connections: &Table, text: &str) -> Result<(), String> {
    let (_, problems) = read(connections);
    if problems.is_empty() { Ok(()) } else { Err(told(&problems, Some(text))) }
}

/// All problems, one on a line.
fn told(problems: &[ConnectionProblem], text: Option<&str>) -> String {
    let lines =
        problems.iter().map(|problem| match text.and_then(|text| super::line_of(text, &problem.member)) {
            Some(line) => format!("line {line}: {problem}"),
            None => problem.to_string(),
        });
    lines.collect::<Vec<_>>().join("\n")
}

fn read(connections: &Table) -> (Vec<ConnectionSettings>, Vec<ConnectionProblem>) {
    let (mut all, mut problems) = (Vec::new(), Vec::new());
    for (name, value) in connections {
        let at = format!("connections.{name}");
        if let Err(message) = crate::definitions::template::check_name(name) {
            problems.push(ConnectionProblem { member: at.clone(), message });
        }
        let Value::Table(table) = value else {
            let message = format!("a table is expected: `[connections.{name}]`");
            problems.push(ConnectionProblem { member: at, message });
            continue;
        };
        let mut members = Members::new(at, table);
        let settings = ConnectionSettings::read(name, &mut members);
        problems.extend(members.finish());
        all.extend(settings);
    }
    (all, problems)
}

impl ConnectionSettings {
    fn read(name: &str, members: &mut Members<'_>) -> Option<Self> {
        let workspaces = members.texts("workspaces");
        let timeout = members.duration("timeout");
        let tasks = members.number("tasks", 1, 10_000).unwrap_or(TASKS);
        let max_result = members.number("max-result", 1024, super::ANSWER).unwrap_or(RESULT);
        let sender_secrets = members.secrets("sender-secret").unwrap_or_default();
        let kind = match kind::find(members.needed("kind", &format!("one of {}", kind::names()))?) {
            Ok(kind) => (kind.read)(members)?,
            Err(why) => {
                members.refuse("kind", why);
                return None;
            }
        };
        let timeout = timeout.unwrap_or_else(|| kind.timeout());
        Some(Self { name: name.to_owned(), workspaces, timeout, tasks, max_result, sender_secrets, kind })
    }

    fn open(self, environment: Environment<'_>) -> Result<Connection, Vec<ConnectionProblem>> {
        let Self { name, workspaces, timeout, tasks, max_result, sender_secrets, kind } = self;
        let fetched =
            sender_secrets.iter().map(|place| place.fetch(environment)).collect::<Result<Vec<_>, _>>();
        let fetched = fetched.map_err(|why| vec![("sender-secret".to_owned(), why)]);
        let turns = Arc::new(Semaphore::new(tasks));
        match (kind.open(environment), fetched) {
            (Ok(target), Ok(sender_secrets)) => {
                Ok(Connection { name, workspaces, timeout, max_result, sender_secrets, target, turns })
            }
            (target, fetched) => {
                let problem = |(member, message)| ConnectionProblem {
                    member: format!("connections.{name}.{member}"),
                    message,
                };
                let problems = target.err().into_iter().chain(fetched.err()).flatten();
                Err(problems.map(problem).collect())
            }
        }
    }
}

/// The way of `http` without a connection.
fn public(config: &Config, names: Arc<dyn HostNames>) -> Result<Connection, Vec<ConnectionProblem>> {
    let policy = Arc::new(AddressPolicy::read(&config.http)?);
    let checked = CheckedNames { names, policy: policy.clone() };
    let client = client(ClientOptions { ca_file: None, names: Some(checked) })
        .map_err(|message| vec![ConnectionProblem { member: "http".to_owned(), message }])?;
    let route =
        Route { client, headers: HeaderMap::new(), policy: Some(policy), redactor: Redactor::default() };
    let target = Box::new(HttpTarget { base: None, route, profile: Profile::default(), from: None });
    let turns = Arc::new(Semaphore::new(TASKS));
    Ok(Connection {
        name: "url".to_owned(),
        workspaces: None,
        timeout: TIMEOUT,
        max_result: RESULT,
        sender_secrets: Vec::new(),
        target,
        turns,
    })
}
