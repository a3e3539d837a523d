//! The place of a round: directories in memory, on ext4, on storage that fails on command, or on a
//! file system that is too small or keeps less metadata; and a network that does harm.

use super::process;
use super::{Abilities, Tools};
use crate::shell;
use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The size of an ext4 image, in bytes. There is room for any tree and its copy.
const IMAGE_BYTES: u64 = 256 << 20;
/// The size of a small file system after it was enlarged, in bytes.
const MORE_ROOM_BYTES: u64 = 512 << 20;

/// The user without privileges, `nobody`.
pub(super) const NOBODY: u32 = 65_534;
/// The program that runs a command as this user.
pub(super) const AS_NOBODY: [&str; 4] =
    ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

/// Eight storage targets of 40 MB/s, so that moving a large file takes long enough for accidents.
const MANY_TARGETS: [&str; 4] = ["pfs", "--osts=8", "--rate=40000000", "--stripe-size=64K"];
const MANY_TARGETS_ORDERS: &str = "congest moving COUNT=2 DWELL=0.2 RATE=1000000";

/// The storage of the source and of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Storage {
    /// Both are in memory.
    Memory,
    /// Both are on ext4, in an image on a loop device.
    Ext4,
    /// The source is on storage that fails on command.
    FaultySource,
    /// The target is on storage that fails on command.
    FaultySink,
    /// The target is on a file system with this number of bytes.
    SmallSink(u64),
    /// The target is on ext4 with inodes of 128 bytes and blocks of 1 KiB: times of whole seconds
    /// from 1901 to 2038, and 1 KiB for all extended attributes of an entry.
    PlainSink,
    /// The target is on a file system without extended attributes and ACLs (ramfs).
    NoAttributesSink,
    /// The target is on several storage targets. Two of them are slow at a time, and soon two
    /// others. Its files grow over them.
    ManyTargets,
}

impl Storage {
    /// This storage, or memory if it is not possible here.
    pub(super) fn or_memory(self, abilities: &Abilities) -> Self {
        let is_possible = match self {
            Self::Memory => true,
            Self::Ext4 | Self::PlainSink => abilities.can_mount_images,
            Self::FaultySource | Self::FaultySink | Self::ManyTargets => abilities.can_use_fuse,
            Self::SmallSink(_) | Self::NoAttributesSink => abilities.can_mount,
        };
        if is_possible { self } else { Self::Memory }
    }

    /// Whether the target may keep less metadata than the source.
    pub(super) fn reduces(self) -> bool {
        // The emulated parallel file system has no ACLs.
        matches!(self, Self::PlainSink | Self::NoAttributesSink | Self::ManyTargets)
    }

    /// Whether other users than root can use the storage. FUSE mounts of root are closed to them.
    pub(super) fn is_open_to_all(self) -> bool {
        !matches!(self, Self::FaultySource | Self::FaultySink | Self::ManyTargets)
    }
}

/// The directories of a round, and what is mounted on them.
pub(super) struct Room {
    pub(super) directory: PathBuf,
    pub(super) storage: Storage,
    /// Whether everything in it belongs to the user without privileges.
    pub(super) is_of_nobody: bool,
    mounted: Option<PathBuf>,
    daemon: Option<Child>,
}

impl Room {
    /// Creates the directory of a round, and mounts what it needs.
    pub(super) fn new(directory: PathBuf, storage: Storage, tools: &Tools) -> Result<Self> {
        for name in ["home", "stage", "canary"] {
            fs::create_dir_all(directory.join(name))?;
        }
        let mut room =
            Self { directory, storage, is_of_nobody: false, mounted: None, daemon: None };
        match storage {
            Storage::Memory => {}
            Storage::Ext4 => room.mount_image(&[])?,
            Storage::PlainSink => room.mount_image(&["-I", "128", "-b", "1024"])?,
            Storage::NoAttributesSink => room.mount(&["-t", "ramfs"], Path::new("none"))?,
            Storage::FaultySource | Storage::FaultySink => {
                let beneath = room.path("beneath");
                fs::create_dir_all(&beneath)?;
                room.mount_with(&tools.testbed, &[OsStr::new("faultfs"), beneath.as_os_str()])?;
            }
            Storage::ManyTargets => {
                room.mount_with(&tools.testbed, &MANY_TARGETS.map(OsStr::new))?;
                room.order(MANY_TARGETS_ORDERS)?;
            }
            Storage::SmallSink(bytes) => room.mount_small(bytes)?,
        }
        room.make_script()?;
        Ok(room)
    }

    /// A room in which nothing is mounted, for tests.
    #[cfg(test)]
    pub(super) fn in_memory(directory: PathBuf) -> Result<Self> {
        let tools = Tools { lads: PathBuf::new(), testbed: PathBuf::new() };
        Self::new(directory, Storage::Memory, &tools)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The path of the source for the command.
    pub(super) fn source(&self) -> PathBuf {
        self.path(match self.storage {
            Storage::Ext4 | Storage::FaultySource => "mount/src",
            _ => "home/src",
        })
    }

    /// The path of the target for the command.
    pub(super) fn target(&self) -> PathBuf {
        self.path(match self.storage {
            Storage::Memory | Storage::FaultySource => "home/dst",
            _ => "mount/dst",
        })
    }

    /// The path of the source that bypasses the storage that fails.
    pub(super) fn source_beneath(&self) -> PathBuf {
        match self.storage {
            Storage::FaultySource => self.path("beneath/src"),
            _ => self.source(),
        }
    }

    /// The path of the target that bypasses the storage that fails.
    pub(super) fn target_beneath(&self) -> PathBuf {
        match self.storage {
            Storage::FaultySink => self.path("beneath/dst"),
            _ => self.target(),
        }
    }

    /// A script that replaces ssh: it ignores the host and runs the rest on this machine.
    pub(super) fn remote_shell(&self) -> PathBuf {
        self.path("home/shell")
    }

    fn make_script(&self) -> Result<()> {
        Ok(lads_tried::write_script(&self.remote_shell(), "shift; exec \"$@\"")?)
    }

    /// Mounts an ext4 image that is made with these options.
    fn mount_image(&mut self, more: &[&str]) -> Result<()> {
        let image = self.path("image");
        File::create(&image)?.set_len(IMAGE_BYTES)?;
        // The image has no journal, and its inode tables are not initialised: both would take time
        // to write.
        let options = ["-q", "-O", "^has_journal", "-E", "lazy_itable_init=1"];
        shell::run_quietly(Command::new("mkfs.ext4").args(options).args(more).arg(&image))?;
        self.mount(&["-o", "loop"], &image)
    }

    fn mount_small(&mut self, bytes: u64) -> Result<()> {
        self.mount(&["-t", "tmpfs", "-o", &format!("size={bytes}")], Path::new("none"))
    }

    fn mount(&mut self, options: &[&str], what: &Path) -> Result<()> {
        let at = self.path("mount");
        fs::create_dir_all(&at)?;
        shell::run_quietly(Command::new("mount").args(options).arg(what).arg(&at))?;
        self.mounted = Some(at);
        Ok(())
    }

    /// Mounts a file system of the test bed. `words` are its name and its arguments other than the
    /// mount point.
    fn mount_with(&mut self, testbed: &Path, words: &[&OsStr]) -> Result<()> {
        let at = self.path("mount");
        fs::create_dir_all(&at)?;
        let mut daemon = Command::new(testbed)
            .args(words)
            .arg(&at)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut said = [0; 6];
        let stdout = daemon.stdout.as_mut().context("it is piped")?;
        if stdout.read_exact(&mut said).is_err() {
            let _ = daemon.wait();
            bail!("{words:?} cannot be mounted");
        }
        self.daemon = Some(daemon);
        Ok(())
    }

    /// Makes the user without privileges the owner of everything in the room. That user can read
    /// it, but not write to all directories, unless commands remove entries of these.
    pub(super) fn give_to_nobody(&mut self, is_moved: bool) -> Result<()> {
        self.is_of_nobody = true;
        let owner = format!("{NOBODY}:{NOBODY}");
        shell::run_quietly(Command::new("chown").args(["-hR", &owner]).arg(&self.directory))?;
        let mode = if is_moved { "u+rwX" } else { "u+rX" };
        shell::run_quietly(Command::new("chmod").args(["-R", mode]).arg(&self.directory))
    }

    /// Gives the storage an order, such as `fail write EIO nth=3` or `state 2 full`.
    pub(super) fn order(&self, line: &str) -> Result<()> {
        let control = self.path(match self.storage {
            Storage::ManyTargets => "mount/.pfs/control",
            _ => "mount/.fault/control",
        });
        fs::write(control, line).with_context(|| format!("the storage refuses `{line}`"))
    }

    /// Ends the faults of the storage: removes rules that let calls fail, and enlarges a file
    /// system that is too small.
    pub(super) fn mend(&self) -> Result<()> {
        match self.storage {
            Storage::FaultySource | Storage::FaultySink => self.order("clear"),
            Storage::ManyTargets => self.order("state all up\ngrow on"),
            Storage::SmallSink(_) => self.give_room(),
            Storage::Memory | Storage::Ext4 | Storage::PlainSink | Storage::NoAttributesSink => {
                Ok(())
            }
        }
    }

    /// Makes a small file system large.
    pub(super) fn give_room(&self) -> Result<()> {
        let options = format!("remount,size={MORE_ROOM_BYTES}");
        shell::run_quietly(Command::new("mount").args(["-o", &options]).arg(self.path("mount")))
    }

    /// Copies the content of the mount to a directory beside it, because it is needed to look into
    /// a failure.
    pub(super) fn keep(&self) {
        if self.mounted.is_some() {
            let mut copy = Command::new("cp");
            let _ = copy.arg("-a").arg(self.path("mount")).arg(self.path("kept")).status();
        }
    }

    /// Unmounts what is mounted.
    fn unmount(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            // Calls that hang would keep the daemon from ending.
            let _ = self.mend();
            process::signal(daemon.id(), Signal::TERM);
            let _ = daemon.wait();
        }
        if let Some(at) = self.mounted.take() {
            let _ = shell::run_quietly(Command::new("umount").arg("-l").arg(at));
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.unmount();
    }
}

/// A network that does harm: a proxy that the data streams of one command go through.
pub(super) struct Network {
    proxy: Child,
    /// The port that the data streams connect to.
    pub(super) port: u16,
    /// The port on which the other end listens.
    pub(super) behind: u16,
}

impl Network {
    /// Starts a proxy with these rules.
    pub(super) fn start(testbed: &Path, log: &Path, seed: u64, rules: &[String]) -> Result<Self> {
        let behind = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut command = Command::new(testbed);
        command.args(["proxy", "--to", &format!("127.0.0.1:{behind}")]);
        command.args(["--seed", &seed.to_string()]);
        command.args(rules.iter().flat_map(|rule| ["--fault", rule]));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(log)?);
        let mut proxy = command.spawn()?;
        let mut line = String::new();
        BufReader::new(proxy.stdout.take().context("it is piped")?).read_line(&mut line)?;
        let said: serde_json::Value = serde_json::from_str(&line)?;
        let port = said["port"].as_u64().and_then(|port| u16::try_from(port).ok());
        let port = port.with_context(|| format!("the proxy printed {line}"))?;
        Ok(Self { proxy, port, behind })
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = self.proxy.kill();
        let _ = self.proxy.wait();
    }
}
