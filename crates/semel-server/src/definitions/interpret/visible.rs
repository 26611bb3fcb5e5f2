//! What expressions of a running definition can read.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value as Json};

use crate::definitions::expression::{Data, Names};

/// The names that the expressions of one list of steps can read. Clones share what the list adds.
#[derive(Clone, Debug)]
pub(super) struct Visible(Arc<Level>);

#[derive(Debug)]
struct Level {
    /// The names of the list around; none at the top.
    around: Option<Visible>,
    /// Values of the steps of this list that have taken place.
    steps: Mutex<HashMap<String, Data>>,
    /// `input` and `run` at the top; elements of lists, `index` and `error` inside.
    names: Vec<(String, Data)>,
    vars: Variables,
}

/// Variables that `set` has set. Clones share them.
#[derive(Clone, Debug)]
struct Variables(Arc<Mutex<(Map<String, Json>, Data)>>);

impl Variables {
    fn new(all: Map<String, Json>) -> Self {
        let data = Data::of_json(&Json::Object(all.clone()));
        Self(Arc::new(Mutex::new((all, data))))
    }

    fn copy(&self) -> Self {
        Self::new(locked(&self.0).0.clone())
    }
}

impl Visible {
    /// The names at the top of a definition.
    pub(super) fn top(input: Data, run: Data) -> Self {
        let names = vec![("input".to_owned(), input), ("run".to_owned(), run)];
        Self::level(None, names, Variables::new(Map::new()))
    }

    fn level(around: Option<Self>, names: Vec<(String, Data)>, vars: Variables) -> Self {
        Self(Arc::new(Level { around, steps: Mutex::default(), names, vars }))
    }

    /// A list inside this one, with further names. It shares the variables.
    pub(super) fn inside(&self, names: Vec<(String, Data)>) -> Self {
        Self::level(Some(self.clone()), names, self.0.vars.clone())
    }

    /// A list inside this one that works on its own copy of the variables.
    pub(super) fn apart(&self, names: Vec<(String, Data)>) -> Self {
        Self::level(Some(self.clone()), names, self.0.vars.copy())
    }

    /// Adds the value of a step.
    pub(super) fn add(&self, step: &str, value: Data) {
        locked(&self.0.steps).insert(step.to_owned(), value);
    }

    /// Sets variables.
    pub(super) fn set(&self, members: Map<String, Json>) {
        let mut vars = locked(&self.0.vars.0);
        vars.0.extend(members);
        vars.1 = Data::of_json(&Json::Object(vars.0.clone()));
    }

    /// What expressions are evaluated with.
    pub(super) fn data(&self) -> Data {
        Data::names(self.clone())
    }

    fn step(&self, name: &str) -> Option<Data> {
        let own = locked(&self.0.steps).get(name).cloned();
        own.or_else(|| self.0.around.as_ref()?.step(name))
    }
}

impl Names for Visible {
    fn get(&self, name: &str) -> Option<Data> {
        match name {
            "steps" => Some(Data::names(Steps(self.clone()))),
            "vars" => Some(locked(&self.0.vars.0).1.clone()),
            _ => {
                let own = self.0.names.iter().find(|(own, _)| own == name);
                own.map(|(_, value)| value.clone()).or_else(|| self.0.around.as_ref()?.get(name))
            }
        }
    }
}

/// The member `steps`.
#[derive(Debug)]
struct Steps(Visible);

impl Names for Steps {
    fn get(&self, name: &str) -> Option<Data> {
        self.0.step(name)
    }
}

/// These locks are held for a look-up or an insertion, which do not panic.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::definitions::expression::Compiled;

    fn number(n: i64) -> Data {
        Data::of_json(&json!(n))
    }

    fn read(visible: &Visible, expression: &str) -> Result<Json, String> {
        let compiled = Compiled::new(&format!("{{{{ {expression} }}}}")).unwrap();
        compiled.evaluate(&visible.data()).map_err(|failed| failed.message)
    }

    #[test]
    fn a_list_sees_the_steps_before_it_and_those_around() {
        let top = Visible::top(number(1), number(2));
        top.add("first", number(10));
        let inside = top.inside(vec![("item".to_owned(), number(5))]);
        inside.add("a-b", number(11));
        assert_eq!(read(&inside, "steps.first + steps['a-b'] + item + input"), Ok(json!(27)));
        assert_eq!(read(&top, "steps['a-b']"), Err("`steps.a-b` is not there".to_owned()));
        assert_eq!(read(&top, "steps.later|default(3)"), Ok(json!(3)));
        assert_eq!(read(&top, "item is defined"), Ok(json!(false)));
    }

    #[test]
    fn variables_are_shared_by_blocks_and_copied_for_branches() {
        let set = |visible: &Visible, n: i64| {
            visible.set(json!({"n": n}).as_object().cloned().unwrap());
        };
        let top = Visible::top(number(1), number(2));
        set(&top, 1);
        let (inside, apart) = (top.inside(Vec::new()), top.apart(Vec::new()));
        set(&apart, 2);
        set(&inside, 3);
        assert_eq!(read(&top, "vars.n"), Ok(json!(3)));
        assert_eq!(read(&apart, "vars.n"), Ok(json!(2)));
        assert_eq!(read(&top, "vars"), Ok(json!({"n": 3})));
    }
}
