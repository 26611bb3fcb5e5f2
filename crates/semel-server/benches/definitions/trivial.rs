//! A definition of ten trivial tasks, and the task: it does what all tasks with an effect do, and next to nothing itself.

use std::sync::Arc;

use semel::engine::{Code, Programs};
use semel::id::WorkspaceId;
use semel::rules::family::Family;
use semel::rules::path::Name;
use semel_server::definitions::check::check;
use semel_server::definitions::interpret::code_of;
use semel_server::definitions::language::{Definition, StepBody};
use semel_server::definitions::shape::Shape;
use semel_server::tasks::{Class, Executing, Kind, TaskCall, TaskEnd};
use serde_json::Value as Json;

use crate::{Anything, STEPS, add};

static TRIVIAL: Kind = Kind {
    name: "trivial",
    about: "Adds a number to its input.",
    args: Shape::Any,
    on: &[],
    tries: true,
    class: |_| Class::Keyed,
    check: |_, _| {},
    execute,
};

fn execute(call: TaskCall<'_>) -> Executing<'_> {
    Box::pin(async move {
        let step = call.begin();
        let added = step.run(async |attempt| {
            let args = call.args_of(&attempt)?;
            let (sum, n) = (&args["input"]["sum"], &args["input"]["n"]);
            Ok(Json::from(add(sum.as_u64().unwrap_or_default(), n.as_u64().unwrap_or_default())))
        });
        TaskEnd::value(&added.await?)
    })
}

/// The definition, hosted for all workspaces.
pub(crate) struct Hosted(Arc<Definition>);

impl Hosted {
    /// The tasks stand as `worker` in the document, which is then made trivial.
    pub(crate) fn new() -> Anything<Self> {
        let mut text = "semel: 1\nname: defined\nsteps:\n".to_owned();
        for n in 1..=STEPS {
            let before = if n == 1 { "input".to_owned() } else { format!("steps.step{}", n - 1) };
            text += &format!(
                "  - {{name: step{n}, worker: {{queue: none, input: {{sum: '{{{{ {before} }}}}', n: {n}}}}}}}\n"
            );
        }
        let checked = check(&text).map_err(|problems| format!("{problems:?}"))?;
        let mut definition = checked.definition;
        for step in &mut definition.steps {
            if let StepBody::Task(kind, _) = &mut step.body {
                *kind = &TRIVIAL;
            }
        }
        Ok(Self(Arc::new(definition)))
    }
}

impl Programs for Hosted {
    fn families(&self) -> Vec<Family> {
        Family::new("def1_").into_iter().collect()
    }

    fn code(&self, _: WorkspaceId, _: &Name, _: &Name) -> Option<Code> {
        Some(code_of(self.0.clone()))
    }
}
