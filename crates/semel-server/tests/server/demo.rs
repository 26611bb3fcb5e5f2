//! `semel demo` as people run it: the program, its processes, and what it leaves behind.

use std::fs;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use serde_json::Value;

/// No process takes this long to die.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("demo::every_effect_takes_place_once_although_the_engine_is_killed", shows),
        Trial::test("demo::the_folder_is_kept_if_asked_for", keeps),
        Trial::test("demo::an_interrupted_demo_leaves_nothing_behind", interrupted),
        Trial::test("demo::a_killed_demo_takes_its_processes_with_it", killed),
        Trial::test("demo::lines_are_no_longer_than_80_columns", narrow),
    ]
}

/// The program, with a folder of its own for temporary files.
fn demo(temporary: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_semel"));
    command.arg("demo").args(args).env("TMPDIR", temporary).stdin(Stdio::null());
    command
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).expect("it is there").next().is_none()
}

fn report(output: &Output) -> Result<Value, Failed> {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}{}", output.status, String::from_utf8_lossy(&output.stdout));
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn shows() -> Result<(), Failed> {
    let temporary = tempfile::tempdir()?;
    let args = ["--orders", "6", "--kills", "3", "--seed", "3", "-o", "json"];
    let report = report(&demo(temporary.path(), &args).output()?)?;
    assert_eq!(report["held"], true, "{report:#}");
    let promises = report["promises"].as_array().ok_or("a list")?;
    assert!(promises.len() >= 10 && promises.iter().all(|promise| promise["held"] == true));
    let count = |name: &str| report["counts"][name].as_u64().unwrap_or_else(|| panic!("{name} is missing"));
    for name in ["orders", "runs", "charges", "debits", "letters", "receipts"] {
        assert_eq!(count(name), 6, "{name}");
    }
    assert_eq!(count("kills"), 3);
    assert!(count("duplicatesAbsorbed") >= 6, "every order is asked for again at its end");
    assert!(count("keysReusedRefused") >= 1);
    assert!(count("attempts") > 18, "some of the 18 effects were asked for more than once");
    assert!(count("answersLost") >= 1);
    assert!(is_empty(temporary.path()), "nothing is left behind");
    Ok(())
}

fn keeps() -> Result<(), Failed> {
    let temporary = tempfile::tempdir()?;
    let args = ["--orders", "2", "--kills", "0", "--keep", "-o", "json"];
    let report = report(&demo(temporary.path(), &args).output()?)?;
    let folder = Path::new(report["folder"].as_str().ok_or("the folder is named")?);
    for file in ["semel.db", "shop.db", "provider.jsonl", "demo-engine.log"] {
        assert!(folder.join(file).exists(), "{file}");
    }
    Ok(())
}

fn narrow() -> Result<(), Failed> {
    let temporary = tempfile::tempdir()?;
    let output = demo(temporary.path(), &["--orders", "4", "--kills", "1"]).output()?;
    let text = String::from_utf8(output.stdout)?;
    assert!(output.status.success(), "{text}");
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
    }
    for part in ["duplicates absorbed", "stale writes refused", "Every promise held.", "semel dev"] {
        assert!(text.contains(part), "{part:?} is not said:\n{text}");
    }
    Ok(())
}

/// A demo that has begun, and the address of its engine. Killed if the test fails.
struct Begun {
    child: Child,
    engine: SocketAddr,
}

impl Begun {
    /// Many orders, so that it does not end by itself meanwhile, and no kills but the test's.
    fn new(temporary: &Path) -> Result<Self, Failed> {
        let mut command = demo(temporary, &["--orders", "500", "--kills", "0"]);
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let mut lines = BufReader::new(child.stdout.take().ok_or("a pipe")?).lines();
        let engine = lines.by_ref().find_map(|line| address(&line.ok()?));
        // The pipe has to be read on: a full pipe would stop the demo.
        std::thread::spawn(move || lines.for_each(drop));
        match engine {
            Some(engine) => Ok(Self { child, engine }),
            None => Err("it does not say where the engine listens".into()),
        }
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn address(line: &str) -> Option<SocketAddr> {
    line.split_once("http://")?.1.split_once('/')?.0.parse().ok()
}

/// Waits until the engine listens no more: a connection ends, or is reset, when its other end goes. False if one does not.
fn is_gone(engine: SocketAddr) -> bool {
    while let Ok(mut connection) = TcpStream::connect(engine) {
        connection.set_read_timeout(Some(PATIENCE)).expect("a time that is not zero");
        let waited = connection.read_to_end(&mut Vec::new());
        if waited.is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)) {
            return false;
        }
    }
    true
}

fn interrupted() -> Result<(), Failed> {
    let temporary = tempfile::tempdir()?;
    let mut begun = Begun::new(temporary.path())?;
    Command::new("kill").args(["-INT", &begun.child.id().to_string()]).status()?;
    assert_eq!(begun.child.wait()?.code(), Some(130));
    assert!(is_gone(begun.engine), "the engine lives on");
    assert!(is_empty(temporary.path()), "nothing is left behind");
    Ok(())
}

fn killed() -> Result<(), Failed> {
    let temporary = tempfile::tempdir()?;
    let mut begun = Begun::new(temporary.path())?;
    begun.child.kill()?;
    begun.child.wait()?;
    assert!(is_gone(begun.engine), "the engine lives on");
    Ok(())
}
