//! What a program or library says of itself: how it is loaded, and what it holds.

use object::read::ReadCache;
use object::{FileKind, Object, ObjectSection, ObjectSymbol};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What the shim defines so that it can be recognised (`shim/table.c` of `lads-mpiio`).
const SHIM_SYMBOL: &[u8] = b"rfs_shim_version";

/// A program or library, in the format of Linux.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Elf {
    /// The loader that the program asks for. A library has none, and a program that is linked
    /// statically.
    pub(super) interpreter: Option<PathBuf>,
    /// The libraries that it asks for itself, by their sonames.
    pub(super) needed: Vec<String>,
    /// It is a shim of LADS.
    pub(super) is_shim: bool,
    /// It has an MPI in itself. (A tool that stands before an MPI has MPI_Init, but not PMPI_Init.)
    pub(super) has_mpi: bool,
}

impl Elf {
    /// Reads a file; `None` if it has another format.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(super) fn read(path: &Path) -> io::Result<Option<Self>> {
        let cache = ReadCache::new(File::open(path)?);
        if !matches!(FileKind::parse(&cache), Ok(FileKind::Elf32 | FileKind::Elf64)) {
            return Ok(None);
        }
        let file = object::File::parse(&cache).map_err(io::Error::other)?;
        let interpreter = file.section_by_name(".interp").and_then(|it| it.data().ok());
        let interpreter = interpreter.and_then(|it| it.split(|&byte| byte == 0).next());
        let mut libraries = file.import_libraries().map_err(io::Error::other)?;
        let needed = std::iter::from_fn(|| libraries.next()?.ok())
            .map(|it| String::from_utf8_lossy(it.name()).into_owned());
        Ok(Some(Self {
            interpreter: interpreter.map(|it| PathBuf::from(OsStr::from_bytes(it))),
            needed: needed.collect(),
            is_shim: file.dynamic_symbols().any(|it| defines(&it, SHIM_SYMBOL)),
            has_mpi: file.symbols().any(|it| defines(&it, b"PMPI_Init")),
        }))
    }
}

fn defines<'data>(symbol: &impl ObjectSymbol<'data>, name: &[u8]) -> bool {
    symbol.is_definition() && symbol.name_bytes() == Ok(name)
}
