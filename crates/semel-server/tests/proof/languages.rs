//! Workers in other languages: the SDKs in `clients/` play the programs of the proof, and are killed and stopped like those in Rust.
//!
//! Their programs are `test/proof.ts` and `tests/proof.py` of the SDKs, with what `scripts/check-clients --build` has installed and built.

use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::Failed;

use crate::process::{PLACE, mortal};
use crate::worker::Place;

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

    /// A worker process.
    pub(crate) fn worker(self, place: &Place) -> Result<Command, Failed> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let tools = root.join("target/clients");
        let (interpreter, program) = match self {
            Self::TypeScript => {
                let own = tools.join("node/node");
                let node = if own.exists() { own } else { PathBuf::from("node") };
                (node, root.join("clients/typescript/packages/sdk/dist/test/proof.js"))
            }
            Self::Python => (tools.join("venv/bin/python"), root.join("clients/python/tests/proof.py")),
        };
        if !program.exists() || (interpreter.has_root() && !interpreter.exists()) {
            let missing = "the SDKs are not built: run scripts/check-clients --build";
            return Err(format!("{missing} ({} or {})", interpreter.display(), program.display()).into());
        }
        let mut command = mortal(interpreter);
        command.arg(program).env(PLACE, serde_json::to_string(place)?);
        Ok(command)
    }
}
