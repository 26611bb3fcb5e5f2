//! `sql`, `publish` and `transaction` of an owner that has lost its run: what it says to the database, or the answer, comes through when
//! another owner has gone on.

use libtest_mimic::Trial;
use semel::engine::Builder;
use semel::rules::entry::Outcome;

use super::DEBIT;
use super::site::{Fixed, Site, SiteKind, TESTED, open};
use crate::overtaken::{HeldLine, HeldPart, Hold, Overtaken, overtaken};

/// Where the owner is overtaken. A held COMMIT holds its locks until the database ends the session.
fn holds(kind: SiteKind) -> [Hold; 4] {
    // A request to MariaDB begins with the number of its command, which READ COMMITTED in another request has not before it.
    let commit = if kind == SiteKind::Mariadb { "\u{3}COMMIT" } else { "COMMIT" };
    [
        Hold { marker: "UPDATE account", part: HeldPart::Request },
        Hold { marker: "UPDATE account", part: HeldPart::Answer },
        Hold { marker: commit, part: HeldPart::Request },
        Hold { marker: commit, part: HeldPart::Answer },
    ]
}

/// The same for two databases, on the line to one of them. A session of MariaDB that is held is ended by its server.
fn branches(kind: SiteKind) -> Vec<Hold> {
    let markers = match kind {
        SiteKind::Mariadb => ["UPDATE account", "XA PREPARE", "XA COMMIT"],
        _ => ["UPDATE account", "PREPARE TRANSACTION", "COMMIT PREPARED"],
    };
    let both = |marker| [HeldPart::Request, HeldPart::Answer].map(|part| Hold { marker, part });
    markers.into_iter().flat_map(both).collect()
}
const RETRY: &str = "retry: {attempts: for-ever, first: 10ms, most: 200ms}";

pub(super) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for kind in [SiteKind::Postgres, SiteKind::Mariadb] {
        for hold in holds(kind) {
            trials
                .push(trial(kind.name(), hold, move || crate::world::runtime().block_on(alone(kind, hold))));
        }
    }
    for (kind, of) in [(SiteKind::Postgres, "several"), (SiteKind::Mariadb, "several::mariadb")] {
        for hold in branches(kind) {
            trials.push(trial(of, hold, move || crate::world::runtime().block_on(together(kind, hold))));
        }
    }
    trials
}

fn trial(of: &str, hold: Hold, test: impl FnOnce() + Send + 'static) -> Trial {
    let part = if hold.part == HeldPart::Request { "request" } else { "answer" };
    let marker = hold.marker.trim_start_matches('\u{3}').to_lowercase().replace(' ', "_");
    let name = format!("databases::{of}::a_zombie_whose_{part}_of_{marker}_is_late_changes_nothing");
    Trial::test(name, move || {
        test();
        Ok(())
    })
}

/// A statement, a message and a block of both, in one database.
async fn alone(kind: SiteKind, hold: Hold) {
    let site = Site::new(kind).await;
    let line = HeldLine::to(site.host(), hold).await;
    let steps = format!(
        "steps:
  - {{name: debit, {RETRY}, sql: {{on: bank, run: '{DEBIT}', args: {{cents: 10, who: ann}}, expect: 1}}}}
  - {{name: told, {RETRY}, publish: {{on: bank, subject: debits, data: 1}}}}
  - name: book
    {RETRY}
    transaction:
      - {{name: credit, sql: {{on: bank, run: '{DEBIT}', args: {{cents: 1, who: ben}}, expect: 1}}}}
      - {{name: told, publish: {{on: bank, subject: booked, data: 1}}}}"
    );
    let build = |builder: Builder, route| site.by(&line, route).build(builder, &steps);
    let Overtaken { outcome, doubt } = overtaken(&line, TESTED, build, || None).await;
    assert!(matches!(outcome, Outcome::Completed(_)), "{hold:?}: {outcome:?}");
    assert_eq!(doubt, None, "{hold:?}");
    assert_eq!(site.number("SELECT cents FROM account WHERE owner = 'ann'").await, 990, "{hold:?}");
    assert_eq!(site.number("SELECT cents FROM account WHERE owner = 'ben'").await, 999, "{hold:?}");
    assert_eq!(site.number("SELECT count(*) FROM semel_queue").await, 2, "{hold:?}");
    let outcomes = "SELECT count(*) FROM fenced_task_idempotency_lock WHERE outcome IS NOT NULL";
    assert_eq!(site.number(outcomes).await, 3, "{hold:?}");
}

/// A transaction over two databases; the line is that to one of them.
async fn together(kind: SiteKind, hold: Hold) {
    let (bank, stock) = (Site::new(SiteKind::Postgres).await, Site::new(SiteKind::Mariadb).await);
    let line = HeldLine::to(if kind == SiteKind::Mariadb { stock.host() } else { bank.host() }, hold).await;
    let steps = format!(
        "steps:
  - name: book
    {RETRY}
    transaction:
      - {{name: debit, sql: {{on: bank, run: '{DEBIT}', args: {{cents: 10, who: ann}}, expect: 1}}}}
      - {{name: reserve, sql: {{on: stock, run: '{DEBIT}', args: {{cents: 3, who: ben}}, expect: 1}}}}
      - {{name: told, publish: {{on: bank, subject: booked, data: 1}}}}"
    );
    let build = |builder: Builder, route| {
        let (mut bank, mut stock) = (bank.clone(), stock.clone());
        match kind {
            SiteKind::Mariadb => stock = stock.by(&line, route),
            _ => bank = bank.by(&line, route),
        }
        let connections = open(&[("bank", &bank), ("stock", &stock)], "").expect("they can be opened");
        builder.state(connections).programs(Fixed::new(&steps))
    };
    let Overtaken { outcome, doubt } = overtaken(&line, TESTED, build, || None).await;
    assert!(matches!(outcome, Outcome::Completed(_)), "{hold:?}: {outcome:?}");
    assert_eq!(doubt, None, "{hold:?}");
    assert_eq!(bank.number("SELECT cents FROM account WHERE owner = 'ann'").await, 990, "{hold:?}");
    assert_eq!(bank.number("SELECT count(*) FROM semel_queue").await, 1, "{hold:?}");
    assert_eq!(stock.number("SELECT cents FROM account WHERE owner = 'ben'").await, 997, "{hold:?}");
}
