//! Values that want to be code, and statements that want to be more than one.

use libtest_mimic::{Failed, Trial};
use serde_json::json;

use super::on;
use super::site::{Site, SiteKind};

pub(super) fn trials() -> Vec<Vec<Trial>> {
    vec![
        on("values_stay_values", values),
        on("statements_reach_nothing_but_their_rows", statements),
        on("secrets_are_in_no_error", secrets),
    ]
}

const HOSTILE: [&str; 12] = [
    "'; DROP TABLE account; --",
    "\\'; DROP TABLE account; #",
    "\" OR 1=1",
    "$1",
    ":who",
    "?",
    "{{ input }}",
    "$$; DELETE FROM account; $$",
    "%00\u{1}",
    "NULL",
    "ｆｕｌｌ ’width",
    "😀\u{202e}",
];

async fn values(site: Site) -> Result<(), Failed> {
    let steps = "steps:
  - name: each
    for_each: {in: '{{ input }}', as: text}
    steps:
      - {name: put, sql: {on: bank, run: 'INSERT INTO account (owner, cents) VALUES (:who, 0)', args: {who: '{{ text }}'}, expect: 1}}
      - {name: got, sql: {on: bank, read: 'SELECT owner FROM account WHERE owner = :who', args: {who: '{{ text }}'}, expect: 1}, keep: '{{ this.rows[0].owner }}'}";
    assert_eq!(site.value(steps, json!(HOSTILE)).await, json!(HOSTILE));
    assert_eq!(site.number("SELECT count(*) FROM account").await, 2 + HOSTILE.len() as i64);
    Ok(())
}

/// What gets past the check of a push is refused by the database, or by the server before it.
async fn statements(site: Site) -> Result<(), Failed> {
    site.script("CREATE TABLE other (n bigint)").await;
    let all: &[&str] = match site.kind {
        SiteKind::Sqlite => &["SELECT * FROM pragma_database_list", "SELECT load_extension('x')"],
        SiteKind::Postgres => &["SELECT pg_read_file('no such file')", "SELECT * FROM no_such_table"],
        SiteKind::Mariadb => &["CALL pay()", "SELECT * FROM no_such_table"],
    };
    for text in all {
        let steps = format!(
            "steps:\n  - name: x\n    retry: {{attempts: 1}}\n    sql: {{on: bank, run: \"{text}\"}}"
        );
        assert_eq!(site.failure(&steps, json!({})).await, "SQL", "{text}");
    }
    assert_eq!(site.number("SELECT count(*) FROM account").await, 2);
    Ok(())
}

/// The address of the database, with its password, is nowhere in what a run records.
async fn secrets(site: Site) -> Result<(), Failed> {
    let url = match site.kind {
        SiteKind::Sqlite => return Ok(()),
        SiteKind::Postgres => "postgres://ann:hunter2secret@127.0.0.1:9/bank",
        SiteKind::Mariadb => "mysql://ann:hunter2secret@127.0.0.1:9/bank",
    };
    let site = Site { url: url.to_owned(), ..site };
    let steps =
        "steps:\n  - name: x\n    retry: {attempts: 1}\n    sql: {on: bank, run: 'DELETE FROM account'}";
    let outcome = format!("{:?}", site.outcome(steps, json!({})).await);
    assert!(outcome.contains("CONNECTION") && !outcome.contains("hunter2"), "{outcome}");
    let checked = site.checked(false).await;
    assert!(!checked.is_fine && !checked.found.contains("hunter2"), "{checked:?}");
    Ok(())
}
