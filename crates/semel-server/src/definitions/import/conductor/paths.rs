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
    /// Whether it is a loop.
    repeats: bool,
    /// Whether it is a loop over a list.
    has_items: bool,
}

/// Where an expression is, and whether `effect.key` is known there.
pub(super) type Seen<'a> = (&'a Nesting, bool);

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

/// The tasks of a list that become steps: joins do not, as a block is left when all of it has ended. That a join waits for one branch of
/// several makes no difference behind a choice, of which only one is there.
pub(super) fn without_joins(tasks: &[Json]) -> Vec<&Json> {
    let is_choice = |task: &Json| matches!(task["type"].as_str(), Some("SWITCH" | "DECISION"));
    let before = std::iter::once(None).chain(tasks.iter().map(Some));
    let is_step = |(task, before): &(&Json, Option<&Json>)| match task["type"].as_str() {
        Some("JOIN") => false,
        Some("EXCLUSIVE_JOIN") => !before.is_some_and(is_choice),
        _ => true,
    };
    tasks.iter().zip(before).filter(is_step).map(|(task, _)| task).collect()
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
        let steps = without_joins(tasks);
        for (index, task) in steps.iter().copied().enumerate() {
            let Some(reference) = task["taskReferenceName"].as_str() else { continue };
            let repeats = task["type"] == "DO_WHILE";
            let known = KnownTask {
                place: place.clone(),
                last: index + 1 == steps.len(),
                output: output_of(task),
                repeats,
                has_items: repeats && !task["inputParameters"]["items"].is_null(),
            };
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
                KnownTask {
                    place: place.clone(),
                    last: false,
                    output: member_names,
                    repeats: false,
                    has_items: false,
                },
            );
        }
    }

    /// The lists around a task.
    pub(super) fn of_task(&self, reference: &str) -> Nesting {
        self.tasks.get(reference).map(|known| known.place.clone()).unwrap_or_default()
    }

    /// The name of the element in the passes of a loop over a list.
    pub(super) fn element(&self, reference: &str) -> String {
        let place = self.of_task(reference);
        let around =
            place.iter().filter(|(block, list)| *list == List::Body && self.has_items(block)).count();
        if around == 0 { "item".to_owned() } else { format!("item{}", around + 1) }
    }

    fn has_items(&self, reference: &str) -> bool {
        self.tasks.get(reference).is_some_and(|known| known.has_items)
    }

    /// A text with its `${…}` translated.
    pub(super) fn text(&self, text: &str, place: Seen<'_>) -> Result<String, String> {
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
    pub(super) fn expression(&self, path: &str, (place, has_effect): Seen<'_>) -> Result<String, String> {
        if let Some(list) = path.strip_suffix(".length()") {
            return Ok(format!("({}|length)", self.expression(list, (place, has_effect))?));
        }
        let unknown = || format!("`${{{path}}}` has no counterpart; compute it in a step");
        let parts = parts(path).ok_or_else(unknown)?;
        let part = |index: usize| parts.get(index).map(String::as_str);
        match (part(0), part(1)) {
            (Some("workflow"), Some("input")) => Ok(format!("input{}", subscripts(&parts[2..]))),
            (Some("CPEWF_TASK_ID"), None) if has_effect => Ok("effect.key".to_owned()),
            (Some("CPEWF_TASK_ID"), None) => {
                Err("`${CPEWF_TASK_ID}`: only tasks with an effect have a key; record an id with `uuid`"
                    .to_owned())
            }
            (Some("workflow"), Some("variables")) => Ok(format!("vars{}", subscripts(&parts[2..]))),
            (Some("workflow"), Some("workflowId")) => Ok("run.id".to_owned()),
            (Some("workflow"), Some("correlationId")) => Ok("run.key".to_owned()),
            (Some("workflow"), Some("output")) => Err("a workflow cannot read its own output".to_owned()),
            (Some("workflow") | None, _) => Err(unknown()),
            (Some(task), Some("output")) => self.output(task, &parts[2..], place),
            (Some(task), _) => Err(format!("`${{{path}}}`: only the output of `{task}` can be read")),
        }
    }

    /// What is at a path in the output of a task.
    pub(super) fn output(&self, task: &str, rest: &[String], place: &Nesting) -> Result<String, String> {
        let known = self
            .tasks
            .get(task)
            .ok_or_else(|| format!("it reads from `{task}`, and there is no such task"))?;
        if let Some(found) =
            rest.first().filter(|_| known.repeats).and_then(|_| self.of_loop(task, rest, place))
        {
            return found;
        }
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

impl Places {
    /// What a loop says about its passes; none if the path is about something else.
    fn of_loop(&self, task: &str, rest: &[String], place: &Nesting) -> Option<Result<String, String>> {
        let bodies = || place.iter().filter(|(_, list)| *list == List::Body).map(|(block, _)| block.as_str());
        let (is_inside, is_innermost) =
            (bodies().any(|block| block == task), bodies().next_back() == Some(task));
        let (first, rest) = rest.split_first()?;
        let passes = || self.output(task, &[], place);
        Some(match first.as_str() {
            "iteration" if is_innermost => Ok("(index + 1)".to_owned()),
            "iteration" if !is_inside => passes().map(|passes| format!("({passes}|length)")),
            "loopIndex" if is_innermost => Ok("index".to_owned()),
            "loopItem" if is_inside && self.has_items(task) => Ok(self.element(task) + &subscripts(rest)),
            "iteration" | "loopIndex" | "loopItem" => {
                Err(format!("it reads `{first}` of `{task}`, which is not known at this place"))
            }
            pass => {
                let index = pass.parse::<usize>().ok()?.checked_sub(1)?;
                let inner = rest.split_first().filter(|(inner, _)| {
                    let place = self.of_task(inner);
                    place.last().is_some_and(|(block, _)| block == task) && self.tasks[*inner].last
                });
                match inner {
                    Some((inner, rest)) if !is_inside => (self.tasks[inner].output)(inner, rest)
                        .and_then(|rest| Ok(format!("{}[{index}]{}", passes()?, subscripts(&rest)))),
                    _ => Err(format!("of a pass of `{task}`, only the output of its last task can be read")),
                }
            }
        })
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
        Some("EVENT") => event_output,
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

/// The id of the message is all that is known of it.
fn event_output(task: &str, rest: &[String]) -> Result<Vec<String>, String> {
    match rest {
        [id] if id == "event_produced" => Ok(vec!["id".to_owned()]),
        _ => Err(format!("of `{task}`, only `event_produced` can be read")),
    }
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

pub(super) fn subscripts(parts: &[String]) -> String {
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
