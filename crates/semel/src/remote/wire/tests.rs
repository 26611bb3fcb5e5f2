//! The texts of `golden.json` are what travels. A change that no longer reads or writes one of them breaks workers that are
//! installed: add to the texts, and change none.
//!
//! Types of the wire guard their members by the compiler, because their conversions name each of them. What travels as it is has no
//! second type: these texts are its only guard, so each kind must have one.

use std::collections::BTreeSet;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    ArrivedMessage, ClaimCall, ClaimsView, CommitAnswers, ControlCall, ControlledRun, DeliverCall,
    DeliveredPayload, FoldedClaims, FoldedRun, FoundRun, NumberedEntry, RunHeader, RunPage, SavedCommit,
    StartItem, StartedRun,
};
use crate::rules::control::ControlAction;
use crate::rules::entry::{Entry, Message, Outcome};
use crate::rules::ledger::RefusedEntry;
use crate::rules::once::{OnceAnswer, OnceCall};
use crate::store::{Find, FindBy, RunCounts, Wake};

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Golden {
    #[serde(rename = "type")]
    of: String,
    /// What is written; it reads as the same.
    json: Value,
    /// Other texts that read as the same: with defaults left out, or as earlier workers write them.
    #[serde(default)]
    also: Vec<Value>,
}

fn golden() -> Vec<Golden> {
    serde_json::from_str(include_str!("golden.json")).unwrap()
}

/// Reads a text and writes it again.
fn again<T: DeserializeOwned + Serialize>(json: &Value) -> Value {
    let read: T = serde_json::from_str(&json.to_string()).unwrap_or_else(|wrong| panic!("{wrong}: {json}"));
    serde_json::from_str(&serde_json::to_string(&read).unwrap()).unwrap()
}

fn written(of: &str, json: &Value) -> Value {
    match of {
        "Entry" => again::<Entry>(json),
        "Message" => again::<Message>(json),
        "Outcome" => again::<Outcome>(json),
        "Run" => again::<RunHeader>(json),
        "Start" => again::<StartItem>(json),
        "Started" => again::<StartedRun>(json),
        "Saved" => again::<SavedCommit>(json),
        "CommitAnswers" => again::<CommitAnswers>(json),
        "Deliver" => again::<DeliverCall>(json),
        "Delivered" => again::<DeliveredPayload>(json),
        "Controlled" => again::<ControlledRun>(json),
        "RunPage" => again::<RunPage>(json),
        "Numbered" => again::<NumberedEntry>(json),
        "Arrival" => again::<ArrivedMessage>(json),
        "FoundRun" => again::<FoundRun>(json),
        "Claims" => again::<ClaimsView>(json),
        "FoldedRun" => again::<FoldedRun>(json),
        "FoldedClaims" => again::<FoldedClaims>(json),
        "ClaimCall" => again::<ClaimCall>(json),
        "Find" => again::<Find>(json),
        "RunCounts" => again::<RunCounts>(json),
        "Wake" => again::<Wake>(json),
        "Once" => again::<OnceCall>(json),
        "OnceAnswer" => again::<OnceAnswer>(json),
        "Control" => again::<ControlCall>(json),
        "Action" => again::<ControlAction>(json),
        "Refused" => again::<RefusedEntry>(json),
        other => panic!("no type of the wire is called {other}"),
    }
}

#[test]
fn what_travels_is_what_it_was() {
    for Golden { of, json, also } in golden() {
        assert_eq!(written(&of, &json), json, "{of}");
        for other in also {
            assert_eq!(written(&of, &other), json, "{of}, read from {other}");
        }
    }
}

#[test]
fn every_kind_of_what_travels_as_it_is_has_its_text() {
    let kinds = |of: &str| -> BTreeSet<String> {
        let texts = golden().into_iter().filter(|golden| golden.of == of);
        texts.map(|golden| kind(&golden.json)).collect()
    };
    let listed = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(kinds("Entry"), listed(ENTRIES));
    assert_eq!(kinds("Message"), listed(MESSAGES));
    assert_eq!(kinds("Outcome"), listed(OUTCOMES));
    assert_eq!(kinds("Wake"), listed(WAKES));
    assert_eq!(kinds("OnceAnswer"), listed(ONCE_ANSWERS));
    assert_eq!(kinds("Action"), listed(ACTIONS));
    assert_eq!(kinds("Refused"), listed(REFUSALS));
    let found = golden().into_iter().filter(|golden| golden.of == "Find");
    assert_eq!(found.map(|golden| kind(&golden.json["by"])).collect::<BTreeSet<_>>(), listed(LOOK_UPS));
    for Golden { of, json, .. } in golden() {
        let text = json.to_string();
        match of.as_str() {
            "Entry" => assert!(ENTRIES.contains(&entry(&serde_json::from_str(&text).unwrap()))),
            "Message" => assert!(MESSAGES.contains(&message(&serde_json::from_str(&text).unwrap()))),
            "Outcome" => assert!(OUTCOMES.contains(&outcome(&serde_json::from_str(&text).unwrap()))),
            "Wake" => assert!(WAKES.contains(&wake(&serde_json::from_str(&text).unwrap()))),
            "OnceAnswer" => {
                assert!(ONCE_ANSWERS.contains(&once_answer(&serde_json::from_str(&text).unwrap())));
            }
            "Action" => assert!(ACTIONS.contains(&action(&serde_json::from_str(&text).unwrap()))),
            "Refused" => assert!(REFUSALS.contains(&refusal(&serde_json::from_str(&text).unwrap()))),
            "Find" => {
                assert!(LOOK_UPS.contains(&look_up(&serde_json::from_str::<Find>(&text).unwrap().by)));
            }
            _ => {}
        }
    }
}

/// The name of the variant in a text.
fn kind(json: &Value) -> String {
    let member = json.as_object().and_then(|members| members.keys().next().cloned());
    member.unwrap_or_else(|| json.as_str().expect("a variant without members").to_owned())
}

/// The names of all variants, and a function that names the variant of a value: it does not compile without a new one.
macro_rules! kinds {
    ($($all:ident, $name:ident of $type:ident { $($variant:ident = $text:literal),+ $(,)? })+) => {$(
        const $all: &[&str] = &[$($text),+];

        fn $name(value: &$type) -> &'static str {
            match value {
                $($type::$variant { .. } => $text,)+
            }
        }
    )+};
}

kinds! {
    ENTRIES, entry of Entry {
        Created = "created",
        Claimed = "claimed",
        StepStarted = "stepStarted",
        StepCompleted = "stepCompleted",
        StepFailed = "stepFailed",
        StepSkipped = "stepSkipped",
        StepInDoubt = "stepInDoubt",
        StepResolved = "stepResolved",
        TimerSet = "timerSet",
        TimerFired = "timerFired",
        HookOpened = "hookOpened",
        HookConflicted = "hookConflicted",
        HookReceived = "hookReceived",
        HookClosed = "hookClosed",
        ChildStarted = "childStarted",
        ChildFinished = "childFinished",
        Once = "once",
        Recorded = "recorded",
        Noted = "noted",
        Waiting = "waiting",
        Paused = "paused",
        Resumed = "resumed",
        Cancelling = "cancelling",
        Completed = "completed",
        Failed = "failed",
        Cancelled = "cancelled",
        TimedOut = "timedOut",
        Restarted = "restarted",
        KeyReleased = "keyReleased",
    }
    MESSAGES, message of Message {
        Delivery = "delivery",
        ChildEnded = "childEnded",
        CancelRequested = "cancelRequested",
        ParentCancelled = "parentCancelled",
        OnceSettled = "onceSettled",
        KeyReleased = "keyReleased",
    }
    OUTCOMES, outcome of Outcome {
        Completed = "completed",
        Failed = "failed",
        Cancelled = "cancelled",
        TimedOut = "timedOut",
        Purged = "purged",
    }
    WAKES, wake of Wake {
        Due = "due",
        DueIn = "dueIn",
        Arrived = "arrived",
        Taken = "taken",
        Ended = "ended",
        Paused = "paused",
        Settled = "settled",
        All = "all",
    }
    ONCE_ANSWERS, once_answer of OnceAnswer {
        Mine = "mine",
        Settled = "settled",
        InFlight = "inFlight",
        Released = "released",
    }
    ACTIONS, action of ControlAction {
        Cancel = "cancel",
        RequestCancel = "requestCancel",
        Pause = "pause",
        Resume = "resume",
        Restart = "restart",
        ReleaseKey = "releaseKey",
        Resolve = "resolve",
        Fork = "fork",
    }
    REFUSALS, refusal of RefusedEntry {
        Status = "status",
        Visit = "visit",
        Beginning = "beginning",
        Once = "once",
        InDoubt = "inDoubt",
        Limit = "limit",
        Doubts = "doubts",
        Stores = "stores",
    }
    LOOK_UPS, look_up of FindBy {
        Id = "id",
        Key = "key",
        Token = "token",
        Call = "call",
    }
}
