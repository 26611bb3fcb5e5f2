//! JSON as YAML that people like to read: members in their order, texts in quotes only if they need them.

use serde_json::Value as Json;

/// An object whose members have an order.
pub(super) enum Ordered {
    /// A value without order.
    Plain(Json),
    /// Members in their order.
    Object(Vec<(String, Ordered)>),
    /// A list of such values.
    List(Vec<Ordered>),
}

impl Ordered {
    /// A text.
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::Plain(Json::String(text.into()))
    }

    /// An object of these members.
    pub(super) fn object<const N: usize>(members: [(&str, Self); N]) -> Self {
        Self::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// The value as YAML.
    pub(super) fn yaml(&self) -> String {
        let mut out = String::new();
        self.block(0, &mut out);
        out
    }

    /// Lines of a value, each behind this many blanks; the first line continues the present one.
    fn block(&self, indent: usize, out: &mut String) {
        match self {
            Self::Object(members) if !members.is_empty() => {
                for (index, (name, value)) in members.iter().enumerate() {
                    out.push_str(&if index == 0 { String::new() } else { " ".repeat(indent) });
                    out.push_str(&scalar(name));
                    out.push(':');
                    value.member(indent, out);
                }
            }
            Self::List(items) if !items.is_empty() => {
                for (index, item) in items.iter().enumerate() {
                    out.push_str(&if index == 0 { String::new() } else { " ".repeat(indent) });
                    out.push_str("- ");
                    item.block(indent + 2, out);
                }
            }
            Self::Object(_) => out.push_str("{}\n"),
            Self::List(_) => out.push_str("[]\n"),
            Self::Plain(Json::String(text)) => line(&scalar(text), out),
            Self::Plain(value) => line(&value.to_string(), out),
        }
    }

    /// What stands behind the colon of a member.
    fn member(&self, indent: usize, out: &mut String) {
        let nested = match self {
            Self::Object(members) => !members.is_empty(),
            Self::List(items) => !items.is_empty(),
            Self::Plain(_) => false,
        };
        if nested {
            out.push('\n');
            out.push_str(&" ".repeat(indent + 2));
        } else {
            out.push(' ');
        }
        self.block(indent + 2, out);
    }
}

fn line(text: &str, out: &mut String) {
    out.push_str(text);
    out.push('\n');
}

/// A text, in quotes unless it is a plain word.
fn scalar(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let word = text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(plain);
    match word && !matches!(text, "true" | "false" | "null") {
        true => text.to_owned(),
        false => Json::String(text.to_owned()).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definitions::document;

    #[test]
    fn what_is_written_is_read_again() {
        let value = Ordered::object([
            ("name", Ordered::text("a-b")),
            ("empty", Ordered::Object(Vec::new())),
            ("none", Ordered::List(Vec::new())),
            ("word", Ordered::text("true")),
            ("text", Ordered::text("a: \"b\"\n# c")),
            (
                "steps",
                Ordered::List(vec![
                    Ordered::object([
                        ("x", Ordered::Plain(1.into())),
                        ("y", Ordered::List(vec![Ordered::text("z")])),
                    ]),
                    Ordered::List(vec![Ordered::text("1"), Ordered::Plain(Json::Null)]),
                ]),
            ),
        ]);
        let read = document::read(&value.yaml()).unwrap().json();
        let expected = r#"{"name":"a-b","empty":{},"none":[],"word":"true","text":"a: \"b\"\n# c","steps":[{"x":1,"y":["z"]},["1",null]]}"#;
        assert_eq!(read, expected, "{}", value.yaml());
    }
}
