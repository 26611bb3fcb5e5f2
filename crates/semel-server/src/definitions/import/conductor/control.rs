//! Conditions, branches and loops.

use serde_json::Value as Json;

use super::javascript::{self, Js};
use super::paths::{List, Nesting, branch_name, lists, subscripts};
use super::tasks::{StepMembers, one};
use super::{Conversion, Ordered, Task};

/// Passes of a loop whose number the document does not say.
const MOST: u64 = 1_000;
/// Largest number of passes that a loop can have.
const MOST_PASSES: u64 = 10_000;
/// Evaluators of JavaScript.
const EVALUATORS: [&str; 3] = ["javascript", "graaljs", "nashorn"];

impl Conversion {
    pub(super) fn switch(&mut self, task: &Task<'_>) -> StepMembers {
        let place = self.places.of_task(&task.reference);
        let expression = match self.decides(task, &place) {
            Ok(expression) => expression,
            Err(reason) => {
                self.refuse(task, reason);
                return StepMembers::new();
            }
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

    /// The expression whose text is the name of the case.
    fn decides(&mut self, task: &Task<'_>, place: &Nesting) -> Result<String, String> {
        let script = match (task.json["evaluatorType"].as_str(), task.json["caseExpression"].as_str()) {
            (_, Some(script)) => Some(script),
            (None | Some("value-param"), None) => None,
            (Some(_), None) => Some(task.json["expression"].as_str().unwrap_or_default()),
        };
        let unknown = "its condition is JavaScript: write the cases as expressions in `switch`";
        let Some(script) = script else {
            let parameter = task.json["expression"].as_str().or_else(|| task.json["caseValueParam"].as_str());
            let value = parameter.map(|parameter| task.input(parameter)).filter(|value| value.is_string());
            return self.of_input(task, value.ok_or(unknown)?, &[], place);
        };
        let value = javascript::read(script).ok_or(unknown)?;
        Ok(format!("({})", self.computed(task, &value, place)?))
    }

    pub(super) fn fork(&mut self, task: &Task<'_>) -> StepMembers {
        let branches = lists(task.json).into_iter().filter(|(_, tasks)| !tasks.is_empty());
        let branches =
            branches.map(|(_, tasks)| (branch_name(tasks), Ordered::List(self.list(tasks)))).collect();
        one("parallel", Ordered::Object(branches))
    }

    pub(super) fn do_while(&mut self, task: &Task<'_>) -> StepMembers {
        let condition = task.json["loopCondition"].as_str().unwrap_or_default().trim();
        let block = match (task.input("items"), condition) {
            (Json::Null, _) => self.until(task, condition),
            (items, "") => self.each(task, items),
            _ => Err("it has `items` and a condition: use a `for_each`, whose steps have an `if`".to_owned()),
        };
        let steps = lists(task.json).into_iter().flat_map(|(_, tasks)| self.list(tasks)).collect();
        match block {
            Ok(block) => vec![block, ("steps".to_owned(), Ordered::List(steps))],
            Err(reason) => {
                self.refuse(task, reason);
                StepMembers::new()
            }
        }
    }

    fn until(&mut self, task: &Task<'_>, condition: &str) -> Result<(String, Ordered), String> {
        let value = javascript::read(condition)
            .ok_or("its condition is JavaScript: write it as `until` of a `loop`")?;
        let value = simplified(value);
        let most = passes(task, &value).unwrap_or_else(|| {
            self.note(task, "the loop has `most: 1000`; say how many passes there can be");
            MOST
        });
        // It is looked at after each pass, and sees the steps of the pass.
        let mut place = self.places.of_task(&task.reference);
        place.push((task.reference.clone(), List::Body));
        let goes_on = self.computed(task, &value, &place)?;
        let until = Ordered::text(format!("{{{{ not ({goes_on}) }}}}"));
        let most = Ordered::Plain(most.clamp(1, MOST_PASSES).into());
        Ok(("loop".to_owned(), Ordered::object([("until", until), ("most", most)])))
    }

    fn each(&mut self, task: &Task<'_>, items: &Json) -> Result<(String, Ordered), String> {
        let is_path = items.as_str().is_some_and(|text| text.starts_with("${") && text.ends_with('}'));
        if !is_path && !items.is_array() {
            return Err("its `items` are no list: name the list in `in` of a `for_each`".to_owned());
        }
        let items = self.argument(task, items);
        let name = Ordered::text(self.places.element(&task.reference));
        Ok(("for_each".to_owned(), Ordered::object([("in", items), ("as", name)])))
    }

    /// INLINE and LAMBDA: what only chooses between values is a `set`, whose member `result` it is.
    pub(super) fn inline(&mut self, task: &Task<'_>) -> StepMembers {
        let script =
            [task.input("expression"), task.input("scriptExpression")].into_iter().find_map(Json::as_str);
        let is_known = task.input("evaluatorType").as_str().is_none_or(|kind| EVALUATORS.contains(&kind));
        let value = script.filter(|_| is_known).and_then(javascript::read);
        let Some(value) = value else {
            self.refuse(task, "it is JavaScript: write it as expressions in `set`, or as a `worker`");
            return StepMembers::new();
        };
        let place = self.places.of_task(&task.reference);
        match self.shaped(task, value, &place) {
            Ok(value) => one("set", Ordered::object([("result", value)])),
            Err(reason) => {
                self.refuse(task, reason);
                StepMembers::new()
            }
        }
    }

    /// The value of a script as a value of the definition.
    fn shaped(&mut self, task: &Task<'_>, value: Js, place: &Nesting) -> Result<Ordered, String> {
        match value {
            Js::Object(members) => {
                let shaped =
                    members.into_iter().map(|(name, value)| Ok((name, self.shaped(task, value, place)?)));
                Ok(Ordered::Object(shaped.collect::<Result<_, String>>()?))
            }
            Js::Text(text) => Ok(Ordered::text(text)),
            Js::Flag(flag) => Ok(Ordered::Plain(flag.into())),
            Js::Choice(choice) => match *choice {
                (when, Js::Object(then), Js::Object(otherwise)) => {
                    let names = |members: &[(String, Js)]| {
                        members.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>()
                    };
                    if names(&then) != names(&otherwise) {
                        return Err("it makes objects with different members: use a `switch`".to_owned());
                    }
                    let members = then.into_iter().zip(otherwise).map(|((name, then), (_, otherwise))| {
                        (name, Js::Choice(Box::new((when.clone(), then, otherwise))))
                    });
                    self.shaped(task, Js::Object(members.collect()), place)
                }
                choice => self.hole(task, &Js::Choice(Box::new(choice)), place),
            },
            value => self.hole(task, &value, place),
        }
    }

    fn hole(&mut self, task: &Task<'_>, value: &Js, place: &Nesting) -> Result<Ordered, String> {
        Ok(Ordered::text(format!("{{{{ {} }}}}", self.computed(task, value, place)?)))
    }

    /// The value of a script as an expression.
    fn computed(&mut self, task: &Task<'_>, value: &Js, place: &Nesting) -> Result<String, String> {
        Ok(match value {
            Js::Number(number) => number.clone(),
            Js::Text(text) => Json::String(text.clone()).to_string(),
            Js::Flag(flag) => flag.to_string(),
            Js::Path(parts) => self.of_script(task, parts, place)?,
            Js::Length(parts) => format!("{}|length", self.of_script(task, parts, place)?),
            Js::Not(inner) => format!("not ({})", self.computed(task, inner, place)?),
            Js::Both(operator, left, right) => {
                format!(
                    "{} {operator} {}",
                    self.operand(task, left, place)?,
                    self.operand(task, right, place)?
                )
            }
            Js::Choice(choice) => {
                let (when, then, otherwise) = &**choice;
                let then = self.operand(task, then, place)?;
                let when = self.operand(task, when, place)?;
                format!("{then} if {when} else {}", self.operand(task, otherwise, place)?)
            }
            Js::Object(_) => return Err("it compares objects: use a `worker`".to_owned()),
        })
    }

    /// A part of an expression, in parentheses if it has parts of its own.
    fn operand(&mut self, task: &Task<'_>, value: &Js, place: &Nesting) -> Result<String, String> {
        let inner = self.computed(task, value, place)?;
        let is_whole = !matches!(value, Js::Not(_) | Js::Both(..) | Js::Choice(_));
        Ok(if is_whole { inner } else { format!("({inner})") })
    }

    /// What a script reads by `$`: an input parameter, or, in the condition of a loop, the loop or a task of it.
    fn of_script(&mut self, task: &Task<'_>, parts: &[String], place: &Nesting) -> Result<String, String> {
        let (first, rest) = parts.split_first().ok_or("it reads everything at once: name a parameter")?;
        let is_loop = task.kind() == "DO_WHILE";
        if is_loop && *first == task.reference && rest == ["iteration"] {
            return Ok("index + 1".to_owned());
        }
        if let Some(value) = task.inputs().get(first) {
            return self.of_input(task, value, rest, place);
        }
        let around = (task.reference.clone(), List::Body);
        if is_loop && self.places.of_task(first).contains(&around) {
            return self.places.output(first, rest, place);
        }
        Err(format!("`$.{first}` is no input parameter"))
    }

    /// What is at a path in the value of an input parameter.
    fn of_input(
        &mut self,
        task: &Task<'_>,
        value: &Json,
        rest: &[String],
        place: &Nesting,
    ) -> Result<String, String> {
        match value {
            Json::String(text) if text.contains("${") => {
                let path = text.strip_prefix("${").and_then(|path| path.strip_suffix('}'));
                let path = path.filter(|path| !path.contains("${"));
                let path = path.ok_or_else(|| format!("`{text}` is put together: do it in a step before"))?;
                let expression = self.places.expression(path.trim(), (place, task.has_effect()))?;
                Ok(expression + &subscripts(rest))
            }
            Json::Object(_) | Json::Array(_) => {
                let inner = rest.split_first().and_then(|(first, rest)| {
                    let inner = first.parse::<usize>().ok().map_or(&value[first], |index| &value[index]);
                    Some((inner, rest)).filter(|(inner, _)| !inner.is_null())
                });
                let (inner, rest) = inner.ok_or("it reads a part of a parameter that is not there")?;
                self.of_input(task, inner, rest, place)
            }
            value if rest.is_empty() && !value.is_null() => Ok(value.to_string()),
            _ => Err("it reads a part of a parameter that is not there".to_owned()),
        }
    }
}

/// `x ? true : false` as `x`.
fn simplified(value: Js) -> Js {
    match value {
        Js::Choice(choice) => match *choice {
            (when @ (Js::Both(..) | Js::Not(_)), Js::Flag(true), Js::Flag(false)) => when,
            choice => Js::Choice(Box::new(choice)),
        },
        value => value,
    }
}

/// Number of passes that a condition says, if it says one.
fn passes(task: &Task<'_>, value: &Js) -> Option<u64> {
    let Js::Both("<" | "<=", left, right) = value else { return None };
    let (Js::Path(parts), Js::Number(count)) = (&**left, &**right) else { return None };
    let is_iteration = parts.len() == 2 && parts[0] == task.reference && parts[1] == "iteration";
    count.parse().ok().filter(|_| is_iteration)
}
