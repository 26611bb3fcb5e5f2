//! A small disk for a server's folder, which can be full.
//!
//! As root it is a tmpfs; as anybody else a tmpfs in a name space of its own, which a process of ours keeps alive; where
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
/// What is written to fill it.
const BALLAST: &str = "ballast";

/// A folder on a disk of its own. Dropped, the disk is gone with all that was on it.
pub(crate) struct SmallDisk {
    kind: Kind,
    /// Where a process that was started by [`wrap`](Self::wrap) finds it.
    place: PathBuf,
    /// The last to go.
    _folder: TempDir,
}

enum Kind {
    Mounted,
    /// In the name space of this process, which ends when its input does.
    Private(Child),
    Counted(Faults),
}

impl SmallDisk {
    /// An empty disk of some MiB.
    pub(crate) fn new() -> Result<Self, Failed> {
        let folder = tempfile::tempdir()?;
        let place = folder.path().canonicalize()?.join("disk");
        fs::create_dir(&place)?;
        let kind = mounted(&place)
            .or_else(|| private(&place))
            .map_or_else(|| Faults::new(folder.path(), &place).map(Kind::Counted), Ok)?;
        Ok(Self { kind, place, _folder: folder })
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

    /// The same place for a process that is not inside.
    fn seen_outside(&self) -> PathBuf {
        let seen = self.place.strip_prefix("/").unwrap_or(&self.place);
        match &self.kind {
            Kind::Private(holder) => Path::new("/proc").join(holder.id().to_string()).join("root").join(seen),
            Kind::Mounted | Kind::Counted(_) => self.place.clone(),
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
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
        full(true)?;
        let key = refused(victim, episode).await?;
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

/// Starts runs until one is refused with a clear answer: gives its key.
async fn refused(victim: &Victim, episode: u32) -> Result<String, Failed> {
    let client = client();
    // What fits into the blocks that the log has already is still written.
    for n in 0..50_000 {
        let key = format!("full-{episode}-{n}");
        match start(&client, &victim.base(), &key).await? {
            Answer::Run(..) => {}
            Answer::Unavailable(why) if why.contains("nothing was changed") => {
                // Why is for the log.
                victim.said().line(0, "full").await?;
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
