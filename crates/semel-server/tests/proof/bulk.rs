//! Large values at the same moment: results of steps, payloads of hooks, inputs and results of children, of one run.

use futures_util::future::{join_all, join3};
use semel::testing::Dice;
use semel::{Attempt, Ctx, Result, fatal};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::execute::{Told, execute, stubborn};
use crate::outside::{Ask, Outside, PATIENCE};
use crate::program::{Act, Kind, Program, below};

/// One program of so many has large values, up to so many programs of a phase: the checker reads all of them at the end.
pub(crate) const RARITY: u64 = 40;
pub(crate) const MOST: u64 = 30;
/// Lengths of the values, in kibibytes. With what stands around it, the longest is a value that is just allowed. A debug build takes ten
/// times as long for them, and the leases of the workers are short.
const KIB: &[u32] = if cfg!(debug_assertions) { &[100, 200] } else { &[100, 300, 700, 1_900] };

/// So many steps, hooks and children at once, each with a value of so many kibibytes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Bulk {
    pub(crate) n: u32,
    pub(crate) parts: u32,
    pub(crate) kib: u32,
}

/// A value with a number that is checked, and a text that makes it large.
#[derive(Deserialize, Serialize)]
struct Large {
    number: u64,
    text: String,
}

impl Bulk {
    pub(crate) fn draw(dice: &mut Dice) -> Self {
        let kib = KIB[dice.below(KIB.len() as u64) as usize];
        Self { n: 99, parts: dice.between(2, 3) as u32, kib }
    }

    /// Names of the steps.
    pub(crate) fn steps(self) -> impl Iterator<Item = String> {
        (0..self.parts).map(move |part| format!("b{}[{part}]", self.n))
    }

    /// Tokens of the hooks. A token tells how large its payload is.
    pub(crate) fn tokens(self, place: &str) -> impl Iterator<Item = String> {
        (0..self.parts).map(move |part| format!("{place}:b{}-{part}-{}k", self.n, self.kib))
    }

    /// Places of the children.
    pub(crate) fn places(self, place: &str) -> impl Iterator<Item = String> {
        (0..self.parts).map(move |part| format!("{}-{part}", below(place, "", self.n)))
    }

    fn text(self) -> String {
        text(self.kib)
    }

    fn check(self, text: &str) -> Result<()> {
        if text == self.text() { Ok(()) } else { Err(fatal("a large value has changed")) }
    }

    /// Runs all at once; tells of steps and hooks.
    pub(crate) async fn run(self, ctx: &Ctx, place: &str) -> Result<Told> {
        let steps = join_all((0..self.parts).map(|part| self.step(ctx, place, part)));
        let hooks = join_all(self.tokens(place).map(|token| self.hook(ctx, token)));
        let children = join_all(self.places(place).map(|place| self.child(ctx, place)));
        let (steps, hooks, children) = join3(steps, hooks, children).await;
        children.into_iter().collect::<Result<Vec<()>>>()?;
        steps.into_iter().chain(hooks).collect()
    }

    async fn step(self, ctx: &Ctx, place: &str, part: u32) -> Result<(String, u64)> {
        let outside = ctx.state::<Outside>();
        let step = ctx.step(format!("b{}", self.n)).key(part).retry(stubborn()).timeout(PATIENCE);
        let call = async |attempt: Attempt| {
            let ask = Ask::of(Kind::Keyed, place, &attempt);
            let number = outside.effect(&ask).await?;
            Ok((ask.at, Large { number, text: self.text() }))
        };
        let (at, Large { number, text }) = step.run(call).await?;
        self.check(&text)?;
        Ok((at, number))
    }

    async fn hook(self, ctx: &Ctx, token: String) -> Result<(String, u64)> {
        let Large { number, text } = ctx.hook::<Large>(token.clone()).recv().await?;
        self.check(&text)?;
        Ok((format!("{token} 0"), number))
    }

    async fn child(self, ctx: &Ctx, place: String) -> Result<()> {
        let key = place.clone();
        let program = Program { place, acts: vec![Act::Ballast { text: self.text() }] };
        let told = ctx.child(execute, program).key(key).await?.result().await?;
        self.check(told.first().map_or("", |(text, _)| text))
    }
}

fn text(kib: u32) -> String {
    "x".repeat(kib as usize * 1024)
}

/// What is delivered to a hook: a number, and a text as large as the token says.
pub(crate) fn payload(token: &str, number: u32) -> Value {
    let kib = token.rsplit_once('-').and_then(|(_, kib)| kib.strip_suffix('k')?.parse().ok());
    match kib {
        Some(kib) => json!(Large { number: number.into(), text: text(kib) }),
        None => json!(number),
    }
}

/// The number in a payload.
pub(crate) fn number_of(payload: &Value) -> Option<u64> {
    payload.as_u64().or_else(|| payload["number"].as_u64())
}
