//! The examples are run: what they print is what they promise.

use std::process::Command;

use libtest_mimic::{Failed, Trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("examples::hello_creates_one_run_and_charges_once", hello),
        Trial::test("examples::transactional_debits_once_over_a_crash", transactional),
    ]
}

/// The output of an example. Cargo builds it beside this program.
fn output(name: &str) -> Result<String, Failed> {
    let this = std::env::current_exe()?;
    let built = this.parent().and_then(|deps| deps.parent()).ok_or("a target folder")?;
    let program = built.join("examples").join(name);
    if !program.exists() {
        return Err("the example is not built: run `cargo test` without `--test`, which builds it".into());
    }
    let ended = Command::new(program).output()?;
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    Ok(String::from_utf8(ended.stdout)?)
}

fn hello() -> Result<(), Failed> {
    let said = output("hello")?;
    let lines: Vec<&str> = said.lines().collect();
    for (line, begins) in [
        "first start   Created",
        "second start  Attached",
        "other amount  KEY_REUSED",
        "effect key    e1",
        "owner  commit version 6",
        "zombie commit CONCURRENCY_ERROR",
        "absorbed      1 Start",
        "absorbed      1 Result",
    ]
    .into_iter()
    .enumerate()
    {
        let found = lines.get(line).copied().unwrap_or_default();
        assert!(found.starts_with(begins), "{begins:?} expected, found {found:?}");
    }
    assert!(lines[2].contains("/input/cents"), "the answer names what differs");
    Ok(())
}

fn transactional() -> Result<(), Failed> {
    let said = output("transactional")?;
    let expected = [
        "the body runs, attempt 1",
        "the process dies",
        "in the bank: 970 cents",
        "the order says: 970 cents left",
        "in the bank: 970 cents",
    ];
    assert_eq!(said.lines().collect::<Vec<_>>(), expected);
    Ok(())
}
