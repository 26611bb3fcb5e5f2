//! What stands around lists of steps: branches, passes and cases.

use std::collections::HashSet;

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use semel::rules::path::path_key;
use semel::sabotage::{self, Bug};
use semel::{Fail, fatal};
use serde_json::Value as Json;

use super::Doing;
use super::broken::Broken;
use super::frame::{Flow, Frame, Listed, StepValue};
use super::stop::ListStop;
use crate::definitions::expression::Data;
use crate::definitions::language::{Case, DefinedStep, ForEach, Loop, StepBody};
use semel::error::failure_code;

/// A pass of a `for_each` that has not begun.
struct Pass {
    index: usize,
    key: String,
    element: Data,
}

impl<'d> Frame<'d> {
    /// Executes a block.
    pub(super) fn block_of(&self, step: &'d DefinedStep, fresh: bool) -> Doing<'d, Listed> {
        let frame = self.clone();
        Box::pin(async move {
            match &step.body {
                StepBody::Parallel(branches) => frame.parallel(step, branches, fresh).await,
                StepBody::ForEach(each) => frame.for_each(step, each, fresh).await,
                StepBody::Loop(looped) => frame.looped(step, looped, fresh).await,
                StepBody::Switch(cases) => frame.switch(step, cases, fresh).await,
                StepBody::Try(tried) => frame.tried(step, tried, fresh).await,
                StepBody::Transaction(steps) => frame.transaction(step, steps).await,
                StepBody::Task(..) | StepBody::Absent(_) | StepBody::Unknown => {
                    let fail =
                        fatal("this server does not have the task yet").with_code(failure_code::ABSENT);
                    Listed::failed(frame.broken(&step.name)(fail), fresh)
                }
            }
        })
    }

    async fn parallel(
        &self,
        step: &'d DefinedStep,
        branches: &'d [(String, Vec<DefinedStep>)],
        fresh: bool,
    ) -> Listed {
        let around = self.block(&step.name);
        let stop = ListStop::inside(self.stop.as_ref());
        let branches = branches.iter().map(|(name, steps)| {
            let branch = Frame {
                visible: self.visible.apart(Vec::new()),
                stop: Some(stop.clone()),
                undo: self.undo.inside(steps),
                ..around.block(name)
            };
            async move { (name, branch.branch(steps, fresh).await) }
        });
        // Collected first: the branches have their places among what is undone in the order of the document.
        let branches: Vec<_> = branches.collect();
        let ended = join_all(branches).await;
        let fresh = ended.iter().any(|(_, listed)| listed.fresh);
        let mut values = Vec::new();
        let mut stopped = false;
        for (name, Listed { end, .. }) in ended {
            match end {
                Ok(Flow::Value(value)) => values.push((name, value.data)),
                Ok(Flow::Stopped) => stopped = true,
                end => return Listed { end, fresh },
            }
        }
        let value = Data::object(values.into_iter().map(|(name, value)| (name.as_str(), value)));
        let flow = if stopped { Flow::Stopped } else { Flow::Value(StepValue::of_data(value)) };
        Listed { end: Ok(flow), fresh }
    }

    /// Executes the steps of a branch or pass, and stops those beside it if it ends early.
    async fn branch(self, steps: &'d [DefinedStep], fresh: bool) -> Listed {
        let listed = self.list(steps, fresh).await;
        if let (Err(_) | Ok(Flow::Return(_)), Some(stop)) = (&listed.end, &self.stop) {
            stop.raise();
        }
        listed
    }

    async fn for_each(&self, step: &'d DefinedStep, each: &'d ForEach, fresh: bool) -> Listed {
        let passes = match self.passes(step, each) {
            Ok(passes) => passes,
            Err(broken) => return Listed::failed(broken, fresh),
        };
        let stop = ListStop::inside(self.stop.as_ref());
        let mut values: Vec<Option<Data>> = vec![None; passes.len()];
        let (mut waiting, mut active) = (passes.into_iter(), FuturesUnordered::new());
        // The first in the order of the list, whichever came first in time.
        let mut early: Option<(usize, Result<Flow, Broken>)> = None;
        let (mut fresh, mut open) = (fresh, true);
        loop {
            // One pass after the other: what follows one that has ended early cannot have begun in any execution.
            open &= each.parallel > 1 || early.is_none();
            while open && active.len() < each.parallel as usize {
                let Some(pass) = waiting.next() else { break };
                match self.begins(step, each, &pass, &stop, fresh).await {
                    Ok(true) => active.push(self.run_pass(step, each, pass, &stop, fresh)),
                    Ok(false) => {
                        open = false;
                        early.get_or_insert((pass.index, Ok(Flow::Stopped)));
                    }
                    Err(broken) => return Listed::failed(broken, fresh),
                }
            }
            let Some((index, listed)) = active.next().await else { break };
            fresh |= listed.fresh;
            match listed.end {
                Ok(Flow::Value(value)) => values[index] = Some(value.data),
                end if early.as_ref().is_none_or(|first| comes_before((index, &end), first)) => {
                    early = Some((index, end));
                }
                _ => {}
            }
        }
        let all = || Data::list(values.into_iter().flatten());
        let end = early.map_or_else(|| Ok(Flow::Value(StepValue::of_data(all()))), |(_, end)| end);
        Listed { end, fresh }
    }

    /// Whether the next pass begins: not if another has failed. `fresh` says that it cannot have begun before.
    async fn begins(
        &self,
        step: &DefinedStep,
        each: &ForEach,
        pass: &Pass,
        stop: &ListStop,
        fresh: bool,
    ) -> Result<bool, Broken> {
        let Some(first) = each.steps.first() else { return Ok(true) };
        let ctx = self.ctx.scope_keyed(&step.name, &pass.key);
        let ends = stop.ends_before(&ctx, &first.name, fresh && pass.index > 0).await;
        ends.map(|ends| !ends).map_err(self.broken(&step.name))
    }

    fn run_pass(
        &self,
        step: &'d DefinedStep,
        each: &'d ForEach,
        pass: Pass,
        stop: &ListStop,
        fresh: bool,
    ) -> Doing<'d, (usize, Listed)> {
        let names =
            vec![(each.name.clone(), pass.element), ("index".to_owned(), Data::of_json(&pass.index.into()))];
        let key = if sabotage::commits(Bug::PassKeyForgotten) { "0" } else { &pass.key };
        let frame = Frame {
            stop: Some(stop.clone()),
            undo: self.undo.inside(&each.steps),
            ..self.pass(&step.name, key, self.visible.apart(names))
        };
        Box::pin(async move { (pass.index, frame.branch(&each.steps, fresh).await) })
    }

    /// The passes of a `for_each`, each with its key.
    fn passes(&self, step: &DefinedStep, each: &ForEach) -> Result<Vec<Pass>, Broken> {
        let items = match self.evaluated(&each.items, &step.name)? {
            Json::Array(items) => items,
            other => {
                let fail = expression(format!("`in` is a list, and this is {other:.40}"));
                return Err(self.broken(&step.name)(fail));
            }
        };
        if items.len() > each.most as usize {
            let fail = limit(format!("the list has {} elements, and `most` is {}", items.len(), each.most));
            return Err(self.broken(&step.name)(fail));
        }
        let mut keys = HashSet::with_capacity(items.len());
        let mut passes = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let element = Data::of_json(item);
            let key = self.key(step, each, index, &element)?;
            if !keys.insert(key.clone()) {
                let fail = expression(format!("two passes have the key `{key}`; each needs its own"));
                return Err(self.broken(&step.name)(fail));
            }
            passes.push(Pass { index, key, element });
        }
        Ok(passes)
    }

    fn key(
        &self,
        step: &DefinedStep,
        each: &ForEach,
        index: usize,
        element: &Data,
    ) -> Result<String, Broken> {
        let Some(key) = &each.key else { return Ok(index.to_string()) };
        let names = self.visible.data().with(&each.name, element.clone());
        let names = names.with("index", Data::of_json(&index.into()));
        let value = crate::tasks::evaluated(key, &names).map_err(self.broken(&step.name))?;
        let text = match value {
            Json::String(text) if !text.is_empty() => text,
            Json::Number(number) => number.to_string(),
            other => {
                let fail = expression(format!("the key of a pass is a text or a number, not {other:.40}"));
                return Err(self.broken(&step.name)(fail));
            }
        };
        Ok(path_key(&text))
    }

    async fn looped(&self, step: &'d DefinedStep, looped: &'d Loop, fresh: bool) -> Listed {
        let (mut fresh, mut values) = (fresh, Vec::new());
        for index in 0..=looped.most {
            let visible = self.visible.inside(vec![("index".to_owned(), Data::of_json(&index.into()))]);
            let frame = Frame {
                undo: self.undo.inside(&looped.steps),
                ..self.pass(&step.name, &index.to_string(), visible)
            };
            let holds = |frame: &Self| {
                let found = looped.condition.is_true(&frame.visible.data());
                found.map_err(crate::tasks::not_evaluated).map_err(self.broken(&step.name))
            };
            match (looped.until, index) {
                (true, 0) => {}
                // The condition of `until` was looked at when the last pass had ended.
                (true, _) if index < looped.most => {}
                (false, _) => match holds(&frame) {
                    Ok(true) if index < looped.most => {}
                    Ok(true) => return Listed::failed(self.too_often(step, looped), fresh),
                    Ok(false) => break,
                    Err(broken) => return Listed::failed(broken, fresh),
                },
                (true, _) => return Listed::failed(self.too_often(step, looped), fresh),
            }
            let listed = frame.list(&looped.steps, fresh).await;
            fresh = listed.fresh;
            match listed.end {
                Ok(Flow::Value(value)) => values.push(value.data),
                end => return Listed { end, fresh },
            }
            if looped.until {
                match holds(&frame) {
                    Ok(true) => break,
                    Ok(false) => {}
                    Err(broken) => return Listed::failed(broken, fresh),
                }
            }
        }
        Listed { end: Ok(Flow::Value(StepValue::of_data(Data::list(values)))), fresh }
    }

    fn too_often(&self, step: &DefinedStep, looped: &Loop) -> Broken {
        let fail = limit(format!("the loop has not ended after {} passes (`most`)", looped.most));
        self.broken(&step.name)(fail)
    }

    async fn switch(&self, step: &'d DefinedStep, cases: &'d [Case], fresh: bool) -> Listed {
        let chosen = match self.case_of(cases, &step.name) {
            Ok(chosen) => chosen,
            Err(broken) => return Listed::failed(broken, fresh),
        };
        // The choice stays, whatever the engine of expressions does later.
        let recorded = match sabotage::commits(Bug::DecisionNotRecorded) {
            false => self.ctx.record(&*step.name, chosen).await,
            true => Ok(chosen),
        };
        let chosen = match recorded {
            Ok(chosen) => chosen,
            Err(fail) => return Listed::failed(self.broken(&step.name)(fail), fresh),
        };
        match chosen.and_then(|chosen| cases.get(chosen)) {
            None => Listed { end: Ok(Flow::Value(StepValue::null())), fresh },
            Some(case) => {
                let inside = Frame { undo: self.undo.inside(&case.steps), ..self.block(&step.name) };
                inside.list(&case.steps, fresh).await
            }
        }
    }

    /// The first case that applies.
    pub(super) fn case_of(&self, cases: &[Case], step: &str) -> Result<Option<usize>, Broken> {
        for (index, case) in cases.iter().enumerate() {
            let Some(when) = &case.when else { return Ok(Some(index)) };
            let applies = when.is_true(&self.visible.data());
            if applies.map_err(crate::tasks::not_evaluated).map_err(self.broken(step))? {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }
}

/// Whether an early end is told rather than another: that of the earlier pass, but any rather than that it was stopped.
fn comes_before(
    (index, end): (usize, &Result<Flow, Broken>),
    (first, other): &(usize, Result<Flow, Broken>),
) -> bool {
    match (matches!(end, Ok(Flow::Stopped)), matches!(other, Ok(Flow::Stopped))) {
        (true, false) => false,
        (false, true) => true,
        _ => index < *first,
    }
}

fn expression(message: String) -> Fail {
    fatal(message).with_code(failure_code::EXPRESSION)
}

fn limit(message: String) -> Fail {
    fatal(message).with_code(failure_code::LIMIT)
}
