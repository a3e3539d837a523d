//! A file's metadata, taken before it changes, and restored if the change is lost.

use super::nodes::Node;
use rustix::fs::{
    AtFlags, CWD, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags, chmodat, chownat, getxattr,
    listxattr, removexattr, setxattr, utimensat,
};
use rustix::io::Errno;

/// The longest attribute, and the longest list of attributes.
pub(super) const XATTR_BYTES_MAX: usize = 64 << 10;

/// The name and value of an extended attribute.
type Attribute = (Vec<u8>, Vec<u8>);

/// Mode, owner, times and extended attributes of a file or directory at a moment.
#[derive(Debug)]
pub(super) struct Snapshot {
    mode: u32,
    uid: u32,
    gid: u32,
    times: Timestamps,
    xattrs: Vec<Attribute>,
}

impl Snapshot {
    pub(super) fn of(node: &Node) -> Result<Self, Errno> {
        let stat = node.stat()?;
        let time = |tv_sec, nanos| Timespec { tv_sec, tv_nsec: i64::try_from(nanos).unwrap_or(0) };
        Ok(Self {
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
            times: Timestamps {
                last_access: time(stat.st_atime, stat.st_atime_nsec),
                last_modification: time(stat.st_mtime, stat.st_mtime_nsec),
            },
            xattrs: xattrs(node)?,
        })
    }

    /// Sets the metadata to that of the snapshot.
    pub(super) fn restore(&self, node: &Node) -> Result<(), Errno> {
        let (uid, gid) = (Some(Uid::from_raw(self.uid)), Some(Gid::from_raw(self.gid)));
        chownat(node, "", uid, gid, AtFlags::EMPTY_PATH)?;
        for (name, _) in xattrs(node)? {
            removexattr(node.path(), name.as_slice())?;
        }
        for (name, value) in &self.xattrs {
            setxattr(node.path(), name.as_slice(), value, XattrFlags::empty())?;
        }
        // Set after the owner, because a change of owner clears bits, and after the ACLs, which
        // contain mode bits.
        chmodat(CWD, node.path(), Mode::from_raw_mode(self.mode), AtFlags::empty())?;
        utimensat(node, "", &self.times, AtFlags::EMPTY_PATH)
    }
}

fn xattrs(node: &Node) -> Result<Vec<Attribute>, Errno> {
    let mut names = vec![0; XATTR_BYTES_MAX];
    let length = match listxattr(node.path(), names.as_mut_slice()) {
        Err(Errno::OPNOTSUPP) => 0,
        result => result?,
    };
    let mut value = vec![0; XATTR_BYTES_MAX];
    let names = names[..length].split(|&byte| byte == 0).filter(|name| !name.is_empty());
    names
        .map(|name| {
            let length = getxattr(node.path(), name, value.as_mut_slice())?;
            Ok((name.to_vec(), value[..length].to_vec()))
        })
        .collect()
}
