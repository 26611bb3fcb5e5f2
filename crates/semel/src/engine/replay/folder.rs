//! Replays many histories at once, as a CI does before new code is released.

use std::fmt;
use std::path::{Path, PathBuf};

use super::{History, Replay};
use crate::engine::Engine;
use crate::error::{Error, Result};

/// Results of the histories in a folder, by file.
#[derive(Debug)]
pub struct Replays {
    /// Every file, by name, with what was found; an error if it could not be replayed.
    pub files: Vec<(PathBuf, Result<Replay>)>,
}

impl Replays {
    /// Number of replays that found no difference.
    pub fn identical(&self) -> usize {
        self.replays().filter(|replay| replay.is_identical()).count()
    }

    /// Number of replays with differences.
    pub fn different(&self) -> usize {
        self.replays().filter(|replay| !replay.is_identical()).count()
    }

    /// Number of files that could not be replayed.
    pub fn broken(&self) -> usize {
        self.files.len() - self.replays().count()
    }

    /// Exit code for `std::process::exit`: 0 if all are identical, 1 if some differ, 2 if some could not be replayed.
    pub fn exit_code(&self) -> u8 {
        match (self.broken(), self.different()) {
            (0, 0) => 0,
            (0, _) => 1,
            _ => 2,
        }
    }

    fn replays(&self) -> impl Iterator<Item = &Replay> {
        self.files.iter().filter_map(|(_, replayed)| replayed.as_ref().ok())
    }
}

/// A line for each file, the tables of those that differ, and the sum.
impl fmt::Display for Replays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (path, replayed) in &self.files {
            match replayed {
                Ok(replay) if replay.is_identical() => {
                    write!(f, "{}: ", path.display())?;
                    replay.write_counts(f)?;
                    writeln!(f)?;
                }
                Ok(replay) => writeln!(f, "{}: {replay}", path.display())?,
                Err(error) => writeln!(f, "{}: {error}", path.display())?,
            }
        }
        let (identical, different, broken) = (self.identical(), self.different(), self.broken());
        write!(f, "{identical} identical, {different} different, {broken} not replayed")
    }
}

impl Engine {
    /// Replays every `*.json` in a folder, as [`Engine::replay_history`] does; none of them needs its store. A file
    /// that cannot be read, or is something else, is reported, and the others are replayed; a folder without any is
    /// an error.
    ///
    /// ```no_run
    /// # async fn ci(engine: semel::Engine) -> semel::error::Result<()> {
    /// let replays = engine.replay_folder("histories").await?;
    /// println!("{replays}");
    /// std::process::exit(replays.exit_code().into());
    /// # }
    /// ```
    pub async fn replay_folder(&self, folder: impl AsRef<Path>) -> Result<Replays> {
        let folder = folder.as_ref().to_owned();
        let paths = in_background(move || histories(&folder)).await?;
        let mut files = Vec::new();
        for path in paths {
            let replayed = self.replay_file(&path).await;
            files.push((path, replayed));
        }
        Ok(Replays { files })
    }

    async fn replay_file(&self, path: &Path) -> Result<Replay> {
        let path = path.to_owned();
        let read = move || {
            let text = std::fs::read_to_string(&path);
            History::from_json(&text.map_err(|error| unreadable(&path, &error))?)
        };
        self.replay_history(&in_background(read).await?).await
    }
}

/// The files to replay, by name.
fn histories(folder: &Path) -> Result<Vec<PathBuf>> {
    let unreadable = |error: std::io::Error| unreadable(folder, &error);
    let mut paths = Vec::new();
    for file in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = file.map_err(unreadable)?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            paths.push(path);
        }
    }
    if paths.is_empty() {
        // A check without input has not passed.
        return Err(Error::Validation(format!("{} holds no *.json to replay", folder.display())));
    }
    paths.sort();
    Ok(paths)
}

fn unreadable(path: &Path, error: &std::io::Error) -> Error {
    Error::Validation(format!("{} cannot be read: {error}", path.display()))
}

/// Reads files on a thread for blocking calls.
async fn in_background<T: Send + 'static>(read: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let read = tokio::task::spawn_blocking(read).await;
    read.unwrap_or_else(|error| Err(Error::Unavailable(Box::new(error))))
}
