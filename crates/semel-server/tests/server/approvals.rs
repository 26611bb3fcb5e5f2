//! Approvals: open ones are listed, the first decision counts, and links decide only when a person says so.

#![expect(clippy::unwrap_used, reason = "a test that fails by unwrap says where")]

mod asked;
mod boundary;

use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Trial;
use reqwest::Method;
use semel::clock::{Clock as _, SystemClock};
use semel::id::{ApprovalId, WorkspaceId};
use semel::store::faulty::{Fault, Faulty};
use semel::testing::ManualClock;
use semel_server::access::Caller;
use semel_server::api::{Choice, Permission};
use semel_server::app::App;
use semel_server::approvals::{Approvals, Decided, DecisionVerdict};
use serde_json::{Value, json};

use self::asked::{Asking, asking};
use crate::world::{Api, Reply, World, cases};

cases![
    an_open_approval_is_listed_until_it_is_decided,
    the_first_of_fifty_decisions_counts,
    a_second_decision_is_told_about_the_first,
    only_the_roles_that_are_named_may_decide,
    an_answer_has_to_fit_its_form,
    a_page_of_open_approvals_is_bounded,
    an_approval_times_out_and_takes_no_decision_then,
    approvals_of_ended_runs_are_neither_listed_nor_decided,
    a_decision_survives_a_crash_before_its_delivery,
    only_its_own_route_delivers_to_an_approval,
    approvals_of_other_workspaces_do_not_exist,
    opening_a_link_decides_nothing_and_its_form_decides_once,
    a_link_is_refused_if_it_is_forged_changed_or_expired,
    what_people_typed_is_shown_as_text,
    links_need_a_permission_and_have_an_end,
];

pub(crate) fn trials() -> Vec<Trial> {
    boundary::trials()
}

const APPROVE: &str = r#"{"decision": "approved"}"#;
const REJECT: &str = r#"{"decision": "rejected", "comment": "too dear"}"#;

async fn an_open_approval_is_listed_until_it_is_decided(world: World) {
    let asking = asking(
        &world,
        "approval: {title: \"Order {{ 3 + 4 }}\", content: {cents: 1900}, by: [sales], timeout: 2d}",
    )
    .await;
    let listed = world.client.get("/approvals").await.ok();
    let [open] = listed["approvals"].as_array().unwrap().as_slice() else { panic!("{listed}") };
    assert_eq!(
        (&open["title"], &open["by"], &open["task"]),
        (&json!("Order 7"), &json!(["sales"]), &json!("approval"))
    );
    assert_eq!(
        (&open["run"], &open["step"], &open["status"]),
        (&json!(asking.run), &json!("ask"), &json!("open"))
    );
    assert!(open["content"].is_null() && listed["next"].is_null(), "{listed}");
    let shown = world.client.get(&asking.path("")).await.ok();
    assert_eq!(shown["content"], json!({"cents": 1900}));

    let decided = world
        .client
        .post(&asking.path("/decide"), r#"{"decision": "edited", "content": {"cents": 1.10}}"#)
        .await;
    assert!(!decided.is_replayed(), "{}", decided.text);
    assert_eq!(
        (&decided.ok()["status"], &decided.ok()["decided"]["by"]),
        (&json!("edited"), &json!("local"))
    );
    assert_eq!(world.client.get("/approvals").await.ok()["approvals"], json!([]));
    let result = world.client.ended(&asking.run).await["result"].clone();
    assert_eq!(
        (&result["decision"], &result["by"], &result["at"]),
        (&json!("edited"), &json!("local"), &decided.ok()["decided"]["at"])
    );
    let ledger = world.client.get(&format!("/workflow-runs/{}/ledger", asking.run)).await;
    assert!(ledger.text.contains("1.10"), "the content is kept exactly: {}", ledger.text);
    for path in ["ask/open", "ask/close"] {
        assert!(ledger.text.contains(path), "{}", ledger.text);
    }
    assert_eq!(world.client.get(&asking.path("")).await.ok()["status"], "edited");
}

async fn the_first_of_fifty_decisions_counts(world: World) {
    let asking = asking(&world, "approval: {title: Race}").await;
    let path = asking.path("/decide");
    let decide = |n: usize| {
        let body = if n.is_multiple_of(2) { APPROVE } else { REJECT };
        world.client.post(&path, body)
    };
    let replies = futures_util::future::join_all((0..50).map(decide)).await;
    let first: Vec<_> = replies.iter().filter(|reply| reply.status == 200 && !reply.is_replayed()).collect();
    let [first] = first.as_slice() else { panic!("{} decisions were the first", first.len()) };
    let told: Vec<_> = replies.iter().filter(|reply| reply.is_replayed() || reply.status == 409).collect();
    assert_eq!(told.len(), 49);
    for reply in told {
        match reply.status {
            200 => assert_eq!(reply.json()["decided"], first.json()["decided"]),
            _ => drop(reply.problem(409, "ALREADY_DECIDED")),
        }
    }
    let result = world.client.ended(&asking.run).await["result"].clone();
    assert_eq!(result, first.json()["decided"]);
}

async fn a_second_decision_is_told_about_the_first(world: World) {
    let asking = asking(&world, "approval: {title: Twice}").await;
    let ada = asked::caller(&world, "Ada", &[Permission::Decide], &[]).await;
    let bob = asked::caller(&world, "Bob", &[Permission::Decide], &[]).await;
    let path = asking.path("/decide");
    let first = ada.post(&path, REJECT).await;
    assert_eq!((first.is_replayed(), &first.ok()["decided"]["comment"]), (false, &json!("too dear")));
    world.client.ended(&asking.run).await;
    // Also when the run has gone on.
    for caller in [&ada, &bob] {
        let again = caller.post(&path, REJECT).await;
        assert!(again.is_replayed());
        assert_eq!(again.ok()["decided"], first.ok()["decided"]);
    }
    for other in [APPROVE, r#"{"decision": "rejected"}"#, r#"{"decision": "edited", "content": 1}"#] {
        let problem = bob.post(&path, other).await.problem(409, "ALREADY_DECIDED");
        let detail = problem["detail"].as_str().unwrap();
        let at = first.ok()["decided"]["at"].as_str().unwrap().to_owned();
        assert!(detail.contains("rejected") && detail.contains("Ada") && detail.contains(&at), "{detail}");
    }
    for wrong in [
        "{}",
        r#"{"decision": "maybe"}"#,
        r#"{"decision": "edited"}"#,
        r#"{"decision": "approved", "content": 1}"#,
        r#"{"decision": "approved", "x": 1}"#,
    ] {
        ada.post(&path, wrong).await.problem(400, "VALIDATION_ERROR");
    }
    let long = json!({"decision": "approved", "comment": "x".repeat(10_001)}).to_string();
    ada.post(&path, long).await.problem(400, "VALIDATION_ERROR");
    let large = json!({"decision": "edited", "content": "x".repeat(256 * 1024)}).to_string();
    ada.post(&path, large).await.problem(413, "PAYLOAD_TOO_LARGE");
}

async fn only_the_roles_that_are_named_may_decide(world: World) {
    let sales = asking(&world, "approval: {title: Sales only, by: [sales, law]}").await;
    let all = asking(&world, "approval: {title: All}").await;
    let who = async |permissions: &[Permission], roles: &[&str]| {
        asked::caller(&world, "a caller", permissions, roles).await
    };
    for caller in [who(&[Permission::Decide], &[]).await, who(&[Permission::Decide], &["buyers"]).await] {
        let problem = caller.post(&sales.path("/decide"), APPROVE).await.problem(403, "FORBIDDEN");
        assert!(problem["detail"].as_str().unwrap().contains("`sales`, `law`"), "{problem}");
        let listed = caller.get("/approvals?role=buyers").await.ok();
        assert_eq!(asked::titles(&listed), ["All"]);
    }
    for permissions in [&[Permission::Start][..], &[Permission::Read], &[Permission::Worker]] {
        let caller = who(permissions, &["sales"]).await;
        caller.post(&all.path("/decide"), APPROVE).await.problem(403, "FORBIDDEN");
    }
    who(&[Permission::Start], &[]).await.get("/approvals").await.problem(403, "FORBIDDEN");
    let listed = who(&[Permission::Read], &[]).await.get("/approvals?role=law").await.ok();
    assert_eq!(asked::titles(&listed), ["Sales only", "All"]);
    who(&[Permission::Decide], &["law"]).await.post(&sales.path("/decide"), APPROVE).await.ok();
    who(&[Permission::Decide], &[]).await.post(&all.path("/decide"), APPROVE).await.ok();
    let other = asking(&world, "approval: {title: Sales again, by: [sales]}").await;
    who(&[Permission::Admin], &[]).await.post(&other.path("/decide"), APPROVE).await.ok();
}

async fn an_answer_has_to_fit_its_form(world: World) {
    let task = "human: {title: Size, content: \"Which size?\", form: {type: object, required: [size], \
                properties: {size: {type: integer, minimum: 1}}}}";
    let asking = asking(&world, task).await;
    let listed = world.client.get("/approvals").await.ok();
    assert_eq!(listed["approvals"][0]["task"], "human", "a list says what is asked, without the form");
    let shown = world.client.get(&asking.path("")).await.ok();
    assert_eq!((&shown["task"], &shown["form"]["type"]), (&json!("human"), &json!("object")));
    let path = asking.path("/decide");
    for (wrong, pointer) in [
        (r#"{"content": {"size": "large"}}"#, "/size"),
        (r#"{"content": {"size": 0}}"#, "/size"),
        (r#"{"content": {}}"#, ""),
        (r#"{"content": []}"#, ""),
        ("{}", ""),
    ] {
        let problem = world.client.post(&path, wrong).await.problem(422, "INPUT_INVALID");
        let pointers = problem.get("pointers").cloned().unwrap_or_default();
        assert_eq!(pointers, json!([pointer]), "{wrong}: {problem}");
    }
    world
        .client
        .post(&path, r#"{"decision": "approved", "content": {"size": 1}}"#)
        .await
        .problem(400, "VALIDATION_ERROR");
    assert_eq!(world.client.get(&asking.path("")).await.ok()["status"], "open", "nothing was delivered");
    let right = r#"{"content": {"size": 42, "note": 1.10}, "comment": "by hand"}"#;
    assert_eq!(world.client.post(&path, right).await.ok()["status"], "answered");
    let result = world.client.ended(&asking.run).await["result"].clone();
    assert_eq!((&result["content"]["size"], &result["comment"]), (&json!(42), &json!("by hand")));
    assert!(result["decision"].is_null(), "{result}");
}

async fn a_page_of_open_approvals_is_bounded(world: World) {
    let mut all = Vec::new();
    for n in 0..5 {
        all.push(asking(&world, &format!("approval: {{title: Number {n}}}")).await);
    }
    world.client.post(&all[1].path("/decide"), APPROVE).await.ok();
    let (mut titles, mut path, mut pages) = (Vec::new(), "/approvals?limit=2".to_owned(), 0);
    loop {
        let page = world.client.get(&path).await.ok();
        let found = asked::titles(&page);
        assert!(found.len() <= 2, "{page}");
        titles.extend(found);
        pages += 1;
        match page["next"].as_str() {
            Some(next) => path = format!("/approvals?limit=2&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(
        titles,
        ["Number 0", "Number 2", "Number 3", "Number 4"],
        "what is decided is not looked at again"
    );
    assert!(pages <= 3, "{pages}");
    for wrong in ["?limit=0", "?limit=101", "?state=open", "?cursor=%00"] {
        world.client.get(&format!("/approvals{wrong}")).await.problem(400, "VALIDATION_ERROR");
    }
}

async fn an_approval_times_out_and_takes_no_decision_then(world: World) {
    let asking = asking(&world, "approval: {title: Hurry, timeout: 1s}").await;
    let ended = world.client.ended(&asking.run).await;
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("FAILED"), &json!("TIMEOUT")), "{ended}");
    assert_eq!(asked::titles(&world.client.get("/approvals").await.ok()), Vec::<String>::new());
    assert_eq!(world.client.get(&asking.path("")).await.ok()["status"], "timed-out");
    let problem = world.client.post(&asking.path("/decide"), APPROVE).await.problem(409, "ALREADY_DECIDED");
    assert!(problem["detail"].as_str().unwrap().contains("timed-out"), "{problem}");
}

async fn approvals_of_ended_runs_are_neither_listed_nor_decided(world: World) {
    let gracefully = asking(&world, "approval: {title: Gracefully}").await;
    let hard = asking(&world, "approval: {title: Hard}").await;
    let open = asking(&world, "approval: {title: Open}").await;
    for (asking, body) in [(&gracefully, r#"{"graceful": true}"#), (&hard, "{}")] {
        world.client.post(&format!("/workflow-runs/{}/cancel", asking.run), body).await.ok();
        world.client.ended(&asking.run).await;
    }
    assert_eq!(asked::titles(&world.client.get("/approvals").await.ok()), ["Open"]);
    let closed = world.client.get(&gracefully.path("")).await.ok();
    assert_eq!(closed["status"], "cancelled");
    world.client.post(&gracefully.path("/decide"), APPROVE).await.problem(409, "ALREADY_DECIDED");
    world.client.post(&hard.path("/decide"), APPROVE).await.problem(409, "RUN_FINISHED");
    world.client.post(&open.path("/decide"), APPROVE).await.ok();
}

async fn a_decision_survives_a_crash_before_its_delivery(world: World) {
    let decided = |choice: Choice| Decided {
        decision: Some(choice),
        content: None,
        comment: None,
        by: "Ada".to_owned(),
        at: SystemClock::new().now(),
        call: SystemClock::new().uuid(),
    };
    for complete in ["the list", "a repetition", "another decision"] {
        let asking = asking(&world, "approval: {title: Crash}").await;
        let id: ApprovalId = asking.id.parse().unwrap();
        let fails = |call: &'static str| (call == "deliver").then_some(Fault::Before);
        let dies = Approvals::new(Arc::new(Faulty::new(world.store.clone(), fails)));
        dies.decide(id, &decided(Choice::Approved)).await.unwrap_err();
        let approvals = Approvals::new(world.store.clone());
        match complete {
            "the list" => {
                let listed = world.client.get("/approvals").await.ok();
                assert_eq!(asked::titles(&listed), Vec::<String>::new());
            }
            "a repetition" => {
                let verdict = approvals.decide(id, &decided(Choice::Approved)).await.unwrap();
                assert!(matches!(verdict, DecisionVerdict::Repeated(_)), "{verdict:?}");
            }
            _ => {
                let verdict = approvals.decide(id, &decided(Choice::Rejected)).await.unwrap();
                assert!(matches!(verdict, DecisionVerdict::Different(_)), "{verdict:?}");
            }
        }
        let result = world.client.ended(&asking.run).await["result"].clone();
        assert_eq!((&result["decision"], &result["by"]), (&json!("approved"), &json!("Ada")), "{complete}");
    }
    // Without any further call the timeout finds it: a decision that was recorded is not lost.
    let asking = asking(&world, "approval: {title: Crash, timeout: 1s}").await;
    let fails = |call: &'static str| (call == "deliver").then_some(Fault::Before);
    let dies = Approvals::new(Arc::new(Faulty::new(world.store.clone(), fails)));
    dies.decide(asking.id.parse().unwrap(), &decided(Choice::Rejected)).await.unwrap_err();
    assert_eq!(world.client.ended(&asking.run).await["result"]["decision"], "rejected");
}

async fn only_its_own_route_delivers_to_an_approval(world: World) {
    let asking = asking(&world, "approval: {title: Forged, by: [sales]}").await;
    let run = world.client.get(&format!("/workflow-runs/{}", asking.run)).await.ok();
    let token = run["hooks"][0].as_str().unwrap().to_owned();
    let forged =
        json!({"decision": "approved", "by": "x", "at": 0, "call": "00000000-0000-0000-0000-000000000000"});
    let path = format!("/hooks/{}", token.replace('/', "%2F"));
    world.client.post(&path, forged.to_string()).await.problem(403, "FORBIDDEN");
    world.client.post(&format!("{path}/address"), "{}").await.problem(403, "FORBIDDEN");
    let start = json!({"workflow": "w", "deliver": {"token": token, "payload": forged}});
    world.client.post("/workflow-runs", start.to_string()).await.problem(403, "FORBIDDEN");
    let deliver = json!({"token": token, "payload": forged, "id": null});
    let worker = world.client.post("/workers/deliver", deliver.to_string()).await;
    assert!((400..500).contains(&worker.status), "{}", worker.text);
    assert_eq!(world.client.get(&asking.path("")).await.ok()["status"], "open");
}

async fn approvals_of_other_workspaces_do_not_exist(world: World) {
    let asking = asking(&world, "approval: {title: Secret}").await;
    let elsewhere = Caller::new(WorkspaceId(SystemClock::new().uuid()), "spy", vec![Permission::Admin]);
    let app = App::open(world.store.clone(), Arc::new(SystemClock::new()));
    let spy = Api::serve_as(app, elsewhere).await;
    assert_eq!(spy.get("/approvals").await.ok()["approvals"], json!([]));
    let absent = format!("/approvals/{}", ApprovalId(SystemClock::new().uuid()));
    for (method, rest, body) in [
        (Method::GET, "", ""),
        (Method::POST, "/decide", APPROVE),
        (Method::POST, "/links", r#"{"choices": ["approved"]}"#),
    ] {
        let call =
            async |api: &Api, path: &str| Reply::of(api.request(method.clone(), path).body(body)).await;
        let hidden = call(&spy, &asking.path(rest)).await.problem(404, "NOT_FOUND");
        let missing = call(&world.client, &format!("{absent}{rest}")).await.problem(404, "NOT_FOUND");
        let plain =
            |problem: &Value| problem["detail"].as_str().unwrap().split("apr_").next().unwrap().to_owned();
        assert_eq!(plain(&hidden), plain(&missing));
    }
    world.client.get("/approvals/nonsense").await.problem(404, "NOT_FOUND");
}

/// Links of an approval, for approving and rejecting.
async fn links(world: &World, asking: &Asking) -> (String, String) {
    let body = r#"{"choices": ["approved", "rejected"], "to": "ada@example.com"}"#;
    let made = world.client.post(&asking.path("/links"), body).await.ok();
    let path = |n: usize| made["links"][n]["path"].as_str().unwrap().to_owned();
    (path(0), path(1))
}

async fn opening_a_link_decides_nothing_and_its_form_decides_once(world: World) {
    let asking = asking(&world, "approval: {title: By mail, content: [1, 2], by: [sales]}").await;
    let (approve, reject) = links(&world, &asking).await;
    for link in [&approve, &reject, &approve] {
        for method in [Method::GET, Method::HEAD] {
            let page = Reply::of(world.client.outside(method, link)).await;
            assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
            let policy = page.header("content-security-policy").unwrap();
            assert!(policy.contains("default-src 'none'") && !policy.contains("script"), "{policy}");
            assert_eq!(page.header("referrer-policy"), Some("no-referrer"));
            assert_eq!(page.header("cache-control"), Some("no-store"));
        }
    }
    assert_eq!(world.client.get(&asking.path("")).await.ok()["status"], "open", "a scanner decides nothing");
    let page = Reply::of(world.client.outside(Method::GET, &approve)).await;
    assert!(page.text.contains("<form method=\"post\">") && page.text.contains("By mail"), "{}", page.text);
    let sent = world.client.outside(Method::POST, &approve).body("comment=as+agreed+%26+done");
    let sent = Reply::of(sent.header("content-type", "application/x-www-form-urlencoded")).await;
    assert_eq!(sent.status, 200, "{}", sent.text);
    let result = world.client.ended(&asking.run).await["result"].clone();
    assert_eq!(
        (&result["decision"], &result["comment"], &result["by"]),
        (&json!("approved"), &json!("as agreed & done"), &json!("link:ada@example.com"))
    );
    let again = Reply::of(world.client.outside(Method::POST, &approve)).await;
    assert!(again.status == 200 && again.text.contains("approved"), "{}", again.text);
    for method in [Method::GET, Method::POST] {
        let other = Reply::of(world.client.outside(method, &reject)).await;
        assert_eq!(other.status, 409);
        assert!(other.text.contains("approved") && other.text.contains("ada@example.com"), "{}", other.text);
    }
}

async fn a_link_is_refused_if_it_is_forged_changed_or_expired(world: World) {
    let asking = asking(&world, "approval: {title: Guarded}").await;
    let other = asking_again(&world).await;
    let (approve, reject) = links(&world, &asking).await;
    let signature = |link: &str| link.split_once("sig=").unwrap().1.to_owned();
    let expiry = approve.split_once("exp=").unwrap().1.split('&').next().unwrap().to_owned();
    for forged in [
        approve.replace("approved", "rejected"),
        approve.replace(&signature(&approve), &signature(&reject)),
        approve.replace(&signature(&approve), &"0".repeat(64)),
        approve.replace(&expiry, &format!("{expiry}0")),
        approve.replace("ada", "eve"),
        approve.replace(&asking.id, &other.id),
        approve.split_once("sig=").unwrap().0.to_owned(),
        asking.path(""),
        approve.replace("choice=approved", "choice=edited"),
        format!("/approvals/nonsense?{}", approve.split_once('?').unwrap().1),
    ] {
        for method in [Method::GET, Method::POST] {
            let page = Reply::of(world.client.outside(method.clone(), &forged)).await;
            assert_eq!(page.status, 403, "{method} {forged}: {}", page.text);
            assert!(!page.text.contains("Guarded"), "{}", page.text);
        }
    }
    let later = ManualClock::new(SystemClock::new().now().after(Duration::from_hours(91 * 24)), 0);
    let app = App::open(world.store.clone(), Arc::new(later));
    let late = Api::serve_as(app, Caller::new(WorkspaceId::DEFAULT, "x", vec![])).await;
    for method in [Method::GET, Method::POST] {
        assert_eq!(Reply::of(late.outside(method, &approve)).await.status, 403, "expired");
    }
    assert_eq!(world.client.get(&asking.path("")).await.ok()["status"], "open");
    // A new key makes all earlier links invalid. Only the root token replaces it, or any caller of a server without keys.
    let admin = asked::caller(&world, "admin", &[Permission::Admin], &[]).await;
    admin.post("/approval-links/rotate", "").await.problem(403, "FORBIDDEN");
    assert_eq!(Reply::of(world.client.outside(Method::GET, &approve)).await.status, 200);
    assert_eq!(world.client.post("/approval-links/rotate", "").await.status, 204);
    assert_eq!(Reply::of(world.client.outside(Method::GET, &approve)).await.status, 403);
    let (again, _) = links(&world, &asking).await;
    assert_eq!(Reply::of(world.client.outside(Method::GET, &again)).await.status, 200);
}

async fn asking_again(world: &World) -> Asking {
    asking(world, "approval: {title: Other}").await
}

async fn what_people_typed_is_shown_as_text(world: World) {
    let evil = "<script>alert(1)</script>";
    let task = format!("approval: {{title: \"{evil}\", content: \"{evil}'\\\"&\"}}");
    let asking = asking(&world, &task).await;
    let body = json!({"choices": ["approved"], "to": evil}).to_string();
    let made = world.client.post(&asking.path("/links"), body).await.ok();
    let link = made["links"][0]["path"].as_str().unwrap().to_owned();
    let asked = Reply::of(world.client.outside(Method::GET, &link)).await;
    let decided = Reply::of(world.client.outside(Method::POST, &link).body(format!("comment={evil}"))).await;
    let shown = Reply::of(world.client.outside(Method::GET, &link)).await;
    for page in [asked, decided, shown] {
        assert_eq!(page.status, 200, "{}", page.text);
        assert!(page.text.contains("&lt;script&gt;") && !page.text.contains("<script"), "{}", page.text);
    }
}

async fn links_need_a_permission_and_have_an_end(world: World) {
    let asking = asking(&world, "approval: {title: Links, by: [sales], timeout: 2d}").await;
    let path = asking.path("/links");
    let both = r#"{"choices": ["approved", "rejected"]}"#;
    let who = async |permissions: &[Permission], roles: &[&str]| {
        asked::caller(&world, "a caller", permissions, roles).await
    };
    who(&[Permission::Read], &["sales"]).await.post(&path, both).await.problem(403, "FORBIDDEN");
    who(&[Permission::Decide], &["law"]).await.post(&path, both).await.problem(403, "FORBIDDEN");
    let made = who(&[Permission::Decide], &["sales"]).await.post(&path, both).await.ok();
    let expires = world.client.get(&asking.path("")).await.ok()["expiresAt"].clone();
    assert_eq!((&made["links"][0]["expiresAt"], &made["links"][1]["choice"]), (&expires, &json!("rejected")));
    let far = r#"{"choices": ["approved"], "expiresAt": "2190-01-01T00:00:00Z"}"#;
    let made = who(&[Permission::Start], &[]).await.post(&path, far).await.ok();
    assert_eq!(made["links"][0]["expiresAt"], expires, "not later than the approval");
    for wrong in [
        r#"{"choices": []}"#,
        r#"{"choices": ["edited"]}"#,
        r#"{"choices": ["approved", "approved"]}"#,
        r#"{"choices": ["approved"], "expiresAt": "2020-01-01T00:00:00Z"}"#,
        r#"{"choices": ["approved"], "to": " "}"#,
        r#"{"choices": ["approved"], "by": "x"}"#,
    ] {
        world.client.post(&path, wrong).await.problem(400, "VALIDATION_ERROR");
    }
    let form = asked::asking(&world, "human: {title: Form, form: {type: integer}}").await;
    world.client.post(&form.path("/links"), both).await.problem(400, "VALIDATION_ERROR");
}
