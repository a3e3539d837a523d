//! What is under an entry's name at the sink, and what is done about it before any data comes.

use super::{Place, SinkEnd, failed, is_file, journal_failed};
use crate::event::ExitCode;
use crate::hub::Fatal;
use crate::journal::Journal;
use crate::layout;
use crate::metadata::{apply, apply_at, differs, make_usable, mtime_of};
use crate::paths::{Directory, NOT_THROUGH_LINKS, open_named, parent_of};
use crate::sink::table::Item;
use crate::sink::write::reopen_temporary;
use lads_core::entry::{Entry, Kind};
use lads_core::issue::{Failure, Operation, Reason, Side};
use lads_core::journal::BlockRecord;
use lads_core::layout::Layout;
use lads_core::message::{Answer, Root};
use lads_core::placement::{self, STRIPE_BYTES_MIN};
use lads_core::sink::{Event, Examined};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, fsync, linkat, mkdirat, mknodat, openat,
    readlinkat, renameat, statat, symlinkat, syncfs, unlinkat,
};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

impl SinkEnd {
    /// Finds the directory into which everything goes, by rsync's rules, and makes it if need be.
    pub(super) fn open_place(&self, roots: &[Root]) -> Result<Place, Fatal> {
        let target = self.target.as_slice();
        let there = statat(CWD, named(target), AtFlags::empty());
        let is_directory = there
            .as_ref()
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory);
        let single = match roots {
            [root] if !root.is_directory && !target.ends_with(b"/") => Some(root),
            _ => None,
        };
        if is_directory {
            return self.open_root(target, None, false);
        }
        match (&there, single) {
            (Ok(_), None) => Err(Fatal::new(
                ExitCode::SinkRefuses,
                format!(
                    "the target {} is a file, and what is to be moved needs a directory",
                    String::from_utf8_lossy(target)
                ),
            )),
            (Ok(_) | Err(Errno::NOENT), Some(_)) => {
                let cut = target.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
                self.open_root(&target[..cut], Some(target[cut..].to_vec()), false)
            }
            (Err(Errno::NOENT), None) if self.options.dry_run => self.open_root(b"/", None, true),
            (Err(Errno::NOENT), None) => {
                mkdirat(CWD, named(target), Mode::RWXU | Mode::RWXG | Mode::RWXO)
                    .map_err(|errno| self.cannot("make the target directory", target, errno))?;
                sync_name(target)
                    .map_err(|errno| self.cannot("make durable the directory of", target, errno))?;
                let place = self.open_root(target, None, false)?;
                let _ = place.root.was_made.set(());
                Ok(place)
            }
            (Err(errno), _) => Err(self.cannot("examine the target", target, *errno)),
        }
    }

    fn open_root(
        &self,
        path: &[u8],
        renamed: Option<Vec<u8>>,
        is_missing: bool,
    ) -> Result<Place, Fatal> {
        let handle =
            open_named(path).map_err(|e| self.cannot("open the target directory", path, e))?;
        let root = Directory::root(handle);
        let handle = root.open().map_err(|e| self.cannot("open the target directory", path, e))?;
        let has_file = self.options.journal && !self.options.dry_run;
        let target = self.place_name(path);
        let journal = Journal::open(handle, &target, self.job_key, has_file)?;
        let root_metadata = Mutex::default();
        Ok(Place { root, journal, renamed, root_metadata, is_missing })
    }

    fn cannot(&self, what: &str, path: &[u8], errno: Errno) -> Fatal {
        let place = self.place_name(path);
        Fatal::new(ExitCode::SinkRefuses, format!("cannot {what} {place}: {errno}"))
    }

    fn place_name(&self, path: &[u8]) -> String {
        format!("sink:{}:{}", self.board.own_host, String::from_utf8_lossy(named(path)))
    }

    /// Looks at entries, makes what needs no data, and tells what becomes of each.
    pub(super) fn examine_all(&self, entries: Vec<Entry>) {
        let results = entries
            .into_iter()
            .map(|entry| {
                let examined = match self.table.get(entry.id) {
                    Some(item) => self.examine(&entry, &item),
                    None => Err(parent_failed()),
                };
                let examined =
                    examined.unwrap_or_else(|failure| Examined::Answer(Answer::Failed(failure)));
                let stays = matches!(examined, Examined::Want { .. }) || entry.is_directory();
                if !stays {
                    self.table.remove(entry.id);
                }
                (entry.id, examined)
            })
            .collect();
        self.tell(Event::Examined(results));
    }

    fn examine(&self, entry: &Entry, item: &Item) -> Result<Examined, Failure> {
        let directory = item.directory.as_ref().ok_or_else(parent_failed)?;
        if let Kind::Directory = entry.kind {
            return self.examine_directory(item);
        }
        if self.place().is_missing {
            return Ok(Examined::Answer(Answer::Would));
        }
        let handle = match directory.open() {
            Ok(handle) => handle,
            Err(Errno::NOENT) if self.options.dry_run => {
                return Ok(Examined::Answer(Answer::Would));
            }
            Err(_) => return Err(parent_failed()),
        };
        let there = match statat(&handle, item.name.as_slice(), NOT_THROUGH_LINKS) {
            Ok(stat) => Some(stat),
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(failed(Operation::Examine, errno)),
        };
        let in_the_way =
            there.is_some_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory);
        if in_the_way {
            return Err(Failure::new(Side::Sink, Operation::Create, Reason::InTheWay));
        }
        if is_file(&entry.kind) {
            return self.examine_file(item, &handle, there.as_ref());
        }
        self.examine_other(entry, item, &handle, there.as_ref())
    }

    fn examine_directory(&self, item: &Item) -> Result<Examined, Failure> {
        let own = item.own.as_ref().ok_or_else(parent_failed)?;
        let opened = if self.place().is_missing { Err(Errno::NOENT) } else { own.open() };
        let answer = match opened {
            Ok(_) if own.was_made.get().is_some() => Answer::Made,
            Ok(_) if self.options.dry_run => Answer::Have,
            Ok(handle) => {
                make_usable(&handle).map_err(|errno| failed(Operation::SetMetadata, errno))?;
                Answer::Have
            }
            Err(Errno::NOENT) if self.options.dry_run => Answer::Would,
            Err(errno) => return Err(failed(Operation::Create, errno)),
        };
        Ok(Examined::Answer(answer))
    }

    fn examine_file(
        &self,
        item: &Item,
        handle: &OwnedFd,
        there: Option<&Stat>,
    ) -> Result<Examined, Failure> {
        let identity = item.identity.expect("files are announced with it");
        let is_same = there.is_some_and(|stat| {
            FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
                && u64::try_from(stat.st_size) == Ok(identity.size)
                && mtime_of(stat) == identity.mtime
        });
        if is_same && !self.options.ignores_times {
            if !self.options.dry_run {
                self.mend_metadata(item, handle)?;
            }
            return Ok(Examined::Answer(Answer::Have));
        }
        if self.options.dry_run {
            return Ok(Examined::Answer(Answer::Would));
        }
        let done = self.left_from_before(item, handle)?;
        let layout = self.place_file(item, handle, &done)?;
        Ok(Examined::Want { done, layout })
    }

    /// Where the file will lie: where it lies already, or where there is most to be said for.
    fn place_file(
        &self,
        item: &Item,
        directory: &OwnedFd,
        done: &[BlockRecord],
    ) -> Result<Layout, Failure> {
        let path = item.path();
        let size = item.identity.map_or(0, |identity| identity.size);
        // Of a file that gets one stripe in any case it need not be known.
        let unplaced_bytes = match size {
            0..=STRIPE_BYTES_MIN => size,
            _ => self.hub.with(|inner| inner.session.unplaced_bytes()),
        };
        let new_file = placement::NewFile { size, unplaced_bytes, source: item.striping };
        // What comes with the wish stands for the file until it is counted where it is.
        let (wish, _waiting) = self.placing.wish(&new_file, self.layouts.as_ref(), || {
            let now = self.clock.now();
            self.hub.with(|inner| inner.session.slowness(now).collect())
        });
        let file = layout::NewFile {
            directory,
            name: &self.place().journal.temporary_name(&path),
            number: self.new_file_count.fetch_add(1, Ordering::Relaxed),
            size,
            wish: &wish,
            is_there: item.goes_on.get().is_some(),
        };
        let placed =
            self.layouts.of_new_file(&file).map_err(|errno| failed(Operation::Create, errno))?;
        item.is_made.store(placed.is_made, Ordering::Relaxed);
        let outstanding = self.placing.on_placed(&placed, size, &path, &self.board);
        for block in done {
            outstanding.on_written(placed.layout.ost_at(block.offset), u64::from(block.length));
        }
        // A file is examined once.
        let _ = item.outstanding.set(outstanding);
        Ok(placed.layout)
    }

    /// Blocks that an earlier attempt left, if the source file is still the same and the temporary
    /// file still there.
    fn left_from_before(&self, item: &Item, handle: &OwnedFd) -> Result<Vec<BlockRecord>, Failure> {
        let journal = &self.place().journal;
        let path = item.path();
        let identity = item.identity.expect("files are announced with it");
        let Some(begun) = journal.take_begun(&path) else {
            journal.settle().map_err(|error| journal_failed(&error))?;
            return Ok(Vec::new());
        };
        let name = journal.temporary_name(&path);
        let is_there = reopen_temporary(handle, &name, identity.size).is_some();
        if is_there && begun.identity == identity {
            let _ = item.goes_on.set(());
            return Ok(begun.blocks);
        }
        journal.forget_durably(&path).map_err(|error| journal_failed(&error))?;
        Ok(Vec::new())
    }

    /// The data is the same; the metadata is made so.
    fn mend_metadata(&self, item: &Item, handle: &OwnedFd) -> Result<(), Failure> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(handle, item.name.as_slice(), flags, Mode::empty()) {
            Ok(file) => file,
            // Not readable for us; then its metadata is not ours to set, either.
            Err(Errno::ACCESS) => return Ok(()),
            Err(errno) => return Err(failed(Operation::Examine, errno)),
        };
        let mend = || {
            let stat = fstat(&file)?;
            let differs = differs(&file, &stat, &item.metadata, &self.options);
            if differs {
                apply(&file, &stat, &item.metadata, &self.options, true)?;
            }
            Ok(differs)
        };
        if mend().map_err(|errno| failed(Operation::SetMetadata, errno))? {
            fsync(&file).map_err(|errno| failed(Operation::Sync, errno))?;
        }
        Ok(())
    }

    /// Links and specials, which have no data and are made here.
    fn examine_other(
        &self,
        entry: &Entry,
        item: &Item,
        handle: &OwnedFd,
        there: Option<&Stat>,
    ) -> Result<Examined, Failure> {
        let is_same = self
            .is_same_other(entry, item, handle, there)
            .map_err(|errno| failed(Operation::Examine, errno))?;
        let answer = match (is_same, self.options.dry_run) {
            (true, true) => Answer::Have,
            (false, true) => Answer::Would,
            (true, false) if matches!(entry.kind, Kind::HardLink { .. }) => Answer::Have,
            (true, false) => {
                let is_link = matches!(entry.kind, Kind::Symlink { .. });
                apply_at(handle, &item.name, is_link, &item.metadata, &self.options)
                    .map_err(|errno| failed(Operation::SetMetadata, errno))?;
                Answer::Have
            }
            (false, false) => {
                self.make_other(entry, item, handle)
                    .map_err(|errno| failed(Operation::Create, errno))?;
                Answer::Made
            }
        };
        Ok(Examined::Answer(answer))
    }

    fn is_same_other(
        &self,
        entry: &Entry,
        item: &Item,
        handle: &OwnedFd,
        there: Option<&Stat>,
    ) -> Result<bool, Errno> {
        let Some(stat) = there else { return Ok(false) };
        let file_type = FileType::from_raw_mode(stat.st_mode);
        Ok(match &entry.kind {
            Kind::Symlink { target } => {
                file_type == FileType::Symlink
                    && readlinkat(handle, item.name.as_slice(), Vec::new())?.as_bytes() == *target
            }
            Kind::HardLink { target } => {
                let (directory, name) = match parent_of(&self.place().root, target) {
                    // A dry run has not made it.
                    Err(Errno::NOENT) => return Ok(false),
                    found => found?,
                };
                statat(&directory, name, NOT_THROUGH_LINKS)
                    .is_ok_and(|other| (other.st_dev, other.st_ino) == (stat.st_dev, stat.st_ino))
            }
            Kind::Special { file_type: wanted, device } => {
                file_type == FileType::from_raw_mode(*wanted)
                    && (*device == 0 || stat.st_rdev == *device)
            }
            Kind::File { .. } | Kind::Directory => false,
        })
    }

    /// Makes it under a temporary name and renames it, so that what was there is replaced at once.
    fn make_other(&self, entry: &Entry, item: &Item, handle: &OwnedFd) -> Result<(), Errno> {
        let temporary = self.place().journal.temporary_name(&item.path());
        let temporary = temporary.as_str();
        match unlinkat(handle, temporary, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
        let made = self
            .make_temporary_other(entry, item, handle, temporary)
            .and_then(|()| renameat(handle, temporary, handle, item.name.as_slice()));
        if made.is_err() {
            let _ = unlinkat(handle, temporary, AtFlags::empty());
        }
        made
    }

    fn make_temporary_other(
        &self,
        entry: &Entry,
        item: &Item,
        handle: &OwnedFd,
        temporary: &str,
    ) -> Result<(), Errno> {
        match &entry.kind {
            Kind::Symlink { target } => symlinkat(target.as_slice(), handle, temporary)?,
            Kind::HardLink { target } => {
                let (directory, name) = parent_of(&self.place().root, target)?;
                linkat(&directory, name, handle, temporary, AtFlags::empty())?;
            }
            Kind::Special { file_type, device } => {
                let file_type = FileType::from_raw_mode(*file_type);
                let mode = Mode::RUSR | Mode::WUSR;
                mknodat(handle, temporary, file_type, mode, *device)?;
            }
            Kind::File { .. } | Kind::Directory => return Err(Errno::INVAL),
        }
        let is_link = matches!(entry.kind, Kind::Symlink { .. });
        if !matches!(entry.kind, Kind::HardLink { .. }) {
            apply_at(handle, temporary.as_bytes(), is_link, &item.metadata, &self.options)?;
        }
        Ok(())
    }
}

/// Makes the name of a directory that a person named durable in the directory above.
fn sync_name(path: &[u8]) -> Result<(), Errno> {
    let end = path.iter().rposition(|&byte| byte != b'/').map_or(0, |at| at + 1);
    let cut = path[..end].iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
    match open_named(&path[..cut]) {
        // One may be permitted to make names in a directory and not to open it.
        Err(Errno::ACCESS) => syncfs(open_named(path)?),
        above => fsync(above?),
    }
}

fn named(path: &[u8]) -> &[u8] {
    if path.is_empty() { b"." } else { path }
}

fn parent_failed() -> Failure {
    Failure::new(Side::Sink, Operation::Create, Reason::ParentFailed)
}
