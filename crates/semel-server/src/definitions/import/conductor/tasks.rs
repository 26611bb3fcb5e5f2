//! Task by task: what each becomes.

use serde_json::{Map, Value as Json};

use super::paths::name;
use super::{Conversion, Ordered, Task, models};

/// Members of a step.
pub(super) type StepMembers = Vec<(String, Ordered)>;

/// Headers that belong to a connection.
const CREDENTIALS: [&str; 3] = ["authorization", "cookie", "proxy-authorization"];
/// Tasks that have no counterpart, and what to do instead.
const REFUSED: [(&str, &str); 7] = [
    (
        "KAFKA_PUBLISH",
        "there are no connections to Kafka: use `publish` with another broker or a database, or a `worker`",
    ),
    (
        "LIST_MCP_TOOLS",
        "an `agent` lists the tools of its servers itself: write `{mcp: …}` among its `tools`",
    ),
    ("JSON_JQ_TRANSFORM", "it is jq: write it as expressions in `set`, or as a `worker`"),
    ("DYNAMIC", "the task is chosen at run time: use a `switch` with the tasks that are possible"),
    ("FORK_JOIN_DYNAMIC", "the branches are chosen at run time: use `for_each` over a list"),
    ("EXCLUSIVE_JOIN", "it waits for one branch of several: use a `switch`"),
    ("DYNAMIC_FORK", "the branches are chosen at run time: use `for_each` over a list"),
];

/// A statement with `:p1`, `:p2` for its question marks, and how many there were. Those in literals stay.
fn with_names(statement: &str) -> (String, usize) {
    let (mut text, mut count, mut is_literal) = (String::new(), 0, false);
    for c in statement.chars() {
        is_literal ^= c == '\'';
        if c == '?' && !is_literal {
            count += 1;
            text.push_str(&format!(":p{count}"));
        } else {
            text.push(c);
        }
    }
    (text, count)
}

pub(super) fn one(name: &str, value: Ordered) -> StepMembers {
    vec![(name.to_owned(), value)]
}

impl Conversion {
    pub(super) fn task(&mut self, task: &Task<'_>) -> StepMembers {
        match task.kind() {
            "SIMPLE" => self.simple(task),
            "HTTP" => self.http(task),
            "JDBC" => self.sql(task),
            "SWITCH" | "DECISION" => self.switch(task),
            "FORK_JOIN" => self.fork(task),
            "DO_WHILE" => self.do_while(task),
            "SUB_WORKFLOW" => self.child(task, &task.json["subWorkflowParam"], true),
            "START_WORKFLOW" => self.child(task, task.input("startWorkflow"), false),
            "WAIT" => self.wait(task),
            "HUMAN" => self.human(task),
            "LLM_CHAT_COMPLETE" | "LLM_TEXT_COMPLETE" => models::llm(self, task),
            "CALL_MCP_TOOL" => models::mcp(self, task),
            "SET_VARIABLE" => one("set", self.arguments(task, &[])),
            "TERMINATE" => self.terminate(task),
            "NOOP" => one("now", Ordered::Object(Vec::new())),
            "EVENT" => self.event(task),
            "INLINE" | "LAMBDA" => self.inline(task),
            kind => {
                let unknown = || format!("tasks of type {kind} have no counterpart: write it as a `worker`");
                let known = REFUSED.iter().find(|(name, _)| *name == kind);
                self.refuse(task, known.map_or_else(unknown, |(_, reason)| (*reason).to_owned()));
                StepMembers::new()
            }
        }
    }

    fn simple(&mut self, task: &Task<'_>) -> StepMembers {
        let queue = name(task.json["name"].as_str().unwrap_or(&task.reference));
        let input = self.arguments(task, &[]);
        one("worker", Ordered::object([("queue", Ordered::text(queue)), ("input", input)]))
    }

    fn http(&mut self, task: &Task<'_>) -> StepMembers {
        let nested = task.input("http_request");
        let request = if nested.is_object() { nested.clone() } else { Json::Object(task.inputs()) };
        let Some((base, path, query)) = request["uri"].as_str().and_then(address) else {
            self.refuse(
                task,
                "its address is put together at run time: name a connection, and give the path",
            );
            return StepMembers::new();
        };
        let method = request["method"].as_str().unwrap_or("GET").to_ascii_lowercase();
        if !["get", "head", "post", "put", "patch", "delete"].contains(&method.as_str()) {
            self.refuse(task, format!("`{method}` is no method that a step can use"));
            return StepMembers::new();
        }
        let mut members = one("url", Ordered::text(base));
        members.push((method.clone(), self.argument(task, &Json::String(path))));
        if !query.is_empty() {
            members.push(("query".to_owned(), self.argument(task, &Json::Object(query))));
        }
        members.extend(self.headers(task, &request));
        if !request["body"].is_null() && !matches!(method.as_str(), "get" | "head") {
            members.push(("json".to_owned(), self.argument(task, &request["body"])));
        }
        if !matches!(method.as_str(), "get" | "head") {
            self.note(
                task,
                "without a connection the call is never repeated: give it one (`on`) whose profile has a key",
            );
        }
        one("http", Ordered::Object(members))
    }

    /// Question marks become names, which are bound in their order.
    fn sql(&mut self, task: &Task<'_>) -> StepMembers {
        let text = |name: &str| task.input(name).as_str().filter(|text| !text.contains("${"));
        let connection = text("connectionId").or_else(|| text("integrationName"));
        let (Some(connection), Some(statement)) = (connection, text("statement")) else {
            let why = "its statement or connection is put together at run time: name the connection, and give values in `parameters`";
            self.refuse(task, why);
            return StepMembers::new();
        };
        let parameters = task.input("parameters").as_array().cloned().unwrap_or_default();
        let (statement, count) = with_names(statement);
        if count != parameters.len() {
            let why = format!(
                "its statement has {count} question marks, and {} parameters are given",
                parameters.len()
            );
            self.refuse(task, why);
            return StepMembers::new();
        }
        let is_read = task.input("type").as_str().is_none_or(|kind| kind.eq_ignore_ascii_case("SELECT"));
        let (member, keep) = match is_read {
            true => ("read", ("result", "{{ this.rows }}")),
            false => ("run", ("update_count", "{{ this.affected }}")),
        };
        let mut members = one("on", Ordered::text(name(connection)));
        members.extend(one(member, Ordered::text(statement)));
        if count > 0 {
            let named = parameters.into_iter().enumerate().map(|(n, value)| (format!("p{}", n + 1), value));
            members.extend(one("args", self.argument(task, &Json::Object(named.collect()))));
        }
        if let Some(expected) = task.input("expectedUpdateCount").as_i64().filter(|_| !is_read) {
            members.extend(one("expect", Ordered::Plain(expected.into())));
        }
        self.note(task, "`on` names a connection of the server's configuration that is the database");
        let mut all = one("sql", Ordered::Object(members));
        all.extend(one("keep", Ordered::object([(keep.0, Ordered::text(keep.1))])));
        all
    }

    /// The kind of the sink becomes the name of the connection, and the rest the subject, as Conductor's own queues are named.
    fn event(&mut self, task: &Task<'_>) -> StepMembers {
        let sink = task.json["sink"].as_str().unwrap_or_default();
        let (kind, queue) = sink.split_once(':').unwrap_or((sink, ""));
        if kind.is_empty() || kind.contains('$') {
            self.refuse(task, "its sink is chosen at run time: name the connection in `on` of a `publish`");
            return StepMembers::new();
        }
        let subject = match (kind, queue) {
            ("conductor", "") => format!("{}:{}", self.workflow, name(&task.reference)),
            ("conductor", queue) => format!("{}:{queue}", self.workflow),
            (_, "") => name(&task.reference),
            (_, queue) => queue.to_owned(),
        };
        let on = name(kind);
        let note = format!(
            "configure the connection `{on}`: a broker of the kind `nats`, or a database, whose table `semel_queue` has the message"
        );
        self.note(task, &note);
        let subject = self.argument(task, &Json::String(subject));
        let data = self.arguments(task, &[]);
        one("publish", Ordered::object([("on", Ordered::text(on)), ("subject", subject), ("data", data)]))
    }

    fn headers(&mut self, task: &Task<'_>, request: &Json) -> Option<(String, Ordered)> {
        let headers = request["headers"].as_object()?;
        let (secret, open): (Vec<_>, Vec<_>) =
            headers.iter().partition(|(name, _)| CREDENTIALS.contains(&name.to_ascii_lowercase().as_str()));
        for (name, _) in secret {
            self.note(task, &format!("the header `{name}` is left out: credentials belong to a connection"));
        }
        let open: Map<String, Json> =
            open.into_iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        (!open.is_empty()).then(|| ("headers".to_owned(), self.argument(task, &Json::Object(open))))
    }

    fn child(&mut self, task: &Task<'_>, params: &Json, waits: bool) -> StepMembers {
        let Some(run) = params["name"].as_str().filter(|run| !run.contains("${")) else {
            self.refuse(
                task,
                "the workflow is chosen at run time: use a `switch` with those that are possible",
            );
            return StepMembers::new();
        };
        let run = match &params["version"] {
            Json::Number(version) => format!("{}@{version}", name(run)),
            _ => name(run),
        };
        let input = if waits { self.arguments(task, &[]) } else { self.argument(task, &params["input"]) };
        let mut members = one("run", Ordered::text(run));
        members.push(("input".to_owned(), input));
        if !waits {
            members.push(("wait".to_owned(), Ordered::Plain(false.into())));
        }
        members.push(("later".to_owned(), Ordered::Plain(true.into())));
        one("child", Ordered::Object(members))
    }

    fn wait(&mut self, task: &Task<'_>) -> StepMembers {
        if let Some(duration) = task.input("duration").as_str() {
            return match duration_of(duration) {
                Some(duration) => one("wait", Ordered::text(duration)),
                None => {
                    self.refuse(task, format!("`{duration}` is not a duration that is known now"));
                    StepMembers::new()
                }
            };
        }
        if task.input("until").is_string() {
            let until = self.argument(task, task.input("until"));
            self.note(task, "`until` is a time in RFC 3339 here");
            return one("wait", Ordered::object([("until", until)]));
        }
        self.note(task, "it waits for a delivery to the token that stands in the step");
        let token = Ordered::text(format!("{{{{ run.id }}}}:{}", name(&task.reference)));
        one("event", Ordered::object([("token", token)]))
    }

    fn human(&mut self, task: &Task<'_>) -> StepMembers {
        self.note(task, "the form accepts anything; describe the answer in `form`");
        let title = Ordered::text(name(task.json["name"].as_str().unwrap_or(&task.reference)));
        let content = self.arguments(task, &[]);
        let form = Ordered::Object(Vec::new());
        one("human", Ordered::object([("title", title), ("form", form), ("content", content)]))
    }

    fn terminate(&mut self, task: &Task<'_>) -> StepMembers {
        match task.input("terminationStatus").as_str() {
            Some("COMPLETED") => one("return", self.argument(task, task.input("workflowOutput"))),
            Some("FAILED" | "TERMINATED") => {
                let reason =
                    task.input("terminationReason").as_str().unwrap_or("the workflow was terminated");
                let message = self.argument(task, &Json::String(reason.to_owned()));
                one("fail", Ordered::object([("code", Ordered::text("TERMINATED")), ("message", message)]))
            }
            _ => {
                self.refuse(
                    task,
                    "its status is chosen at run time, or is none of COMPLETED, FAILED and TERMINATED: use a `switch`",
                );
                StepMembers::new()
            }
        }
    }
}

/// Base address, path and query of an address whose host is known.
fn address(uri: &str) -> Option<(String, String, Map<String, Json>)> {
    let (scheme, rest) = uri.split_once("://").filter(|(scheme, _)| matches!(*scheme, "http" | "https"))?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (host, rest) = rest.split_at(end);
    if host.is_empty() || host.contains('$') || host.contains('@') {
        return None;
    }
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let query = pairs.map(|(name, value)| (name.to_owned(), Json::String(value.to_owned()))).collect();
    let path = if path.is_empty() { "/" } else { path };
    Some((format!("{scheme}://{host}"), path.to_owned(), query))
}

/// `1 days 2 hours` or `10s` as `1d2h` or `10s`.
fn duration_of(text: &str) -> Option<String> {
    let (mut out, mut rest) = (String::new(), text.trim());
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let after = rest[digits..].trim_start();
        let letters = after.bytes().take_while(u8::is_ascii_alphabetic).count();
        let unit = match &after[..letters] {
            "s" | "sec" | "secs" | "second" | "seconds" => 's',
            "m" | "min" | "mins" | "minute" | "minutes" => 'm',
            "h" | "hr" | "hrs" | "hour" | "hours" => 'h',
            "d" | "day" | "days" => 'd',
            _ => return None,
        };
        out.push_str(rest.get(..digits).filter(|digits| !digits.is_empty())?);
        out.push(unit);
        rest = after[letters..].trim_start();
    }
    (!out.is_empty()).then_some(out)
}
