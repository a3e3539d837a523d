//! What is found of a world: what did not hold, what happened in it, and how often.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// What is checked, said in words when it does not hold.
pub(crate) type Checked<T = ()> = Result<T, String>;

/// The last lines of what happened; nothing is kept if it holds none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trace {
    lines: Rc<RefCell<VecDeque<String>>>,
    line_count_max: usize,
}

impl Trace {
    pub(crate) fn new(line_count_max: usize) -> Self {
        Self { lines: Rc::default(), line_count_max }
    }

    /// Whether anyone wants to know what happens.
    pub(crate) fn wants_lines(&self) -> bool {
        self.line_count_max > 0
    }

    pub(crate) fn push(&self, line: String) {
        let mut lines = self.lines.borrow_mut();
        if lines.len() == self.line_count_max {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.borrow().iter().cloned().collect()
    }
}

/// What happened in a run, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Attempts, one after the other, until everything was at the sink.
    pub sessions: u64,
    /// Steps of the world.
    pub steps: u64,
    /// Blocks that were sent.
    pub blocks_sent: u64,
    /// Blocks that were sent again.
    pub blocks_resent: u64,
    /// Blocks that were put into a stage.
    pub blocks_staged: u64,
    /// Extents that were added to files.
    pub extents_added: u64,
    /// How often a stage failed.
    pub stage_faults: u64,
    /// Attempts that ended by a crash or a lost network.
    pub crashes: u64,
    /// Attempts that ended because someone stopped them.
    pub stops: u64,
    /// How often an end fell silent, or died without a word.
    pub silences: u64,
    /// How often it went on before the other lost patience.
    pub thaws: u64,
    /// Calls that never returned.
    pub hangs: u64,
    /// Renames that a power cut took back.
    pub renames_lost: u64,
    /// Entries that failed and were said to have failed.
    pub failures: u64,
    /// The most bytes that were written and not on record, in thousandths of a journal batch.
    pub unrecorded_per_mille_max: u64,
    /// Stands for all that happened: two runs of a seed have the same.
    pub fingerprint: u64,
}
