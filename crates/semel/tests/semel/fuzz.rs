//! Damaged texts for every reader of the library: none panics, none takes what it cannot keep, and what it takes it gives
//! back as it was. `make fuzz` plays many more of them.

use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use proptest::prelude::*;
use semel::clock::Time;
use semel::id::{RunId, WorkspaceId};
use semel::rules::archive::ArchiveLine;
use semel::rules::entry::{decode, encode};
use semel::rules::json::{Json, Payload};
use semel::rules::key::{CallId, EffectKey, Fingerprint, Key, Label, Scope, Token};
use semel::rules::ledger::Ledger;
use semel::rules::path::{Name, Path, Visit};
use semel::rules::run::Run;
use semel::store::memory::MemoryStore;
use semel::store::{Query, Store};
use semel::testing::ManualClock;
use semel::testing::damage::{Read, damaged_text, play, wrong};
use semel::{Ctx, Engine, Fail, Result, Retry};

use crate::runtime;

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, test: fn() -> Result<(), String>| {
        Trial::test(format!("fuzz::{name}"), move || Ok::<_, Failed>(test()?))
    };
    vec![
        trial("payloads", payloads),
        trial("fingerprints", fingerprints),
        trial("keys", keys),
        trial("paths", paths),
        trial("effect_keys", effect_keys),
        trial("ledgers", ledgers),
        trial("archives", archives),
    ]
}

fn texts(corpus: &[&str]) -> Vec<String> {
    corpus.iter().map(ToString::to_string).collect()
}

fn values() -> Vec<String> {
    texts(&[
        r#"{"order": "7", "amount": 1999, "items": [{"sku": "ink", "n": 2}, {"sku": "pens"}], "note": "é\u00e9\ud83d\ude00"}"#,
        r#"{"b": 1.50, "a": -0.0, "c": 1e21, "d": 9007199254740993, "e": -9223372036854775808, "f": 18446744073709551615}"#,
        r#"[null, true, false, "", [], {}, "\\\"\/\b\f\n\r\t", 0.1, 1e-7]"#,
        r#"{"\u20ac": 1, "\r": 2, "\ufb33": 3, "1": 4, "\ud83d\ude00": 5, "\u0080": 6, "\u00f6": 7}"#,
        r#""x""#,
        "12",
    ])
}

/// The same numbers as doubles, or exactly the same integers; everything else alike.
fn same(one: &serde_json::Value, other: &serde_json::Value) -> bool {
    use serde_json::Value::{Array, Number, Object};
    match (one, other) {
        (Number(a), Number(b)) if a.is_f64() || b.is_f64() => a.as_f64() == b.as_f64(),
        (Array(a), Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Object(a), Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| same(a, b)))
        }
        (a, b) => a == b,
    }
}

fn payloads() -> Result<(), String> {
    play(&damaged_text(values()), |text| {
        let Ok(payload) = Payload::parse(&text) else { return Ok(Read::Refused) };
        let value: serde_json::Value =
            serde_json::from_str(&text).map_err(|error| wrong(format!("taken, though no JSON: {error}")))?;
        prop_assert_eq!(payload.text().trim(), text.trim(), "it is kept as it was written");
        let json = Json::parse(&text).map_err(wrong)?;
        let canonical = json.canonical();
        let again = Json::parse(&canonical).map_err(|refused| wrong(format!("{canonical}: {refused}")))?;
        prop_assert_eq!(&again.canonical(), &canonical, "a canonical form is its own");
        prop_assert_eq!(json.differences(&again), Vec::<String>::new());
        let read: serde_json::Value = serde_json::from_str(&canonical).map_err(wrong)?;
        prop_assert!(same(&value, &read), "{text} became {canonical}");
        Ok(Read::Taken)
    })
}

fn fingerprints() -> Result<(), String> {
    let name = Name::new("order").expect("a name");
    play(&(damaged_text(values()), damaged_text(values())), |(one, other)| {
        let (Ok(a), Ok(b)) = (Payload::parse(&one), Payload::parse(&other)) else { return Ok(Read::Refused) };
        let print = |payload: &Payload| Fingerprint::of_start(&name, payload, &[]).map_err(wrong);
        let json = |payload: &Payload| Json::parse(payload.text()).map_err(wrong);
        let (first, second) = (json(&a)?, json(&b)?);
        let equal = first.canonical() == second.canonical();
        prop_assert_eq!(print(&a)? == print(&b)?, equal, "equal prints are equal values");
        prop_assert_eq!(first.differences(&second).is_empty(), equal, "and who differs is told where");
        let spaced = Payload::parse(&format!(" {}\n", first.canonical())).map_err(wrong)?;
        prop_assert_eq!(print(&a)?, print(&spaced)?, "spacing and order are no difference");
        Ok(Read::Taken)
    })
}

fn keys() -> Result<(), String> {
    let corpus = texts(&["order-7", "a:b", "a/b|c", "workflow:order", "children", "é", " x ", "A", "a"]);
    play(&damaged_text(corpus), |text| {
        let kept = [
            Key::new(text.as_str()).map(|key| key.as_str().to_owned()),
            Token::new(text.as_str()).map(|token| token.as_str().to_owned()),
            Label::new(text.as_str()).map(|label| label.as_str().to_owned()),
            CallId::new(text.as_str()).map(|id| id.as_str().to_owned()),
        ];
        for kept in kept {
            let proper = !text.trim().is_empty() && !text.chars().any(char::is_control);
            match kept {
                Ok(kept) => {
                    prop_assert_eq!(&kept, &text, "no folding, no trimming");
                    prop_assert!(proper);
                }
                Err(_) => prop_assert!(!proper || text.chars().count() > 200, "{text:?} is a proper key"),
            }
        }
        if let Some(scope) = Scope::parse(&text) {
            prop_assert_eq!(scope.as_str(), &text);
        }
        Ok(if Key::new(text.as_str()).is_ok() { Read::Taken } else { Read::Refused })
    })
}

fn places() -> Vec<String> {
    texts(&["pay", "left/pack[item-3]", "a/b/c", "turn#2", "l1-0/s2[é]#10", "race1"])
}

fn paths() -> Result<(), String> {
    play(&damaged_text(places()), |text| {
        if let Ok(path) = Path::parse(&text) {
            prop_assert_eq!(path.as_str(), &text);
            prop_assert_eq!(Visit::parse(&text), Some(Visit::first(path)));
        }
        if let Ok(name) = Name::new(&text) {
            prop_assert_eq!(Path::parse(&text), Ok(Path::of(&name)), "a name is a path");
        }
        let Some(visit) = Visit::parse(&text) else { return Ok(Read::Refused) };
        prop_assert_eq!(visit.to_string(), text, "one spelling");
        let json = serde_json::to_string(&visit).map_err(wrong)?;
        prop_assert_eq!(serde_json::from_str::<Visit>(&json).map_err(wrong)?, visit);
        Ok(Read::Taken)
    })
}

fn effect_keys() -> Result<(), String> {
    let labels = || damaged_text(texts(&["", "a", "bc", "ab", "c"]));
    let cases = ((damaged_text(places()), labels()), (damaged_text(places()), labels()), 0..2u128);
    play(&cases, |((one, first), (other, second), lineage)| {
        let (Some(a), Some(b)) = (Visit::parse(&one), Visit::parse(&other)) else { return Ok(Read::Refused) };
        let key = |lineage, visit: &Visit, label: &str| {
            EffectKey::of(WorkspaceId::DEFAULT, RunId(uuid::Uuid::from_u128(lineage)), visit, label)
                .to_string()
        };
        let (here, there) = (key(0, &a, &first), key(lineage, &b, &second));
        prop_assert_eq!(here == there, (&a, &first, 0) == (&b, &second, lineage), "one key, one effect");
        prop_assert_eq!(here.len(), 34);
        Ok(Read::Taken)
    })
}

/// Something of everything that a ledger can hold.
async fn varied(ctx: Ctx, (): ()) -> Result<u32> {
    let retry = Retry::fixed(Duration::ZERO).max_attempts(2);
    let fails = async |attempt: semel::Attempt| match attempt.number() {
        1 => Err(Fail::retryable("as planned")),
        number => Ok(number),
    };
    let tries = ctx.step("tries").retry(retry).run(fails).await?;
    ctx.step("letter").at_most_once().run(async |_| Ok("é".to_owned())).await?;
    ctx.scope("left").step("pack").key("ink").run(async |_| Ok(())).await?;
    ctx.run_once("rates", async || Ok(7)).await?;
    ctx.child(child, 1).await?.result().await?;
    let mut hook = ctx.hook::<u32>("order:7");
    hook.recv_for(Duration::ZERO).await?;
    ctx.now("now").await?;
    Ok(tries)
}

async fn child(_: Ctx, input: u32) -> Result<u32> {
    Ok(input)
}

/// A store with some runs in it, and its export.
fn lived() -> (Vec<Run>, Vec<String>, Vec<String>) {
    runtime(false).block_on(async {
        let clock = Arc::new(ManualClock::new(Time(1_000_000), 1));
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(clock.clone()));
        let builder = Engine::builder().store(store.clone()).clock(clock).workflow("varied", varied);
        let engine = builder.workflow("child", child).open().await.expect("an engine");
        let run = engine.start(varied, ()).key("seven").await.expect("a run");
        run.result().await.expect("its result");
        engine.shutdown(Duration::ZERO).await.expect("it stops");
        let (mut runs, mut ledgers, mut lines) = (Vec::new(), Vec::new(), Vec::new());
        let archive = store.archive().expect("a store in memory has one");
        let mut each = |line: ArchiveLine| {
            lines.push(line);
            std::ops::ControlFlow::Continue(())
        };
        archive.export(None, &mut each).await.expect("an export");
        let lines = lines.iter().map(|line| serde_json::to_string(line).expect("plain data")).collect();
        let all = Query::all(WorkspaceId::DEFAULT, 10);
        for run in store.list(all).await.expect("a list") {
            let entries = store.ledger(run.new.workspace, run.id(), 1).await.expect("a ledger");
            let entries: Vec<_> = entries.into_iter().map(|numbered| numbered.entry).collect();
            ledgers.push(encode(&entries));
            runs.push(run);
        }
        (runs, ledgers, lines)
    })
}

fn ledgers() -> Result<(), String> {
    let (runs, ledgers, _) = lived();
    for (run, text) in runs.iter().zip(&ledgers) {
        let whole = decode(text).map_err(|error| error.to_string())?;
        Ledger::read(run.clone(), whole).map_err(|refused| format!("{text}: {refused}"))?;
    }
    play(&damaged_text(ledgers), |text| {
        let Ok(entries) = decode(&text) else { return Ok(Read::Refused) };
        let again =
            decode(&encode(&entries)).map_err(|error| wrong(format!("not readable again: {error}")))?;
        prop_assert_eq!(&again, &entries);
        let length = entries.len() as u64;
        let Ok(ledger) = Ledger::read(runs[0].clone(), entries) else { return Ok(Read::Refused) };
        prop_assert_eq!(ledger.run().state.version, length, "its version is its length");
        Ok(Read::Taken)
    })
}

fn archives() -> Result<(), String> {
    let (_, _, lines) = lived();
    let runtime = runtime(false);
    play(&proptest::collection::vec(damaged_text(lines), 1..4), |texts| {
        let read: Result<Vec<ArchiveLine>, _> = texts.iter().map(|text| serde_json::from_str(text)).collect();
        let Ok(lines) = read else { return Ok(Read::Refused) };
        let store = MemoryStore::new(Arc::new(ManualClock::new(Time(2_000_000), 2)));
        let archive = store.archive().expect("a store in memory has one");
        let imported = runtime.block_on(archive.import(lines));
        let mut found = 0;
        let mut count = |_| {
            found += 1;
            std::ops::ControlFlow::Continue(())
        };
        runtime.block_on(archive.export(None, &mut count)).map_err(wrong)?;
        prop_assert_eq!(imported.is_ok(), found > 0, "all of it, or nothing: {:?}", imported);
        Ok(if imported.is_ok() { Read::Taken } else { Read::Refused })
    })
}
