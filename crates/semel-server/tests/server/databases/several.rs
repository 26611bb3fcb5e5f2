//! One transaction over several databases, as a definition has it.

use std::sync::Arc;

use libtest_mimic::{Failed, Trial};
use semel::Engine;
use semel::clock::SystemClock;
use semel::engine::Builder;
use semel::id::WorkspaceId;
use semel::rules::entry::Outcome;
use semel::store::memory::MemoryStore;
use semel::testing::{Crasher, Ended, Scene};
use semel_server::access::Caller;
use semel_server::api::Permission;
use semel_server::app::App;
use serde_json::{Value, json};

use super::crash::{fresh, number};
use super::site::{Fixed, Site, SiteKind, TESTED, open};
use super::{DEBIT, value_of};
use crate::world::{Api, runtime};

pub(super) fn trials() -> Vec<Vec<Trial>> {
    let alone = |name: &str, test: fn() -> Result<(), Failed>| {
        Trial::test(format!("databases::several::{name}"), test)
    };
    vec![vec![
        alone("all_databases_commit_or_none", || runtime().block_on(whole())),
        alone("a_crash_at_every_boundary_leaves_all_or_nothing", || {
            every_boundary();
            Ok(())
        }),
        alone("a_push_says_which_databases_cannot_commit_together", || runtime().block_on(pushed())),
    ]]
}

#[derive(Clone)]
struct Both {
    bank: Site,
    stock: Site,
}

impl Both {
    async fn new() -> Self {
        Self { bank: Site::new(SiteKind::Postgres).await, stock: Site::new(SiteKind::Mariadb).await }
    }

    fn build(&self, builder: Builder, steps: &str) -> Builder {
        let connections = open(&[("bank", &self.bank), ("stock", &self.stock)], "").unwrap();
        builder.state(connections).programs(Fixed::new(steps))
    }

    async fn outcome(&self, steps: &str) -> Outcome {
        let engine = self.build(Engine::builder().store("memory:"), steps).open().await.unwrap();
        let run = engine.start(TESTED, json!({})).await.unwrap();
        let outcome = run.outcome().await.unwrap();
        let replay = engine.replay(run.id()).await.unwrap();
        assert!(replay.is_identical(), "{replay}");
        outcome
    }
}

/// The steps of the second database see those of the first one.
fn steps(expect: u32) -> String {
    format!(
        "steps:
  - name: book
    transaction:
      - {{name: debit, sql: {{on: bank, run: '{DEBIT}', args: {{cents: 10, who: ann}}, expect: 1}}}}
      - {{name: reserve, sql: {{on: stock, run: '{DEBIT}', args: {{cents: '{{{{ steps.debit.affected * 3 }}}}', who: ben}}, expect: {expect}}}}}
      - {{name: told, publish: {{on: bank, subject: booked, data: 1}}}}
return: ['{{{{ steps.book.debit.affected }}}}', '{{{{ steps.book.reserve.affected }}}}', '{{{{ steps.book.told.id|length }}}}']"
    )
}

async fn whole() -> Result<(), Failed> {
    let both = Both::new().await;
    assert_eq!(value_of(both.outcome(&steps(1)).await), json!([1, 1, 34]));
    assert_eq!(both.bank.number("SELECT cents FROM account WHERE owner = 'ann'").await, 990);
    assert_eq!(both.stock.number("SELECT cents FROM account WHERE owner = 'ben'").await, 997);
    let Outcome::Failed(failure) = both.outcome(&steps(2)).await else { panic!("it cannot be as expected") };
    assert_eq!(failure.code.as_deref(), Some("EXPECT"));
    assert_eq!(both.bank.number("SELECT cents FROM account WHERE owner = 'ann'").await, 990);
    assert_eq!(both.bank.number("SELECT count(*) FROM semel_queue").await, 1);
    assert_eq!(both.stock.number("SELECT cents FROM account WHERE owner = 'ben'").await, 997);
    Ok(())
}

fn every_boundary() {
    let text = steps(1);
    let crasher = Crasher::new(
        || Both { bank: fresh(SiteKind::Postgres), stock: fresh(SiteKind::Mariadb) },
        move |both: &Both, builder| both.build(builder, &text),
        async |scene: Scene<Both>| {
            let run = scene.engine().start(TESTED, json!({})).key("k").await?;
            Ok(match run.outcome().await? {
                Outcome::Completed(value) => value.read().unwrap(),
                other => Value::String(format!("{other:?}")),
            })
        },
    );
    let check = |ended: &Ended<Both, Value>| {
        assert_eq!(ended.value, json!([1, 1, 34]));
        let Both { bank, stock } = &ended.world;
        assert_eq!(number(bank, "SELECT cents FROM account WHERE owner = 'ann'"), 990);
        assert_eq!(number(bank, "SELECT count(*) FROM semel_queue"), 1);
        assert_eq!(number(stock, "SELECT cents FROM account WHERE owner = 'ben'"), 997);
    };
    let plays = crasher.every_boundary(check) + crasher.every_fault(check);
    assert!(plays > 6, "{plays}");
}

async fn pushed() -> Result<(), Failed> {
    let (bank, till) = (Site::new(SiteKind::Postgres).await, Site::new(SiteKind::Sqlite).await);
    let connections = open(&[("bank", &bank), ("till", &till)], "").unwrap();
    let app = App {
        connections: Some(Arc::new(connections)),
        ..App::open(Arc::new(MemoryStore::new(Arc::new(SystemClock::new()))), Arc::new(SystemClock::new()))
    };
    let caller = Caller::new(WorkspaceId::DEFAULT, "author", vec![Permission::Admin]);
    let api = Api::serve_as(app, caller).await;
    for (steps, told) in [
        (
            "transaction: [{name: a, sql: {on: bank, run: DELETE FROM account}}, {name: b, sql: {on: till, run: DELETE FROM account}}]",
            Some("`till` cannot commit together with other databases: SQLite"),
        ),
        // SQLite takes backticks around a name, and PostgreSQL does not.
        ("sql: {on: till, run: 'DELETE FROM account WHERE owner = `a; b`; '}", None),
        (
            "sql: {on: bank, run: 'DELETE FROM account WHERE owner = `a; b`; '}",
            Some("does not take the statement"),
        ),
        (
            "sql: {on: bank, run: 'DELETE FROM account WHERE owner = \"it\\\"s\"'}",
            Some("does not take the statement"),
        ),
        ("sql: {on: bnk, run: 'DELETE FROM account'}", Some("there is no connection `bnk`")),
    ] {
        let text = format!("semel: 1\nname: a\nsteps:\n  - name: x\n    {steps}");
        let answer = api.post("/workflow-definitions?check=true", text).await;
        match told {
            None => assert_eq!(answer.status, 200, "{steps}: {}", answer.text),
            Some(told) => {
                assert_eq!(answer.status, 400, "{steps}: {}", answer.text);
                assert!(answer.text.contains(told), "{steps}: {}", answer.text);
            }
        }
    }
    Ok(())
}
