//! The postman: brings to every open hook what its program is to get, one after the other, some of it twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use semel::Error;
use semel::id::{RunId, WorkspaceId};
use semel::rules::deliver::{Deliver, Delivered};
use semel::rules::json::Payload;
use semel::rules::key::{CallId, Token};
use semel::store::Store;

use crate::case::Case;
use crate::clients::{Asked, Asking, Client};
use crate::oracle::Seen;
use crate::programs::Expected;

/// Milliseconds between two rounds.
const ROUND: u64 = 60;

/// Size from which a payload is large, in bytes.
const LARGE: usize = 100 * 1024;

/// How many deliveries a hook has got, and which are on their way.
#[derive(Default)]
struct Book {
    brought: BTreeMap<(String, RunId), u32>,
    on_the_way: BTreeSet<(String, RunId)>,
}

/// Goes round until everything is done.
pub(crate) async fn go_round(client: Client, case: Arc<Case>) {
    let programs = case.programs.iter().map(|scripted| &scripted.program);
    let expected = programs.fold(Expected::default(), Expected::and);
    let wanted = expected.tokens.iter().cloned().collect();
    let book = Arc::new(Mutex::new(Book::default()));
    loop {
        for (token, owner, needs) in open_hooks(&client, &wanted) {
            let place = (token.clone(), owner);
            let mut open = book.lock().unwrap_or_else(PoisonError::into_inner);
            let brought = open.brought.get(&place).copied().unwrap_or(0);
            if brought < needs && open.on_the_way.insert(place) {
                drop(open);
                let letter =
                    Letter { payload: expected.payload(&token, brought), token, owner, nth: brought };
                tokio::spawn(bring(client.clone(), letter, book.clone()));
            }
        }
        client.stage.pause(ROUND).await;
    }
}

/// Tokens that are open, with their owners, and how much those need in all.
fn open_hooks(client: &Client, wanted: &BTreeMap<String, u32>) -> Vec<(String, RunId, u32)> {
    let scene = client.stage.lock();
    let needs = |(token, (owner, _)): (&String, &(RunId, BTreeSet<String>))| {
        let spent = scene.oracle.runs.get(owner).and_then(|seen| seen.spent.get(token)).copied().unwrap_or(0);
        let wanted = wanted.get(token).copied().filter(|wanted| *wanted > 0)?;
        Some((token.clone(), *owner, wanted + spent))
    };
    scene.oracle.tokens.iter().filter_map(needs).collect()
}

/// What is brought to a hook.
struct Letter {
    token: String,
    owner: RunId,
    /// How many came before it.
    nth: u32,
    payload: Payload,
}

async fn bring(mut client: Client, letter: Letter, book: Arc<Mutex<Book>>) {
    let number = client.stage.lock().next_number();
    (client.node, client.direct) = (number as usize % 7, number.is_multiple_of(5));
    let Letter { token, owner, nth, payload } = letter;
    if payload.text().len() > LARGE {
        client.stage.lock().figures.count("large values");
    }
    let id = format!("{owner} {nth} {number}");
    let ask = |asked: Asked| deliver(asked, token.clone(), payload.clone(), id.clone());
    let delivered = client.insist(ask).await;
    let mut next_owner = None;
    if let Ok(first) = &delivered
        && number.is_multiple_of(3)
    {
        // As if the answer had not been heard.
        let again = client.insist(ask).await;
        let mut scene = client.stage.lock();
        let ended = scene.oracle.runs.get(&first.run).is_none_or(Seen::ended);
        match &again {
            Ok(again) if again.absorbed && again.run == first.run => {}
            // The id is free for the next owner of the token once the first owner has ended.
            Ok(again) if !again.absorbed && again.run != first.run && ended => next_owner = Some(again.run),
            _ => scene.violate("delivery", format!("{id} for {token} was brought twice: {again:?}")),
        }
    }
    let mut book = book.lock().unwrap_or_else(PoisonError::into_inner);
    book.on_the_way.remove(&(token.clone(), owner));
    if let Some(run) = next_owner {
        *book.brought.entry((token.clone(), run)).or_default() += 1;
    }
    match delivered {
        // The token may be another's by now.
        Ok(delivered) => *book.brought.entry((token, delivered.run)).or_default() += 1,
        // It was closed meanwhile.
        Err(Error::HookNotFound(_)) => {}
        Err(error) => client.stage.lock().violate("delivery", format!("{id} was answered with {error}")),
    }
}

fn deliver(asked: Asked, token: String, payload: Payload, id: String) -> Asking<Delivered> {
    Box::pin(async move {
        match asked {
            Asked::Node(_, _, engine) => engine.deliver(token, payload).id(id).await,
            Asked::Store(line) => {
                let (token, id) = (Token::new(token)?, Some(CallId::new(id)?));
                line.deliver(Deliver { workspace: WorkspaceId::DEFAULT, token, payload, id }).await
            }
        }
    })
}
