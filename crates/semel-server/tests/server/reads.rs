//! Lists, runs, ledgers and histories.

use std::time::Duration;

use futures_util::future::join;
use semel::History;
use semel::clock::{Clock as _, SystemClock};
use semel::id::{RunId, WorkspaceId};
use semel::rules::json::Payload;
use semel::rules::key::Key;
use semel::rules::path::Name;
use semel::rules::start::Start;
use serde_json::json;

use crate::world::{World, cases};

cases![
    runs_are_listed_the_newest_first_page_by_page,
    lists_are_filtered,
    a_list_that_would_read_too_many_runs_is_partial,
    a_run_with_a_long_ledger_is_shown_in_part,
    a_run_is_shown_with_its_steps,
    a_step_has_a_beginning_and_a_note,
    a_failing_step_shows_its_attempts,
    a_waiting_run_shows_what_it_waits_for,
    a_page_has_the_reasons_of_its_paused_runs,
    a_run_is_waited_for_beyond_a_version,
    a_ledger_is_read_page_by_page,
    a_history_is_what_a_replay_needs,
    another_workspaces_run_is_as_good_as_unknown,
    what_is_not_understood_is_refused,
];

async fn runs_are_listed_the_newest_first_page_by_page(world: World) {
    let mut started = Vec::new();
    for n in 0..5 {
        started.push(world.client.start("order", &format!("k{n}"), "1").await);
    }
    started.reverse();
    let (mut seen, mut cursor, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let page = world.client.get(&format!("/workflow-runs?limit=2{cursor}")).await.ok();
        let runs = page["runs"].as_array().expect("a list");
        seen.extend(runs.iter().map(|run| run["id"].as_str().expect("an id").to_owned()));
        pages += 1;
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!((seen, pages), (started, 3));
}

async fn lists_are_filtered(world: World) {
    let order = world.client.start("order", "a", "1").await;
    let refund = world.client.start("refund", "b", "1").await;
    world.client.post(&format!("/workflow-runs/{refund}/cancel"), "").await.ok();
    let listed = async |query: &str| {
        let page = world.client.get(&format!("/workflow-runs?{query}")).await.ok();
        let runs = page["runs"].as_array().expect("a list").clone();
        runs.iter().map(|run| run["id"].as_str().expect("an id").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(listed("workflow=order").await, [order.as_str()]);
    assert_eq!(listed("status=CANCELLED").await, [refund.as_str()]);
    assert_eq!(listed("status=CANCELLED&workflow=order").await, Vec::<String>::new());
    assert_eq!(listed("key=a").await, [order.as_str()]);
    assert_eq!(listed("key=a&status=FAILED").await, Vec::<String>::new());
    assert_eq!(listed("key=a&scope=w%2Forder").await, Vec::<String>::new());
    assert_eq!(listed("since=2020-01-01T00:00:00Z").await.len(), 2);
    assert_eq!(listed("since=2999-01-01T00:00:00%2B02:00").await.len(), 0);
    assert_eq!(listed("key=a&since=2999-01-01T00:00:00Z").await.len(), 0);
}

async fn a_list_that_would_read_too_many_runs_is_partial(world: World) {
    let order = |n: usize| json!({"workflow": "order", "idempotencyKey": format!("k{n}"), "input": 1});
    let oldest = world.client.start("refund", "refund", "1").await;
    world.client.post(&format!("/workflow-runs/{oldest}/cancel"), "").await.ok();
    // As many as are read for one page, and one more.
    for from in [0, 501] {
        let starts: Vec<_> = (from..from + 501).map(order).collect();
        world.client.post("/workflow-runs/batch", json!({ "runs": starts }).to_string()).await.ok();
    }
    let page = world.client.get("/workflow-runs?status=COMPLETED").await.ok();
    assert_eq!((&page["runs"], &page["partial"]), (&json!([]), &json!(true)));
    let next = page["next"].as_str().expect("a cursor");
    let page = world.client.get(&format!("/workflow-runs?status=COMPLETED&cursor={next}")).await.ok();
    assert_eq!(page, json!({"runs": []}), "the rest is read, and nothing is there");
    for query in ["workflow=refund", "workflow=refund&status=CANCELLED", "status=CANCELLED"] {
        let page = world.client.get(&format!("/workflow-runs?{query}")).await.ok();
        assert_eq!((&page["runs"][0]["id"], page.get("partial")), (&json!(oldest), None), "{query}");
    }
}

async fn a_run_with_a_long_ledger_is_shown_in_part(world: World) {
    async fn large(ctx: semel::Ctx, (): ()) -> semel::Result<()> {
        for n in 0..6 {
            ctx.step(format!("step-{n}")).run(async |_| Ok("x".repeat(1_900_000))).await?;
        }
        Ok(())
    }
    let _engine = world.engine(|builder| builder.workflow("large", large)).await;
    let run = world.client.start("large", "k", "null").await;
    let detail = world.client.ended(&run).await;
    let steps = detail["steps"].as_array().expect("a list");
    assert_eq!(
        (&detail["status"], steps.len()),
        (&json!("COMPLETED"), 5),
        "8 MiB, and the step that exceeds them"
    );
    let next = detail["nextEntry"].as_u64().expect("the first entry that is not shown");
    let rest = world.client.get(&format!("/workflow-runs/{run}/ledger?from={next}")).await.ok();
    let kinds: Vec<_> =
        rest["entries"].as_array().expect("a list").iter().map(|line| &line["kind"]).collect();
    assert_eq!(kinds, ["stepStarted", "stepCompleted", "completed"]);
    let page = world.client.get(&format!("/workflow-runs/{run}/ledger")).await.ok();
    assert_eq!(page["next"], next, "a page of the ledger has the same bound");
}

async fn a_step_has_a_beginning_and_a_note(world: World) {
    /// Ends when the clock has moved on.
    async fn slow(attempt: semel::Attempt) -> semel::Result<()> {
        let began = attempt.now();
        while attempt.now() < began.after(Duration::from_millis(3)) {
            tokio::task::yield_now().await;
        }
        Ok(())
    }
    async fn noted(ctx: semel::Ctx, (): ()) -> semel::Result<()> {
        ctx.step("keyed").note(&json!({"cents": 1250})).run(slow).await?;
        ctx.step("once").at_most_once().note("to A. Smith").run(slow).await
    }
    let _engine = world.engine(|builder| builder.workflow("noted", noted)).await;
    let run = world.client.start("noted", "k", "null").await;
    let detail = world.client.ended(&run).await;
    for (n, note) in [(0, json!({"cents": 1250})), (1, json!("to A. Smith"))] {
        let step = &detail["steps"][n];
        assert_eq!(step["note"], note);
        let took = step["attempts"][0]["tookMs"].as_u64().expect("it has ended");
        assert!(took >= 2, "the body took three milliseconds: {step}");
        assert!(step["startedAt"].as_str() < step["endedAt"].as_str(), "{step}");
    }
}

async fn a_run_is_shown_with_its_steps(world: World) {
    let _engine = world.doubling().await;
    let run = world.client.start("double", "k", "21").await;
    let detail = world.client.ended(&run).await;
    assert_eq!(
        (&detail["status"], &detail["result"], &detail["input"]),
        (&json!("COMPLETED"), &json!(42), &json!(21))
    );
    let steps = detail["steps"].as_array().expect("a list");
    let paths: Vec<_> = steps.iter().map(|step| step["path"].as_str()).collect();
    assert_eq!(paths, [Some("double"), Some("check")]);
    for step in steps {
        assert_eq!(
            (&step["status"], &step["value"], &step["attempts"][0]["number"]),
            (&json!("COMPLETED"), &json!(42), &json!(1))
        );
        let attempt = &step["attempts"][0];
        assert_eq!((&attempt["beganAt"], &attempt["fence"]), (&step["startedAt"], &json!(2)), "{step}");
        assert!(attempt["node"].is_string() && attempt["tookMs"].is_u64(), "{step}");
        assert!(step["effectKey"].as_str().is_some_and(|key| key.starts_with("e1") && key.len() == 34));
        assert!(step["endedAt"].is_string() && step["class"] == "keyed");
    }
    assert_eq!(
        (&detail["hooks"], &detail["unconsumed"], &detail["duplicates"]),
        (&json!([]), &json!(0), &json!([]))
    );
}

async fn a_failing_step_shows_its_attempts(world: World) {
    async fn fails(ctx: semel::Ctx, (): ()) -> semel::Result<()> {
        ctx.step("pay").run(async |_| Err::<(), _>(semel::fatal("no money"))).await
    }
    let _engine = world.engine(|builder| builder.workflow("fails", fails)).await;
    let run = world.client.start("fails", "k", "null").await;
    let detail = world.client.ended(&run).await;
    assert_eq!((&detail["status"], &detail["error"]["message"]), (&json!("FAILED"), &json!("pay: no money")));
    let step = &detail["steps"][0];
    assert_eq!((&step["status"], &step["error"]["message"]), (&json!("FAILED"), &json!("no money")));
    let paused = world.client.post(&format!("/workflow-runs/{run}/pause"), "").await;
    paused.problem(409, "RUN_FINISHED");
}

async fn a_waiting_run_shows_what_it_waits_for(world: World) {
    async fn waits(ctx: semel::Ctx, (): ()) -> semel::Result<()> {
        ctx.run_once("rates", async || Ok(json!({"eur": 1}))).await?;
        let hour = std::time::Duration::from_hours(1);
        let (slept, charged) = tokio::join!(
            ctx.sleep("cool-off", hour).into_future(),
            ctx.remote::<u64>("charge", "payments", 7).into_future()
        );
        slept?;
        charged.map(drop)
    }
    let _engine = world.engine(|builder| builder.workflow("waits", waits)).await;
    let start = json!({"workflow": "waits", "input": null, "timeout": "2h", "idempotencyKey": "k"});
    let run = world.client.post("/workflow-runs", start.to_string()).await.run_id();
    let detail = world.client.reached(&run, "WAITING").await;
    assert_eq!(
        (&detail["onces"][0]["label"], &detail["onces"][0]["value"]),
        (&json!("rates"), &json!({"eur": 1}))
    );
    assert_eq!(detail["timers"][0]["path"], "cool-off", "{detail}");
    let child = &detail["children"][0];
    assert_eq!(
        (&child["path"], &child["workflow"], &child["status"]),
        (&json!("charge"), &json!("queue:payments"), &json!("PENDING"))
    );
    let (timer, limit) = (detail["timers"][0]["firesAt"].as_str(), detail["deadline"].as_str());
    assert!(timer.is_some() && timer < limit, "an hour and two: {detail}");
    world.client.post(&format!("/workflow-runs/{run}/cancel"), "").await.ok();
    let ended = world.client.ended(&run).await;
    assert_eq!(ended["timers"], json!([]), "an ended run waits for nothing");
}

async fn a_page_has_the_reasons_of_its_paused_runs(world: World) {
    let (paused, open) =
        (world.client.start("order", "a", "1").await, world.client.start("order", "b", "1").await);
    world.client.post(&format!("/workflow-runs/{paused}/pause"), "").await.ok();
    let page = world.client.get("/workflow-runs").await.ok();
    let reason = |id: &str| {
        let runs = page["runs"].as_array().expect("a list");
        runs.iter().find(|run| run["id"] == id).map(|run| run["pauseReason"].clone())
    };
    assert_eq!(reason(&paused), Some(json!("paused by local; resume it to continue")));
    assert_eq!(reason(&open), Some(serde_json::Value::Null));
}

async fn a_run_is_waited_for_beyond_a_version(world: World) {
    let run = world.client.start("order", "k", "1").await;
    let path = format!("/workflow-runs/{run}");
    let (wait, pause) = (format!("{path}?wait=60&version=1"), format!("{path}/pause"));
    let (detail, stopped) = join(world.client.get(&wait), world.client.post(&pause, "")).await;
    assert_eq!(stopped.ok()["changed"], true);
    let detail = detail.ok();
    assert_eq!((&detail["status"], &detail["version"]), (&json!("PAUSED"), &json!(2)));
    assert_eq!(detail["pauseReason"], "paused by local; resume it to continue");
    let now = world.client.get(&format!("{path}?wait=0&version=7")).await.ok();
    assert_eq!(now["version"], 2, "what is not to be waited for is shown as it is");
    let (ended, _) = join(
        world.client.get(&format!("{path}?wait=60")),
        world.client.post(&format!("{path}/cancel"), r#"{"reason": "enough"}"#),
    )
    .await;
    assert_eq!(ended.ok()["cancelReason"], "enough");
}

async fn a_ledger_is_read_page_by_page(world: World) {
    let _engine = world.doubling().await;
    let run = world.client.start("double", "k", "21").await;
    let version = world.client.ended(&run).await["version"].as_u64().expect("a version");
    let (mut from, mut kinds) = (1, Vec::new());
    loop {
        let page = world.client.get(&format!("/workflow-runs/{run}/ledger?from={from}&limit=2")).await.ok();
        for entry in page["entries"].as_array().expect("a list") {
            assert_eq!(entry["number"], json!(kinds.len() + 1));
            let kind = entry["kind"].as_str().expect("a kind").to_owned();
            assert!(entry["entry"][&kind].is_object(), "{entry}");
            kinds.push(kind);
        }
        match page["next"].as_u64() {
            Some(next) => from = next,
            None => break,
        }
    }
    assert_eq!(kinds.len() as u64, version);
    assert_eq!((kinds[0].as_str(), kinds[kinds.len() - 1].as_str()), ("created", "completed"));
    let beyond = world.client.get(&format!("/workflow-runs/{run}/ledger?from=1000")).await.ok();
    assert_eq!((&beyond["entries"], &beyond["next"]), (&json!([]), &json!(null)));
}

async fn a_history_is_what_a_replay_needs(world: World) {
    let engine = world.doubling().await;
    let run = world.client.start("double", "k", "21").await;
    world.client.ended(&run).await;
    let reply = world.client.post(&format!("/workflow-runs/{run}/replay"), "").await;
    assert_eq!(reply.status, 200);
    let history = History::from_json(&reply.text).expect("a history");
    assert!(engine.replay_history(&history).await.expect("it fits").is_identical());
}

async fn another_workspaces_run_is_as_good_as_unknown(world: World) {
    let clock = SystemClock::new();
    let id = RunId(clock.uuid());
    let (name, key) = (Name::new("order").expect("a name"), Key::new("theirs").expect("a key"));
    let start = Start::new(WorkspaceId(clock.uuid()), id, name, Payload::null(), Some(key));
    world.store.start(start).await.expect("a free key");
    let unknown = RunId(clock.uuid());
    for (method, rest, body) in [
        ("GET", "", ""),
        ("GET", "?wait=60", ""),
        ("GET", "/ledger", ""),
        ("GET", "/events", ""),
        ("POST", "/cancel", ""),
        ("POST", "/pause", ""),
        ("POST", "/resume", ""),
        ("POST", "/retry", ""),
        ("POST", "/restart", ""),
        ("POST", "/fork", ""),
        ("POST", "/replay", ""),
        ("POST", "/steps/pay/resolve", r#"{"resolution": "happened"}"#),
    ] {
        let mut answers = Vec::new();
        for run in [id, unknown] {
            let path = format!("/workflow-runs/{run}{rest}");
            let reply = match method {
                "GET" => world.client.get(&path).await,
                _ => world.client.post(&path, body).await,
            };
            reply.problem(404, "NOT_FOUND");
            answers.push(reply.text.replace(&run.to_string(), "run"));
        }
        assert_eq!(answers[0], answers[1], "{method} {rest}");
    }
    assert_eq!(world.client.get("/workflow-runs").await.ok()["runs"], json!([]));
    world.client.get(&format!("/workflow-runs?cursor={id}")).await.problem(400, "VALIDATION_ERROR");
    world.client.get("/keys/theirs").await.problem(404, "NOT_FOUND");
    world.client.post("/keys/theirs/release", "").await.problem(404, "NOT_FOUND");
    world.client.start("order", "theirs", "1").await;
}

async fn what_is_not_understood_is_refused(world: World) {
    let run = world.client.start("order", "k", "1").await;
    for wrong in [
        "/workflow-runs?limit=0",
        "/workflow-runs?limit=501",
        "/workflow-runs?limit=many",
        "/workflow-runs?status=DONE",
        "/workflow-runs?since=yesterday",
        "/workflow-runs?cursor=17",
        "/workflow-runs?colour=red",
        "/workflow-runs?limit=1&limit=2",
        "/workflow-runs?workflow=a%2Fb",
        "/workflow-runs?scope=everywhere",
        "/workflow-runs/17",
        "/workflow-runs/%FF",
        "/workflow-runs/RUN?wait=61",
        "/workflow-runs/RUN?wait=-1",
        "/workflow-runs/RUN?wait=1&version=x",
        "/workflow-runs/RUN/ledger?from=0",
        "/workflow-runs/RUN/ledger?from=18446744073709551615",
        "/workflow-runs/RUN/ledger?limit=1001",
        "/workflow-runs/RUN/events?after=x",
        "/keys/k?scope=w",
        "/keys/%20",
    ] {
        let path = wrong.replace("RUN", &run);
        world.client.get(&path).await.problem(400, "VALIDATION_ERROR");
    }
}
