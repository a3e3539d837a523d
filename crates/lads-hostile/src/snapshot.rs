//! Everything that there is in a tree, as text that can be compared: what a lie could change.

use rustix::fs::{Mode, OFlags, llistxattr, open};
use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use twox_hash::XxHash3_64;

/// A tree at one moment: a line for each path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot(BTreeMap<PathBuf, String>);

impl Snapshot {
    /// Looks at a tree, leaving out what lies in `except`.
    #[must_use]
    pub fn of(root: &Path, except: &[PathBuf]) -> Self {
        let mut lines = BTreeMap::new();
        let mut waiting = vec![root.to_owned()];
        while let Some(path) = waiting.pop() {
            lines.insert(path.clone(), line_of(&path));
            if fs::symlink_metadata(&path).is_ok_and(|it| it.is_dir()) {
                let inside = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
                waiting.extend(inside.filter(|path| !except.contains(path)));
            }
        }
        Self(lines)
    }

    /// What is different in `after`, path by path; empty if nothing is.
    #[must_use]
    pub fn difference(&self, after: &Self) -> String {
        let paths: std::collections::BTreeSet<_> = self.0.keys().chain(after.0.keys()).collect();
        let differing = paths.into_iter().filter(|path| self.0.get(*path) != after.0.get(*path));
        let told = differing.map(|path| {
            let said = |it: &Self| it.0.get(path).cloned().unwrap_or_else(|| "nothing".to_owned());
            format!("{}: was {}, is {}\n", path.display(), said(self), said(after))
        });
        told.collect()
    }
}

/// One path: what it is, whose, when changed, how many names, attributes, content. Not when it was
/// read, which an honest source may do.
fn line_of(path: &Path) -> String {
    let Ok(stat) = fs::symlink_metadata(path) else { return "gone".to_owned() };
    let kind = stat.file_type();
    let content = if kind.is_symlink() {
        format!("-> {}", fs::read_link(path).unwrap().display())
    } else if kind.is_file() {
        format!("holds {:016x}", hash_of(path))
    } else if kind.is_dir() {
        "directory".to_owned()
    } else {
        format!("special {} {}", kind.is_fifo(), stat.rdev())
    };
    let (mode, uid, gid, links) = (stat.mode(), stat.uid(), stat.gid(), stat.nlink());
    let modified = (stat.mtime(), stat.mtime_nsec());
    let changed = (stat.ctime(), stat.ctime_nsec());
    let xattrs = xattr_names(path);
    format!(
        "{mode:o} {uid}:{gid} x{links} {} bytes {modified:?} {changed:?} {xattrs:?} {content}",
        stat.len()
    )
}

fn hash_of(path: &Path) -> u64 {
    let Ok(file) = open(path, OFlags::RDONLY | OFlags::NOFOLLOW, Mode::empty()) else { return 0 };
    let mut bytes = Vec::new();
    // What is larger than any case makes is told by its size and times.
    fs::File::from(file).take(64 << 20).read_to_end(&mut bytes).unwrap();
    XxHash3_64::oneshot(&bytes)
}

/// The names of a path's extended attributes; none where there are none.
#[must_use]
pub fn xattr_names(path: &Path) -> Vec<String> {
    let mut names = vec![0; 64 << 10];
    let count = llistxattr(path.as_os_str().as_bytes(), names.as_mut_slice()).unwrap_or(0);
    let names = names[..count].split(|&byte| byte == 0).filter(|name| !name.is_empty());
    names.map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_data_mode_or_names_shows() {
        let there = tempfile::tempdir().unwrap();
        let path = there.path().join("file");
        fs::write(&path, "a").unwrap();
        let look = || Snapshot::of(there.path(), &[]);
        let (before, data_before) = (look(), hash_of(&path));
        assert_eq!(before.difference(&look()), "");
        fs::write(&path, "b").unwrap();
        assert!(before.difference(&look()).contains("holds"));
        assert_ne!(hash_of(&path), data_before);
        let before = look();
        fs::hard_link(&path, there.path().join("other")).unwrap();
        assert!(before.difference(&look()).contains("was nothing"));
    }
}
