//! JSON Schemas in a definition: of its input, and of forms.

mod work;

use std::fmt;
use std::sync::OnceLock;

use jsonschema::{PatternOptions, Validator};
use serde_json::Value as Json;

use super::document::{Node, Value};
use super::limits;
use super::problem::{At, Problems};
use work::SchemaWork;

/// The schema of an input, compiled when it is first used.
pub struct InputSchema {
    schema: Json,
    /// None if it cannot be compiled; the check has refused such a schema.
    validator: OnceLock<Option<Validator>>,
}

impl fmt::Debug for InputSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.schema.fmt(f)
    }
}

/// A place in an input that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// JSON pointer to the value.
    pub pointer: String,
    /// What is wrong with it.
    pub message: String,
}

impl InputSchema {
    /// The schema of an input.
    pub fn new(schema: Json) -> Self {
        Self { schema, validator: OnceLock::new() }
    }

    /// A schema that was made while a run went on; the error says why it cannot be used.
    pub fn checked(schema: Json) -> Result<Self, String> {
        match refusal(&schema) {
            None => Ok(Self::new(schema)),
            Some(refused) => Err(refused.message),
        }
    }

    /// The schema as JSON.
    pub fn json(&self) -> &Json {
        &self.schema
    }

    /// The first places at which an input does not fit; none if it fits.
    pub fn misfits(&self, input: &Json) -> Vec<Misfit> {
        let refused = |message: &str| vec![Misfit { pointer: String::new(), message: message.to_owned() }];
        if !SchemaWork::is_bounded(&self.schema, input) {
            return refused(
                "checking it against the schema of the definition takes too long; send a smaller one",
            );
        }
        let Some(validator) = self.validator.get_or_init(|| compiled(&self.schema).ok()) else {
            return refused("the schema of the definition cannot be used; push the definition again");
        };
        let misfit = |error: jsonschema::ValidationError<'_>| {
            let pointer = error.instance_path().to_string();
            // A value is named by its pointer: it may be long, and the message is seen by others.
            Misfit {
                pointer,
                message: error.masked().to_string().chars().take(limits::EXPRESSION_SHOWN).collect(),
            }
        };
        validator.iter_errors(input).take(limits::MISFITS).map(misfit).collect()
    }
}

/// Compiles a schema. Patterns are of the kind that takes linear time.
fn compiled(schema: &Json) -> Result<Validator, jsonschema::ValidationError<'static>> {
    let patterns = PatternOptions::regex().size_limit(limits::PATTERN_BYTES);
    jsonschema::options().with_pattern_options(patterns).build(schema)
}

/// Why a schema cannot be used.
struct SchemaRefusal {
    /// JSON pointer into the schema.
    pointer: String,
    message: String,
    hint: Option<&'static str>,
}

/// Why a schema cannot be used, if it cannot: draft 2020-12 if it does not say otherwise, without references to elsewhere.
fn refusal(schema: &Json) -> Option<SchemaRefusal> {
    let refused = |pointer: String, message: String| Some(SchemaRefusal { pointer, message, hint: None });
    if let Err(error) = jsonschema::meta::validate(schema) {
        return refused(error.instance_path().to_string(), format!("this is no JSON Schema: {error:.200}"));
    }
    if let Some(why) = SchemaWork::unbounded(schema) {
        return refused(String::new(), format!("this JSON Schema cannot be used: {why}"));
    }
    let error = compiled(schema).err()?;
    Some(SchemaRefusal {
        pointer: String::new(),
        message: format!("this JSON Schema cannot be used: {error:.100}"),
        hint: Some(
            "a reference points into the schema itself; a pattern is a regular expression without look-around",
        ),
    })
}

/// Checks that a value is a JSON Schema that can be used.
pub fn check(node: &Node, at: &At, problems: &mut Problems) {
    let Some(refused) = refusal(&node.plain()) else { return };
    let at = inside(node, at, &refused.pointer);
    problems.meaning(&at, refused.message).hint = refused.hint.map(str::to_owned);
}

/// The place of a part of a value.
fn inside(node: &Node, at: &At, pointer: &str) -> At {
    let (mut node, mut at) = (node, at.clone());
    for part in pointer.split('/').skip(1) {
        let name = part.replace("~1", "/").replace("~0", "~");
        let next = match &node.value {
            Value::List(items) => name.parse().ok().and_then(|index: usize| items.get(index)),
            _ => node.get(&name),
        };
        let Some(next) = next else { break };
        at = at.member(&name, next.place);
        node = next;
    }
    at
}

/// Whether a path of names is certainly not in the values that a schema describes.
pub fn lacks(schema: &Json, path: &[String]) -> bool {
    let mut schema = schema;
    for name in path {
        let open = ["$ref", "anyOf", "oneOf", "allOf", "if", "patternProperties"];
        let Some(properties) =
            schema.get("properties").filter(|_| open.iter().all(|word| schema.get(word).is_none()))
        else {
            return false;
        };
        match properties.get(name) {
            Some(next) => schema = next,
            None => return true,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_is_refused_before_it_is_used() {
        assert!(InputSchema::checked(json!({"type": "object"})).is_ok());
        for wrong in [json!({"type": "thing"}), json!({"$ref": "https://example.com/elsewhere"})] {
            let why = InputSchema::checked(wrong).unwrap_err();
            assert!(why.contains("JSON Schema"), "{why}");
        }
    }
}
