//! What the source sees at a name: kind, metadata, and layout.

use super::holes::{RangeShare, data_of};
use super::instead::Instead;
use super::made_up::unsized_identity;
use super::table::Item;
use super::{SourceEnd, failed};
use crate::job::Options;
use crate::layout::{FileAt, Mirror};
use crate::metadata::metadata_at;
use crate::paths::{Directory, NOT_THROUGH_LINKS, referent_of};
use crate::stat::{identity_of, now};
use lads_core::entry::{Entry, Identity, Kind, Metadata};
use lads_core::issue::{Failure, Operation, Reason, Side};
use lads_core::layout::Layout;
use lads_core::limits::DEPTH_MAX;
use lads_core::racy::{same_at_sink_for, unsettled_for};
use lads_core::range::RangeSet;
use lads_core::source::{Event, Found, LinkName};
use lads_core::units::{EntryId, Instant, OstId};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, Stat, fstat, readlinkat, statat};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Whether two directories are on one file system. A directory that cannot be examined is reported
/// when it is listed.
pub(super) fn is_one_file_system(above: &Arc<Directory>, directory: &Arc<Directory>) -> bool {
    let device = |it: &Arc<Directory>| it.open().and_then(|it| fstat(&*it)).map(|it| it.st_dev);
    match (device(above), device(directory)) {
        (Ok(above), Ok(directory)) => above == directory,
        _ => true,
    }
}

/// A name in an open directory, with the status of the entry that is copied under this name.
#[derive(Debug)]
pub(super) struct Sight {
    pub(super) handle: Arc<OwnedFd>,
    pub(super) stat: Stat,
    /// Whether the name is a link, and the status is that of the file it leads to.
    pub(super) is_followed: bool,
}

/// The reason why a name has no status.
#[derive(Clone, Copy, Debug)]
pub(super) enum Unseen {
    /// The name is a link that is to be followed and leads to nothing.
    Dangling,
    Failed(Errno),
}

impl From<Errno> for Unseen {
    fn from(errno: Errno) -> Self {
        Self::Failed(errno)
    }
}

impl Unseen {
    pub(super) fn failure(self) -> Failure {
        match self {
            Self::Dangling => Failure::new(Side::Source, Operation::Examine, Reason::Dangling),
            Self::Failed(errno) => failed(Operation::Examine, errno),
        }
    }
}

impl Sight {
    pub(super) fn is_directory(&self) -> bool {
        is_directory(&self.stat)
    }
}

/// Reports whether a status is that of a directory.
pub(super) fn is_directory(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

/// Looks at a name in a directory; with `--copy-links`, at the file that a link leads to.
pub(super) fn sight(
    options: &Options,
    directory: &Arc<Directory>,
    name: &[u8],
) -> Result<Sight, Unseen> {
    sight_in(options, directory.open()?, name)
}

/// Does the work of [`sight`] in a directory that is open.
pub(super) fn sight_in(
    options: &Options,
    handle: Arc<OwnedFd>,
    name: &[u8],
) -> Result<Sight, Unseen> {
    let stat = statat(&handle, name, NOT_THROUGH_LINKS)?;
    let is_followed =
        options.copy_links && FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
    let stat = match is_followed {
        false => stat,
        true => statat(&handle, name, AtFlags::empty()).map_err(|errno| match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG => Unseen::Dangling,
            errno => Unseen::Failed(errno),
        })?,
    };
    Ok(Sight { handle, stat, is_followed })
}

/// What the source sees at a name.
pub(super) struct Seen {
    pub(super) kind: Kind,
    metadata: Metadata,
    layout: Layout,
    pub(super) mirrors: Vec<Mirror>,
    data: Option<RangeSet>,
    /// The memory that is reserved for these ranges.
    pub(super) ranges: Option<RangeShare>,
    disk_offset: Option<u64>,
    pub(super) link: Option<LinkName>,
    settled_at: Option<Instant>,
    settled_at_sink: Option<Instant>,
}

impl Seen {
    /// Returns the identity that a regular file must still have when it is read.
    pub(super) fn identity(&self) -> Option<Identity> {
        match self.kind {
            Kind::File { identity, .. } => Some(identity),
            _ => None,
        }
    }

    pub(super) fn found(self, id: EntryId, parent: EntryId, name: Vec<u8>) -> Found {
        let Self { kind, metadata, layout, data, disk_offset, link, .. } = self;
        let Self { settled_at, settled_at_sink, .. } = self;
        let entry = Entry { id, parent, name, kind, metadata };
        let mirrors = self.mirrors.into_iter().skip(1).map(|it| it.layout).collect();
        let found = Found::new(entry);
        Found { layout, mirrors, data, disk_offset, link, settled_at, settled_at_sink, ..found }
    }
}

/// Examines a directory that would be `depth` levels below the root; with `may_be_link`, also the
/// one that a symbolic link leads to.
pub(super) fn look_at_directory(
    end: &SourceEnd,
    above: &Arc<Directory>,
    name: &[u8],
    depth: u32,
    may_be_link: bool,
) -> Result<Metadata, Failure> {
    if depth > DEPTH_MAX {
        return Err(Failure::new(Side::Source, Operation::List, Reason::TooDeep));
    }
    let flags = if may_be_link { AtFlags::empty() } else { NOT_THROUGH_LINKS };
    let looked_at = above.open().and_then(|above| {
        let stat = statat(&above, name, flags)?;
        if !may_be_link {
            return metadata_at(&above, name, &stat, &end.options);
        }
        let (above, name) = referent_of(&above, name, &stat)?;
        metadata_at(&above, &name, &stat, &end.options)
    });
    let (metadata, reductions) = looked_at.map_err(|errno| failed(Operation::Examine, errno))?;
    end.count_reduced(reductions);
    Ok(metadata)
}

/// Examines an entry that is not a directory. The inner error makes the entry fail; it does not end
/// the transfer.
pub(super) fn look(
    end: &SourceEnd,
    item: &Item,
    sight: &Sight,
) -> Result<Result<Seen, Failure>, Errno> {
    let options = &end.options;
    let Sight { handle, stat, is_followed } = sight;
    let referent = is_followed.then(|| referent_of(handle, &item.name, stat)).transpose()?;
    let (handle, name) = match &referent {
        Some((directory, name)) => (directory, name.as_slice()),
        None => (&**handle, item.name.as_slice()),
    };
    let (metadata, reductions) = metadata_at(handle, name, stat, options)?;
    end.count_reduced(reductions);
    let mut seen = Seen {
        kind: Kind::Directory,
        metadata,
        layout: Layout::on(OstId(0)),
        mirrors: Vec::new(),
        data: None,
        ranges: None,
        disk_offset: None,
        link: None,
        settled_at: None,
        settled_at_sink: None,
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            let place = (handle, name);
            if let Err(failure) = look_at_file(end, item, place, stat, &mut seen)? {
                return Ok(Err(failure));
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
    // Other names of the file may have been removed since they were moved.
    if options.hard_links && (stat.st_nlink > 1 || options.is_move()) {
        #[allow(clippy::useless_conversion, reason = "it has 32 bits on aarch64")]
        let name_count = u64::from(stat.st_nlink);
        seen.link = Some(LinkName {
            device: stat.st_dev,
            inode: stat.st_ino,
            name_count,
            path: item.path(),
        });
    }
    Ok(Ok(seen))
}

/// Sets the times from which on any change of a file that was just looked at shows in its status,
/// and in the time that the sink keeps. They stay unset if the file will not be read.
fn set_settled(end: &SourceEnd, identity: &Identity, seen: &mut Seen) {
    if end.options.dry_run && !end.options.checksum {
        return;
    }
    let (now, session_now) = (now(), end.clock.now());
    seen.settled_at = unsettled_for(identity, now).map(|wait| session_now + wait);
    seen.settled_at_sink = same_at_sink_for(identity, now).map(|wait| session_now + wait);
}

/// Examines a regular file. The place is where the file lies, also if a link leads to it.
fn look_at_file(
    end: &SourceEnd,
    item: &Item,
    (handle, name): (&OwnedFd, &[u8]),
    stat: &Stat,
    seen: &mut Seen,
) -> Result<Result<(), Failure>, Errno> {
    let options = &end.options;
    let is_unsized = item.is_shorter.load(Ordering::Relaxed)
        || end.file_systems.is_size_unknown(handle, name, stat)?;
    if is_unsized && options.check {
        return Ok(Err(failed(Operation::Examine, Errno::OPNOTSUPP)));
    }
    let identity = identity_of(stat);
    let (device, inode, size) = (stat.st_dev, stat.st_ino, identity.size);
    let at = FileAt { directory: handle, name, device, inode, size };
    let located = end.layouts.of_file(&at);
    if located.is_archived && !options.restore {
        return Ok(Err(Failure::new(Side::Source, Operation::Examine, Reason::Archived)));
    }
    (seen.layout, seen.mirrors) = (located.layout, located.mirrors);
    // This comes late because looking for holes can bring data back from an archive, too.
    // A device has bytes where the file has holes, and a pipe must get them all.
    if !options.write_devices && !is_unsized {
        (seen.data, seen.ranges) = data_of(&end.ranges, handle, name, stat)?.unzip();
    }
    if size > 0 && !is_unsized {
        seen.disk_offset = end.layouts.disk_offset(&at);
        set_settled(end, &identity, seen);
    }
    let identity = if is_unsized { unsized_identity(identity) } else { identity };
    let data_bytes = seen.data.as_ref().map_or(identity.size, RangeSet::byte_count);
    let striping = seen.layout.striping(identity.size);
    let source_ost = seen.layout.ost_at(0);
    seen.kind = Kind::File { identity, data_bytes, striping, source_ost, is_different: false };
    Ok(Ok(()))
}

/// Examines a file that changed while it moved, and announces it as another entry.
pub(super) fn examine_again(end: &SourceEnd, old: EntryId) {
    let Some(item) = end.table.get(old) else { return };
    if let Some(instead) = &end.instead {
        return start_over(end, old, &item, instead);
    }
    let _asked = end.begin(Operation::Examine, old, None);
    let gone = |failure| end.tell(Event::Gone { entry: old, failure });
    let looked_at = sight(&end.options, &item.directory, &item.name).and_then(|sight| {
        let seen = look(end, &item, &sight)?;
        Ok((seen, sight))
    });
    let (mut seen, sight) = match looked_at {
        Ok((Ok(seen), sight)) if matches!(seen.kind, Kind::File { .. }) => (seen, sight),
        Ok((Err(failure), _)) => return gone(failure),
        Ok(_) => {
            return gone(Failure::new(Side::Source, Operation::Examine, Reason::Changed));
        }
        Err(unseen) => return gone(unseen.failure()),
    };
    let id = end.table.new_id();
    let new = Item {
        identity: seen.identity(),
        is_followed: sight.is_followed,
        link: item.link.clone(),
        mirrors: Item::mirrors_of(&seen.mirrors),
        ranges: seen.ranges.take(),
        ..Item::new(Arc::clone(&item.directory), item.parent, item.name.clone())
    };
    end.table.insert([(id, Arc::new(new))]);
    let found = seen.found(id, item.parent, item.name.clone());
    let found = Found { link: None, replaces: Some(old), ..found };
    end.tell(Event::Found(Box::new(found)));
}

/// Starts over with a file that was read while it grew and changed in another way, and announces it
/// as another entry.
fn start_over(end: &SourceEnd, old: EntryId, item: &Item, instead: &Instead) {
    let id = end.table.new_id();
    // Bytes that are in a pipe cannot be taken back.
    let may_be = !end.options.write_devices;
    let identity = match instead.start_over(id) {
        Ok(Some(identity)) if may_be => identity,
        Ok(_) => {
            let failure = Failure::new(Side::Source, Operation::Read, Reason::Changed);
            return end.tell(Event::Gone { entry: old, failure });
        }
        Err(errno) => {
            let failure = failed(Operation::Examine, errno);
            return end.tell(Event::Gone { entry: old, failure });
        }
    };
    let new = Item::new(Arc::clone(&item.directory), item.parent, item.name.clone());
    end.table.insert([(id, Arc::new(Item { identity: Some(identity), ..new }))]);
    let found = instead.found(id, item.parent, item.name.clone(), identity);
    end.tell(Event::Found(Box::new(Found { replaces: Some(old), ..found })));
}
