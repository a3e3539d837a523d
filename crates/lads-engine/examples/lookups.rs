//! How long it takes to find out where the files below a directory lie: `lookups DIRECTORY`.
//!
//! Says which provider answered, then a line for each round: how many files were looked up, how
//! many seconds that took, and how many seconds it takes to ask besides where on its disk each
//! begins, as is done on disks that turn. The lookup of the file itself (`stat`) is not counted:
//! whoever copies a file has done that.
#![allow(clippy::print_stdout, reason = "it tells on its terminal")]

use lads_engine::layout::{self, FileAt};
use std::error::Error;
use std::fs::{File, read_dir};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The first round warms up; it is told, too.
const ROUNDS: usize = 6;

/// A directory and what is in it: name, device, number and length of each file.
struct Directory {
    handle: OwnedFd,
    files: Vec<(Vec<u8>, u64, u64, u64)>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let root = std::env::args_os().nth(1).ok_or("say a directory")?;
    let root = Path::new(&root);
    let layouts = layout::open("auto", root)?;
    let mut directories = Vec::new();
    list(root, &mut directories)?;
    println!("{}", layouts.kind());
    for _ in 0..ROUNDS {
        let (count, lookups) = timed(&directories, |file| drop(layouts.of_file(file)));
        let (_, extents) = timed(&directories, ask_extent);
        println!("{count} {:.9} {:.9}", lookups.as_secs_f64(), extents.as_secs_f64());
    }
    Ok(())
}

fn list(path: &Path, directories: &mut Vec<Directory>) -> Result<(), Box<dyn Error>> {
    let mut files = Vec::new();
    for entry in read_dir(path)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        if metadata.is_dir() {
            list(&entry.path(), directories)?;
        } else if metadata.is_file() {
            let (device, inode, size) = (metadata.dev(), metadata.ino(), metadata.len());
            files.push((entry.file_name().into_vec(), device, inode, size));
        }
    }
    directories.push(Directory { handle: File::open(path)?.into(), files });
    Ok(())
}

/// How many files there are, and how long `look` takes for all of them.
fn timed(directories: &[Directory], look: impl Fn(&FileAt<'_>)) -> (usize, Duration) {
    let (start, mut count) = (Instant::now(), 0);
    for Directory { handle, files } in directories {
        for &(ref name, device, inode, size) in files {
            look(&FileAt { directory: handle, name, device, inode, size });
            count += 1;
        }
    }
    (count, start.elapsed())
}

/// What a provider does for a file on a disk that turns.
fn ask_extent(file: &FileAt<'_>) {
    let name = std::ffi::OsStr::from_bytes(file.name);
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
    let mode = rustix::fs::Mode::empty();
    if let Ok(file) = rustix::fs::openat(file.directory, name, flags, mode) {
        // Not all file systems say.
        let _ = lads_sys::first_extent(&file);
    }
}
