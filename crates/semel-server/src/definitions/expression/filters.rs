//! The filters and tests of the language: a list of our own, as several of the engine's can make a gigabyte of a word.

use std::fmt::Write as _;

use minijinja::value::{Kwargs, Rest, Value, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, filters, functions, tests};

use super::data;
use super::guard::{FACTOR, OPERAND, TEXT};
use super::work::{charge, charge_all, charge_call};

/// The filters, as docs/definitions.md lists them.
pub const FILTERS: [&str; 32] = [
    "default",
    "first",
    "last",
    "length",
    "join",
    "map",
    "select",
    "reject",
    "selectattr",
    "rejectattr",
    "sort",
    "unique",
    "groupby",
    "sum",
    "min",
    "max",
    "int",
    "float",
    "string",
    "upper",
    "lower",
    "trim",
    "title",
    "replace",
    "split",
    "round",
    "abs",
    "tojson",
    "urlencode",
    "items",
    "list",
    "batch",
];

/// The tests, as docs/definitions.md lists them.
pub const TESTS: [&str; 26] = [
    "defined",
    "undefined",
    "none",
    "boolean",
    "number",
    "integer",
    "float",
    "string",
    "sequence",
    "iterable",
    "mapping",
    "true",
    "false",
    "odd",
    "even",
    "divisibleby",
    "startingwith",
    "endingwith",
    "eq",
    "equalto",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "in",
];

/// Maximum length of the groups that `batch` makes.
const BATCH: usize = 10_000;

/// The engine's filters that look at the value and its elements, but not into them.
macro_rules! shallow {
    ($environment:expr, $($name:literal => $filter:path),* $(,)?) => {
        $( $environment.add_filter($name, counted(Value::from_function($filter), charge_call)); )*
    };
}

/// The engine's filters that read all of the value.
macro_rules! deep {
    ($environment:expr, $($name:literal => $filter:path),* $(,)?) => {
        $( $environment.add_filter($name, counted(Value::from_function($filter), charge_all)); )*
    };
}

/// The engine's tests.
macro_rules! tests {
    ($environment:expr, $($name:literal => $test:path),* $(,)?) => {
        $( $environment.add_filter(concat!("__is_", $name), counted(Value::from_function($test), charge_all));
           $environment.add_test($name, |state: &mut State, args: Rest<Value>| -> Result<bool, Error> {
               state.apply_filter(concat!("__is_", $name), &args).map(|value| value.is_true())
           }); )*
    };
}

/// Adds everything that an expression may call.
pub(super) fn add(environment: &mut Environment<'static>) {
    environment.add_function("range", functions::range);
    shallow!(environment,
        "first" => filters::first, "last" => filters::last, "length" => filters::length, "items" => filters::items,
        "list" => filters::list, "map" => filters::map, "select" => filters::select, "reject" => filters::reject,
        "selectattr" => filters::selectattr, "rejectattr" => filters::rejectattr, "int" => filters::int,
        "float" => filters::float, "abs" => filters::abs, "round" => filters::round,
    );
    deep!(environment,
        "sort" => filters::sort, "unique" => filters::unique, "groupby" => filters::groupby, "min" => filters::min,
        "max" => filters::max, "upper" => filters::upper, "lower" => filters::lower, "trim" => filters::trim,
        "title" => filters::title, "split" => filters::split,
    );
    environment.add_filter("default", filters::default);
    environment.add_filter("replace", replace);
    environment.add_filter("join", join);
    environment.add_filter("sum", sum);
    environment.add_filter("batch", batch);
    environment.add_filter("string", text);
    environment.add_filter("tojson", json);
    environment.add_filter("urlencode", url);
    environment.add_filter(OPERAND, operand);
    environment.add_filter(FACTOR, factor);
    environment.add_filter(TEXT, text);
    add_tests(environment);
}

fn add_tests(environment: &mut Environment<'static>) {
    environment.add_test("defined", tests::is_defined);
    environment.add_test("undefined", tests::is_undefined);
    tests!(environment,
        "none" => tests::is_none, "boolean" => tests::is_boolean, "number" => tests::is_number,
        "integer" => tests::is_integer, "float" => tests::is_float, "string" => tests::is_string,
        "sequence" => tests::is_sequence, "iterable" => tests::is_iterable, "mapping" => tests::is_mapping,
        "true" => tests::is_true, "false" => tests::is_false, "odd" => tests::is_odd, "even" => tests::is_even,
        "divisibleby" => tests::is_divisibleby, "startingwith" => tests::is_startingwith,
        "endingwith" => tests::is_endingwith, "eq" => tests::is_eq, "equalto" => tests::is_eq, "ne" => tests::is_ne,
        "lt" => tests::is_lt, "le" => tests::is_le, "gt" => tests::is_gt, "ge" => tests::is_ge, "in" => tests::is_in,
    );
}

type Charge = fn(&Value) -> Result<(), Error>;

/// A filter of the engine that charges what it is given, and refuses what is not there.
fn counted(
    filter: Value,
    charge_given: Charge,
) -> impl Fn(&mut State, Rest<ValueOrKwargs>) -> Result<Value, Error> {
    move |state, args| {
        let args: Vec<Value> = args.0.into_iter().map(Value::from).collect();
        for arg in args.iter().filter(|arg| !arg.is_kwargs()) {
            present(arg)?;
            charge_given(arg)?;
        }
        filter.call(state, &args)
    }
}

fn present(value: &Value) -> Result<(), Error> {
    match value.is_undefined() {
        true => Err(Error::from(ErrorKind::UndefinedError)),
        false => Ok(()),
    }
}

fn wrong(why: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, why)
}

fn operand(value: &Value) -> Result<Value, Error> {
    present(value)?;
    // Most operands are short, and cost less than the call.
    match value.kind() {
        ValueKind::Number | ValueKind::Bool | ValueKind::None => {}
        _ => charge_all(value)?,
    }
    Ok(value.clone())
}

fn factor(value: &Value) -> Result<Value, Error> {
    present(value)?;
    match value.is_number() {
        true => Ok(value.clone()),
        false => Err(wrong(format!("`*` multiplies numbers, and this is a {}", value.kind()))),
    }
}

fn text(value: &Value) -> Result<Value, Error> {
    present(value)?;
    charge_all(value)?;
    data::to_text(value).map(Value::from).map_err(|failed| wrong(failed.message))
}

/// Compact JSON, not escaped for HTML as the engine's own filter is.
fn json(value: &Value) -> Result<Value, Error> {
    present(value)?;
    charge_all(value)?;
    let json = data::to_json(value).map_err(|failed| wrong(failed.message))?.to_string();
    charge(json.len())?;
    Ok(Value::from(json))
}

/// Percent-encodes a text as one part of a URL.
fn url(value: &Value) -> Result<Value, Error> {
    let value = text(value)?;
    let bytes = value.as_str().unwrap_or_default().bytes();
    let mut out = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            true => out.push(byte.into()),
            false => write!(out, "%{byte:02X}").expect("a String takes every write"),
        }
    }
    charge(out.len())?;
    Ok(Value::from(out))
}

fn replace(value: &Value, from: &Value, to: &Value) -> Result<Value, Error> {
    let (value, from, to) = (text(value)?, text(from)?, text(to)?);
    let as_str = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (value, from, to) = (as_str(&value), as_str(&from), as_str(&to));
    let made = value.matches(&from).count().saturating_mul(to.len());
    charge(made)?;
    Ok(Value::from(value.replace(&from, &to)))
}

#[expect(clippy::needless_pass_by_value, reason = "the engine passes named arguments by value")]
fn join(value: &Value, joiner: Option<&str>, kwargs: Kwargs) -> Result<Value, Error> {
    present(value)?;
    let attribute: Option<&str> = kwargs.get("attribute")?;
    kwargs.assert_all_used()?;
    let (joiner, mut out) = (joiner.unwrap_or_default(), String::new());
    for (at, item) in value.try_iter()?.checked().enumerate() {
        let item = item?;
        let item = attribute.map_or(Ok(item.clone()), |name| item.get_attr(name))?;
        let item = text(&item)?;
        charge(joiner.len())?;
        out.push_str(if at == 0 { "" } else { joiner });
        out.push_str(item.as_str().unwrap_or_default());
    }
    Ok(Value::from(out))
}

/// Sums numbers; integers exactly.
#[expect(clippy::needless_pass_by_value, reason = "the engine passes named arguments by value")]
fn sum(value: &Value, attribute: Option<&str>, kwargs: Kwargs) -> Result<Value, Error> {
    present(value)?;
    let attribute = match attribute {
        Some(attribute) => Some(attribute),
        None => kwargs.get("attribute")?,
    };
    kwargs.assert_all_used()?;
    let (mut integer, mut double, mut exact) = (0_i128, 0.0_f64, true);
    for item in value.try_iter()?.checked() {
        let item = item?;
        let item = attribute.map_or(Ok(item.clone()), |name| item.get_attr(name))?;
        charge_call(&item)?;
        factor(&item).map_err(|_| wrong(format!("`sum` adds numbers, and this is a {}", item.kind())))?;
        exact &= item.is_integer();
        if exact {
            let sum = integer.checked_add(i128::try_from(item.clone())?);
            integer = sum.ok_or_else(|| wrong("the sum is too large"))?;
        }
        double += f64::try_from(item)?;
    }
    Ok(if exact { Value::from(integer) } else { Value::from(double) })
}

fn batch(value: &Value, length: usize, filler: Option<Value>) -> Result<Value, Error> {
    present(value)?;
    charge_call(value)?;
    if !(1..=BATCH).contains(&length) {
        return Err(wrong(format!("`batch` makes groups of 1 to {BATCH}")));
    }
    let items = value.try_iter()?.checked().collect::<Result<Vec<_>, _>>()?;
    let mut groups: Vec<Vec<Value>> = items.chunks(length).map(<[Value]>::to_vec).collect();
    if let (Some(last), Some(filler)) = (groups.last_mut(), filler) {
        last.resize(length, filler);
    }
    Ok(groups.into_iter().map(Value::from).collect())
}
