//! The part of JavaScript that is understood: comparisons, and choices between plain values. Loops, calls, arithmetic and everything
//! else make a script one that is not understood.

use std::collections::HashMap;

/// Nested parentheses, objects and functions of a script.
const DEPTH: u32 = 32;
/// Signs, the longer ones first.
const SIGNS: [&str; 23] = [
    "===", "!==", "<=", ">=", "==", "!=", "&&", "||", "<", ">", "!", "(", ")", "{", "}", "[", "]", ".", ",",
    ";", ":", "?", "=",
];
/// Levels of operators with two sides, the weakest first; each with the operator of our language.
const LEVELS: [&[(&str, &str)]; 4] = [
    &[("||", "or")],
    &[("&&", "and")],
    &[("===", "=="), ("!==", "!="), ("==", "=="), ("!=", "!=")],
    &[("<=", "<="), (">=", ">="), ("<", "<"), (">", ">")],
];

/// The value of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Js {
    /// A number in decimal digits, as it was written.
    Number(String),
    /// A text, without its quotes.
    Text(String),
    /// A truth value: `true` or `false`.
    Flag(bool),
    /// `$.a['b'][0]`: the names behind `$`.
    Path(Vec<String>),
    /// `.length` of a path.
    Length(Vec<String>),
    /// The negation of a value: `!x`.
    Not(Box<Js>),
    /// Two sides, with the operator of our language between them.
    Both(&'static str, Box<Js>, Box<Js>),
    /// What decides, the value if it holds, and the value if not.
    Choice(Box<(Js, Js, Js)>),
    /// Members in their order.
    Object(Vec<(String, Js)>),
}

/// Reads a script. None if it is not understood.
pub(super) fn read(script: &str) -> Option<Js> {
    let mut parser = Parser { tokens: tokens(script)?, at: 0, names: HashMap::new(), depth: 0 };
    let value = parser.body(false)?;
    parser.skip(";");
    (parser.at == parser.tokens.len()).then_some(value)
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ScriptToken {
    Word(String),
    Number(String),
    Text(String),
    Sign(&'static str),
}

fn tokens(script: &str) -> Option<Vec<ScriptToken>> {
    let (mut tokens, mut rest) = (Vec::new(), script.trim_start());
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '$';
        let length = match first {
            '\'' | '"' => {
                let text = &rest[1..=rest[1..].find(first)?];
                // Escapes are not understood; braces could end an expression of ours.
                if text.contains(['\\', '{', '}', '\n']) {
                    return None;
                }
                tokens.push(ScriptToken::Text(text.to_owned()));
                text.len() + 2
            }
            '0'..='9' => {
                let end = rest.find(|c: char| !is_word(c) && c != '.').unwrap_or(rest.len());
                tokens.push(ScriptToken::Number(plain_number(&rest[..end])?));
                end
            }
            _ if is_word(first) => {
                let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
                tokens.push(ScriptToken::Word(rest[..end].to_owned()));
                end
            }
            _ => {
                let sign = SIGNS.into_iter().find(|sign| rest.starts_with(sign))?;
                tokens.push(ScriptToken::Sign(sign));
                sign.len()
            }
        };
        rest = rest[length..].trim_start();
    }
    Some(tokens)
}

/// A decimal number as it is written, if our language reads it in the same way.
fn plain_number(text: &str) -> Option<String> {
    let is_octal = text.len() > 1 && text.starts_with('0') && !text.starts_with("0.");
    let is_plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.') && !text.ends_with('.');
    (is_plain && !is_octal && text.parse::<f64>().is_ok()).then(|| text.to_owned())
}

struct Parser {
    tokens: Vec<ScriptToken>,
    at: usize,
    /// Values of `const`, `let` and `var`.
    names: HashMap<String, Js>,
    depth: u32,
}

impl Parser {
    fn take(&mut self, sign: &str) -> bool {
        let found = matches!(self.tokens.get(self.at), Some(ScriptToken::Sign(found)) if *found == sign);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, sign: &str) -> Option<()> {
        self.take(sign).then_some(())
    }

    fn skip(&mut self, sign: &str) {
        while self.take(sign) {}
    }

    fn take_word(&mut self, word: &str) -> bool {
        let found = matches!(self.tokens.get(self.at), Some(ScriptToken::Word(found)) if found == word);
        self.at += usize::from(found);
        found
    }

    fn word(&mut self) -> Option<String> {
        let Some(ScriptToken::Word(word)) = self.tokens.get(self.at) else { return None };
        self.at += 1;
        Some(word.clone())
    }

    fn nested<T>(&mut self, inner: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        self.depth += 1;
        let found = if self.depth > DEPTH { None } else { inner(self) };
        self.depth -= 1;
        found
    }

    /// Statements up to the one with the value. In a function only `return` has one.
    fn body(&mut self, in_function: bool) -> Option<Js> {
        self.skip(";");
        if ["const", "let", "var"].iter().any(|word| self.take_word(word)) {
            let name = self.word()?;
            self.expect("=")?;
            let value = self.value()?;
            self.names.insert(name, value);
            self.expect(";")?;
            return self.nested(|parser| parser.body(in_function));
        }
        if self.take_word("function") {
            let name = self.word()?;
            let value = self.function()?;
            self.skip(";");
            let is_called = self.word()? == name && self.take("(") && self.take(")");
            return is_called.then_some(value);
        }
        self.statement(in_function, true)
    }

    /// `if`, `return` or a value. The last of its list can have the rest of the list for its `else`.
    fn statement(&mut self, in_function: bool, is_last: bool) -> Option<Js> {
        if self.take_word("if") {
            return self.nested(|parser| parser.choice(in_function, is_last));
        }
        let returns = self.take_word("return");
        let value = if returns || !in_function { self.value()? } else { return None };
        self.skip(";");
        Some(value)
    }

    fn choice(&mut self, in_function: bool, is_last: bool) -> Option<Js> {
        self.expect("(")?;
        let condition = self.value()?;
        self.expect(")")?;
        let then = self.branch(in_function)?;
        let otherwise = match self.take_word("else") {
            true => self.branch(in_function)?,
            // What comes behind is the other value only if the branch has returned.
            false if in_function && is_last => self.body(in_function)?,
            false => return None,
        };
        Some(Js::Choice(Box::new((condition, then, otherwise))))
    }

    fn branch(&mut self, in_function: bool) -> Option<Js> {
        if !self.take("{") {
            return self.statement(in_function, false);
        }
        let value = self.body(in_function)?;
        self.skip(";");
        self.expect("}")?;
        Some(value)
    }

    /// `() { … }` of a function without arguments.
    fn function(&mut self) -> Option<Js> {
        self.expect("(")?;
        self.expect(")")?;
        self.expect("{")?;
        let value = self.nested(|parser| parser.body(true))?;
        self.skip(";");
        self.expect("}")?;
        Some(value)
    }

    fn value(&mut self) -> Option<Js> {
        self.nested(|parser| {
            let condition = parser.level(0)?;
            if !parser.take("?") {
                return Some(condition);
            }
            let then = parser.value()?;
            parser.expect(":")?;
            let otherwise = parser.value()?;
            Some(Js::Choice(Box::new((condition, then, otherwise))))
        })
    }

    fn level(&mut self, level: usize) -> Option<Js> {
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.level(level + 1)?;
        let mut is_chained = false;
        while let Some((_, ours)) = operators.iter().find(|(sign, _)| self.take(sign)) {
            // `a < b < c` compares a truth value in JavaScript.
            if is_chained && level > 1 {
                return None;
            }
            is_chained = true;
            left = Js::Both(ours, Box::new(left), Box::new(self.level(level + 1)?));
        }
        Some(left)
    }

    fn unary(&mut self) -> Option<Js> {
        match self.take("!") {
            true => self.nested(|parser| Some(Js::Not(Box::new(parser.unary()?)))),
            false => self.primary(),
        }
    }

    fn primary(&mut self) -> Option<Js> {
        if self.take("(") {
            let is_function = self.take_word("function");
            let value = if is_function { self.function()? } else { self.value()? };
            self.expect(")")?;
            if is_function {
                self.expect("(")?;
                self.expect(")")?;
            }
            return Some(value);
        }
        if self.take("{") {
            return self.nested(Self::object);
        }
        let token = self.tokens.get(self.at)?.clone();
        self.at += 1;
        match token {
            ScriptToken::Number(number) => Some(Js::Number(number)),
            ScriptToken::Text(text) => Some(Js::Text(text)),
            ScriptToken::Word(word) if word == "$" => self.path(Vec::new()),
            ScriptToken::Word(word) if word == "true" || word == "false" => Some(Js::Flag(word == "true")),
            ScriptToken::Word(word) => match self.names.get(&word)?.clone() {
                Js::Path(parts) => self.path(parts),
                value => Some(value),
            },
            ScriptToken::Sign(_) => None,
        }
    }

    fn path(&mut self, mut parts: Vec<String>) -> Option<Js> {
        loop {
            if self.take(".") {
                let part = self.word()?;
                if part == "length" && !parts.is_empty() {
                    return Some(Js::Length(parts));
                }
                parts.push(part);
            } else if self.take("[") {
                let (ScriptToken::Text(part) | ScriptToken::Number(part)) = self.tokens.get(self.at)?.clone()
                else {
                    return None;
                };
                self.at += 1;
                self.expect("]")?;
                parts.push(part);
            } else {
                return (!parts.is_empty()).then_some(Js::Path(parts));
            }
        }
    }

    fn object(&mut self) -> Option<Js> {
        let mut members = Vec::new();
        while !self.take("}") {
            let (ScriptToken::Text(name) | ScriptToken::Word(name)) = self.tokens.get(self.at)?.clone()
            else {
                return None;
            };
            self.at += 1;
            self.expect(":")?;
            members.push((name, self.value()?));
            if !self.take(",") {
                self.expect("}")?;
                break;
            }
        }
        Some(Js::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(parts: &[&str]) -> Js {
        Js::Path(parts.iter().map(|part| (*part).to_owned()).collect())
    }

    fn both(operator: &'static str, left: Js, right: Js) -> Js {
        Js::Both(operator, Box::new(left), Box::new(right))
    }

    #[test]
    fn a_comparison_is_understood_in_all_its_wrappings() {
        let expected = both("<", path(&["again", "iteration"]), path(&["n"]));
        for text in [
            "$.again['iteration'] < $.n",
            "$.again.iteration < $.n;",
            "(function () { return $.again['iteration'] < $.n; })();",
            "function e() { return $.again[\"iteration\"] < $.n } e();",
            "const n = $.n; $.again.iteration < n",
        ] {
            assert_eq!(read(text), Some(expected.clone()), "{text}");
        }
        let chosen = Js::Choice(Box::new((expected, Js::Flag(true), Js::Flag(false))));
        for text in [
            "if ($.again['iteration'] < $.n) { true; } else { false; }",
            "if ( $.again['iteration'] < $.n ) true; else false;",
            "(function () {\n  if ($.again['iteration'] < $.n) {\n    return true;\n  }\n  return false;\n})();",
            "$.again.iteration < $.n ? true : false",
        ] {
            assert_eq!(read(text), Some(chosen.clone()), "{text}");
        }
    }

    #[test]
    fn values_and_operators_have_the_order_of_the_language() {
        let number = |n: &str| Js::Number(n.to_owned());
        let text = |text: &str| Js::Text(text.to_owned());
        for (script, expected) in [
            ("!$.x", Js::Not(Box::new(path(&["x"])))),
            (
                "$.x > 1 && $.y === 'a b' || false",
                both(
                    "or",
                    both("and", both(">", path(&["x"]), number("1")), both("==", path(&["y"]), text("a b"))),
                    Js::Flag(false),
                ),
            ),
            ("$.i < $.list.length", both("<", path(&["i"]), Js::Length(vec!["list".to_owned()]))),
            (
                "$.c == 'one' ? 1 : ($.c == 'two' ? 2 : 3)",
                Js::Choice(Box::new((
                    both("==", path(&["c"]), text("one")),
                    number("1"),
                    Js::Choice(Box::new((both("==", path(&["c"]), text("two")), number("2"), number("3")))),
                ))),
            ),
            (
                "({ a: $.x[0], 'b': {} })",
                Js::Object(vec![
                    ("a".to_owned(), path(&["x", "0"])),
                    ("b".to_owned(), Js::Object(Vec::new())),
                ]),
            ),
        ] {
            assert_eq!(read(script), Some(expected), "{script}");
        }
    }

    #[test]
    fn what_computes_is_not_understood() {
        for script in [
            "",
            "$",
            "f() == 1",
            "$.x + 1",
            "$.x.indexOf('a') > 0",
            "$.n == 'a\\'b'",
            "x",
            "1 < 2 < 3",
            "if ($.x) { true; }",
            "(function () { $.x })()",
            "for (;;) {}",
            "$.x = 1",
            "new Date()",
            "$.a; $.b",
            "010 < $.x",
            "'{{' == $.x",
            "`a`",
            "$.x == null",
        ] {
            assert_eq!(read(script), None, "{script}");
        }
        assert_eq!(read(&"(".repeat(100_000)), None);
        assert_eq!(read(&"!".repeat(100_000)), None);
    }
}
