//! `llm`: answers that fit and do not, limits, lost and malformed answers, both shapes.

use std::time::Duration;

use semel::Engine;
use semel::rules::status::Status;
use semel::testing::{Crasher, Scene};
use serde_json::json;

use super::server::{Say, Scripted};
use super::{Script, built, failure, ran, scripted, text, value};
use crate::definitions::interpret::tests::TESTED;

const PLAIN: &str =
    "steps: [{name: ask, llm: {on: model, system: Be brief., prompt: 'Order {{ input.order }}'}}]";

const QUICK: &str = "steps: [{name: ask, retry: {first: 1ms}, llm: {on: model, prompt: a}}]";

const RISK: &str = "steps:
  - name: ask
    llm:
      on: model
      prompt: 'Order {{ input.order }}'
      output: {type: object, required: [risk], properties: {risk: {enum: [low, high]}}}";

#[tokio::test]
async fn an_answer_has_text_usage_and_cost() {
    let server = scripted(|_, _, _| text("It is fine."));
    let expected = json!({"text": "It is fine.", "model": "small", "end": "done", "calls": 1,
        "usage": {"in": 100, "out": 10}, "cost": 0.0002});
    assert_eq!(value(&server, PLAIN).await, expected);
    let question = &server.questions()[0];
    assert_eq!(question["messages"][1]["content"], "Order o7");
    let claude = PLAIN.replace("on: model", "on: claude");
    let told = value(&server, &claude).await;
    assert_eq!((&told["text"], told.get("cost")), (&json!("It is fine."), None), "it has no price");
    assert_eq!(server.questions()[1]["system"], "Be brief.");
}

#[tokio::test]
async fn what_does_not_fit_is_asked_for_again_with_the_error() {
    let server = scripted(|round, _, question| match round {
        0 => text("low"),
        1 => text(r#"{"risk":"none"}"#),
        _ => {
            let last = question["messages"].as_array().unwrap().last().unwrap();
            assert!(last["content"].as_str().unwrap().contains("/risk"), "{last}");
            text("```json\n{\"risk\": \"high\"}\n```")
        }
    });
    for steps in [RISK.to_owned(), RISK.replace("on: model", "on: claude")] {
        let told = value(&server, &steps).await;
        assert_eq!((&told["output"], &told["calls"]), (&json!({"risk": "high"}), &json!(3)));
        assert_eq!(told["usage"], json!({"in": 300, "out": 30}));
    }
    assert_eq!((server.count("model"), server.keys("model").len()), (6, 6), "each call has a key of its own");
}

#[tokio::test]
async fn an_answer_that_never_fits_fails_after_three_calls() {
    let server = scripted(|_, _, _| Say::Cut(r#"{"risk":"#.to_owned(), "length"));
    let failed = failure(&server, RISK).await;
    assert_eq!((failed.code.as_deref(), server.count("model")), (Some("OUTPUT_INVALID"), 3));
    assert!(failed.message.contains("cut off"), "{}", failed.message);
}

#[tokio::test]
async fn a_limit_is_reached_before_the_next_call() {
    for limits in ["tokens: 150", "cost: 0.0003"] {
        let server = scripted(|_, _, _| text("no JSON"));
        let steps = format!("{RISK}\n      limits: {{{limits}}}");
        let failed = failure(&server, &steps).await;
        assert_eq!((failed.code.as_deref(), server.count("model")), (Some("LIMIT"), 2), "{limits}");
    }
    let server = scripted(|_, _, _| text("no JSON"));
    let unpriced = format!("{}\n      limits: {{cost: 1}}", RISK.replace("on: model", "on: claude"));
    assert_eq!(
        (failure(&server, &unpriced).await.code.as_deref(), server.count("model")),
        (Some("LIMIT"), 1)
    );
}

#[tokio::test]
async fn a_lost_or_malformed_answer_is_asked_for_again_under_the_same_key() {
    let scripts: [Script; 3] = [
        |_, again, _| if again == 0 { Say::Lost } else { text("yes") },
        |_, again, _| if again == 0 { Say::Raw(200, None, "{}".to_owned()) } else { text("yes") },
        |_, again, _| if again == 0 { Say::Raw(500, None, "oops".to_owned()) } else { text("yes") },
    ];
    for script in scripts {
        let server = scripted(script);
        assert_eq!(value(&server, QUICK).await["text"], "yes");
        assert_eq!((server.count("model"), server.keys("model").len()), (2, 1));
    }
}

#[tokio::test]
async fn refusals_fail_and_are_not_repeated() {
    let scripts: [(Script, &str, usize); 3] = [
        (|_, _, _| Say::Raw(400, None, "{}".to_owned()), "HTTP", 1),
        (|_, _, _| Say::Cut("I cannot".to_owned(), "content_filter"), "MODEL", 1),
        (|_, _, _| Say::Raw(200, None, format!("{{\"a\":\"{}\"}}", "x".repeat(3 << 20))), "MODEL", 3),
    ];
    for (script, code, calls) in scripts {
        let server = scripted(script);
        let failed = failure(&server, QUICK).await;
        assert_eq!(
            (failed.code.as_deref(), server.count("model")),
            (Some(code), calls),
            "{}",
            failed.message
        );
    }
}

#[tokio::test]
async fn an_answer_that_is_too_large_is_paid_once() {
    let server = scripted(|_, _, _| text(&"x".repeat(300 << 10)));
    let ran = ran(&server, PLAIN).await;
    let semel::rules::entry::Outcome::Failed(failed) = ran.outcome else { panic!("{:?}", ran.outcome) };
    assert_eq!((failed.code.as_deref(), server.count("model")), (Some("TOO_LARGE"), 1));
    assert!(
        ran.history.contains(r#"\"usage\":{\"in\":100"#) || ran.history.contains(r#""usage":{"in":100"#),
        "it is counted"
    );
}

#[tokio::test]
async fn a_secret_that_the_model_repeats_is_not_recorded() {
    let server = scripted(|_, _, _| text("your key is canary-of-the-model-key"));
    assert_eq!(value(&server, PLAIN).await["text"], "your key is ***");
}

/// Plays a definition with a clock that stands still unless nothing else moves; gives the value, and how much time has passed.
fn played(script: Script, steps: &'static str) -> (String, Duration) {
    let crasher = Crasher::new(
        move || Scripted::start(script),
        move |server: &Scripted, builder| built(server, steps, builder),
        async |scene: Scene<Scripted>| {
            let before = semel::clock::Clock::now(scene.clock());
            let run = scene.engine().start(TESTED, json!({"order": "o7"})).key("k").await?;
            let outcome = run.outcome().await?;
            let passed = semel::clock::Clock::now(scene.clock()).0 - before.0;
            Ok((format!("{outcome:?}"), passed))
        },
    );
    let (outcome, passed) = crasher.undisturbed().value;
    (outcome, Duration::from_millis(passed.unsigned_abs()))
}

#[test]
fn a_server_with_too_much_work_is_given_the_time_it_asks_for() {
    let scripts: [Script; 2] = [
        |_, again, _| if again == 0 { Say::Raw(429, Some("30"), String::new()) } else { text("yes") },
        |_, again, _| if again == 0 { Say::Raw(529, Some("30"), String::new()) } else { text("yes") },
    ];
    for script in scripts {
        let (outcome, passed) = played(script, PLAIN);
        assert!(outcome.contains("yes"), "{outcome}");
        assert!((30..60).contains(&passed.as_secs()), "{passed:?}");
    }
}

#[tokio::test]
async fn a_call_that_is_made_once_is_in_doubt_when_its_answer_is_lost() {
    let once = "steps: [{name: ask, class: at-most-once, timeout: 500ms, llm: {on: model, prompt: a}}]";
    let scripts: [Script; 3] =
        [|_, _, _| Say::Lost, |_, _, _| Say::Silent, |_, _, _| Say::Raw(500, None, String::new())];
    for script in scripts {
        let server = scripted(script);
        let engine = built(&server, once, Engine::builder().store("memory:")).open().await.unwrap();
        let run = engine.start(TESTED, json!({})).await.unwrap();
        run.reached(Status::Paused).await.unwrap();
        assert_eq!(run.doubts().await.unwrap().len(), 1);
        assert_eq!(server.count("model"), 1);
    }
    let server = scripted(|_, _, _| Say::Raw(200, None, "{}".to_owned()));
    let failed = failure(&server, once).await;
    assert_eq!(
        (failed.code.as_deref(), server.count("model")),
        (Some("MODEL"), 1),
        "it is answered, and not asked again"
    );
}

#[tokio::test]
async fn embeddings_are_read_again_when_their_answer_is_lost() {
    use crate::connections::ModelTarget;
    use crate::tasks::{Embedding, embed};

    async fn vectors(ctx: semel::Ctx, (): ()) -> semel::Result<Vec<Vec<f32>>> {
        let connections = ctx.state::<crate::connections::Connections>();
        let connection = connections.find(ctx.workspace(), "model").await?.expect("it is there");
        let target: &ModelTarget = connection.target().expect("it has models");
        let texts = ["ink".to_owned(), "paper".to_owned()];
        let body = async |attempt: semel::Attempt| {
            let asked = Embedding {
                connection: &connection,
                target,
                model: None,
                texts: &texts,
                retry: semel::Retry::default(),
                timeout: connection.timeout,
            };
            Ok(embed(&attempt, &connections, asked).await?.vectors)
        };
        ctx.step("embed").retry(semel::Retry::fixed(Duration::ZERO)).run(body).await
    }

    let server = scripted(|_, _, _| text("unused"));
    let builder = Engine::builder().store("memory:").state(super::connections(&server));
    let engine = builder.workflow("vectors", vectors).open().await.unwrap();
    let told = engine.start(vectors, ()).await.unwrap().result().await.unwrap();
    assert_eq!(told, [[3.0, 1.0], [5.0, 1.0]]);
    assert_eq!((server.count("embeddings"), server.keys("embeddings").len()), (2, 1));
}
