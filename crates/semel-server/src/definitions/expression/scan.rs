//! Tokens of expressions, and the holes `{{ }}` and `{% %}` of texts.
//!
//! The template engine has a lexer of its own, which it keeps to itself. This one finds the same holes, strings and operators: it
//! is needed to bound an expression before it is compiled, and to put guards around its operators.

use std::ops::Range;

/// A token and where it is in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: TokenKind,
    pub(super) range: Range<usize>,
}

/// Kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    /// A name or a keyword.
    Word,
    /// A number without its sign.
    Number,
    /// A text in quotes.
    Text,
    /// Anything else: one character, or two of an operator.
    Sign,
}

/// Kind of a hole in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HoleKind {
    /// Marks of a value: `{{ }}`.
    Value,
    /// Marks of a block: `{% %}`.
    Block,
    /// Marks of a comment: `{# #}`.
    Comment,
}

/// A hole in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hole {
    pub(super) kind: HoleKind,
    /// From the first brace to behind the last one.
    pub(super) outer: Range<usize>,
    /// Between the braces, without signs of whitespace control.
    pub(super) inner: Range<usize>,
    /// Tokens of the expression; none in a comment.
    pub(super) tokens: Vec<Token>,
}

/// A hole that does not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unclosed(pub(super) HoleKind);

/// Whether a text has holes at all; a text without any is plain.
pub fn has_holes(text: &str) -> bool {
    text.contains("{{") || text.contains("{%") || text.contains("{#")
}

/// The holes of a text, in order.
pub(super) fn holes(text: &str) -> Result<Vec<Hole>, Unclosed> {
    let (mut holes, mut at) = (Vec::new(), 0);
    while let Some((start, kind)) = next_hole(text, at) {
        let hole = hole(text, start, kind)?;
        at = hole.outer.end;
        holes.push(hole);
    }
    Ok(holes)
}

fn next_hole(text: &str, from: usize) -> Option<(usize, HoleKind)> {
    let bytes = text.as_bytes();
    (from..bytes.len().saturating_sub(1)).filter(|at| bytes[*at] == b'{').find_map(|at| {
        let kind = match bytes[at + 1] {
            b'{' => HoleKind::Value,
            b'%' => HoleKind::Block,
            b'#' => HoleKind::Comment,
            _ => return None,
        };
        Some((at, kind))
    })
}

fn hole(text: &str, start: usize, kind: HoleKind) -> Result<Hole, Unclosed> {
    let bytes = text.as_bytes();
    let mut from = start + 2;
    if matches!(bytes.get(from), Some(b'-' | b'+')) {
        from += 1;
    }
    let end = match kind {
        HoleKind::Value => "}}",
        HoleKind::Block => "%}",
        HoleKind::Comment => {
            let end = text[start + 2..].find("#}").ok_or(Unclosed(kind))? + start + 2;
            let (outer, inner) = (start..end + 2, start + 2..end);
            return Ok(Hole { kind, outer, inner, tokens: Vec::new() });
        }
    };
    let (mut tokens, mut at, mut open) = (Vec::new(), from, 0_i32);
    loop {
        at += blanks(&text[at..]);
        let rest = &text[at..];
        let closed = rest.strip_prefix(['-', '+']).unwrap_or(rest);
        if open == 0 && closed.starts_with(end) {
            let outer = start..at + (rest.len() - closed.len()) + 2;
            return Ok(Hole { kind, outer, inner: from..at, tokens });
        }
        let token = token(text, at).ok_or(Unclosed(kind))?;
        open += balance(&text[token.range.clone()]);
        at = token.range.end;
        tokens.push(token);
    }
}

/// Tokens of an expression that stands alone; `None` if a quoted text does not end.
pub(super) fn tokens(text: &str) -> Option<Vec<Token>> {
    let (mut tokens, mut at) = (Vec::new(), blanks(text));
    while at < text.len() {
        let token = token(text, at)?;
        at = token.range.end + blanks(&text[token.range.end..]);
        tokens.push(token);
    }
    Some(tokens)
}

fn blanks(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_whitespace).count()
}

/// By how much a token changes the nesting.
pub(super) fn balance(token: &str) -> i32 {
    match token {
        "(" | "[" | "{" => 1,
        ")" | "]" | "}" => -1,
        _ => 0,
    }
}

/// The token at an offset where no blank is; `None` at the end, and if a quoted text does not end.
fn token(text: &str, at: usize) -> Option<Token> {
    const DOUBLE: [&str; 6] = ["//", "**", "==", "!=", ">=", "<="];
    let rest = &text[at..];
    let first = rest.chars().next()?;
    let (kind, length) = match first {
        '"' | '\'' => (TokenKind::Text, quoted(rest, first)?),
        '0'..='9' => (TokenKind::Number, number(rest)),
        'a'..='z' | 'A'..='Z' | '_' => (TokenKind::Word, word(rest)),
        _ if DOUBLE.iter().any(|sign| rest.starts_with(sign)) => (TokenKind::Sign, 2),
        _ => (TokenKind::Sign, first.len_utf8()),
    };
    Some(Token { kind, range: at..at + length })
}

fn word(rest: &str) -> usize {
    rest.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count()
}

/// Digits, and a fraction if a digit follows the dot: `lines.0.sku` has two names and an index.
fn number(rest: &str) -> usize {
    let whole = word(rest);
    let fraction =
        rest[whole..].strip_prefix('.').filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    whole + fraction.map_or(0, |fraction| 1 + word(fraction))
}

fn quoted(rest: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    rest.char_indices().skip(1).find_map(|(at, c)| {
        let ends = c == quote && !escaped;
        escaped = c == '\\' && !escaped;
        ends.then_some(at + 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words<'a>(text: &'a str, tokens: &[Token]) -> Vec<&'a str> {
        tokens.iter().map(|token| &text[token.range.clone()]).collect()
    }

    #[test]
    fn holes_end_where_their_braces_do() {
        for (text, outer) in [
            ("a {{ b }} c", vec!["{{ b }}"]),
            ("{{ {'a': {'b': 1}} }}", vec!["{{ {'a': {'b': 1}} }}"]),
            ("{{ '}}' }}{{- b -}}", vec!["{{ '}}' }}", "{{- b -}}"]),
            ("{% if a %}x{# }} #}{% endif %}", vec!["{% if a %}", "{# }} #}", "{% endif %}"]),
            ("{{ '\\'}}' ~ \"a\\\\\" }}", vec!["{{ '\\'}}' ~ \"a\\\\\" }}"]),
            ("{ { } }", vec![]),
        ] {
            let found = holes(text).unwrap();
            assert_eq!(
                found.iter().map(|hole| &text[hole.outer.clone()]).collect::<Vec<_>>(),
                outer,
                "{text}"
            );
        }
        for text in ["{{ a", "{{ '}}", "{% if a }}", "{# a", "{{ (a }}", "{{ a) }}"] {
            assert!(holes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn tokens_are_words_numbers_texts_and_signs() {
        for (text, expected) in [
            ("a.b[0]**2 // 1.5", "a . b [ 0 ] ** 2 // 1.5"),
            ("x|join(', ') ~ 'é'", "x | join ( ', ' ) ~ 'é'"),
            ("lines.0.sku>=-1", "lines . 0 . sku >= - 1"),
            ("not é", "not é"),
        ] {
            assert_eq!(words(text, &tokens(text).unwrap()).join(" "), expected);
        }
        assert_eq!(tokens("'a"), None);
    }
}
