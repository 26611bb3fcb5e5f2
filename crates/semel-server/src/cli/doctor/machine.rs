//! Checks of this machine: whether the store opens, which process holds it, sync time of the disk, limit of open
//! files.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use semel::clock::SystemClock;

use super::{Exit, Found};
use crate::cli::store::StoreArgs;

/// A sync that takes longer than this slows down every commit.
const SLOW: Duration = Duration::from_millis(20);
/// Number of syncs that are measured.
const SYNCS: u32 = 20;
/// Number of open files that a server with some thousand connections needs.
const FILES: u64 = 4_096;

pub(super) async fn store(place: &StoreArgs) -> Vec<Found> {
    let mut found = vec![opened(place).await];
    let folder = place.file().and_then(|path| Path::new(path).parent());
    found.extend(
        folder.map(|folder| disk(if folder.as_os_str().is_empty() { Path::new(".") } else { folder })),
    );
    found
}

async fn opened(place: &StoreArgs) -> Found {
    let fix = "check the address after --store, and your permissions on the file or database";
    match place.open_existing().await {
        Ok(open) => match open.close().await {
            Ok(()) => Found::fine("store", format!("the {} store opens", place.kind())),
            Err(failure) => Found::wrong("store", failure.exit, failure.to_string(), fix),
        },
        Err(failure) => {
            let owner = place.file().and_then(owner_of_lock);
            match owner {
                Some(owner) => {
                    let fix = "ask that server, or stop it; a SQLite store has one process";
                    Found::look("store", format!("{owner} has it open"), fix)
                }
                None => Found::wrong("store", failure.exit, failure.to_string().replace('\n', ";"), fix),
            }
        }
    }
}

/// The process that holds the lock of a SQLite store, from `/proc/locks` on Linux.
fn owner_of_lock(path: &str) -> Option<String> {
    use std::os::unix::fs::MetadataExt as _;
    let inode = fs::metadata(format!("{path}.lock")).ok()?.ino();
    let process = holder(&fs::read_to_string("/proc/locks").ok()?, inode)?;
    let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    Some(format!("process {process} ({})", name.trim()))
}

/// The process that holds the lock on an inode: `1: FLOCK  ADVISORY  WRITE 4711 08:01:131 0 EOF`.
fn holder(locks: &str, inode: u64) -> Option<u32> {
    locks.lines().find_map(|line| {
        let mut parts = line.split_whitespace().skip_while(|part| *part != "WRITE").skip(1);
        let (process, place) = (parts.next()?, parts.next()?);
        let found: u64 = place.rsplit(':').next()?.parse().ok()?;
        (found == inode).then(|| process.parse().ok())?
    })
}

/// Measures how long the disk takes to sync.
fn disk(folder: &Path) -> Found {
    match synced(folder) {
        Ok(each) if each <= SLOW => Found::fine("disk", format!("{:.1} ms per sync", millis(each))),
        Ok(each) => {
            let fix = "every commit waits for it: use a local SSD, not a network or USB disk";
            Found::look("disk", format!("{:.1} ms per sync", millis(each)), fix)
        }
        Err(error) => {
            let what = format!("{}: {error}", folder.display());
            Found::wrong("disk", Exit::Failed, what, "check the free space and the permissions")
        }
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}

fn synced(folder: &Path) -> std::io::Result<Duration> {
    let path = folder.join(format!(".semel-doctor-{}", std::process::id()));
    let measured = fs::File::create(&path).and_then(|mut file| {
        let clock = SystemClock::new();
        for _ in 0..SYNCS {
            file.write_all(&[0; 4_096])?;
            file.sync_data()?;
        }
        Ok(clock.elapsed() / SYNCS)
    });
    fs::remove_file(&path).and(measured)
}

/// Checks how many files a process may open.
pub(super) fn open_files() -> Found {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    match soft_limit(&limits) {
        Some(limit) if limit < FILES => {
            let fix = "raise it with `ulimit -n 65536`, or LimitNOFILE=65536 in the systemd unit";
            Found::look("open files", format!("{limit} per process"), fix)
        }
        Some(u64::MAX) => Found::fine("open files", "without limit"),
        Some(limit) => Found::fine("open files", format!("{limit} per process")),
        None => Found::fine("open files", "this system does not report its limit"),
    }
}

fn soft_limit(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_found() {
        let locks =
            "1: POSIX  ADVISORY  READ 7 08:01:131 0 EOF\n2: FLOCK  ADVISORY  WRITE 4711 08:01:131 0 EOF\n";
        assert_eq!(holder(locks, 131), Some(4711));
        assert_eq!(holder(locks, 132), None);
    }

    #[test]
    fn the_limit_of_files_is_read() {
        assert_eq!(soft_limit("Max open files            1024                 524288  files\n"), Some(1024));
        assert_eq!(
            soft_limit("Max open files            unlimited            unlimited  files"),
            Some(u64::MAX)
        );
        assert_eq!(soft_limit(""), None);
    }

    #[test]
    fn a_disk_is_measured_and_left_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        assert_ne!(disk(folder.path()).state.word(), "wrong");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        assert_eq!(disk(&folder.path().join("gone")).state.word(), "wrong");
    }
}
