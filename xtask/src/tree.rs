//! Lists the files of a directory, and compares two directories.

use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// The number of files in a tree, and of bytes in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    /// The number of regular files.
    pub(crate) files: u64,
    /// The number of bytes in them.
    pub(crate) bytes: u64,
}

/// The regular files below a directory: the path below it and the size of each, sorted by path.
pub(crate) fn files(root: &Path) -> Result<Vec<(PathBuf, u64)>> {
    let mut files = Vec::new();
    let mut directories = vec![PathBuf::new()];
    while let Some(directory) = directories.pop() {
        let place = root.join(&directory);
        let entries = fs::read_dir(&place).with_context(|| place.display().to_string())?;
        for entry in entries {
            let entry = entry?;
            let path = directory.join(entry.file_name());
            let kind = entry.file_type()?;
            if kind.is_dir() {
                directories.push(path);
            } else if kind.is_file() {
                files.push((path, entry.metadata()?.len()));
            }
        }
    }
    files.sort();
    Ok(files)
}

/// The number of files in a tree, and of bytes in them.
pub(crate) fn extent(root: &Path) -> Result<Extent> {
    let files = files(root)?;
    Ok(Extent { files: files.len() as u64, bytes: files.iter().map(|(_, size)| size).sum() })
}

/// Fails unless both trees have the same files with the same bytes.
pub(crate) fn compare(left: &Path, right: &Path) -> Result<()> {
    let (files_left, files_right) = (files(left)?, files(right)?);
    if files_left != files_right {
        let count = (files_left.len(), files_right.len());
        bail!("the files of {} and {} differ: {count:?}", left.display(), right.display());
    }
    for (path, _) in files_left {
        if !is_same(&left.join(&path), &right.join(&path))? {
            bail!("{} differs in {}", path.display(), right.display());
        }
    }
    Ok(())
}

/// Whether two files of the same length hold the same bytes.
fn is_same(left: &Path, right: &Path) -> Result<bool> {
    let (mut left, mut right) = (File::open(left)?, File::open(right)?);
    let (mut bytes_left, mut bytes_right) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    loop {
        let count = left.read(&mut bytes_left)?;
        if count == 0 {
            return Ok(true);
        }
        right.read_exact(&mut bytes_right[..count])?;
        if bytes_left[..count] != bytes_right[..count] {
            return Ok(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    fn two_trees(name: &str) -> (Scratch, PathBuf, PathBuf) {
        let scratch = Scratch::new(&std::env::temp_dir(), name).unwrap();
        let (left, right) = (scratch.join("left"), scratch.join("right"));
        for tree in [&left, &right] {
            fs::create_dir_all(tree.join("a/b")).unwrap();
            fs::write(tree.join("a/b/file"), b"the same").unwrap();
        }
        (scratch, left, right)
    }

    #[test]
    fn the_same_trees_are_the_same() {
        let (_scratch, left, right) = two_trees("tree-same");
        compare(&left, &right).unwrap();
        assert_eq!(extent(&left).unwrap(), Extent { files: 1, bytes: 8 });
    }

    #[test]
    fn one_byte_makes_a_difference() {
        let (_scratch, left, right) = two_trees("tree-byte");
        fs::write(right.join("a/b/file"), b"the sane").unwrap();
        compare(&left, &right).unwrap_err();
    }

    #[test]
    fn a_file_too_many_makes_a_difference() {
        let (_scratch, left, right) = two_trees("tree-more");
        fs::write(right.join("more"), b"").unwrap();
        compare(&left, &right).unwrap_err();
    }
}
