//! A small disk for a server's folder, which can be full.
//!
//! As root it is a tmpfs; as any other user a tmpfs in a name space of its own, which a process of ours keeps alive; where
//! that is not allowed either, [`Faults`] count the bytes.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use libtest_mimic::{Failed, Trial};
use tempfile::TempDir;

use crate::faults::Faults;
use crate::starts::{Answer, Novelty, Started, Starters, assert_all_there, client, start};
use crate::victim::Victim;

/// The log of a store takes 9 MiB beforehand; after that there is room for a few thousand runs.
const MIB: u32 = 24;
/// What a server logs then; the words are SQLite's.
pub(crate) const FULL: &str = "database or disk is full";
/// What is written to fill it.
const BALLAST: &str = "ballast";

/// A folder on a disk of its own. Dropped, the disk is gone.
pub(crate) struct SmallDisk {
    kind: Kind,
    /// Where a process that was started by [`wrap`](Self::wrap) finds it.
    place: PathBuf,
    /// Where all that was on it is left at the end.
    left: Option<PathBuf>,
    /// Deleted last; none for a folder that was given.
    _temporary: Option<TempDir>,
}

enum Kind {
    Mounted,
    /// In the name space of this process, which ends when its input does.
    Private(Child),
    Counted(Faults),
}

impl SmallDisk {
    /// An empty disk of some MiB; nothing is left of it.
    pub(crate) fn new() -> Result<Self, Failed> {
        let temporary = tempfile::tempdir()?;
        let (kind, place) = Self::make(temporary.path())?;
        Ok(Self { kind, place, left: None, _temporary: Some(temporary) })
    }

    /// The same in the given folder, where its files are left.
    pub(crate) fn in_folder(folder: &Path) -> Result<Self, Failed> {
        let (kind, place) = Self::make(folder)?;
        Ok(Self { kind, place, left: Some(folder.join("left")), _temporary: None })
    }

    fn make(folder: &Path) -> Result<(Kind, PathBuf), Failed> {
        let place = folder.canonicalize()?.join("disk");
        fs::create_dir(&place)?;
        let kind = mounted(&place)
            .or_else(|| private(&place))
            .map_or_else(|| Faults::new(folder, &place).map(Kind::Counted), Ok)?;
        Ok((kind, place))
    }

    /// The address of a store on this disk.
    pub(crate) fn store(&self) -> String {
        format!("sqlite:{}", self.place.join("semel.db").display())
    }

    /// Lets a command see the disk.
    pub(crate) fn wrap(&self, command: Command) -> Command {
        match &self.kind {
            Kind::Mounted => command,
            Kind::Counted(faults) => faults.haunt(command),
            Kind::Private(holder) => {
                let mut inside = Command::new("nsenter");
                inside.args(["--user", "--mount", "--preserve-credentials", "--target"]);
                inside.arg(holder.id().to_string()).arg(command.get_program()).args(command.get_args());
                // The environment of the command is its own, and nothing else.
                inside.env_clear();
                inside.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
                inside
            }
        }
    }

    /// No byte more fits.
    pub(crate) fn fill(&self) -> Result<(), Failed> {
        if let Kind::Counted(faults) = &self.kind {
            return faults.space(Some(0));
        }
        let mut ballast = fs::File::create(self.seen_outside().join(BALLAST))?;
        match std::io::copy(&mut std::io::repeat(0).take(u64::from(MIB) << 20), &mut ballast) {
            Err(error) if error.kind() == std::io::ErrorKind::StorageFull => Ok(()),
            Err(error) => Err(error.into()),
            Ok(_) => Err("the disk is larger than it should be".into()),
        }
    }

    /// There is room again.
    pub(crate) fn free(&self) -> Result<(), Failed> {
        match &self.kind {
            Kind::Counted(faults) => faults.space(None),
            _ => Ok(fs::remove_file(self.seen_outside().join(BALLAST))?),
        }
    }

    /// What a phase on it is called: bytes that are counted are no real disk, and the figures say so.
    pub(crate) fn phase(&self) -> &'static str {
        match self.kind {
            Kind::Mounted | Kind::Private(_) => "disk",
            Kind::Counted(_) => "disk-counted",
        }
    }

    /// The same place for a process that is not inside.
    fn seen_outside(&self) -> PathBuf {
        let seen = self.place.strip_prefix("/").unwrap_or(&self.place);
        match &self.kind {
            Kind::Private(holder) => Path::new("/proc").join(holder.id().to_string()).join("root").join(seen),
            Kind::Mounted | Kind::Counted(_) => self.place.clone(),
        }
    }
}

/// Copies the files of a folder.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for file in fs::read_dir(from)? {
        let file = file?;
        fs::copy(file.path(), to.join(file.file_name()))?;
    }
    Ok(())
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.left.as_ref().map(|left| copy(&self.seen_outside(), left)) {
            eprintln!("what was on {} is not left: {error}", self.place.display());
        }
        match &mut self.kind {
            Kind::Counted(_) => {}
            Kind::Mounted => {
                // Lazily: a server that was killed a moment ago may not have let go yet.
                let done = Command::new("umount").arg("--lazy").arg(&self.place).status();
                if !done.is_ok_and(|status| status.success()) {
                    eprintln!("{} is still mounted", self.place.display());
                }
            }
            Kind::Private(holder) => {
                drop(holder.kill());
                drop(holder.wait());
            }
        }
    }
}

fn tmpfs() -> String {
    format!("size={MIB}m,mode=700")
}

fn mounted(place: &Path) -> Option<Kind> {
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", &tmpfs(), "semel-proof"]).arg(place).stderr(Stdio::null());
    mount.status().is_ok_and(|status| status.success()).then_some(Kind::Mounted)
}

/// A process with a mount of its own, which says when it is there and then waits for the end of its input.
fn private(place: &Path) -> Option<Kind> {
    let script = format!("mount -t tmpfs -o {} semel-proof \"$0\" && echo mounted && exec cat", tmpfs());
    let mut holder = Command::new("unshare");
    holder.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]).arg(place);
    holder.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut holder = holder.spawn().ok()?;
    let mut word = [0; 8];
    if holder.stdout.take()?.read_exact(&mut word).is_ok() && &word == b"mounted\n" {
        return Some(Kind::Private(holder));
    }
    drop(holder.kill());
    drop(holder.wait());
    None
}

pub(crate) fn trials() -> Vec<Trial> {
    crate::trials![
        a_full_disk_refuses_starts_and_goes_on_when_there_is_room,
        a_server_that_is_restarted_on_a_full_disk_goes_on_when_there_is_room,
    ]
}

/// Fills the disk of a server under load, sees it refuse, frees it, and sees it go on: gives what was answered.
pub(crate) async fn fill_and_free(
    victim: &Victim,
    full: impl Fn(bool) -> Result<(), Failed>,
) -> Result<Started, Failed> {
    let mut starters = Starters::begin(&[victim.base()], 8);
    starters.more(50).await?;
    for episode in 0..3 {
        let before = victim.said().so_far();
        full(true)?;
        let key = refused(victim, episode, before).await?;
        full(false)?;
        starters.more(50).await?;
        match start(&client(), &victim.base(), &key).await? {
            Answer::Run(_, Novelty::Created) => {}
            other => return Err(format!("nothing was changed, it said, and now: {other:?}").into()),
        }
    }
    let started = starters.end().await?;
    assert_all_there(&victim.base(), &started).await?;
    Ok(started)
}

/// Starts runs until one is refused with a clear answer: gives its key. The server has said less than `before` lines when the
/// disk was filled.
async fn refused(victim: &Victim, episode: u32, before: usize) -> Result<String, Failed> {
    let client = client();
    // What fits into the blocks that the log has already is still written.
    for n in 0..50_000 {
        let key = format!("full-{episode}-{n}");
        match start(&client, &victim.base(), &key).await? {
            Answer::Run(..) => {}
            Answer::Unavailable(why) if why.contains("nothing was changed") => {
                // Why is for the log.
                victim.said().line(before, FULL).await?;
                return Ok(key);
            }
            other => return Err(format!("{other:?} is no clear refusal").into()),
        }
    }
    Err("the disk is full, and the server goes on for ever".into())
}

async fn a_full_disk_refuses_starts_and_goes_on_when_there_is_room() -> Result<(), Failed> {
    let disk = SmallDisk::new()?;
    let victim = Victim::serve(disk.wrap(Victim::command()), disk.store()).await?;
    let started = fill_and_free(&victim, |full| if full { disk.fill() } else { disk.free() }).await?;
    victim.kill()?;
    let again = Victim::serve(disk.wrap(Victim::command()), disk.store()).await?;
    assert_all_there(&again.base(), &started).await
}

async fn a_server_that_is_restarted_on_a_full_disk_goes_on_when_there_is_room() -> Result<(), Failed> {
    let disk = SmallDisk::new()?;
    let victim = Victim::serve(disk.wrap(Victim::command()), disk.store()).await?;
    let mut starters = Starters::begin(&[victim.base()], 8);
    starters.more(200).await?;
    let started = starters.end().await?;
    disk.fill()?;
    victim.kill()?;
    // It may refuse to open, or open and refuse to write; in either case nothing is lost.
    if let Ok(poor) = Victim::serve(disk.wrap(Victim::command()), disk.store()).await {
        poor.kill()?;
    }
    disk.free()?;
    let again = Victim::serve(disk.wrap(Victim::command()), disk.store()).await?;
    assert_all_there(&again.base(), &started).await
}
