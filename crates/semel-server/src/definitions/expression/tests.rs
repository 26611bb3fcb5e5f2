use std::time::Duration;

use semel::clock::SystemClock;
use semel::rules::json::Payload;
use serde_json::{Value as Json, json};

use super::*;

fn scope() -> Data {
    Data::of_json(&json!({
        "input": {
            "order": "7", "cents": 1999, "null": null, "yes": true, "price": 19.5,
            "lines": [{"sku": "ink", "n": 2}, {"sku": "pens", "n": 1}],
            "long": "x".repeat(1_000_000), "quote": "\"",
        },
        "steps": {"charge": {"id": "ch_1"}, "a-b": {"id": 2}},
    }))
}

fn evaluate(source: &str) -> Result<Json, String> {
    let compiled = Compiled::new(source).map_err(|refused| format!("refused: {}", refused.message))?;
    compiled.evaluate(&scope()).map_err(|failed| failed.message)
}

#[test]
fn a_single_hole_keeps_its_type_and_texts_are_texts() {
    for (source, value) in [
        ("{{ input.cents }}", json!(1999)),
        (" {{ input.lines }}\n", json!([{"sku": "ink", "n": 2}, {"sku": "pens", "n": 1}])),
        ("{{ input.null }}", Json::Null),
        ("{{ input.cents > 1000 and input.yes }}", json!(true)),
        ("{{ input.cents // 100 }}", json!(19)),
        ("{{ input.cents / 2 }}", json!(999.5)),
        ("{{ {'a': input.order, 'b': [1]} }}", json!({"a": "7", "b": [1]})),
        ("{{ steps['a-b'].id * 3 }}", json!(6)),
        ("order {{ input.order }}: {{ input.lines[0] }}", json!(r#"order 7: {"n":2,"sku":"ink"}"#)),
        ("{{ input.yes }}!", json!("true!")),
        ("{% for l in input.lines %}- {{ l.sku }}\n{% endfor %}", json!("- ink\n- pens\n")),
        ("{% if input.cents > 5000 %}a{% elif input.yes %}b{% else %}c{% endif %}\n", json!("b\n")),
        ("{{ input.missing|default('none') }}", json!("none")),
        ("{{ input.missing is defined }}", json!(false)),
        ("{{ input.null|default('', true) }}.", json!(".")),
        ("{# nothing #}{{ '{{' }}", json!("{{")),
        ("{{ 18446744073709551615 }}", json!(18_446_744_073_709_551_615_u64)),
        ("{{ input.lines|map(attribute='sku')|join(', ') }}", json!("ink, pens")),
        ("{{ input.lines|sum(attribute='n') }}", json!(3)),
        ("{{ input.lines|selectattr('n', 'gt', 1)|list|length }}", json!(1)),
        ("{{ 'a b&ü'|urlencode }}", json!("a%20b%26%C3%BC")),
        ("{{ [3, 1, 2]|sort|first + [1]|last }}", json!(2)),
        ("{{ [1, 2, 3]|batch(2, 0)|list }}", json!([[1, 2], [3, 0]])),
        ("{{ 'a' ~ 1 ~ [true] }}", json!("a1[true]")),
        ("{{ '<b>'|tojson }}", json!("\"<b>\"")),
        ("{{ 'b' in ['a', 'b'] and 'c' not in 'ab' }}", json!(true)),
        ("{{ range(3)|list }}", json!([0, 1, 2])),
        ("{{ {'a': 1}|items|list }}", json!([["a", 1]])),
    ] {
        assert_eq!(evaluate(source), Ok(value), "{source}");
    }
}

#[test]
fn what_is_not_there_is_an_error_that_names_it() {
    for (source, message) in [
        ("{{ input.missing }}", "`input.missing` is not there"),
        ("{{ [input.missing] }}", "`input.missing` is not there"),
        ("{{ {'a': {'b': input.missing}} }}", "`input.missing` is not there"),
        ("{{ input.null.x }}", "`input.null.x` is not there"),
        ("x {{ input.missing }}", "`input.missing` is not there"),
        ("{{ input.missing == 'x' }}", "`input.missing` is not there"),
        ("{{ 'x' != input.missing }}", "`input.missing` is not there"),
        ("{{ input.missing in ['x'] }}", "`input.missing` is not there"),
        ("{{ input.missing ~ 'x' }}", "`input.missing` is not there"),
        ("{{ input.missing > 1 }}", "`input.missing` is not there"),
        ("{{ not input.missing }}", "`input.missing` is not there"),
        ("{{ input.missing|length }}", "`input.missing` is not there"),
        ("{{ input.missing|tojson }}", "`input.missing` is not there"),
        ("{{ 'a'|replace(input.missing, 'b') }}", "`input.missing` is not there"),
        ("{{ input.missing is eq 1 }}", "`input.missing` is not there"),
        ("{{ 1 if input.missing else 2 }}", "`input.missing` is not there"),
        ("{% for l in input.missing %}{% endfor %}", "`input.missing` is not there"),
        ("{% if input.missing == 1 %}a{% endif %}", "`input.missing` is not there"),
        ("{{ input.lines|map(attribute='price')|list }}", "a value is not there"),
        ("{{ steps['a-c'].id }}", "`steps.a-c` is not there"),
        ("{{ input.lines[5] }}", "a value is not there"),
        ("a {{ input.null }}", "null"),
        ("{{ 'a' ~ input.null }}", "null"),
        ("{{ 1 / 0 }}", ""),
        ("{{ 9223372036854775807 * 9223372036854775807 }}", "64 bits"),
        ("{{ 'x' * 3 }}", "multiplies numbers"),
        ("{{ 3 * [1] }}", "multiplies numbers"),
    ] {
        let failed = evaluate(source).unwrap_err();
        assert!(failed.contains(message) && !failed.starts_with("refused"), "{source}: {failed}");
    }
}

#[test]
fn an_expression_loses_no_digit() {
    let payload =
        Payload::parse(r#"{"large": 0.1000000000000000055, "fine": 0.10, "whole": 9007199254740993}"#);
    let scope = Data::object([("input", Data::of_payload(&payload.unwrap()))]);
    let value =
        |source: &str| Compiled::new(source).unwrap().evaluate(&scope).map_err(|failed| failed.message);
    assert_eq!(value("{{ input.fine }}"), Ok(json!(0.1)));
    assert_eq!(value("{{ input.whole + 2 }}"), Ok(json!(9_007_199_254_740_995_i64)));
    for source in ["{{ input.large }}", "{{ input.large + 1 }}", "{{ input }}", "x{{ input.large }}"] {
        assert!(value(source).unwrap_err().contains("more digits"), "{source}: {:?}", value(source));
    }
}

#[test]
fn what_the_language_leaves_out_is_refused() {
    for (source, message) in [
        ("{% set x = 1 %}", "`{% set %}` is not part"),
        ("{% macro f() %}{% endmacro %}", "`{% macro %}`"),
        ("{% include 'x' %}", "`{% include %}`"),
        ("{% raw %}{{ a }}{% endraw %}", "`{% raw %}`"),
        ("{%- raw -%}{{ a }}{% endraw %}", "`{% raw %}`"),
        ("{% for a in b recursive %}{% endfor %}", "recursive"),
        ("{% for a in b %}", "cannot be read"),
        ("{{ a }", "`{{` has no `}}`"),
        ("{{ }}", "nothing between"),
        ("{{ a|indent(1000000000) }}", "no filter `indent`"),
        ("{{ '%1000000000s'|format('x') }}", "no filter `format`"),
        ("{{ a is prime }}", "no test `prime`"),
        ("{{ debug() }}", "`debug` is not a function"),
        ("{{ a.items() }}", "`items` is not a function"),
        ("{{ a['items']() }}", "not a function"),
        ("{{ (a)() }}", "not a function"),
        ("{{ loop(a) }}", "not a function"),
        ("{{ range(*a) }}", "unpacked"),
        ("{{ a[1:2] }}", "slices"),
        ("{{ a|__operand }}", "`__operand`"),
        ("{{ a b }}", "cannot be read"),
        ("{{ a == }}", "cannot be read"),
        ("{{ a..b }}", "cannot be read"),
        ("{{ 'é }}", "`{{` has no `}}`"),
        ("{{ steps.é }}", "cannot be read"),
    ] {
        let refused = Compiled::new(source).unwrap_err();
        assert!(refused.message.contains(message), "{source}: {}", refused.message);
    }
}

/// What an author could do to make a server busy, and what must come of it: never a value.
fn attacks() -> Vec<(&'static str, String)> {
    let nested =
        |open: &str, close: &str, n: usize| format!("{{{{ {}1{} }}}}", open.repeat(n), close.repeat(n));
    let repeated = |what: &str, by: &str, n: usize| format!("{{{{ {} }}}}", vec![what; n].join(by));
    vec![
        ("indent", "{{ 'x'|indent(1000000000) }}".into()),
        ("format", "{{ '%1000000000s'|format('x') }}".into()),
        ("remainder as format", "{{ '%1000000000s' % 'x' }}".into()),
        (
            "doubling",
            "{% set ns = namespace(x='x') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}"
                .into(),
        ),
        ("repeated text", "{{ 'x' * 100000000 }}".into()),
        ("repeated list", "{{ [1] * 100000000 }}".into()),
        (
            "repeated text in a loop",
            "{% for i in range(9000) %}{% if 'x' * 99999999 %}{% endif %}{% endfor %}".into(),
        ),
        ("long loop", "{% for i in range(100000) %}{% if i %}{% endif %}{% endfor %}".into()),
        (
            "nested loops",
            "{% for i in range(9999) %}{% for j in range(9999) %}x{% endfor %}{% endfor %}".into(),
        ),
        ("long range", "{{ range(10000000) }}".into()),
        ("large output", "{% for i in range(100) %}{{ input.long }}{% endfor %}".into()),
        ("large concatenation", repeated("input.long", " ~ ", 64)),
        ("too many concatenations", repeated("'x'", " ~ ", 66)),
        ("too many sums", repeated("1", " + ", 66)),
        ("too many products", repeated("1", " * ", 6)),
        (
            "large concatenations in a loop",
            "{% for i in range(9000) %}{% if (input.long ~ input.long) == 'x' %}{% endif %}{% endfor %}"
                .into(),
        ),
        (
            "comparisons in a loop",
            "{% for i in range(9000) %}{% if input == input %}{% endif %}{% endfor %}".into(),
        ),
        (
            "filters in a loop",
            "{% for i in range(9000) %}{% if input.long|upper %}{% endif %}{% endfor %}".into(),
        ),
        ("json of json", format!("{{{{ input.quote{} }}}}", "|tojson".repeat(40))),
        ("replace that grows", format!("{{{{ 'xxxxxxxxxx'{} }}}}", "|replace('x', 'xxxxxxxxxx')".repeat(9))),
        ("replace of nothing", "{{ input.long|replace('', input.long) }}".into()),
        ("join that grows", "{{ range(100000)|join(input.long) }}".into()),
        ("batch that fills", "{{ [1]|batch(1000000000, 'x') }}".into()),
        ("sorting the same again", "{{ [1]|batch(10000, input.long)|first|sort }}".into()),
        (
            "tests of all",
            "{{ range(9999)|select('ne', input.long)|map('string')|select('in', [input.long])|list }}".into(),
        ),
        ("maps of maps", format!("{{{{ range(100000){}|list }}}}", "|map('string')".repeat(40))),
        ("sum of lists", "{{ input.lines|map('list')|sum(start=[]) }}".into()),
        ("power", "{{ 10 ** 1000000000 }}".into()),
        ("shift by powers", "{{ 2 ** 2 ** 2 ** 2 ** 2 ** 2 ** 2 }}".into()),
        ("parentheses", nested("(", ")", 480)),
        ("lists", nested("[", "]", 480)),
        ("objects", nested("{'a':", "}", 200)),
        ("signs", format!("{{{{ {}1 }}}}", "-".repeat(4_000))),
        ("negations", format!("{{{{ {}true }}}}", "not ".repeat(900))),
        ("long expression", repeated("input.cents", " or ", 400)),
        ("attributes", format!("{{{{ input{} }}}}", ".a".repeat(490))),
        ("blocks", format!("{}{}", "{% if input.yes %}".repeat(400), "{% endif %}".repeat(400))),
        ("conditions", format!("{{{{ 1{} }}}}", " if input.no else 1".repeat(240))),
        ("missing", "{{ input.missing }}".into()),
        ("missing in a list", "{{ [input.missing] }}".into()),
        ("missing in nothing", "{{ input.null.x }}".into()),
        ("null in a text", "a{{ input.null }}".into()),
        ("everything at once", "{{ debug() }}".into()),
    ]
}

#[test]
fn every_attack_ends_in_an_error_soon() {
    // 100 ms in an optimised build; this one is slower, and shares its processor with other tests.
    let soon = Duration::from_millis(if cfg!(debug_assertions) { 10_000 } else { 100 });
    for (name, source) in attacks() {
        let clock = SystemClock::new();
        let answer = evaluate(&source);
        let took = clock.elapsed();
        assert!(answer.is_err(), "{name}: {:.80}", answer.unwrap().to_string());
        assert!(took < soon, "{name} took {took:?}: {answer:?}");
    }
}

#[test]
fn references_are_those_that_are_read_from_outside() {
    for (source, expected) in [
        ("{{ steps.charge.id }}", "steps.charge.id"),
        ("{{ steps['a-b'].id }}", "steps.a-b"),
        ("{{ steps['a-b'].id + steps.charge.id }}", "steps.a-b steps.charge.id"),
        ("{{ steps[x] }}", "steps x"),
        ("{% for l in input.lines %}{{ l.sku }}{{ loop.index }}{% endfor %}", "input.lines"),
        ("{{ input.a|default(vars.b) }} {{ line }}", "input.a line vars.b"),
        ("{{ range(3) }}", "range"),
        ("{{ true and none }}", ""),
    ] {
        let compiled = Compiled::new(source).unwrap();
        let found: Vec<String> = compiled.references().iter().map(|reference| reference.join(".")).collect();
        assert_eq!(found.join(" "), expected, "{source}");
    }
}

#[test]
fn every_filter_and_test_of_the_list_exists() {
    for filter in FILTERS {
        let message = evaluate(&format!("{{{{ 1|{filter} }}}}")).err().unwrap_or_default();
        assert!(!message.contains("unknown"), "{filter}: {message}");
    }
    for test in TESTS {
        let message = evaluate(&format!("{{{{ 1 is {test} }}}}")).err().unwrap_or_default();
        assert!(!message.contains("unknown"), "{test}: {message}");
    }
}
