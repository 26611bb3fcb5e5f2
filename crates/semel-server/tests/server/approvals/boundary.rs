//! An engine that dies before and after every durable write while a run asks a person. Lost answers of the store are not played
//! here: a client that asks again lets time pass, and the time for a decision with it.

use libtest_mimic::Trial;
use semel::clock::Clock as _;
use semel::id::WorkspaceId;
use semel::rules::status::Status;
use semel::store::{Find, FindBy};
use semel::testing::{Crasher, Scene};
use semel::{Error, RunHandle};
use semel_server::api::Choice;
use semel_server::approvals::{Approvals, Decided};
use serde_json::{Value, json};

use super::asked::definition;
use crate::tasks::{Stage, crasher};

pub(super) fn trials() -> Vec<Trial> {
    let trial = |name: &str, test: fn()| {
        Trial::test(format!("approvals::{name}"), move || {
            test();
            Ok(())
        })
    };
    vec![
        trial("a_decision_arrives_once_whatever_write_the_engine_dies_at", decided),
        trial("an_answer_arrives_once_whatever_write_the_engine_dies_at", answered),
        trial("a_timeout_is_one_whatever_write_the_engine_dies_at", timed_out),
        trial("a_cancelled_question_is_closed_whatever_write_the_engine_dies_at", cancelled),
    ]
}

fn asks<T: PartialEq + std::fmt::Debug + 'static>(
    task: &str,
    script: impl AsyncFn(Scene<Stage>, RunHandle<Value>) -> Result<T, Error> + 'static,
) -> Crasher<Stage, T> {
    crasher(vec![definition(task)], false, async move |scene: Scene<Stage>| {
        let run = Stage::start(&scene, &json!({})).await?;
        script(scene, run).await
    })
}

/// Decides as soon as the approval is open, or has been decided before a crash; gives the result of the run.
async fn decide(scene: &Scene<Stage>, run: &RunHandle<Value>, decided: Decided) -> Result<Value, Error> {
    let approvals = Approvals::new(scene.store().clone());
    let ended = async || scene.status(run.id()).await.is_ok_and(Status::is_terminal);
    let open = async || {
        let page = approvals.page(WorkspaceId::DEFAULT, None, 100).await;
        page.ok().and_then(|(open, _)| open.first().map(|(id, _)| *id))
    };
    scene.until(async || open().await.is_some() || ended().await).await;
    if let Some(id) = open().await {
        approvals.decide(id, &decided).await?;
    }
    let result = run.result().await?;
    let replay = scene.engine().replay(run.id()).await?;
    assert!(replay.is_identical(), "{replay}");
    Ok(result)
}

/// Whether no approval is listed for the run any more.
async fn unlisted(scene: &Scene<Stage>) -> bool {
    let page = Approvals::new(scene.store().clone()).page(WorkspaceId::DEFAULT, None, 100).await;
    page.is_ok_and(|(open, _)| open.is_empty())
}

fn decided() {
    let crasher = asks("approval: {title: Crash, timeout: 2d}", async |scene, run| {
        let (at, call) = (scene.clock().now(), scene.clock().uuid());
        let decision = Some(Choice::Approved);
        let decided = Decided { decision, content: None, comment: None, by: "Ada".to_owned(), at, call };
        let result = decide(&scene, &run, decided).await?;
        Ok((result["decision"].clone(), result["by"].clone(), unlisted(&scene).await))
    });
    let plays = crasher.every_boundary(|ended| {
        assert_eq!(ended.value, (Value::from("approved"), Value::from("Ada"), true));
        assert!(ended.history().to_string().contains("ask/open"), "{}", ended.history());
    });
    assert!(plays > 10, "{plays}");
}

fn answered() {
    let crasher = asks("human: {title: Crash, form: {type: integer}}", async |scene, run| {
        let (at, call) = (scene.clock().now(), scene.clock().uuid());
        let content = Some(semel::rules::json::Payload::parse("42")?);
        let decided = Decided { decision: None, content, comment: None, by: "Ada".to_owned(), at, call };
        let result = decide(&scene, &run, decided).await?;
        Ok((result["content"].clone(), unlisted(&scene).await))
    });
    let plays = crasher.every_boundary(|ended| assert_eq!(ended.value, (json!(42), true)));
    assert!(plays > 10, "{plays}");
}

fn timed_out() {
    let task = "human: {title: Crash, form: {type: integer}, timeout: 2d}";
    let crasher = asks(task, async |scene, run| {
        let Err(Error::Ended { outcome, .. }) = run.result().await else {
            return Err(Error::Validation("it timed out".to_owned()));
        };
        let outcome = format!("{outcome:?}");
        Ok((outcome.contains("TIMEOUT"), unlisted(&scene).await))
    });
    let plays = crasher.every_boundary(|ended| assert_eq!(ended.value, (true, true)));
    assert!(plays > 10, "{plays}");
}

fn cancelled() {
    let crasher = asks("approval: {title: Crash}", async |scene, run| {
        scene.until_status(run.id(), Status::Waiting).await;
        run.request_cancel("enough").await?;
        let ended = run.outcome().await?;
        let find = Find { workspace: WorkspaceId::DEFAULT, by: FindBy::Id(run.id()) };
        let there = scene.store().find(find).await?.is_some();
        Ok((format!("{ended:?}").contains("Cancelled"), there, unlisted(&scene).await))
    });
    let plays = crasher.every_boundary(|ended| assert_eq!(ended.value, (true, true, true)));
    assert!(plays > 10, "{plays}");
}
