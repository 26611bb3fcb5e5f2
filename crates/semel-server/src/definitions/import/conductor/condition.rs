//! The one form of JavaScript that is understood: a single comparison, alone, in `if (…) true else false`, or in a function.

use serde_json::{Map, Value as Json};

/// What stands on one side of a comparison.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Number of the pass, counted from 1.
    Iteration,
    /// Value of an input parameter, still with its `${…}`.
    Input(Json),
    /// A number, truth value or quoted text.
    Plain(String),
}

/// A comparison.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Comparison {
    pub(super) left: Side,
    pub(super) operator: &'static str,
    pub(super) right: Side,
}

/// Operators of JavaScript, the longer ones first, and ours.
const OPERATORS: [(&str, &str); 8] = [
    ("===", "=="),
    ("!==", "!="),
    ("<=", "<="),
    (">=", ">="),
    ("==", "=="),
    ("!=", "!="),
    ("<", "<"),
    (">", ">"),
];

/// Reads a condition of a loop.
pub(super) fn read(text: &str, reference: &str, inputs: &Map<String, Json>) -> Option<Comparison> {
    let text = unwrapped(text);
    let (at, (sign, operator)) = OPERATORS.iter().find_map(|pair| Some((text.find(pair.0)?, pair)))?;
    let (left, right) = (&text[..at], &text[at + sign.len()..]);
    let side = |text: &str| side(text.trim(), reference, inputs);
    Some(Comparison { left: side(left)?, operator, right: side(right)? })
}

/// The condition inside the wrappings that people put around it. Blanks have no meaning in it, as quoted texts have none.
fn unwrapped(text: &str) -> String {
    let quoted = text.split(['\'', '"']).skip(1).step_by(2);
    let is_plain = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
    if !quoted.into_iter().all(is_plain) {
        return String::new();
    }
    let squeezed: String = text.chars().filter(|c| !c.is_whitespace() && !"{};".contains(*c)).collect();
    let wrappings = [
        ("(function()if(", ")returntruereturnfalse)()"),
        ("(function()return", ")()"),
        ("if(", ")trueelsefalse"),
    ];
    let inner = wrappings.iter().find_map(|(begin, end)| squeezed.strip_prefix(begin)?.strip_suffix(end));
    inner.unwrap_or(&squeezed).to_owned()
}

fn side(text: &str, reference: &str, inputs: &Map<String, Json>) -> Option<Side> {
    if let Some(path) = text.strip_prefix("$.") {
        let iteration = [
            format!("{reference}['iteration']"),
            format!("{reference}.iteration"),
            format!("{reference}[\"iteration\"]"),
        ];
        return match iteration.iter().any(|form| form == path) {
            true => Some(Side::Iteration),
            false => inputs.get(path).cloned().map(Side::Input),
        };
    }
    let quoted = text.len() >= 2
        && (text.starts_with('\'') && text.ends_with('\'') || text.starts_with('"') && text.ends_with('"'));
    let inner = text.get(1..text.len().saturating_sub(1)).unwrap_or_default();
    let plain = matches!(text, "true" | "false")
        || text.parse::<i64>().is_ok()
        || (quoted && inner.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c)));
    plain.then(|| Side::Plain(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_comparison_is_understood_and_nothing_else() {
        let inputs = serde_json::json!({"n": "${workflow.input.n}"}).as_object().unwrap().clone();
        for text in [
            "if ($.again['iteration'] < $.n) { true; } else { false; }",
            "if ( $.again['iteration'] < $.n ) true; else false;",
            "$.again.iteration < $.n",
            "(function () { return $.again['iteration'] < $.n; })();",
            "(function () {\n  if ($.again['iteration'] < $.n) {\n    return true;\n  }\n  return false;\n})();",
        ] {
            let right = Side::Input("${workflow.input.n}".into());
            let expected = Comparison { left: Side::Iteration, operator: "<", right };
            assert_eq!(read(text, "again", &inputs), Some(expected), "{text}");
        }
        for text in [
            "true",
            "$.x < 1 && $.y > 2",
            "$.m < 2",
            "if ($.n < 1) { false; } else { true; }",
            "f() == 1",
            "$.n == 'a b'",
            "",
        ] {
            assert_eq!(read(text, "again", &inputs), None, "{text}");
        }
    }
}
