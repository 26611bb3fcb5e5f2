//! The blocks of the language, each with its fields.

use super::{
    CASE, CATCH, Case, FOR_EACH, ForEach, LOOP, LanguageReader, Loop, RESERVED, StepBody, Try, is_identifier,
};
use crate::definitions::document::{Node, Value};
use crate::definitions::limits;
use crate::definitions::problem::At;
use crate::definitions::shape::Field;
use crate::definitions::template::{Template, check_members};
use crate::tasks::database::STATEMENTS;

impl LanguageReader<'_> {
    pub(super) fn parallel(&mut self, node: &Node, at: &At) -> StepBody {
        let Value::Object(members) = &node.value else {
            let message = format!("the branches are an object, and this is {}", node.kind());
            self.problems.structure(at, message).hint =
                Some("write `name: [steps]` for each branch".to_owned());
            return StepBody::Unknown;
        };
        self.bounded(members.len(), "branches", at);
        let mut branches = Vec::new();
        for member in members {
            self.name_of(&member.name, &at.member(&member.name, member.place));
            let steps = self.list(&member.node, &at.member(&member.name, member.node.place));
            branches.push((member.name.clone(), steps));
        }
        // Members of an object have no order: JSON of the same content has the same id.
        branches.sort_by(|a, b| a.0.cmp(&b.0));
        StepBody::Parallel(branches)
    }

    pub(super) fn for_each(&mut self, step: &Node, node: &Node, (at_step, at): (&At, &At)) -> StepBody {
        if !self.is_object(node, &FOR_EACH, at) {
            return StepBody::Unknown;
        }
        let items = self.field(node, &FOR_EACH, "in", at);
        let name = self.field(node, &FOR_EACH, "as", at);
        let key = self.field(node, &FOR_EACH, "key", at);
        let parallel = self.count(node, &FOR_EACH, "parallel", at).unwrap_or(1);
        let most = self.count(node, &FOR_EACH, "most", at).unwrap_or(limits::PASSES);
        let steps = self.steps(step, "steps", at_step);
        let name = name.map_or_else(|| "item".to_owned(), |name| self.element(&name));
        let Some(items) = items else { return StepBody::Unknown };
        StepBody::ForEach(ForEach { items, name, key, parallel, most, steps })
    }

    /// The name of the element.
    fn element(&mut self, name: &Template) -> String {
        let text = name.text().unwrap_or("item").to_owned();
        if RESERVED.contains(&text.as_str()) {
            self.problems.meaning(&name.at, format!("`{text}` means something else in expressions")).hint =
                Some("choose another name, such as `item`".to_owned());
        } else if !is_identifier(&text) {
            self.problems.meaning(&name.at, format!("`{text}` is no name of a variable")).hint =
                Some("it has letters, digits and `_`, and does not begin with a digit".to_owned());
        }
        text
    }

    pub(super) fn loops(&mut self, step: &Node, node: &Node, (at_step, at): (&At, &At)) -> StepBody {
        if !self.is_object(node, &LOOP, at) {
            return StepBody::Unknown;
        }
        let before = self.field(node, &LOOP, "while", at);
        let after = self.field(node, &LOOP, "until", at);
        let most = self.count(node, &LOOP, "most", at).unwrap_or(1);
        let steps = self.steps(step, "steps", at_step);
        let hint = "`while` is looked at before each pass, `until` after it";
        let (until, condition) = match (before, after) {
            (Some(condition), None) => (false, condition),
            (None, Some(condition)) => (true, condition),
            (Some(_), Some(condition)) => {
                self.problems.structure(&condition.at, "`while` and `until` exclude each other").hint =
                    Some(hint.to_owned());
                return StepBody::Unknown;
            }
            (None, None) => {
                self.problems.structure(at, "`while` or `until` is missing").hint = Some(hint.to_owned());
                return StepBody::Unknown;
            }
        };
        StepBody::Loop(Loop { until, condition, most, steps })
    }

    pub(super) fn switch(&mut self, node: &Node, at: &At) -> StepBody {
        let cases = self.cases(node, &CASE, at);
        for case in cases.iter().rev().skip(1).filter(|(case, _)| case.when.is_none()) {
            self.problems.structure(&case.1, "only the last case can be without `when`").hint =
                Some("the cases after it would never apply".to_owned());
        }
        StepBody::Switch(cases.into_iter().map(|(case, _)| case).collect())
    }

    pub(super) fn tries(&mut self, step: &Node, node: &Node, (at_step, at): (&At, &At)) -> StepBody {
        let steps = self.list(node, at);
        let catch = step
            .get("catch")
            .map_or_else(Vec::new, |catch| self.cases(catch, &CATCH, &at_step.member("catch", catch.place)));
        for case in catch.iter().rev().skip(1).filter(|(case, _)| case.when.is_none()) {
            self.problems.structure(&case.1, "only the last case of `catch` can be without `when`").hint =
                Some("the cases after it would never apply".to_owned());
        }
        let finally = self.steps(step, "finally", at_step);
        if catch.is_empty() && finally.is_empty() {
            self.problems.structure(at, "`try` has neither `catch` nor `finally`").hint =
                Some("write what is done about a failure, beside `try`".to_owned());
        }
        StepBody::Try(Try { steps, catch: catch.into_iter().map(|(case, _)| case).collect(), finally })
    }

    pub(super) fn transaction(&mut self, node: &Node, at: &At) -> StepBody {
        let steps = self.list(node, at);
        for step in &steps {
            let is_statement =
                matches!(&step.body, StepBody::Task(kind, _) if STATEMENTS.contains(&kind.name));
            if !is_statement && !matches!(step.body, StepBody::Unknown) {
                self.problems.structure(&step.at, "a transaction has only statements").hint =
                    Some(format!("its steps are {}", STATEMENTS.join(" and ")));
            }
            let own = [
                ("retry", step.retry.is_some()),
                ("timeout", step.timeout.is_some()),
                ("class", step.at_most_once),
                ("undo", !step.undo.is_empty()),
            ];
            for (name, _) in own.into_iter().filter(|(_, is_there)| *is_there) {
                let message = format!("a step of a transaction has no `{name}` of its own");
                self.problems.structure(&step.at, message).hint =
                    Some("give it to the transaction: its steps take place together".to_owned());
            }
        }
        StepBody::Transaction(steps)
    }

    fn cases(&mut self, node: &Node, fields: &[Field], at: &At) -> Vec<(Case, At)> {
        let Value::List(nodes) = &node.value else {
            let message = format!("a list of cases is expected, and this is {}", node.kind());
            self.problems.structure(at, message).hint = Some("write `- {when: …, steps: […]}`".to_owned());
            return Vec::new();
        };
        self.bounded(nodes.len(), "cases", at);
        let mut cases = Vec::new();
        for (index, node) in nodes.iter().enumerate() {
            let at = at.element(index, node.place);
            if self.is_object(node, fields, &at) {
                let when = self.field(node, fields, "when", &at);
                cases.push((Case { when, steps: self.steps(node, "steps", &at) }, at));
            }
        }
        cases
    }

    fn is_object(&mut self, node: &Node, fields: &[Field], at: &At) -> bool {
        let is_object = matches!(node.value, Value::Object(_));
        match is_object {
            true => check_members(node, fields, at, self.problems),
            false => {
                let names = fields.iter().map(|field| field.name).collect::<Vec<_>>().join(", ");
                self.problems
                    .structure(at, format!("an object is expected, and this is {}", node.kind()))
                    .hint = Some(format!("its members are {names}"));
            }
        }
        is_object
    }

    fn count(&mut self, node: &Node, fields: &[Field], name: &str, at: &At) -> Option<u32> {
        self.field(node, fields, name, at)?.integer().and_then(|count| u32::try_from(count).ok())
    }
}
