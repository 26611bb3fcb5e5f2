//! The golden vectors: what every language must make of the same input.

use std::path::Path as File;

use libtest_mimic::{Failed, Trial};
use semel::rules::control::Control;
use semel::rules::entry::{Failure, FailureKind};
use semel::rules::json::{Json, Payload};
use semel::rules::key::{EffectKey, Fingerprint};
use semel::rules::path::{Name, Path, Visit};
use semel::rules::retry::{Retry, RetryDecision};
use serde::Deserialize;
use serde::de::DeserializeOwned;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("vectors::effect_keys_are_as_written_down", || check("effect_keys.json", 10, effect_key)),
        Trial::test("vectors::fingerprints_are_as_written_down", || {
            check("fingerprints.json", 50, fingerprint)
        }),
        Trial::test("vectors::pauses_between_attempts_are_as_written_down", || {
            check("retry.json", 20, retry)
        }),
        Trial::test("vectors::fingerprints_of_controls_are_as_written_down", || {
            check("control_fingerprints.json", 12, control_fingerprint)
        }),
    ]
}

#[derive(Deserialize)]
struct Vector<G, E> {
    why: String,
    given: G,
    expected: E,
}

/// Reads a file and compares every vector, to tell of all that differ at once.
fn check<G: DeserializeOwned, E: DeserializeOwned + PartialEq + std::fmt::Debug>(
    name: &str,
    at_least: usize,
    compute: fn(&G) -> Result<E, Failed>,
) -> Result<(), Failed> {
    let file = File::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors").join(name);
    let vectors: Vec<Vector<G, E>> = serde_json::from_str(&std::fs::read_to_string(file)?)?;
    if vectors.len() < at_least {
        return Err(format!("read {} vectors, at least {at_least} expected", vectors.len()).into());
    }
    let mut differ = Vec::new();
    for Vector { why, given, expected } in vectors {
        let found = compute(&given).map_err(|error| format!("{why}: {:?}", error.message()))?;
        if found != expected {
            differ.push(format!("{why}: {found:?}, not {expected:?}"));
        }
    }
    if differ.is_empty() { Ok(()) } else { Err(differ.join("\n").into()) }
}

#[derive(Deserialize)]
struct Effect {
    workspace: String,
    lineage: String,
    path: String,
    tick: u32,
    label: String,
}

#[derive(Deserialize, PartialEq, Debug)]
struct EffectNames {
    key: String,
    uuid: String,
}

fn effect_key(given: &Effect) -> Result<EffectNames, Failed> {
    let visit = Visit { path: Path::parse(&given.path)?, tick: given.tick };
    let key = EffectKey::of(given.workspace.parse()?, given.lineage.parse()?, &visit, &given.label);
    Ok(EffectNames { key: key.to_string(), uuid: key.uuid().to_string() })
}

#[derive(Deserialize)]
struct VectorRequest {
    workflow: String,
    input: String,
    excluded: Vec<String>,
}

#[derive(Deserialize, PartialEq, Debug)]
struct Printed {
    canonical: String,
    fingerprint: String,
}

#[derive(Deserialize)]
struct Controlled {
    control: String,
}

fn control_fingerprint(given: &Controlled) -> Result<Printed, Failed> {
    let control: Control = serde_json::from_str(&given.control)?;
    Ok(Printed { canonical: control.asked().canonical(), fingerprint: control.fingerprint().to_string() })
}

fn fingerprint(given: &VectorRequest) -> Result<Printed, Failed> {
    let (workflow, input) = (Name::new(&given.workflow)?, Payload::parse(&given.input)?);
    let mut value = Json::parse(&given.input)?;
    given.excluded.iter().for_each(|pointer| value.remove(pointer));
    let workflow_text = Json::Text(given.workflow.clone()).canonical();
    let canonical = format!("{{\"input\":{},\"workflow\":{workflow_text}}}", value.canonical());
    let fingerprint = Fingerprint::of_start(&workflow, &input, &given.excluded)?.to_string();
    Ok(Printed { canonical, fingerprint })
}

#[derive(Deserialize)]
struct FailedAttempt {
    policy: Retry,
    attempt: u32,
    kind: FailureKind,
    random: f64,
}

#[derive(Deserialize, PartialEq, Debug)]
#[serde(untagged)]
enum NextAttempt {
    #[serde(rename_all = "camelCase")]
    After {
        pause_ms: u64,
    },
    No(String),
}

fn retry(given: &FailedAttempt) -> Result<NextAttempt, Failed> {
    let failure = Failure::new(given.kind, "no");
    Ok(match given.policy.next(given.attempt, &failure, given.random) {
        RetryDecision::After(pause) => NextAttempt::After { pause_ms: u64::try_from(pause.as_millis())? },
        RetryDecision::Fail => NextAttempt::No("fail".to_owned()),
        RetryDecision::Doubt => NextAttempt::No("doubt".to_owned()),
    })
}
