//! `${…}` paths: where tasks are, and what an expression calls them from elsewhere.

use std::collections::HashMap;

use serde_json::Value as Json;

use super::models;

/// The lists around a task, from the outside: the block's reference name and what the list is to it.
pub(super) type Nesting = Vec<(String, List)>;

/// What a list of tasks is to the block around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum List {
    /// Branch of this name.
    Branch(String),
    /// Case of a switch.
    Case(usize),
    /// Body of a loop.
    Body,
}

/// Where a task is, and what its output looks like.
#[derive(Clone, Debug)]
struct KnownTask {
    place: Nesting,
    /// Whether it is the last in its list, so that its value is that of the list.
    last: bool,
    output: Translation,
}

/// All tasks of a document.
#[derive(Debug, Default)]
pub(super) struct Places {
    tasks: HashMap<String, KnownTask>,
}

/// A name of the language: other characters become `_`.
pub(super) fn name(text: &str) -> String {
    let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let name: String = text.chars().map(|c| if known(c) { c } else { '_' }).take(100).collect();
    match name.as_str() {
        "" => "_".to_owned(),
        "undo" | "catch" | "finally" => format!("{name}_"),
        _ => name,
    }
}

/// The lists inside a task.
pub(super) fn lists(task: &Json) -> Vec<(List, &[Json])> {
    let mut lists: Vec<(List, &[Json])> = Vec::new();
    match task["type"].as_str() {
        Some("FORK_JOIN") => {
            for branch in task["forkTasks"].as_array().into_iter().flatten().filter_map(Json::as_array) {
                lists.push((List::Branch(branch_name(branch)), branch));
            }
        }
        Some("SWITCH" | "DECISION") => {
            let cases = task["decisionCases"].as_object().into_iter().flatten();
            let cases = cases.filter_map(|(_, tasks)| tasks.as_array());
            let otherwise = task["defaultCase"].as_array();
            lists.extend(
                cases
                    .chain(otherwise)
                    .enumerate()
                    .map(|(index, tasks)| (List::Case(index), tasks.as_slice())),
            );
        }
        Some("DO_WHILE") => {
            lists.extend(task["loopOver"].as_array().map(|tasks| (List::Body, tasks.as_slice())));
        }
        _ => {}
    }
    lists
}

/// The name of a branch: that of its last task, whose value the branch has.
pub(super) fn branch_name(branch: &[Json]) -> String {
    name(branch.last().and_then(|task| task["taskReferenceName"].as_str()).unwrap_or("empty"))
}

impl Places {
    pub(super) fn of(tasks: &[Json]) -> Self {
        let mut places = Self::default();
        places.add(tasks, &Vec::new());
        places
    }

    fn add(&mut self, tasks: &[Json], place: &Nesting) {
        let count = tasks.iter().filter(|task| task["type"] != "JOIN").count();
        for (index, task) in tasks.iter().filter(|task| task["type"] != "JOIN").enumerate() {
            let Some(reference) = task["taskReferenceName"].as_str() else { continue };
            let known = KnownTask { place: place.clone(), last: index + 1 == count, output: output_of(task) };
            self.tasks.insert(reference.to_owned(), known);
            for (list, inner) in lists(task) {
                let mut inside = place.clone();
                inside.push((reference.to_owned(), list));
                self.add(inner, &inside);
            }
        }
        for task in tasks.iter().filter(|task| task["type"] == "JOIN") {
            // What is read from a join is read from the task that it waited for.
            let Some(reference) = task["taskReferenceName"].as_str() else { continue };
            self.tasks.insert(
                reference.to_owned(),
                KnownTask { place: place.clone(), last: false, output: member_names },
            );
        }
    }

    /// The lists around a task.
    pub(super) fn of_task(&self, reference: &str) -> Nesting {
        self.tasks.get(reference).map(|known| known.place.clone()).unwrap_or_default()
    }

    /// A text with its `${…}` translated.
    pub(super) fn text(&self, text: &str, place: &Nesting) -> Result<String, String> {
        let (mut out, mut rest) = (String::new(), text);
        while let Some((before, after)) = rest.split_once("${") {
            out.push_str(&literal(before));
            let (path, after) = after.split_once('}').ok_or_else(|| format!("`{text}` has no `}}`"))?;
            out.extend(["{{ ", &self.expression(path.trim(), place)?, " }}"]);
            rest = after;
        }
        out.push_str(&literal(rest));
        Ok(out)
    }

    /// The expression that reads what a path reads.
    pub(super) fn expression(&self, path: &str, place: &Nesting) -> Result<String, String> {
        let unknown = || format!("`${{{path}}}` has no counterpart; compute it in a step");
        let parts = parts(path).ok_or_else(unknown)?;
        let part = |index: usize| parts.get(index).map(String::as_str);
        match (part(0), part(1)) {
            (Some("workflow"), Some("input")) => Ok(format!("input{}", subscripts(&parts[2..]))),
            (Some("CPEWF_TASK_ID"), None) => Ok("effect.key".to_owned()),
            (Some("workflow"), Some("variables")) => Ok(format!("vars{}", subscripts(&parts[2..]))),
            (Some("workflow"), Some("workflowId")) => Ok("run.id".to_owned()),
            (Some("workflow"), Some("correlationId")) => Ok("run.key".to_owned()),
            (Some("workflow"), Some("output")) => Err("a workflow cannot read its own output".to_owned()),
            (Some("workflow") | None, _) => Err(unknown()),
            (Some(task), Some("output")) => self.output(task, &parts[2..], place),
            (Some(task), _) => Err(format!("`${{{path}}}`: only the output of `{task}` can be read")),
        }
    }

    fn output(&self, task: &str, rest: &[String], place: &Nesting) -> Result<String, String> {
        let known = self
            .tasks
            .get(task)
            .ok_or_else(|| format!("it reads from `{task}`, and there is no such task"))?;
        // The output of a join has the outputs of the tasks by their names.
        if let Some(inner) = rest.first().filter(|name| *name != task && self.tasks.contains_key(*name)) {
            return self.output(inner, &rest[1..], place);
        }
        let rest = (known.output)(task, rest)?;
        let shared = known.place.iter().zip(place).take_while(|(a, b)| a == b).count();
        let outside = &known.place[shared..];
        let Some((block, _)) = outside.first() else {
            return Ok(format!("steps{}{}", subscript(&name(task)), subscripts(&rest)));
        };
        if !known.last
            || outside.iter().skip(1).any(|(block, _)| !self.tasks.get(block).is_some_and(|block| block.last))
        {
            return Err(format!(
                "it reads from `{task}`, which is inside `{block}` and not its last task; return it from there"
            ));
        }
        let mut expression = format!("steps{}", subscript(&name(block)));
        for (_, list) in outside {
            match list {
                List::Branch(branch) => expression.push_str(&subscript(branch)),
                List::Case(_) => {}
                List::Body => expression = format!("({expression}|last)"),
            }
        }
        Ok(expression + &subscripts(&rest))
    }
}

/// Translates the path into the output of a task.
type Translation = fn(&str, &[String]) -> Result<Vec<String>, String>;

/// How the outputs of a task are read.
fn output_of(task: &Json) -> Translation {
    match task["type"].as_str() {
        Some("HTTP") => http_output,
        Some("LLM_CHAT_COMPLETE" | "LLM_TEXT_COMPLETE") => models::llm_output,
        Some("CALL_MCP_TOOL") => models::mcp_output,
        _ => member_names,
    }
}

/// Members have the names that they have in Conductor.
#[expect(clippy::unnecessary_wraps, reason = "other tasks have members without a counterpart")]
fn member_names(_: &str, rest: &[String]) -> Result<Vec<String>, String> {
    Ok(rest.to_vec())
}

/// Conductor's answer of HTTP is `response.{statusCode, headers, body}`.
fn http_output(task: &str, rest: &[String]) -> Result<Vec<String>, String> {
    let unknown = || {
        format!("of `{task}`, only `response.body`, `response.headers` and `response.statusCode` can be read")
    };
    if rest.first().is_none_or(|first| first != "response") {
        return Err(unknown());
    }
    let member = match rest.get(1).map(String::as_str) {
        Some("body") => "body",
        Some("headers") => "headers",
        Some("statusCode") => "status",
        _ => return Err(unknown()),
    };
    Ok(std::iter::once(member.to_owned()).chain(rest[2..].iter().cloned()).collect())
}

/// Braces that are no path must not become one.
fn literal(text: &str) -> String {
    text.replace("{{", "{{ '{{' }}").replace("{%", "{{ '{%' }}").replace("{#", "{{ '{#' }}")
}

/// The parts of a plain path: `a.b[0]['c d']`.
fn parts(path: &str) -> Option<Vec<String>> {
    let (mut parts, mut rest) = (Vec::new(), path);
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('[') {
            let (part, after) = inner.split_once(']')?;
            let part = part.trim().trim_matches(['\'', '"']);
            parts.push(part.to_owned());
            rest = after.strip_prefix('.').unwrap_or(after);
        } else {
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            parts.push(rest[..end].to_owned());
            let after = &rest[end..];
            rest = after.strip_prefix('.').unwrap_or(after);
        }
    }
    let plain = |part: &String| {
        !part.is_empty() && !part.contains(['*', '?', '(', '@', '\'', '"', '\\', '$', ':', ','])
    };
    (!parts.is_empty() && parts.iter().all(plain)).then_some(parts)
}

fn subscripts(parts: &[String]) -> String {
    parts.iter().map(|part| subscript(part)).collect()
}

fn subscript(part: &str) -> String {
    let word = part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    match part.parse::<u32>() {
        Ok(index) => format!("[{index}]"),
        Err(_) if word => format!(".{part}"),
        Err(_) => format!("['{part}']"),
    }
}
