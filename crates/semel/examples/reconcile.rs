//! A letter must not be sent twice, and the printer takes no keys. So its beginning is made durable first, and if its
//! outcome is unknown the printer is asked. If the printer cannot tell, the step is in doubt, and a person decides.
//!
//! `cargo run -p semel --example reconcile`

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use semel::rules::status::Status;
use semel::{Ctx, Engine, Fail, Result};

/// Prints letters, loses its first answer, and can be asked what it has printed, most of the time.
#[derive(Default)]
pub(crate) struct Printer {
    printed: Mutex<Vec<(String, String)>>,
    deaf: AtomicBool,
}

impl Printer {
    pub(crate) fn printed(&self) -> usize {
        self.printed.lock().expect("no panics here").len()
    }

    fn print(&self, text: &str, reference: &str) -> Result<String> {
        self.printed.lock().expect("no panics here").push((reference.to_owned(), text.to_owned()));
        Err(Fail::uncertain("the line went dead"))
    }

    fn find(&self, reference: &str) -> Result<Option<String>> {
        if self.deaf.load(Ordering::SeqCst) {
            return Err(Fail::uncertain("the printer does not answer"));
        }
        let printed = self.printed.lock().expect("no panics here");
        Ok(printed.iter().find(|(known, _)| known == reference).map(|(_, text)| format!("found: {text}")))
    }
}

pub(crate) async fn send(ctx: Ctx, text: String) -> Result<String> {
    let printer = ctx.state::<Printer>();
    ctx.step("letter")
        .reconcile(async |attempt| printer.find(attempt.key()))
        .run(async |attempt| printer.print(&text, attempt.key()))
        .await
}

#[tokio::main]
async fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let engine = Engine::builder()
        .store(folder.path().join("semel.db"))
        .state(Printer::default())
        .workflow("send", send)
        .open()
        .await?;

    // The answer is lost, the printer is asked, and what it finds is the result.
    let run = engine.start(send, "Dear A".to_owned()).await?;
    println!("reconciled    {}", run.result().await?);

    // Now it cannot be asked either: the run is paused, and says why.
    engine.state::<Printer>().expect("given above").deaf.store(true, Ordering::SeqCst);
    let run = engine.start(send, "Dear B".to_owned()).await?;
    run.reached(Status::Paused).await?;
    for numbered in run.ledger().await? {
        println!("ledger        {:>2} {}", numbered.number, numbered.entry.kind());
    }

    // A person walks over to the printer and looks.
    run.happened("letter", &"seen on the tray").await?;
    println!("resolved      {}", run.result().await?);
    println!("printed       {}", engine.state::<Printer>().expect("given above").printed());
    Ok(())
}
