//! The case that is drawn from a seed: nodes, programs, requests of clients, and faults.

use std::fmt;
use std::time::Duration;

use semel::Limits;
use semel::rules::start::Policy;
use semel::testing::Dice;

use crate::programs::{Act, Pace, Program, draw};

/// Milliseconds at the beginning in which faults occur; after that all runs may finish.
pub(crate) const STORM: u64 = 9_000;
/// The same for cases with a cursed step or a poisonous run: they kill several nodes one after the other, and each lease has to
/// end first.
const LONG_STORM: u64 = 30_000;

/// One of this number of cases has large values: it takes ten times as long as others.
const BULKY: u64 = 150;
/// Lengths of the values, in kibibytes.
const KIB: [u32; 6] = [100, 100, 300, 300, 900, 2_000];

/// The lease of a node.
pub(crate) const LEASE: Duration = Duration::from_secs(3);

/// Pace of programs that end soon although nodes die meanwhile.
const PACE: Pace = Pace {
    acts: 7,
    depth: 2,
    waits: [3, 15, 300, 2_500],
    in_vain: 300,
    limit: |_, late| if late { (false, 2_000) } else { (true, 360_000_000) },
    company: true,
    close: Some(400),
    bank: false,
};

/// One simulation.
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) seed: u64,
    /// Milliseconds at the beginning in which faults occur.
    pub(crate) storm: u64,
    pub(crate) nodes: Vec<NodeKind>,
    pub(crate) keys: Vec<KeyKind>,
    pub(crate) programs: Vec<Scripted>,
    pub(crate) requests: Vec<Request>,
    pub(crate) troubles: Vec<Disturbance>,
    /// The poisonous program: every effect of its runs kills the node.
    pub(crate) poison: Option<usize>,
}

/// Properties of an engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeKind {
    /// Milliseconds by which its clock is ahead of the store's; negative if it is behind.
    pub(crate) wrong_by: i64,
    /// Whether it receives no wake-ups.
    pub(crate) deaf: bool,
    /// Maximum number of runs that it drives, and that rest in its memory.
    pub(crate) driven: usize,
    pub(crate) resting: usize,
}

impl NodeKind {
    pub(crate) fn limits(self) -> Limits {
        Limits { driven: self.driven, resting: self.resting, lease: LEASE, ..Limits::default() }
    }
}

/// How the starts under one key behave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct KeyKind {
    pub(crate) policy: &'static str,
    /// How an operator retries a failed run.
    pub(crate) again: Again,
}

impl KeyKind {
    pub(crate) fn policy(self) -> Policy {
        let preset = Policy::PRESETS.iter().find(|(name, _)| *name == self.policy);
        preset.expect("one of the presets").1
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Again {
    Retry,
    Restart,
    Start,
}

/// A program that is started, and under which key.
#[derive(Clone, Debug)]
pub(crate) struct Scripted {
    pub(crate) key: usize,
    pub(crate) program: Program,
    pub(crate) delay: u64,
    pub(crate) timeout: Option<u64>,
}

/// Something that a client asks for, of a node or of the store itself.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) at: u64,
    pub(crate) node: usize,
    pub(crate) direct: bool,
    pub(crate) program: usize,
    pub(crate) ask: Ask,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Ask {
    Start,
    /// Cancels the run: at once, or at the node that drives it, this number of milliseconds after its next body has begun.
    Cancel {
        close: Option<u64>,
    },
    RequestCancel,
    Pause {
        millis: u64,
    },
    Fork {
        fresh: bool,
    },
    Watch,
}

/// Actions of a node that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum What {
    Call,
    Start,
    Effect,
    LookUp,
    /// A call about a `run_once` value.
    Once,
    Wake,
}

/// A fault of a node: at its n-th action of a kind, or at a time.
#[derive(Clone, Debug)]
pub(crate) struct Disturbance {
    pub(crate) node: usize,
    pub(crate) when: When,
    pub(crate) trouble: Trouble,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum When {
    Nth(What, u32),
    At(u64),
}

#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    /// The node dies before the action, or after it and before the answer.
    Dies { before: bool, down: u64 },
    /// The node and its clock stand still.
    StandsStill { millis: u64 },
    /// The call is not made, and the caller gets an error that says so.
    Refused,
    /// The call is lost, and the caller gets an unknown outcome.
    Lost,
    /// The call takes place, and its answer is lost.
    Unanswered,
    /// The caller gets an unknown outcome, and then the call takes place.
    Late { millis: u64 },
    /// The call and its answer are delayed.
    Slow { there: u64, back: u64 },
    /// A wake-up is received twice.
    Repeated { millis: u64 },
}

impl Trouble {
    /// The name under which it is counted.
    pub(crate) fn kind(&self, what: What) -> &'static str {
        match self {
            Self::Lost if what == What::Wake => "wake-ups lost",
            Self::Refused if what == What::LookUp => "look-ups that failed",
            Self::Dies { before: true, .. } => "crashes before a write or effect",
            Self::Dies { before: false, .. } => "crashes after a write or effect",
            Self::StandsStill { .. } => "nodes that stand still at a call or effect",
            Self::Refused => "calls refused",
            Self::Lost => "calls lost",
            Self::Unanswered => "answers lost",
            Self::Late { .. } => "calls that come late",
            Self::Slow { .. } => "slow calls",
            Self::Repeated { .. } => "wake-ups repeated",
        }
    }
}

impl Disturbance {
    pub(crate) fn planned(&self) -> Option<((usize, What, u32), Trouble)> {
        match self.when {
            When::Nth(what, n) => Some(((self.node, what, n), self.trouble.clone())),
            When::At(_) => None,
        }
    }
}

impl Case {
    pub(crate) fn of(seed: u64) -> Self {
        let mut dice = Dice::new(seed ^ 0x51);
        let nodes: Vec<_> = (0..dice.some(2, 3)).map(|_| node(&mut dice)).collect();
        let keys: Vec<_> = (0..dice.some(1, 3)).map(|_| key(&mut dice)).collect();
        let mut programs = Vec::new();
        // Now and then all want the same result first: one makes it, the others wait.
        let meet = dice.below(8) == 0;
        for (key, kind) in keys.iter().enumerate() {
            // What is asked for under one key may change.
            let variants = if kind.policy == "attach" { dice.some(1, 2) } else { dice.some(1, 3) };
            for variant in 0..variants {
                let at = format!("p{key}{}", ["a", "b", "c"][variant as usize]);
                let mut program = draw(dice.below(u64::MAX), &at, PACE);
                if meet {
                    program.1.insert(0, Act::Once { n: 0, shared: true });
                }
                let delay = if dice.below(8) == 0 { 700 } else { 0 };
                let timeout = (dice.below(10) == 0).then(|| u64::from(dice.some(1, 8)) * 1000);
                programs.push(Scripted { key, program, delay, timeout });
            }
        }
        weigh_down(&mut Dice::named(seed, "bulk"), &mut programs);
        let requests = requests(&mut dice, nodes.len(), &programs, &keys);
        let count = [0, 3, 6, 9, 12, 18][dice.below(6) as usize];
        let mut troubles: Vec<_> = (0..count).map(|_| disturbance(&mut dice, nodes.len())).collect();
        let fate = dice.below(25);
        if fate == 0 {
            troubles.extend(curse(nodes.len()));
        }
        let poison = (fate == 1).then(|| dice.below(programs.len() as u64) as usize);
        if let Some(poison) = poison {
            // Its first act is one that kills, so that it makes no progress.
            programs[poison].program.1.insert(0, Act::Step { n: 0, fails: 0 });
        }
        let storm = if fate < 2 { LONG_STORM } else { STORM };
        Self { seed, storm, nodes, keys, programs, requests, troubles, poison }
    }

    /// Size of the case: the number of its parts that a smaller case might leave out.
    pub(crate) fn size(&self) -> usize {
        fn acts(all: &[Act]) -> usize {
            let inside = |act: &Act| match act {
                Act::Loop { acts: all, .. } | Act::Race { acts: all, .. } | Act::Child { acts: all, .. } => {
                    acts(all)
                }
                Act::Join { left, right, .. } => acts(left) + acts(right),
                _ => 0,
            };
            all.iter().map(|act| 1 + inside(act)).sum()
        }
        let programs: usize = self.programs.iter().map(|scripted| acts(&scripted.program.1)).sum();
        self.troubles.len() + self.requests.len() + programs
    }
}

/// Adds large values to one program, in few cases.
fn weigh_down(dice: &mut Dice, programs: &mut [Scripted]) {
    if dice.below(BULKY) > 0 {
        return;
    }
    let acts = &mut programs[dice.below(programs.len() as u64) as usize].program.1;
    let kib = KIB[dice.below(KIB.len() as u64) as usize];
    acts.insert(dice.below(acts.len() as u64 + 1) as usize, Act::Bulk { n: 99, parts: dice.some(2, 3), kib });
}

fn node(dice: &mut Dice) -> NodeKind {
    NodeKind {
        wrong_by: [0, 0, -400, 900, 60_000][dice.below(5) as usize],
        deaf: dice.below(6) == 0,
        driven: [4096, 4096, 2][dice.below(3) as usize],
        resting: [16_384, 16_384, 0, 1][dice.below(4) as usize],
    }
}

fn key(dice: &mut Dice) -> KeyKind {
    let policy = ["attach", "attach", "retry-failed", "unique-while-open", "unique-while-open", "supersede"];
    let policy = policy[dice.below(6) as usize];
    let again = if policy == "retry-failed" { Again::Start } else { Again::Retry };
    let again = if dice.below(3) == 0 { Again::Restart } else { again };
    KeyKind { policy, again }
}

fn requests(dice: &mut Dice, nodes: usize, programs: &[Scripted], keys: &[KeyKind]) -> Vec<Request> {
    let mut requests = Vec::new();
    for (program, scripted) in programs.iter().enumerate() {
        let mut push = |dice: &mut Dice, at: u64, ask: Ask| {
            let (node, direct) = (dice.below(nodes as u64) as usize, dice.below(3) == 0);
            requests.push(Request { at, node, direct, program, ask });
        };
        let first = dice.below(2_500);
        push(dice, first, Ask::Start);
        for _ in 0..dice.below(3) {
            let again = first + [0, 0, 3, dice.below(4_000)][dice.below(4) as usize];
            push(dice, again, Ask::Start);
        }
        let watched = first + dice.below(1_000);
        push(dice, watched, Ask::Watch);
        let later = first + dice.below(4_000);
        match dice.below(11) {
            0 | 1 => {
                let close = dice.flip().then(|| [0, 0, 5, 20, 40][dice.below(5) as usize]);
                push(dice, if close.is_some() { first } else { later }, Ask::Cancel { close });
            }
            2 => push(dice, later, Ask::RequestCancel),
            3 => {
                let millis = dice.below(2_000);
                push(dice, later, Ask::Pause { millis });
            }
            4..=8 if keys[scripted.key].policy == "attach" => {
                let fresh = dice.flip();
                push(dice, later, Ask::Fork { fresh });
            }
            _ => {}
        }
    }
    requests.sort_by_key(|request| request.at);
    requests
}

/// Kills each node at its first action, and at its next.
fn curse(nodes: usize) -> Vec<Disturbance> {
    let dies = |node: usize, nth: u32| Disturbance {
        node,
        when: When::Nth(What::Effect, nth),
        trouble: Trouble::Dies { before: true, down: 100 },
    };
    (0..nodes).flat_map(|node| (1..=5).map(move |nth| dies(node, nth))).collect()
}

fn disturbance(dice: &mut Dice, nodes: usize) -> Disturbance {
    // Clients that call the store directly have a line that fails, but nothing else.
    let node = dice.below(nodes as u64 + 1) as usize;
    let is_node = node < nodes;
    let long = |dice: &mut Dice| [5, 80, 700, 4_500, 9_000][dice.below(5) as usize];
    let down = 100 + dice.below(3_000);
    let nth = |dice: &mut Dice, what: What| {
        let most = match what {
            What::Call => 90,
            What::Start => 6,
            What::Effect => 8,
            What::LookUp | What::Once => 3,
            What::Wake => 40,
        };
        When::Nth(what, 1 + dice.below(most) as u32)
    };
    let call = if dice.below(3) == 0 { What::Start } else { What::Call };
    let call = nth(dice, call);
    let at = When::At(dice.below(STORM - 2_000));
    let (when, trouble) = match dice.below(18) {
        0 if is_node => (at, Trouble::Dies { before: true, down }),
        1 | 2 if is_node => (at, Trouble::StandsStill { millis: 500 + dice.below(8_000) }),
        3 | 4 if is_node => (nth(dice, What::Effect), Trouble::Dies { before: dice.flip(), down }),
        5 if is_node => (nth(dice, What::Effect), Trouble::StandsStill { millis: 3_000 + dice.below(6_000) }),
        6 if is_node => (nth(dice, What::Effect), Trouble::Slow { there: long(dice), back: long(dice) }),
        7 if is_node => (nth(dice, What::Wake), Trouble::Lost),
        8 if is_node => (nth(dice, What::Wake), Trouble::Repeated { millis: long(dice) }),
        9 if is_node => (nth(dice, What::Call), Trouble::Dies { before: dice.flip(), down }),
        // A start that arrives long after its caller has given up.
        10 | 11 if matches!(call, When::Nth(What::Start, _)) => {
            (call, Trouble::Late { millis: 1_500 + dice.below(6_000) })
        }
        11 => (call, Trouble::Refused),
        16 if is_node => (nth(dice, What::LookUp), Trouble::Refused),
        17 if is_node => (nth(dice, What::LookUp), look_up_trouble(dice, down)),
        // A claim that arrives when its repetition was granted and has not been settled yet.
        15 if is_node && dice.flip() => {
            (nth(dice, What::Once), Trouble::Late { millis: 60 + dice.below(300) })
        }
        12 => (call, Trouble::Lost),
        13 => (call, Trouble::Unanswered),
        14 => (call, Trouble::Late { millis: long(dice) }),
        _ => (call, Trouble::Slow { there: long(dice), back: long(dice) }),
    };
    Disturbance { node, when, trouble }
}

/// The trouble of a node whose look-up is answered late or never.
fn look_up_trouble(dice: &mut Dice, down: u64) -> Trouble {
    match dice.below(3) {
        0 => Trouble::Dies { before: true, down },
        1 => Trouble::StandsStill { millis: 3_000 + dice.below(6_000) },
        _ => Trouble::Slow { there: 5, back: 2_000 + dice.below(6_000) },
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |f: &mut fmt::Formatter<'_>, what: &str, all: &mut dyn Iterator<Item = String>| {
            all.enumerate().try_for_each(|(i, text)| writeln!(f, "  {what} {i}: {text}"))
        };
        line(f, "node", &mut self.nodes.iter().map(|node| format!("{node:?}")))?;
        line(f, "key", &mut self.keys.iter().map(|key| format!("{key:?}")))?;
        line(f, "program", &mut self.programs.iter().map(|program| format!("{program:?}")))?;
        line(f, "poison", &mut self.poison.iter().map(|program| format!("program {program}")))?;
        line(f, "request", &mut self.requests.iter().map(|request| format!("{request:?}")))?;
        line(f, "disturbance", &mut self.troubles.iter().map(|trouble| format!("{trouble:?}")))
    }
}
