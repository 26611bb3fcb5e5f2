use serde_json::{Value as Json, json};

use super::*;
use crate::definitions::document;

fn simple(reference: &str, inputs: &Json) -> Json {
    json!({"name": "work", "taskReferenceName": reference, "type": "SIMPLE", "inputParameters": inputs})
}

fn workflow(tasks: &Json) -> String {
    json!({"name": "order flow", "version": 2, "timeoutSeconds": 60, "tasks": tasks}).to_string()
}

fn steps(tasks: &Json) -> Json {
    let imported = import(&workflow(tasks)).unwrap_or_else(|refusals| panic!("{refusals:?}"));
    document::read(&imported.text).unwrap().plain()["steps"].clone()
}

fn reasons(tasks: &Json) -> String {
    let refusals = import(&workflow(tasks)).unwrap_err();
    refusals.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_workflow_keeps_its_name_version_and_timeout() {
    let imported = import(&workflow(&json!([simple("a", &json!({}))]))).unwrap();
    assert!(
        imported.text.starts_with("semel: 1\nname: order_flow\nversion: \"2\"\ntimeout: \"60s\"\nsteps:\n"),
        "{}",
        imported.text
    );
}

#[test]
fn every_task_that_has_a_counterpart_becomes_it() {
    let a = simple("a", &json!({}));
    for (task, expected) in [
        (
            json!({"name": "pay", "taskReferenceName": "p", "inputParameters": {"n": "${workflow.input.cents}", "x": [1, "a ${a.output.b[0]['c d']}"]}}),
            json!({"name": "p", "worker": {"queue": "pay", "input": {"n": "{{ input.cents }}", "x": [1, "a {{ steps.a.b[0]['c d'] }}"]}}}),
        ),
        (
            json!({"name": "h", "taskReferenceName": "h", "type": "HTTP", "inputParameters": {"http_request": {
                "uri": "https://example.com/orders/${workflow.input.id}?full=yes", "method": "POST",
                "headers": {"Authorization": "x", "X-Shop": "1"}, "body": {"a": "${a.output}"}}}}),
            json!({"name": "h", "http": {"url": "https://example.com", "post": "/orders/{{ input.id }}", "query": {"full": "yes"},
                "headers": {"X-Shop": "1"}, "json": {"a": "{{ steps.a }}"}}}),
        ),
        (
            json!({"name": "s", "taskReferenceName": "s", "type": "SWITCH", "evaluatorType": "value-param", "expression": "which",
                "inputParameters": {"which": "${a.output.kind}"},
                "decisionCases": {"x": [simple("sx", &json!({}))], "y": [simple("sy", &json!({}))]}, "defaultCase": [simple("sz", &json!({}))]}),
            json!({"name": "s", "switch": [
                {"when": "{{ steps.a.kind|string == \"x\" }}", "steps": [{"name": "sx", "worker": {"queue": "work", "input": {}}}]},
                {"when": "{{ steps.a.kind|string == \"y\" }}", "steps": [{"name": "sy", "worker": {"queue": "work", "input": {}}}]},
                {"steps": [{"name": "sz", "worker": {"queue": "work", "input": {}}}]}]}),
        ),
        (
            json!({"name": "f", "taskReferenceName": "f", "type": "FORK_JOIN", "forkTasks": [[simple("l", &json!({}))], [simple("r", &json!({}))]]}),
            json!({"name": "f", "parallel": {"l": [{"name": "l", "worker": {"queue": "work", "input": {}}}],
                "r": [{"name": "r", "worker": {"queue": "work", "input": {}}}]}}),
        ),
        (
            json!({"name": "d", "taskReferenceName": "d", "type": "DO_WHILE", "loopCondition": "if ($.d['iteration'] < 5) { true; } else { false; }",
                "loopOver": [simple("body", &json!({}))]}),
            json!({"name": "d", "loop": {"until": "{{ not (index + 1 < 5) }}", "most": 5},
                "steps": [{"name": "body", "worker": {"queue": "work", "input": {}}}]}),
        ),
        (
            json!({"name": "c", "taskReferenceName": "c", "type": "SUB_WORKFLOW", "subWorkflowParam": {"name": "pack", "version": 1}, "inputParameters": {"a": 1}}),
            json!({"name": "c", "child": {"run": "pack@1", "input": {"a": 1}, "later": true}}),
        ),
        (
            json!({"name": "c", "taskReferenceName": "c", "type": "START_WORKFLOW", "inputParameters": {"startWorkflow": {"name": "pack", "input": {"a": 1}}}}),
            json!({"name": "c", "child": {"run": "pack", "input": {"a": 1}, "wait": false, "later": true}}),
        ),
        (
            json!({"name": "w", "taskReferenceName": "w", "type": "WAIT", "inputParameters": {"duration": "1 days 2 hours"}}),
            json!({"name": "w", "wait": "1d2h"}),
        ),
        (
            json!({"name": "w", "taskReferenceName": "w", "type": "WAIT"}),
            json!({"name": "w", "event": {"token": "{{ run.id }}:w"}}),
        ),
        (
            json!({"name": "ask", "taskReferenceName": "h", "type": "HUMAN", "inputParameters": {"a": 1}}),
            json!({"name": "h", "human": {"title": "ask", "form": {}, "content": {"a": 1}}}),
        ),
        (
            json!({"name": "v", "taskReferenceName": "v", "type": "SET_VARIABLE", "inputParameters": {"total": "${a.output.n}"}}),
            json!({"name": "v", "set": {"total": "{{ steps.a.n }}"}}),
        ),
        (
            json!({"name": "t", "taskReferenceName": "t", "type": "TERMINATE", "inputParameters": {"terminationStatus": "COMPLETED", "workflowOutput": {"a": "${a.output}"}}}),
            json!({"name": "t", "return": {"a": "{{ steps.a }}"}}),
        ),
        (
            json!({"name": "t", "taskReferenceName": "t", "type": "TERMINATE", "inputParameters": {"terminationStatus": "TERMINATED"}}),
            json!({"name": "t", "fail": {"code": "TERMINATED", "message": "the workflow was terminated"}}),
        ),
        (
            json!({"name": "t", "taskReferenceName": "t", "type": "TERMINATE", "inputParameters": {"terminationStatus": "FAILED", "terminationReason": "no"}}),
            json!({"name": "t", "fail": {"code": "TERMINATED", "message": "no"}}),
        ),
    ] {
        assert_eq!(steps(&json!([a, task]))[1], expected);
    }
}

#[test]
fn what_is_optional_is_tried_and_its_failure_ignored() {
    let mut task = simple("x", &json!({"id": "${CPEWF_TASK_ID}", "all": "${workflow.variables}"}));
    task["optional"] = json!(true);
    let found = steps(
        &json!([task, {"name": "n", "taskReferenceName": "n", "type": "NOOP"}, simple("y", &json!({"x": "${x.output.z}"}))]),
    );
    let inner = json!({"name": "x", "worker": {"queue": "work", "input": {"id": "{{ effect.key }}", "all": "{{ vars }}"}}});
    let caught = json!([{"steps": [{"name": "ignored", "set": {"failed": "{{ error.message }}"}}]}]);
    assert_eq!(found[0], json!({"name": "x", "try": [inner], "catch": caught}));
    assert_eq!(found[1], json!({"name": "n", "now": {}}));
    assert_eq!(found[2]["worker"]["input"]["x"], "{{ steps.x.z }}");
}

#[test]
fn what_is_read_from_inside_a_block_is_read_from_the_block() {
    let fork = json!({"name": "f", "taskReferenceName": "f-1", "type": "FORK_JOIN",
        "forkTasks": [[simple("first", &json!({})), simple("l", &json!({}))], [simple("r", &json!({}))]]});
    let join = json!({"name": "j", "taskReferenceName": "j", "type": "JOIN", "joinOn": ["l", "r"]});
    let read = |path: &str| json!([fork, join, simple("after", &json!({"x": path}))]);
    for (path, expected) in
        [("${l.output.n}", "{{ steps['f-1'].l.n }}"), ("${j.output.r.n}", "{{ steps['f-1'].r.n }}")]
    {
        assert_eq!(steps(&read(path))[1]["worker"]["input"]["x"], expected);
    }
    assert!(
        reasons(&read("${first.output.n}")).contains("after: it reads from `first`, which is inside `f-1`")
    );
}

#[test]
fn a_statement_becomes_sql_with_named_values() {
    let jdbc = |input: Json| json!([{"name": "x", "taskReferenceName": "x", "type": "JDBC", "inputParameters": input}]);
    let update = jdbc(json!({
        "connectionId": "bank", "type": "UPDATE", "statement": "UPDATE a SET b = ? WHERE c = '?' AND d = ?",
        "parameters": ["${workflow.input.b}", 7], "expectedUpdateCount": 1,
    }));
    let expected = json!([{"name": "x", "sql": {
        "on": "bank", "run": "UPDATE a SET b = :p1 WHERE c = '?' AND d = :p2", "args": {"p1": "{{ input.b }}", "p2": 7},
        "expect": 1}, "keep": {"update_count": "{{ this.affected }}"}}]);
    assert_eq!(steps(&update), expected);
    let read = jdbc(json!({"connectionId": "bank", "statement": "SELECT 1", "type": "SELECT"}));
    let expected = json!([{"name": "x", "sql": {"on": "bank", "read": "SELECT 1"}, "keep": {"result": "{{ this.rows }}"}}]);
    assert_eq!(steps(&read), expected);
    let why = reasons(&jdbc(json!({"connectionId": "bank", "statement": "SELECT ?", "type": "SELECT"})));
    assert!(why.contains("1 question marks, and 0 parameters"), "{why}");
}

#[test]
fn a_refusal_names_the_task_and_the_reason() {
    let typed = |kind: &str| json!({"name": "x", "taskReferenceName": "x", "type": kind});
    for (tasks, reason) in [
        (json!([typed("INLINE")]), "x: it is JavaScript"),
        (json!([typed("LAMBDA")]), "x: it is JavaScript"),
        (json!([typed("JSON_JQ_TRANSFORM")]), "x: it is jq"),
        (json!([typed("DYNAMIC")]), "x: the task is chosen at run time"),
        (json!([typed("FORK_JOIN_DYNAMIC")]), "x: the branches are chosen at run time"),
        (json!([typed("EVENT")]), "x: its sink is chosen at run time"),
        (json!([typed("KAFKA_PUBLISH")]), "x: there are no connections to Kafka"),
        (json!([typed("EXCLUSIVE_JOIN")]), "x: it waits for one branch of several"),
        (json!([typed("JDBC")]), "x: its statement or connection is put together at run time"),
        (json!([typed("GRPC")]), "x: tasks of type GRPC have no counterpart"),
        (json!([typed("HTTP")]), "x: its address is put together at run time"),
        (json!([typed("SWITCH")]), "x: its condition is JavaScript"),
        (json!([typed("DO_WHILE")]), "x: its condition is JavaScript"),
        (json!([typed("SUB_WORKFLOW")]), "x: the workflow is chosen at run time"),
        (json!([typed("TERMINATE")]), "x: its status is chosen at run time"),
        (
            json!([simple("x", &json!({"a": "${y.output.b}"}))]),
            "x: it reads from `y`, and there is no such task",
        ),
        (
            json!([{"name": "x", "taskReferenceName": "x", "type": "SET_VARIABLE", "inputParameters": {"id": "${CPEWF_TASK_ID}"}}]),
            "x: `${CPEWF_TASK_ID}`: only tasks with an effect have a key",
        ),
        (
            json!([simple("x", &json!({"a": "${workflow.variables.never}"}))]),
            "x: `vars.never` is not set before",
        ),
        (
            json!([simple("x", &json!({"a": "${workflow.createTime}"}))]),
            "x: `${workflow.createTime}` has no counterpart",
        ),
        (
            json!([simple("x", &json!({"a": "${workflow.input..b}"}))]),
            "x: `${workflow.input..b}` has no counterpart",
        ),
    ] {
        let reasons = reasons(&tasks);
        assert!(reasons.starts_with(reason), "{reason}: {reasons}");
    }
    let both = reasons(&json!([typed("INLINE"), typed("DYNAMIC")]));
    assert_eq!(both.lines().count(), 2, "all of them are named at once: {both}");
    assert!(import("{}").unwrap_err()[0].to_string().contains("no workflow definition"));
    assert!(import("{").unwrap_err()[0].to_string().contains("no JSON"));
}

#[test]
fn a_refusal_of_the_result_names_the_member() {
    let mut json: Json = serde_json::from_str(&workflow(&json!([simple("a", &json!({}))]))).unwrap();
    json["outputParameters"] =
        json!({"good": "${a.output.n}", "bad": "${b.output.n}", "id": "${CPEWF_TASK_ID}"});
    let refusals = import(&json.to_string()).unwrap_err();
    let told: Vec<_> = refusals.iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert_eq!(told[0], "outputParameters.bad: it reads from `b`, and there is no such task");
    assert!(told[1].starts_with("outputParameters.id: `${CPEWF_TASK_ID}`"), "{told:?}");
}

#[test]
fn an_event_becomes_a_message() {
    let event = |sink: &str| {
        json!([{"name": "e", "taskReferenceName": "e", "type": "EVENT", "sink": sink, "inputParameters": {"n": "${workflow.input.n}"}},
        simple("after", &json!({"id": "${e.output.event_produced}"}))])
    };
    for (sink, on, subject) in [
        ("conductor", "conductor", "order_flow:e"),
        ("conductor:paid", "conductor", "order_flow:paid"),
        ("nats:orders.${workflow.input.n}", "nats", "orders.{{ input.n }}"),
    ] {
        let found = steps(&event(sink));
        let expected = json!({"on": on, "subject": subject, "data": {"n": "{{ input.n }}"}});
        assert_eq!(found[0]["publish"], expected, "{sink}");
        assert_eq!(found[1]["worker"]["input"]["id"], "{{ steps.e.id }}");
    }
    assert!(reasons(&event("${workflow.input.sink}")).contains("e: its sink is chosen at run time"));
}

#[test]
fn a_loop_over_a_list_becomes_for_each() {
    let body = |loops: &str| {
        let read = json!({"it": format!("${{{loops}.output.loopItem.sku}}"), "at": format!("${{{loops}.output.loopIndex}}")});
        simple(&format!("{loops}_body"), &read)
    };
    let each = |name: &str, items: Json, tasks: Json| {
        json!({"name": name, "taskReferenceName": name, "type": "DO_WHILE", "loopCondition": "", "loopOver": tasks,
            "inputParameters": {"items": items, "keepLastN": 2}})
    };
    let inner = each("inner", json!("${outer.output.loopItem.parts}"), json!([body("inner")]));
    let tasks = json!([
        each("outer", json!("${workflow.input.lines}"), json!([body("outer"), inner])),
        simple("after", &json!({"count": "${outer.output.iteration}"}))
    ]);
    let found = steps(&tasks);
    assert_eq!(found[0]["for_each"], json!({"in": "{{ input.lines }}", "as": "item"}));
    assert_eq!(found[0]["steps"][0]["worker"]["input"], json!({"it": "{{ item.sku }}", "at": "{{ index }}"}));
    assert_eq!(found[0]["steps"][1]["for_each"], json!({"in": "{{ item.parts }}", "as": "item2"}));
    let input = &found[0]["steps"][1]["steps"][0]["worker"]["input"];
    assert_eq!(*input, json!({"it": "{{ item2.sku }}", "at": "{{ index }}"}));
    assert_eq!(found[1]["worker"]["input"]["count"], "{{ (steps.outer|length) }}");
    let fixed = steps(&json!([each("l", json!(["a", "b"]), json!([body("l")]))]));
    assert_eq!(fixed[0]["for_each"]["in"], json!(["a", "b"]));
    let mut both = each("l", json!([1]), json!([body("l")]));
    both["loopCondition"] = json!("$.l['iteration'] < 2");
    assert!(reasons(&json!([both])).starts_with("l: it has `items` and a condition"));
}

#[test]
fn comparisons_in_javascript_become_expressions() {
    let looped = |condition: &str| {
        let start = json!({"name": "s", "taskReferenceName": "s", "type": "SET_VARIABLE", "inputParameters": {"ok": false}});
        let again = json!({"name": "l", "taskReferenceName": "l", "type": "DO_WHILE", "loopCondition": condition,
            "inputParameters": {"n": "${workflow.input.n}", "ok": "${workflow.variables.ok}", "list": "${workflow.input.list}", "max": 3},
            "loopOver": [simple("body", &json!({"at": "${l.output.iteration}"}))]});
        json!([start, again])
    };
    for (condition, until) in [
        ("$.l['iteration'] < $.n", "not (index + 1 < input.n)"),
        ("if ($.l.iteration < $.max) { true; } else { false; }", "not (index + 1 < 3)"),
        ("(function () { return !$.ok; })();", "not (not (vars.ok))"),
        ("$.l['iteration'] < $.list.length", "not (index + 1 < input.list|length)"),
        (
            "const most = 3; if ($.body.failed === true && $.l['iteration'] < most) { true; } else { false; }",
            "not ((steps.body.failed == true) and (index + 1 < 3))",
        ),
    ] {
        let found = &steps(&looped(condition))[1];
        assert_eq!(found["loop"]["until"], format!("{{{{ {until} }}}}"), "{condition}");
        assert_eq!(found["steps"][0]["worker"]["input"]["at"], "{{ (index + 1) }}");
    }
    assert!(reasons(&looped("$.unknown < 3")).starts_with("l: `$.unknown` is no input parameter"));

    let switch = |script: &str| {
        json!([{"name": "s", "taskReferenceName": "s", "type": "SWITCH", "evaluatorType": "javascript", "expression": script,
        "inputParameters": {"n": "${workflow.input.n}"}, "decisionCases": {"true": [simple("yes", &json!({}))], "few": [simple("few", &json!({}))]}}])
    };
    let found = steps(&switch("$.n > 0"));
    let whens: Vec<_> =
        found[0]["switch"].as_array().unwrap().iter().map(|case| case["when"].clone()).collect();
    assert!(whens.contains(&json!("{{ (input.n > 0)|string == \"true\" }}")), "{whens:?}");
    let found = steps(&switch("$.n < 9 ? 'few' : 'many'"));
    let when = "{{ (\"few\" if (input.n < 9) else \"many\")|string == \"few\" }}";
    assert!(found[0]["switch"].as_array().unwrap().iter().any(|case| case["when"] == when), "{found}");
}

#[test]
fn a_script_that_only_chooses_between_values_becomes_set() {
    let inline = |script: &str| {
        json!([{"name": "i", "taskReferenceName": "i", "type": "INLINE",
        "inputParameters": {"evaluatorType": "graaljs", "expression": script, "all": "${workflow.input}", "text": "${workflow.input.text}"}},
        simple("after", &json!({"x": "${i.output.result.x}"}))])
    };
    for (script, result) in [
        ("({ x: $.text, y: 'done' })", json!({"x": "{{ input.text }}", "y": "done"})),
        (
            "if ($.all.a==1){return {x: true}} else{return {x: false}}",
            json!({"x": "{{ true if (input.a == 1) else false }}"}),
        ),
        ("function e() { return {x: 7}; } e();", json!({"x": "{{ 7 }}"})),
    ] {
        let found = steps(&inline(script));
        assert_eq!(found[0]["set"], json!({"result": result}), "{script}");
        assert_eq!(found[1]["worker"]["input"]["x"], "{{ steps.i.result.x }}");
    }
    assert!(reasons(&inline("$.text.split(' ')")).starts_with("i: it is JavaScript"));
    let different = reasons(&inline("if ($.all.a) {return {x: 1}} else {return {y: 1}}"));
    assert!(different.starts_with("i: it makes objects with different members"), "{different}");
}

#[test]
fn the_condition_of_a_script_is_decided_as_it_reads() {
    use crate::definitions::expression::Data;
    use crate::definitions::template::Filled;
    let switch = json!([{"name": "s", "taskReferenceName": "s", "type": "SWITCH", "evaluatorType": "javascript", "expression": "$.n > 0",
        "inputParameters": {"n": "${workflow.input.n}"}, "decisionCases": {"true": [simple("yes", &json!({}))]}}]);
    let imported = import(&workflow(&switch)).unwrap();
    let definition = crate::definitions::check::check(&imported.text).unwrap().definition;
    let crate::definitions::language::StepBody::Switch(cases) = &definition.steps[0].body else {
        panic!("it is a switch")
    };
    let when = cases[0].when.as_ref().unwrap();
    assert!(matches!(when.value, Filled::Hole(_)));
    for (n, expected) in [(1, true), (0, false)] {
        let data = Data::of_json(&json!({"input": {"n": n}}));
        assert_eq!(when.is_true(&data).unwrap(), expected, "{n}");
    }
}

#[test]
fn a_join_behind_a_choice_waits_for_nothing() {
    let choice = json!({"name": "s", "taskReferenceName": "s", "type": "SWITCH", "evaluatorType": "value-param", "expression": "n",
        "inputParameters": {"n": "${workflow.input.n}"}, "decisionCases": {"1": [simple("one", &json!({}))]}});
    let join = json!({"name": "j", "taskReferenceName": "j", "type": "EXCLUSIVE_JOIN", "joinOn": ["one"]});
    assert_eq!(steps(&json!([choice, join])).as_array().unwrap().len(), 1);
    let read = reasons(&json!([choice, join, simple("after", &json!({"x": "${j.output.n}"}))]));
    assert!(read.starts_with("after: it reads from `j`, and there is no such task"), "{read}");
}
