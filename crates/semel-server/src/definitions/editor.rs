//! The language as JSON Schema, for editors: made of the same descriptions as the check.

use serde_json::{Map, Value as Json, json};

use super::language::{BLOCKS, DEFINITION, STEP, editor_schema};
use super::limits;
use super::shape::{described, object_schema};
use crate::tasks::{ABSENT, KINDS};

/// The JSON Schema of a definition.
pub fn schema() -> Json {
    let mut schema = object_schema(&DEFINITION);
    let members = schema.as_object_mut().expect("the schema of an object");
    members.insert("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
    members.insert("title".to_owned(), json!("Definition of a Semel workflow"));
    let steps =
        json!({"type": "array", "items": {"$ref": "#/$defs/step"}, "minItems": 1, "maxItems": limits::STEPS});
    members
        .insert("$defs".to_owned(), json!({"steps": steps, "step": step(), "tools": editor_schema(step())}));
    schema
}

/// A step: what each can have, and exactly one task or block.
fn step() -> Json {
    let mut schema = object_schema(&STEP);
    let mut bodies = Map::new();
    bodies.extend(KINDS.iter().map(|kind| (kind.name.to_owned(), described(kind.args.schema(), kind.about))));
    bodies.extend(
        BLOCKS.iter().map(|block| (block.name.to_owned(), described(block.shape.schema(), block.about))),
    );
    bodies.extend(
        ABSENT.iter().map(|name| ((*name).to_owned(), json!({"description": "Not in this server yet."}))),
    );
    let one_of: Vec<Json> = bodies.keys().map(|name| json!({"required": [name]})).collect();
    schema["properties"].as_object_mut().expect("properties are an object").extend(bodies);
    schema["oneOf"] = Json::Array(one_of);
    schema
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::definitions::document;

    /// What the schema says of the documents in a folder whose names begin like this.
    fn verdicts(folder: &str, begins: &str) -> Vec<(String, bool)> {
        let validator = jsonschema::validator_for(&schema()).unwrap();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/definitions").join(folder);
        let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
        let verdict = |path: std::path::PathBuf| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let node = document::read(&fs::read_to_string(&path).unwrap()).ok()?;
            name.starts_with(begins).then(|| (name, validator.is_valid(&node.plain())))
        };
        files.filter_map(verdict).collect()
    }

    #[test]
    fn editors_accept_what_the_check_accepts() {
        let verdicts = verdicts("right", "");
        assert!(verdicts.len() >= 11);
        for (name, valid) in verdicts {
            assert!(valid, "{name}");
        }
    }

    #[test]
    fn editors_notice_wrong_members_and_types() {
        let refused = verdicts("wrong", "").into_iter().filter(|(_, valid)| !valid).count();
        assert!(refused >= 60, "{refused}");
        for (name, valid) in verdicts("wrong", "step-unknown") {
            assert!(!valid, "{name}");
        }
    }
}
