//! One thing of a tree, as the source found it: what the sink needs to make the same.

use crate::placement::Striping;
use crate::units::{EntryId, OstId};

/// A moment of the world's clock, as file systems record it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Timestamp {
    /// Whole seconds since 1970; negative before.
    pub seconds: i64,
    /// Nanoseconds after that, below one thousand million.
    pub nanos: u32,
}

/// What must stay the same while a file moves; if any of it differs, the file has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Identity {
    /// Length in bytes.
    pub size: u64,
    /// When the data last changed.
    pub mtime: Timestamp,
    /// When the data or the metadata last changed; unlike `mtime`, no program can set it back.
    pub ctime: Timestamp,
    /// Number of the file in its file system.
    pub inode: u64,
}

/// A name and value that a file system keeps beside a file. ACLs travel as these, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xattr {
    /// Name with its namespace, such as `user.origin`.
    pub name: Vec<u8>,
    /// Any bytes.
    pub value: Vec<u8>,
}

/// What an entry carries besides its name and data.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Metadata {
    /// Permission bits with set-user-id, set-group-id and sticky: at most `0o7777`.
    pub mode: u32,
    /// Owner, by number.
    pub uid: u32,
    /// Group, by number.
    pub gid: u32,
    /// When the data last changed.
    pub mtime: Timestamp,
    /// Extended attributes, ACLs among them.
    pub xattrs: Vec<Xattr>,
}

/// What sort of thing an entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File {
        /// What it must still be when its last block has been read.
        identity: Identity,
        /// How many of its bytes are data, not holes: what the sink must have before it is whole.
        data_bytes: u64,
        /// How it is striped at the source, for a sink that shall do the same.
        striping: Striping,
        /// The OST of the source on which it begins, so that the sink takes in files of all of
        /// them side by side.
        source_ost: OstId,
        /// Whether a comparison has found other bytes at the sink: it is to be sent, and not to be
        /// compared again.
        is_different: bool,
    },
    /// A directory. The name `.` directly below the root means the root itself.
    Directory,
    /// A symbolic link.
    Symlink {
        /// Where it points, as written in the link.
        target: Vec<u8>,
    },
    /// A further name of a file that the sink already has.
    HardLink {
        /// The path of that file below the root.
        target: Vec<u8>,
    },
    /// A device, FIFO or socket; only moved when asked for.
    Special {
        /// The file type bits of `st_mode`.
        file_type: u32,
        /// The device's number; zero for FIFOs and sockets.
        device: u64,
    },
}

/// One thing of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its number in this transfer.
    pub id: EntryId,
    /// The directory that it lies in.
    pub parent: EntryId,
    /// Its name in that directory: any bytes but `/` and NUL.
    pub name: Vec<u8>,
    /// What sort of thing it is.
    pub kind: Kind,
    /// Mode, owner, times and attributes.
    pub metadata: Metadata,
}

impl Entry {
    /// Length in bytes for a regular file, zero for anything else.
    #[must_use]
    pub fn size(&self) -> u64 {
        match &self.kind {
            Kind::File { identity, .. } => identity.size,
            _ => 0,
        }
    }

    /// Reports whether it is unsized: a file of unknown length, such as a pipe.
    #[must_use]
    pub fn is_unsized(&self) -> bool {
        matches!(&self.kind, Kind::File { identity, data_bytes, .. }
            if identity.size == UNSIZED_BYTES && *data_bytes == UNSIZED_BYTES)
    }

    /// The bytes of data that it counts for where places are chosen.
    #[must_use]
    pub fn placed_bytes(&self) -> u64 {
        match &self.kind {
            Kind::File { .. } if self.is_unsized() => UNSIZED_PLACED_BYTES,
            Kind::File { data_bytes, .. } => *data_bytes,
            _ => 0,
        }
    }

    /// Returns the size of its parts of variable length in bytes: name, target of a link, and
    /// attributes with their entries in a table.
    #[must_use]
    pub fn variable_bytes(&self) -> usize {
        let target_bytes = match &self.kind {
            Kind::Symlink { target } | Kind::HardLink { target } => target.len(),
            Kind::File { .. } | Kind::Directory | Kind::Special { .. } => 0,
        };
        let of_attribute = |xattr: &Xattr| XATTR_BYTES + xattr.name.len() + xattr.value.len();
        let xattr_bytes: usize = self.metadata.xattrs.iter().map(of_attribute).sum();
        self.name.len() + target_bytes + xattr_bytes
    }

    /// Reports whether it is a regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        matches!(self.kind, Kind::File { .. })
    }

    /// Reports whether it is a directory.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        matches!(self.kind, Kind::Directory)
    }
}

/// The size in bytes that an unsized file is announced with: one whose length nobody knows before
/// its end. No file has this many bytes of data: 4 EiB, a multiple of all block sizes.
pub const UNSIZED_BYTES: u64 = 1 << 62;

/// An unsized file is placed as if it had this length, in bytes: it may become long, so it should
/// get several stripes. A choice, not measured: with half or double, file systems where LADS
/// chooses the number of stripes give such files fewer or more of
/// them.
pub const UNSIZED_PLACED_BYTES: u64 = 1 << 30;

/// What a table needs for an attribute besides its name and value, about.
const XATTR_BYTES: usize = 64;

/// The longest name of one path component, in bytes (Linux's `NAME_MAX`).
pub const NAME_BYTES_MAX: usize = 255;

/// The longest path that is told, in bytes (Linux's `PATH_MAX`: no call takes a longer one).
/// Entries may lie deeper; they are known by their directory and name.
pub const PATH_BYTES_MAX: usize = 4096;

/// Reports whether a peer may name an entry so: one component, not empty, no `/`, no NUL, not `..`.
///
/// `.` passes only directly below the root, where it stands for the root itself.
#[must_use]
pub fn is_safe_name(name: &[u8], parent: EntryId) -> bool {
    !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && !name.iter().any(|&byte| byte == b'/' || byte == 0)
        && name != b".."
        && (name != b"." || parent == EntryId::ROOT)
}

/// Reports whether a peer may name a path below the root so: safe components, parted by single
/// slashes.
#[must_use]
pub fn is_safe_path(path: &[u8]) -> bool {
    path.len() <= PATH_BYTES_MAX
        && path
            .split(|&byte| byte == b'/')
            .all(|name| name != b"." && is_safe_name(name, EntryId(1)))
}

/// What a path that is too long to be told is shown with in its middle.
const LEFT_OUT: &[u8] = b"/.../";

/// Returns a path as it is printed: without its middle if it is longer than [`PATH_BYTES_MAX`], cut
/// at slashes if possible.
#[must_use]
pub fn shortened(path: Vec<u8>) -> Vec<u8> {
    if path.len() <= PATH_BYTES_MAX {
        return path;
    }
    let half = (PATH_BYTES_MAX - LEFT_OUT.len()) / 2;
    let (head, tail) = (&path[..half], &path[path.len() - half..]);
    let head_end = head.iter().rposition(|&byte| byte == b'/').unwrap_or(half);
    let tail_start = tail.iter().position(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    [&head[..head_end], LEFT_OUT, &tail[tail_start..]].concat()
}

/// What every name that LADS gives to files of its own begins with.
pub const OWN_PREFIX: &str = ".lads-";

/// Reports whether a name is one of LADS's own at a sink: journals, and incomplete files and links.
/// A source omits such names, and a sink rejects them.
#[must_use]
pub fn is_own_name(name: &[u8]) -> bool {
    let is_hex = |bytes: &[u8]| bytes.iter().all(u8::is_ascii_hexdigit);
    let has_digits = |rest: &[u8], (ending, digits): (&str, usize)| {
        rest.strip_suffix(ending.as_bytes()).is_some_and(|hex| hex.len() == digits && is_hex(hex))
    };
    let endings = [(".journal", 16), (".journal.new", 16), (".part", 32)];
    name.strip_prefix(OWN_PREFIX.as_bytes())
        .is_some_and(|rest| endings.into_iter().any(|ending| has_digits(rest, ending)))
}

/// Reports whether a name is one that LADS itself makes, and that of a journal.
#[must_use]
pub fn is_journal_name(name: &[u8]) -> bool {
    is_own_name(name) && !name.ends_with(b".part")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_we_name_has_a_name_of_ours() {
        let part = format!(".lads-{}.part", "0a".repeat(16));
        for name in [part.as_str(), ".lads-0123456789abcdef.journal"] {
            assert!(is_own_name(name.as_bytes()), "{name}");
        }
        assert!(is_own_name(b".lads-0123456789abcdef.journal.new"));
        for name in [".lads-", ".lads-12.part", ".lads-0123456789abcdeg.journal", "x.part"] {
            assert!(!is_own_name(name.as_bytes()), "{name}");
        }
        assert!(!is_own_name(format!("x{part}").as_bytes()));
    }

    #[test]
    fn refuses_names_that_lead_elsewhere() {
        let inner = EntryId(3);
        for name in [&b""[..], b"..", b"a/b", b"a\0b", b".", &[b'x'; 256]] {
            assert!(!is_safe_name(name, inner), "{name:?}");
        }
        for name in [&b"a"[..], b"...", b" ", b"\xff\n", b"-rf"] {
            assert!(is_safe_name(name, inner), "{name:?}");
        }
        assert!(is_safe_name(b".", EntryId::ROOT));
    }

    #[test]
    fn refuses_paths_that_lead_elsewhere() {
        for path in [&b"/etc/passwd"[..], b"a//b", b"a/../b", b"", b"a/", b"./a"] {
            assert!(!is_safe_path(path), "{path:?}");
        }
        assert!(is_safe_path(b"a/b/c"));
    }

    #[test]
    fn a_path_that_is_too_long_to_be_told_keeps_its_beginning_and_its_end() {
        let longest = vec![b'x'; PATH_BYTES_MAX];
        assert_eq!(shortened(longest.clone()), longest);
        let names: Vec<String> = (0..10_000).map(|number| number.to_string()).collect();
        let told = String::from_utf8(shortened(names.join("/").into_bytes())).unwrap();
        assert!(told.starts_with("0/1/2/") && told.ends_with("/9998/9999"), "{told}");
        let (head, tail) = told.split_once("/.../").unwrap();
        assert!(told.len() <= PATH_BYTES_MAX && told.len() > PATH_BYTES_MAX - 20);
        let is_whole = |name: &str| names.iter().any(|whole| whole == name);
        assert!(head.split('/').chain(tail.split('/')).all(is_whole), "{told}");
        assert!(shortened(vec![b'x'; 1 << 20]).len() <= PATH_BYTES_MAX);
    }
}
