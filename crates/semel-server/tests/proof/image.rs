//! A disk that is written to as a journal says, and what a power cut could leave of it.
//!
//! What was synced is there. Of what was not, anything may be there: nothing, all, the first part with its last write torn, or
//! any sectors of any writes in any order. The same holds for names: a sync of a file says nothing about its name; only
//! a sync of the folder does.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::ops::RangeInclusive;
use std::path::Path;

use semel::testing::Dice;

use crate::journal::{Call, Noted};

/// What a disk writes as a whole.
const SECTOR: u64 = 512;
/// What the cache keeps as a whole.
const PAGE: u64 = 4096;

/// What happens to data that was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is lost.
    Lost,
    /// It is there.
    Kept,
    /// Up to some write it is there, and that one is torn.
    Torn,
    /// Of each write it is drawn whether it is there.
    Writes,
    /// The same of each sector.
    Sectors,
}

impl Fate {
    pub(crate) fn draw(dice: &mut Dice) -> Self {
        [Self::Lost, Self::Kept, Self::Torn, Self::Writes, Self::Sectors][dice.below(5) as usize]
    }
}

/// A disk with one folder.
#[derive(Default)]
pub(crate) struct Disk {
    files: Vec<File>,
    by_inode: HashMap<u64, usize>,
    names: Names,
    synced_names: Names,
    /// Changes of names since the folder was synced, with their places in the journal.
    renamings: Vec<(u64, Naming)>,
}

type Names = BTreeMap<String, usize>;

enum Naming {
    Link(String, usize),
    Unlink(String),
    Rename(String, String),
}

impl Naming {
    fn change(&self, names: &mut Names) {
        match self {
            Self::Link(name, file) => drop(names.insert(name.clone(), *file)),
            Self::Unlink(name) => drop(names.remove(name)),
            Self::Rename(from, to) => {
                if let Some(file) = names.remove(from) {
                    names.insert(to.clone(), file);
                }
            }
        }
    }
}

#[derive(Default)]
struct File {
    inode: u64,
    /// What is certainly on the disk.
    synced: Vec<u8>,
    /// What a program reads.
    cache: Vec<u8>,
    /// Changes since the last sync, with their places in the journal.
    pending: Vec<(u64, Change)>,
    /// Pages that the cache takes for clean although they never reached the disk.
    strayed: BTreeSet<u64>,
}

#[derive(Clone)]
enum Change {
    Write(u64, Vec<u8>),
    CutTo(u64),
}

impl Change {
    fn make(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Write(at, new) => write(bytes, *at, new),
            Self::CutTo(length) => bytes.resize(*length as usize, 0),
        }
    }

    /// Its sectors, each a change of its own.
    fn sectors(&self) -> Vec<Self> {
        let Self::Write(at, bytes) = self else { return vec![self.clone()] };
        let (mut sectors, mut done) = (Vec::new(), 0);
        while done < bytes.len() {
            let place = at + done as u64;
            let end = (done + (SECTOR - place % SECTOR) as usize).min(bytes.len());
            sectors.push(Self::Write(place, bytes[done..end].to_vec()));
            done = end;
        }
        sectors
    }
}

fn write(bytes: &mut Vec<u8>, at: u64, new: &[u8]) {
    let (at, end) = (at as usize, at as usize + new.len());
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[at..end].copy_from_slice(new);
}

fn pages(at: u64, length: usize) -> RangeInclusive<u64> {
    at / PAGE..=(at + length.max(1) as u64 - 1) / PAGE
}

impl File {
    fn write(&mut self, place: u64, at: u64, bytes: &[u8]) {
        for page in pages(at, bytes.len()) {
            // Written to again, the whole page is dirty again.
            if self.strayed.remove(&page)
                && let Some(rest) = self.cache.get((page * PAGE) as usize..)
            {
                let whole = rest[..rest.len().min(PAGE as usize)].to_vec();
                self.pending.push((place, Change::Write(page * PAGE, whole)));
            }
        }
        self.change(place, Change::Write(at, bytes.to_vec()));
    }

    fn change(&mut self, place: u64, change: Change) {
        change.make(&mut self.cache);
        self.pending.push((place, change));
    }

    fn sync(&mut self, began: u64) {
        for (_, change) in self.pending.extract_if(.., |(place, _)| *place < began) {
            change.make(&mut self.synced);
        }
    }

    /// The data is lost; lengths are no data.
    fn drop_pending(&mut self, began: u64, cached: bool) {
        let lost =
            |(place, change): &mut (u64, Change)| *place < began && matches!(change, Change::Write(..));
        let lost: Vec<_> = self.pending.extract_if(.., lost).collect();
        if cached {
            for (_, change) in &lost {
                if let Change::Write(at, bytes) = change {
                    self.strayed.extend(pages(*at, bytes.len()));
                }
            }
        } else {
            self.cache = self.synced.clone();
            self.pending.iter().for_each(|(_, change)| change.make(&mut self.cache));
        }
    }

    /// What the disk has after a power cut.
    fn after(&self, fate: Fate, dice: &mut Dice) -> Vec<u8> {
        let mut bytes = self.synced.clone();
        let first = dice.below(self.pending.len() as u64 + 1) as usize;
        for (n, (_, change)) in self.pending.iter().enumerate() {
            let kept = match fate {
                Fate::Lost => false,
                Fate::Kept | Fate::Sectors => true,
                Fate::Torn => n <= first,
                Fate::Writes => dice.flip(),
            };
            let torn = fate == Fate::Torn && n == first;
            if !kept {
                continue;
            }
            let mut parts =
                if fate == Fate::Sectors || torn { change.sectors() } else { vec![change.clone()] };
            if torn {
                parts.truncate(dice.below(parts.len() as u64) as usize);
            }
            for part in parts {
                if fate != Fate::Sectors || dice.flip() {
                    part.make(&mut bytes);
                }
            }
        }
        bytes
    }
}

impl Disk {
    /// Does what was noted.
    pub(crate) fn play(&mut self, noted: &Noted<'_>) {
        let place = noted.from;
        match noted.call {
            Call::Opened { file, name } => self.open(place, file, name),
            Call::Written { file, at, bytes } => self.file(file).write(place, at, bytes),
            Call::CutTo { file, length } => self.file(file).change(place, Change::CutTo(length)),
            Call::Synced { file, began } => self.file(file).sync(began),
            Call::Dropped { file, began, cached } => self.file(file).drop_pending(began, cached),
            Call::Unlinked { name } => self.rename(place, Naming::Unlink(name.to_owned())),
            Call::Renamed { from, to } => self.rename(place, Naming::Rename(from.to_owned(), to.to_owned())),
            Call::FolderSynced { began } => {
                for (_, naming) in self.renamings.extract_if(.., |(place, _)| *place < began) {
                    naming.change(&mut self.synced_names);
                }
            }
        }
    }

    /// A file that is opened under a name for the first time is new. An inode may have had another life before.
    fn open(&mut self, place: u64, inode: u64, name: &str) {
        if self.names.get(name).is_some_and(|file| self.files[*file].inode == inode) {
            return;
        }
        let file = self.files.len();
        self.files.push(File { inode, ..File::default() });
        self.by_inode.insert(inode, file);
        self.rename(place, Naming::Link(name.to_owned(), file));
    }

    fn rename(&mut self, place: u64, naming: Naming) {
        naming.change(&mut self.names);
        self.renamings.push((place, naming));
    }

    fn file(&mut self, inode: u64) -> &mut File {
        let file = self.by_inode[&inode];
        &mut self.files[file]
    }

    /// Makes the folder that a power cut at this moment leaves.
    pub(crate) fn cut(&self, fate: Fate, dice: &mut Dice, folder: &Path) -> io::Result<()> {
        let mut names = self.synced_names.clone();
        for (_, naming) in &self.renamings {
            let kept = match fate {
                Fate::Lost => false,
                Fate::Kept => true,
                Fate::Torn | Fate::Writes | Fate::Sectors => dice.flip(),
            };
            if kept {
                naming.change(&mut names);
            }
        }
        for (name, file) in &names {
            put(&folder.join(name), &self.files[*file].after(fate, dice))?;
        }
        // What SQLite had in shared memory may have been written as well, at any time; it must not matter.
        if dice.flip() {
            let junk: Vec<u8> = (0..4096).flat_map(|_| dice.number().to_ne_bytes()).collect();
            fs::write(folder.join("semel.db-shm"), junk)?;
        }
        Ok(())
    }
}

/// A log is zeros for the most part, which take time to write and need not be.
fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
    const BLOCK: usize = 4096;
    let mut file = fs::File::create(path)?;
    file.set_len(bytes.len() as u64)?;
    for (n, block) in bytes.chunks(BLOCK).enumerate() {
        if block.iter().any(|byte| *byte != 0) {
            file.seek(SeekFrom::Start((n * BLOCK) as u64))?;
            file.write_all(block)?;
        }
    }
    Ok(())
}
