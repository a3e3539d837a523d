//! A path that a user asks about, and its file system.

use anyhow::{Context, Result, anyhow};
use lads_core::ceph::FileLayout;
use lads_core::lov::Lov;
use lads_engine::layout::{self, FileAt, Layouts, Located, Target};
use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, openat, stat};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// A path, and the provider that knows its file system.
pub(crate) struct Subject {
    pub(crate) path: PathBuf,
    pub(crate) layouts: Rc<dyn Layouts>,
    pub(crate) stat: Stat,
    /// The directory that holds the path, or the path itself if it is a directory.
    pub(crate) directory: OwnedFd,
    /// The name of the path in that directory.
    name: Vec<u8>,
}

impl Subject {
    /// Looks up a path; symbolic links are followed.
    pub(crate) fn open(path: &Path, provider: &str) -> Result<Self> {
        Self::open_beside(path, provider, None)
    }

    /// The same. If `other` is on the same file system, its provider is used again, because opening
    /// one may take long.
    pub(crate) fn open_beside(path: &Path, provider: &str, other: Option<&Self>) -> Result<Self> {
        let shown = path.display();
        let real = path.canonicalize().with_context(|| format!("cannot examine {shown}"))?;
        let stat = stat(&real).with_context(|| format!("cannot examine {shown}"))?;
        let (directory, name) = match (is_directory(&stat), real.parent(), real.file_name()) {
            (false, Some(parent), Some(name)) => (parent, name.as_bytes()),
            _ => (real.as_path(), &b"."[..]),
        };
        let directory = open_to_look_up(directory)
            .with_context(|| format!("cannot open {}", directory.display()))?;
        let layouts = match other.filter(|other| other.stat.st_dev == stat.st_dev) {
            Some(other) => Rc::clone(&other.layouts),
            None => layout::open(provider, &real).map_err(|text| anyhow!(text))?.into(),
        };
        Ok(Self { path: path.to_owned(), layouts, stat, directory, name: name.to_vec() })
    }

    pub(crate) fn is_directory(&self) -> bool {
        is_directory(&self.stat)
    }

    pub(crate) fn size(&self) -> u64 {
        u64::try_from(self.stat.st_size).unwrap_or(0)
    }

    fn at(&self) -> FileAt<'_> {
        let (device, inode, size) = (self.stat.st_dev, self.stat.st_ino, self.size());
        FileAt { directory: &self.directory, name: &self.name, device, inode, size }
    }

    pub(crate) fn located(&self) -> Located {
        self.layouts.of_file(&self.at())
    }

    /// Returns the bytes in which its file system stores its layout.
    pub(crate) fn raw(&self) -> Option<Vec<u8>> {
        self.layouts.raw(&self.at())
    }

    /// Returns the layout, if it is Lustre's.
    pub(crate) fn lov(&self) -> Option<Lov> {
        Lov::parse(&self.raw()?).ok()
    }

    /// Returns the layout, if it is CephFS's.
    pub(crate) fn ceph(&self) -> Option<FileLayout> {
        if self.layouts.kind() != "ceph" {
            return None;
        }
        FileLayout::parse(&self.raw()?).ok()
    }

    /// Returns the OSTs, including numbers that stand for no OST.
    pub(crate) fn targets(&self) -> Vec<Target> {
        let mut targets = self.layouts.targets();
        let known = targets.len();
        let others = self.layouts.osts().into_iter().skip(known);
        targets.extend(others.map(|spec| Target { name: spec.name, ..Target::default() }));
        targets
    }
}

/// Opens a directory in which a name is to be looked up. Permission to list it is not needed.
fn open_to_look_up(directory: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match openat(CWD, directory, flags, Mode::empty()) {
        Err(Errno::ACCESS) => openat(CWD, directory, flags | OFlags::PATH, Mode::empty()),
        result => result,
    }
}

fn is_directory(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}
