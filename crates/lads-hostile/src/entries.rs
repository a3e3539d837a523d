//! Entries as an honest source would announce them, for scripts that then change one thing, and
//! the bytes that files are made of.

use lads_core::entry::{Entry, Identity, Kind, Metadata, Timestamp, Xattr};
use lads_core::placement::Striping;
use lads_core::units::{EntryId, OstId};
use twox_hash::XxHash3_64;

/// What a file with this name holds: bytes that follow from name and place, none of them zero, so
/// that a hole or a mixture shows.
#[must_use]
pub fn content_of(name: &[u8], size: usize) -> Vec<u8> {
    let seed = XxHash3_64::oneshot(name);
    let mut bytes = Vec::with_capacity(size + 8);
    for word in 0u64.. {
        if bytes.len() >= size {
            break;
        }
        bytes.extend_from_slice(
            &XxHash3_64::oneshot_with_seed(seed, &word.to_le_bytes()).to_le_bytes(),
        );
    }
    bytes.truncate(size);
    bytes.iter_mut().for_each(|byte| *byte |= 1);
    bytes
}

fn entry(id: u64, name: &[u8], kind: Kind, mode: u32) -> Entry {
    let metadata = Metadata {
        mode,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        mtime: Timestamp { seconds: 1_600_000_000, nanos: 5 },
        xattrs: Vec::new(),
    };
    Entry { id: EntryId(id), parent: EntryId::ROOT, name: name.to_vec(), kind, metadata }
}

/// A regular file of this many bytes, below the target directory.
#[must_use]
pub fn file(id: u64, name: impl AsRef<[u8]>, size: u64) -> Entry {
    let mtime = Timestamp { seconds: 1_600_000_000, nanos: 5 };
    let identity = Identity { size, mtime, ctime: mtime, inode: id };
    let striping = Striping { size: 0, count: 0 };
    let kind = Kind::File {
        identity,
        data_bytes: size,
        striping,
        source_ost: OstId(0),
        is_different: false,
    };
    entry(id, name.as_ref(), kind, 0o644)
}

/// A directory below the target directory.
#[must_use]
pub fn directory(id: u64, name: impl AsRef<[u8]>) -> Entry {
    entry(id, name.as_ref(), Kind::Directory, 0o755)
}

/// A symbolic link.
#[must_use]
pub fn symlink(id: u64, name: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Entry {
    entry(id, name.as_ref(), Kind::Symlink { target: target.as_ref().to_vec() }, 0o777)
}

/// A further name of what is at `target` below the target directory.
#[must_use]
pub fn hard_link(id: u64, name: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Entry {
    entry(id, name.as_ref(), Kind::HardLink { target: target.as_ref().to_vec() }, 0o644)
}

/// A device, FIFO or socket, or what calls itself so.
#[must_use]
pub fn special(id: u64, name: impl AsRef<[u8]>, file_type: u32, device: u64) -> Entry {
    entry(id, name.as_ref(), Kind::Special { file_type, device }, 0o666)
}

/// Changes of an entry, to be written behind it.
pub trait Changed: Sized {
    /// The same with something changed.
    #[must_use]
    fn with(self, change: impl FnOnce(&mut Self)) -> Self;
}

impl Changed for Entry {
    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

/// The same entry in the directory with this number.
#[must_use]
pub fn below(parent: u64, entry: Entry) -> Entry {
    entry.with(|entry| entry.parent = EntryId(parent))
}

/// The same entry with this extended attribute.
#[must_use]
pub fn with_xattr(entry: Entry, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Entry {
    let xattr = Xattr { name: name.as_ref().to_vec(), value: value.as_ref().to_vec() };
    entry.with(|entry| entry.metadata.xattrs.push(xattr))
}
