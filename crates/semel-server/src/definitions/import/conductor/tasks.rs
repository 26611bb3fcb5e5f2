//! Task by task: what each becomes.

use serde_json::{Map, Value as Json};

use super::condition::{self, Comparison, Side};
use super::paths::{branch_name, lists, name};
use super::{Conversion, Ordered, Task, models};

/// Members of a step.
pub(super) type StepMembers = Vec<(String, Ordered)>;

/// Headers that belong to a connection.
const CREDENTIALS: [&str; 3] = ["authorization", "cookie", "proxy-authorization"];
/// Passes of a loop whose number the document does not say.
const MOST: i64 = 1_000;
/// Tasks of the language that the server does not have yet.
const ABSENT: [(&str, &str); 2] = [("EVENT", "publish"), ("KAFKA_PUBLISH", "publish")];
/// Tasks that have no counterpart, and what to do instead.
const REFUSED: [(&str, &str); 8] = [
    (
        "LIST_MCP_TOOLS",
        "an `agent` lists the tools of its servers itself: write `{mcp: …}` among its `tools`",
    ),
    ("INLINE", "it is JavaScript: write it as expressions in `set`, or as a `worker`"),
    ("LAMBDA", "it is JavaScript: write it as expressions in `set`, or as a `worker`"),
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
            kind => {
                let reason = match (find(&ABSENT, kind), find(&REFUSED, kind)) {
                    (Some(ours), _) => format!("it becomes `{ours}`, which this server does not have yet"),
                    (_, Some(reason)) => reason.to_owned(),
                    _ => format!("tasks of type {kind} have no counterpart: write it as a `worker`"),
                };
                self.refuse(task, reason);
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

    fn switch(&mut self, task: &Task<'_>) -> StepMembers {
        let parameter = task.json["expression"].as_str().or_else(|| task.json["caseValueParam"].as_str());
        let by_value = matches!(task.json["evaluatorType"].as_str(), None | Some("value-param"));
        let value = parameter.map(|parameter| task.input(parameter)).and_then(Json::as_str);
        let (true, Some(value)) = (by_value && task.json["caseExpression"].is_null(), value) else {
            self.refuse(task, "its condition is JavaScript: write the cases as expressions in `switch`");
            return StepMembers::new();
        };
        let place = self.places.of_task(&task.reference);
        let path = value.strip_prefix("${").and_then(|path| path.strip_suffix('}'));
        let expression = match path.map(|path| self.places.expression(path.trim(), &place)) {
            Some(Ok(expression)) => expression,
            Some(Err(reason)) => {
                self.refuse(task, reason);
                return StepMembers::new();
            }
            None => Json::String(value.to_owned()).to_string(),
        };
        let names =
            task.json["decisionCases"].as_object().into_iter().flatten().map(|(name, _)| Some(name.as_str()));
        let names: Vec<Option<&str>> = names.chain([None]).collect();
        let mut cases = Vec::new();
        for (when, (_, tasks)) in names.into_iter().zip(lists(task.json)) {
            if tasks.is_empty() {
                if when.is_some() {
                    self.refuse(task, "one of its cases is empty: leave it out, or say what is done");
                }
                continue;
            }
            let mut members = StepMembers::new();
            if let Some(when) = when {
                // Conductor compares texts, whatever the type of the value is.
                let when = Json::String(when.to_owned());
                members.push((
                    "when".to_owned(),
                    Ordered::text(format!("{{{{ {expression}|string == {when} }}}}")),
                ));
            }
            members.push(("steps".to_owned(), Ordered::List(self.list(tasks))));
            cases.push(Ordered::Object(members));
        }
        one("switch", Ordered::List(cases))
    }

    fn fork(&mut self, task: &Task<'_>) -> StepMembers {
        let branches = lists(task.json).into_iter().filter(|(_, tasks)| !tasks.is_empty());
        let branches =
            branches.map(|(_, tasks)| (branch_name(tasks), Ordered::List(self.list(tasks)))).collect();
        one("parallel", Ordered::Object(branches))
    }

    fn do_while(&mut self, task: &Task<'_>) -> StepMembers {
        let condition = task.json["loopCondition"].as_str().unwrap_or_default();
        let Some(Comparison { left, operator, right }) =
            condition::read(condition, &task.reference, &task.inputs())
        else {
            self.refuse(task, "its condition is JavaScript: write it as `until` of a `loop`");
            return StepMembers::new();
        };
        let most = match (&left, operator, &right) {
            (Side::Iteration, "<" | "<=", Side::Plain(count)) => count.parse().unwrap_or(MOST),
            _ => {
                self.note(task, "the loop has `most: 1000`; say how many passes there can be");
                MOST
            }
        };
        let (left, right) = (self.side(task, left), self.side(task, right));
        let until = Ordered::text(format!("{{{{ not ({left} {operator} {right}) }}}}"));
        let most = Ordered::Plain(most.clamp(1, 10_000).into());
        let steps = lists(task.json).into_iter().flat_map(|(_, tasks)| self.list(tasks)).collect();
        let mut members = one("loop", Ordered::object([("until", until), ("most", most)]));
        members.push(("steps".to_owned(), Ordered::List(steps)));
        members
    }

    fn side(&mut self, task: &Task<'_>, side: Side) -> String {
        let place = self.places.of_task(&task.reference);
        match side {
            Side::Iteration => "index + 1".to_owned(),
            Side::Plain(text) => text,
            Side::Input(Json::String(text)) => {
                let path = text.strip_prefix("${").and_then(|path| path.strip_suffix('}'));
                let expression = path.map(|path| self.places.expression(path.trim(), &place));
                match expression {
                    Some(Ok(expression)) => expression,
                    Some(Err(reason)) => {
                        self.refuse(task, reason);
                        String::new()
                    }
                    None => Json::String(text).to_string(),
                }
            }
            Side::Input(value) => value.to_string(),
        }
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
            Some("FAILED") => {
                let reason =
                    task.input("terminationReason").as_str().unwrap_or("the workflow was terminated");
                let message = self.argument(task, &Json::String(reason.to_owned()));
                one("fail", Ordered::object([("code", Ordered::text("TERMINATED")), ("message", message)]))
            }
            _ => {
                self.refuse(
                    task,
                    "its status is chosen at run time, or is neither COMPLETED nor FAILED: use a `switch`",
                );
                StepMembers::new()
            }
        }
    }
}

fn find<'a>(list: &[(&str, &'a str)], kind: &str) -> Option<&'a str> {
    list.iter().find(|(name, _)| *name == kind).map(|(_, found)| *found)
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
