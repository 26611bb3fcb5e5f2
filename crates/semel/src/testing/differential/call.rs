//! The calls of a random program: calls of a store, and what a driver records before it commits. Numbers are indexes of keys, runs and
//! so on of a small world; the player takes them modulo what exists.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use crate::rules::entry::Class;

/// One call of a random program against a store.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "each is named like the store's method that it calls")]
pub enum Call {
    Start {
        key: u8,
        scope: u8,
        workflow: u8,
        input: u8,
        policy: u8,
        keep: u8,
        delay: bool,
        claim: Option<u8>,
    },
    /// A start with a payload for a token, perhaps under an id.
    Handover {
        key: u8,
        policy: u8,
        token: u8,
        payload: u8,
        id: Option<u8>,
    },
    Claim {
        node: u8,
        limit: u8,
    },
    /// A driver records and commits; a zombie is one that has lost its run since.
    Drive {
        driver: u8,
        zombie: bool,
        look: bool,
        acts: Vec<Act>,
    },
    Deliver {
        token: u8,
        payload: u8,
        id: Option<u8>,
    },
    Control {
        run: u8,
        action: u8,
        id: Option<u8>,
        expected: Option<bool>,
    },
    Resolve {
        run: u8,
        path: u8,
        how: u8,
    },
    Fork {
        run: u8,
        at: Option<u8>,
        fresh: bool,
        key: Option<u8>,
        id: Option<u8>,
    },
    Once {
        run: u8,
        label: u8,
        ask: u8,
        value: u8,
    },
    Keep {
        id: u8,
        body: u8,
        expected: Option<u8>,
        brief: bool,
    },
    Lease {
        node: u8,
        act: u8,
    },
    Advance {
        millis: u8,
    },
    Sweep {
        limit: u8,
    },
    /// The last mutating call again, exactly as it was.
    Again,
    Find {
        by: u8,
        what: u8,
    },
    List {
        status: Option<u8>,
        workflow: Option<u8>,
        before: Option<u8>,
        limit: u8,
        filter: u8,
        oldest: bool,
    },
    Ledger {
        run: u8,
        from: u8,
    },
    Receipts {
        run: u8,
    },
    Records {
        by: Option<u8>,
        after: Option<u8>,
        limit: u8,
        newest_first: bool,
    },
}

/// What a driver records.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "each records the entry of the same name, or the two of a whole step")]
pub enum Act {
    Step {
        path: u8,
        class: Class,
    },
    Begin {
        path: u8,
        class: Class,
    },
    Done {
        path: u8,
    },
    FailStep {
        path: u8,
        retry: bool,
    },
    /// Begun if it is not, and in doubt.
    Doubt {
        path: u8,
    },
    Skip {
        path: u8,
    },
    SetTimer {
        path: u8,
        millis: u8,
    },
    Fire {
        path: u8,
    },
    Open {
        path: u8,
        token: u8,
    },
    /// Takes the oldest delivery for the hook at a path.
    Receive {
        path: u8,
    },
    Close {
        path: u8,
    },
    Child {
        path: u8,
    },
    /// Takes the end of the child at a path.
    ChildEnded {
        path: u8,
    },
    /// Takes the oldest message, whatever it is.
    Note,
    Once {
        label: u8,
    },
    Record {
        path: u8,
    },
    Wait {
        millis: Option<u8>,
    },
    Pause {
        doubt: bool,
    },
    Complete,
    Fail,
    TimeOut,
    Cancel,
}

fn class() -> impl Strategy<Value = Class> {
    prop_oneof![3 => Just(Class::Keyed), 2 => Just(Class::AtMostOnce), 1 => Just(Class::Reconcile)]
}

fn act() -> impl Strategy<Value = Act> {
    let path = || 0..4u8;
    prop_oneof![
        6 => (path(), class()).prop_map(|(path, class)| Act::Step { path, class }),
        2 => (path(), class()).prop_map(|(path, class)| Act::Begin { path, class }),
        2 => path().prop_map(|path| Act::Done { path }),
        2 => (path(), any::<bool>()).prop_map(|(path, retry)| Act::FailStep { path, retry }),
        3 => path().prop_map(|path| Act::Doubt { path }),
        1 => path().prop_map(|path| Act::Skip { path }),
        1 => (path(), 0..60u8).prop_map(|(path, millis)| Act::SetTimer { path, millis }),
        2 => path().prop_map(|path| Act::Fire { path }),
        8 => (path(), 0..2u8).prop_map(|(path, token)| Act::Open { path, token }),
        3 => path().prop_map(|path| Act::Receive { path }),
        2 => path().prop_map(|path| Act::Close { path }),
        3 => path().prop_map(|path| Act::Child { path }),
        3 => path().prop_map(|path| Act::ChildEnded { path }),
        1 => Just(Act::Note),
        1 => (0..2u8).prop_map(|label| Act::Once { label }),
        1 => path().prop_map(|path| Act::Record { path }),
        4 => option::of(0..60u8).prop_map(|millis| Act::Wait { millis }),
        1 => any::<bool>().prop_map(|doubt| Act::Pause { doubt }),
        2 => Just(Act::Complete),
        2 => Just(Act::Fail),
        1 => Just(Act::TimeOut),
        1 => Just(Act::Cancel),
    ]
}

fn starting() -> impl Strategy<Value = Call> {
    let start = (0..3u8, 0..8u8, 0..9u8, 0..2u8, 0..6u8, 0..6u8, 0..8u8, option::weighted(0.7, 0..3u8))
        .prop_map(|(key, scope, workflow, input, policy, keep, delay, claim)| {
            // Mostly the plain case, so that keys meet.
            let (scope, workflow) = (scope.saturating_sub(5), workflow.saturating_sub(6));
            Call::Start { key, scope, workflow, input, policy, keep, delay: delay == 0, claim }
        });
    let handover = (0..3u8, 0..6u8, 0..3u8, 0..2u8, option::of(0..2u8))
        .prop_map(|(key, policy, token, payload, id)| Call::Handover { key, policy, token, payload, id });
    prop_oneof![4 => start, 1 => handover]
}

fn driving() -> impl Strategy<Value = Call> {
    (0..8u8, prop::bool::weighted(0.1), prop::bool::weighted(0.7), vec(act(), 1..5))
        .prop_map(|(driver, zombie, look, acts)| Call::Drive { driver, zombie, look, acts })
}

fn operating() -> impl Strategy<Value = Call> {
    let control = (0..12u8, 0..9u8, option::of(0..3u8), option::weighted(0.2, any::<bool>()))
        .prop_map(|(run, action, id, expected)| Call::Control { run, action, id, expected });
    let resolve = (0..12u8, 0..4u8, 0..3u8).prop_map(|(run, path, how)| Call::Resolve { run, path, how });
    let fork = (0..12u8, option::of(0..12u8), any::<bool>(), option::of(0..3u8), option::of(0..3u8))
        .prop_map(|(run, at, fresh, key, id)| Call::Fork { run, at, fresh, key, id });
    prop_oneof![4 => control, 2 => resolve, 1 => fork]
}

fn reading() -> impl Strategy<Value = Call> {
    prop_oneof![
        (0..3u8, 0..12u8).prop_map(|(by, what)| Call::Find { by, what }),
        (option::of(0..8u8), option::of(0..2u8), option::of(0..8u8), 0..5u8, 0..40u8, any::<bool>())
            .prop_map(|(status, workflow, before, limit, filter, oldest)| {
                Call::List { status, workflow, before, limit, filter, oldest }
            }),
        (0..12u8, 0..10u8).prop_map(|(run, from)| Call::Ledger { run, from }),
        (0..12u8).prop_map(|run| Call::Receipts { run }),
        (option::of(0..4u8), option::of(0..4u8), 0..5u8, any::<bool>())
            .prop_map(|(by, after, limit, newest_first)| Call::Records { by, after, limit, newest_first }),
    ]
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        8 => starting(),
        6 => (0..3u8, 0..4u8).prop_map(|(node, limit)| Call::Claim { node, limit }),
        16 => driving(),
        6 => (0..2u8, 0..2u8, option::of(0..3u8))
            .prop_map(|(token, payload, id)| Call::Deliver { token, payload, id }),
        6 => operating(),
        4 => (0..12u8, 0..2u8, 0..4u8, 0..2u8)
            .prop_map(|(run, label, ask, value)| Call::Once { run, label, ask, value }),
        4 => (0..4u8, 0..3u8, option::of(0..4u8), prop::bool::weighted(0.3))
            .prop_map(|(id, body, expected, brief)| Call::Keep { id, body, expected, brief }),
        4 => (0..3u8, 0..4u8).prop_map(|(node, act)| Call::Lease { node, act }),
        4 => (0..60u8).prop_map(|millis| Call::Advance { millis }),
        4 => (1..4u8).prop_map(|limit| Call::Sweep { limit }),
        4 => Just(Call::Again),
        3 => reading(),
    ]
}

/// Random sequences of calls.
pub fn calls() -> impl Strategy<Value = Vec<Call>> {
    vec(call(), 1..100)
}
