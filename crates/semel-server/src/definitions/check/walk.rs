//! Visits every step with what it can see.

use super::NameSet;
use super::scope::{Scope, Surroundings};
use crate::definitions::language::{
    Case, DefinedStep, Definition, ForEach, Loop, StepBody, ToolList, Try, databases, each_step,
};
use crate::definitions::problem::Problems;
use crate::definitions::schema::{self, InputSchema};
use crate::definitions::template::{Filled, Template};
use crate::tasks::{Checks, Class};

/// The check of one definition.
pub(super) struct Walk<'a> {
    definition: &'a Definition,
    known: Surroundings<'a>,
    hooks: Vec<&'a str>,
    problems: &'a mut Problems,
}

impl<'a> Walk<'a> {
    pub(super) fn new(definition: &'a Definition, problems: &'a mut Problems) -> Self {
        let mut steps = Vec::new();
        each_step(&definition.steps, "", &mut |step, around| {
            steps.push((step.name.as_str(), around.to_owned()));
        });
        let known = Surroundings { input: definition.input.as_ref().map(InputSchema::json), steps };
        let hooks = definition.hooks.iter().map(|(name, _)| name.as_str()).collect();
        Self { definition, known, hooks, problems }
    }

    pub(super) fn check(mut self) {
        let mut scope = Scope::default();
        for (_, token) in &self.definition.hooks {
            self.template(token, &scope);
        }
        self.steps(&self.definition.steps, &mut scope);
        if let Some(returns) = &self.definition.returns {
            self.template(returns, &scope);
        }
    }

    /// Checks the expressions of a value.
    fn template(&mut self, template: &Template, scope: &Scope) {
        let (known, problems) = (&self.known, &mut *self.problems);
        template.each_hole(&mut |at, compiled| {
            for reference in compiled.references() {
                known.check(reference, scope, at, problems);
            }
        });
    }

    fn steps(&mut self, steps: &[DefinedStep], scope: &mut Scope) {
        let mut ended: Option<&str> = None;
        for step in steps {
            if let Some(name) = ended.take() {
                let message = format!("this step is never reached: `{name}` ends the list");
                self.problems.warning(&step.at, message).hint =
                    Some("give that step an `if`, or remove this one".to_owned());
            }
            self.step(step, scope);
            scope.steps.insert(step.name.clone());
            let ends =
                matches!(&step.body, StepBody::Task(kind, _) if matches!(kind.name, "return" | "fail"));
            ended = (ends && step.condition.is_none()).then_some(&step.name);
        }
    }

    fn step(&mut self, step: &DefinedStep, scope: &mut Scope) {
        if let Some(condition) = &step.condition {
            self.template(condition, scope);
        }
        self.body(step, scope);
        if let Some(keep) = &step.keep {
            self.template(keep, &scope.with("this"));
        }
        if !step.undo.is_empty() {
            let mut inside = scope.clone();
            inside.steps.insert(step.name.clone());
            self.steps(&step.undo, &mut inside);
        }
    }

    fn body(&mut self, step: &DefinedStep, scope: &mut Scope) {
        match &step.body {
            StepBody::Task(kind, args) => {
                // A step whose parts are steps of their own has no key of its own.
                let has_effect = (kind.class)(args) != Class::None
                    && crate::tasks::parts(kind.name, step, args).is_empty();
                let inside = if has_effect { scope.with("effect") } else { scope.clone() };
                self.template(args, &inside);
                (kind.check)(args, &mut Checks { hooks: &self.hooks, step, problems: self.problems });
                if let Some(tools) = args.tools() {
                    self.tools(tools, scope);
                }
                if kind.name == "set" {
                    scope.vars.extend(members(args));
                }
            }
            StepBody::Parallel(branches) => {
                for (_, steps) in branches {
                    // A branch works on its own copy of the variables.
                    self.steps(steps, &mut scope.clone());
                }
            }
            StepBody::ForEach(each) => self.for_each(each, scope),
            StepBody::Loop(looped) => self.looped(looped, scope),
            StepBody::Switch(cases) => self.cases(cases, scope),
            StepBody::Try(tried) => self.tried(tried, scope),
            StepBody::Transaction(steps) => self.transaction(steps, scope),
            StepBody::Absent(_) | StepBody::Unknown => {}
        }
    }

    /// The statements of one database are executed before those of the next one, so this is how they see each other.
    fn transaction(&mut self, steps: &[DefinedStep], scope: &Scope) {
        let mut inside = scope.clone();
        for name in databases(steps) {
            let is_there = |step: &&DefinedStep| databases(std::slice::from_ref(step)).contains(&name);
            for step in steps.iter().filter(is_there) {
                self.step(step, &mut inside);
                inside.steps.insert(step.name.clone());
            }
        }
    }

    /// Checks the tools of a model: they see the arguments of their call.
    fn tools(&mut self, tools: &ToolList, scope: &Scope) {
        for (step, detail) in tools.steps() {
            let inside = scope.with("call");
            self.body(step, &mut inside.clone());
            if let Some(keep) = &step.keep {
                self.template(keep, &inside.with("this"));
            }
            let templates = [step.keep.as_ref(), step.args()].into_iter().flatten();
            let problems = &mut *self.problems;
            for template in templates {
                template.each_hole(&mut |at, compiled| {
                    for reference in compiled.references().iter().filter(|reference| reference[0] == "call") {
                        if schema::lacks(detail.input.json(), &reference[1..]) {
                            let message =
                                format!("`{}` is not in the `input` of the tool", reference.join("."));
                            problems.meaning(at, message).hint = Some("add it to `input`".to_owned());
                        }
                    }
                });
            }
        }
    }

    fn for_each(&mut self, each: &ForEach, scope: &Scope) {
        self.template(&each.items, scope);
        if let Filled::List(items) = &each.items.value
            && items.len() > each.most as usize
        {
            let message = format!("the list has {} elements, and `most` is {}", items.len(), each.most);
            self.problems.meaning(&each.items.at, message);
        }
        if scope.names.contains(&each.name) {
            let message = format!("`{}` is the element of a block around already", each.name);
            self.problems.meaning(&each.items.at, message).hint =
                Some("give this one another name with `as`".to_owned());
        }
        let mut inside = scope.with("index").with(&each.name);
        if let Some(key) = &each.key {
            self.template(key, &inside);
            let same = matches!(&key.value, Filled::Plain(_));
            if same {
                self.problems.meaning(&key.at, "the key is the same for every pass").hint =
                    Some(format!("make it of the element, such as `{{{{ {}.id }}}}`", each.name));
            }
        }
        self.steps(&each.steps, &mut inside);
    }

    fn looped(&mut self, looped: &Loop, scope: &mut Scope) {
        let mut inside = scope.with("index");
        inside.vars.extend(set_in(&looped.steps));
        if !looped.until {
            self.template(&looped.condition, &inside);
        }
        self.steps(&looped.steps, &mut inside);
        if looped.until {
            self.template(&looped.condition, &inside);
        }
        scope.vars.extend(inside.vars);
    }

    fn cases(&mut self, cases: &[Case], scope: &mut Scope) {
        let mut vars = NameSet::new();
        for case in cases {
            if let Some(when) = &case.when {
                self.template(when, scope);
            }
            let mut inside = scope.clone();
            self.steps(&case.steps, &mut inside);
            vars.extend(inside.vars);
        }
        scope.vars.extend(vars);
    }

    fn tried(&mut self, tried: &Try, scope: &mut Scope) {
        let mut inside = scope.clone();
        self.steps(&tried.steps, &mut inside);
        scope.vars.extend(inside.vars);
        let mut caught = scope.with("error");
        self.cases(&tried.catch, &mut caught);
        scope.vars.extend(caught.vars);
        let mut finally = scope.clone();
        self.steps(&tried.finally, &mut finally);
        scope.vars.extend(finally.vars);
    }
}

fn members(args: &Template) -> Vec<String> {
    match &args.value {
        Filled::Object(members) => members.iter().map(|(name, _)| name.clone()).collect(),
        _ => Vec::new(),
    }
}

/// The variables that are set somewhere in these steps: a later pass of a loop sees them.
fn set_in(steps: &[DefinedStep]) -> NameSet {
    let mut names = NameSet::new();
    each_step(steps, "", &mut |step, _| {
        if let StepBody::Task(kind, args) = &step.body {
            names.extend(if kind.name == "set" { members(args) } else { Vec::new() });
        }
    });
    names
}
