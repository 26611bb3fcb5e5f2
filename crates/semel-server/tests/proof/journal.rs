//! What `faults.c` has noted: every write, sync and name of a folder's files, in their order.

use std::fs;
use std::path::Path;

use libtest_mimic::Failed;

/// A journal, read as a whole.
pub(crate) struct Journal(Vec<u8>);

/// One call, with what the journal's length was before and after it was noted.
pub(crate) struct Noted<'a> {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) call: Call<'a>,
}

/// A call. Files are named by their inodes. A sync covers what was noted before it began.
pub(crate) enum Call<'a> {
    Opened {
        file: u64,
        name: &'a str,
    },
    Written {
        file: u64,
        at: u64,
        bytes: &'a [u8],
    },
    CutTo {
        file: u64,
        length: u64,
    },
    Synced {
        file: u64,
        began: u64,
    },
    /// A sync that failed, and with it the data: lost on disk and in the cache, or still in the cache.
    Dropped {
        file: u64,
        began: u64,
        cached: bool,
    },
    Unlinked {
        name: &'a str,
    },
    Renamed {
        from: &'a str,
        to: &'a str,
    },
    FolderSynced {
        began: u64,
    },
}

/// Kind, file, place and number of bytes that follow.
const HEAD: usize = 4 * 8;

impl Journal {
    pub(crate) fn read(path: &Path) -> Result<Self, Failed> {
        Ok(Self(fs::read(path)?))
    }

    /// All calls. A call that was cut off by the end of its process counts as not made.
    pub(crate) fn calls(&self) -> impl Iterator<Item = Noted<'_>> {
        let mut next = 0;
        std::iter::from_fn(move || {
            let (from, noted) = (next, self.0.get(next..)?);
            let (head, rest) = noted.split_at_checked(HEAD)?;
            let word = |place: usize| {
                let bytes = head[place * 8..][..8].try_into().expect("a word has eight bytes");
                u64::from_ne_bytes(bytes)
            };
            let bytes = rest.get(..word(3) as usize)?;
            next += HEAD + bytes.len();
            Some(Noted { from: from as u64, to: next as u64, call: call(word(0), word(1), word(2), bytes) })
        })
    }
}

fn call(kind: u64, file: u64, at: u64, bytes: &[u8]) -> Call<'_> {
    let text = || std::str::from_utf8(bytes).expect("names of stores are text");
    match kind {
        1 => Call::Opened { file, name: text() },
        2 => Call::Written { file, at, bytes },
        3 => Call::CutTo { file, length: at },
        4 => Call::Synced { file, began: at },
        5 => Call::Dropped { file, began: at, cached: bytes == 2_u32.to_ne_bytes() },
        6 => Call::Unlinked { name: text() },
        7 => {
            let (from, to) = text().trim_end_matches('\0').split_once('\0').expect("two names");
            Call::Renamed { from, to }
        }
        8 => Call::FolderSynced { began: at },
        other => panic!("the journal has a call of the kind {other}"),
    }
}
