//! Removes what is at the sink and not at the source, as the very last step of a transfer.
//!
//! It goes through the directories that were moved, as they are at the sink, and asks the source
//! which of the names in them it has, some hundred at a time; the session numbers the questions and
//! says how many may be open. A name without an answer is never removed, nor are LADS's own files.
//! Every name is looked up in a directory that is held open and no link is followed, so nothing
//! outside the target is reached; what is mounted below it is not gone into when its directory is
//! to be removed.

mod tree;

pub(super) use tree::is_mount_point;

use super::usable::open_usable;
use super::{SinkEnd, failed};
use crate::hub::Waiter;
use crate::metadata::{Handle, set_mtime};
use crate::paths::{Directory, Making, NOT_THROUGH_LINKS, sync_names};
use crate::stat::mtime_of;
use lads_core::entry::{PATH_BYTES_MAX, is_own_name};
use lads_core::filter::is_included;
use lads_core::issue::{Failure, Operation, Reason, Side};
use lads_core::limits::QUESTION_NAMES_MAX;
use lads_core::message::{Line, Message, Presence, Verb};
use lads_core::sink::{Event, Permission, Sink};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, Stat, fstat, openat, statat, unlinkat};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the source is told how much has been removed, so that it does not take the sink for
/// stuck. Far below any such limit; twice as often would only cost messages.
const TOLD_INTERVAL: Duration = Duration::from_secs(1);

impl SinkEnd {
    /// Removes what the source does not have, if that is permitted.
    pub(super) fn remove_what_is_not_there(&self, is_permitted: bool) {
        if is_permitted {
            Removal::new(self).run();
        } else {
            self.board.notice(
                "nothing was deleted at the sink, because of failures: the same command deletes \
                 when nothing fails; --ignore-errors deletes in any case"
                    .to_owned(),
            );
        }
        self.tell(Event::RemovalOver);
    }
}

/// A name in a directory, and whether it is a directory itself.
#[derive(Clone, Debug)]
struct Name {
    name: Vec<u8>,
    is_directory: bool,
}

/// Names that the source was asked about.
struct Asked {
    directory: Arc<Directory>,
    names: Vec<Name>,
}

/// Nothing more is to be removed.
pub(super) struct Stopped;

/// What is removed, and how far that has come.
pub(super) struct Removal<'a> {
    end: &'a SinkEnd,
    /// The file system of the root, if no other is to be touched.
    device: Option<u64>,
    /// Directories that have still to be gone through.
    pending: Vec<Arc<Directory>>,
    asked: HashMap<u64, Asked>,
    /// When the source was last told how much has been removed; `None` before everything else has
    /// ended, when it must not be told.
    told_at: Option<Instant>,
    /// Directories that stay although the source does not have them, because of what is in them.
    kept_count: u64,
}

impl<'a> Removal<'a> {
    pub(super) fn new(end: &'a SinkEnd) -> Self {
        Self {
            end,
            device: None,
            pending: Vec::new(),
            asked: HashMap::new(),
            told_at: None,
            kept_count: 0,
        }
    }

    /// Removes everything in the directory with this name; returns `false` if something stays.
    pub(super) fn remove_contents_of(
        &mut self,
        directory: &Arc<Directory>,
        name: &[u8],
    ) -> Result<bool, Stopped> {
        self.remove_contents(directory, &Name { name: name.to_vec(), is_directory: true })
    }

    fn run(mut self) {
        self.told_at = Some(Instant::now());
        let place = self.end.place();
        if !place.is_missing {
            // What was removed so far is told, even if the transfer was stopped.
            let _ = self.go_through_all();
        }
        if self.kept_count > 0 {
            self.end.board.notice(format!(
                "directories that the source does not have, but that were not deleted: {}, because \
                 they contain excluded entries (--exclude) or files of a transfer of LADS",
                self.kept_count
            ));
        }
    }

    fn go_through_all(&mut self) -> Result<(), Stopped> {
        let place = self.end.place();
        if self.end.options.one_file_system {
            self.device = place.root.open().and_then(|it| fstat(&*it)).ok().map(|it| it.st_dev);
        }
        if place.sources.iter().any(|root| root.is_contents_only) {
            self.pending.push(Arc::clone(&place.root));
        } else {
            // A directory that is left out is not moved, so it is not listed here, either.
            let filters = &self.end.options.filters;
            let is_moved = |name: &[u8]| !is_own_name(name) && is_included(filters, name, true);
            let directories = place.sources.iter().filter(|it| it.is_directory);
            let names: HashSet<&[u8]> = directories.map(|it| it.name.as_slice()).collect();
            let moved = names.into_iter().filter(|name| is_moved(name));
            self.pending.extend(moved.map(|name| place.root.child(name, Making::Never)));
        }
        loop {
            while let Some(directory) = self.pending.pop() {
                self.go_through(&directory)?;
                while self.take_answer()? {}
            }
            if self.asked.is_empty() {
                return Ok(());
            }
            self.wait(Sink::has_answer)?;
            while self.take_answer()? {}
        }
    }

    /// Asks for all names in a directory.
    fn go_through(&mut self, directory: &Arc<Directory>) -> Result<(), Stopped> {
        let path = directory.path();
        if path.len() > PATH_BYTES_MAX {
            self.failed(&path, Failure::new(Side::Sink, Operation::Remove, Reason::TooDeep));
            return Ok(());
        }
        let handle = match directory.open() {
            Ok(handle) => handle,
            // A dry run has not made it, or it was passed over, or its failure is told already.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            Err(errno) => {
                self.failed(&path, failed(Operation::List, errno));
                return Ok(());
            }
        };
        if !self.is_on_device(&handle) {
            return Ok(());
        }
        let listed = self.ask_for_names(directory, &handle)?;
        if let Err(errno) = listed {
            self.failed(&path, failed(Operation::List, errno));
        }
        Ok(())
    }

    fn is_on_device(&self, handle: &OwnedFd) -> bool {
        self.device.is_none_or(|device| fstat(handle).is_ok_and(|stat| stat.st_dev == device))
    }

    fn ask_for_names(
        &mut self,
        directory: &Arc<Directory>,
        handle: &OwnedFd,
    ) -> Result<Result<(), Errno>, Stopped> {
        let listing = match self.open_listing(directory, handle) {
            Ok(listing) => listing,
            Err(errno) => return Ok(Err(errno)),
        };
        let mut buffer = Vec::with_capacity(32 << 10);
        let mut entries: RawDir<'_, _> = RawDir::new(&listing, buffer.spare_capacity_mut());
        let mut names = Vec::new();
        while let Some(entry) = entries.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(errno) => return Ok(Err(errno)),
            };
            let name = entry.file_name().to_bytes();
            let Some(name) = name_of(handle, name, entry.file_type()) else { continue };
            if self.is_protected(directory, &name) {
                continue;
            }
            names.push(name);
            if names.len() == QUESTION_NAMES_MAX {
                self.ask(directory, std::mem::take(&mut names))?;
            }
        }
        if !names.is_empty() {
            self.ask(directory, names)?;
        }
        Ok(Ok(()))
    }

    /// Opens a directory once more, to be listed from its beginning. If its owner is this user and
    /// its mode does not permit that, the mode is changed for a moment.
    fn open_listing(&self, directory: &Arc<Directory>, handle: &OwnedFd) -> Result<OwnedFd, Errno> {
        match open_again(handle) {
            Err(Errno::ACCESS) if !self.end.options.dry_run => {}
            listing => return listing,
        }
        let before = fstat(handle)?;
        let usable = open_usable(directory)?;
        let listing = open_again(&usable);
        put_mode_right(&usable, &before).and(listing)
    }

    /// Whether a name stays whatever the source has: it is LADS's own, or left out.
    fn is_protected(&self, directory: &Directory, name: &Name) -> bool {
        let Name { name, is_directory } = name;
        let options = &self.end.options;
        let removes_excluded = options.deletion.is_some_and(|it| it.excluded);
        is_own_name(name)
            || !removes_excluded
                && !options.filters.is_empty()
                && !is_included(&options.filters, &directory.path_of(name), *is_directory)
    }

    /// Asks the source when it may be asked; acts on answers meanwhile.
    fn ask(&mut self, directory: &Arc<Directory>, names: Vec<Name>) -> Result<(), Stopped> {
        while !self.end.hub.with(|inner| inner.session.may_ask()) {
            self.wait(|session| session.has_answer() || session.may_ask())?;
            while self.take_answer()? {}
        }
        let path = directory.path();
        let bare: Vec<Vec<u8>> = names.iter().map(|name| name.name.clone()).collect();
        let number = self.end.hub.tell(|inner| inner.session.ask(path, bare));
        self.asked.insert(number, Asked { directory: Arc::clone(directory), names });
        Ok(())
    }

    /// Waits until something is so, or the transfer is being stopped, or is over.
    fn wait(&self, is_so: impl Fn(&Sink) -> bool) -> Result<(), Stopped> {
        let found = self.end.hub.wait_for(Waiter::Other, |inner| {
            let session = &inner.session;
            match session.permission() {
                Permission::Stopped => Ok(Err(Stopped)),
                _ if is_so(session) => Ok(Ok(())),
                _ => Err(None),
            }
        });
        found.unwrap_or(Err(Stopped))
    }

    /// Acts on an answer, if one has come.
    fn take_answer(&mut self) -> Result<bool, Stopped> {
        let answer = self.end.hub.with(|inner| inner.session.take_answer());
        let Some((number, answers)) = answer else { return Ok(false) };
        let Some(Asked { directory, names }) = self.asked.remove(&number) else { return Ok(true) };
        let mut extra = Vec::new();
        for (name, presence) in names.into_iter().zip(answers) {
            match presence {
                Presence::Absent => extra.push(name),
                Presence::Directory if name.is_directory => {
                    self.pending.push(directory.child(&name.name, Making::Never));
                }
                Presence::Directory | Presence::Other | Presence::Unknown => {}
            }
        }
        if !extra.is_empty() {
            self.remove_from(&directory, &extra)?;
        }
        Ok(true)
    }

    /// Removes names from a directory that stays. Its mode and time of change are kept.
    fn remove_from(&mut self, directory: &Arc<Directory>, names: &[Name]) -> Result<(), Stopped> {
        let opened = directory.open().and_then(|handle| {
            let stat = fstat(&*handle)?;
            Ok((handle, stat))
        });
        let (handle, before) = match opened {
            Ok(opened) => opened,
            Err(errno) => {
                self.failed(&directory.path(), failed(Operation::Remove, errno));
                return Ok(());
            }
        };
        if self.end.options.dry_run {
            return self.remove_names(directory, names);
        }
        // If this is not permitted, the removal fails, too, and is reported.
        let handle = open_usable(directory).unwrap_or(handle);
        let outcome = self.remove_names(directory, names);
        let put_right = self.put_right(&handle, &before).and_then(|()| sync_names(&handle));
        if let Err(errno) = put_right {
            self.failed(&directory.path(), failed(Operation::SetMetadata, errno));
        }
        outcome
    }

    fn remove_names(&mut self, directory: &Arc<Directory>, names: &[Name]) -> Result<(), Stopped> {
        names.iter().try_for_each(|name| self.remove(directory, name))
    }

    /// Gives a directory the mode and the time of change back that it had.
    fn put_right(&self, handle: &OwnedFd, before: &Stat) -> Result<(), Errno> {
        put_mode_right(handle, before)?;
        if self.end.options.times { set_mtime(handle, mtime_of(before)) } else { Ok(()) }
    }

    /// Whether another entry may be removed. That the limit is reached is told.
    fn see_to_permission(&mut self, path: impl Fn() -> Vec<u8>) -> Result<(), Stopped> {
        let is_due = self.told_at.is_some_and(|told_at| told_at.elapsed() >= TOLD_INTERVAL);
        let (permission, is_over) = self.end.hub.with(|inner| {
            if is_due {
                let count = inner.session.counters().entries_removed;
                inner.push_latest(Message::Removed(count));
            }
            (inner.session.permission(), inner.is_over)
        });
        if is_due {
            self.told_at = Some(Instant::now());
        }
        match permission {
            _ if is_over => Err(Stopped),
            Permission::Granted => Ok(()),
            Permission::Stopped => Err(Stopped),
            Permission::LimitReached => {
                self.failed(&path(), Failure::new(Side::Sink, Operation::Remove, Reason::Limit));
                Err(Stopped)
            }
        }
    }

    /// One entry less.
    fn on_removed(&self, mut path: Vec<u8>, is_directory: bool) {
        self.end.hub.tell(|inner| inner.session.on_removed());
        if self.end.options.listing.has(Verb::Delete) {
            path.extend(is_directory.then_some(b'/'));
            self.end.board.line(Line { verb: Verb::Delete, path, bytes: 0 });
        }
    }

    fn failed(&self, path: &[u8], failure: Failure) {
        self.end.board.issue_when_room(path.to_vec(), failure);
    }
}

/// Gives a directory the mode back that it had.
fn put_mode_right(handle: &OwnedFd, before: &Stat) -> Result<(), Errno> {
    match fstat(handle)?.st_mode == before.st_mode {
        true => Ok(()),
        false => handle.set_mode(Mode::from_raw_mode(before.st_mode)),
    }
}

/// Returns whether a directory has no entries.
pub(super) fn is_empty(above: &OwnedFd, name: &[u8]) -> Result<bool, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let listing = openat(above, name, flags, Mode::empty())?;
    let mut buffer = Vec::with_capacity(4 << 10);
    let mut entries: RawDir<'_, _> = RawDir::new(&listing, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A directory once more, to be listed from its beginning.
fn open_again(handle: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(handle, ".", flags, Mode::empty())
}

/// A name as a listing gave it; `None` for the directory itself, the one above, and what is gone.
fn name_of(handle: &OwnedFd, name: &[u8], file_type: FileType) -> Option<Name> {
    if name == b"." || name == b".." {
        return None;
    }
    let file_type = match file_type {
        FileType::Unknown => {
            FileType::from_raw_mode(statat(handle, name, NOT_THROUGH_LINKS).ok()?.st_mode)
        }
        known => known,
    };
    Some(Name { name: name.to_vec(), is_directory: file_type == FileType::Directory })
}

/// Removes a name that is no directory, or an empty directory. A missing name is no error.
fn unlink(handle: &OwnedFd, name: &Name) -> Result<(), Errno> {
    let flags = if name.is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
    match unlinkat(handle, name.name.as_slice(), flags) {
        Err(Errno::NOENT) => Ok(()),
        result => result,
    }
}
