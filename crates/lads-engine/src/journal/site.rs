//! Where a journal lies: how its file is found, locked, checked and rewritten.
//!
//! Others may be permitted to make, rename and remove names in the directory. So a name is never
//! trusted twice: a file is checked through its descriptor, and used only if its name still stands
//! for it after it was locked. An existing file is not written to until it is known to be ours.
//!
//! ```text
//!   make NAME.new (O_EXCL), lock it ──► look at NAME, lock it, is it ours? ──► read it
//!          │ there already                    │ locked                            │
//!          ▼                                  ▼                                   ▼
//!   left over if it is not locked:    running already          write what counts to NAME.new,
//!   remove it, begin again                                     durable, rename it to NAME
//! ```
//!
//! Only the process that has made `NAME.new` may replace the journal. Its lock moves along, because
//! the new file is locked before it gets the name. Where the file system has no locks, `NAME.new`
//! and the process that the journal names take their place.

use super::holder::{self, State};
use super::log::{self, Log};
use crate::board::Board;
use crate::event::ExitCode;
use crate::fatal::{Fatal, refused};
use crate::paths::{NOT_THROUGH_LINKS, is_named, sync_names};
use lads_core::entry::OWN_PREFIX;
use lads_core::journal::{Begun, FORMAT, Record, Replay, encode};
use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, OFlags, Stat, flock, fstat, fsync, openat, renameat,
    statat, unlinkat,
};
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// The longest journal, in bytes. A journal that has doubled is rewritten ([`Log::is_grown`]), and
/// its useful contents are limited, so none of ours is longer. Reading that much takes some
/// seconds.
const BYTES_MAX: u64 = 4 << 30;

/// How often opening a journal is tried while other processes begin and end it. With each attempt
/// one of them has made progress; even a second attempt is rare.
const ATTEMPTS_MAX: u32 = 16;

/// Permission to write for others than the owner.
const OTHERS_WRITE: u32 = 0o022;

/// Where a journal lies, and what it is called.
#[derive(Debug)]
pub(super) struct Site {
    root: Arc<OwnedFd>,
    name: String,
    /// The directory's name in messages.
    target: String,
}

/// Owner and mode of files that this process makes in a directory. Some file systems have their own
/// (root is another user on NFS; on vfat everybody may write).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    pub(crate) uid: u32,
    mode: u32,
}

/// A journal that this process alone holds.
pub(super) struct Opened {
    pub(super) log: Log,
    pub(super) salt: [u8; 16],
    pub(super) replay: Replay,
    pub(super) own: Own,
}

/// The new file that is to become the journal; it is removed if it does not.
struct New<'a> {
    site: &'a Site,
    file: File,
    own: Own,
    /// Why it could not be locked, if the file system has no locks.
    lockless: Option<Errno>,
    is_named: bool,
}

impl Drop for New<'_> {
    fn drop(&mut self) {
        if !self.is_named {
            let _ = unlinkat(&self.site.root, self.site.new_name(), AtFlags::empty());
        }
    }
}

/// The result of trying to lock a file.
enum Lock {
    Ours,
    Theirs,
    /// The file system has no locks.
    Missing(Errno),
}

impl Own {
    /// As the given file, which this process has just made.
    fn of(stat: &Stat) -> Self {
        Self { uid: stat.st_uid, mode: stat.st_mode }
    }

    /// As files that this process makes on most file systems, whoever may write to them.
    pub(crate) fn usual() -> Self {
        Self { uid: rustix::process::geteuid().as_raw(), mode: OTHERS_WRITE }
    }

    /// In words, how a file differs from files that this process makes and that nobody else can
    /// write to.
    pub(crate) fn difference(&self, stat: &Stat) -> Option<String> {
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            Some("it is not a regular file".to_owned())
        } else if stat.st_uid != self.uid {
            Some(format!("it belongs to another user ({})", stat.st_uid))
        } else if stat.st_nlink > 1 {
            Some(format!("it has {} names (hard links)", stat.st_nlink))
        } else if stat.st_mode & OTHERS_WRITE & !self.mode != 0 {
            Some("other users may write to it".to_owned())
        } else {
            None
        }
    }
}

impl Site {
    pub(super) fn new(root: Arc<OwnedFd>, target: &str, job_key: u64) -> Self {
        let name = format!("{OWN_PREFIX}{job_key:016x}.journal");
        Self { root, name, target: target.to_owned() }
    }

    /// Opens the journal, or begins one, and locks it; reads what an earlier attempt left.
    pub(super) fn open(&self, board: &Board) -> Result<Opened, Fatal> {
        for _ in 0..ATTEMPTS_MAX {
            if let Some(opened) = self.try_open(board)? {
                return Ok(opened);
            }
        }
        Err(self.is_running("another process opens"))
    }

    /// Returns `None` if another process renamed or removed one of the files meanwhile.
    fn try_open(&self, board: &Board) -> Result<Option<Opened>, Fatal> {
        let Some(new) = self.make_new()? else { return Ok(None) };
        let (replay, _held) = match self.open_old(&new)? {
            None => (Replay::default(), None),
            // Another process has finished with it and removed it.
            Some(old) if !self.is_named(&self.name, &old)? => return Ok(None),
            Some(old) => (log::read(&old).map_err(|e| self.broken(&e))?, Some(old)),
        };
        if let Some(errno) = new.lockless {
            self.check_holder(&replay)?;
            board.notice(format!(
                "{} has no file locks ({errno}): the journal {} records which process uses it; on \
                 Lustre, the mount option flock enables locks",
                self.target, self.name
            ));
        }
        if let Some(format) = replay.other_format {
            board.notice(format!(
                "the journal {}/{} is of format {format}, this lads writes {FORMAT}: unfinished \
                 files are sent again from the beginning",
                self.target, self.name
            ));
        }
        let salt = match replay.salt {
            Some(salt) => salt,
            None => super::new_salt()?,
        };
        let own = new.own;
        let log = self.write_anew(new, salt, &replay.files).map_err(|e| self.broken(&e))?;
        log.failure.map_or(Ok(()), |errno| Err(self.broken(&errno.into())))?;
        Ok(Some(Opened { log, salt, replay, own }))
    }

    /// Rewrites a journal while it is in use, without records that do not count any more. `None` if
    /// that is not possible now; then the old one stays valid.
    pub(super) fn shorten(&self, log: &Log, salt: [u8; 16]) -> Option<Log> {
        let new = self.make_new().ok()??;
        let replay = log.read().ok()?;
        self.write_anew(new, salt, &replay.files).ok()
    }

    /// Removes the journal, if its name still stands for it.
    pub(super) fn remove(&self, log: &Log) -> Result<(), Errno> {
        if is_named(&self.root, self.name.as_str(), log.file())? {
            unlinkat(&self.root, self.name.as_str(), AtFlags::empty())?;
        }
        Ok(())
    }

    fn new_name(&self) -> String {
        format!("{}.new", self.name)
    }

    fn make_new(&self) -> Result<Option<New<'_>>, Fatal> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let (name, mode) = (self.new_name(), Mode::RUSR | Mode::WUSR);
        let file = match openat(&self.root, name.as_str(), flags | OFlags::CLOEXEC, mode) {
            Ok(file) => file,
            Err(Errno::EXIST) => return self.remove_left_over_new().map(|()| None),
            Err(errno) => return Err(self.failed(errno)),
        };
        let lockless = match try_lock(&file).map_err(|errno| self.failed(errno))? {
            Lock::Ours if self.is_named(&name, &file)? => None,
            // Another process took it for left over.
            Lock::Ours | Lock::Theirs => return Ok(None),
            Lock::Missing(errno) => Some(errno),
        };
        let own = Own::of(&fstat(&file).map_err(|errno| self.failed(errno))?);
        Ok(Some(New { site: self, file: file.into(), own, lockless, is_named: false }))
    }

    /// Removes a `NAME.new` whose process was killed. If the process still runs, the file is
    /// locked.
    fn remove_left_over_new(&self) -> Result<(), Fatal> {
        let name = self.new_name();
        let Some(file) = self.open_if_ours(&name, Own::usual())? else { return Ok(()) };
        match try_lock(&file).map_err(|errno| self.failed(errno))? {
            Lock::Ours => {
                if self.is_named(&name, &file)? {
                    unlinkat(&self.root, name.as_str(), AtFlags::empty())
                        .map_err(|errno| self.failed(errno))?;
                }
                Ok(())
            }
            Lock::Theirs => Err(self.is_running("another process opens")),
            Lock::Missing(_) => {
                let text = format!(
                    "the same transfer is starting, or was killed while it started: {}/{name} \
                     exists; if no other lads runs, remove it, and run the same command again",
                    self.target
                );
                Err(Fatal::new(ExitCode::Usage, text))
            }
        }
    }

    /// The existing journal, locked, if there is one.
    fn open_old(&self, new: &New<'_>) -> Result<Option<OwnedFd>, Fatal> {
        let Some(file) = self.open_if_ours(&self.name, new.own)? else { return Ok(None) };
        if new.lockless.is_some() {
            return Ok(Some(file));
        }
        match try_lock(&file).map_err(|errno| self.failed(errno))? {
            Lock::Theirs => Err(self.is_running("another process holds")),
            Lock::Ours | Lock::Missing(_) => Ok(Some(file)),
        }
    }

    /// Opens a file for reading and writing, without doing either. The file is checked before it is
    /// opened, too, because opening a device may have an effect.
    fn open_if_ours(&self, name: &str, own: Own) -> Result<Option<OwnedFd>, Fatal> {
        let check = |stat: &Stat| match own.difference(stat) {
            Some(difference) => Err(self.is_not_ours(name, &difference)),
            None if u64::try_from(stat.st_size).is_ok_and(|bytes| bytes <= BYTES_MAX) => Ok(()),
            None => Err(self.is_not_ours(
                name,
                &format!("it has {} bytes, more than any journal", stat.st_size),
            )),
        };
        match statat(&self.root, name, NOT_THROUGH_LINKS) {
            Ok(stat) => check(&stat)?,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(self.failed(errno)),
        }
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(&self.root, name, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(self.failed(errno)),
        };
        check(&fstat(&file).map_err(|errno| self.failed(errno))?)?;
        Ok(Some(file))
    }

    /// Where there are no locks: checks that the process that the journal names has ended.
    fn check_holder(&self, replay: &Replay) -> Result<(), Fatal> {
        let Some(holder) = &replay.holder else { return Ok(()) };
        let (pid, host) = (holder.pid, String::from_utf8_lossy(&holder.host));
        match holder::state_of(holder) {
            State::Ended => Ok(()),
            State::Runs => Err(self.is_running(&format!("process {pid} on {host} holds"))),
            State::Elsewhere => {
                let text = format!(
                    "process {pid} on {host} may be running the same transfer: it wrote {}/{}, and \
                     that file system has no locks; if it has ended, run the command on {host}, or \
                     remove that file to start over",
                    self.target, self.name
                );
                Err(Fatal::new(ExitCode::Usage, text))
            }
        }
    }

    /// Writes the records that count, durably, and gives the file the journal's name.
    fn write_anew(
        &self,
        mut new: New<'_>,
        salt: [u8; 16],
        files: &HashMap<Vec<u8>, Begun>,
    ) -> std::io::Result<Log> {
        let mut bytes = Vec::new();
        encode(&Record::Begin { format: FORMAT, salt }, &mut bytes);
        encode(&Record::Holder(holder::own()), &mut bytes);
        let count = log::write(&new.file, bytes, files)?;
        fsync(&new.file)?;
        renameat(&self.root, self.new_name(), &self.root, self.name.as_str())?;
        new.is_named = true;
        let mut log = Log::new(new.file.try_clone()?, count);
        log.failure = sync_names(&self.root).err();
        Ok(log)
    }

    fn is_named(&self, name: &str, file: &OwnedFd) -> Result<bool, Fatal> {
        is_named(&self.root, name, file).map_err(|errno| self.failed(errno))
    }

    fn is_running(&self, who: &str) -> Fatal {
        let text = format!(
            "the same transfer is already running: {who} {} in the target directory {}",
            self.name, self.target
        );
        Fatal::new(ExitCode::Running, text)
    }

    fn is_not_ours(&self, name: &str, difference: &str) -> Fatal {
        let text = format!(
            "cannot use {}/{name} as the journal: {difference}, so lads did not create it; check \
             which program did, remove it, and run the same command again",
            self.target
        );
        Fatal::new(ExitCode::SinkRefuses, text)
    }

    fn failed(&self, errno: Errno) -> Fatal {
        refused(&format!("cannot write to {} (journal {})", self.target, self.name), errno)
    }

    fn broken(&self, error: &std::io::Error) -> Fatal {
        let text = format!("cannot use the journal {}/{}", self.target, self.name);
        match Errno::from_io_error(error) {
            Some(errno) => refused(&text, errno),
            None => Fatal::new(ExitCode::SinkRefuses, format!("{text}: {error}")),
        }
    }
}

/// The state of a journal that was found.
pub(crate) enum Leftover {
    /// A running transfer holds it.
    InUse,
    /// Nobody holds it. It stays locked until this is dropped, where the file system has locks.
    Stale(OwnedFd),
    /// It is not ours; the text says in what it differs.
    NotOurs(String),
    /// It does not exist any more.
    Gone,
}

/// Looks at a journal, whichever command left it, and locks it if it is not in use.
pub(crate) fn look_at_journal(root: &OwnedFd, name: &[u8]) -> Result<Leftover, Errno> {
    let own = Own::usual();
    // Checked before it is opened: opening a device may have an effect.
    let seen = match statat(root, name, NOT_THROUGH_LINKS) {
        Ok(stat) => own.difference(&stat),
        Err(Errno::NOENT) => return Ok(Leftover::Gone),
        Err(errno) => return Err(errno),
    };
    if let Some(difference) = seen {
        return Ok(Leftover::NotOurs(difference));
    }
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match openat(root, name, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(Leftover::Gone),
        Err(errno) => return Err(errno),
    };
    if let Some(difference) = own.difference(&fstat(&file)?) {
        return Ok(Leftover::NotOurs(difference));
    }
    match try_lock(&file)? {
        Lock::Theirs => Ok(Leftover::InUse),
        Lock::Ours if is_named(root, name, &file)? => Ok(Leftover::Stale(file)),
        // Its transfer has finished, or another has begun, meanwhile. Another look would find a
        // different file.
        Lock::Ours => Ok(Leftover::InUse),
        // Without locks, a journal whose process is about to begin looks the same as one whose
        // process was killed.
        Lock::Missing(_) => {
            let holder = log::read(&file).ok().and_then(|replay| replay.holder);
            let has_ended = holder.is_some_and(|it| holder::state_of(&it) == State::Ended);
            Ok(if has_ended { Leftover::Stale(file) } else { Leftover::InUse })
        }
    }
}

fn try_lock(file: impl AsFd) -> Result<Lock, Errno> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Lock::Ours),
        Err(Errno::WOULDBLOCK) => Ok(Lock::Theirs),
        Err(errno @ (Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK)) => Ok(Lock::Missing(errno)),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests;
