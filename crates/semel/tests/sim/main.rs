//! The simulator: several engines on one store, on one thread, and all that can go wrong between them drawn from a seed.
//! See docs/reliability.md.

mod case;
mod clients;
mod figures;
mod line;
mod operator;
mod oracle;
mod outside;
mod play;
mod postman;
#[path = "../programs/mod.rs"]
mod programs;
mod stage;
mod time;
mod verdict;

use crate::case::Case;
use crate::play::play;

fn main() {
    play::note_panics();
    let seeds: Vec<u64> = std::env::args().skip(1).map(|a| a.parse().unwrap()).collect();
    let mut figures = figures::Figures::default();
    for seed in seeds[0]..seeds[1] {
        let case = Case::of(seed);
        let played = play(&case, true);
        figures.merge(&played.figures);
        if let Some(violation) = played.violation {
            println!("seed {seed}: {}: {}", violation.kind, violation.message);
            if seeds.len() > 2 {
                println!("{case}{}", played.lines.join("\n"));
            }
        }
    }
    println!("{figures}");
}
