//! The walk: meets what is to be moved, no faster than it is moved.
//!
//! Depth first, files before directories, so that what is known at a time is the window of entries
//! under way and the names of directories still to come. Nothing is sorted and nothing is read
//! twice.

use super::table::Item;
use super::{SourceEnd, failed};
use crate::board::Board;
use crate::event::ExitCode;
use crate::hub::{Fatal, Waiter};
use crate::layout::{FileAt, Mirror};
use crate::metadata::{identity_of, metadata_of, xattrs_at};
use crate::paths::{Directory, NOT_THROUGH_LINKS, open_named};
use lads_core::entry::{Entry, Kind};
use lads_core::filter::is_included;
use lads_core::issue::{Failure, Operation, Reason, Side};
use lads_core::layout::Layout;
use lads_core::plan::align_data;
use lads_core::range::RangeSet;
use lads_core::source::{Event, Found, LinkName};
use lads_core::units::{EntryId, OstId};
use rustix::fd::OwnedFd;
use rustix::fs::{
    FileType, Mode, OFlags, RawDir, SeekFrom, Stat, openat, readlinkat, seek, statat,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

/// Entries told to the session in one go.
const BATCH: usize = 64;
/// A file with more stretches of data than this is sent as if it had no holes behind them.
const DATA_RANGES_MAX: usize = 10_000;
const BLOCK_BYTES_OF_STAT: u64 = 512;

/// Something named on the command line.
#[derive(Debug)]
pub(crate) struct WalkRoot {
    given: Vec<u8>,
    /// The directory in which the name is looked up; the named directory itself for its contents.
    directory: Arc<Directory>,
    pub(super) name: Vec<u8>,
    pub(super) is_directory: bool,
    pub(super) is_contents_only: bool,
}

impl WalkRoot {
    pub(super) fn os_path(&self) -> PathBuf {
        PathBuf::from(OsStr::from_bytes(&self.given))
    }
}

/// Looks up what was named. What is not there is told; an error only if nothing is left.
pub(super) fn find_roots(
    paths: &[Vec<u8>],
    is_list: bool,
    board: &Board,
) -> Result<Vec<WalkRoot>, Fatal> {
    let mut roots = Vec::new();
    let mut missing = Vec::new();
    for path in paths {
        match find_root(path, is_list) {
            Ok(root) => roots.push(root),
            Err(errno) => missing.push((path, errno)),
        }
    }
    if let (true, Some((path, errno))) = (roots.is_empty(), missing.first()) {
        let path = String::from_utf8_lossy(path);
        let host = &board.own_host;
        let others = match missing.len() {
            1 => String::new(),
            count => format!(" (nor {} others)", count - 1),
        };
        let text = format!("cannot examine source:{host}:{path}{others}: {errno}");
        return Err(Fatal::new(ExitCode::SourceUnreadable, text));
    }
    for (path, errno) in missing {
        let reason = Reason::Os(errno.raw_os_error());
        board.issue(path.clone(), Failure::new(Side::Source, Operation::Examine, reason));
    }
    Ok(roots)
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
    /// Where it will be looked up.
    directory: Arc<Directory>,
    parent: EntryId,
    name: Vec<u8>,
}

/// The walk over all that was named.
pub(super) struct Walk<'a> {
    end: &'a SourceEnd,
    events: Vec<Event>,
    items: Vec<(EntryId, Arc<Item>)>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(end: &'a SourceEnd) -> Self {
        Self { end, events: Vec::new(), items: Vec::new() }
    }

    /// Walks until everything was met or the transfer is over.
    pub(super) fn run(mut self) {
        if self.walk().is_some() {
            self.events.push(Event::WalkEnded);
            self.flush();
        }
    }

    /// `None` when the transfer is over before the walk is.
    fn walk(&mut self) -> Option<()> {
        let end = self.end;
        if let Some(paths) = &end.options.files_from {
            let root = end.roots.first()?;
            return self.walk_list(root, paths);
        }
        let mut stack = Vec::new();
        for root in &end.roots {
            self.meet(&root.directory, EntryId::ROOT, &root.name, &mut stack)?;
        }
        let count = stack.len() as u64;
        self.events.push(Event::Listed { directory: EntryId::ROOT, subdirectory_count: count });
        stack.reverse();
        self.walk_stack(stack)
    }

    fn walk_stack(&mut self, mut stack: Vec<Pending>) -> Option<()> {
        while let Some(pending) = stack.pop() {
            self.list(&pending, &mut stack)?;
        }
        self.wait_and_flush()
    }

    /// Announces a directory and meets what is in it; its directories go onto the stack.
    fn list(&mut self, pending: &Pending, stack: &mut Vec<Pending>) -> Option<()> {
        let Some((entry, handle, directory)) = self.announce_directory(pending)? else {
            return Some(());
        };
        let first = stack.len();
        let mut buffer = Vec::with_capacity(32 << 10);
        let mut names: RawDir<'_, _> = RawDir::new(&handle, buffer.spare_capacity_mut());
        loop {
            match names.next() {
                Some(Ok(name)) => {
                    let name = name.file_name().to_bytes();
                    if name != b"." && name != b".." {
                        self.meet(&directory, entry, name, stack)?;
                    }
                }
                Some(Err(errno)) => {
                    let failure = failed(Operation::List, errno);
                    self.events.push(Event::NotListed { directory: entry, failure });
                    stack.truncate(first);
                    return self.flush_if_full();
                }
                None => break,
            }
        }
        let subdirectory_count = (stack.len() - first) as u64;
        stack[first..].reverse();
        self.events.push(Event::Listed { directory: entry, subdirectory_count });
        self.flush_if_full()
    }

    /// Looks at a directory and announces it; `Some(None)` if it cannot be opened.
    #[expect(clippy::type_complexity, reason = "the three are taken apart at once")]
    fn announce_directory(
        &mut self,
        pending: &Pending,
    ) -> Option<Option<(EntryId, Arc<OwnedFd>, Arc<Directory>)>> {
        let Pending { directory: above, parent, name } = pending;
        let id = self.end.table.new_id();
        let item = Item::new(Arc::clone(above), *parent, name.clone());
        self.items.push((id, Arc::new(item)));
        let directory = if name == b"." { Arc::clone(above) } else { above.child(name, false) };
        let looked_at = above.open().and_then(|above| {
            let stat = statat(&above, name.as_slice(), NOT_THROUGH_LINKS)?;
            let mut metadata = metadata_of(&stat);
            if self.end.options.xattrs {
                metadata.xattrs = xattrs_at(&above, name)?;
            }
            Ok(metadata)
        });
        let metadata = match looked_at {
            Ok(metadata) => metadata,
            Err(errno) => {
                let failure = failed(Operation::Examine, errno);
                self.unreadable(id, *parent, true, failure);
                self.flush_if_full()?;
                return Some(None);
            }
        };
        let (parent, name) = (*parent, name.clone());
        let entry = Entry { id, parent, name, kind: Kind::Directory, metadata };
        self.found(Found::new(entry));
        match directory.open() {
            Ok(handle) => Some(Some((id, handle, directory))),
            Err(errno) => {
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
        directory: &Arc<Directory>,
        parent: EntryId,
        name: &[u8],
        stack: &mut Vec<Pending>,
    ) -> Option<()> {
        let end = self.end;
        end.hub.on_move();
        let id = end.table.new_id();
        let looked_at = directory.open().and_then(|handle| {
            let stat = statat(&handle, name, NOT_THROUGH_LINKS)?;
            Ok((handle, stat))
        });
        let is_directory = looked_at
            .as_ref()
            .is_ok_and(|(_, stat)| FileType::from_raw_mode(stat.st_mode) == FileType::Directory);
        if !self.is_wanted(directory, parent, name, is_directory) {
            return Some(());
        }
        if is_directory {
            let pending = Pending { directory: Arc::clone(directory), parent, name: name.to_vec() };
            stack.push(pending);
            return Some(());
        }
        let seen = looked_at.and_then(|(handle, stat)| {
            look(end, directory, &handle, name, &stat).map(|seen| (seen, stat))
        });
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
                self.unreadable(id, parent, false, failed(Operation::Examine, errno));
            }
        }
        self.flush_if_full()
    }

    fn is_wanted(
        &self,
        directory: &Directory,
        parent: EntryId,
        name: &[u8],
        is_directory: bool,
    ) -> bool {
        if name.starts_with(crate::journal::PREFIX.as_bytes()) && is_own_name(name) {
            return false;
        }
        let filters = &self.end.options.filters;
        filters.is_empty()
            || parent == EntryId::ROOT && name == b"."
            || is_included(filters, &directory.path_of(name), is_directory)
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

    /// Moves only what is listed: each path with the directories that it lies in.
    fn walk_list(&mut self, root: &WalkRoot, paths: &[Vec<u8>]) -> Option<()> {
        let mut tree = ListNode::default();
        for path in paths {
            tree.add(path);
        }
        let pending = Pending {
            directory: Arc::clone(&root.directory),
            parent: EntryId::ROOT,
            name: b".".to_vec(),
        };
        self.events.push(Event::Listed { directory: EntryId::ROOT, subdirectory_count: 1 });
        if tree.is_whole {
            return self.walk_stack(vec![pending]);
        }
        self.list_node(&pending, &tree)?;
        self.wait_and_flush()
    }

    fn list_node(&mut self, pending: &Pending, node: &ListNode) -> Option<()> {
        let Some((entry, _, directory)) = self.announce_directory(pending)? else {
            return Some(());
        };
        let mut stack = Vec::new();
        for name in node.children.keys() {
            self.meet(&directory, entry, name, &mut stack)?;
        }
        let subdirectory_count = stack.len() as u64;
        self.events.push(Event::Listed { directory: entry, subdirectory_count });
        for pending in stack {
            let child = &node.children[&pending.name];
            if child.is_whole {
                self.walk_stack(vec![pending])?;
            } else {
                self.list_node(&pending, child)?;
            }
        }
        Some(())
    }
}

/// A name out of a list of paths, and the names below it.
#[derive(Debug, Default)]
struct ListNode {
    children: std::collections::BTreeMap<Vec<u8>, Self>,
    /// Whether a path ends here: a directory goes with all that is in it.
    is_whole: bool,
}

impl ListNode {
    fn add(&mut self, path: &[u8]) {
        let mut node = self;
        for name in path.split(|&byte| byte == b'/') {
            if name.is_empty() || name == b"." || name == b".." {
                continue;
            }
            node = node.children.entry(name.to_vec()).or_default();
        }
        node.is_whole = true;
    }
}

/// What is seen at a name.
struct Seen {
    kind: Kind,
    metadata: lads_core::entry::Metadata,
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
            seen.kind = Kind::File { identity, data_bytes, striping, source_ost };
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
            let is_wanted = if is_device { options.devices } else { options.specials };
            if !is_wanted {
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

/// Whether a name is one that LADS itself makes at a sink: journals and unfinished files.
fn is_own_name(name: &[u8]) -> bool {
    let rest = &name[crate::journal::PREFIX.len()..];
    let is_hex = |bytes: &[u8]| bytes.iter().all(u8::is_ascii_hexdigit);
    [(&b".journal"[..], 16), (b".part", 32), (b".journal.new", 16)].iter().any(
        |(ending, digits)| {
            rest.strip_suffix(*ending).is_some_and(|hex| hex.len() == *digits && is_hex(hex))
        },
    )
}
