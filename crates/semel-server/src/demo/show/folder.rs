//! The folder with all files of a demo.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::demo::DemoError;

/// How often its removal is tried.
const TRIES: u32 = 100;

/// A folder of its own, removed when this is dropped unless it is kept.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    keep: bool,
}

impl Folder {
    pub(super) fn make(id: Uuid, keep: bool) -> Result<Self, DemoError> {
        let path = std::env::temp_dir().join(format!("semel-demo-{}", id.simple()));
        fs::create_dir(&path).map_err(DemoError::io(format!("cannot make {}", path.display())))?;
        Ok(Self { path, keep })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Where it is, if it stays.
    pub(super) fn kept(&self) -> Option<&Path> {
        self.keep.then_some(&*self.path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.keep {
            return;
        }
        // A process that was killed a moment ago may still be making a file.
        for _ in 0..TRIES {
            match fs::remove_dir_all(&self.path) {
                Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => std::thread::yield_now(),
                Err(error) => return eprintln!("{} could not be removed: {error}", self.path.display()),
                Ok(()) => return,
            }
        }
    }
}
