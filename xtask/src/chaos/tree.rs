//! Makes the trees at the beginning of a round: the source, old entries at the target, and the
//! source of a rival.

use super::plan::Plan;
use anyhow::Result;
use lads_trees::{Rng, set_mtime, visit};
use std::fs::{self, FileType};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The minimum size of the large file, in bytes. Moving it takes half a second at 6 MiB/s, which is
/// enough time for a dozen changes. Half the size could leave time for too few changes; twice the
/// size makes rounds slow.
const LARGE_BYTES_MIN: usize = 3 << 20;

/// The size of an attribute that does not fit into a block of 1 KiB, in bytes.
const LARGE_ATTRIBUTE_BYTES: usize = 3_000;

/// The modification times of an older and of a newer file, in seconds since 1970.
const OLDER: i64 = 1_000_000_000;
const NEWER: i64 = 3_000_000_000;

/// Makes the source, and a directory to which a link in it leads. Another link leads to the canary,
/// unless commands copy what links lead to and also remove it.
pub(super) fn grow(
    rng: &mut Rng,
    source: &Path,
    plan: &Plan,
    canary: &Path,
    elsewhere: &Path,
) -> Result<()> {
    fs::write(canary.join("file"), "this was here")?;
    lads_trees::grow(rng, source, &plan.scale);
    if plan.follows_links() {
        fs::create_dir_all(elsewhere.join("below"))?;
        fs::write(elsewhere.join("file"), "outside of the source")?;
        fs::write(elsewhere.join("below/file"), "also outside of the source")?;
        settle_links(source, plan.has_bad_links)?;
        let _ = symlink(elsewhere, source.join("elsewhere"));
    }
    if !(plan.follows_links() && plan.moves()) {
        let _ = symlink(canary, source.join("canary"));
    }
    if plan.storage.reduces() {
        let path = source.join("large attribute");
        fs::write(&path, "its attribute is larger than some file systems take")?;
        let value = rng.bytes(LARGE_ATTRIBUTE_BYTES);
        lads_trees::set_xattr(&path, b"user.large", &value);
    }
    if plan.has_large_file {
        let bytes = LARGE_BYTES_MIN + rng.below(LARGE_BYTES_MIN);
        fs::write(source.join("large"), rng.bytes(bytes))?;
    }
    if plan.small_files > 0 {
        let small = source.join("small");
        fs::create_dir(&small)?;
        for number in 0..plan.small_files {
            let bytes = rng.below(3000);
            fs::write(small.join(format!("{number}")), rng.bytes(bytes))?;
        }
    }
    Ok(())
}

/// Removes links that lead out of the source to the target and, unless `may_be_bad`, links that
/// lead nowhere or to a directory that they lie in.
fn settle_links(source: &Path, may_be_bad: bool) -> Result<()> {
    let mut unwanted = Vec::new();
    let root = source.canonicalize()?;
    visit(source, &mut |path, metadata| {
        if metadata.is_symlink() {
            let is_outside =
                path.canonicalize().is_ok_and(|it| root.starts_with(&it) && it != root);
            if is_outside || (!may_be_bad && is_bad_link(path)) {
                unwanted.push(path.to_owned());
            }
        }
    });
    Ok(unwanted.iter().try_for_each(fs::remove_file)?)
}

/// Whether a link leads nowhere, to a directory that it lies in, or is one that the kernel does not
/// follow.
pub(super) fn is_bad_link(path: &Path) -> bool {
    let parent = path.parent().and_then(|parent| parent.canonicalize().ok());
    let Ok(referent) = path.canonicalize() else { return true };
    // The kernel follows no link of another user in a sticky directory (fs.protected_symlinks).
    path.metadata().is_err() || parent.is_none_or(|parent| parent.starts_with(referent))
}

/// The files below `root`, sorted by path.
fn files(root: &Path) -> Vec<PathBuf> {
    let files = entries(root).into_iter().filter(|(_, kind)| kind.is_file());
    files.map(|(below, _)| below).collect()
}

/// The entries below `root` with their types, sorted by path.
fn entries(root: &Path) -> Vec<(PathBuf, FileType)> {
    let mut entries = Vec::new();
    visit(root, &mut |path, metadata| {
        let below = path.strip_prefix(root).expect("it lies there");
        entries.push((below.to_owned(), metadata.file_type()));
    });
    entries.retain(|(below, _)| !below.as_os_str().is_empty());
    entries.sort_by(|one, other| one.0.cmp(&other.0));
    entries
}

/// Puts older, newer and equal files at the target, and instead of some files symbolic links that
/// lead out of it.
pub(super) fn plant(rng: &mut Rng, source: &Path, target: &Path, canary: &Path) -> Result<()> {
    fs::create_dir_all(target)?;
    fs::write(target.join("only at the target"), "foreign")?;
    for below in files(source) {
        let (from, to) = (source.join(&below), target.join(&below));
        let choice = rng.below(10);
        if choice < 5 {
            continue;
        }
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent)?;
        }
        let count = 1 + rng.below(5000);
        match choice {
            5 => {
                fs::write(&to, rng.bytes(count))?;
                set_mtime(&to, OLDER, 0);
            }
            6 => {
                fs::write(&to, rng.bytes(count))?;
                set_mtime(&to, NEWER, 0);
            }
            7 => symlink(canary.join("file"), &to)?,
            8 => symlink("/nowhere/at/all", &to)?,
            _ => {
                fs::copy(&from, &to)?;
            }
        }
    }
    Ok(())
}

/// Puts entries at the target that have other kinds than those of the source, in the place of some
/// of these.
pub(super) fn plant_kinds(
    rng: &mut Rng,
    source: &Path,
    target: &Path,
    canary: &Path,
) -> Result<()> {
    fs::create_dir_all(target)?;
    let mut planted: Vec<PathBuf> = Vec::new();
    for (below, kind) in entries(source) {
        let choice = rng.below(40);
        let to = target.join(&below);
        if choice >= 4 || planted.iter().any(|above| below.starts_with(above)) {
            continue;
        }
        fs::create_dir_all(to.parent().unwrap_or(target))?;
        match to.symlink_metadata() {
            Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(&to)?,
            Ok(_) => fs::remove_file(&to)?,
            Err(_) => {}
        }
        match choice {
            0 | 1 if kind.is_dir() => symlink(canary, &to)?,
            2 | 3 if kind.is_dir() => fs::write(&to, "in the place of a directory")?,
            0 => fs::create_dir(&to)?,
            1 | 2 => {
                fs::create_dir(&to)?;
                fs::write(to.join("file"), "in the place of another kind")?;
            }
            _ if kind.is_symlink() => fs::write(&to, "in the place of a link")?,
            _ => symlink("/nowhere/at/all", &to)?,
        }
        planted.push(below);
    }
    Ok(())
}

/// Makes the source of a rival: other files with the same names, and files of its own.
pub(super) fn grow_rival(rng: &mut Rng, source: &Path, rival: &Path) -> Result<()> {
    fs::create_dir_all(rival)?;
    for number in 0..10 {
        let bytes = rng.below(300_000);
        fs::write(rival.join(format!("rival{number}")), rng.bytes(bytes))?;
    }
    for below in files(source) {
        if !rng.is_one_in(3) {
            continue;
        }
        let path = rival.join(&below);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let bytes = rng.below(500_000);
        fs::write(&path, rng.bytes(bytes))?;
        set_mtime(&path, OLDER, i64::try_from(rng.below(1_000_000))?);
    }
    Ok(())
}
