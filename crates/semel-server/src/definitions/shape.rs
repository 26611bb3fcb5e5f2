//! What a value of a definition may look like. From the same description come the check of a document and the JSON Schema for
//! editors.

use serde_json::{Value as Json, json};

use super::limits;

/// Values that an argument may have.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// Any value; texts in it may have holes.
    Any,
    /// A text that may have holes.
    Text,
    /// A text, number or truth value that may have holes.
    Scalar,
    /// A text without holes.
    Fixed,
    /// A name: 1 to 100 of `A-Z a-z 0-9 _ -`.
    Name,
    /// A statement of SQL: a text without holes, as values are given beside it.
    Statement,
    /// One of these words.
    Word(&'static [&'static str]),
    /// `true`, `false`, or a single `{{ }}`.
    Flag,
    /// `true` or `false`, without holes.
    FixedFlag,
    /// A condition: a single `{{ }}`, or `true` or `false`.
    Condition,
    /// A list, or a single `{{ }}` that gives one.
    Items,
    /// An integer within these bounds.
    Integer(i64, i64),
    /// A number within these bounds.
    Number(f64, f64),
    /// A duration without holes.
    Duration,
    /// A duration; a text with holes may give one.
    AnyDuration,
    /// A JSON Schema, taken as it is.
    Schema,
    /// A list of 1 to 64.
    List(&'static Shape),
    /// An object with any names.
    Map(&'static Shape),
    /// An object with these members.
    Object(&'static [Field]),
    /// Either the first, if the value is a text, or the second.
    TextOr(&'static Shape, &'static Shape),
    /// Nothing: `name: {}` or `name:`.
    Nothing,
    /// Steps; read by the language itself.
    Steps,
    /// Tools of a model: steps that it may have done.
    Tools,
}

/// A member of an object.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Name of the member.
    pub name: &'static str,
    /// Values that the member may have.
    pub shape: Shape,
    /// Whether it must be there.
    pub required: bool,
    /// Purpose of the member, in a sentence; shown by editors.
    pub about: &'static str,
}

impl Field {
    /// A member that may be left out.
    pub const fn new(name: &'static str, shape: Shape, about: &'static str) -> Self {
        Self { name, shape, required: false, about }
    }

    /// A member that must be there.
    pub const fn required(name: &'static str, shape: Shape, about: &'static str) -> Self {
        Self { name, shape, required: true, about }
    }
}

impl Shape {
    /// What is expected, for messages.
    pub fn expected(&self) -> String {
        match self {
            Self::Any => "a value".to_owned(),
            Self::Text => "a text".to_owned(),
            Self::Scalar => "a text, a number, or true or false".to_owned(),
            Self::Fixed => "a text without `{{ }}`".to_owned(),
            Self::Name => "a name".to_owned(),
            Self::Statement => "a statement without `{{ }}`".to_owned(),
            Self::Word(words) => format!("one of {}", words.join(", ")),
            Self::Flag => "true, false or a single `{{ }}`".to_owned(),
            Self::FixedFlag => "true or false".to_owned(),
            Self::Condition => "a condition in `{{ }}`".to_owned(),
            Self::Items => "a list, or a single `{{ }}`".to_owned(),
            Self::Integer(least, most) => format!("an integer from {least} to {most}"),
            Self::Number(least, most) => format!("a number from {least} to {most}"),
            Self::Duration | Self::AnyDuration => "a duration such as `10s`".to_owned(),
            Self::Schema => "a JSON Schema".to_owned(),
            Self::List(_) => "a list".to_owned(),
            Self::Map(_) | Self::Object(_) => "an object".to_owned(),
            Self::TextOr(a, b) => format!("{} or {}", a.expected(), b.expected()),
            Self::Nothing => "nothing (`{}`)".to_owned(),
            Self::Steps => "a list of steps".to_owned(),
            Self::Tools => "a list of tools".to_owned(),
        }
    }

    /// The shape as JSON Schema.
    pub fn schema(&self) -> Json {
        let hole = || json!({"type": "string", "pattern": r"^\s*\{\{[\s\S]*\}\}\s*$"});
        match self {
            Self::Any => json!({}),
            Self::Text | Self::Fixed | Self::Statement | Self::AnyDuration => json!({"type": "string"}),
            Self::Scalar => json!({"type": ["string", "number", "boolean"]}),
            Self::Name => name_schema(),
            Self::Word(words) => json!({"enum": words}),
            Self::Flag | Self::Condition => json!({"anyOf": [{"type": "boolean"}, hole()]}),
            Self::FixedFlag => json!({"type": "boolean"}),
            Self::Items => json!({"anyOf": [{"type": "array"}, hole()]}),
            Self::Integer(least, most) => json!({"type": "integer", "minimum": least, "maximum": most}),
            Self::Number(least, most) => json!({"type": "number", "minimum": least, "maximum": most}),
            Self::Duration => json!({"type": "string", "pattern": "^([0-9]+(ms|s|m|h|d|w))+$"}),
            Self::Schema => json!({"type": ["object", "boolean"]}),
            Self::List(items) => {
                json!({"type": "array", "items": items.schema(), "minItems": 1, "maxItems": limits::BRANCHES})
            }
            Self::Map(values) => json!({"type": "object", "additionalProperties": values.schema()}),
            Self::Object(fields) => object_schema(fields),
            Self::TextOr(a, b) => json!({"anyOf": [a.schema(), b.schema()]}),
            Self::Nothing => json!({"anyOf": [{"type": "null"}, {"type": "object", "maxProperties": 0}]}),
            Self::Steps => json!({"$ref": "#/$defs/steps"}),
            Self::Tools => json!({"$ref": "#/$defs/tools"}),
        }
    }
}

/// JSON Schema of a name.
pub(super) fn name_schema() -> Json {
    json!({"type": "string", "pattern": format!("^[A-Za-z0-9_-]{{1,{}}}$", limits::NAME)})
}

/// JSON Schema of an object with these members and no others.
pub(super) fn object_schema(fields: &[Field]) -> Json {
    let properties: serde_json::Map<_, _> = fields
        .iter()
        .map(|field| (field.name.to_owned(), described(field.shape.schema(), field.about)))
        .collect();
    let required: Vec<_> = fields.iter().filter(|field| field.required).map(|field| field.name).collect();
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

/// Adds a description to a schema.
pub(super) fn described(schema: Json, about: &str) -> Json {
    match schema {
        Json::Object(mut members) => {
            members.insert("description".to_owned(), Json::String(about.to_owned()));
            Json::Object(members)
        }
        other => other,
    }
}
