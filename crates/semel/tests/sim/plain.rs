//! Cases that are written down: what the simulator has found, each as small as it can be.

use libtest_mimic::{Failed, Trial};

use crate::case::{
    Again, Ask, Case, Disturbance, KeyKind, NodeKind, Request, STORM, Scripted, Trouble, What, When,
};
use crate::play::play;
use crate::programs::Act;

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, case: fn() -> Case| Trial::test(format!("sim::{name}"), move || hold(&case()));
    vec![
        trial("a_start_that_comes_late_is_driven", late_start),
        trial("a_start_that_comes_late_is_driven_although_its_repetition_was_refused", late_and_refused),
        trial("a_sleep_lasts_its_time_although_answers_come_late", late_time),
        trial("a_once_is_settled_although_an_earlier_claim_of_it_comes_late", late_once),
        trial("an_engine_that_became_another_node_drives_no_earlier_start", late_answer),
        trial("a_run_once_value_whose_branch_lost_a_race_in_a_crash_is_free_for_others", lost_once),
        Trial::test("sim::an_end_that_is_heard_of_late_takes_nothing_from_the_next_life", || {
            (1..=30).try_for_each(|call| hold(&late_end(call)))
        }),
        Trial::test("sim::a_loss_that_is_heard_of_late_takes_nothing_from_the_next_claim", || {
            let mut cases = (1..=12).flat_map(|wake| (1..=30).map(move |call| late_loss(wake, call)));
            cases.try_for_each(|case| hold(&case))
        }),
    ]
}

fn hold(case: &Case) -> Result<(), Failed> {
    let played = play(case, true);
    match played.violation {
        None => Ok(()),
        Some(violation) => {
            let trace = played.lines.join("\n");
            Err(format!("{}: {}\n{case}\n{trace}", violation.kind, violation.message).into())
        }
    }
}

fn request(at: u64, ask: Ask) -> Request {
    Request { at, node: 0, direct: false, program: 0, ask }
}

/// One node, and one program under one key.
fn alone(policy: &'static str, acts: Vec<Act>) -> Case {
    Case {
        seed: 0,
        storm: STORM,
        nodes: vec![NodeKind { wrong_by: 0, deaf: false, driven: 4096, resting: 4096 }],
        keys: vec![KeyKind { policy, again: Again::Retry }],
        programs: vec![Scripted { key: 0, program: ("p".to_owned(), acts), delay: 0, timeout: None }],
        requests: vec![request(100, Ask::Start)],
        troubles: Vec::new(),
        poison: None,
    }
}

/// The start of a node is not answered; asked again, it finds the run of another node. When that has ended, the lost call
/// arrives and starts a run, with a claim of the node, which knows nothing of it.
fn late_start() -> Case {
    let late = Trouble::Late { millis: 3_000 };
    Case {
        requests: vec![request(100, Ask::Start), Request { direct: true, ..request(101, Ask::Start) }],
        troubles: vec![Disturbance { node: 0, when: When::Nth(What::Start, 1), trouble: late }],
        ..alone("unique-while-open", vec![Act::Sleep { n: 1, millis: 300 }])
    }
}

/// The answer to a start is so late that its node has lost its lease, has become another one, and has claimed the run anew.
fn late_answer() -> Case {
    let slow = Trouble::Slow { there: 0, back: 8_000 };
    let frozen = Trouble::StandsStill { millis: 4_000 };
    let step = |n| Act::Step { n, fails: 0 };
    let rest = |n| Act::Sleep { n, millis: 2_500 };
    Case {
        nodes: vec![NodeKind { wrong_by: 0, deaf: false, driven: 4096, resting: 0 }],
        troubles: vec![
            Disturbance { node: 0, when: When::Nth(What::Start, 1), trouble: slow },
            Disturbance { node: 0, when: When::At(500), trouble: frozen },
        ],
        ..alone("attach", vec![step(1), rest(2), rest(3), step(4)])
    }
}

/// All answers of the store come late for a while: the engine thinks that it is earlier than it is, and must not set its
/// timers by that.
fn late_time() -> Case {
    let slow = |n| Disturbance {
        node: 0,
        when: When::Nth(What::Call, n),
        trouble: Trouble::Slow { there: 0, back: 700 },
    };
    let rest = |n| Act::Sleep { n, millis: 2_500 };
    Case {
        nodes: vec![NodeKind { wrong_by: 60_000, deaf: false, driven: 4096, resting: 4096 }],
        troubles: (1..=12).map(slow).collect(),
        ..alone("attach", vec![rest(1), rest(2), Act::Step { n: 3, fails: 2 }])
    }
}

/// The claim of a `run_once` value is slow, and its node has lost the run meanwhile. When it arrives, the new owner is making the result
/// under the grant that it was given before.
fn late_once() -> Case {
    let trouble = |node, when, trouble| Disturbance { node, when, trouble };
    let slow = || Trouble::Slow { there: 9_000, back: 700 };
    let node = NodeKind { wrong_by: 0, deaf: false, driven: 4096, resting: 4096 };
    let frozen = Trouble::StandsStill { millis: 6_000 };
    Case {
        nodes: vec![node, node],
        // Before, the node has joined, swept twice, claimed, and started the run.
        troubles: vec![
            trouble(0, When::Nth(What::Call, 6), slow()),
            trouble(0, When::At(1_500), frozen),
            trouble(1, When::Nth(What::Effect, 1), slow()),
        ],
        ..alone("attach", vec![Act::Once { n: 1, shared: true }])
    }
}

/// A client asks for the outcome of a run that has failed, and the answer to one of the node's calls is late: it may be this
/// one, and the run was restarted meanwhile and is in the middle of a step.
fn late_end(call: u32) -> Case {
    let trouble = |what, n, trouble| Disturbance { node: 0, when: When::Nth(what, n), trouble };
    Case {
        requests: vec![request(100, Ask::Start), request(130, Ask::Watch), request(145, Ask::Watch)],
        troubles: vec![
            trouble(What::Call, call, Trouble::Slow { there: 0, back: 600 }),
            trouble(What::Effect, 2, Trouble::Slow { there: 2_000, back: 0 }),
        ],
        ..alone("attach", vec![Act::Fails { n: 1, times: 1 }])
    }
}

/// A wake-up that the run was claimed is repeated when the run rests. The node asks which node has it, and hears late that none
/// has: it has claimed the run itself meanwhile, and is in the middle of a step.
fn late_loss(wake: u32, call: u32) -> Case {
    let trouble = |what, n, trouble| Disturbance { node: 0, when: When::Nth(what, n), trouble };
    let rest = |n| Act::Sleep { n, millis: 1_000 };
    Case {
        requests: vec![request(100, Ask::Start), request(150, Ask::Pause { millis: 50 })],
        troubles: vec![
            trouble(What::Wake, wake, Trouble::Repeated { millis: 1_200 }),
            trouble(What::Call, call, Trouble::Slow { there: 0, back: 1_200 }),
            trouble(What::Effect, 1, Trouble::Slow { there: 3_000, back: 0 }),
        ],
        ..alone("attach", vec![rest(1), rest(2), Act::Step { n: 3, fails: 0 }])
    }
}

/// A node dies with the right to make a `run_once` value. When the run goes on, a race has been lost meanwhile, and no branch makes
/// it; the run's child needs it, and the run waits for its child.
fn lost_once() -> Case {
    let once = |n| Act::Once { n, shared: true };
    let race = Act::Race { n: 2, late: true, far: false, limit: 2_000, acts: vec![once(3)] };
    let dies = Trouble::Dies { before: true, down: 3_000 };
    Case {
        troubles: vec![Disturbance { node: 0, when: When::Nth(What::Effect, 1), trouble: dies }],
        ..alone("attach", vec![race, Act::Child { n: 4, acts: vec![once(5)] }])
    }
}

/// The same, and what it finds when it asks again is another request under its key.
fn late_and_refused() -> Case {
    let mut case = late_start();
    let mut other = case.programs[0].clone();
    other.program.1.push(Act::Sleep { n: 2, millis: 3 });
    case.programs.push(other);
    case.requests[1].program = 1;
    case
}
