//! `GET /workflow-runs/{id}/events`: live, resumable, without gaps and repeats.

use reqwest::{Method, Response};
use semel::Ctx;
use serde_json::Value;

use crate::world::{World, cases};

cases![
    entries_come_as_they_are_written_until_the_end,
    a_reader_goes_on_where_it_was,
    a_reader_that_knows_everything_of_an_ended_run_is_told_nothing,
    a_stream_goes_beyond_an_end_that_was_followed_by_a_restart,
    what_is_not_understood_is_refused,
];

/// Reads events one by one.
struct Events {
    response: Response,
    text: String,
}

impl Events {
    async fn of(world: &World, run: &str, last: Option<u64>) -> Self {
        let mut request = world.client.request(Method::GET, &format!("/workflow-runs/{run}/events"));
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let response = request.send().await.expect("the server answers");
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { response, text: String::new() }
    }

    /// The next event's id and data; none at the end of the stream.
    async fn next(&mut self) -> Option<(u64, Value)> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
                let parsed = field("id: ").zip(field("data: "));
                let parsed = parsed.map(|(id, data)| {
                    (id.parse().expect("a number"), serde_json::from_str(data).expect("JSON"))
                });
                let end = self.text.len() - rest.len();
                self.text.drain(..end);
                match parsed {
                    Some(parsed) => return Some(parsed),
                    None => continue,
                }
            }
            let chunk = self.response.chunk().await.expect("the stream is not cut off")?;
            self.text.push_str(std::str::from_utf8(&chunk).expect("text"));
        }
    }

    async fn rest(mut self) -> Vec<(u64, Value)> {
        let mut all = Vec::new();
        while let Some(event) = self.next().await {
            all.push(event);
        }
        all
    }
}

fn kinds(events: &[(u64, Value)]) -> Vec<&str> {
    events.iter().map(|(_, data)| data["kind"].as_str().expect("a kind")).collect()
}

async fn approval(ctx: Ctx, (): ()) -> semel::Result<String> {
    ctx.step("ask").run(async |_| Ok(())).await?;
    let mut hook = ctx.hook::<String>("approval");
    hook.recv().await
}

async fn entries_come_as_they_are_written_until_the_end(world: World) {
    let run = world.client.start("approval", "k", "null").await;
    let mut events = Events::of(&world, &run, None).await;
    let (number, created) = events.next().await.expect("the run exists");
    assert_eq!((number, created["kind"].as_str()), (1, Some("created")));
    // Entries from now on are written while the stream is read.
    let _engine = world.engine(|builder| builder.workflow("approval", approval)).await;
    let mut seen = Vec::new();
    while seen.last() != Some(&"waiting".to_owned()) {
        let (number, entry) = events.next().await.expect("the run waits");
        assert_eq!(number as usize, seen.len() + 2);
        seen.push(entry["kind"].as_str().expect("a kind").to_owned());
    }
    assert!(seen.contains(&"hookOpened".to_owned()));
    // Line ends in a payload are kept in the ledger and do not break an event.
    world.client.post("/hooks/approval", "\r\n \"yes\"\n").await.ok();
    let rest = events.rest().await;
    assert_eq!(kinds(&rest).last(), Some(&"completed"));
    let numbers: Vec<_> = rest.iter().map(|(number, _)| *number as usize).collect();
    assert_eq!(numbers, (seen.len() + 2..=seen.len() + 1 + rest.len()).collect::<Vec<_>>());
}

async fn a_reader_goes_on_where_it_was(world: World) {
    let _engine = world.doubling().await;
    let run = world.client.start("double", "k", "21").await;
    let version = world.client.ended(&run).await["version"].as_u64().expect("a version");
    let all = Events::of(&world, &run, None).await.rest().await;
    assert_eq!(all.len() as u64, version);
    for last in 0..version {
        let rest = Events::of(&world, &run, Some(last)).await.rest().await;
        assert_eq!(rest, all[last as usize..]);
    }
    let asked = world.client.get(&format!("/workflow-runs/{run}/events?after={}", version - 1)).await;
    assert!(asked.text.starts_with(&format!("id: {version}\n")), "{}", asked.text);
}

async fn a_reader_that_knows_everything_of_an_ended_run_is_told_nothing(world: World) {
    let run = world.client.start("order", "k", "1").await;
    world.client.post(&format!("/workflow-runs/{run}/cancel"), "").await.ok();
    assert_eq!(Events::of(&world, &run, Some(2)).await.rest().await, []);
    assert_eq!(Events::of(&world, &run, Some(99)).await.rest().await, []);
}

async fn a_stream_goes_beyond_an_end_that_was_followed_by_a_restart(world: World) {
    async fn fails(ctx: Ctx, (): ()) -> semel::Result<()> {
        ctx.step("pay").run(async |_| Err::<(), _>(semel::fatal("no money"))).await
    }
    let _engine = world.engine(|builder| builder.workflow("fails", fails)).await;
    let run = world.client.start("fails", "k", "null").await;
    world.client.ended(&run).await;
    world.client.post(&format!("/workflow-runs/{run}/retry"), "").await.ok();
    world.client.ended(&run).await;
    let all = Events::of(&world, &run, None).await.rest().await;
    let ends = kinds(&all).iter().filter(|kind| **kind == "failed").count();
    assert_eq!((ends, kinds(&all).contains(&"restarted")), (2, true));
}

async fn what_is_not_understood_is_refused(world: World) {
    let run = world.client.start("order", "k", "1").await;
    let path = format!("/workflow-runs/{run}/events");
    for wrong in ["x", "-1", ""] {
        let request = world.client.request(Method::GET, &path).header("last-event-id", wrong);
        crate::world::Reply::of(request).await.problem(400, "VALIDATION_ERROR");
    }
}
