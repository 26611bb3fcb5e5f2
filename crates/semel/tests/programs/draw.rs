//! How programs are drawn: what numbers from a seed are made into.

use semel::testing::Dice;

use super::{Act, Program};

/// How long and how large programs are.
#[derive(Clone, Copy)]
pub(crate) struct Pace {
    /// Maximum number of acts.
    pub(crate) acts: u32,
    /// How deep they are nested.
    pub(crate) depth: u32,
    /// Waits, in milliseconds.
    pub(crate) waits: [u64; 4],
    /// How long a hook waits in vain.
    pub(crate) in_vain: u64,
    /// The limit of a race at a depth that comes too late (or does not): whether nothing else takes as long, and how long
    /// it is.
    pub(crate) limit: fn(depth: u32, late: bool) -> (bool, u64),
    /// Whether there are acts that only several runs make interesting, or an operator that restarts failed runs.
    pub(crate) company: bool,
    /// Length of the shorter wait of [`Act::Close`], in milliseconds. `None`: there is no such act.
    pub(crate) close: Option<u64>,
    /// Whether there is a database for transactions.
    pub(crate) bank: bool,
}

/// Draws a program that is executed at a place.
pub(crate) fn draw(seed: u64, at: &str, pace: Pace) -> Program {
    let mut drawer = Drawer { dice: Dice::new(seed), last: 0, left: pace.acts, pace };
    let acts = drawer.acts(pace.depth);
    (at.to_owned(), acts)
}

struct Drawer {
    dice: Dice,
    last: u32,
    /// Number of acts that may still be drawn.
    left: u32,
    pace: Pace,
}

impl Drawer {
    fn acts(&mut self, depth: u32) -> Vec<Act> {
        let wanted = self.dice.some(1, 4);
        let mut acts = Vec::new();
        while acts.len() < wanted as usize && self.left > 0 {
            self.left -= 1;
            acts.push(self.act(depth));
        }
        acts
    }

    fn act(&mut self, depth: u32) -> Act {
        self.last += 1;
        let n = self.last;
        if self.pace.bank && self.dice.below(8) == 0 {
            return Act::Pay { n };
        }
        let flat = match self.pace.close {
            _ if self.pace.company => 14,
            Some(_) => 10,
            None => 9,
        };
        let kinds = if depth == 0 { flat } else { flat + 4 };
        let drawn = self.dice.below(kinds);
        // What needs company comes after the rest, so that the same seeds draw the same programs without it.
        match if drawn >= flat {
            drawn - flat + 9
        } else if drawn >= 9 {
            drawn + if self.pace.company { 4 } else { 5 }
        } else {
            drawn
        } {
            0 => Act::Step { n, fails: self.dice.some(0, 2) },
            1 => Act::Fatal { n },
            2 => Act::Letter { n },
            3 => Act::Asked { n, lost: self.dice.flip() },
            4 => Act::Repeat { n, times: self.dice.some(1, 3), indexed: self.dice.flip() },
            5 => Act::Sleep { n, millis: self.pace.waits[self.dice.below(4) as usize] },
            6 => {
                let (recv, recv_for) = (self.dice.some(0, 2), self.dice.some(0, 1));
                let in_vain = self.dice.flip().then_some(self.pace.in_vain);
                Act::Hook { n, recv, recv_for, in_vain }
            }
            7 => Act::Once { n, shared: self.dice.flip() },
            8 => Act::Values { n },
            9 => Act::Loop { n, times: self.dice.some(1, 2), acts: self.acts(depth - 1) },
            10 => Act::Join { n, left: self.acts(depth - 1), right: self.acts(depth - 1) },
            11 => {
                let late = self.dice.flip();
                let (far, limit) = (self.pace.limit)(depth, late);
                Act::Race { n, late, far, limit, acts: self.acts(depth - 1) }
            }
            12 => Act::Child { n, acts: self.acts(depth - 1) },
            13 => Act::Fails { n, times: self.dice.some(1, 2) },
            14 | 15 => {
                Act::Close { n, millis: self.pace.close.expect("a pace that draws it has its length") }
            }
            16 => Act::Once { n, shared: true },
            _ => Act::Door { n, millis: self.pace.waits[self.dice.below(4) as usize] },
        }
    }
}
