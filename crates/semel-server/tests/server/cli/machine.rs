//! Help, completions, doctor, bench.

use tempfile::TempDir;

use super::{Server, say, tests};

tests![
    help_names_commands_and_exit_codes,
    completions_are_there_for_every_shell,
    every_command_has_a_manual_page,
    the_doctor_says_what_is_wrong_and_what_to_do,
    a_bench_measures_and_leaves_nothing_open,
];

fn help_names_commands_and_exit_codes() {
    let help = say(&["--help"]).ends(0);
    for part in ["start", "run", "store", "doctor", "Exit codes:", "7  the run has ended, but not completed"]
    {
        assert!(help.out.contains(part), "{part}: {help:?}");
    }
    assert!(say(&["start", "--help"]).ends(0).out.contains("Examples:\n  semel start"));
    say(&["--version"]).ends(0);
    say(&["nonsense"]).ends(2);
    let secret =
        super::ended(super::semel(&["run", "ls", "--help"]).env("SEMEL_TOKEN", "hush").spawn().unwrap());
    assert!(!secret.ends(0).out.contains("hush"));
}

fn completions_are_there_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(say(&["completions", shell]).ends(0).out.contains("semel"), "{shell}");
    }
    say(&["completions", "ksh"]).ends(2).tells("bash");
}

fn every_command_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man1");
    say(&["completions", "man"]).ends(2).tells("--dir");
    say(&["completions", "man", "--dir", pages.to_str().unwrap()]).ends(0);
    for page in ["semel.1", "semel-run.1", "semel-run-ls.1", "semel-serve.1"] {
        let text = std::fs::read_to_string(pages.join(page)).unwrap();
        assert!(text.contains(".SH SYNOPSIS"), "{page}: {text}");
    }
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    say(&["completions", "man", "--dir", file.to_str().unwrap()]).ends(1).tells("cannot write manual pages");
}

fn the_doctor_says_what_is_wrong_and_what_to_do() {
    let server = Server::start();
    let found = server.say(&["doctor", "--store", &server.file(), "-o", "json"]).ends(0).json();
    let state = |check: &str| {
        let checks = found["checks"].as_array().unwrap();
        checks
            .iter()
            .find(|found| found["check"] == check)
            .unwrap_or_else(|| panic!("{check}: {found}"))
            .clone()
    };
    for check in ["address", "ready", "token", "version", "clocks"] {
        assert_eq!(state(check)["state"], "ok", "{found}");
    }
    assert_eq!(state("store")["state"], "look");
    let owner = format!("process {}", server.child.id());
    assert!(state("store")["found"].as_str().unwrap().contains(&owner), "who has it open: {found}");
    assert!(state("disk")["found"].as_str().unwrap().contains("ms per sync"));
    let url = server.url.clone();
    drop(server);
    let alone = say(&["doctor", "--url", &url]).ends(5);
    assert!(alone.out.contains("semel dev") && !alone.out.contains('\u{1b}'), "{alone:?}");
}

fn a_bench_measures_and_leaves_nothing_open() {
    let server = Server::start();
    let measured = |found: serde_json::Value| {
        for (phase, name) in
            found["phases"].as_array().unwrap().iter().zip(["starts", "duplicates", "cancels"])
        {
            assert_eq!((phase["calls"].as_str(), phase["odd"].as_u64()), (Some(name), Some(0)), "{found}");
            assert_eq!(phase["number"], 40);
            assert!(
                phase["perSecond"].as_f64().unwrap() > 0.0
                    && phase["p99Ms"].as_f64() >= phase["p50Ms"].as_f64()
            );
        }
    };
    let bench = ["bench", "--runs", "40", "--callers", "8", "-o", "json"];
    measured(server.say(&bench).ends(0).json());
    let cancelled = server.say(&["run", "ls", "--status", "CANCELLED", "--all", "-o", "ndjson"]).ends(0);
    assert_eq!(cancelled.out.lines().count(), 40);
    let folder = TempDir::new().unwrap();
    let store = folder.path().join("bench.db");
    measured(say(&[&bench[..], &["--store", store.to_str().unwrap()]].concat()).ends(0).json());
    let table = server.say(&["bench", "--runs", "10"]).ends(0);
    assert!(table.out.starts_with("CALLS"), "{table:?}");
}
