//! Options of `lads cp` that select entries by their size and by the entries of the sink, and those
//! that remove entries.

use super::{SAFETY, SELECTION};
use clap::Args;
use lads_core::sizes;
use lads_engine::{Deletion, Passing};

/// Selection of entries.
#[derive(Args, Debug)]
pub(crate) struct ChoiceArgs {
    /// Skip files that are newer at the sink
    ///
    /// By time of change, in the resolution of the sink's file system. As with rsync, links and
    /// special files are copied in any case, and so are files that replace one of these.
    #[arg(short = 'u', long, help_heading = SELECTION)]
    pub(crate) update: bool,

    /// Skip entries that exist at the sink; recurse into directories in any case
    #[arg(long, help_heading = SELECTION)]
    pub(crate) ignore_existing: bool,

    /// Create no entries that do not exist at the sink
    #[arg(long, alias = "ignore-non-existing", help_heading = SELECTION)]
    pub(crate) existing: bool,

    /// Skip files that are larger than this: 100M, 1.5G
    ///
    /// As in rsync, K, M and G are powers of 1024, KB, MB and GB powers of 1000, and a suffix +1 or
    /// -1 adds or subtracts a byte.
    #[arg(long, value_name = "SIZE", help_heading = SELECTION)]
    #[arg(value_parser = sizes::parse_file_size)]
    pub(crate) max_size: Option<u64>,

    /// Skip files that are smaller than this
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

    /// Create missing directories above DST
    #[arg(long, help_heading = SELECTION)]
    pub(crate) mkpath: bool,

    /// At the end, remove entries that only the sink has; -n lists them
    ///
    /// Only in the copied directories, recursively. Deletion is the last step, also with
    /// --delete-before and --delete-during, and is skipped if anything failed. Excluded entries
    /// (--exclude), files of LADS and mount points below DST stay. If in doubt, use -n first.
    #[arg(long, help_heading = SELECTION)]
    #[arg(aliases = ["del", "delete-before", "delete-during", "delete-delay", "delete-after"])]
    pub(crate) delete: bool,

    /// Replace non-empty directories at the sink by entries of another kind
    ///
    /// Empty directories are replaced in any case, and so are other entries that have the name of
    /// a directory of the source. --delete includes --force. Excluded entries stay, with the
    /// directory that holds them, and so do mount points.
    #[arg(long, help_heading = SELECTION)]
    pub(crate) force: bool,

    /// --delete, also of excluded entries
    #[arg(long, help_heading = SELECTION)]
    pub(crate) delete_excluded: bool,

    /// Remove each file at the source after it is durable at the sink
    ///
    /// This includes files that the sink already has, links and, with -D, special files;
    /// directories stay. A file that changed after it was read stays, and counts as failed. Entries
    /// that are not copied also stay: excluded, skipped (-u, --existing, ...) or shadowed by
    /// another SRC. Files that the sink already has with the same size and time are removed without
    /// being read; with -c, they are compared first. After an interruption, the same command
    /// removes the rest.
    #[arg(long, alias = "remove-sent-files", help_heading = SELECTION)]
    #[arg(conflicts_with_all = ["delete", "delete_excluded", "force"])]
    pub(crate) remove_source_files: bool,

    /// Maximum number of entries that --delete removes; exit status 10 if there are more
    #[arg(long, value_name = "N", help_heading = SAFETY)]
    pub(crate) max_delete: Option<u64>,

    /// Let --delete remove entries although something failed
    ///
    /// Directories that the source could not list keep their entries.
    #[arg(long, help_heading = SAFETY)]
    pub(crate) ignore_errors: bool,
}

impl ChoiceArgs {
    /// Returns the deletion, if any.
    pub(crate) fn deletion(&self) -> Option<Deletion> {
        (self.delete || self.delete_excluded).then_some(Deletion {
            excluded: self.delete_excluded,
            after_errors: self.ignore_errors,
            count_max: self.max_delete,
        })
    }

    /// Returns the entries to skip.
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
