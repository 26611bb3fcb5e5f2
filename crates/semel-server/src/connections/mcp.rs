//! Connections of the kind `mcp`: servers of the Model Context Protocol, as programs (stdio) or over streamable HTTP.
//!
//! What a tool does is said by the operator (`tools`), not by the server: the protocol calls its own annotations hints. [`session`] talks.

mod http;
mod session;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use toml::Value;

pub use session::{McpFailed, McpResult};
use session::{McpWay, ServerProgram, Session};

use super::http::{RouteSettings, base};
use super::kind::{Checked, Checking, ConnectionKind, Environment, Settings, Target, TargetCheck};
use super::members::Members;
use super::secret::{Redactor, SecretPlace};
use crate::models::Offer;

pub(super) static KIND: ConnectionKind = ConnectionKind { name: "mcp", read };

/// A server of the Model Context Protocol.
#[derive(Debug)]
pub struct McpTarget {
    way: McpWay,
    redactor: Redactor,
    rules: BTreeMap<String, ToolRule>,
    /// The session that calls share; none before the first, and after the server has gone away.
    session: tokio::sync::Mutex<Option<Arc<Session>>>,
}

/// What the operator says about a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolRule {
    /// It only reads, and can be called again.
    Reads,
    /// It recognises a repetition by this argument, which is the effect key.
    KeyIn(String),
    /// Nothing is known: it is called at most once.
    #[default]
    Nothing,
}

impl McpTarget {
    /// What is known about a tool.
    pub fn rule(&self, tool: &str) -> ToolRule {
        self.rules.get(tool).cloned().unwrap_or_default()
    }

    /// The tools that the server offers.
    pub async fn tools(&self) -> Result<Vec<Offer>, McpFailed> {
        let session = self.session().await?;
        session.tools().await.map_err(|failed| self.cleaned(failed))
    }

    /// Calls a tool. The effect key goes along in `_meta`, for servers that look at it.
    pub async fn call(
        &self,
        tool: &str,
        arguments: serde_json::Map<String, serde_json::Value>,
        key: &str,
    ) -> Result<McpResult, McpFailed> {
        let session = self.session().await?;
        match session.call(tool, arguments, key).await {
            Ok(result) => Ok(McpResult {
                value: self.redactor.json(result.value),
                text: self.redactor.text(&result.text),
                ..result
            }),
            Err(failed) => Err(self.cleaned(failed)),
        }
    }

    /// The session, which is begun if there is none.
    async fn session(&self) -> Result<Arc<Session>, McpFailed> {
        let mut session = self.session.lock().await;
        if let Some(session) = session.as_ref().filter(|session| !session.is_closed()) {
            return Ok(session.clone());
        }
        let begun =
            Session::begin(&self.way).await.map_err(|why| McpFailed::NotSent(self.redactor.text(&why)))?;
        Ok(session.insert(Arc::new(begun)).clone())
    }

    fn cleaned(&self, failed: McpFailed) -> McpFailed {
        match failed {
            McpFailed::NotSent(why) => McpFailed::NotSent(self.redactor.text(&why)),
            McpFailed::Refused(why) => McpFailed::Refused(self.redactor.text(&why)),
            McpFailed::Lost(why) => McpFailed::Lost(self.redactor.text(&why)),
        }
    }

    async fn checked(&self, limit: Duration) -> Checked {
        match tokio::time::timeout(limit, self.tools()).await {
            Ok(Ok(tools)) => {
                let unknown = self.rules.keys().filter(|name| !tools.iter().any(|tool| tool.name == **name));
                let unknown: Vec<_> = unknown.map(|name| format!("`{name}`")).collect();
                match unknown.is_empty() {
                    true => Checked::fine(format!("answers, and has {} tools", tools.len())),
                    false => Checked::wrong(format!(
                        "answers, and has no tool {}: see `tools`",
                        unknown.join(", ")
                    )),
                }
            }
            Ok(Err(failed)) => Checked::wrong(failed.message().to_owned()),
            Err(_) => Checked::wrong(format!("there was no answer within {limit:?}")),
        }
    }
}

impl Target for McpTarget {
    fn kind(&self) -> &'static str {
        KIND.name
    }

    fn class(&self) -> &'static str {
        "at-most-once"
    }

    fn summary(&self) -> String {
        let of = |wanted: fn(&ToolRule) -> bool| {
            let names = self.rules.iter().filter(|(_, rule)| wanted(rule));
            names.map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
        };
        let (reads, keyed) =
            (of(|rule| *rule == ToolRule::Reads), of(|rule| matches!(rule, ToolRule::KeyIn(_))));
        match (reads.is_empty(), keyed.is_empty()) {
            (true, true) => "no tool can be called again".to_owned(),
            (false, true) => format!("reads: {reads}"),
            (true, false) => format!("keyed: {keyed}"),
            (false, false) => format!("reads: {reads}; keyed: {keyed}"),
        }
    }

    fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    fn check<'a>(&'a self, check: TargetCheck<'a>) -> Checking<'a> {
        Box::pin(self.checked(check.timeout))
    }
}

/// What the configuration says about a server of tools.
#[derive(Debug)]
struct McpSettings {
    way: WaySettings,
    rules: BTreeMap<String, ToolRule>,
}

#[derive(Debug)]
enum WaySettings {
    Program {
        command: Vec<String>,
        folder: Option<PathBuf>,
        environment: Vec<(String, Result<String, SecretPlace>)>,
    },
    Http {
        url: reqwest::Url,
        route: RouteSettings,
    },
}

fn read(members: &mut Members<'_>) -> Option<Box<dyn Settings>> {
    let rules = rules(members);
    let way = match (members.get("command").is_some(), members.get("url").is_some()) {
        (true, false) => program(members),
        (false, true) => {
            let route = RouteSettings::read(members);
            base(members, "url").map(|url| WaySettings::Http { url, route })
        }
        (true, true) => {
            members.refuse(
                "url",
                "`command` and `url` exclude each other: a server is a program or is called over HTTP",
            );
            None
        }
        (false, false) => {
            members.refuse(
                "command",
                "it is missing; give a program such as `[\"/usr/bin/server\", \"--stdio\"]`, or `url`",
            );
            None
        }
    };
    Some(Box::new(McpSettings { way: way?, rules }))
}

fn program(members: &mut Members<'_>) -> Option<WaySettings> {
    let command =
        members.texts("command").filter(|command| command.first().is_some_and(|program| !program.is_empty()));
    if command.is_none() {
        members.refuse(
            "command",
            "a program and its arguments are expected, such as `[\"/usr/bin/server\", \"--stdio\"]`",
        );
    }
    let folder = members.text("folder").map(PathBuf::from);
    let mut environment = Vec::new();
    for (name, value) in members.table("env").into_iter().flatten() {
        let value = match value {
            Value::String(text) => Ok(Ok(text.clone())),
            place => SecretPlace::read(place).map(Err),
        };
        match value {
            Ok(value) => environment.push((name.clone(), value)),
            Err(why) => members.refuse(&format!("env.{name}"), why),
        }
    }
    Some(WaySettings::Program { command: command?, folder, environment })
}

fn rules(members: &mut Members<'_>) -> BTreeMap<String, ToolRule> {
    let mut rules = BTreeMap::new();
    for (tool, value) in members.table("tools").into_iter().flatten() {
        let key = value.as_table().filter(|table| table.len() == 1).and_then(|table| table.get("key-in"));
        match (value, key) {
            (Value::String(word), _) if word == "reads" => drop(rules.insert(tool.clone(), ToolRule::Reads)),
            (_, Some(Value::String(argument))) if !argument.is_empty() => {
                rules.insert(tool.clone(), ToolRule::KeyIn(argument.clone()));
            }
            _ => members.refuse(
                &format!("tools.{tool}"),
                "write `\"reads\"` if it changes nothing, or `{ key-in = \"argument\" }` if it recognises a repetition by an argument",
            ),
        }
    }
    rules
}

impl Settings for McpSettings {
    fn open(self: Box<Self>, environment: Environment<'_>) -> Result<Box<dyn Target>, Vec<(String, String)>> {
        let (way, redactor) = match self.way {
            WaySettings::Http { url, route } => {
                let route = route.open(environment)?;
                let redactor = route.redactor.clone();
                (McpWay::Http { url, route: Box::new(route) }, redactor)
            }
            WaySettings::Program { command, folder, environment: named } => {
                let (named, redactor) = fetched(named, environment)?;
                (
                    McpWay::Program(ServerProgram {
                        command,
                        folder,
                        environment: named,
                        redactor: redactor.clone(),
                    }),
                    redactor,
                )
            }
        };
        Ok(Box::new(McpTarget { way, redactor, rules: self.rules, session: tokio::sync::Mutex::new(None) }))
    }
}

type NamedValues = HashMap<String, String>;

fn fetched(
    named: Vec<(String, Result<String, SecretPlace>)>,
    environment: Environment<'_>,
) -> Result<(NamedValues, Redactor), Vec<(String, String)>> {
    let (mut values, mut redactor, mut problems) = (NamedValues::new(), Redactor::default(), Vec::new());
    for (name, value) in named {
        let value = value.or_else(|place| {
            let secret = place.fetch(environment)?;
            redactor.hide(secret.expose());
            Ok(secret.expose().to_owned())
        });
        match value {
            Ok(value) => drop(values.insert(name, value)),
            Err(why) => problems.push((format!("env.{name}"), why)),
        }
    }
    if problems.is_empty() { Ok((values, redactor)) } else { Err(problems) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        let table: toml::Table = toml::from_str(text).unwrap();
        let mut members = Members::new("connections.m", &table);
        let settings = read(&mut members);
        let mut problems: Vec<_> = members.finish().iter().map(ToString::to_string).collect();
        if let Some(settings) = settings {
            let environment = |name: &str| (name == "TOKEN").then(|| "canary-token".to_owned());
            match settings.open(&environment) {
                Ok(target) => assert!(!format!("{target:?}").contains("canary"), "{target:?}"),
                Err(found) => {
                    problems.extend(found.into_iter().map(|(member, why)| format!("{member}: {why}")));
                }
            }
        }
        problems
    }

    #[test]
    fn a_server_is_a_program_or_an_address() {
        for text in [
            "command = ['server']\nenv = { TOKEN = { env = 'TOKEN' }, LANG = 'C' }\ntools = { find = 'reads', add = { key-in = 'id' } }",
            "url = 'https://mcp.example/mcp'\nheaders = { authorization = { bearer = { env = 'TOKEN' } } }",
        ] {
            assert_eq!(problems(text), [""; 0], "{text}");
        }
        for (text, member) in [
            ("command = 'server'", "m.command"),
            ("command = []", "m.command"),
            ("command = ['a']\nurl = 'https://a.example'", "m.url"),
            ("", "m.command"),
            ("command = ['a']\nenv = { A = { env = 'ABSENT' } }", "env.A"),
            ("command = ['a']\ntools = { a = 'writes' }", "m.tools.a"),
            ("command = ['a']\ntools = { a = { key-in = '' } }", "m.tools.a"),
            ("command = ['a']\nheaders = { a = 'b' }", "m.headers"),
        ] {
            let found = problems(text);
            assert!(found.iter().any(|problem| problem.contains(member)), "{text}: {found:?}");
        }
    }
}
