//! What `tracing` hears: users' own events, in steps and in workflow code, are tied to the run they belong to; and the
//! engine's own events say nothing of what users hand over.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use semel::rules::status::Status;
use semel::store::Store;
use semel::store::faulty::{Fault, Faulty};
use semel::{Attempt, Ctx, Fail, Result, Retry, fatal};
use tokio::runtime::Builder as Runtime;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::Lab;
use super::replay::waiting;
use super::rest::yield_often;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("engine::events_of_user_code_are_in_the_span_of_their_run", || {
            alone(module_path!(), events)
        }),
        Trial::test("engine::a_line_is_logged_once_and_not_again_in_a_replay", || {
            alone("semel::sdk", logged)
        }),
        Trial::test("engine::retries_doubts_and_takeovers_are_logged", || alone("semel::", troubles)),
        Trial::test("engine::what_users_hand_over_is_in_no_event_of_the_engine", || {
            alone("semel::", secrets)
        }),
    ]
}

/// On one thread, so that this test's subscriber hears all of its engine and nothing of other tests.
fn alone<F: Future<Output = Result<(), Failed>>>(
    whose: &'static str,
    test: impl FnOnce(Heard) -> F,
) -> Result<(), Failed> {
    let runtime = Runtime::new_current_thread().enable_all().build()?;
    let heard = Heard { whose, notes: Arc::default() };
    let _listening = tracing::subscriber::set_default(heard.clone());
    runtime.block_on(test(heard))
}

#[derive(Debug, Default)]
struct Notes {
    /// Each span as its name and fields.
    spans: Vec<String>,
    entered: Vec<u64>,
    /// What was said, and in which spans, from the outermost.
    events: Vec<(String, String)>,
}

/// A subscriber that notes all spans, and the events of some.
#[derive(Clone, Debug)]
struct Heard {
    whose: &'static str,
    notes: Arc<Mutex<Notes>>,
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").expect("a string takes all");
    }
}

impl Subscriber for Heard {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut text = Text(span.metadata().name().to_owned());
        span.record(&mut text);
        let mut notes = self.notes.lock().expect("it works");
        notes.spans.push(text.0);
        Id::from_u64(notes.spans.len() as u64)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        if !event.metadata().target().starts_with(self.whose) {
            return;
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        let mut notes = self.notes.lock().expect("it works");
        let spans: Vec<_> = notes.entered.iter().map(|id| notes.spans[*id as usize - 1].clone()).collect();
        notes.events.push((text.0, spans.join(" > ")));
    }

    fn enter(&self, span: &Id) {
        self.notes.lock().expect("it works").entered.push(span.into_u64());
    }

    fn exit(&self, span: &Id) {
        assert_eq!(
            self.notes.lock().expect("it works").entered.pop(),
            Some(span.into_u64()),
            "one in the other"
        );
    }
}

async fn talks(ctx: Ctx, name: String) -> Result<()> {
    ctx.step("pay")
        .run(async |_| {
            tokio::task::yield_now().await;
            tracing::info!("{name} pays");
            Ok(())
        })
        .await?;
    ctx.sleep("nap", Duration::from_hours(1)).await?;
    tracing::info!("{name} wakes");
    Ok(())
}

async fn events(heard: Heard) -> Result<(), Failed> {
    let lab = Lab::new();
    let engine = lab.engine().workflow("talks", talks).open().await?;
    let mut runs = Vec::new();
    for name in ["one", "two"] {
        runs.push((name, engine.start(talks, name.to_owned()).await?));
    }
    for (_, run) in &runs {
        lab.until(async || run.status().await.is_ok_and(|status| status == Status::Waiting)).await;
    }
    lab.clock.advance(Duration::from_hours(1));
    for (_, run) in &runs {
        run.result().await?;
    }
    tracing::info!("the end");
    let notes = heard.notes.lock().expect("it works");
    let expected = |name: &str, (does, span): (&str, &str), id: &dyn Debug| {
        let said = (format!(" message={name} {does}"), format!("run run={id:?} workflow=talks{span}"));
        assert!(notes.events.contains(&said), "{said:?} is not among {:#?}", notes.events);
    };
    for (name, run) in &runs {
        expected(name, ("pays", " > step path=pay attempt=1"), &run.id());
        expected(name, ("wakes", ""), &run.id());
    }
    assert_eq!(notes.events.last(), Some(&(" message=the end".to_owned(), String::new())), "of no run");
    assert_eq!(notes.events.len(), 5);
    Ok(())
}

async fn logs(ctx: Ctx, (): ()) -> Result<()> {
    ctx.step("work").run(async |_| Ok(())).await?;
    ctx.log("the work is done");
    ctx.sleep("nap", Duration::from_hours(1)).await?;
    ctx.log("the nap is over");
    Ok(())
}

async fn logged(heard: Heard) -> Result<(), Failed> {
    let lab = Lab::new();
    let engine = lab.forgetful().workflow("logs", logs).open().await?;
    let run = engine.start(logs, ()).await?;
    waiting(&lab, &run).await;
    yield_often().await;
    lab.clock.advance(Duration::from_hours(1));
    run.result().await?;
    let notes = heard.notes.lock().expect("it works");
    for line in ["the work is done", "the nap is over"] {
        let said: Vec<_> = notes.events.iter().filter(|(said, _)| said.contains(line)).collect();
        assert_eq!(said.len(), 1, "{line}: {:#?}", notes.events);
        assert!(said[0].0.contains(&run.id().to_string()), "{said:?}");
    }
    Ok(())
}

async fn troubled(ctx: Ctx, (): ()) -> Result<()> {
    let fails = async |attempt: Attempt| match attempt.number() {
        1 => Err(Fail::retryable("no").with_code("BUSY")),
        _ => Ok(()),
    };
    ctx.step("call").retry(Retry::fixed(Duration::from_millis(5))).run(fails).await?;
    ctx.step("letter").at_most_once().run(async |_| Err(Fail::retryable("no"))).await
}

async fn hangs(ctx: Ctx, (): ()) -> Result<u32> {
    ctx.step("hang").run(async |_| std::future::pending().await).await
}

async fn goes_on(ctx: Ctx, (): ()) -> Result<u32> {
    ctx.step("hang").run(async |_| Ok(7)).await
}

async fn troubles(heard: Heard) -> Result<(), Failed> {
    let lab = Lab::new();
    let first = lab.engine().workflow("troubled", troubled).workflow("hangs", hangs).open().await?;
    let doubtful = first.start(troubled, ()).await?;
    let hanging = first.start(hangs, ()).await?;
    lab.until(async || {
        lab.clock.advance(Duration::from_millis(5));
        doubtful.status().await.is_ok_and(|status| status == Status::Paused)
    })
    .await;
    first.crash().await;
    lab.clock.advance(Duration::from_hours(24 * 366));
    let second = lab.engine().workflow("hangs", goes_on).open().await?;
    let run = second.run(hanging.id());
    lab.until(async || run.status().await.is_ok_and(Status::is_terminal)).await;
    let notes = heard.notes.lock().expect("it works");
    let (doubtful, hanging) = (doubtful.id(), hanging.id());
    for expected in [
        format!(
            " message=an attempt has failed and is tried again run={doubtful} workflow=troubled step=call attempt=1 \
             error=Retryable code=\"BUSY\" wait=5ms"
        ),
        format!(
            " message=it is unknown whether an effect took place; an operator has to decide run={doubtful} \
             workflow=troubled step=letter"
        ),
        format!(
            " message=a run is taken over: the lease of the node that drove it has ended run={hanging} workflow=hangs"
        ),
    ] {
        let count = notes.events.iter().filter(|(said, _)| *said == expected).count();
        assert_eq!(count, 1, "{expected:?} among {:#?}", notes.events);
    }
    Ok(())
}

const CANARY: &str = "canary-3f9a";

async fn discreet(ctx: Ctx, card: String) -> Result<String> {
    let fails = async |attempt: Attempt| match attempt.number() {
        1 => Err(Fail::retryable(format!("{card} was declined"))),
        _ => Ok(card.clone()),
    };
    ctx.step("pay").retry(Retry::fixed(Duration::ZERO)).run(fails).await?;
    let panics = async |_| -> Result<()> { panic!("{card}") };
    ctx.step("break").retry(Retry::none()).run(panics).await.expect_err("it panics");
    let code: String = ctx.hook(CANARY).recv().await?;
    Err(fatal(format!("{code} is wrong")))
}

async fn secrets(heard: Heard) -> Result<(), Failed> {
    let lab = Lab::new();
    // The answer to every third commit is lost, so that the engine has something to say.
    let mut commits = 0;
    let plan = move |call: &'static str| {
        commits += usize::from(call == "commit");
        (call == "commit" && commits % 3 == 0).then_some(Fault::After)
    };
    let store: Arc<dyn Store> = Arc::new(Faulty::new(lab.store.clone(), plan));
    let engine = lab.engine().store(store).workflow("discreet", discreet).open().await?;
    let run = engine.start(discreet, CANARY.to_owned()).key(CANARY).await?;
    lab.until(async || {
        lab.clock.advance(Duration::from_millis(100));
        engine.deliver(CANARY, CANARY).id(CANARY).await.is_ok()
    })
    .await;
    lab.until(async || {
        lab.clock.advance(Duration::from_millis(100));
        run.status().await.is_ok_and(Status::is_terminal)
    })
    .await;
    let notes = heard.notes.lock().expect("it works");
    assert!(!notes.events.is_empty(), "the engine has said something");
    let all = notes.spans.iter().chain(notes.events.iter().map(|(said, _)| said));
    for said in all {
        assert!(!said.contains(CANARY), "{said}");
    }
    Ok(())
}
