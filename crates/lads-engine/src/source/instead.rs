//! Sources that no walk finds: a single file, or a directory of files without storage.

use super::input::Input;
use crate::fatal::Fatal;
use crate::job::Options;
use crate::job::null::NullSource;
use lads_core::entry::{Entry, Identity, Kind, Metadata};
use lads_core::layout::Layout;
use lads_core::source::Found;
use lads_core::units::{EntryId, OstId};
use rustix::io::Errno;
use std::iter;

/// A source that no walk finds.
#[derive(Debug)]
pub(super) enum Instead {
    /// Its bytes lie on no storage.
    Null(NullSource),
    /// A pipe, a device, or a file that grows.
    Input(Box<Input>),
}

impl Instead {
    /// The source that the paths stand for; `None` if they are files and directories.
    ///
    /// # Errors
    /// If it cannot be read, or an option has no meaning for it.
    pub(super) fn of(paths: &[Vec<u8>], options: &Options) -> Result<Option<Self>, Fatal> {
        let null = NullSource::of(paths, options)?.map(Self::Null);
        match null {
            Some(null) => Ok(Some(null)),
            None => Ok(Input::of(paths, options)?.map(|input| Self::Input(Box::new(input)))),
        }
    }

    /// The name that it gets in a directory at the sink.
    pub(super) fn name(&self) -> &[u8] {
        match self {
            Self::Null(null) => null.name(),
            Self::Input(input) => input.name(),
        }
    }

    /// Whether it is a directory of files without storage.
    pub(super) fn is_directory(&self) -> bool {
        matches!(self, Self::Null(null) if null.is_directory())
    }

    /// What its files are announced as, from the file of this number on.
    pub(super) fn identities_from(&self, first: u64) -> Box<dyn Iterator<Item = Identity> + '_> {
        match self {
            Self::Null(null) => Box::new(null.sizes_from(first).map(|size| null.identity(size))),
            Self::Input(input) => Box::new(iter::once(input.identity())),
        }
    }

    /// Starts over with a source that changed while it was read. Returns what it is announced as,
    /// for this entry; `None` if it cannot be read again.
    ///
    /// # Errors
    /// Of the system call.
    pub(super) fn start_over(&self, entry: EntryId) -> Result<Option<Identity>, Errno> {
        match self {
            Self::Null(_) => Ok(None),
            Self::Input(input) => Ok(input.start_over(entry)?.then(|| input.identity())),
        }
    }

    fn metadata(&self, is_directory: bool) -> Metadata {
        match self {
            Self::Null(null) => null.metadata(is_directory),
            Self::Input(input) => input.metadata().clone(),
        }
    }

    /// The directory, as the walk would have found it.
    pub(super) fn found_directory(&self, id: EntryId, parent: EntryId) -> Found {
        let (name, metadata) = (self.name().to_vec(), self.metadata(true));
        Found::new(Entry { id, parent, name, kind: Kind::Directory, metadata })
    }

    /// A file, as the walk would have found it.
    pub(super) fn found(
        &self,
        id: EntryId,
        parent: EntryId,
        name: Vec<u8>,
        identity: Identity,
    ) -> Found {
        let layout = Layout::on(OstId(0));
        let kind = Kind::File {
            identity,
            data_bytes: identity.size,
            striping: layout.striping(identity.size),
            source_ost: OstId(0),
            is_different: false,
        };
        let metadata = self.metadata(false);
        Found { layout, ..Found::new(Entry { id, parent, name, kind, metadata }) }
    }
}
