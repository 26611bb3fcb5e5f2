//! JSON Schemas as the providers take them. Each takes a part of the language only, and refuses a request with more. What is left out
//! here is checked by us when the answer is there, with the whole schema.

use serde_json::{Map, Value as Json, json};

/// Maximum nesting of a schema that is looked at; a deeper one is sent as it is.
const DEPTH: usize = 32;

/// Whether `OpenAI`'s strict mode takes a schema: all members of every object are required, and there are no others.
pub(super) fn is_strict(schema: &Json) -> bool {
    schema["type"] == "object" && is_closed(schema, 0)
}

fn is_closed(schema: &Json, depth: usize) -> bool {
    const TAKEN: [&str; 11] = [
        "type",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "enum",
        "const",
        "anyOf",
        "description",
        "title",
        "$schema",
    ];
    let Some(members) = schema.as_object().filter(|_| depth < DEPTH) else { return false };
    let closed = match members.get("type").and_then(Json::as_str) {
        Some("object") => {
            let properties = members.get("properties").and_then(Json::as_object);
            let required = members.get("required").and_then(Json::as_array);
            members.get("additionalProperties") == Some(&Json::Bool(false))
                && properties.is_some_and(|properties| {
                    properties.keys().all(|name| {
                        required.is_some_and(|required| {
                            required.iter().any(|given| given.as_str() == Some(name.as_str()))
                        })
                    })
                })
        }
        _ => true,
    };
    closed
        && members.keys().all(|name| TAKEN.contains(&name.as_str()))
        && parts(members).all(|part| is_closed(part, depth + 1))
}

/// The schemas directly inside of one.
fn parts(schema: &Map<String, Json>) -> impl Iterator<Item = &Json> {
    let properties = schema.get("properties").and_then(Json::as_object).into_iter().flat_map(Map::values);
    let any = schema.get("anyOf").and_then(Json::as_array).into_iter().flatten();
    properties.chain(any).chain(schema.get("items"))
}

/// The part of a schema that Anthropic takes: objects without other members, and no bounds of values. None if it cannot say what the
/// schema means, because an object may have any members.
pub(super) fn for_anthropic(schema: &Json) -> Option<Json> {
    (schema["type"] == "object").then(|| narrowed(schema, 0)).flatten()
}

fn narrowed(schema: &Json, depth: usize) -> Option<Json> {
    const TAKEN: [&str; 10] = [
        "type",
        "properties",
        "required",
        "items",
        "enum",
        "const",
        "anyOf",
        "oneOf",
        "description",
        "title",
    ];
    let members = schema.as_object().filter(|_| depth < DEPTH)?;
    if members.contains_key("$ref") || members.contains_key("allOf") {
        return None;
    }
    let mut narrow = Map::new();
    for (name, value) in members.iter().filter(|(name, _)| TAKEN.contains(&name.as_str())) {
        let value = match name.as_str() {
            "properties" => {
                let inside = value.as_object()?.iter();
                let inside = inside.map(|(name, part)| Some((name.clone(), narrowed(part, depth + 1)?)));
                Json::Object(inside.collect::<Option<_>>()?)
            }
            "items" => narrowed(value, depth + 1)?,
            "anyOf" | "oneOf" => {
                value.as_array()?.iter().map(|part| narrowed(part, depth + 1)).collect::<Option<_>>()?
            }
            _ => value.clone(),
        };
        let name = if name == "oneOf" { "anyOf" } else { name };
        narrow.insert(name.to_owned(), value);
    }
    if narrow.get("type").is_some_and(|kind| kind == "object") {
        narrow
            .get("properties")
            .filter(|_| !members.get("additionalProperties").is_some_and(Json::is_object))?;
        narrow.insert("additionalProperties".to_owned(), json!(false));
    }
    Some(Json::Object(narrow))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strict_mode_takes_closed_objects_only() {
        let closed = json!({"type": "object", "properties": {"a": {"enum": [1]}, "b": {"type": "array", "items": {"type": "string"}}},
            "required": ["a", "b"], "additionalProperties": false});
        assert!(is_strict(&closed));
        for (pointer, value) in [
            ("/additionalProperties", json!(true)),
            ("/required", json!(["a"])),
            ("/properties/b", json!({"type": "object"})),
            ("/properties/b", json!({"type": "string", "minLength": 3})),
            ("/type", json!("array")),
        ] {
            let mut open = closed.clone();
            *open.pointer_mut(pointer).unwrap() = value;
            assert!(!is_strict(&open), "{pointer}");
        }
    }

    #[test]
    fn anthropic_gets_the_part_of_a_schema_that_it_takes() {
        let schema = json!({"type": "object", "required": ["n"], "properties": {
            "n": {"type": "integer", "minimum": 3}, "o": {"oneOf": [{"const": 1}, {"type": "string", "maxLength": 2}]}}});
        assert_eq!(
            for_anthropic(&schema),
            Some(json!({"type": "object", "required": ["n"], "additionalProperties": false,
                "properties": {"n": {"type": "integer"}, "o": {"anyOf": [{"const": 1}, {"type": "string"}]}}}))
        );
        for open in [
            json!({"type": "object"}),
            json!({"type": "object", "properties": {"a": {"type": "object"}}}),
            json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/b"}}}),
            json!({"type": "array", "items": {"type": "string"}}),
        ] {
            assert_eq!(for_anthropic(&open), None, "{open}");
        }
    }
}
