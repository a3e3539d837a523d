//! Options of `lads cp` that say which entries are moved, by what is at the sink and by their size,
//! and which are removed there.

use super::{SAFETY, SELECTION};
use clap::Args;
use lads_core::sizes;
use lads_engine::{Deletion, Passing};

/// Which entries are passed over.
#[derive(Args, Debug)]
pub(crate) struct ChoiceArgs {
    /// Leave files alone that are newer at the sink
    ///
    /// By time of change, in the unit that the sink's file system keeps. Links and specials are
    /// moved in any case, and so is a file in the place of one of these, as with rsync.
    #[arg(short = 'u', long, help_heading = SELECTION)]
    pub(crate) update: bool,

    /// Leave alone whatever is at the sink already; go into directories all the same
    #[arg(long, help_heading = SELECTION)]
    pub(crate) ignore_existing: bool,

    /// Make nothing that is not at the sink yet, neither files nor directories
    #[arg(long, alias = "ignore-non-existing", help_heading = SELECTION)]
    pub(crate) existing: bool,

    /// Move no file that is larger than this: 100M, 1.5G
    ///
    /// As in rsync, K, M and G are powers of 1024, KB, MB and GB powers of 1000, and +1 or -1
    /// behind it is a byte more or less.
    #[arg(long, value_name = "SIZE", help_heading = SELECTION)]
    #[arg(value_parser = sizes::parse_file_size)]
    pub(crate) max_size: Option<u64>,

    /// Move no file that is smaller than this
    #[arg(long, value_name = "SIZE", help_heading = SELECTION)]
    #[arg(value_parser = sizes::parse_file_size)]
    pub(crate) min_size: Option<u64>,

    /// Do not cross mount points below SRC; the mount point itself is included
    #[arg(short = 'x', long, help_heading = SELECTION)]
    pub(crate) one_file_system: bool,

    /// Copy the targets of symbolic links instead of the links
    ///
    /// Only at the source, and also outside of SRC. A link to nothing and a link to a directory
    /// that it lies in are reported; the exit code is then 3, and --delete removes nothing. With
    /// -x, a link to a directory on another file system becomes an empty directory.
    #[arg(short = 'L', long, help_heading = SELECTION)]
    pub(crate) copy_links: bool,

    /// Make the directories above DST, too, if they are not there
    #[arg(long, help_heading = SELECTION)]
    pub(crate) mkpath: bool,

    /// At the end, remove from the sink what is not at the source; -n lists it
    ///
    /// Only in the directories that are moved, with all that is in them. It is done when everything
    /// else has ended, whatever the name of the option says (--delete-before and -during are the
    /// same), and not at all if anything failed. What is left out (--exclude) stays, and so do
    /// files of LADS's own, and what is mounted below DST. If in doubt, look with -n first.
    #[arg(long, help_heading = SELECTION)]
    #[arg(aliases = ["del", "delete-before", "delete-during", "delete-delay", "delete-after"])]
    pub(crate) delete: bool,

    /// Replace directories at the sink by entries of another kind, although they are not empty
    ///
    /// An empty directory is replaced in any case, and so is anything else that has the name of a
    /// directory of the source. --delete includes --force. Excluded entries stay, with the
    /// directory that holds them, and so do mount points.
    #[arg(long, help_heading = SELECTION)]
    pub(crate) force: bool,

    /// --delete, also of what is left out (--exclude)
    #[arg(long, help_heading = SELECTION)]
    pub(crate) delete_excluded: bool,

    /// Remove each file at the source after it is durable at the sink
    ///
    /// This includes files that the sink already has, links and, with -D, special files;
    /// directories stay. A file that changed after it was read stays, and counts as failed. Entries
    /// that are not moved also stay: excluded, passed over (-u, --existing, ...) or shadowed by
    /// another SRC. Files that the sink already has with the same size and time are removed without
    /// being read; with -c, they are compared first. After an interruption, the same command
    /// removes the rest.
    #[arg(long, alias = "remove-sent-files", help_heading = SELECTION)]
    #[arg(conflicts_with_all = ["delete", "delete_excluded"])]
    pub(crate) remove_source_files: bool,

    /// Let --delete remove no more entries than this; exit status 10 if there are more
    #[arg(long, value_name = "N", help_heading = SAFETY)]
    pub(crate) max_delete: Option<u64>,

    /// Let --delete remove what is not at the source although something failed
    ///
    /// Nothing is removed in a directory that the source could not list.
    #[arg(long, help_heading = SAFETY)]
    pub(crate) ignore_errors: bool,
}

impl ChoiceArgs {
    /// What is removed, if anything is.
    pub(crate) fn deletion(&self) -> Option<Deletion> {
        (self.delete || self.delete_excluded).then_some(Deletion {
            excluded: self.delete_excluded,
            after_errors: self.ignore_errors,
            count_max: self.max_delete,
        })
    }

    /// What is passed over.
    pub(crate) fn passing(&self) -> Passing {
        Passing {
            newer: self.update,
            there: self.ignore_existing,
            missing: self.existing,
            size_min: self.min_size,
            size_max: self.max_size,
        }
    }
}
