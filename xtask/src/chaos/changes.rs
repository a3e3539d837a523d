//! Changes the source while it is moved. Each change is a single system call, so that there is no
//! state in between that the history does not know.
//!
//! A command that removes files at the source may remove the file first. Then nothing is changed.

use super::history::History;
use anyhow::Result;
use lads_trees::{Rng, visit, visit_through_links};
use rustix::fs::{CWD, FileType, Mode, Timespec, Timestamps, mknodat, utimensat};
use rustix::io::Errno;
use std::fs::{self, Metadata, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The time between two changes. It is longer than the resolution of the file system's clock;
/// otherwise the second change could not be detected.
const INTERVAL: Duration = Duration::from_millis(25);
/// The number of bytes of a file that change at a time. It is less than a page, because a page is
/// read either whole or not at all.
const CHANGED_BYTES: usize = 512;
const PAGE_BYTES: u64 = 4096;

/// The changes that are still to be made.
#[derive(Debug)]
pub(super) struct Changes {
    rng: Rng,
    left: usize,
    due: Instant,
    /// Whether the command runs as a user without privileges, who owns the source.
    is_unprivileged: bool,
}

impl Changes {
    /// This number of changes, the first of them due now.
    pub(super) fn new(seed: u64, count: usize, is_unprivileged: bool) -> Self {
        Self { rng: Rng::new(seed), left: count, due: Instant::now(), is_unprivileged }
    }

    pub(super) fn are_over(&self) -> bool {
        self.left == 0
    }

    /// Makes the next change below `root` if it is due. Returns a description of it.
    pub(super) fn make_next(
        &mut self,
        root: &Path,
        history: &mut History,
    ) -> Result<Option<String>> {
        if self.left == 0 || Instant::now() < self.due {
            return Ok(None);
        }
        self.left -= 1;
        let said = change(&mut self.rng, root, history, self.is_unprivileged);
        self.due = Instant::now() + INTERVAL;
        said.or_else(|error| if is_gone(&error) { Ok(None) } else { Err(error) })
    }
}

/// Whether a change failed because the command has removed the file.
fn is_gone(error: &anyhow::Error) -> bool {
    let of_std = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    of_std == Some(ErrorKind::NotFound) || error.downcast_ref() == Some(&Errno::NOENT)
}

/// Makes one change to one file. Returns `None` if there is no file to change.
fn change(
    rng: &mut Rng,
    root: &Path,
    history: &mut History,
    is_unprivileged: bool,
) -> Result<Option<String>> {
    let files = files(root);
    if files.is_empty() {
        return Ok(None);
    }
    // Half of the changes are to the largest file, which takes long to move, and most of these keep
    // its length. Only then can LADS read one part of it before several changes, and another part
    // after them.
    let is_of_largest = rng.is_one_in(2);
    let path = if is_of_largest { largest(&files) } else { &files[rng.below(files.len())] };
    let before = path.metadata()?;
    let size = before.size();
    let open = || OpenOptions::new().write(true).open(path);
    let kind = rng.below(if is_of_largest { 18 } else { 10 });
    let what = match kind {
        0 => {
            let added_bytes = 1 + rng.below(100_000);
            open()?.write_all_at(&rng.bytes(added_bytes), size)?;
            "grown"
        }
        1 if size > 0 => {
            open()?.set_len(rng.next() % size)?;
            "cut"
        }
        2 | 3 | 10.. if size >= PAGE_BYTES => {
            overwrite_unseen(rng, path)?;
            history.on_changed(root, path);
            note_stealth(root, path, history);
            return Ok(Some(format!("overwritten, time restored: {path:?}")));
        }
        4 => {
            // The new file is made outside of the source, so that the source never holds half of
            // it.
            let new = root.with_extension("new");
            fs::write(&new, rng.bytes(usize::try_from(size)?))?;
            put(&new, path, &before)?;
            "replaced"
        }
        5 => {
            fs::remove_file(path)?;
            history.on_removed(root, path, &before);
            return Ok(Some(format!("removed: {path:?}")));
        }
        6 => {
            let renamed = path.with_file_name(format!("renamed{}", rng.below(1_000_000)));
            fs::rename(path, &renamed)?;
            history.on_removed(root, path, &before);
            history.on_changed(root, &renamed);
            return Ok(Some(format!("renamed: {path:?} to {renamed:?}")));
        }
        7 => {
            let can_read_all = rustix::process::geteuid().is_root() && !is_unprivileged;
            let mode = if can_read_all { 0 } else { 0o400 };
            fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
            "mode 0"
        }
        8 | 9 => {
            let new = root.with_extension("new");
            let _ = fs::remove_file(&new);
            match kind {
                8 => symlink("/nowhere/at/all", &new)?,
                _ => mknodat(CWD, &new, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?,
            }
            put(&new, path, &before)?;
            history.has_lost_names = true;
            if kind == 8 { "a link now" } else { "a FIFO now" }
        }
        _ => {
            let new = path.with_file_name(format!("new{}", rng.below(1_000_000)));
            fs::hard_link(path, &new)?;
            history.on_changed(root, &new);
            return Ok(Some(format!("linked: {path:?} as {new:?}")));
        }
    };
    history.on_changed(root, path);
    Ok(Some(format!("{what}: {path:?}")))
}

/// Puts a new entry, made outside of the source, in the place of a file and gives it the owner of
/// the file.
fn put(new: &Path, path: &Path, before: &Metadata) -> Result<()> {
    std::os::unix::fs::lchown(new, Some(before.uid()), Some(before.gid()))?;
    // Otherwise, a file that the command has removed would be back.
    path.symlink_metadata()?;
    Ok(fs::rename(new, path)?)
}

/// Overwrites a part of the file. Afterwards the file looks the same, except for the time when its
/// inode changed (ctime).
fn overwrite_unseen(rng: &mut Rng, path: &Path) -> Result<()> {
    let before = path.metadata()?;
    let pages = before.size() / PAGE_BYTES;
    let file = OpenOptions::new().write(true).open(path)?;
    file.write_all_at(&rng.bytes(CHANGED_BYTES), rng.next() % pages * PAGE_BYTES)?;
    let time = Timespec { tv_sec: before.mtime(), tv_nsec: before.mtime_nsec() };
    let times = Timestamps { last_access: time, last_modification: time };
    Ok(utimensat(CWD, path, &times, rustix::fs::AtFlags::empty())?)
}

/// Records all names of a file whose change cannot be seen.
fn note_stealth(root: &Path, path: &Path, history: &mut History) {
    let Ok(own) = path.metadata() else { return };
    visit_through_links(root, &mut |other, metadata| {
        if metadata.ino() == own.ino()
            && let Ok(below) = other.strip_prefix(root)
        {
            history.stealthy.insert(below.to_owned());
        }
    });
}

fn largest(files: &[PathBuf]) -> &PathBuf {
    let size = |path: &&PathBuf| path.metadata().map_or(0, |metadata| metadata.size());
    files.iter().max_by_key(size).expect("there is a file")
}

/// All files below `root` that can be read and written, in an order that does not depend on the
/// file system.
fn files(root: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    visit(root, &mut |path, metadata| {
        let can_open = || OpenOptions::new().read(true).write(true).open(path).is_ok();
        if metadata.is_file() && can_open() {
            files.push(path.to_owned());
        }
    });
    files.sort();
    files
}
