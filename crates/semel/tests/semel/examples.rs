//! The examples are run: what they print is what they promise.

use std::process::Command;

use libtest_mimic::{Failed, Trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("examples::hello_creates_one_run_and_charges_once", hello),
        Trial::test("examples::replay_ci_tells_changed_code_by_its_exit_code", replay_ci),
    ]
}

/// The output of an example that succeeds.
fn output(name: &str) -> Result<String, Failed> {
    let (code, said) = ended(name)?;
    assert_eq!(code, Some(0));
    Ok(said)
}

/// The exit code and output of an example. Cargo builds it beside this program.
fn ended(name: &str) -> Result<(Option<i32>, String), Failed> {
    let this = std::env::current_exe()?;
    let built = this.parent().and_then(|deps| deps.parent()).ok_or("a target folder")?;
    let program = built.join("examples").join(name);
    if !program.exists() {
        return Err("the example is not built: run `cargo test` without `--test`, which builds it".into());
    }
    let ended = Command::new(program).output()?;
    eprint!("{}", String::from_utf8_lossy(&ended.stderr));
    Ok((ended.status.code(), String::from_utf8(ended.stdout)?))
}

fn replay_ci() -> Result<(), Failed> {
    let (code, said) = ended("replay_ci")?;
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
    assert_eq!(code, Some(1), "the exit code is what a CI looks at");
    Ok(())
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
