//! Which file system a path is on, and where that is mounted.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The path, or as much of it as is there.
pub(super) fn nearest_existing(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let existing = absolute.ancestors().find_map(|path| path.canonicalize().ok());
    existing.unwrap_or_else(|| PathBuf::from("/"))
}

/// The topmost directory above `path`, which is there, that is on the same file system.
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
}
