//! What a person does about runs: deliveries, decisions, forks, and a key that is used for something else.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use semel::{Attempt, Ctx, Engine};
use serde_json::{Value, json};

use super::{Look, Window, doubtful};
use crate::console::local;
use crate::world::{Api, World, cases};

cases![
    a_double_click_delivers_once,
    a_double_click_without_scripts_delivers_once,
    a_doubt_is_decided_in_each_of_the_three_ways,
    a_doubt_is_decided_without_scripts,
    the_second_of_two_decisions_is_told_of_the_first,
    a_fork_charges_as_its_page_has_said,
    a_key_used_for_something_else_shows_what_differs,
];

/// A workflow that adds two messages for the token `sum`.
async fn adding(world: &World) -> Engine {
    async fn adds(ctx: Ctx, (): ()) -> semel::Result<u64> {
        let mut hook = ctx.hook::<u64>("sum");
        Ok(hook.recv().await? + hook.recv().await?)
    }
    world.engine(|builder| builder.workflow("adds", adds)).await
}

async fn delivers_once(world: &World, look: Look) {
    let (_, api) = local(world).await;
    let _engine = adding(world).await;
    let window = Window::open(api.url(), look).await;
    let run = api.start("adds", "k", "null").await;
    api.reached(&run, "WAITING").await;
    window.goto("/w/default/hooks").await;
    window.sees("*[@id='hooks']//code", "sum").await;
    window.press("Deliver…").await;
    window.fill("#payload", "42").await;
    let call = window.value("#call").await;
    window.press_twice("form[method=post] button").await;
    window.sees("p[@role='status']", "eliver").await;
    window.goto("/w/default/hooks?token=sum").await;
    window.fill("#payload", "42").await;
    window.fill("#call", &call).await;
    window.press_twice("form[method=post] button").await;
    window.sees("p[@role='status']", "It was absorbed, and the run gets it once.").await;
    window.goto(&format!("/w/default/runs/{run}?tab=duplicates")).await;
    window.sees("*[@id='duplicates']//td", "accepted before, consumed once").await;
    api.post("/hooks/sum", "1").await.ok();
    assert_eq!(api.ended(&run).await["result"], 43);
}

async fn a_double_click_delivers_once(world: World) {
    delivers_once(&world, Look::default()).await;
}

async fn a_double_click_without_scripts_delivers_once(world: World) {
    delivers_once(&world, Look { scripts: false, ..Look::default() }).await;
}

/// A run whose step is in doubt, on the screen.
async fn in_doubt(api: &Api, window: &Window, key: &str) -> String {
    let run = api.start("left", key, "null").await;
    api.reached(&run, "PAUSED").await;
    window.goto("/w/default/doubts").await;
    window.sees("*[@id='doubts']//code", key).await;
    window.goto(&format!("/w/default/runs/{run}")).await;
    window.sees("h2", "Did send[a b] take place?").await;
    run
}

/// Chooses one of the three decisions.
async fn choose(window: &Window, decision: &str) {
    window.click(&format!("input[value={decision}]")).await;
}

async fn decides(world: &World, look: Look) {
    let (_, api) = local(world).await;
    let _engine = doubtful(world).await;
    let window = Window::open(api.url(), look).await;

    let run = in_doubt(&api, &window, "happened").await;
    choose(&window, "happened").await;
    window.fill("textarea[name=value]", r#"{"sent": 9007199254740993}"#).await;
    window.press("Record decision").await;
    window.sees("p[@role='status']", "It is in the ledger").await;
    let detail = api.ended(&run).await;
    assert_eq!(
        (&detail["status"], &detail["result"]),
        (&json!("COMPLETED"), &json!({"sent": 9_007_199_254_740_993_u64}))
    );

    let run = in_doubt(&api, &window, "did-not").await;
    choose(&window, "did-not-happen").await;
    window.fill("textarea[name=path]", "send[a b]").await;
    window.press("Record decision").await;
    window.sees("p[@role='status']", "It is in the ledger").await;
    assert_eq!(api.ended(&run).await["result"], "sent again");

    let run = in_doubt(&api, &window, "give-up").await;
    choose(&window, "give-up").await;
    window.fill("textarea[name=message]", "the provider is closed").await;
    window.press("Record decision").await;
    window.sees("p[@role='status']", "It is in the ledger").await;
    let detail = api.ended(&run).await;
    assert_eq!(detail["status"], "FAILED");
    assert!(detail["error"].to_string().contains("the provider is closed"), "{detail}");
}

async fn a_doubt_is_decided_in_each_of_the_three_ways(world: World) {
    decides(&world, Look::default()).await;
}

async fn a_doubt_is_decided_without_scripts(world: World) {
    decides(&world, Look { scripts: false, ..Look::default() }).await;
}

async fn the_second_of_two_decisions_is_told_of_the_first(world: World) {
    let (_, api) = local(&world).await;
    let _engine = doubtful(&world).await;
    let (first, second) =
        (Window::open(api.url(), Look::default()).await, Window::open(api.url(), Look::default()).await);
    let run = in_doubt(&api, &first, "k").await;
    second.goto(&format!("/w/default/runs/{run}")).await;
    // What a person is filling in is not replaced when the run goes on.
    choose(&second, "give-up").await;
    choose(&first, "happened").await;
    first.fill("textarea[name=value]", "\"seen\"").await;
    first.press("Record decision").await;
    first.sees("*[@id='head']//span", "Completed").await;
    second.sees("*[@id='head']//span", "Completed").await;
    second.press("Record decision").await;
    second.sees("p[@role='alert']", "it is a completed step, and only a step in doubt can be").await;
    second.sees("*[@id='latest']//code", "\"by\":\"local\"").await;
    assert_eq!(first.texts("#doing").await, [""], "it waits for nothing any more");
    let detail = api.ended(&run).await;
    assert_eq!((&detail["status"], &detail["result"]), (&json!("COMPLETED"), &json!("seen")));
}

/// A provider that charges once per key.
type Book = Arc<Mutex<BTreeSet<String>>>;

async fn charging(world: &World, book: Book) -> Engine {
    let charges = move |ctx: Ctx, (): ()| {
        let book = book.clone();
        async move {
            let charge = async |attempt: Attempt| {
                book.lock().expect("no panics").insert(attempt.key().to_owned());
                Ok("charged".to_owned())
            };
            ctx.step("charge").run(charge).await
        }
    };
    world.engine(|builder| builder.workflow("charges", charges)).await
}

async fn a_fork_charges_as_its_page_has_said(world: World) {
    let (_, api) = local(&world).await;
    let book = Book::default();
    let charges = || book.lock().expect("no panics").len();
    let _engine = charging(&world, book.clone()).await;
    let window = Window::open(api.url(), Look::default()).await;
    let run = api.start("charges", "k", "null").await;
    api.ended(&run).await;
    let fork = async |keys: &str, says: &str| {
        window.goto(&format!("/w/default/runs/{run}")).await;
        window.press("Fork…").await;
        window.sees("tr[td//code='charge']", "Kept").await;
        window.fill("#at", "1").await;
        window.press("Show").await;
        window.sees("tr[td//code='charge']", "Runs again").await;
        window.sees("label", says).await;
        window.click(&format!("input[name=keys][value={keys}]")).await;
        window.press("Fork after entry 1").await;
        window.sees("p[@role='status']", "Done").await;
        window.sees("*[@id='head']//span", "Completed").await;
        let place = window.place().await;
        assert!(!place.contains(&run), "{place} is the origin");
    };
    fork("same", "What took place is not repeated").await;
    assert_eq!(charges(), 1, "with the same keys");
    fork("fresh", "takes place again").await;
    assert_eq!(charges(), 2, "with fresh keys");
}

async fn a_key_used_for_something_else_shows_what_differs(world: World) {
    let (_, api) = local(&world).await;
    let window = Window::open(api.url(), Look::default()).await;
    api.start("order", "order-7", r#"{"amount": 1999, "to": "Ada"}"#).await;
    let other: Value =
        json!({"workflow": "order", "idempotencyKey": "order-7", "input": {"amount": 9007, "to": "Ada"}});
    window.goto("/w/default/keys/order-7").await;
    window.sees("*[@id='live']", "Live").await;
    let refused = api.post("/workflow-runs", other.to_string()).await;
    refused.problem(422, "KEY_REUSED");
    let request = refused.header("x-request-id").unwrap_or_default().to_owned();
    window.sees("*[@id='absorbed']//td", "refused").await;
    for told in ["/input/amount", "1999", "9007", request.as_str()] {
        window.sees("*[@id='absorbed']", told).await;
    }
    assert!(!window.texts("#absorbed").await[0].contains("/input/to"), "what is the same is not told");
}
