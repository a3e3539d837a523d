//! What the source sees at a name: kind, metadata, and layout.

use super::holes::{RangeShare, data_of};
use super::table::Item;
use super::{SourceEnd, failed};
use crate::layout::{FileAt, Mirror};
use crate::metadata::metadata_at;
use crate::paths::{Directory, NOT_THROUGH_LINKS};
use crate::stat::identity_of;
use lads_core::entry::{Entry, Kind, Metadata};
use lads_core::issue::{Failure, Operation, Reason, Side};
use lads_core::layout::Layout;
use lads_core::limits::DEPTH_MAX;
use lads_core::range::RangeSet;
use lads_core::source::{Event, Found, LinkName};
use lads_core::units::{EntryId, OstId};
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, Stat, fstat, readlinkat, statat};
use rustix::io::Errno;
use std::sync::Arc;

/// Whether two directories are on one file system. A directory that cannot be examined is reported
/// when it is listed.
pub(super) fn is_one_file_system(above: &Arc<Directory>, directory: &Arc<Directory>) -> bool {
    let device = |it: &Arc<Directory>| it.open().and_then(|it| fstat(&*it)).map(|it| it.st_dev);
    match (device(above), device(directory)) {
        (Ok(above), Ok(directory)) => above == directory,
        _ => true,
    }
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
}

impl Seen {
    pub(super) fn found(self, id: EntryId, parent: EntryId, name: Vec<u8>) -> Found {
        let Self { kind, metadata, layout, mirrors, data, disk_offset, link, .. } = self;
        let entry = Entry { id, parent, name, kind, metadata };
        let mirrors = mirrors.into_iter().skip(1).map(|it| it.layout).collect();
        Found { layout, mirrors, data, disk_offset, link, ..Found::new(entry) }
    }
}

/// Examines a directory that would be `depth` levels below the root.
pub(super) fn look_at_directory(
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
        metadata_at(&above, name, &stat, &end.options)
    });
    let (metadata, reductions) = looked_at.map_err(|errno| failed(Operation::Examine, errno))?;
    end.count_reduced(reductions);
    Ok(metadata)
}

/// Examines an entry that is not a directory. The inner error makes the entry fail; it does not end
/// the transfer.
pub(super) fn look(
    end: &SourceEnd,
    directory: &Arc<Directory>,
    handle: &OwnedFd,
    name: &[u8],
    stat: &Stat,
) -> Result<Result<Seen, Failure>, Errno> {
    let options = &end.options;
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
            // This comes late because looking for holes can bring data back from an archive, too.
            // A device has bytes where the file has holes, and a pipe must get them all.
            if !options.write_devices {
                (seen.data, seen.ranges) = data_of(&end.ranges, handle, name, stat)?.unzip();
            }
            if identity.size > 0 {
                seen.disk_offset = end.layouts.disk_offset(&at);
            }
            let data_bytes = seen.data.as_ref().map_or(identity.size, RangeSet::byte_count);
            let striping = seen.layout.striping(identity.size);
            let source_ost = seen.layout.ost_at(0);
            seen.kind =
                Kind::File { identity, data_bytes, striping, source_ost, is_different: false };
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
    if options.hard_links && stat.st_nlink > 1 {
        seen.link = Some(LinkName {
            device: stat.st_dev,
            inode: stat.st_ino,
            name_count: stat.st_nlink,
            path: directory.path_of(name),
        });
    }
    Ok(Ok(seen))
}

/// Examines a file that changed while it moved, and announces it as another entry.
pub(super) fn examine_again(end: &SourceEnd, old: EntryId) {
    let Some(item) = end.table.get(old) else { return };
    let _asked = end.begin(Operation::Examine, old, None);
    let looked_at = item.directory.open().and_then(|handle| {
        let stat = statat(&handle, item.name.as_slice(), NOT_THROUGH_LINKS)?;
        look(end, &item.directory, &handle, &item.name, &stat).map(|seen| (seen, stat))
    });
    let (mut seen, stat) = match looked_at {
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
        ranges: seen.ranges.take(),
        ..Item::new(Arc::clone(&item.directory), item.parent, item.name.clone())
    };
    end.table.insert([(id, Arc::new(new))]);
    let found = seen.found(id, item.parent, item.name.clone());
    let found = Found { link: None, replaces: Some(old), ..found };
    end.tell(Event::Found(Box::new(found)));
}
