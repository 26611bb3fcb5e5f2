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
        (json!([typed("EVENT")]), "x: it becomes `publish`, which this server does not have yet"),
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
