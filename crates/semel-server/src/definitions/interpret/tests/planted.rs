//! Deliberate bugs of the interpreter: the random definitions must find each of them.

use std::process::{Command, Stdio};

use semel::sabotage::{Bug, VARIABLE};

/// What the interpreter could do wrong.
const PLANTED: [Bug; 5] = [
    Bug::UndoTwice,
    Bug::UndoForgetsBlocks,
    Bug::PassKeyForgotten,
    Bug::DecisionNotRecorded,
    Bug::FinallyIsSkipped,
];

#[test]
fn every_planted_bug_of_the_interpreter_is_found() {
    if std::env::var_os(VARIABLE).is_some() {
        return;
    }
    let this = std::env::current_exe().unwrap();
    let tool = "definitions::interpret::tests::random::random_definitions_do_everything_once";
    let mut missed = Vec::new();
    for bug in PLANTED {
        let mut command = Command::new(&this);
        command.args(["--exact", tool]).env(VARIABLE, bug.name()).env_remove("SEMEL_SEED");
        let ended = command.stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stdout).into_owned();
        // The line after that which says where it panicked.
        let how =
            said.lines().skip_while(|line| !line.contains("random.rs")).nth(1).unwrap_or_default().to_owned();
        println!("{:<24} {how}", bug.name());
        // It must have been played, and found wanting by what it compares.
        if ended.status.success() || !said.contains("1 failed") || how.is_empty() {
            missed.push(format!("{}: {said}", bug.name()));
        }
    }
    assert!(missed.is_empty(), "not found: {}", missed.join("\n"));
}
