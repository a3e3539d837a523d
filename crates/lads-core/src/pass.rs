//! Why an entry is passed over: it is at the source, nothing is done with it, and that is no
//! failure, because the user asked for it (`--update`, `--existing` and their like).

/// Why an entry is passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pass {
    /// The file at the sink was changed later than that at the source.
    Newer,
    /// Something is at the sink already, and nothing there is to be replaced.
    There,
    /// Nothing is at the sink, and nothing is to be made there.
    Missing,
    /// The file is smaller or larger than those that are to be moved.
    Size,
}

/// How many entries were passed over, for each reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassCounts {
    /// Files that are newer at the sink.
    pub newer: u64,
    /// Entries of which something is at the sink.
    pub there: u64,
    /// Entries of which nothing is at the sink.
    pub missing: u64,
    /// Files that are too small or too large.
    pub size: u64,
}

impl PassCounts {
    /// One more was passed over.
    pub fn add(&mut self, pass: Pass) {
        let count = match pass {
            Pass::Newer => &mut self.newer,
            Pass::There => &mut self.there,
            Pass::Missing => &mut self.missing,
            Pass::Size => &mut self.size,
        };
        *count += 1;
    }

    /// Returns how many there were of all reasons.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.newer.saturating_add(self.there).saturating_add(self.missing).saturating_add(self.size)
    }
}
