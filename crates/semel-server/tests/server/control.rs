//! Cancel, pause, resume, retry, restart, fork, resolve: each may be repeated.

use semel::Ctx;
use serde_json::json;

use crate::world::{World, cases};

cases![
    a_cancel_says_who_won,
    a_graceful_cancel_is_the_runs_own,
    a_paused_run_is_resumed,
    runs_are_resumed_by_the_reason_of_their_pause,
    a_failed_run_is_retried_and_restarted,
    a_fork_is_another_run,
    a_control_under_a_call_id_is_done_once,
    an_expected_version_guards,
    a_doubt_is_resolved,
    what_is_not_understood_is_refused,
];

async fn a_cancel_says_who_won(world: World) {
    let run = world.client.start("order", "k", "1").await;
    let path = format!("/workflow-runs/{run}/cancel");
    let won = world.client.post(&path, r#"{"reason": "enough"}"#).await.ok();
    assert_eq!((&won["changed"], &won["run"]["status"]), (&json!(true), &json!("CANCELLED")));
    assert_eq!(won["run"]["cancelReason"], "enough");
    let late = world.client.post(&path, r#"{"reason": "me too"}"#).await;
    assert_eq!((&late.ok()["changed"], late.is_replayed()), (&json!(false), false));
    assert_eq!(late.json()["run"]["cancelReason"], "enough");
}

async fn a_graceful_cancel_is_the_runs_own(world: World) {
    async fn patient(ctx: Ctx, (): ()) -> semel::Result<()> {
        let mut hook = ctx.hook::<()>("never");
        let waited = hook.recv().await;
        ctx.cleanup().step("sweep").run(async |_| Ok(())).await?;
        waited
    }
    let _engine = world.engine(|builder| builder.workflow("patient", patient)).await;
    let run = world.client.start("patient", "k", "null").await;
    world.client.reached(&run, "WAITING").await;
    let asked = world.client.post(&format!("/workflow-runs/{run}/cancel"), r#"{"graceful": true}"#).await;
    assert_eq!(asked.ok()["changed"], true);
    let detail = world.client.ended(&run).await;
    assert_eq!((&detail["status"], &detail["steps"][0]["path"]), (&json!("CANCELLED"), &json!("sweep")));
}

async fn a_paused_run_is_resumed(world: World) {
    let run = world.client.start("order", "k", "1").await;
    let act = async |verb: &str| world.client.post(&format!("/workflow-runs/{run}/{verb}"), "").await;
    assert_eq!(act("pause").await.ok()["run"]["status"], "PAUSED");
    assert_eq!(act("pause").await.ok()["changed"], false);
    act("retry").await.problem(409, "INVALID_TRANSITION");
    assert_eq!(act("resume").await.ok()["run"]["status"], "PENDING");
    assert_eq!(act("resume").await.ok()["changed"], false);
    let detail = world.client.get(&format!("/workflow-runs/{run}")).await.ok();
    let absorbed = &detail["duplicates"][0];
    assert_eq!((&absorbed["kind"], &absorbed["count"]), (&json!("control"), &json!(2)));
}

async fn runs_are_resumed_by_the_reason_of_their_pause(world: World) {
    let mut runs = Vec::new();
    for n in 0..5 {
        let run = world.client.start("order", &format!("k{n}"), "1").await;
        world.client.post(&format!("/workflow-runs/{run}/pause"), "").await.ok();
        runs.insert(0, run);
    }
    let other = world.client.start("letter", "k", "1").await;
    world.client.post(&format!("/workflow-runs/{other}/pause"), "").await.ok();
    let resume =
        async |body: serde_json::Value| world.client.post("/workflow-runs/resume", &body.to_string()).await;
    let none = resume(json!({"reason": "poisoned"})).await.ok();
    assert_eq!(none["resumed"], json!([]), "they are paused for another reason");
    resume(json!({"reason": "in-doubt"})).await.problem(400, "VALIDATION_ERROR");
    let (mut resumed, mut cursor) = (Vec::new(), serde_json::Value::Null);
    loop {
        let body = json!({"reason": "operator", "workflow": "order", "limit": 2, "cursor": cursor});
        let page = resume(body).await.ok();
        resumed.extend(page["resumed"].as_array().expect("a list").clone());
        cursor = page["next"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert_eq!(json!(resumed), json!(runs));
    let status =
        async |run: &str| world.client.get(&format!("/workflow-runs/{run}")).await.ok()["status"].clone();
    assert_eq!((status(&runs[0]).await, status(&other).await), (json!("PENDING"), json!("PAUSED")));
    // Repeated under its key, the call does not resume what was paused again since.
    let again = async || {
        let body = json!({"reason": "operator", "workflow": "letter"}).to_string();
        world.client.post_as("call-1", "/workflow-runs/resume", body).await.ok()["resumed"].clone()
    };
    assert_eq!(again().await, json!([other]));
    world.client.post(&format!("/workflow-runs/{other}/pause"), "").await.ok();
    assert_eq!(again().await, json!([]));
    assert_eq!(status(&other).await, "PAUSED");
}

async fn a_failed_run_is_retried_and_restarted(world: World) {
    async fn fails(ctx: Ctx, (): ()) -> semel::Result<()> {
        ctx.step("first").run(async |_| Ok(())).await?;
        ctx.step("pay").run(async |_| Err::<(), _>(semel::fatal("no money"))).await
    }
    let _engine = world.engine(|builder| builder.workflow("fails", fails)).await;
    let run = world.client.start("fails", "k", "null").await;
    let count = async |kind: &str, path: &str| {
        let ledger = world.client.get(&format!("/workflow-runs/{run}/ledger")).await.ok();
        let entries = ledger["entries"].as_array().expect("a list").clone();
        entries.iter().filter(|entry| entry["entry"][kind]["step"] == path).count()
    };
    world.client.ended(&run).await;
    let retried = world.client.post(&format!("/workflow-runs/{run}/retry"), "").await.ok();
    assert_eq!((&retried["changed"], &retried["run"]["status"]), (&json!(true), &json!("PENDING")));
    world.client.ended(&run).await;
    assert_eq!((count("stepStarted", "first").await, count("stepStarted", "pay").await), (1, 2));
    world.client.post(&format!("/workflow-runs/{run}/restart"), r#"{"from": "beginning"}"#).await.ok();
    world.client.ended(&run).await;
    assert_eq!((count("stepStarted", "first").await, count("stepStarted", "pay").await), (2, 3));
    world.client.post(&format!("/workflow-runs/{run}/cancel"), "").await.ok();
    world.client.post(&format!("/workflow-runs/{run}/resume"), "").await.problem(409, "RUN_FINISHED");
}

async fn a_fork_is_another_run(world: World) {
    let _engine = world.doubling().await;
    let run = world.client.start("double", "k", "21").await;
    let source = world.client.ended(&run).await;
    let path = format!("/workflow-runs/{run}/fork");
    let first = world.client.post_as("fork-1", &path, r#"{"key": "forked"}"#).await;
    assert_eq!(first.status, 201);
    let forked = first.run_id();
    assert_ne!(forked, run);
    assert_eq!(first.header("location"), Some(format!("/api/v1/workflow-runs/{forked}").as_str()));
    let again = world.client.post_as("fork-1", &path, r#"{"key": "forked"}"#).await;
    assert_eq!((again.status, again.run_id(), again.is_replayed()), (200, forked.clone(), true));
    let detail = world.client.ended(&forked).await;
    assert_eq!((&detail["result"], &detail["lineage"]), (&json!(42), &source["id"]));
    let taken = world.client.post(&path, r#"{"key": "forked"}"#).await;
    assert_eq!(taken.problem(409, "DUPLICATE_RUN")["owner"], json!(forked));
    let fresh = world.client.post(&path, r#"{"at": 1, "freshKeys": true}"#).await.run_id();
    assert_eq!(world.client.ended(&fresh).await["lineage"], json!(fresh));
}

async fn a_control_under_a_call_id_is_done_once(world: World) {
    let run = world.client.start("order", "k", "1").await;
    let path = |verb: &str| format!("/workflow-runs/{run}/{verb}");
    let first = world.client.post_as("c1", &path("pause"), "").await;
    assert_eq!((&first.ok()["changed"], first.is_replayed()), (&json!(true), false));
    world.client.post(&path("resume"), "").await.ok();
    let again = world.client.post_as("c1", &path("pause"), "").await;
    assert_eq!((&again.ok()["run"]["status"], again.is_replayed()), (&json!("PENDING"), true));
    let other = world.client.post_as("c1", &path("cancel"), "").await;
    assert_eq!(other.problem(422, "KEY_REUSED")["owner"], json!(run));
}

async fn an_expected_version_guards(world: World) {
    let run = world.client.start("order", "k", "1").await;
    let path = format!("/workflow-runs/{run}/pause");
    world.client.post(&path, r#"{"expectedVersion": 7}"#).await.problem(409, "CONCURRENCY_ERROR");
    world.client.post(&path, r#"{"expectedVersion": 1}"#).await.ok();
}

async fn a_doubt_is_resolved(world: World) {
    async fn letter(ctx: Ctx, (): ()) -> semel::Result<String> {
        let left = ctx.scope("left");
        let doubtful = async |_: semel::Attempt| Err::<String, _>(semel::Fail::uncertain("the line is dead"));
        left.step("send").key("a b").at_most_once().run(doubtful).await
    }
    let _engine = world.engine(|builder| builder.workflow("letter", letter)).await;
    let run = world.client.start("letter", "k", "null").await;
    let detail = world.client.reached(&run, "PAUSED").await;
    let step = &detail["steps"][0];
    assert_eq!((&step["path"], &step["status"]), (&json!("left/send[a b]"), &json!("IN_DOUBT")));
    assert_eq!(detail["pauseReason"], "a step is in doubt; resolve it");
    let resolve = async |path: &str, body: &str| {
        world.client.post_as("r1", &format!("/workflow-runs/{run}/steps/{path}/resolve"), body).await
    };
    let happened = r#"{"resolution": "happened", "value": "sent"}"#;
    resolve("other", happened).await.problem(409, "INVALID_TRANSITION");
    let path = "left%2Fsend%5Ba%20b%5D";
    let first = resolve(path, happened).await;
    assert_eq!((&first.ok()["changed"], first.is_replayed()), (&json!(true), false));
    assert_eq!(world.client.ended(&run).await["result"], "sent");
    assert!(resolve(path, happened).await.is_replayed());
    resolve(path, r#"{"resolution": "give-up"}"#).await.problem(422, "KEY_REUSED");
}

async fn what_is_not_understood_is_refused(world: World) {
    let run = world.client.start("order", "k", "1").await;
    for (path, body) in [
        ("cancel", r#"{"why": "because"}"#),
        ("cancel", r#"{"graceful": "yes"}"#),
        ("pause", r#"{"expectedVersion": -1}"#),
        ("restart", r#"{"from": "middle"}"#),
        ("fork", r#"{"key": ""}"#),
        ("steps/a%2F/resolve", r#"{"resolution": "happened"}"#),
        ("steps/a%232/resolve", r#"{"resolution": "happened"}"#),
        ("steps/a/resolve", r#"{"resolution": "perhaps"}"#),
        ("steps/a/resolve", r#"{"resolution": "happened", "tick": 0}"#),
        ("steps/a/resolve", r#"{"resolution": "did-not-happen", "value": 1}"#),
        ("steps/a/resolve", r#"{"resolution": "happened", "message": "m"}"#),
    ] {
        let reply = world.client.post(&format!("/workflow-runs/{run}/{path}"), body).await;
        reply.problem(400, "VALIDATION_ERROR");
    }
}
