//! Workers in other languages: the SDKs in `clients/` play the programs of the proof, and are killed and stopped like those in Rust.
//!
//! Their programs are `test/proof.ts` and `tests/proof.py` of the SDKs, with what `scripts/check-clients --build` has installed and built.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::slice::from_ref;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};

use crate::disturbances::database;
use crate::findings::{Findings, Sort};
use crate::forms::{SOMETHING, in_folder, kept_over_restarts, phase, seed, sqlite};
use crate::nemesis::Pace;
use crate::phase::{Phase, play};
use crate::process::{PLACE, mortal};
use crate::report;
use crate::site::Layout;
use crate::worker::Place;

/// How often what is struck, where workers are in another language.
pub(crate) const PACE: Pace = Pace {
    server_kills: Duration::from_secs(10),
    worker_kills: Duration::from_millis(900),
    zombies: Duration::from_secs(3),
    freezes: Duration::from_secs(20),
};
/// How long `make check` loads a phase.
const BRIEF: Duration = Duration::from_secs(10);
/// The same for a deliberate bug, which shows at once, and how long its runs may take to end: those that it has stopped do not.
const PLANTED: Duration = Duration::from_secs(4);
const PLANTED_CALM: Duration = Duration::from_secs(6);

/// The trials that need the SDKs built: `make check` plays them after it has built them.
pub(crate) fn trials() -> Vec<Trial> {
    let of = |language: Language| {
        let name = language.name();
        [
            Trial::test(format!("languages::a_brief_phase_in_{name}_loses_nothing"), move || brief(language)),
            Trial::test(format!("languages::every_deliberate_bug_in_{name}_is_found"), move || {
                find_planted(language)
            }),
            Trial::test(
                format!("languages::workers_in_{name}_keep_their_steps_over_restarts_of_their_server"),
                move || kept_over_restarts(Layout { language: Some(language), ..sqlite("restarts") }),
            ),
        ]
    };
    let trials = [Language::TypeScript, Language::Python].into_iter().flat_map(of);
    trials.map(|trial| trial.with_ignored_flag(true)).collect()
}

fn brief(language: Language) -> Result<(), Failed> {
    let seed = seed()?;
    in_folder(async |folder| {
        let tally = phase(language.name(), BRIEF, &folder, seed).await?;
        println!("\n{}", report::table(from_ref(&tally)));
        report::judge(&[tally], &SOMETHING)
    })
}

/// A deliberate bug: a text of the SDK, and what stands there instead.
struct PlantedBug {
    name: &'static str,
    /// File below the SDK's sources.
    file: &'static str,
    is: &'static str,
    becomes: &'static str,
}

/// What the proof must call the consequence of such a bug. Anything else may be a slow machine.
const SORTS: &[Sort] = &[Sort::Doubled, Sort::Lost, Sort::Wrong];

fn find_planted(language: Language) -> Result<(), Failed> {
    let seed = seed()?;
    for bug in language.bugs() {
        let found = in_folder(async |folder| {
            let planted = Some(language.plant(bug, &folder)?);
            let (_cluster, _line, url) = database(&folder).await?;
            let layout =
                Layout { rows: Some(url), language: Some(language), planted, ..sqlite(language.name()) };
            let phase = Phase {
                layout,
                pace: PACE,
                others: Vec::new(),
                callers: 16,
                load: PLANTED,
                calm: PLANTED_CALM,
            };
            let findings = Arc::new(Findings::default());
            // What breaks so much that nothing goes on is not found by that alone.
            let played = play(phase, &folder, seed, &findings).await;
            Ok(findings.any(SORTS).ok_or_else(|| played.err()))
        })?;
        match found {
            Ok(finding) => println!("{}: {:?}: {}: {}", bug.name, finding.sort, finding.at, finding.said),
            Err(why) => {
                let why = why.and_then(|failed| failed.message().map(str::to_owned)).unwrap_or_default();
                return Err(format!("the proof does not find that {}. {why}", bug.name).into());
            }
        }
    }
    Ok(())
}

/// A language in which there is an SDK.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Language {
    TypeScript,
    Python,
}

impl Language {
    /// The language that a phase is named after.
    pub(crate) fn of_phase(name: &str) -> Option<Self> {
        match name {
            "typescript" => Some(Self::TypeScript),
            "python" => Some(Self::Python),
            _ => None,
        }
    }

    /// The name of its phase.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::TypeScript => "typescript",
            Self::Python => "python",
        }
    }

    fn bugs(self) -> &'static [PlantedBug] {
        match self {
            Self::TypeScript => &[
                PlantedBug {
                    name: "the key of a counted step is without its count",
                    file: "ctx.js",
                    is: "path, tick, label }",
                    becomes: "path, tick: 1, label }",
                },
                PlantedBug {
                    name: "each attempt has a key of its own",
                    file: "ctx.js",
                    is: "path, tick, label }",
                    becomes: "path, tick, label: `${label}${this.number}` }",
                },
            ],
            Self::Python => &[
                PlantedBug {
                    name: "the key of a counted step is without its count",
                    file: "_ctx.py",
                    is: "path, tick, label)",
                    becomes: "path, 1, label)",
                },
                PlantedBug {
                    name: "each attempt has a key of its own",
                    file: "_ctx.py",
                    is: "path, tick, label)",
                    becomes: "path, tick, f\"{label}{self.number}\")",
                },
            ],
        }
    }

    /// Copies the SDK with a bug in it, and gives the folder of the copy. That of TypeScript is beside the original, where
    /// packages are found.
    fn plant(self, bug: &PlantedBug, folder: &Path) -> Result<PathBuf, Failed> {
        let clients = root().join("clients");
        let (from, copy) = match self {
            Self::TypeScript => {
                let dist = clients.join("typescript/packages/sdk/dist");
                let copy = dist.join("planted-proof");
                fs::create_dir_all(copy.join("test"))?;
                fs::copy(dist.join("test/proof.js"), copy.join("test/proof.js"))?;
                (dist.join("src"), copy)
            }
            Self::Python => (clients.join("python/src/semel"), folder.join("sdk")),
        };
        let sources = copy.join(self.sources());
        copy_files(&from, &sources)?;
        let file = sources.join(bug.file);
        let text = fs::read_to_string(&file)?;
        if text.matches(bug.is).count() != 1 {
            return Err(format!("{} has not {:?} in one place", file.display(), bug.is).into());
        }
        fs::write(&file, text.replace(bug.is, bug.becomes))?;
        Ok(copy)
    }

    /// The folder of the sources in a copy.
    fn sources(self) -> &'static str {
        match self {
            Self::TypeScript => "src",
            Self::Python => "semel",
        }
    }

    /// A worker process, of the SDK or of a copy of it.
    pub(crate) fn worker(self, place: &Place, planted: Option<&Path>) -> Result<Command, Failed> {
        let (root, tools) = (root(), root().join("target/clients"));
        let (interpreter, program) = match self {
            Self::TypeScript => {
                let own = tools.join("node/node");
                let node = if own.exists() { own } else { PathBuf::from("node") };
                let dist = root.join("clients/typescript/packages/sdk/dist");
                (node, planted.unwrap_or(&dist).join("test/proof.js"))
            }
            Self::Python => (tools.join("venv/bin/python"), root.join("clients/python/tests/proof.py")),
        };
        if !program.exists() || (interpreter.has_root() && !interpreter.exists()) {
            let missing = "the SDKs are not built: run scripts/check-clients --build";
            return Err(format!("{missing} ({} or {})", interpreter.display(), program.display()).into());
        }
        let mut command = mortal(interpreter);
        command.arg(program).env(PLACE, serde_json::to_string(place)?);
        if let (Self::Python, Some(copy)) = (self, planted) {
            command.env("PYTHONPATH", copy);
        }
        Ok(command)
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Copies the files of a folder, and not those below its folders.
fn copy_files(from: &Path, to: &Path) -> Result<(), Failed> {
    fs::create_dir_all(to)?;
    for file in fs::read_dir(from)? {
        let file = file?;
        if file.file_type()?.is_file() {
            fs::copy(file.path(), to.join(file.file_name()))?;
        }
    }
    Ok(())
}
