//! Steps that call providers by their profiles.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use libtest_mimic::Trial;
use semel::profiles::{RESEND, TWILIO};
use semel::rules::entry::{Entry, Outcome, Resolution};
use semel::rules::json::Payload;
use semel::testing::{Crasher, Ended, Scene};
use semel::{Ctx, Fail, Result, Retry, WorkflowRef};

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, test: fn()| {
        Trial::test(format!("engine::profiles::{name}"), move || {
            test();
            Ok(())
        })
    };
    vec![
        trial("a_key_is_repeated_while_the_provider_knows_it", young),
        trial("a_key_that_may_be_forgotten_is_not_repeated", old),
        trial("what_is_refused_after_a_lost_answer_is_in_doubt", refused),
        trial("an_effect_with_a_profile_takes_place_once_whatever_write_the_engine_dies_at", crashes),
    ]
}

/// A provider: what it has carried out, and the statuses that it gives next. 0 is an answer that is lost after the effect.
#[derive(Clone, Default)]
struct StubProvider(Arc<Mutex<(Vec<String>, Vec<u16>)>>);

impl StubProvider {
    fn plan(&self, statuses: &[u16]) {
        *self.0.lock().expect("no panics") = (Vec::new(), statuses.iter().rev().copied().collect());
    }

    fn post(&self, key: String) -> Result<u16> {
        let mut books = self.0.lock().expect("no panics");
        let status = books.1.pop().unwrap_or(200);
        if matches!(status, 0 | 200..300) {
            books.0.push(key);
        }
        if status == 0 { Err(Fail::retryable("the line broke off")) } else { Ok(status) }
    }

    /// All requests that were carried out, and how many keys they had.
    fn count(&self) -> (usize, usize) {
        let keys = self.0.lock().expect("no panics").0.clone();
        let different: std::collections::HashSet<_> = keys.iter().collect();
        (keys.len(), different.len())
    }
}

async fn mail(ctx: Ctx, pause: Duration) -> Result<u16> {
    let wire = ctx.state::<StubProvider>();
    ctx.step("mail")
        .retry(Retry::fixed(pause).max_attempts(3))
        .profile(&RESEND)
        .run(async |attempt| {
            let status = wire.post(RESEND.key(&attempt))?;
            RESEND.answered(status, "")?;
            Ok(status)
        })
        .await
}

async fn text(ctx: Ctx, pause: Duration) -> Result<u16> {
    let wire = ctx.state::<StubProvider>();
    ctx.step("text")
        .retry(Retry::fixed(pause))
        .profile(&TWILIO)
        .run(async |attempt| {
            let status = wire.post(TWILIO.key(&attempt))?;
            TWILIO.answered(status, "")?;
            Ok(status)
        })
        .await
}

/// Plays a workflow against a provider with a plan; an operator says what took place. Gives whether it completed.
fn crasher(workflow: &'static str, plan: &'static [u16], pause: Duration) -> Crasher<StubProvider, bool> {
    Crasher::new(
        move || {
            let wire = StubProvider::default();
            wire.plan(plan);
            wire
        },
        |wire: &StubProvider, engine| {
            engine.state(wire.clone()).workflow("mail", mail).workflow("text", text)
        },
        async move |scene: Scene<StubProvider>| {
            let started: WorkflowRef<Duration, u16> = WorkflowRef::new(workflow);
            let run = scene.engine().start(started, pause).key("k").await?;
            let wire = scene.world().clone();
            let became = |_, _: &str| match wire.count() {
                (0, _) => Resolution::DidNotHappen,
                _ => Resolution::Happened(Payload::of(&200).expect("a number")),
            };
            Ok(matches!(scene.settle(&run, became).await?, Outcome::Completed(_)))
        },
    )
}

fn doubts(ended: &Ended<StubProvider, bool>) -> usize {
    ended.history().entries().filter(|entry| matches!(entry, Entry::StepInDoubt { .. })).count()
}

const SOON: Duration = Duration::from_secs(1);

fn young() {
    let ended = crasher("mail", &[0, 503, 200], SOON).undisturbed();
    assert_eq!((ended.value, doubts(&ended), ended.world.count()), (true, 0, (2, 1)), "{}", ended.history());
    let ended = crasher("mail", &[429, 409], SOON).undisturbed();
    assert_eq!((ended.value, doubts(&ended)), (false, 0), "a refusal is a failure if nothing else was tried");
}

fn old() {
    let ended = crasher("mail", &[0], Duration::from_hours(25)).undisturbed();
    assert_eq!((doubts(&ended), ended.world.count()), (1, (1, 1)), "{}", ended.history());
    // Nothing took place: the age of the key does not matter.
    let ended = crasher("mail", &[429], Duration::from_hours(25)).undisturbed();
    assert_eq!((ended.value, ended.world.count().1), (true, 1), "{}", ended.history());
    let ended = crasher("text", &[0], SOON).undisturbed();
    assert_eq!((doubts(&ended), ended.world.count()), (1, (1, 1)), "{}", ended.history());
}

fn refused() {
    for plan in [&[0, 401], &[0, 400]] {
        let ended = crasher("mail", plan, SOON).undisturbed();
        assert_eq!((doubts(&ended), ended.world.count()), (1, (1, 1)), "{plan:?}\n{}", ended.history());
    }
    let ended = crasher("mail", &[0, 503, 503], SOON).undisturbed();
    assert_eq!(doubts(&ended), 1, "the last try is unknown too\n{}", ended.history());
}

fn crashes() {
    let plays = crasher("mail", &[], SOON).every_boundary(|ended| {
        let (_, keys) = ended.world.count();
        assert_eq!((doubts(ended), keys), (0, 1), "{}", ended.history());
    });
    assert!(plays > 4, "{plays}");
    let plays = crasher("text", &[], SOON).every_boundary(|ended| {
        assert_eq!(ended.world.count(), (1, 1), "{}", ended.history());
    });
    assert!(plays > 4, "{plays}");
}
