//! Bounds on an expression before it is compiled, and guards around its operators.
//!
//! Fuel bounds how many instructions an evaluation executes, not how much one of them reads or makes. So every operand of an
//! operator that reads whole values gets a filter of ours behind it, which counts: `a == b` is compiled as
//! `a|__operand == b|__operand`. The same filter refuses what is not there, about which `==` would say nothing, and `*` takes
//! numbers only, as it would otherwise repeat a text a hundred million times.

use std::collections::BTreeMap;

use super::Refused;
use super::scan::{Hole, HoleKind, Token, TokenKind, balance};
use crate::definitions::limits;

/// Filter behind the operands of comparisons and sums.
pub(super) const OPERAND: &str = "__operand";
/// Filter behind the operands of `*`.
pub(super) const FACTOR: &str = "__factor";
/// Filter behind the operands of `~`.
pub(super) const TEXT: &str = "__text";

/// The words that begin a `{% %}`.
const TAGS: [&str; 6] = ["if", "elif", "else", "endif", "for", "endfor"];
/// The only function. Filters and tests have parentheses too.
const FUNCTIONS: [&str; 1] = ["range"];
/// Words of the language that may stand before a bracket.
pub(super) const KEYWORDS: [&str; 7] = ["and", "or", "not", "in", "if", "else", "elif"];

/// An expression in its text.
pub(super) struct Expression<'a> {
    pub(super) text: &'a str,
    pub(super) tokens: &'a [Token],
}

impl<'a> Expression<'a> {
    pub(super) fn word(&self, index: usize) -> &'a str {
        self.tokens.get(index).map_or("", |token| &self.text[token.range.clone()])
    }

    fn is(&self, index: usize, kind: TokenKind) -> bool {
        self.tokens.get(index).is_some_and(|token| token.kind == kind)
    }

    /// Index of the token that closes the bracket at `index`, or of the last one.
    fn closing(&self, index: usize) -> usize {
        let mut open = 0;
        for at in index..self.tokens.len() {
            open += balance(self.word(at));
            if open == 0 {
                return at;
            }
        }
        self.tokens.len() - 1
    }

    /// Refuses an expression that is too long, or uses what the language leaves out.
    pub(super) fn check(&self) -> Result<(), Refused> {
        let bytes = self.tokens.last().map_or(0, |last| last.range.end - self.tokens[0].range.start);
        if bytes > limits::EXPRESSION_BYTES || self.tokens.len() > limits::EXPRESSION_TOKENS {
            let hint = "compute a part of it in a `set` step before";
            return Err(Refused::new("the expression is too long").hint(hint));
        }
        for (sign, most) in [
            ("*", limits::MULTIPLICATIONS),
            ("~", limits::OPERATORS),
            ("+", limits::OPERATORS),
            ("-", limits::OPERATORS),
            ("not", limits::OPERATORS),
        ] {
            let count = (0..self.tokens.len()).filter(|at| self.word(*at) == sign).count();
            if count > most {
                return Err(Refused::new(format!(
                    "`{sign}` is there {count} times; at most {most} are accepted"
                )));
            }
        }
        self.check_calls()?;
        self.check_slices()
    }

    fn check_calls(&self) -> Result<(), Refused> {
        for at in 1..self.tokens.len() {
            let (before, here) = (self.word(at - 1), self.word(at));
            if matches!(here, "*" | "**") && matches!(before, "(" | ",") {
                let hint = "write the arguments one by one";
                return Err(Refused::new("arguments cannot be unpacked with `*`").hint(hint));
            }
            let callable = self.is(at - 1, TokenKind::Word) && !KEYWORDS.contains(&before);
            if here != "(" || !(callable || matches!(before, ")" | "]")) {
                continue;
            }
            let name = if at >= 2 { self.word(at - 2) } else { "" };
            let is_filter =
                name == "|" || name == "is" || (name == "not" && at >= 3 && self.word(at - 3) == "is");
            if !is_filter && (name == "." || !FUNCTIONS.contains(&before)) {
                let hint = "values have no methods, and `range` is the only function; filters are written `value|filter`";
                return Err(Refused::new(format!("`{before}` is not a function")).hint(hint));
            }
        }
        Ok(())
    }

    fn check_slices(&self) -> Result<(), Refused> {
        let mut open = Vec::new();
        for at in 0..self.tokens.len() {
            match self.word(at) {
                bracket @ ("(" | "[" | "{") => open.push(bracket),
                ")" | "]" | "}" => drop(open.pop()),
                ":" if open.last() == Some(&"[") => {
                    let hint = "use `first`, `last` or `batch`, or an index";
                    return Err(Refused::new("slices (`[1:2]`) are not part of the language").hint(hint));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Where guards belong: offset in the text, and the filter.
    fn guards(&self, guards: &mut BTreeMap<usize, &'static str>) {
        let is_for = self.word(0) == "for";
        let mut seen_in = !is_for;
        for at in 1..self.tokens.len() {
            let filter = match self.word(at) {
                _ if self.is(at, TokenKind::Text) => continue,
                "*" => FACTOR,
                "~" => TEXT,
                "+" | "==" | "!=" | "<" | ">" | "<=" | ">=" => OPERAND,
                "in" if !seen_in => {
                    seen_in = true;
                    continue;
                }
                "in" if self.word(at - 1) != "is" && self.word(at - 1) != "|" => OPERAND,
                _ => continue,
            };
            let left = if self.word(at) == "in" && self.word(at - 1) == "not" { at - 1 } else { at };
            if left == 0 || (left >= 2 && self.word(left) == "not" && self.word(left - 1) == "is") {
                continue;
            }
            guard(guards, self.tokens[left - 1].range.end, filter);
            if let Some(end) = self.operand_end(at + 1) {
                guard(guards, self.tokens[end].range.end, filter);
            }
        }
    }

    /// Index of the last token of the operand that begins at `at`; `None` if there is none, or a test follows.
    fn operand_end(&self, mut at: usize) -> Option<usize> {
        while self.word(at) == "-" {
            at += 1;
        }
        let mut end = match self.word(at) {
            "(" | "[" | "{" => self.closing(at),
            "" => return None,
            _ => at,
        };
        loop {
            end = match self.word(end + 1) {
                "[" | "(" => self.closing(end + 1),
                "." | "|" if end + 2 < self.tokens.len() => end + 2,
                "is" => return None,
                _ => return Some(end),
            };
        }
    }
}

/// A product's operand stays one, whatever else it is an operand of.
fn guard(guards: &mut BTreeMap<usize, &'static str>, offset: usize, filter: &'static str) {
    let entry = guards.entry(offset).or_insert(filter);
    if *entry != FACTOR {
        *entry = filter;
    }
}

/// Refuses tags that the language leaves out.
pub(super) fn check_tag(expression: &Expression<'_>) -> Result<(), Refused> {
    let tag = expression.word(0);
    if !TAGS.contains(&tag) {
        let hint =
            "only `{% if %}`, `{% elif %}`, `{% else %}` and `{% for %}` are; values are set by a `set` step";
        return Err(Refused::new(format!("`{{% {tag} %}}` is not part of the language")).hint(hint));
    }
    let recursive = expression.tokens.len().checked_sub(1).filter(|_| tag == "for");
    if recursive.is_some_and(|last| expression.word(last) == "recursive") {
        return Err(Refused::new("loops cannot be recursive").hint("write a loop for each level"));
    }
    Ok(())
}

/// The expression with its guards.
pub(super) fn guarded_expression(expression: &Expression<'_>) -> String {
    let mut guards = BTreeMap::new();
    expression.guards(&mut guards);
    insert(expression.text, &guards)
}

/// The text with guards in all of its holes.
pub(super) fn guarded_text(text: &str, holes: &[Hole]) -> String {
    let mut guards = BTreeMap::new();
    for hole in holes.iter().filter(|hole| hole.kind != HoleKind::Comment) {
        Expression { text, tokens: &hole.tokens }.guards(&mut guards);
    }
    insert(text, &guards)
}

fn insert(text: &str, guards: &BTreeMap<usize, &'static str>) -> String {
    let (mut out, mut from) = (String::with_capacity(text.len() + guards.len() * 12), 0);
    for (offset, filter) in guards {
        out.push_str(&text[from..*offset]);
        out.push('|');
        out.push_str(filter);
        from = *offset;
    }
    out.push_str(&text[from..]);
    out
}

#[cfg(test)]
mod tests {
    use super::super::scan::tokens;
    use super::*;

    fn guarded(text: &str) -> String {
        let tokens = tokens(text).unwrap();
        let guarded = guarded_expression(&Expression { text, tokens: &tokens });
        guarded.replace(OPERAND, "o").replace(FACTOR, "f").replace(TEXT, "t")
    }

    #[test]
    fn both_operands_get_a_guard() {
        for (text, expected) in [
            ("a == b", "a|o == b|o"),
            ("a.b[0] * -c|int(1) + 1", "a.b[0]|f * -c|int(1)|f + 1|o"),
            ("(a ~ 'x') ~ b", "(a|t ~ 'x'|t)|t ~ b|t"),
            ("a not in [b, c]", "a|o not in [b, c]|o"),
            ("a is in b", "a is in b"),
            ("a is not in b", "a is not in b"),
            ("not a == b", "not a|o == b|o"),
            ("a == b is defined", "a|o == b is defined"),
            ("a|default(1) > 2 and b", "a|default(1)|o > 2|o and b"),
            ("'a == b'", "'a == b'"),
            ("f if a == {'x': 1}.x else g", "f if a|o == {'x': 1}.x|o else g"),
        ] {
            assert_eq!(guarded(text), expected);
        }
        assert_eq!(guarded("for a in b if a in c"), "for a in b if a|o in c|o");
    }
}
