//! The walk: meets what is to be moved, no faster than it is moved.
//!
//! Depth first, files before directories, so that what is known at a time is the window of entries
//! under way and the names of directories still to come. Nothing is sorted and nothing is read
//! twice.

use super::list::{List, ListPlace};
use super::merge::Level;
use super::table::Item;
use super::{SourceEnd, failed};
use crate::board::Board;
use crate::deeds::Subject;
use crate::event::ExitCode;
use crate::hub::{Fatal, Waiter};
use crate::layout::{FileAt, Mirror};
use crate::metadata::{identity_of, metadata_of, xattrs_at};
use crate::paths::{Directory, NOT_THROUGH_LINKS, open_named, open_unnoticed};
use lads_core::entry::{Entry, Kind, Metadata, is_own_name, shortened};
use lads_core::filter::is_included;
use lads_core::issue::{Failure, Operation, Reason, Side};
use lads_core::layout::Layout;
use lads_core::limits::DEPTH_MAX;
use lads_core::pass::Pass;
use lads_core::plan::align_data;
use lads_core::range::RangeSet;
use lads_core::source::{Event, Found, LinkName};
use lads_core::units::{EntryId, OstId};
use rustix::fd::OwnedFd;
use rustix::fs::{
    FileType, Mode, OFlags, RawDir, SeekFrom, Stat, fstat, openat, readlinkat, seek, statat,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

/// Entries told to the session in one go.
pub(super) const BATCH: usize = 64;
/// A file with more stretches of data than this is sent as if it had no holes behind them.
const DATA_RANGES_MAX: usize = 10_000;
const BLOCK_BYTES_OF_STAT: u64 = 512;

/// Something named on the command line.
#[derive(Debug)]
pub(crate) struct WalkRoot {
    given: Vec<u8>,
    /// The directory in which the name is looked up; the named directory itself for its contents.
    pub(super) directory: Arc<Directory>,
    pub(super) name: Vec<u8>,
    pub(super) is_directory: bool,
    pub(super) is_contents_only: bool,
}

impl WalkRoot {
    pub(super) fn os_path(&self) -> PathBuf {
        PathBuf::from(OsStr::from_bytes(&self.given))
    }
}

/// Looks up what was named. What is not there is told, each as an entry that failed; it is an error
/// only if nothing is left.
pub(super) fn find_roots(
    paths: &[Vec<u8>],
    is_list: bool,
    board: &Board,
) -> Result<Vec<WalkRoot>, Fatal> {
    let mut roots = Vec::new();
    let mut absent = Vec::new();
    for path in paths {
        match find_root(path, is_list) {
            Ok(root) => roots.push(root),
            Err(errno) => absent.push((path, errno)),
        }
    }
    for (path, errno) in &absent {
        board.issue((*path).clone(), missing(*errno));
    }
    if roots.is_empty() && !absent.is_empty() {
        let text = "there is nothing to move: nothing that was named as a source can be examined";
        return Err(Fatal::new(ExitCode::SourceUnreadable, text));
    }
    Ok(roots)
}

/// The failure of something that a person named.
fn missing(errno: Errno) -> Failure {
    Failure::new(Side::Source, Operation::Examine, Reason::Os(errno.raw_os_error()))
}

fn find_root(path: &[u8], is_list: bool) -> Result<WalkRoot, Errno> {
    let trimmed = path.trim_suffix_slashes();
    let last = trimmed.rsplit(|&byte| byte == b'/').next().unwrap_or(b"");
    let is_contents_only = is_list || path.ends_with(b"/") || matches!(last, b"" | b"." | b"..");
    if is_contents_only {
        let directory = Directory::root(open_named(path)?);
        let given = path.to_vec();
        let name = b".".to_vec();
        return Ok(WalkRoot { given, directory, name, is_directory: true, is_contents_only });
    }
    let parent = &trimmed[..trimmed.len() - last.len()];
    let directory = Directory::root(open_named(parent)?);
    let stat = statat(directory.open()?, last, NOT_THROUGH_LINKS)?;
    let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    let (given, name) = (path.to_vec(), last.to_vec());
    Ok(WalkRoot { given, directory, name, is_directory, is_contents_only })
}

trait TrimSlashes {
    fn trim_suffix_slashes(&self) -> &[u8];
}

impl TrimSlashes for [u8] {
    fn trim_suffix_slashes(&self) -> &[u8] {
        let count = self.iter().rev().take_while(|&&byte| byte == b'/').count();
        &self[..self.len() - count]
    }
}

/// A directory that the walk has still to list.
struct Pending {
    /// Where it will be looked up; in several if several sources have one of its name.
    above: Vec<Arc<Directory>>,
    parent: EntryId,
    name: Vec<u8>,
    /// If only what is named in a list is moved: where this directory is in it.
    listed: Option<ListPlace>,
}

/// The walk over all that was named.
pub(super) struct Walk<'a> {
    end: &'a SourceEnd,
    /// What was named on the command line.
    top: Arc<Level>,
    /// Whether it was told that several sources have something of the same name.
    has_told_of_others: bool,
    events: Vec<Event>,
    items: Vec<(EntryId, Arc<Item>)>,
    /// The paths that were listed, if only those are moved.
    list: List,
    left_out: LeftOut,
    /// Whether what is met was named by a list, not found in its directory.
    meets_named: bool,
}

/// Names that were left out because they look like our own.
#[derive(Default)]
struct LeftOut {
    count: u64,
    /// The path of the first below the root.
    first: Vec<u8>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(end: &'a SourceEnd) -> Self {
        Self {
            end,
            top: Arc::clone(&end.top),
            has_told_of_others: false,
            events: Vec::new(),
            items: Vec::new(),
            list: List::default(),
            left_out: LeftOut::default(),
            meets_named: false,
        }
    }

    /// Walks until everything was met or the transfer is over.
    pub(super) fn run(mut self) {
        if self.walk().is_some() {
            self.tell_left_out();
            self.events.push(Event::WalkEnded);
            self.flush();
        }
    }

    /// `None` when the transfer is over before the walk is.
    fn walk(&mut self) -> Option<()> {
        let end = self.end;
        if let Some(paths) = &end.options.files_from {
            return self.walk_list(end.roots.first()?, paths);
        }
        let mut stack = Vec::new();
        let top = Arc::clone(&self.top);
        let contents: Vec<_> = top.whole().map(|it| Arc::clone(top.directory(it))).collect();
        if !contents.is_empty() {
            let (parent, name) = (EntryId::ROOT, b".".to_vec());
            stack.push(Pending { above: contents, parent, name, listed: None });
        }
        for (index, root) in end.roots.iter().enumerate() {
            if !root.is_contents_only {
                self.meet(&top, index, EntryId::ROOT, &root.name, None, &mut stack)?;
            }
        }
        let count = stack.len() as u64;
        self.events.push(Event::Listed { directory: EntryId::ROOT, subdirectory_count: count });
        stack.reverse();
        self.walk_stack(stack)
    }

    /// Moves only what is listed: each path with the directories that it lies in.
    fn walk_list(&mut self, root: &WalkRoot, paths: &[Vec<u8>]) -> Option<()> {
        paths.iter().for_each(|path| self.list.add(path));
        let pending = Pending {
            above: vec![Arc::clone(&root.directory)],
            parent: EntryId::ROOT,
            name: b".".to_vec(),
            listed: self.list.unless_whole(ListPlace::ROOT),
        };
        self.events.push(Event::Listed { directory: EntryId::ROOT, subdirectory_count: 1 });
        self.walk_stack(vec![pending])
    }

    fn walk_stack(&mut self, mut stack: Vec<Pending>) -> Option<()> {
        while let Some(pending) = stack.pop() {
            self.enter(&pending, &mut stack)?;
        }
        self.wait_and_flush()
    }

    /// Announces a directory and meets what is in it; its directories go onto the stack.
    fn enter(&mut self, pending: &Pending, stack: &mut Vec<Pending>) -> Option<()> {
        let Some((entry, directories)) = self.announce_directory(pending)? else {
            return Some(());
        };
        let is_top = pending.name == b".";
        let level = match is_top {
            true => Arc::clone(&self.top),
            false => Level::below(self.entered(pending, directories)).into(),
        };
        let first = stack.len();
        let event = match pending.listed {
            Some(place) => self.meet_listed(&level, entry, place, stack)?,
            None => self.meet_all(&level, entry, stack)?,
        };
        let event = match event {
            Ok(()) => {
                stack[first..].reverse();
                let subdirectory_count = (stack.len() - first) as u64;
                Event::Listed { directory: entry, subdirectory_count }
            }
            Err(errno) => {
                stack.truncate(first);
                self.on_not_listed(pending);
                let failure = failed(Operation::List, errno);
                Event::NotListed { directory: entry, failure }
            }
        };
        self.events.push(event);
        self.flush_if_full()
    }

    /// Not all names in a directory are known: nothing may be removed there.
    fn on_not_listed(&self, pending: &Pending) {
        let path = match pending.name.as_slice() {
            b"." => Vec::new(),
            name => pending.above[0].path_of(name),
        };
        self.end.lookup.on_not_listed(path);
    }

    /// Of the directories of this name, those that are gone into.
    fn entered(&self, pending: &Pending, directories: Vec<Arc<Directory>>) -> Vec<Arc<Directory>> {
        if self.end.options.deletion.is_some() {
            for (directory, above) in directories.iter().zip(&pending.above) {
                self.end.lookup.on_entered(above, &pending.name, directory);
            }
        }
        // What a person named is gone into whatever it is mounted on.
        if !self.end.options.one_file_system || pending.parent == EntryId::ROOT {
            return directories;
        }
        let both = directories.into_iter().zip(&pending.above);
        both.filter(|(directory, above)| is_one_file_system(above, directory))
            .map(|(directory, _)| directory)
            .collect()
    }

    /// Meets what a list names in a directory.
    fn meet_listed(
        &mut self,
        level: &Level,
        entry: EntryId,
        place: ListPlace,
        stack: &mut Vec<Pending>,
    ) -> Option<Result<(), Errno>> {
        self.meets_named = true;
        for (name, below) in self.list.names_in(place) {
            let listed = self.list.unless_whole(below);
            self.meet(level, 0, entry, &name, listed, stack)?;
        }
        self.meets_named = false;
        Some(Ok(()))
    }

    /// Meets everything in the directories that are one at the sink; the inner error is one of
    /// listing them.
    fn meet_all(
        &mut self,
        level: &Level,
        entry: EntryId,
        stack: &mut Vec<Pending>,
    ) -> Option<Result<(), Errno>> {
        for index in level.whole() {
            if let Err(errno) = self.meet_all_of(level, index, entry, stack)? {
                return Some(Err(errno));
            }
        }
        Some(Ok(()))
    }

    fn meet_all_of(
        &mut self,
        level: &Level,
        index: usize,
        entry: EntryId,
        stack: &mut Vec<Pending>,
    ) -> Option<Result<(), Errno>> {
        let (end, directory) = (self.end, level.directory(index));
        let deeds = &end.hub.deeds;
        let ask = || deeds.begin(Operation::List, Subject::In(Arc::clone(directory)), None);
        let mut asked = ask();
        let handle = match self.listing(directory) {
            Ok(handle) => handle,
            Err(errno) => return Some(Err(errno)),
        };
        let mut buffer = Vec::with_capacity(32 << 10);
        let mut names: RawDir<'_, _> = RawDir::new(&handle, buffer.spare_capacity_mut());
        while let Some(name) = names.next() {
            drop(asked);
            let name = match name {
                Ok(name) => name,
                Err(errno) => return Some(Err(errno)),
            };
            let name = name.file_name().to_bytes();
            if name != b"." && name != b".." {
                self.meet(level, index, entry, name, None, stack)?;
            }
            asked = ask();
        }
        Some(Ok(()))
    }

    /// A handle to list a directory with; in a comparison one that leaves no trace.
    fn listing(&self, directory: &Arc<Directory>) -> Result<Arc<OwnedFd>, Errno> {
        let handle = directory.open()?;
        if !self.end.options.check {
            return Ok(handle);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        open_unnoticed(&*handle, c".", flags).map(Arc::new)
    }

    /// Looks at a directory and announces it; `Some(None)` if it cannot be opened. Of several of
    /// one name, it is like the first.
    fn announce_directory(
        &mut self,
        pending: &Pending,
    ) -> Option<Option<(EntryId, Vec<Arc<Directory>>)>> {
        let Pending { above: all_above, parent, name, .. } = pending;
        let above = &all_above[0];
        let id = self.end.table.new_id();
        let item = Item::new(Arc::clone(above), *parent, name.clone());
        self.items.push((id, Arc::new(item)));
        let is_top = name == b".";
        let open =
            |it: &Arc<Directory>| if is_top { Arc::clone(it) } else { it.child(name, false) };
        let directories: Vec<_> = all_above.iter().map(open).collect();
        let end = self.end;
        let in_directory = Subject::In(Arc::clone(above));
        let asked = end.hub.deeds.begin(Operation::Examine, in_directory, None);
        let metadata = look_at_directory(end, above, name, directories[0].depth());
        drop(asked);
        let metadata = match metadata {
            Ok(metadata) => metadata,
            Err(failure) => {
                self.on_not_listed(pending);
                self.unreadable(id, *parent, true, failure);
                self.flush_if_full()?;
                return Some(None);
            }
        };
        let (parent, name) = (*parent, name.clone());
        let entry = Entry { id, parent, name, kind: Kind::Directory, metadata };
        self.found(Found::new(entry));
        match directories[0].open() {
            Ok(_) => Some(Some((id, directories))),
            Err(errno) => {
                self.on_not_listed(pending);
                let failure = failed(Operation::List, errno);
                self.events.push(Event::NotListed { directory: id, failure });
                self.flush_if_full()?;
                Some(None)
            }
        }
    }

    /// Looks at a name: directories go onto the stack, anything else is told to the session.
    fn meet(
        &mut self,
        level: &Level,
        index: usize,
        parent: EntryId,
        name: &[u8],
        listed: Option<ListPlace>,
        stack: &mut Vec<Pending>,
    ) -> Option<()> {
        let end = self.end;
        let directory = level.directory(index);
        end.hub.on_move();
        let id = end.table.new_id();
        let in_directory = || Subject::In(Arc::clone(directory));
        let asked = end.hub.deeds.begin(Operation::Examine, in_directory(), None);
        let looked_at = directory.open().and_then(|handle| {
            let stat = statat(&handle, name, NOT_THROUGH_LINKS)?;
            Ok((handle, stat))
        });
        drop(asked);
        let is_directory = looked_at
            .as_ref()
            .is_ok_and(|(_, stat)| FileType::from_raw_mode(stat.st_mode) == FileType::Directory);
        if !self.is_wanted(directory, parent, name, is_directory) {
            return Some(());
        }
        let is_moved = |other: &Directory, is_directory: bool| {
            !is_own_name(name) && self.is_included(other, parent, name, is_directory)
        };
        let Some(above) = level.taken_from(index, name, is_directory, is_moved) else {
            if !is_directory {
                self.tell_of_others(&directory.path_of(name));
            }
            return Some(());
        };
        if is_directory {
            stack.push(Pending { above, parent, name: name.to_vec(), listed });
            return Some(());
        }
        if let Ok((_, stat)) = &looked_at
            && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
            && end.options.passing.is_size_passed(identity_of(stat).size)
        {
            self.keep(id, Item::new(Arc::clone(directory), parent, name.to_vec()));
            self.events.push(Event::Passed { entry: id, parent, pass: Pass::Size });
            return self.flush_if_full();
        }
        let asked = end.hub.deeds.begin(Operation::Examine, in_directory(), None);
        let seen = looked_at.and_then(|(handle, stat)| {
            look(end, directory, &handle, name, &stat).map(|seen| (seen, stat))
        });
        drop(asked);
        let item = Item::new(Arc::clone(directory), parent, name.to_vec());
        match seen {
            Ok((Ok(seen), stat)) => {
                let identity = matches!(seen.kind, Kind::File { .. }).then(|| identity_of(&stat));
                let (link, mirrors) = (seen.link.clone(), Item::mirrors_of(&seen.mirrors));
                self.keep(id, Item { identity, link, mirrors, ..item });
                self.found(seen.found(id, parent, name.to_vec()));
            }
            Ok((Err(failure), _)) => {
                self.keep(id, item);
                self.unreadable(id, parent, false, failure);
            }
            Err(errno) => {
                self.keep(id, item);
                let failure = match errno {
                    // It was in no directory that was listed: it need never have been there.
                    Errno::NOENT if self.meets_named => missing(errno),
                    errno => failed(Operation::Examine, errno),
                };
                self.unreadable(id, parent, false, failure);
            }
        }
        self.flush_if_full()
    }

    fn is_wanted(
        &mut self,
        directory: &Directory,
        parent: EntryId,
        name: &[u8],
        is_directory: bool,
    ) -> bool {
        let is_included = self.is_included(directory, parent, name, is_directory);
        if is_included && is_own_name(name) {
            self.left_out.count += 1;
            if self.left_out.count == 1 {
                self.left_out.first = directory.path_of(name);
            }
            return false;
        }
        is_included
    }

    fn is_included(
        &self,
        directory: &Directory,
        parent: EntryId,
        name: &[u8],
        is_directory: bool,
    ) -> bool {
        let filters = &self.end.options.filters;
        filters.is_empty()
            || parent == EntryId::ROOT && name == b"."
            || is_included(filters, &directory.path_of(name), is_directory)
    }

    /// Tells, once, that something is left out because another source has its name.
    fn tell_of_others(&mut self, path: &[u8]) {
        if !std::mem::replace(&mut self.has_told_of_others, true) {
            let path = shortened(path.to_vec());
            self.end.board.notice(format!(
                "several sources have {}: of each such name, what was named first is moved, or the \
                 directory if one of them is a directory",
                String::from_utf8_lossy(&path)
            ));
        }
    }

    fn keep(&mut self, id: EntryId, item: Item) {
        self.items.push((id, Arc::new(item)));
    }

    fn found(&mut self, found: Found) {
        self.events.push(Event::Found(Box::new(found)));
    }

    fn unreadable(&mut self, entry: EntryId, parent: EntryId, is_counted: bool, failure: Failure) {
        self.events.push(Event::Unreadable { entry, parent, is_counted, failure });
    }

    fn flush_if_full(&mut self) -> Option<()> {
        if self.events.len() < BATCH { Some(()) } else { self.wait_and_flush() }
    }

    /// Tells the session what was met, when it wants more.
    fn wait_and_flush(&mut self) -> Option<()> {
        self.end.hub.wait_for(Waiter::Other, |inner| {
            if inner.session.wants_entries() { Ok(()) } else { Err(None) }
        })?;
        self.flush();
        Some(())
    }

    fn flush(&mut self) {
        self.end.table.insert(self.items.drain(..));
        self.end.tell_all(std::mem::take(&mut self.events));
    }

    fn tell_left_out(&self) {
        let LeftOut { count, first } = &self.left_out;
        if *count > 0 {
            let first = String::from_utf8_lossy(&shortened(first.clone())).into_owned();
            let text = format!(
                "left out at the source, because their names are those of unfinished files and \
                 journals of LADS: {count} (the first: {first})"
            );
            self.end.board.notice(text);
        }
    }
}

/// Whether nothing is mounted on a directory. What cannot be looked at is told when it is listed.
fn is_one_file_system(above: &Arc<Directory>, directory: &Arc<Directory>) -> bool {
    let device = |it: &Arc<Directory>| it.open().and_then(|it| fstat(&*it)).map(|it| it.st_dev);
    match (device(above), device(directory)) {
        (Ok(above), Ok(directory)) => above == directory,
        _ => true,
    }
}

/// What is seen at a name.
struct Seen {
    kind: Kind,
    metadata: Metadata,
    layout: Layout,
    mirrors: Vec<Mirror>,
    data: Option<RangeSet>,
    disk_offset: Option<u64>,
    link: Option<LinkName>,
}

impl Seen {
    fn found(self, id: EntryId, parent: EntryId, name: Vec<u8>) -> Found {
        let Self { kind, metadata, layout, mirrors, data, disk_offset, link } = self;
        let entry = Entry { id, parent, name, kind, metadata };
        let mirrors = mirrors.into_iter().skip(1).map(|it| it.layout).collect();
        Found { layout, mirrors, data, disk_offset, link, ..Found::new(entry) }
    }
}

/// Looks at a directory that would be this many levels below the root.
fn look_at_directory(
    end: &SourceEnd,
    above: &Arc<Directory>,
    name: &[u8],
    depth: u32,
) -> Result<Metadata, Failure> {
    if depth > DEPTH_MAX {
        return Err(Failure::new(Side::Source, Operation::List, Reason::TooDeep));
    }
    let looked_at = above.open().and_then(|above| {
        let stat = statat(&above, name, NOT_THROUGH_LINKS)?;
        let mut metadata = metadata_of(&stat);
        if end.options.xattrs {
            metadata.xattrs = xattrs_at(&above, name)?;
        }
        Ok(metadata)
    });
    looked_at.map_err(|errno| failed(Operation::Examine, errno))
}

/// Looks at something that is not a directory; the inner error is told, not a reason to stop.
fn look(
    end: &SourceEnd,
    directory: &Arc<Directory>,
    handle: &OwnedFd,
    name: &[u8],
    stat: &Stat,
) -> Result<Result<Seen, Failure>, Errno> {
    let options = &end.options;
    let mut metadata = metadata_of(stat);
    if options.xattrs {
        metadata.xattrs = xattrs_at(handle, name)?;
    }
    let mut seen = Seen {
        kind: Kind::Directory,
        metadata,
        layout: Layout::on(OstId(0)),
        mirrors: Vec::new(),
        data: None,
        disk_offset: None,
        link: None,
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            let identity = identity_of(stat);
            let (device, inode, size) = (stat.st_dev, stat.st_ino, identity.size);
            let at = FileAt { directory: handle, name, device, inode, size };
            let located = end.layouts.of_file(&at);
            if located.is_archived && !options.restore {
                return Ok(Err(Failure::new(Side::Source, Operation::Examine, Reason::Archived)));
            }
            (seen.layout, seen.mirrors) = (located.layout, located.mirrors);
            // Only now: to look for holes can bring data back from an archive, too.
            seen.data = data_of(handle, name, stat)?;
            if identity.size > 0 {
                seen.disk_offset = end.layouts.disk_offset(&at);
            }
            let data_bytes = seen.data.as_ref().map_or(identity.size, RangeSet::byte_count);
            let striping = seen.layout.striping(identity.size);
            let source_ost = seen.layout.ost_at(0);
            seen.kind =
                Kind::File { identity, data_bytes, striping, source_ost, is_different: false };
            if options.hard_links && stat.st_nlink > 1 {
                seen.link = Some(LinkName {
                    device: stat.st_dev,
                    inode: stat.st_ino,
                    name_count: stat.st_nlink,
                    path: directory.path_of(name),
                });
            }
        }
        FileType::Symlink => {
            let target = readlinkat(handle, name, Vec::new())?.into_bytes();
            seen.kind = Kind::Symlink { target };
        }
        file_type => {
            let is_device = matches!(file_type, FileType::BlockDevice | FileType::CharacterDevice);
            if !options.moves_special(file_type) {
                return Ok(Err(Failure::new(Side::Source, Operation::Examine, Reason::Special)));
            }
            let device = if is_device { stat.st_rdev } else { 0 };
            seen.kind = Kind::Special { file_type: file_type.as_raw_mode(), device };
        }
    }
    Ok(Ok(seen))
}

/// Where a file has data, if it has holes: it takes less room than its length.
fn data_of(directory: &OwnedFd, name: &[u8], stat: &Stat) -> Result<Option<RangeSet>, Errno> {
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let room = u64::try_from(stat.st_blocks).unwrap_or(0) * BLOCK_BYTES_OF_STAT;
    if size == 0 || room >= size {
        return Ok(None);
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    // A file that cannot be opened is told when it is read.
    let Ok(file) = openat(directory, name, flags, Mode::empty()) else { return Ok(None) };
    let mut data = RangeSet::new();
    let mut offset = 0;
    while offset < size {
        if data.range_count() >= DATA_RANGES_MAX {
            data.insert(offset..size);
            break;
        }
        let start = match seek(&file, SeekFrom::Data(offset)) {
            Ok(start) => start,
            Err(Errno::NXIO) => break,
            Err(_) => return Ok(None),
        };
        let Ok(end) = seek(&file, SeekFrom::Hole(start)) else { return Ok(None) };
        data.insert(start..end.min(size));
        offset = end;
    }
    let data = align_data(&data, size);
    Ok((data.byte_count() < size).then_some(data))
}

/// Looks at a file anew that changed while it moved, and announces it as another entry.
pub(super) fn examine_again(end: &SourceEnd, old: EntryId) {
    let Some(item) = end.table.get(old) else { return };
    let _asked = end.begin(Operation::Examine, old, None);
    let looked_at = item.directory.open().and_then(|handle| {
        let stat = statat(&handle, item.name.as_slice(), NOT_THROUGH_LINKS)?;
        look(end, &item.directory, &handle, &item.name, &stat).map(|seen| (seen, stat))
    });
    let (seen, stat) = match looked_at {
        Ok((Ok(seen), stat)) if matches!(seen.kind, Kind::File { .. }) => (seen, stat),
        Ok((Err(failure), _)) => return end.tell(Event::Gone { entry: old, failure }),
        Ok(_) => {
            let failure = Failure::new(Side::Source, Operation::Examine, Reason::Changed);
            return end.tell(Event::Gone { entry: old, failure });
        }
        Err(errno) => {
            let failure = failed(Operation::Examine, errno);
            return end.tell(Event::Gone { entry: old, failure });
        }
    };
    let id = end.table.new_id();
    let new = Item {
        identity: Some(identity_of(&stat)),
        link: item.link.clone(),
        mirrors: Item::mirrors_of(&seen.mirrors),
        ..Item::new(Arc::clone(&item.directory), item.parent, item.name.clone())
    };
    end.table.insert([(id, Arc::new(new))]);
    let found = seen.found(id, item.parent, item.name.clone());
    let found = Found { link: None, replaces: Some(old), ..found };
    end.tell(Event::Found(Box::new(found)));
}
