//! Which file system a path is on, and where that is mounted.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A mounted file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    /// The kernel's number of the mount.
    pub(super) id: u64,
    /// The directory on which it is mounted.
    pub(super) place: PathBuf,
    /// Its type: `ext4`, `nfs4`, `fuse.daos`.
    pub(super) kind: String,
    /// What is mounted: a device, `server:/export`, or any word.
    pub(super) source: PathBuf,
}

impl Mount {
    /// A file system of which only one directory is known.
    pub(super) fn unknown(place: &Path) -> Self {
        let (place, kind, source) = (place.to_owned(), String::new(), PathBuf::new());
        Self { id: 0, place, kind, source }
    }
}

/// All mounts, in the order in which they were mounted.
pub(super) fn mounts() -> Vec<Mount> {
    let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    table.split(|&byte| byte == b'\n').filter_map(parse).collect()
}

/// The mount that an existing path is on.
pub(super) fn on_which<'a>(path: &Path, mounts: &'a [Mount]) -> Option<&'a Mount> {
    // Of several mounts at one place, the last hides the others.
    let above = mounts.iter().filter(|mount| path.starts_with(&mount.place));
    above.max_by_key(|mount| mount.place.components().count())
}

/// Reads a line like `36 35 98:0 / /mnt rw,noatime master:1 - ext3 /dev/root rw`.
fn parse(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&byte| byte == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let place = fields.nth(3)?;
    let mut behind_dash = fields.skip_while(|field| *field != b"-").skip(1);
    let kind = String::from_utf8_lossy(behind_dash.next()?).into_owned();
    let source = behind_dash.next().unwrap_or_default();
    let path = |field| PathBuf::from(OsString::from_vec(unescape(field)));
    Some(Mount { id, place: path(place), kind, source: path(source) })
}

/// Undoes mountinfo's escapes: `\040` is a space.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let octal = tail.get(..3).filter(|_| byte == b'\\');
        let value = octal
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        plain.push(value.unwrap_or(byte));
        rest = if value.is_some() { &tail[3..] } else { tail };
    }
    plain
}

/// The longest part of the path that exists.
pub(super) fn nearest_existing(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let existing = absolute.ancestors().find_map(|path| path.canonicalize().ok());
    existing.unwrap_or_else(|| PathBuf::from("/"))
}

/// The topmost directory above `path`, which exists, on the same file system.
pub(super) fn mount_of(path: &Path) -> PathBuf {
    let device = |path: &Path| path.metadata().map(|metadata| metadata.dev()).ok();
    let here = device(path);
    let same = path.ancestors().take_while(|ancestor| device(ancestor) == here);
    same.last().unwrap_or(path).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_is_not_there_counts_as_what_of_it_is() {
        assert_eq!(nearest_existing(Path::new("/no/such/place")), Path::new("/"));
    }

    #[test]
    fn what_is_mounted_begins_where_it_was_mounted() {
        assert_eq!(mount_of(Path::new("/proc/self")), Path::new("/proc"));
        assert_eq!(mount_of(Path::new("/")), Path::new("/"));
    }

    #[test]
    fn a_line_of_mountinfo_tells_place_type_and_source() {
        let line = br"36 35 0:45 /sub /mnt/my\040data rw shared:1 - fuse.daos dfuse rw,user_id=0";
        let mount = parse(line).unwrap();
        assert_eq!((mount.id, mount.place.to_str()), (36, Some("/mnt/my data")));
        assert_eq!((mount.kind.as_str(), mount.source.to_str()), ("fuse.daos", Some("dfuse")));
        assert_eq!(parse(b"36 35 0:45 / /mnt rw"), None);
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn mountinfo_escapes_are_undone() {
        assert_eq!(unescape(br"/mnt/a\040b\134c"), b"/mnt/a b\\c");
        assert_eq!(unescape(br"/mnt/\9"), br"/mnt/\9");
    }

    #[test]
    fn a_path_is_on_the_deepest_mount_above_it_and_of_those_on_the_last() {
        let mount = |id, place: &str| Mount { id, ..Mount::unknown(Path::new(place)) };
        let mounts = [mount(1, "/"), mount(2, "/a"), mount(3, "/a"), mount(4, "/ab")];
        let on = |path: &str| on_which(Path::new(path), &mounts).map(|mount| mount.id);
        assert_eq!([on("/a/b"), on("/abc"), on("/ab")], [Some(3), Some(1), Some(4)]);
        assert_eq!(on_which(Path::new("/a"), &[]), None);
    }
}
