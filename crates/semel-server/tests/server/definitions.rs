//! Definitions over HTTP: what a push answers, which version a name means, and how runs of them start.

#![expect(clippy::unwrap_used, reason = "a test that fails by unwrap says where")]

pub(crate) mod tenants;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use semel::WorkflowName;
use semel::error::Error;
use semel::rules::path::Name;
use semel::rules::record::{Keep, Look, LookBy, Record};
use semel::store::layer::{Layered, StoreCall, StoreLayer, StoreWork};
use semel::store::{Answer, Store};
use semel_server::definitions::catalog::Catalog;
use semel_server::definitions::check::check;
use semel_server::definitions::interpret::Interpreter;
use serde_json::{Value, json};

use crate::world::{Api, Reply, World, cases};

cases![
    a_push_answers_id_label_and_whether_it_is_current,
    yaml_and_json_of_the_same_content_are_one_definition,
    a_label_that_is_taken_names_what_differs,
    all_problems_are_answered_at_once_with_their_places,
    a_check_writes_nothing,
    a_document_that_is_too_large_is_refused,
    fifty_equal_pushes_at_once_write_one_record,
    fifty_different_pushes_at_once_all_get_a_label,
    a_push_that_died_between_its_writes_is_completed_by_the_same_push,
    a_definition_is_read_by_id_label_and_name,
    definitions_are_listed_by_pages,
    use_goes_back_and_archive_refuses_new_starts,
    a_child_must_be_there_or_come_later,
    a_definition_is_started_by_id_label_and_name,
    a_start_says_what_to_start_once,
    an_input_that_does_not_fit_burns_no_key,
    the_same_key_after_another_version_finds_the_first_run,
    a_key_is_attached_to_also_if_no_new_start_were_accepted,
    timeout_and_retention_are_those_of_the_definition,
    versions_of_definitions_belong_to_the_server,
    a_definition_that_is_missing_pauses_its_runs_until_it_is_there_again,
];

/// A definition with one step, which waits this long.
pub(crate) fn text(name: &str, head: &str, wait: &str) -> String {
    format!("semel: 1\nname: {name}\n{head}\nsteps:\n  - {{name: pause, wait: {wait}}}\n")
}

const PUSH: &str = "/workflow-definitions";

async fn push(client: &Api, text: &str) -> Value {
    client.post(PUSH, text).await.ok()
}

fn of<'a>(answer: &'a Value, member: &str) -> &'a str {
    answer[member].as_str().unwrap_or_else(|| panic!("{member}: {answer}"))
}

async fn a_push_answers_id_label_and_whether_it_is_current(world: World) {
    let client = &world.client;
    let first = client.post(PUSH, text("a", "", "1s")).await;
    assert_eq!((first.status, first.is_replayed()), (201, false));
    let first = first.json();
    let id = of(&first, "id");
    assert!(id.starts_with("def1_") && id.len() == 31, "{id}");
    assert_eq!(first, json!({"verdict": "created", "id": id, "name": "a", "version": "1", "current": true}));
    let again = client.post(PUSH, text("a", "", "1s")).await;
    assert_eq!((again.status, again.is_replayed()), (200, true));
    assert_eq!(
        again.json(),
        json!({"verdict": "unchanged", "id": id, "name": "a", "version": "1", "current": true})
    );
    let second = push(client, &text("a", "version: beta", "2s")).await;
    assert_eq!((of(&second, "version"), of(&second, "previous")), ("beta", id));
    let aside = client.post(&format!("{PUSH}?current=false"), text("a", "", "3s")).await.ok();
    assert_eq!((of(&aside, "version"), &aside["current"]), ("2", &json!(false)));
    let back = push(client, &text("a", "", "1s")).await;
    assert_eq!((of(&back, "verdict"), of(&back, "previous")), ("unchanged", of(&second, "id")));
}

async fn yaml_and_json_of_the_same_content_are_one_definition(world: World) {
    let yaml = push(&world.client, "semel: 1\nname: a\nsteps: [{name: n, set: {x: 1.0}}]").await;
    let json = r#"{"name": "a", "steps": [{"set": {"x": 1}, "name": "n"}], "semel": 1}"#;
    let json = push(&world.client, json).await;
    assert_eq!((of(&json, "id"), of(&json, "verdict")), (of(&yaml, "id"), "unchanged"));
}

async fn a_label_that_is_taken_names_what_differs(world: World) {
    let client = &world.client;
    push(client, &text("a", "version: '3'", "1s")).await;
    for path in [PUSH.to_owned(), format!("{PUSH}?check=true")] {
        let refused = client.post(&path, text("a", "version: '3'", "2s")).await.problem(409, "VERSION_TAKEN");
        assert_eq!(refused["pointers"], json!(["/steps/0/wait"]));
        assert!(of(&refused, "detail").contains("a@3 is def1_"), "{refused}");
    }
    assert_eq!(of(&push(client, &text("a", "", "2s")).await, "version"), "4");
}

async fn all_problems_are_answered_at_once_with_their_places(world: World) {
    let wrong = "semel: 1\nname: a\nsteps:\n  - {name: x, wrker: {queue: q}}\n  - {name: y, wait: 1}\n  - {name: z, set: {a: \"{{ steps.q }}\"}}\n";
    let refused = world.client.post(PUSH, wrong).await.problem(400, "VALIDATION_ERROR");
    let problems = refused["problems"].as_array().unwrap();
    let places: Vec<_> =
        problems.iter().map(|p| (of(p, "pointer"), &p["line"], &p["column"], of(p, "severity"))).collect();
    assert_eq!(
        places,
        [
            ("/steps/0/wrker", &json!(4), &json!(15), "structure"),
            ("/steps/1/wait", &json!(5), &json!(21), "structure"),
            ("/steps/2/set/a", &json!(6), &json!(24), "meaning"),
        ]
    );
    assert_eq!(of(&problems[0], "hint"), "is it `worker`?");
    assert!(of(&refused, "detail").contains("first of 3"), "{refused}");
    for text in ["", "[]", "a: [", "\u{0}", "semel: 1\nname: a@b\nsteps: [{name: n, wait: 1s}]"] {
        let refused = world.client.post(PUSH, text).await.problem(400, "VALIDATION_ERROR");
        assert!(refused["problems"][0]["line"].is_u64(), "{refused}");
    }
    let warned = world
        .client
        .post(PUSH, text("a", "input: {type: object, properties: {x: {}}}", "'{{ input.y }}'"))
        .await;
    let warned = warned.ok();
    assert_eq!(of(&warned["warnings"][0], "severity"), "warning", "{warned}");
}

async fn a_check_writes_nothing(world: World) {
    let client = &world.client;
    let path = format!("{PUSH}?check=true");
    let checked = client.post(&path, text("a", "", "1s")).await;
    assert_eq!((checked.status, of(&checked.json(), "verdict")), (200, "checked"));
    assert_eq!((of(&checked.json(), "version"), &checked.json()["current"]), ("1", &json!(false)));
    client.get(&format!("{PUSH}/a")).await.problem(404, "DEFINITION_NOT_FOUND");
    assert_eq!(records(&world, "definition").await.len() + records(&world, "definition-name").await.len(), 0);
    client.post(&path, "semel: 1").await.problem(400, "VALIDATION_ERROR");
    client.post(&format!("{PUSH}?check=maybe"), "").await.problem(400, "VALIDATION_ERROR");
}

async fn a_document_that_is_too_large_is_refused(world: World) {
    let large = format!("{}#{}", text("a", "", "1s"), "x".repeat(512 * 1024));
    world.client.post(PUSH, large).await.problem(413, "PAYLOAD_TOO_LARGE");
    let spaces = text("a", "", "1s");
    let spaces = format!("{spaces}#{}", " ".repeat(512 * 1024 - spaces.len() - 1));
    push(&world.client, &spaces).await;
}

async fn records(world: &World, kind: &str) -> Vec<Record> {
    let by = LookBy::Page { after: None, limit: 500, newest_first: false };
    world.store.records(Look { kind: Name::new(kind).unwrap(), by }).await.unwrap()
}

async fn fifty_equal_pushes_at_once_write_one_record(world: World) {
    let text = text("a", "", "1s");
    let pushes = (0..50).map(|_| world.client.post(PUSH, text.clone()));
    let replies: Vec<Reply> = join_all(pushes).await;
    let created = replies.iter().filter(|reply| reply.status == 201).count();
    assert_eq!(created, 1, "one caller made it");
    let answers: HashSet<_> = replies.iter().map(|reply| of(&reply.ok(), "id").to_owned()).collect();
    assert_eq!(answers.len(), 1);
    assert_eq!(
        (records(&world, "definition").await.len(), records(&world, "definition-name").await.len()),
        (1, 1)
    );
    assert_eq!(records(&world, "definition-name").await[0].version, 1, "one write");
}

async fn fifty_different_pushes_at_once_all_get_a_label(world: World) {
    let pushes = (0..50).map(|n| world.client.post(PUSH, text("a", "", &format!("{}s", n + 1))));
    let replies: Vec<Reply> = join_all(pushes).await;
    let labels: HashSet<_> = replies.iter().map(|reply| of(&reply.ok(), "version").to_owned()).collect();
    assert_eq!(labels, (1..=50).map(|n: u32| n.to_string()).collect());
    let detail = world.client.get(&format!("{PUSH}/a")).await.ok();
    assert_eq!(detail["versions"].as_array().unwrap().len(), 50);
}

/// A store that dies at the write of a name.
struct DiesAtTheName {
    store: Arc<dyn Store>,
    dead: AtomicBool,
}

impl StoreLayer for DiesAtTheName {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.store
    }

    fn around<T: Send + 'static>(&self, _: StoreCall, work: StoreWork<T>) -> Answer<'_, T> {
        work(self.store.clone())
    }

    fn keep(&self, keep: Keep) -> Answer<'_, Record> {
        if keep.kind.as_str() == "definition-name" {
            self.dead.store(true, Ordering::Relaxed);
        }
        if self.dead.load(Ordering::Relaxed) {
            return Box::pin(async { Err(Error::Unavailable("it was killed".into())) });
        }
        let store = self.store.clone();
        Box::pin(async move { store.keep(keep).await })
    }
}

async fn a_push_that_died_between_its_writes_is_completed_by_the_same_push(world: World) {
    let dying = Arc::new(Layered(DiesAtTheName { store: world.store.clone(), dead: AtomicBool::new(false) }));
    let dying = Api::serve(dying).await;
    let request = dying.request(reqwest::Method::POST, PUSH).body(text("a", "# first", "1s"));
    assert_eq!(request.send().await.unwrap().status().as_u16(), 503);
    let written = records(&world, "definition").await;
    assert_eq!((written.len(), records(&world, "definition-name").await.len()), (1, 0), "it died in between");
    let (_, id) = written[0].id.as_str().split_once('/').unwrap();
    let client = &world.client;
    client.get(&format!("{PUSH}/{id}")).await.problem(404, "DEFINITION_NOT_FOUND");
    start(client, id, "k").await.problem(404, "DEFINITION_NOT_FOUND");
    assert_eq!(client.get(PUSH).await.ok()["definitions"], json!([]));
    let completed = client.post(PUSH, text("a", "# second", "1s")).await;
    assert_eq!((completed.status, of(&completed.json(), "id")), (201, id));
    assert!(of(&client.get(&format!("{PUSH}/{id}")).await.ok(), "text").contains("# first"));
    assert_eq!(start(client, id, "k").await.status, 201, "and the key was not burnt");
}

async fn a_definition_is_read_by_id_label_and_name(world: World) {
    let client = &world.client;
    let (one, two) = (text("a", "description: Größe", "1s"), text("a", "version: beta", "2s"));
    let (first, second) = (push(client, &one).await, push(client, &two).await);
    for (reference, text, current) in
        [("a", &two, true), ("a@1", &one, false), ("a@beta", &two, true), (of(&first, "id"), &one, false)]
    {
        let detail = client.get(&format!("{PUSH}/{reference}")).await.ok();
        assert_eq!(
            (of(&detail, "text"), &detail["current"]),
            (text.as_str(), &json!(current)),
            "{reference}"
        );
        assert_eq!(detail["document"]["steps"][0]["name"], "pause");
        assert_eq!((detail["versions"].as_array().unwrap().len(), of(&detail, "pushedBy")), (2, "local"));
    }
    let graph = client.get(&format!("{PUSH}/{}/graph", of(&second, "id"))).await.ok();
    assert_eq!(graph["nodes"][0]["path"], "pause");
    for unknown in ["b", "a@2", "def1_00000000000000000000000000", "a@", "@", "%2F", "a%0A"] {
        for path in [format!("{PUSH}/{unknown}"), format!("{PUSH}/{unknown}/graph")] {
            client.get(&path).await.problem(404, "DEFINITION_NOT_FOUND");
        }
    }
    let schema = client.get("/definition.schema.json").await;
    assert_eq!(schema.header("content-type"), Some("application/schema+json"));
    assert!(schema.ok()["$defs"]["step"].is_object());
}

async fn definitions_are_listed_by_pages(world: World) {
    let client = &world.client;
    for name in ["e", "c", "a", "d", "b"] {
        push(client, &text(name, "", "1s")).await;
    }
    client.post(&format!("{PUSH}/c/archive"), "").await.ok();
    let (mut names, mut path) = (Vec::new(), format!("{PUSH}?limit=2"));
    loop {
        let page = client.get(&path).await.ok();
        names
            .extend(page["definitions"].as_array().unwrap().iter().map(|shown| of(shown, "name").to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        path = format!("{PUSH}?limit=2&cursor={next}");
    }
    assert_eq!(names, ["a", "b", "d", "e"]);
    let all = client.get(&format!("{PUSH}?archived=true")).await.ok();
    let archived: Vec<_> =
        all["definitions"].as_array().unwrap().iter().map(|shown| &shown["archived"]).collect();
    assert_eq!(archived, [false, false, true, false, false]);
    for wrong in ["?limit=0", "?limit=201", "?cursor=%00", "?other=1"] {
        client.get(&format!("{PUSH}{wrong}")).await.problem(400, "VALIDATION_ERROR");
    }
}

/// Starts a run of a definition.
async fn start(client: &Api, reference: &str, key: &str) -> Reply {
    let body = json!({"definitionId": reference, "input": {"n": 1}, "idempotencyKey": key});
    client.post("/workflow-runs", body.to_string()).await
}

async fn use_goes_back_and_archive_refuses_new_starts(world: World) {
    let client = &world.client;
    let first = push(client, &text("a", "", "1s")).await;
    push(client, &text("a", "", "2s")).await;
    let use_it = async |version: &str| {
        client.post(&format!("{PUSH}/a/use"), json!({"version": version}).to_string()).await
    };
    let used = use_it("1").await;
    assert_eq!((&used.ok()["changed"], of(&used.json(), "id")), (&json!(true), of(&first, "id")));
    assert!(use_it(of(&first, "id")).await.is_replayed());
    use_it("7").await.problem(404, "DEFINITION_NOT_FOUND");
    let run = start(client, "a", "k1").await.ok();
    assert_eq!(run["run"]["workflowVersion"], first["id"]);
    let archived = client.post(&format!("{PUSH}/a/archive"), "{}").await.ok();
    assert_eq!((&archived["archived"], &archived["changed"]), (&json!(true), &json!(true)));
    for reference in ["a", "a@1", of(&first, "id")] {
        let refused = start(client, reference, "k2").await.problem(409, "INVALID_TRANSITION");
        assert!(of(&refused, "detail").contains("archived"), "{refused}");
    }
    assert_eq!(start(client, "a", "k1").await.status, 200, "what was started before is found");
    assert_eq!(use_it("2").await.ok()["archived"], false);
    assert_eq!(start(client, "a", "k2").await.status, 201);
    client.post(&format!("{PUSH}/b/archive"), "{}").await.problem(404, "DEFINITION_NOT_FOUND");
    client.post(&format!("{PUSH}/a/use"), "{}").await.problem(400, "VALIDATION_ERROR");
}

async fn a_child_must_be_there_or_come_later(world: World) {
    let client = &world.client;
    let parent = |run: &str, more: &str| {
        format!("semel: 1\nname: parent\nsteps: [{{name: x, child: {{run: {run}{more}}}}}]\n")
    };
    let refused = client.post(PUSH, parent("leaf", "")).await.problem(400, "VALIDATION_ERROR");
    let problem = &refused["problems"][0];
    assert_eq!(
        (of(problem, "pointer"), &problem["line"], &problem["column"]),
        ("/steps/0/child/run", &json!(3), &json!(32))
    );
    push(client, &parent("leaf", ", later: true")).await;
    push(client, &parent("parent", "")).await;
    let leaf = push(client, &text("leaf", "", "1s")).await;
    for reference in ["leaf", "leaf@1", of(&leaf, "id")] {
        push(client, &parent(reference, "")).await;
    }
    client.post(PUSH, parent("leaf@2", "")).await.problem(400, "VALIDATION_ERROR");
    client.post(&format!("{PUSH}/leaf/archive"), "{}").await.ok();
    let warned = client.post(&format!("{PUSH}?check=true"), parent("leaf", "")).await.ok();
    assert!(of(&warned["warnings"][0], "message").contains("archived"), "{warned}");
    // A workflow in code counts while something serves it.
    let node = "node_01j0000000e00800000000007z";
    let join = json!({"node": node, "name": "w", "serves": ["coded@7"], "leaseMs": 60_000});
    client.post("/workers", join.to_string()).await.ok();
    push(client, &parent("coded", "")).await;
}

async fn a_definition_is_started_by_id_label_and_name(world: World) {
    let client = &world.client;
    let first = push(client, &text("a", "", "1s")).await;
    let second = push(client, &text("a", "version: beta", "2s")).await;
    for (reference, version) in
        [("a", &second), ("a@1", &first), ("a@beta", &second), (of(&first, "id"), &first)]
    {
        let started = start(client, reference, reference).await;
        assert_eq!(started.status, 201, "{}", started.text);
        let run = &started.json()["run"];
        assert_eq!((&run["workflow"], &run["workflowVersion"]), (&json!("a"), &version["id"]), "{reference}");
    }
    for unknown in ["b", "a@2", "def1_00000000000000000000000000", "", "a@1@2"] {
        start(client, unknown, "k").await.problem(404, "DEFINITION_NOT_FOUND");
    }
    assert_eq!(start(client, "a", "k").await.status, 201, "no key was burnt");
    let batch = json!({"runs": [{"definitionId": "a@1", "idempotencyKey": "b"}, {"definitionId": "none"}, {"workflow": "a"}]});
    let results = client.post("/workflow-runs/batch", batch.to_string()).await.ok();
    assert_eq!(results["results"][0]["start"]["run"]["workflowVersion"], first["id"]);
    assert_eq!(results["results"][1]["problem"]["code"], "DEFINITION_NOT_FOUND");
    assert_eq!(
        results["results"][2]["start"]["run"]["workflowVersion"], "1",
        "a workflow in code has its own versions"
    );
}

async fn a_start_says_what_to_start_once(world: World) {
    push(&world.client, &text("a", "", "1s")).await;
    for wrong in [
        json!({}),
        json!({"workflow": "a", "definitionId": "a"}),
        json!({"definitionId": "a", "workflowVersion": "1"}),
        json!({"workflowVersion": "1"}),
    ] {
        world.client.post("/workflow-runs", wrong.to_string()).await.problem(400, "VALIDATION_ERROR");
    }
}

const SCHEMA: &str = "input: {type: object, required: [n], properties: {n: {type: integer, minimum: 1}, list: {type: array, items: {type: string}}}}";

/// Starts `a` with this input.
async fn with_input(client: &Api, key: &str, input: &Value) -> Reply {
    let body = json!({"definitionId": "a", "input": input, "idempotencyKey": key, "onConflict": "attach"});
    client.post("/workflow-runs", body.to_string()).await
}

async fn an_input_that_does_not_fit_burns_no_key(world: World) {
    let client = &world.client;
    push(client, &text("a", SCHEMA, "1s")).await;
    for (input, pointers) in [
        (json!({"n": 0}), json!(["/n"])),
        (json!({}), json!([""])),
        (json!(7), json!([""])),
        (json!({"n": "secret", "list": ["a", 1, "b", null]}), json!(["/list/1", "/list/3", "/n"])),
    ] {
        let refused = with_input(client, "k", &input).await.problem(422, "INPUT_INVALID");
        let mut found: Vec<_> = refused["pointers"].as_array().unwrap().clone();
        found.sort_by_key(ToString::to_string);
        assert_eq!(Value::from(found), pointers, "{refused}");
        assert!(!refused.to_string().contains("secret"), "{refused}");
    }
    let started = with_input(client, "k", &json!({"n": 1})).await;
    assert_eq!((started.status, &started.json()["created"]), (201, &json!(true)));
    let batch = json!({"runs": [{"definitionId": "a", "input": {"n": -1}}]});
    let results = client.post("/workflow-runs/batch", batch.to_string()).await.ok();
    assert_eq!(
        (&results["results"][0]["status"], &results["results"][0]["problem"]["pointers"]),
        (&json!(422), &json!(["/n"]))
    );
}

async fn the_same_key_after_another_version_finds_the_first_run(world: World) {
    let client = &world.client;
    let first = push(client, &text("a", "", "1s")).await;
    let run = start(client, "a", "k").await.run_id();
    push(client, &text("a", "", "2s")).await;
    for reference in ["a", "a@1", "a@2"] {
        let again = start(client, reference, "k").await;
        assert_eq!((again.status, again.run_id()), (200, run.clone()), "{reference}");
        assert_eq!(again.json()["run"]["workflowVersion"], first["id"]);
    }
    // In the scope of the version, every version has its own keys.
    let versioned =
        json!({"definitionId": "a", "input": {"n": 1}, "idempotencyKey": "k", "scope": "workflow-version"});
    assert_eq!(client.post("/workflow-runs", versioned.to_string()).await.status, 201);
    let other = json!({"definitionId": "a", "input": {"n": 2}, "idempotencyKey": "k"});
    client.post("/workflow-runs", other.to_string()).await.problem(422, "KEY_REUSED");
}

async fn a_key_is_attached_to_also_if_no_new_start_were_accepted(world: World) {
    let client = &world.client;
    push(client, &text("a", "", "1s")).await;
    let input = json!({"n": 0});
    let run = with_input(client, "k", &input).await.run_id();
    push(client, &text("a", SCHEMA, "1s")).await;
    let again = with_input(client, "k", &input).await;
    assert_eq!(
        (again.status, again.run_id()),
        (200, run.clone()),
        "the newer schema refuses it, the older run is there"
    );
    with_input(client, "k", &json!({"n": -5})).await.problem(422, "KEY_REUSED");
    with_input(client, "other", &input).await.problem(422, "INPUT_INVALID");
    // `supersede` attaches to the run with the same input; for another input it would create a run, and is told why it does not.
    let superseding = |input: &Value| {
        json!({"definitionId": "a", "input": input, "idempotencyKey": "k", "onConflict": "supersede"})
            .to_string()
    };
    assert_eq!(client.post("/workflow-runs", superseding(&input)).await.run_id(), run);
    let replacing = client.post("/workflow-runs", superseding(&json!({"n": -5}))).await;
    replacing.problem(422, "INPUT_INVALID");
    let rejecting =
        json!({"definitionId": "a", "input": input, "idempotencyKey": "k", "onConflict": "reject"});
    client.post("/workflow-runs", rejecting.to_string()).await.problem(409, "DUPLICATE_RUN");
    client.post(&format!("{PUSH}/a/archive"), "{}").await.ok();
    assert_eq!(with_input(client, "k", &input).await.run_id(), run);
    assert_eq!(
        client.get(&format!("/workflow-runs/{run}")).await.ok()["status"],
        "PENDING",
        "and was not superseded"
    );
}

async fn timeout_and_retention_are_those_of_the_definition(world: World) {
    let client = &world.client;
    push(client, &text("a", "timeout: 1h\nretention: 2d", "1s")).await;
    let deliver = |token: &str| json!({"token": token, "payload": 1});
    for (key, more, hours) in [
        ("plain", json!({}), 1),
        ("said", json!({"timeout": "3h"}), 3),
        ("delivering", json!({"deliver": deliver("t1")}), 1),
        ("delivering and said", json!({"deliver": deliver("t2"), "timeout": "5h"}), 5),
    ] {
        let mut body = json!({"definitionId": "a", "idempotencyKey": key});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let run = client.post("/workflow-runs", body.to_string()).await.run_id();
        let detail = client.get(&format!("/workflow-runs/{run}")).await.ok();
        let time = |member: &str| of(&detail, member).parse::<jiff::Timestamp>().unwrap().as_millisecond();
        assert_eq!(time("deadline") - time("createdAt"), hours * 3_600_000, "{key}");
    }
    let found =
        world.store.list(semel::store::Query::all(semel::id::WorkspaceId::DEFAULT, 10)).await.unwrap();
    let days = |days: u64| std::time::Duration::from_hours(days * 24);
    for run in &found.runs {
        assert_eq!((run.new.retention.history, run.new.retention.key), (days(2), days(2)));
    }
    let said = json!({"definitionId": "a", "idempotencyKey": "x", "retention": {"history": "24h"}});
    client.post("/workflow-runs", said.to_string()).await.ok();
    let found = world.store.list(semel::store::Query::all(semel::id::WorkspaceId::DEFAULT, 1)).await.unwrap();
    assert_eq!((found.runs[0].new.retention.history, found.runs[0].new.retention.key), (days(1), days(2)));
}

async fn versions_of_definitions_belong_to_the_server(world: World) {
    let client = &world.client;
    let id = of(&push(client, &text("a", "", "1s")).await, "id").to_owned();
    let body = json!({"workflow": "a", "workflowVersion": id});
    let refused = client.post("/workflow-runs", body.to_string()).await.problem(400, "VALIDATION_ERROR");
    assert!(of(&refused, "detail").contains("`definitionId`"), "{refused}");
    let node = "node_01j0000000e00800000000007z";
    let join =
        |serves: &str| json!({"node": node, "name": "w", "serves": [serves], "leaseMs": 60_000}).to_string();
    let refused = client.post("/workers", join(&format!("a@{id}"))).await;
    assert_eq!(refused.status, 400, "{}", refused.text);
    client.post("/workers", join("a@1")).await.ok();
    let claim = json!({"node": node, "workflows": [{"workflow": "a", "workflowVersion": id}], "limit": 1});
    let refused = client.post("/workers/claim", claim.to_string()).await;
    assert_eq!(refused.status, 400, "{}", refused.text);
    assert!(refused.text.contains("definitions"), "{}", refused.text);
}

/// As in a store that was restored in part: the run is there, and its definition is not.
async fn a_definition_that_is_missing_pauses_its_runs_until_it_is_there_again(world: World) {
    let text = text("gone", "", "1ms");
    let id = check(&text).unwrap().id.to_string();
    let programs = Interpreter::new(Arc::new(Catalog::new(world.store.clone())));
    let engine = world.engine(|builder| builder.programs(programs)).await;
    let run = engine.start(WorkflowName::new("gone").version(&id), &json!({})).key("k").await.unwrap();
    let run_id = run.id().to_string();
    world.client.reached(&run_id, "PAUSED").await;
    let ledger = world.client.get(&format!("/workflow-runs/{run_id}/ledger")).await;
    for said in [&*id, "is not stored where this engine loads it from"] {
        assert!(ledger.text.contains(said), "{said}: {}", ledger.text);
    }
    assert_eq!(of(&push(&world.client, &text).await, "id"), id);
    world.client.post(&format!("/workflow-runs/{run_id}/resume"), "").await.ok();
    assert_eq!(world.client.ended(&run_id).await["status"], "COMPLETED");
}
