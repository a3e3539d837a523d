//! Sources that are no tree: a single file that no walk finds.

use super::input::Input;
use crate::fatal::Fatal;
use crate::job::Options;
use crate::job::null::NullSource;
use lads_core::entry::{Entry, Identity, Kind, Metadata};
use lads_core::layout::Layout;
use lads_core::source::Found;
use lads_core::units::{EntryId, OstId};

/// A source that is no tree.
#[derive(Debug)]
pub(super) enum Instead {
    /// Its bytes lie on no storage.
    Null(NullSource),
    /// A pipe, a device, or a file that grows.
    Input(Input),
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
            None => Ok(Input::of(paths, options)?.map(Self::Input)),
        }
    }

    /// The name that it gets in a directory at the sink.
    pub(super) fn name(&self) -> &[u8] {
        match self {
            Self::Null(null) => null.name(),
            Self::Input(input) => input.name(),
        }
    }

    /// What it is announced as.
    pub(super) fn identity(&self) -> Identity {
        match self {
            Self::Null(null) => null.identity(),
            Self::Input(input) => input.identity(),
        }
    }

    fn metadata(&self) -> Metadata {
        match self {
            Self::Null(null) => null.metadata(),
            Self::Input(input) => input.metadata().clone(),
        }
    }

    /// The file, as the walk would have found it.
    pub(super) fn found(&self, id: EntryId, identity: Identity) -> Found {
        let layout = Layout::on(OstId(0));
        let kind = Kind::File {
            identity,
            data_bytes: identity.size,
            striping: layout.striping(identity.size),
            source_ost: OstId(0),
            is_different: false,
        };
        let (parent, name, metadata) = (EntryId::ROOT, self.name().to_vec(), self.metadata());
        Found { layout, ..Found::new(Entry { id, parent, name, kind, metadata }) }
    }
}
