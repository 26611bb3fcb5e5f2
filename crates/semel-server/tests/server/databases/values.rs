//! Types of columns and arguments: every digit stays.

use libtest_mimic::{Failed, Trial};
use semel::rules::entry::Outcome;
use serde_json::json;

use super::on;
use super::site::{Site, SiteKind};

pub(super) fn trials() -> Vec<Vec<Trial>> {
    vec![
        on("columns_of_all_types_are_json", columns),
        on("arguments_of_all_types_arrive", arguments),
        on("results_are_bounded", bounded),
    ]
}

/// The value of the only step, as it was recorded.
async fn recorded(site: &Site, read: &str) -> String {
    let steps = format!("steps:\n  - name: x\n    sql: {{on: bank, read: {}}}", json!(read));
    match site.outcome(&steps, json!({})).await {
        Outcome::Completed(value) => value.text().to_owned(),
        other => panic!("{other:?}"),
    }
}

async fn columns(site: Site) -> Result<(), Failed> {
    let (read, expected) = match site.kind {
        SiteKind::Sqlite => (
            "SELECT 9007199254740993 AS i, 0.1 AS d, 'ü\"' AS t, NULL AS n, x'00ff' AS b, 9e999 AS inf",
            r#"{"rows":[{"i":9007199254740993,"d":0.1,"t":"ü\"","n":null,"b":"AP8=","inf":"Infinity"}]}"#,
        ),
        SiteKind::Postgres => (
            "SELECT 9007199254740993 AS i, 12345678901234567890.10::numeric AS d, 'NaN'::numeric AS nan, 0.1::real AS r, \
             1e300::float8 AS f, true AS b, NULL AS n, 'ü\"' AS t, '\\x00ff'::bytea AS y, \
             '{\"a\":1.0}'::json AS j, '2026-11-19 09:00:00.5+02'::timestamptz AS tz, \
             '2026-11-19 09:00'::timestamp AS ts, '2026-11-19'::date AS da, '09:00:01.5'::time AS ti, \
             '1 year 2 days 03:00'::interval AS iv, 'infinity'::timestamptz AS inf, \
             '6b0a9c5e-0d3f-4d52-9f6b-2a1b3c4d5e6f'::uuid AS u, ARRAY[[1,2],[3,NULL]] AS l, ROW(1, 'a') IS NULL AS row",
            concat!(
                r#"{"rows":[{"i":9007199254740993,"d":12345678901234567890.10,"nan":"NaN","r":0.1,"#,
                r#""f":1e+300,"b":true,"n":null,"t":"ü\"","y":"AP8=","j":{"a":1.0},"tz":"2026-11-19T07:00:00.5Z","#,
                r#""ts":"2026-11-19T09:00:00","da":"2026-11-19","ti":"09:00:01.5","iv":"P1Y2DT3H","inf":"infinity","#,
                r#""u":"6b0a9c5e-0d3f-4d52-9f6b-2a1b3c4d5e6f","l":[[1,2],[3,null]],"row":false}]}"#
            ),
        ),
        SiteKind::Mariadb => (
            "SELECT 9007199254740993 AS i, CAST(18446744073709551615 AS UNSIGNED) AS u, \
             CAST('12345678901234567890.10' AS DECIMAL(30, 2)) AS d, 1e300 AS f, NULL AS n, 'ü\"' AS t, x'00ff' AS y, \
             CAST('2026-11-19 09:00:00.5' AS DATETIME(6)) AS ts, CAST('2026-11-19' AS DATE) AS da, \
             CAST('09:00:01.5' AS TIME(6)) AS ti",
            concat!(
                r#"{"rows":[{"i":9007199254740993,"u":18446744073709551615,"d":12345678901234567890.10,"f":1e+300,"#,
                r#""n":null,"t":"ü\"","y":"AP8=","ts":"2026-11-19T09:00:00.5","da":"2026-11-19","ti":"09:00:01.5"}]}"#
            ),
        ),
    };
    assert_eq!(recorded(&site, read).await.replace("1e300", "1e+300"), expected);
    if site.kind == SiteKind::Postgres {
        let steps =
            "steps: [{name: x, retry: {attempts: 1}, sql: {on: bank, read: \"SELECT '(1,2)'::point AS p\"}}]";
        let outcome = format!("{:?}", site.outcome(steps, json!({})).await);
        assert!(outcome.contains("`p::text`"), "{outcome}");
    }
    Ok(())
}

async fn arguments(site: Site) -> Result<(), Failed> {
    let table = match site.kind {
        SiteKind::Sqlite => "i integer, d text, b integer, t text, j text, n text",
        SiteKind::Postgres => {
            "i bigint, d numeric, b boolean, t text, j jsonb, n text, l text[], u uuid, ts timestamptz"
        }
        SiteKind::Mariadb => "i bigint, d decimal(30, 5), b boolean, t text, j json, n text",
    };
    site.script(&format!("CREATE TABLE kinds ({table})")).await;
    let (names, values) = match site.kind {
        SiteKind::Postgres => (
            "i, d, b, t, j, n, l, u, ts",
            ", l: [\"a\\\"b\", null], u: 6b0a9c5e-0d3f-4d52-9f6b-2a1b3c4d5e6f, ts: '2026-11-19T09:00:00Z'",
        ),
        _ => ("i, d, b, t, j, n", ""),
    };
    let places = names.split(", ").map(|name| format!(":{name}")).collect::<Vec<_>>().join(", ");
    let steps = format!(
        "steps:
  - {{name: put, sql: {{on: bank, run: 'INSERT INTO kinds ({names}) VALUES ({places})', expect: 1,
      args: {{i: '{{{{ input.i }}}}', d: '12345678901234567890.12345', b: true, t: '{{{{ input.t }}}}', j: {{a: [1, 'x']}}, n: null{values}}}}}}}
  - {{name: got, sql: {{on: bank, read: 'SELECT i, b, t, j, n FROM kinds'}}, keep: '{{{{ this.rows[0] }}}}'}}
  - {{name: digits, sql: {{on: bank, read: 'SELECT CAST(d AS CHAR(40)) AS d FROM kinds'}}, keep: '{{{{ this.rows[0].d|trim }}}}'}}
return: [ '{{{{ steps.got }}}}', '{{{{ steps.digits }}}}' ]"
    );
    let got = site.value(&steps, json!({"i": i64::MIN, "t": "a\nb"})).await;
    assert_eq!(got[0]["i"], json!(i64::MIN));
    assert_eq!(got[0]["t"], "a\nb");
    assert_eq!(got[0]["n"], json!(null));
    assert_eq!(got[1], "12345678901234567890.12345");
    match site.kind {
        SiteKind::Postgres => {
            assert_eq!((&got[0]["b"], &got[0]["j"]), (&json!(true), &json!({"a": [1, "x"]})));
            assert_eq!(site.text("SELECT l[1] FROM kinds").await, "a\"b");
        }
        SiteKind::Sqlite => assert_eq!(got[0]["j"], json!({"a": [1, "x"]}).to_string()),
        SiteKind::Mariadb => assert_eq!(got[0]["b"], json!(true)),
    }
    Ok(())
}

async fn bounded(site: Site) -> Result<(), Failed> {
    let many =
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1001) SELECT i FROM n";
    let steps = |read: &str| {
        format!("steps: [{{name: x, retry: {{attempts: 1}}, sql: {{on: bank, read: {}}}}}]", json!(read))
    };
    if site.kind != SiteKind::Mariadb {
        assert_eq!(site.failure(&steps(many), json!({})).await, "TOO_LARGE");
    }
    let fits = many.replace("1001", "900");
    assert_eq!(site.value(&steps(&fits), json!({})).await["rows"].as_array().unwrap().len(), 900);
    let large = match site.kind {
        SiteKind::Sqlite => "SELECT hex(zeroblob(200000)) AS t",
        _ => "SELECT repeat('x', 300000) AS t",
    };
    assert_eq!(site.failure(&steps(large), json!({})).await, "TOO_LARGE");
    Ok(())
}
