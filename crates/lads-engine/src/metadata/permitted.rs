//! Which metadata the sink gives to entries: only what the user asked for, whatever the source
//! says.
//!
//! The source leaves out the rest, too, but the sink does not rely on that: it may run as root for
//! a source that nobody watches.

use super::{PERMISSION_BITS, SET_ID_BITS, is_acl, is_moved, is_privilege};
use crate::job::Options;
use lads_core::entry::{Entry, Kind, Metadata};
use lads_core::reduction::{Reduction, Reductions};
use rustix::fs::FileType;

/// The metadata that an entry may get.
#[derive(Debug)]
pub(crate) struct Permitted {
    pub(crate) metadata: Metadata,
    /// The kinds of metadata that the entry does not get: those that `--privileges` would have
    /// kept.
    pub(crate) reductions: Reductions,
}

/// The part of the source's metadata that an entry may get.
///
/// Directories keep their set-id bits: on a directory, these decide the group of new files, and
/// give no rights.
pub(crate) fn permitted(entry: &Entry, options: &Options) -> Permitted {
    let mut metadata = entry.metadata.clone();
    metadata.mode &= PERMISSION_BITS;
    let count = if options.xattrs {
        // ACLs are permissions.
        let is_kept = |name: &[u8]| is_moved(name) && (options.permissions || !is_acl(name));
        metadata.xattrs.retain(|xattr| is_kept(&xattr.name));
        metadata.xattrs.len()
    } else {
        metadata.xattrs.clear();
        0
    };
    if options.privileges {
        return Permitted { metadata, reductions: Reductions::default() };
    }
    metadata.xattrs.retain(|xattr| !is_privilege(&xattr.name));
    let mut is_reduced = metadata.xattrs.len() < count;
    if matches!(entry.kind, Kind::File { .. } | Kind::Special { .. }) {
        is_reduced |= options.permissions && metadata.mode & SET_ID_BITS != 0;
        metadata.mode &= !SET_ID_BITS;
    }
    // A further name gets no metadata; if something was left out, that was at the first name.
    is_reduced &= !matches!(entry.kind, Kind::HardLink { .. });
    let mut reductions = Reductions::default();
    if is_reduced {
        reductions.insert(Reduction::Privileges);
    }
    Permitted { metadata, reductions }
}

/// Whether the user asked for such an entry. Special files must be of a sort named on the command
/// line, and of a type that special files can have.
pub(crate) fn is_asked_for(kind: &Kind, options: &Options) -> bool {
    let Kind::Special { file_type, .. } = kind else { return true };
    let sort = [FileType::Fifo, FileType::Socket, FileType::BlockDevice, FileType::CharacterDevice]
        .into_iter()
        .find(|sort| sort.as_raw_mode() == *file_type);
    sort.is_some_and(|sort| options.moves_special(sort))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lads_core::entry::{Identity, Xattr};
    use lads_core::placement::Striping;
    use lads_core::units::{EntryId, OstId};

    const FILE: Kind = Kind::File {
        identity: Identity {
            size: 0,
            mtime: lads_core::entry::Timestamp { seconds: 0, nanos: 0 },
            ctime: lads_core::entry::Timestamp { seconds: 0, nanos: 0 },
            inode: 1,
        },
        data_bytes: 0,
        striping: Striping { size: 0, count: 1 },
        source_ost: OstId(0),
        is_different: false,
    };
    const FIFO: Kind = Kind::Special { file_type: 0o010_000, device: 0 };

    fn entry(kind: Kind, mode: u32, names: &[&str]) -> Entry {
        let xattr = |name: &&str| Xattr { name: name.as_bytes().to_vec(), value: b"1".to_vec() };
        let xattrs = names.iter().map(xattr).collect();
        let metadata = Metadata { mode, xattrs, ..Metadata::default() };
        Entry { id: EntryId(1), parent: EntryId::ROOT, name: b"it".to_vec(), kind, metadata }
    }

    /// Mode and attributes that are left, and whether something is missing that was asked about.
    fn left(entry: &Entry, options: &Options) -> (u32, Vec<String>, bool) {
        let Permitted { metadata, reductions } = permitted(entry, options);
        let name = |xattr: &Xattr| String::from_utf8(xattr.name.clone()).expect("it is text");
        let is_reduced = reductions.contains(Reduction::Privileges);
        (metadata.mode, metadata.xattrs.iter().map(name).collect(), is_reduced)
    }

    #[test]
    fn files_get_no_set_id_bits_unless_privileges_are_asked_for() {
        let plain = Options::default();
        let asked = Options { privileges: true, ..Options::default() };
        for kind in [FILE, FIFO] {
            let it = entry(kind, 0o7755, &[]);
            assert_eq!(left(&it, &plain), (0o1755, vec![], true));
            assert_eq!(left(&it, &asked), (0o7755, vec![], false));
        }
        assert_eq!(left(&entry(FILE, 0o1755, &[]), &plain), (0o1755, vec![], false));
        assert_eq!(left(&entry(Kind::Directory, 0o7755, &[]), &plain), (0o7755, vec![], false));
        let further = Kind::HardLink { target: b"first".to_vec() };
        assert!(!left(&entry(further, 0o4755, &["trusted.x"]), &plain).2);
        let no_modes = Options { permissions: false, ..Options::default() };
        assert!(!left(&entry(FILE, 0o4755, &[]), &no_modes).2);
    }

    #[test]
    fn no_mode_has_bits_that_are_not_of_a_mode() {
        let asked = Options { privileges: true, ..Options::default() };
        assert_eq!(left(&entry(FILE, u32::MAX, &[]), &asked).0, 0o7777);
    }

    #[test]
    fn only_attributes_that_are_moved_and_asked_for_are_set() {
        let acl = "system.posix_acl_access";
        let names = ["user.x", acl, "security.capability", "trusted.x", "security.selinux"];
        for kind in [FILE, Kind::Directory] {
            let it = entry(kind, 0o644, &[&names[..], &["trusted.lov", "system.other"]].concat());
            let plain = left(&it, &Options::default());
            assert_eq!((plain.1, plain.2), (vec!["user.x".to_owned(), acl.to_owned()], true));
            let asked = Options { privileges: true, ..Options::default() };
            assert_eq!(left(&it, &asked).1, &names[..4]);
            let no_modes = Options { permissions: false, ..Options::default() };
            assert_eq!(left(&it, &no_modes).1, ["user.x"]);
            let none = Options { xattrs: false, privileges: true, ..Options::default() };
            assert_eq!(left(&it, &none).1, Vec::<String>::new());
            let none = Options { xattrs: false, ..Options::default() };
            assert!(!left(&it, &none).2);
        }
        // Of what is never moved nobody is told: an honest source does not send it.
        let never = entry(FILE, 0o644, &["security.selinux"]);
        assert_eq!(left(&never, &Options::default()), (0o644, vec![], false));
    }

    #[test]
    fn special_files_are_made_only_if_their_sort_is_asked_for() {
        let (fifo, socket, block, character) = (0o010_000, 0o140_000, 0o060_000, 0o020_000);
        let none = Options::default();
        let devices = Options { devices: true, ..Options::default() };
        let specials = Options { specials: true, ..Options::default() };
        let both = Options { devices: true, specials: true, ..Options::default() };
        let is =
            |file_type, options| is_asked_for(&Kind::Special { file_type, device: 0 }, options);
        for file_type in [fifo, socket] {
            assert!(is(file_type, &specials) && is(file_type, &both));
            assert!(!is(file_type, &none) && !is(file_type, &devices));
        }
        for file_type in [block, character] {
            assert!(is(file_type, &devices) && is(file_type, &both));
            assert!(!is(file_type, &none) && !is(file_type, &specials));
        }
        // A file, a directory, a link, nothing, a FIFO with permissions, all bits.
        for bogus in [0o100_000, 0o040_000, 0o120_000, 0, 0o010_666, 0o170_000, u32::MAX] {
            assert!(!is(bogus, &both), "{bogus:o}");
        }
        assert!(is_asked_for(&FILE, &none) && is_asked_for(&Kind::Directory, &none));
    }
}
