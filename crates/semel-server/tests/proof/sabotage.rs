//! Deliberate bugs that only real processes show: the proof must find each of them.

use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Failed;
use semel::clock::{Clock as _, SystemClock};
use semel::sabotage::{Bug, VARIABLE};
use serde_json::json;

use crate::findings::{Finding, Findings, Sort};
use crate::forms::{in_folder, seed, sqlite};
use crate::nemesis::Pace;
use crate::phase::{Phase, play};
use crate::report;
use crate::site::{Layout, Site};

/// So often a bug is looked for, each time with other draws.
const ROUNDS: u64 = 4;

/// A bug, and the blows that bring it out.
struct Case {
    bug: Bug,
    pace: Pace,
}

fn cases() -> [Case; 5] {
    let (quiet, millis) = (Pace::default(), Duration::from_millis);
    [
        Case { bug: Bug::AnswerBeforeCommit, pace: Pace { server_kills: millis(300), ..quiet } },
        Case { bug: Bug::IgnoreFenceTable, pace: Pace { worker_kills: millis(250), ..quiet } },
        Case { bug: Bug::BelieveZombies, pace: Pace { zombies: millis(100), ..quiet } },
        Case { bug: Bug::AssumeSaved, pace: Pace { server_kills: millis(500), ..quiet } },
        Case { bug: Bug::ForgetDeliveryIds, pace: quiet },
    ]
}

pub(crate) fn find_all() -> Result<(), Failed> {
    let (mut rows, mut missed) = (Vec::new(), Vec::new());
    println!("\n{:<24}  {:>12}  how", "bug", "caught after");
    for Case { bug, pace } in cases() {
        let (clock, mut found) = (SystemClock::new(), None);
        for round in 0..ROUNDS {
            found = look(bug, pace, seed()? + round)?;
            if found.is_some() {
                break;
            }
        }
        let seconds = clock.elapsed().as_secs_f32();
        let how = found.map(|Finding { sort, at, said, .. }| format!("{sort:?}: {at}: {said}"));
        println!("{:<24}  {seconds:>10.1} s  {}", bug.name(), how.as_deref().unwrap_or("NOT CAUGHT"));
        if how.is_none() {
            missed.push(bug.name());
        }
        rows.push(json!({"bug": bug.name(), "tool": "proof", "seconds": seconds, "how": how}));
    }
    report::write("sabotage-proof.json", &json!({"seed": seed()?, "bugs": rows}))?;
    if missed.is_empty() { Ok(()) } else { Err(format!("not found: {}", missed.join(", ")).into()) }
}

/// Plays with a bug in all processes; gives what was found first.
fn look(bug: Bug, pace: Pace, seed: u64) -> Result<Option<Finding>, Failed> {
    let env = vec![(VARIABLE.to_owned(), bug.name().to_owned())];
    let layout = Layout { env, ..sqlite(bug.name()) };
    let (load, calm) = (Duration::from_secs(5), Duration::from_secs(8));
    let phase = Phase { layout, pace, others: Vec::new(), callers: 32, load, calm };
    in_folder(async |folder| {
        let findings = Arc::new(Findings::default());
        tokio::select! {
            played = play(phase, &folder, seed, &findings) => played.map(|_| None),
            first = findings.first() => Ok(Some(first)),
        }
    })
}

/// Looks all the time whether something took place twice, so that nobody has to wait for the end to hear of it.
pub(crate) async fn watch(site: Arc<Site>, findings: Arc<Findings>) {
    loop {
        // If the database is away, the next look tells.
        for at in site.outside.doubled().await.unwrap_or_default() {
            findings.add(Sort::Doubled, "", &at, "it took place twice");
        }
        site.clock.until(site.clock.now().after(Duration::from_millis(200))).await;
    }
}
