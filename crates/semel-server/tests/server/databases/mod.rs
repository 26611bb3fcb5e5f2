//! `sql`, `publish` and `transaction` in real databases: rows and outcome are there together, once, whatever happens in between.

#![expect(clippy::unwrap_used, reason = "a test that fails by unwrap says where")]

mod crash;
mod gate;
mod hostile;
mod left;
mod operator;
mod several;
pub(crate) mod site;
mod values;
mod zombies;

use libtest_mimic::{Failed, Trial};
use semel::rules::entry::Outcome;
use serde_json::{Value, json};

use self::site::{Site, SiteKind};

/// One trial of a test for each database.
pub(crate) fn on<F>(name: &'static str, test: impl Fn(Site) -> F + Copy + Send + 'static) -> Vec<Trial>
where
    F: Future<Output = Result<(), Failed>>,
{
    let trial = |kind: SiteKind| {
        Trial::test(format!("databases::{}::{name}", kind.name()), move || {
            crate::world::runtime().block_on(async { test(Site::new(kind).await).await })
        })
    };
    SiteKind::ALL.into_iter().map(trial).collect()
}

pub(crate) fn trials() -> Vec<Trial> {
    let mut all = vec![
        on("statement_and_outcome_are_one_commit", together),
        on("what_is_not_expected_is_rolled_back", unexpected),
        on("a_query_cannot_write", read_only),
        on("a_transaction_takes_place_as_a_whole_or_not_at_all", whole),
        on("messages_are_rows_beside_the_users_own", published),
        on("an_error_has_its_state_and_is_caught_by_it", caught),
    ];
    all.extend(
        [
            crash::trials(),
            hostile::trials(),
            left::trials(),
            operator::trials(),
            several::trials(),
            values::trials(),
        ]
        .into_iter()
        .flatten(),
    );
    let mut all: Vec<_> = all.into_iter().flatten().collect();
    all.extend(zombies::trials());
    all
}

pub(crate) const DEBIT: &str =
    "UPDATE account SET cents = cents - :cents WHERE owner = :who AND cents >= :cents";

async fn together(site: Site) -> Result<(), Failed> {
    let steps = format!(
        "steps:
  - name: debit
    sql: {{on: bank, run: '{DEBIT}', args: {{cents: '{{{{ input.cents }}}}', who: ann}}, expect: 1}}
  - {{name: left, sql: {{on: bank, read: 'SELECT cents FROM account WHERE owner = :who', args: {{who: ann}}, expect: 1}}}}
return: {{affected: '{{{{ steps.debit.affected }}}}', left: '{{{{ steps.left.rows[0].cents }}}}'}}"
    );
    assert_eq!(site.value(&steps, json!({"cents": 30})).await, json!({"affected": 1, "left": 970}));
    let fence =
        "SELECT count(*) FROM fenced_task_idempotency_lock WHERE outcome IS NOT NULL AND step = 'debit'";
    assert_eq!(site.number(fence).await, 1);
    assert_eq!(site.number("SELECT cents FROM account WHERE owner = 'ann'").await, 970);
    Ok(())
}

async fn unexpected(site: Site) -> Result<(), Failed> {
    let steps = "steps:
  - name: all
    try:
      - {name: debit, sql: {on: bank, run: 'UPDATE account SET cents = 0', expect: 1}}
    catch:
      - when: \"{{ error.code == 'EXPECT' }}\"
        steps: [{name: told, set: {found: '{{ error.data.affected }}'}}]";
    assert_eq!(site.value(steps, json!({})).await, json!({"found": 2}));
    assert_eq!(site.number("SELECT count(*) FROM account WHERE cents = 0").await, 0);
    let kept = "steps:
  - {name: debit, sql: {on: bank, run: 'UPDATE account SET cents = 0'}, keep: '{{ this.nothing }}'}";
    assert_eq!(site.failure(kept, json!({})).await, "EXPRESSION");
    assert_eq!(site.number("SELECT count(*) FROM account WHERE cents = 0").await, 0, "it is rolled back");
    Ok(())
}

/// Each database has its own way to write in a query.
async fn read_only(site: Site) -> Result<(), Failed> {
    let read = match site.kind {
        SiteKind::Postgres => {
            "WITH gone AS (DELETE FROM account RETURNING cents) SELECT count(*) AS n FROM gone"
        }
        SiteKind::Sqlite => "WITH one AS (SELECT 1) DELETE FROM account",
        SiteKind::Mariadb => {
            site.script("CREATE FUNCTION gone() RETURNS int MODIFIES SQL DATA BEGIN DELETE FROM account; RETURN 1; END")
                .await;
            "SELECT gone() AS n"
        }
    };
    let steps = format!("steps:\n  - {{name: look, sql: {{on: bank, read: '{read}'}}}}");
    assert_eq!(site.failure(&steps, json!({})).await, "SQL");
    assert_eq!(site.number("SELECT count(*) FROM account").await, 2);
    Ok(())
}

async fn whole(site: Site) -> Result<(), Failed> {
    let steps = |expect: u32| {
        format!(
            "steps:
  - name: book
    transaction:
      - {{name: debit, sql: {{on: bank, run: '{DEBIT}', args: {{cents: 30, who: ann}}, expect: 1}}}}
      - {{name: never, if: '{{{{ false }}}}', sql: {{on: bank, run: 'DELETE FROM account'}}}}
      - {{name: left, sql: {{on: bank, read: 'SELECT cents FROM account WHERE owner = :who', args: {{who: ann}}}}, keep: '{{{{ this.rows[0].cents }}}}'}}
      - {{name: credit, sql: {{on: bank, run: 'UPDATE account SET cents = cents + :n WHERE owner = :who', args: {{n: '{{{{ steps.debit.affected * 30 }}}}', who: ben}}, expect: {expect}}}}}
      - {{name: told, publish: {{on: bank, subject: booked, data: {{left: '{{{{ steps.left }}}}'}}}}}}
return: {{left: '{{{{ steps.book.left }}}}', names: '{{{{ steps.book|items|length }}}}'}}"
        )
    };
    assert_eq!(site.value(&steps(1), json!({})).await, json!({"left": 970, "names": 4}));
    assert_eq!(site.number("SELECT cents FROM account WHERE owner = 'ben'").await, 1030);
    assert_eq!(site.number("SELECT count(*) FROM semel_queue WHERE subject = 'booked'").await, 1);
    assert_eq!(site.failure(&steps(2), json!({})).await, "EXPECT");
    assert_eq!(site.number("SELECT sum(cents) FROM account").await, 2000);
    assert_eq!(site.number("SELECT cents FROM account WHERE owner = 'ben'").await, 1030);
    assert_eq!(site.number("SELECT count(*) FROM semel_queue").await, 1);
    Ok(())
}

async fn published(site: Site) -> Result<(), Failed> {
    let steps = "steps:
  - {name: announce, publish: {on: bank, subject: 'orders.{{ input.kind }}', data: {order: '{{ input.order }}', text: \"it's {\"}}}";
    let told = site.value(steps, json!({"kind": "paid", "order": 9_007_199_254_740_993_i64})).await;
    let id = told["id"].as_str().unwrap();
    assert!(id.starts_with("e1") && id.len() == 34, "{told}");
    let found = site.text("SELECT data FROM semel_queue WHERE subject = 'orders.paid'").await;
    let data: Value = serde_json::from_str(&found).unwrap();
    assert_eq!(data, json!({"order": 9_007_199_254_740_993_i64, "text": "it's {"}));
    assert_eq!(site.text("SELECT id FROM semel_queue").await, id);
    assert_eq!(site.failure(steps, json!({"kind": "a b", "order": 1})).await, "EXPRESSION");
    Ok(())
}

async fn caught(site: Site) -> Result<(), Failed> {
    let steps = "steps:
  - name: open
    try:
      - {name: put, sql: {on: bank, run: 'INSERT INTO account (owner, cents) VALUES (:who, 0)', args: {who: ann}}}
    catch:
      - when: \"{{ error.code == 'SQL' }}\"
        steps: [{name: told, set: {state: '{{ error.data.state }}', message: '{{ error.message }}'}}]";
    let told = site.value(steps, json!({})).await;
    let state = match site.kind {
        SiteKind::Postgres => "23505",
        SiteKind::Sqlite => "SQLITE_1555",
        SiteKind::Mariadb => "23000",
    };
    assert_eq!(told["state"], state, "{told}");
    Ok(())
}

/// The outcome of a run.
pub(crate) fn value_of(outcome: Outcome) -> Value {
    match outcome {
        Outcome::Completed(value) => value.read().unwrap(),
        other => panic!("{other:?}"),
    }
}
