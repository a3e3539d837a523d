//! Where files lie: one provider for each kind of file system.
//!
//! A provider answers three questions: which storage targets there are ([`Layouts::osts`],
//! [`Layouts::targets`]), where a file lies ([`Layouts::of_file`]), and where a new one will
//! ([`Layouts::of_new_file`], which makes it, if it must be made to be placed). Each maps what its
//! file system calls its targets to [`OstId`]s, numbered from zero without gaps, so that they can
//! be rows of a table.

mod beegfs;
mod ceph;
mod disk;
mod kind;
mod local;
mod lustre;
mod mount;
mod new_file;
mod orangefs;
mod synthetic;

use lads_core::growth::Extent;
use lads_core::layout::Layout;
use lads_core::placement::{OstState, Wish};
use lads_core::schedule::OstSpec;
use lads_core::units::OstId;
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Answers where a file lies, or will lie.
pub trait Layouts: Send + Sync {
    /// What kind of file system it is for, in a word.
    fn kind(&self) -> &'static str;

    /// What a person should know of how it is served: what cannot be seen, or was never tried on a
    /// real one.
    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }

    /// The OSTs there are, numbered from zero; at least one.
    fn osts(&self) -> Vec<OstSpec>;

    /// The OSTs as they are now, in the same order; fewer if some are numbers that were made up for
    /// what has no OST. By default all that is known is that they are there.
    fn targets(&self) -> Vec<Target> {
        self.osts()
            .into_iter()
            .map(|spec| Target { name: spec.name, ..Target::default() })
            .collect()
    }

    /// Where a file that is there lies. Never brings back what is in an archive.
    fn of_file(&self, file: &FileAt<'_>) -> Located;

    /// Sees that an open file is read from this copy, one of [`Located::mirrors`]. The file is open
    /// for reading past the page cache.
    ///
    /// # Errors
    /// If that cannot be chosen; then any is read.
    fn choose_mirror(&self, _file: &OwnedFd, _number: u16) -> Result<(), Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// Where on its disk a file begins, in bytes, if it is worth reading files in that order: on
    /// disks that turn. Elsewhere nothing is asked.
    fn disk_offset(&self, _file: &FileAt<'_>) -> Option<u64> {
        None
    }

    /// Where a new file will lie; makes it if that must be done to know.
    ///
    /// # Errors
    /// If it cannot be made.
    fn of_new_file(&self, file: &NewFile<'_>) -> Result<Placed, Errno>;

    /// If new files can grow: extents begin and end at multiples of this number of bytes, and lie
    /// on OSTs below this number.
    fn extents(&self) -> Option<(u64, u32)> {
        None
    }

    /// Adds extents to a new file that is open at its end ([`Placed::extents`]).
    ///
    /// # Errors
    /// If it cannot be done.
    fn add_extents(&self, _file: &OwnedFd, _extents: &[Extent]) -> Result<(), Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// What the file system itself says of a file or directory, byte by byte.
    fn raw(&self, _file: &FileAt<'_>) -> Option<Vec<u8>> {
        None
    }

    /// What it heeds of wishes where new files should go.
    fn heeds(&self) -> Heeds {
        Heeds::Nothing
    }

    /// Bytes in a stripe of a new file of which nothing else is asked.
    fn stripe_size(&self) -> u64 {
        1 << 20
    }

    /// Whether large files are best written past the page cache. They are on a block device: the
    /// data is durable when the write is, so putting blocks on record does not stall the writers.
    fn prefers_direct_writes(&self) -> bool {
        false
    }

    /// Takes as long as the OST pretends to need for one request before it serves it.
    fn pretend(&self, _ost: OstId) {}
}

/// What a file system heeds of the wish where a new file should go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heeds {
    /// Nothing.
    Nothing,
    /// Into how many stripes of which size it should be cut, but not where those should be.
    Striping,
    /// All of it.
    Place,
}

/// A file, by where it can be looked up and by its numbers.
#[derive(Clone, Copy, Debug)]
pub struct FileAt<'a> {
    /// The directory that holds it.
    pub directory: &'a OwnedFd,
    /// Its name in there.
    pub name: &'a [u8],
    /// Number of its file system.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
    /// Its length in bytes.
    pub size: u64,
}

/// Where a file lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// Which OST holds which byte; of several copies, of the one that is usually read.
    pub layout: Layout,
    /// All copies, if there are several and it can be chosen which is read; the usual one first.
    pub mirrors: Vec<Mirror>,
    /// Whether the data is in an archive, from which reading brings it back.
    pub is_archived: bool,
}

/// One of several copies of a file, which the file system keeps the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// What the file system calls it.
    pub number: u16,
    /// Which OST holds which byte.
    pub layout: Layout,
}

/// A file to be made.
#[derive(Clone, Copy, Debug)]
pub struct NewFile<'a> {
    /// The directory in which to make it.
    pub directory: &'a OwnedFd,
    /// Its name in there. What is under that name is in the way, unless [`Self::is_there`]: it is
    /// removed if it is ours, and else the file is not made.
    pub name: &'a str,
    /// The how-many-eth new file of this transfer it is.
    pub number: u64,
    /// How long it will be, in bytes.
    pub size: u64,
    /// Where it should go.
    pub wish: &'a Wish,
    /// If it may grow: how long its first extent is to be, in bytes.
    pub first_extent_bytes: Option<u64>,
    /// Whether an earlier attempt has made it: then only where it lies is asked.
    pub is_there: bool,
}

/// Where a new file will lie.
#[derive(Debug)]
pub struct Placed {
    /// Which OST will hold which byte.
    pub layout: Layout,
    /// If it is open at its end and extents can be added: those that it has.
    pub extents: Vec<Extent>,
    /// Whether it was made to know that; there is no data in it.
    pub is_made: bool,
    /// If it was made and is still open: the file, to be read and written.
    pub file: Option<OwnedFd>,
    /// How that differs from what was wished for, if it does, in words.
    pub difference: Option<String>,
}

/// A storage target as it is now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// What people call it.
    pub name: String,
    /// The server that holds it; empty if not known.
    pub server: String,
    /// What it can be used for.
    pub state: OstState,
    /// All its space, in bytes; zero if not known.
    pub capacity_bytes: u64,
    /// Its space left, in bytes.
    pub free_bytes: u64,
    /// Whether it is flash, if that is known.
    pub is_flash: Option<bool>,
}

impl Located {
    /// A file that can be read.
    #[must_use]
    pub fn at(layout: Layout) -> Self {
        Self { layout, mirrors: Vec::new(), is_archived: false }
    }
}

impl<'a> NewFile<'a> {
    /// The first new file of a transfer, to be made, and not to grow.
    #[must_use]
    pub fn new(directory: &'a OwnedFd, name: &'a str, size: u64, wish: &'a Wish) -> Self {
        let (number, first_extent_bytes, is_there) = (0, None, false);
        Self { directory, name, number, size, wish, first_extent_bytes, is_there }
    }
}

impl Placed {
    /// Where a file will lie that need not be made to know.
    #[must_use]
    pub fn at(layout: Layout) -> Self {
        Self { layout, extents: Vec::new(), is_made: false, file: None, difference: None }
    }
}

/// A kind of file system of which it can be seen where files lie.
struct Provider {
    /// What it is called.
    name: &'static str,
    /// For data at a path, or below it; `None` if that is not on such a file system.
    at: fn(&Path) -> Option<Box<dyn Layouts>>,
    /// What is to be said of a path that is not.
    refusal: &'static str,
    /// Has one that needs no such file system, or the real one, keep the contract.
    #[cfg(test)]
    put_to_test: fn(contract::Check),
}

/// The kinds there are, in the order in which a place is looked at.
const PROVIDERS: &[Provider] =
    &[lustre::PROVIDER, ceph::PROVIDER, beegfs::PROVIDER, orangefs::PROVIDER];

/// Where layouts can be taken from, by name, but for `auto` and `synthetic:…`.
#[must_use]
pub fn names() -> Vec<&'static str> {
    PROVIDERS.iter().map(|provider| provider.name).chain([LOCAL]).collect()
}

/// Disks of this host, and all that no other provider knows.
const LOCAL: &str = "local";

/// The provider that `choice` names (`auto`, one of [`names`], or `synthetic:…`), for data below
/// `root`.
///
/// # Errors
/// If there is no such provider, or it cannot serve this place; the text says which.
pub fn open(choice: &str, root: &Path) -> Result<Box<dyn Layouts>, String> {
    open_all(choice, &[root])
}

/// The same for data below several roots: what the first is on decides; local ones may be on
/// several disks.
///
/// # Errors
/// As [`open`].
///
/// # Panics
/// If there is no root.
pub fn open_all(choice: &str, roots: &[&Path]) -> Result<Box<dyn Layouts>, String> {
    let root = *roots.first().expect("the caller has one");
    if let Some(parameters) = choice.strip_prefix("synthetic:") {
        return synthetic::Synthetic::parse(parameters).map(|it| Box::new(it) as Box<dyn Layouts>);
    }
    if let Some(provider) = PROVIDERS.iter().find(|provider| provider.name == choice) {
        return (provider.at)(root)
            .ok_or_else(|| format!("{} {}", root.display(), provider.refusal));
    }
    match choice {
        "auto" => {
            let seen = PROVIDERS.iter().find_map(|provider| (provider.at)(root));
            Ok(seen.unwrap_or_else(|| Box::new(local::Local::of(roots))))
        }
        LOCAL => Ok(Box::new(local::Local::of(roots))),
        other => Err(format!(
            "no layout provider is called {other:?}: use auto, {} or \
             synthetic:osts=8,stripe_size=1M",
            names().join(", ")
        )),
    }
}

#[cfg(test)]
mod contract;
