//! The examples are run: what they print is what they promise.

use std::process::{Command, Output};

use libtest_mimic::{Failed, Trial};

/// An example, what it shows, and pieces of what it prints, in their order.
type Example = (&'static str, &'static str, &'static [&'static str]);

const EXAMPLES: &[Example] = &[
    (
        "hello",
        "starts_one_run_for_two_requests",
        &[
            "first start   Some(Created)",
            "same run      true",
            "result        Hello, world!",
            "KEY_REUSED",
            "/input",
        ],
    ),
    ("charge_once", "charges_once_over_three_attempts", &["attempt 3", "charges made  1"]),
    (
        "reconcile",
        "asks_the_provider_and_then_a_person",
        &["found: Dear A", "stepInDoubt", "paused", "resolved      seen on the tray", "printed       2"],
    ),
    (
        "approval",
        "waits_over_a_restart",
        &[
            "please answer order:7",
            "delivered to  true",
            "second click  absorbed true",
            "\"approved by Ada\"",
            "token free    true",
        ],
    ),
    (
        "duplicates",
        "has_five_ways",
        &[
            "reject        true",
            "the owner is WAITING",
            "forward       0",
            "owner         5",
            "adopt         5",
            "superseded    CANCELLED",
            "policy        Some(Superseded), the first is CANCELLED",
            "start+deliver Some(Attached), the owner adds up 3",
        ],
    ),
    (
        "transactional",
        "debits_once_over_a_crash",
        &[
            "the body runs, attempt 1",
            "the process dies",
            "in the bank: 970 cents",
            "the order says: 970 cents left",
            "in the bank: 970 cents",
        ],
    ),
    ("fan_out", "joins_scopes_and_races", &["3 cities, 220 and 220, quick true", "9 steps, 5 commits"]),
    ("children", "starts_each_child_once", &["total 1200", "child price-of[ink]", "child price-of[broken]"]),
    (
        "client",
        "starts_what_an_engine_drives",
        &[
            "created       true, again false",
            "waits         order-7",
            "result        1999 cents, approved by Ada",
        ],
    ),
    (
        "remote_step",
        "hands_a_step_to_a_queue",
        &["charge try 1 with a key of 34", "charge try 2 with a key of 34", "paid: 1999 cents by card"],
    ),
    (
        "order",
        "is_the_same_as_in_other_languages",
        &[
            r#"{"charge":"1999 cents","balance":3001,"letter":"letter for 7","rate":0.94,"by":"Ada","#,
            r#""left":"ink shipped","right":"pens shipped","total":300}"#,
            "Some(Replayed)",
        ],
    ),
    (
        "saga",
        "cleans_up_after_failure_and_cancel",
        &[
            "book[balloon]: no balloons today",
            "left       []",
            "booked     [\"hotel\", \"train\"]",
            "was cancelled: the customer thought again",
            "left       []",
            "paid       1 part",
        ],
    ),
];

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |(name, shows, prints): &'static Example| {
        Trial::test(format!("examples::{name}_{shows}"), move || {
            said_in_order(&output(name, &[])?, prints);
            Ok(())
        })
    };
    let mut trials: Vec<Trial> = EXAMPLES.iter().map(trial).collect();
    trials.push(Trial::test("examples::replay_ci_tells_changed_code_by_its_exit_code", replay_ci));
    #[cfg(feature = "remote")]
    trials.push(Trial::test("examples::mail_once_sends_each_mail_once_over_lost_answers", mail_once));
    #[cfg(all(feature = "postgres", feature = "sqlx-mysql"))]
    trials.push(Trial::test("examples::two_databases_commit_together_or_not_at_all", two_databases));
    #[cfg(feature = "postgres")]
    trials.push(Trial::test("examples::several_engines_finish_what_one_had_begun", several_engines));
    trials
}

/// The output of an example. Cargo builds it beside this program.
fn output(name: &str, env: &[(&str, String)]) -> Result<String, Failed> {
    let ended = ended(name, env)?;
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    Ok(String::from_utf8(ended.stdout)?)
}

fn ended(name: &str, env: &[(&str, String)]) -> Result<Output, Failed> {
    let this = std::env::current_exe()?;
    let built = this.parent().and_then(|deps| deps.parent()).ok_or("a target folder")?;
    let program = built.join("examples").join(name);
    if !program.exists() {
        return Err("the example is not built: run `cargo test` without `--test`, which builds it".into());
    }
    Ok(Command::new(program).envs(env.iter().map(|(name, value)| (name, value))).output()?)
}

fn said_in_order(said: &str, pieces: &[&str]) {
    let mut rest = said;
    for piece in pieces {
        let Some(at) = rest.find(piece) else { panic!("{piece:?} expected in order, said was:\n{said}") };
        rest = &rest[at + piece.len()..];
    }
}

#[cfg(feature = "postgres")]
fn several_engines() -> Result<(), Failed> {
    let url = std::env::var("SEMEL_TEST_POSTGRES")?;
    let said = output("several_engines", &[("DATABASE_URL", url)])?;
    // 15 times the sum of 0 to 19.
    said_in_order(&said, &["sum of all    2850", "engines       2"]);
    Ok(())
}

#[cfg(feature = "remote")]
fn mail_once() -> Result<(), Failed> {
    let said = output("mail_once", &[])?;
    let expected = [
        "welcome       mail 1",
        "receipt       mail 2",
        "asked         POST /emails",
        "asked         POST /emails",
        "asked         POST /messages",
        "asked         GET /messages",
        r#"sent          ["Welcome!", "Paid."]"#,
    ];
    assert_eq!(said.lines().collect::<Vec<_>>(), expected);
    Ok(())
}

#[cfg(all(feature = "postgres", feature = "sqlx-mysql"))]
fn two_databases() -> Result<(), Failed> {
    let urls = [
        ("ACCOUNTS_URL", std::env::var("SEMEL_TEST_POSTGRES")?),
        ("JOURNAL_URL", std::env::var("SEMEL_TEST_MARIADB")?),
    ];
    let expected = [
        "transfer-1    970 cents left, entry 1",
        "no more than 500 in one entry",
        "in the banks  970 cents, entries: 1",
    ];
    said_in_order(&output("two_databases", &urls)?, &expected);
    Ok(())
}

fn replay_ci() -> Result<(), Failed> {
    let ended = ended("replay_ci", &[])?;
    let said = String::from_utf8(ended.stdout)?;
    let expected = [
        "production    charged 700",
        "production    charged 1999",
        "same code     exit code 0",
        "tidied code   exit code 1",
        "  order-1999.json: missing step charge",
        "  order-1999.json: missing step letter",
        "  order-1999.json: added step charge-card",
        "  order-1999.json: missing run @end",
        "  order-700.json: missing step charge",
        "  order-700.json: missing step letter",
        "  order-700.json: added step charge-card",
        "  order-700.json: missing run @end",
    ];
    assert_eq!(said.lines().collect::<Vec<_>>(), expected);
    assert_eq!(ended.status.code(), Some(1), "the exit code is what a CI looks at");
    Ok(())
}
