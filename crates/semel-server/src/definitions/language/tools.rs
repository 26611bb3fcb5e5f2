//! Tools: what an `agent` may call, and what a `planner` chooses from. A tool is a task with a description of what it is for and of its
//! input, or a server whose tools are all meant.

use serde_json::{Map, Value as Json, json};

use super::{DefinedStep, LanguageReader, StepBody};
use crate::definitions::document::{Node, Value};
use crate::definitions::limits;
use crate::definitions::problem::{At, Problems};
use crate::definitions::schema::{self, InputSchema};
use crate::definitions::shape::{Field, Shape};
use crate::definitions::template::{Filled, check_members};
use crate::models::{TOOL_NAME, is_tool_name};
use crate::tasks;

/// Members that a tool has beside those of a step.
pub(crate) const TOOL: [Field; 2] = [
    Field::required("about", Shape::Fixed, "What the tool is for: the model chooses by it."),
    Field::new(
        "input",
        Shape::Any,
        "Arguments, read as `call`: a JSON Schema, or the types of the arguments by name, which are then all required.",
    ),
];

/// Members of a server whose tools are meant.
pub(crate) const SERVER: [Field; 2] = [
    Field::required("mcp", Shape::Name, "Connection of the kind `mcp`: its tools."),
    Field::new("only", Shape::List(&Shape::Fixed), "Names of the tools that are meant; all if absent."),
];

/// Tasks that say what the run itself does next: a model does not.
const NO_TOOLS: [&str; 3] = ["set", "return", "fail"];
/// Names of types that describe an argument in short.
const TYPES: [&str; 6] = ["string", "integer", "number", "boolean", "object", "array"];

/// The tools that a model may use.
#[derive(Debug, Default)]
pub struct ToolList {
    steps: Vec<DefinedStep>,
    details: Vec<ToolDetail>,
    /// MCP servers whose tools the model may use.
    pub servers: Vec<ToolServer>,
}

/// Description of a tool that is a task, beside its step.
#[derive(Debug)]
pub struct ToolDetail {
    /// Description of the tool for the model.
    pub about: String,
    /// Schema of the arguments that the model must give.
    pub input: InputSchema,
}

/// An MCP server whose tools the model may use.
#[derive(Debug)]
pub struct ToolServer {
    /// Connection of the server.
    pub connection: String,
    /// Names of the tools that the model may use; all tools of the server if absent.
    pub only: Option<Vec<String>>,
    /// Where the connection is named.
    pub at: At,
}

impl ToolList {
    /// The tools that are tasks, in the order of the document.
    pub fn steps(&self) -> impl Iterator<Item = (&DefinedStep, &ToolDetail)> {
        self.steps.iter().zip(&self.details)
    }

    /// The steps of the tools that are tasks.
    pub fn list(&self) -> &[DefinedStep] {
        &self.steps
    }
}

/// Reads a list of tools.
pub(in crate::definitions) fn tools(nodes: &[Node], at: &At, problems: &mut Problems) -> ToolList {
    let mut list = ToolList::default();
    let mut reader = LanguageReader { problems, steps: 0 };
    reader.bounded(nodes.len(), "tools", at);
    for (index, node) in nodes.iter().enumerate() {
        reader.tool(node, &at.element(index, node.place), &mut list);
    }
    list
}

impl LanguageReader<'_> {
    fn tool(&mut self, node: &Node, at: &At, list: &mut ToolList) {
        let Value::Object(members) = &node.value else {
            self.problems.structure(at, format!("a tool is an object, and this is {}", node.kind())).hint =
                Some("write `{name: …, about: …, input: {…}}` and a task, or `{mcp: …}`".to_owned());
            return;
        };
        if node.get("mcp").is_some_and(|server| matches!(server.value, Value::Text(_))) {
            list.servers.extend(self.server(node, at));
            return;
        }
        let is_own = |name: &str| TOOL.iter().any(|field| field.name == name);
        let (own, rest) = members.iter().cloned().partition(|member| is_own(&member.name));
        let own = Node { place: node.place, value: Value::Object(own) };
        check_members(&own, &TOOL, at, self.problems);
        let about = self.field(&own, &TOOL, "about", at);
        let input = self.tool_input(&own, at);
        let rest = Node { place: node.place, value: Value::Object(rest) };
        let Some(step) = self.step(&rest, at) else { return };
        self.check_tool(&step, list);
        let about = about.and_then(|about| about.text().map(str::to_owned)).unwrap_or_default();
        list.steps.push(step);
        list.details.push(ToolDetail { about, input });
    }

    fn check_tool(&mut self, step: &DefinedStep, list: &ToolList) {
        match &step.body {
            StepBody::Task(kind, _) if NO_TOOLS.contains(&kind.name) => {
                self.problems.structure(&step.at, format!("`{}` is no tool", kind.name)).hint =
                    Some("a tool is a task with a value, such as `http`, `worker` or `child`".to_owned());
            }
            StepBody::Task(..) | StepBody::Absent(_) | StepBody::Unknown => {}
            _ => {
                self.problems.structure(&step.at, "a block is no tool").hint =
                    Some("put it into a definition of its own, and call that with `child`".to_owned());
            }
        }
        if step.condition.is_some() || !step.undo.is_empty() {
            self.problems.structure(&step.at, "a tool has neither `if` nor `undo`").hint =
                Some("the model decides whether it is called".to_owned());
        }
        if !step.name.is_empty() && !is_tool_name(&step.name) {
            let message = format!("the name of a tool has at most {TOOL_NAME} characters");
            self.problems.meaning(&step.at, message);
        }
        if list.steps.iter().any(|other| other.name == step.name) && !step.name.is_empty() {
            let message = format!("there are two tools with the name `{}`", step.name);
            self.problems.meaning(&step.at, message).hint = Some("the model calls them by name".to_owned());
        }
    }

    fn server(&mut self, node: &Node, at: &At) -> Option<ToolServer> {
        check_members(node, &SERVER, at, self.problems);
        let named = self.field(node, &SERVER, "mcp", at)?;
        if tasks::find("mcp").is_none() {
            self.problems.meaning(&named.at, "this server was built without the task `mcp`").hint =
                Some("build it with `--features mcp`".to_owned());
        }
        let only = self.field(node, &SERVER, "only", at).and_then(|only| match only.value {
            Filled::List(names) => {
                Some(names.iter().filter_map(|name| name.text().map(str::to_owned)).collect())
            }
            _ => None,
        });
        Some(ToolServer { connection: named.text()?.to_owned(), only, at: named.at })
    }

    /// The schema of a tool's arguments.
    fn tool_input(&mut self, node: &Node, at: &At) -> InputSchema {
        let Some(input) = node.get("input") else { return InputSchema::new(of_types(&Map::new())) };
        let at = at.member("input", input.place);
        let plain = input.plain();
        let Json::Object(members) = &plain else {
            self.problems
                .structure(&at, format!("an object is expected, and this is {}", input.kind()))
                .hint = Some(
                "write the types of the arguments by name, such as `{customer: string}`, or a JSON Schema"
                    .to_owned(),
            );
            return InputSchema::new(of_types(&Map::new()));
        };
        if is_schema(members) {
            schema::check(input, &at, self.problems);
            return InputSchema::new(plain);
        }
        let mut properties = Map::new();
        for (name, value) in members {
            let schema = match value {
                Json::String(kind) if TYPES.contains(&kind.as_str()) => json!({"type": kind}),
                Json::Object(_) => value.clone(),
                _ => {
                    let place = input.get(name).map_or(input.place, |value| value.place);
                    let message =
                        format!("the type of an argument is one of {}, or a JSON Schema", TYPES.join(", "));
                    self.problems.structure(&at.member(name, place), message);
                    continue;
                }
            };
            properties.insert(name.clone(), schema);
        }
        match InputSchema::checked(of_types(&properties)) {
            Ok(schema) => schema,
            Err(why) => {
                self.problems.meaning(&at, why);
                InputSchema::new(of_types(&Map::new()))
            }
        }
    }
}

/// Whether an object is a JSON Schema itself, and not the types of arguments by name.
fn is_schema(members: &Map<String, Json>) -> bool {
    members.get("type").is_some_and(|kind| kind == "object")
        || members.get("properties").is_some_and(Json::is_object)
        || members.contains_key("$ref")
}

/// An object of these members, all of them required.
fn of_types(properties: &Map<String, Json>) -> Json {
    let required: Vec<_> = properties.keys().cloned().collect();
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

/// JSON Schema of a list of tools, for editors. `step` is that of a step.
pub(in crate::definitions) fn editor_schema(mut step: Json) -> Json {
    use crate::definitions::shape::{described, object_schema};
    let properties = step["properties"].as_object_mut().expect("properties are an object");
    for field in TOOL {
        properties.insert(field.name.to_owned(), described(field.shape.schema(), field.about));
    }
    let tool = json!({"anyOf": [object_schema(&SERVER), step]});
    json!({"type": "array", "items": tool, "minItems": 1, "maxItems": limits::BRANCHES})
}
