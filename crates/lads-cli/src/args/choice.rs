//! Options of `lads cp` that say which entries are moved, by what is at the sink and by their size.

use super::SELECTION;
use crate::sizes;
use clap::Args;
use lads_engine::Passing;

/// Which entries are passed over.
#[derive(Args, Debug)]
pub(crate) struct ChoiceArgs {
    /// Leave files alone that are newer at the sink
    ///
    /// By time of change, to the nanosecond where both file systems keep that. Links and specials
    /// are moved in any case, and so is a file in the place of one of these, as with rsync.
    #[arg(short = 'u', long, help_heading = SELECTION)]
    pub(crate) update: bool,

    /// Leave alone whatever is at the sink already; go into directories all the same
    #[arg(long, help_heading = SELECTION)]
    pub(crate) ignore_existing: bool,

    /// Make nothing that is not at the sink yet, neither files nor directories
    #[arg(long, alias = "ignore-non-existing", help_heading = SELECTION, hide_short_help = true)]
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

    /// Do not go into what is mounted below SRC; the directory itself is made
    #[arg(short = 'x', long, help_heading = SELECTION)]
    pub(crate) one_file_system: bool,

    /// Make the directories above DST, too, if they are not there
    #[arg(long, help_heading = SELECTION)]
    pub(crate) mkpath: bool,
}

impl ChoiceArgs {
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
