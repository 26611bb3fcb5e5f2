//! Expressions and texts with holes, by minijinja with everything bounded.
//!
//! Nothing else in the server knows the engine. A text without holes is plain; one that is a single `{{ }}` keeps the type of its
//! value; all others are written together as text. Whatever is not there is an error, never empty text.

mod data;
mod filters;
mod guard;
mod scan;
mod work;

use std::collections::BTreeSet;
use std::io;
use std::sync::LazyLock;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior};

pub use data::{Data, Names};
pub use filters::{FILTERS, TESTS};
pub use scan::has_holes;

use super::limits;
use super::problem::nearest;
use guard::{check_tag, guarded_expression, guarded_text};
use scan::{Hole, HoleKind, TokenKind, Unclosed, holes};

/// Name of the only template in an environment.
const TEMPLATE: &str = "text";

static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(environment);

fn environment() -> Environment<'static> {
    let mut environment = Environment::empty();
    environment.set_fuel(Some(limits::FUEL));
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    let syntax = SyntaxConfig::builder().keep_trailing_newline(true).build();
    environment.set_syntax(syntax.expect("the delimiters are the usual ones"));
    environment.set_formatter(|out, _, value| {
        let text =
            data::to_text(value).map_err(|failed| Error::new(ErrorKind::InvalidOperation, failed.message))?;
        out.write_str(&text).map_err(|_| Error::from(ErrorKind::WriteFailure))
    });
    filters::add(&mut environment);
    environment
}

/// Why a text is not part of the language.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// What is wrong with the expression, as a sentence.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Refused {
    fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None }
    }

    fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

impl From<Unclosed> for Refused {
    fn from(Unclosed(kind): Unclosed) -> Self {
        let (begin, end) = match kind {
            HoleKind::Value => ("{{", "}}"),
            HoleKind::Block => ("{%", "%}"),
            HoleKind::Comment => ("{#", "#}"),
        };
        let hint = format!(
            "look for missing quotes and parentheses; `{{{{ '{begin}' }}}}` writes the braces themselves"
        );
        Self::new(format!("`{begin}` has no `{end}`")).hint(hint)
    }
}

/// Why an expression has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// What went wrong, naming what is not there.
    pub message: String,
    undefined: bool,
}

impl Failed {
    fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), undefined: false }
    }

    fn undefined() -> Self {
        Self { message: "a value is not there".to_owned(), undefined: true }
    }

    fn of_invalid(value: &Value) -> Self {
        // An invalid value gives its error only when it is iterated over.
        let list = Value::from_iter([value.clone()]);
        let error = list.try_iter().and_then(|items| items.checked().collect::<Result<Vec<_>, _>>()).err();
        error.map_or_else(|| Self::new("this is no value of JSON"), Self::from)
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::UndefinedError => Self::undefined(),
            ErrorKind::WriteFailure => Self::new("the text is too large; at most 2 MiB are accepted"),
            ErrorKind::OutOfFuel if error.detail().is_none() => {
                Self::new("the expression does too much: it has executed 50,000 instructions without an end")
            }
            _ => Self::new(told(&error)),
        }
    }
}

/// The engine's message without its file names.
fn told(error: &Error) -> String {
    error.detail().map_or_else(|| error.kind().to_string(), str::to_owned)
}

/// A name that an expression reads, with what it reads of it: `steps`, `charge`, `id`.
pub type NamePath = Vec<String>;

/// A text with holes, ready to be evaluated.
#[derive(Debug)]
pub struct Compiled {
    source: String,
    program: Program,
    references: Vec<NamePath>,
}

#[derive(Debug)]
enum Program {
    /// One `{{ }}`: its value keeps its type.
    Expression(minijinja::Expression<'static, 'static>),
    /// Text around holes, in an environment that has it as its only template.
    Text(Box<Environment<'static>>),
}

impl Compiled {
    /// Compiles a text that has holes.
    pub fn new(source: &str) -> Result<Self, Refused> {
        let holes = holes(source)?;
        for hole in &holes {
            check(source, hole)?;
        }
        let mut references = BTreeSet::new();
        for hole in &holes {
            references.extend(subscripts(&guard::Expression { text: source, tokens: &hole.tokens }));
        }
        let alone = holes.first().filter(|hole| holes.len() == 1 && is_alone(source, hole));
        let (program, found) = match alone {
            Some(hole) => expression(source, hole)?,
            None => text(source, &holes)?,
        };
        let mut found: BTreeSet<NamePath> = found.into_iter().collect();
        // `steps['a-b']` is found by its tokens; the engine reports it as `steps`, and so it does for what cannot be known.
        for reference in &references {
            found.remove(&reference[..1]);
        }
        found.extend(references);
        Ok(Self { source: source.to_owned(), program, references: found.into_iter().collect() })
    }

    /// The text as it was written.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether it is a single `{{ }}`, whose value can be of any type.
    pub fn is_typed(&self) -> bool {
        matches!(self.program, Program::Expression(_))
    }

    /// The names that it reads from its surroundings, each once.
    pub fn references(&self) -> &[NamePath] {
        &self.references
    }

    /// Evaluates it with these names.
    pub fn evaluate(&self, scope: &Data) -> Result<serde_json::Value, Failed> {
        work::begin();
        let value = match &self.program {
            Program::Expression(expression) => {
                expression.eval(scope.0.clone()).map_err(Failed::from).and_then(|value| data::to_json(&value))
            }
            Program::Text(environment) => render(environment, scope).map(serde_json::Value::String),
        };
        value.map_err(|failed| self.name_missing(failed, scope))
    }

    /// Evaluates a condition to true or false.
    pub fn is_true(&self, scope: &Data) -> Result<bool, Failed> {
        match self.evaluate(scope)? {
            serde_json::Value::Bool(value) => Ok(value),
            other => Err(Failed::new(format!("a condition is true or false, and this is {other:.40}"))),
        }
    }

    /// Names the first name that is not there, as the engine does not.
    fn name_missing(&self, failed: Failed, scope: &Data) -> Failed {
        let missing = self.references.iter().find(|reference| is_missing(&scope.0, reference));
        match missing.filter(|_| failed.undefined) {
            Some(reference) => {
                Failed { message: format!("`{}` is not there", reference.join(".")), ..failed }
            }
            None => failed,
        }
    }
}

fn is_missing(scope: &Value, reference: &[String]) -> bool {
    let mut value = scope.clone();
    for name in reference {
        match value.get_attr(name) {
            Ok(next) if !next.is_undefined() => value = next,
            _ => return true,
        }
    }
    false
}

/// Whether a text is nothing but this hole, apart from blanks.
fn is_alone(source: &str, hole: &Hole) -> bool {
    let around = source[..hole.outer.start].trim().is_empty() && source[hole.outer.end..].trim().is_empty();
    around && hole.kind == HoleKind::Value
}

fn check(source: &str, hole: &Hole) -> Result<(), Refused> {
    if hole.kind == HoleKind::Comment {
        return Ok(());
    }
    let expression = guard::Expression { text: source, tokens: &hole.tokens };
    if hole.tokens.is_empty() {
        return Err(Refused::new("there is nothing between the braces"));
    }
    if let Some(name) =
        hole.tokens.iter().map(|token| &source[token.range.clone()]).find(|name| name.starts_with("__"))
    {
        return Err(Refused::new(format!("`{name}`: names that begin with `__` are the engine's own")));
    }
    if hole.kind == HoleKind::Block {
        check_tag(&expression)?;
    }
    expression.check()
}

type References = Vec<NamePath>;

/// Compiles the guarded form only: the engine computes constants when it compiles, and `'x' * 100000000` is one without guards.
fn expression(source: &str, hole: &Hole) -> Result<(Program, References), Refused> {
    let inner = source[hole.inner.clone()].trim();
    let tokens = scan::tokens(inner).ok_or(Unclosed(HoleKind::Value))?;
    check_filters(inner, &tokens)?;
    let guarded = guarded_expression(&guard::Expression { text: inner, tokens: &tokens });
    let compiled = ENVIRONMENT.compile_expression_owned(guarded).map_err(|error| refused(&error))?;
    let found = compiled.undeclared_variables(true).iter().map(|name| split(name)).collect();
    Ok((Program::Expression(compiled), found))
}

fn text(source: &str, holes: &[Hole]) -> Result<(Program, References), Refused> {
    for hole in holes {
        check_filters(source, &hole.tokens)?;
    }
    let guarded = with_template(guarded_text(source, holes)).map_err(|error| refused(&error))?;
    let template = guarded.get_template(TEMPLATE).expect("it was just added");
    let found = template.undeclared_variables(true).iter().map(|name| split(name)).collect();
    Ok((Program::Text(Box::new(guarded)), found))
}

fn with_template(source: String) -> Result<Environment<'static>, Error> {
    let mut environment = ENVIRONMENT.clone();
    environment.add_template_owned(TEMPLATE, source)?;
    Ok(environment)
}

fn split(name: &str) -> NamePath {
    name.split('.').map(str::to_owned).collect()
}

/// Refuses filters and tests that do not exist, which the engine would only notice when it evaluates them.
fn check_filters(text: &str, tokens: &[scan::Token]) -> Result<(), Refused> {
    let expression = guard::Expression { text, tokens };
    for (at, token) in tokens.iter().enumerate().skip(1) {
        let (mut kind, name) = (expression.word(at - 1), expression.word(at));
        if kind == "not" && at >= 2 && expression.word(at - 2) == "is" {
            kind = "is";
        }
        if token.kind != TokenKind::Word || (kind == "is" && name == "not") {
            continue;
        }
        let (what, known) = match kind {
            "|" => ("filter", &FILTERS[..]),
            "is" => ("test", &TESTS[..]),
            _ => continue,
        };
        if !known.contains(&name) {
            let hint = match nearest(name, known.iter().copied()) {
                Some(near) => format!("is it `{near}`?"),
                None => format!("the {what}s are {}", known.join(", ")),
            };
            return Err(Refused::new(format!("there is no {what} `{name}`")).hint(hint));
        }
    }
    Ok(())
}

fn refused(error: &Error) -> Refused {
    Refused::new(format!("the expression cannot be read: {}", told(error)))
}

/// Names that are read as `steps['a-b']`.
fn subscripts(expression: &guard::Expression<'_>) -> Vec<NamePath> {
    let tokens = expression.tokens;
    let mut found = Vec::new();
    for at in 0..tokens.len() {
        let is_name = tokens[at].kind == TokenKind::Word
            && !guard::KEYWORDS.contains(&expression.word(at))
            && (at == 0 || expression.word(at - 1) != ".");
        let subscript = is_name && expression.word(at + 1) == "[" && expression.word(at + 3) == "]";
        if subscript && tokens[at + 2].kind == TokenKind::Text {
            let text = expression.word(at + 2);
            found.push(vec![expression.word(at).to_owned(), text[1..text.len() - 1].to_owned()]);
        }
    }
    found
}

/// Stops the engine when the text is too large.
struct LimitedText(Vec<u8>);

impl io::Write for LimitedText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > limits::RENDERED_BYTES {
            return Err(io::Error::other("the text is too large"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn render(environment: &Environment<'static>, scope: &Data) -> Result<String, Failed> {
    let mut out = LimitedText(Vec::new());
    let template = environment.get_template(TEMPLATE)?;
    template.render_captured_to(scope.0.clone(), &mut out)?;
    Ok(String::from_utf8(out.0).expect("the engine writes texts"))
}

#[cfg(test)]
mod tests;
