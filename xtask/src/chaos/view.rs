//! How a command sees a tree: with links, or with what they lead to in their place.

use lads_trees::{visit, visit_through_links};
use std::collections::BTreeMap;
use std::fs::{FileType, Metadata};
use std::path::{Path, PathBuf};

/// The types of all entries of a tree, by paths relative to its root.
pub(super) type Kinds = BTreeMap<PathBuf, FileType>;

/// Calls `meet` for everything below `root`, as a command sees it that follows links, or does not.
pub(super) fn view(root: &Path, follows_links: bool, meet: &mut impl FnMut(&Path, &Metadata)) {
    match follows_links {
        true => visit_through_links(root, meet),
        false => visit(root, meet),
    }
}

/// The types of all entries below `root`, as a command sees them that follows links, or does not.
pub(super) fn kinds(root: &Path, follows_links: bool) -> Kinds {
    let mut kinds = Kinds::new();
    view(root, follows_links, &mut |path, metadata| {
        let below = path.strip_prefix(root).expect("it lies there");
        kinds.insert(below.to_owned(), metadata.file_type());
    });
    kinds
}

/// The entries of a source other than directories that have the names of directories of a target
/// that are not empty. They are copied only with `--force` or `--delete`.
pub(super) fn blocked<'a>(source: &'a Kinds, target: &Kinds) -> Vec<&'a Path> {
    let is_full = |below: &Path| {
        // The entries of a directory follow the directory.
        let mut next = target.range(below.to_owned()..);
        next.next().is_some_and(|(path, kind)| path == below && kind.is_dir())
            && next.next().is_some_and(|(path, _)| path.starts_with(below))
    };
    let others = source.iter().filter(|(_, kind)| !kind.is_dir());
    others.map(|(below, _)| below.as_path()).filter(|below| is_full(below)).collect()
}
