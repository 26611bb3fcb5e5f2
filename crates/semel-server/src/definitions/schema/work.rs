//! How much work it is to check a value against a schema: references and alternatives inside each other can make it endless, so it
//! is counted before it is done. The count visits what a validator visits that never ends early.

use serde_json::{Map, Value as Json};

use crate::definitions::limits;

/// Work that is left.
pub(super) struct SchemaWork<'a> {
    root: &'a Json,
    left: usize,
}

/// The work is more than what was left.
struct TooMuch;

/// Keywords that would need another way to resolve references.
const NAMED: [&str; 6] = ["$id", "id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef"];

impl<'a> SchemaWork<'a> {
    /// Whether a value can be checked with bounded work.
    pub(super) fn is_bounded(schema: &'a Json, value: &Json) -> bool {
        let mut work = Self { root: schema, left: limits::SCHEMA_WORK };
        work.visit(schema, value, 0).is_ok()
    }

    /// Why the work of a schema cannot be counted, or is too much for every value.
    pub(super) fn unbounded(schema: &'a Json) -> Option<String> {
        let mut patterns = 0;
        if let Some(why) = refused(schema, schema, false, &mut patterns) {
            return Some(why);
        }
        if patterns > limits::PATTERNS {
            return Some(format!("it has {patterns} patterns; at most {} are accepted", limits::PATTERNS));
        }
        let endless = !Self::is_bounded(schema, &Json::Null);
        endless.then(|| "its references lead to themselves, or to each other too often".to_owned())
    }

    fn spend(&mut self, work: usize) -> Result<(), TooMuch> {
        self.left = self.left.checked_sub(work).ok_or(TooMuch)?;
        Ok(())
    }

    fn visit(&mut self, schema: &'a Json, value: &Json, depth: usize) -> Result<(), TooMuch> {
        self.spend(1)?;
        let Json::Object(members) = schema else { return Ok(()) };
        if depth > limits::SCHEMA_DEPTH {
            return Err(TooMuch);
        }
        // What is not evaluated is found out by another look at the parts.
        let twice = members.contains_key("unevaluatedProperties") || members.contains_key("unevaluatedItems");
        for _ in 0..=usize::from(twice) {
            for (keyword, part) in members {
                self.keyword(members, (keyword, part), value, depth + 1)?;
            }
        }
        Ok(())
    }

    fn keyword(
        &mut self,
        schema: &'a Map<String, Json>,
        (keyword, part): (&str, &'a Json),
        value: &Json,
        depth: usize,
    ) -> Result<(), TooMuch> {
        match keyword {
            "$ref" => match part.as_str().and_then(|text| resolved(self.root, text)) {
                Some(target) => self.visit(target, value, depth),
                None => Err(TooMuch),
            },
            "allOf" | "anyOf" | "oneOf" => self.each(part, value, depth),
            "not" | "if" | "then" | "else" => self.visit(part, value, depth),
            "dependentSchemas" | "dependencies" => part
                .as_object()
                .into_iter()
                .flatten()
                .try_for_each(|(_, part)| self.visit(part, value, depth)),
            "properties" => self.properties(part, value, depth),
            "patternProperties" => {
                let parts = part.as_object().into_iter().flatten();
                parts.map(|(_, part)| part).try_for_each(|part| self.members(part, value, depth))
            }
            "additionalProperties" | "unevaluatedProperties" => self.members(part, value, depth),
            "propertyNames" => {
                let names = value.as_object().into_iter().flatten();
                names
                    .map(|(name, _)| Json::from(name.as_str()))
                    .try_for_each(|name| self.visit(part, &name, depth))
            }
            "prefixItems" => self.items(part, value, depth),
            "items" if part.is_array() => self.items(part, value, depth),
            "items" | "additionalItems" | "unevaluatedItems" | "contains" => {
                let items = value.as_array().into_iter().flatten();
                items.into_iter().try_for_each(|item| self.visit(part, item, depth))
            }
            "enum" | "required" => self.spend(part.as_array().map_or(0, Vec::len)),
            "uniqueItems" => self.spend(size(value)),
            "const" => self.spend(size(part)),
            "pattern" | "minLength" | "maxLength" => {
                self.spend(value.as_str().map_or(0, |text| text.len() / 16))
            }
            _ => {
                debug_assert!(schema.contains_key(keyword));
                Ok(())
            }
        }
    }

    fn each(&mut self, parts: &'a Json, value: &Json, depth: usize) -> Result<(), TooMuch> {
        parts.as_array().into_iter().flatten().try_for_each(|part| self.visit(part, value, depth))
    }

    fn properties(&mut self, parts: &'a Json, value: &Json, depth: usize) -> Result<(), TooMuch> {
        let parts = parts.as_object().into_iter().flatten();
        for (name, part) in parts {
            match value.get(name) {
                Some(member) => self.visit(part, member, depth)?,
                None => self.spend(1)?,
            }
        }
        Ok(())
    }

    fn members(&mut self, part: &'a Json, value: &Json, depth: usize) -> Result<(), TooMuch> {
        value.as_object().into_iter().flatten().try_for_each(|(_, member)| self.visit(part, member, depth))
    }

    fn items(&mut self, parts: &'a Json, value: &Json, depth: usize) -> Result<(), TooMuch> {
        let parts = parts.as_array().into_iter().flatten();
        let items = value.as_array().into_iter().flatten();
        parts.zip(items).try_for_each(|(part, item)| self.visit(part, item, depth))
    }
}

/// Number of values in a value.
fn size(value: &Json) -> usize {
    match value {
        Json::Array(items) => 1 + items.iter().map(size).sum::<usize>(),
        Json::Object(members) => 1 + members.values().map(size).sum::<usize>(),
        _ => 1,
    }
}

/// The part of a schema that a reference leads to.
fn resolved<'a>(root: &'a Json, text: &str) -> Option<&'a Json> {
    root.pointer(text.strip_prefix('#')?)
}

/// Why a schema is refused, and the number of its patterns. `named` says that the names of this object are the author's.
fn refused(root: &Json, schema: &Json, named: bool, patterns: &mut usize) -> Option<String> {
    match schema {
        Json::Array(items) => items.iter().find_map(|item| refused(root, item, false, patterns)),
        Json::Object(members) => members.iter().find_map(|(name, part)| {
            if named {
                return refused(root, part, false, patterns);
            }
            match (name.as_str(), part) {
                ("const" | "enum" | "default" | "examples", _) => None,
                ("$ref", Json::String(text)) if !text.starts_with('#') => Some(format!(
                    "`{text:.60}` is elsewhere; a schema refers to its own parts, as in `#/$defs/…`"
                )),
                ("$ref", Json::String(text)) if resolved(root, text).is_none() => {
                    Some(format!("`{text:.60}` leads to nothing in it; write `#/$defs/…`"))
                }
                (keyword, Json::String(_)) if NAMED.contains(&keyword) => {
                    Some(format!("`{keyword}` is not supported; write references as `#/$defs/…`"))
                }
                ("pattern", Json::String(_)) => {
                    *patterns += 1;
                    None
                }
                ("patternProperties", Json::Object(members)) => {
                    *patterns += members.len();
                    refused(root, part, true, patterns)
                }
                ("properties" | "$defs" | "definitions" | "dependentSchemas" | "dependencies", _) => {
                    refused(root, part, true, patterns)
                }
                _ => refused(root, part, false, patterns),
            }
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::definitions::schema::InputSchema;

    fn misfits(schema: Json, input: &Json) -> Vec<(String, String)> {
        let found = InputSchema::new(schema).misfits(input);
        found.into_iter().map(|misfit| (misfit.pointer, misfit.message)).collect()
    }

    #[test]
    fn what_does_not_fit_is_named_by_its_pointer() {
        let schema = json!({"type": "object", "required": ["order"], "properties": {
            "cents": {"type": "integer", "minimum": 1},
            "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
        }, "$defs": {"line": {"type": "object", "properties": {"a/b": {"pattern": "^[a-z]+$"}}}}});
        let fits = json!({"order": "7", "cents": 5, "lines": [{"a/b": "x"}]});
        assert_eq!(misfits(schema.clone(), &fits), []);
        let found = misfits(schema, &json!({"cents": -1, "lines": [{}, {"a/b": "secret 7"}]}));
        let mut pointers: Vec<_> = found.iter().map(|(pointer, _)| pointer.as_str()).collect();
        pointers.sort_unstable();
        assert_eq!(pointers, ["", "/cents", "/lines/1/a~1b"]);
        assert!(found.iter().all(|(_, message)| !message.contains("secret")), "{found:?}");
    }

    /// A schema in which each of `n` parts leads to the next one twice.
    fn doubling(n: usize, leaf: &Json) -> Json {
        let part = |n: usize| {
            let next = json!({"$ref": format!("#/$defs/p{}", n + 1)});
            (format!("p{n}"), json!({"anyOf": [next.clone(), next]}))
        };
        let mut parts: Map<String, Json> = (0..n).map(part).collect();
        parts.insert(format!("p{n}"), leaf.clone());
        json!({"$ref": "#/$defs/p0", "$defs": parts})
    }

    #[test]
    fn schemas_whose_check_never_ends_are_refused() {
        for (schema, part) in [
            (json!({"$ref": "#"}), "lead to themselves"),
            (json!({"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"$ref": "#/$defs/a"}}}), "themselves"),
            (doubling(60, &json!({"type": "string"})), "too often"),
            (json!({"$ref": "#/$defs/none"}), "leads to nothing"),
            (json!({"$ref": "https://example.org/schema"}), "is elsewhere"),
            (json!({"$id": "https://example.org/schema"}), "`$id`"),
            (json!({"$defs": {"a": {"$anchor": "a"}}}), "`$anchor`"),
        ] {
            let why = SchemaWork::unbounded(&schema);
            assert!(why.as_ref().is_some_and(|why| why.contains(part)), "{schema}: {why:?}");
        }
        // Names of properties are not keywords.
        assert_eq!(SchemaWork::unbounded(&json!({"properties": {"id": {"const": "$id"}, "$id": {}}})), None);
        let many: Vec<_> = (0..=limits::PATTERNS).map(|_| json!({"pattern": "a"})).collect();
        assert!(SchemaWork::unbounded(&json!({"anyOf": many})).is_some());
    }

    #[test]
    fn an_input_whose_check_would_take_too_long_is_refused() {
        let tree = json!({"anyOf": [
            {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
            {"type": "array", "items": {"$ref": "#"}, "maxItems": 7},
            {"type": "string"},
        ]});
        assert_eq!(SchemaWork::unbounded(&tree), None);
        assert_eq!(misfits(tree.clone(), &json!([["a"]])), []);
        let deep = (0..40).fold(json!(1), |inner, _| json!([inner]));
        let found = misfits(tree, &deep);
        assert!(found[0].1.contains("takes too long"), "{found:?}");
    }

    #[test]
    fn a_list_of_two_mebibytes_can_be_checked() {
        let list = Json::from(vec![1; 1_000_000]);
        assert_eq!(misfits(json!({"type": "array", "items": {"type": "integer"}}), &list), []);
    }
}
