//! The attributes of an inode that the kernel is told, and changes to them.

use super::tree::{Inode, Kind, Metadata, Tree};
use crate::kernel_words::kind;
use fuser::{FileAttr, INodeNo, TimeOrNow};
use rustix::io::Errno as Error;
use std::ffi::OsStr;
use std::time::{Duration, SystemTime};

/// A change of an inode's attributes; `None` leaves an attribute as it is.
pub(super) struct Changes {
    pub(super) mode: Option<u32>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) size: Option<u64>,
    pub(super) accessed: Option<TimeOrNow>,
    pub(super) modified: Option<TimeOrNow>,
    pub(super) changed: Option<SystemTime>,
    pub(super) is_by_root: bool,
}

/// Changes an inode; returns its new attributes.
///
/// # Errors
/// `ESTALE` if there is no such inode.
pub(super) fn change(tree: &mut Tree, number: u64, changes: &Changes) -> Result<FileAttr, Error> {
    let inode = tree.inode_mut(number)?;
    let now = SystemTime::now();
    let is_given = changes.uid.is_some() || changes.gid.is_some();
    let is_directory = matches!(inode.kind, Kind::Directory(_));
    if (is_given && !is_directory) || (changes.size.is_some() && !changes.is_by_root) {
        drop_privileges(inode);
    }
    let metadata = &mut inode.metadata;
    metadata.mode = changes.mode.map_or(metadata.mode, |mode| mode & 0o7777);
    metadata.uid = changes.uid.unwrap_or(metadata.uid);
    metadata.gid = changes.gid.unwrap_or(metadata.gid);
    metadata.accessed = changes.accessed.map_or(metadata.accessed, |time| moment(time, now));
    if changes.size.is_some() {
        metadata.modified = now;
    }
    metadata.modified = changes.modified.map_or(metadata.modified, |time| moment(time, now));
    metadata.changed = changes.changed.map_or(now, meant);
    attributes(tree, number)
}

fn moment(time: TimeOrNow, now: SystemTime) -> SystemTime {
    match time {
        TimeOrNow::SpecificTime(time) => meant(time),
        TimeOrNow::Now => now,
    }
}

/// Returns the time that the kernel gave. For a time before 1970, fuser 0.18 counts the nanoseconds
/// backwards, which is wrong. In the other direction, it tells the kernel the right time.
fn meant(time: SystemTime) -> SystemTime {
    match SystemTime::UNIX_EPOCH.duration_since(time) {
        Ok(before) => time + Duration::from_nanos(2 * u64::from(before.subsec_nanos())),
        Err(_) => time,
    }
}

/// Clears the set-id bits and the capabilities, as certain changes of a file must.
pub(super) fn drop_privileges(inode: &mut Inode) {
    inode.metadata.drop_privileges();
    inode.attributes.remove(OsStr::new("security.capability"));
}

/// Returns the attributes of an entry that the kernel is told of now, and must forget later.
///
/// # Errors
/// `ESTALE` if there is no such inode.
pub(super) fn entry(tree: &mut Tree, number: u64) -> Result<FileAttr, Error> {
    tree.remember(number);
    attributes(tree, number)
}

/// Returns the attributes of an inode.
///
/// # Errors
/// `ESTALE` if there is no such inode.
pub(super) fn attributes(tree: &Tree, number: u64) -> Result<FileAttr, Error> {
    let inode = tree.inode(number)?;
    let Metadata { mode, uid, gid, device, links, accessed, modified, changed } = inode.metadata;
    let (size, kept) = match &inode.kind {
        Kind::File(file) => (file.size(), file.kept_bytes()),
        Kind::Link(target) => (target.as_os_str().len() as u64, 0),
        _ => (0, 0),
    };
    Ok(FileAttr {
        ino: INodeNo(number),
        size,
        blocks: kept / 512,
        atime: accessed,
        mtime: modified,
        ctime: changed,
        crtime: changed,
        kind: kind(inode.file_type()),
        perm: u16::try_from(mode).expect("only permission bits are kept"),
        nlink: links,
        uid,
        gid,
        rdev: device,
        blksize: 4096,
        flags: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_are_those_that_the_kernel_gave() {
        let before = |millis| SystemTime::UNIX_EPOCH - Duration::from_millis(millis);
        // 1.2 s before 1970: the kernel says -2 s and 0.8 s, fuser makes 2.8 s of that.
        assert_eq!(meant(before(2800)), before(1200));
        assert_eq!(meant(before(2000)), before(2000));
        let after = SystemTime::UNIX_EPOCH + Duration::from_millis(1200);
        assert_eq!(meant(after), after);
    }
}
