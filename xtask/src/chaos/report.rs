//! The figures of all rounds.

use super::judge::Outcome;
use std::collections::BTreeMap;
use std::fmt;

/// The sums over all rounds.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) rounds: u64,
    pub(super) failed: u64,
    runs: u64,
    accidents: BTreeMap<&'static str, u64>,
    /// The number of times that each exit code was seen; `None` is an end by a signal.
    exit_codes: BTreeMap<Option<i32>, u64>,
    bytes_sent: u64,
    /// The number of bytes that runs after the first did not have to send, because they were
    /// already there.
    bytes_kept: u64,
    memory_bytes_peak: u64,
}

impl Report {
    /// Adds the result of a step.
    pub(super) fn add(&mut self, outcome: &Outcome, is_resumed: bool) {
        for accident in &outcome.happened {
            *self.accidents.entry(accident.kind()).or_default() += 1;
        }
        for ended in &outcome.ended {
            self.runs += 1;
            *self.exit_codes.entry(ended.code).or_default() += 1;
            self.bytes_sent += ended.count("bytes_sent");
            if is_resumed {
                self.bytes_kept += ended.count("bytes_skipped");
            }
        }
        self.memory_bytes_peak = self.memory_bytes_peak.max(outcome.memory_bytes_peak);
    }

    /// Counts the network rules of a step as one accident.
    pub(super) fn add_network(&mut self, rules: &[String]) {
        if !rules.is_empty() {
            *self.accidents.entry("harmful network").or_default() += 1;
        }
    }

    /// Adds another report.
    pub(super) fn merge(&mut self, other: Self) {
        self.rounds += other.rounds;
        self.failed += other.failed;
        self.runs += other.runs;
        for (kind, count) in other.accidents {
            *self.accidents.entry(kind).or_default() += count;
        }
        for (code, count) in other.exit_codes {
            *self.exit_codes.entry(code).or_default() += count;
        }
        self.bytes_sent += other.bytes_sent;
        self.bytes_kept += other.bytes_kept;
        self.memory_bytes_peak = self.memory_bytes_peak.max(other.memory_bytes_peak);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n{:>8}  accident", "times")?;
        for (kind, count) in &self.accidents {
            writeln!(f, "{count:>8}  {kind}")?;
        }
        writeln!(f, "\n{:>8}  exit code", "times")?;
        for (code, count) in &self.exit_codes {
            let code = code.map_or_else(|| "none: killed".to_owned(), |code| code.to_string());
            writeln!(f, "{count:>8}  {code}")?;
        }
        let mib = |bytes: u64| bytes >> 20;
        writeln!(f, "\n{} runs of lads cp, {} MiB sent", self.runs, mib(self.bytes_sent))?;
        writeln!(f, "{} MiB not sent again by later runs", mib(self.bytes_kept))?;
        writeln!(f, "at most {} MiB of memory in one process", mib(self.memory_bytes_peak))?;
        let accidents: u64 = self.accidents.values().sum();
        write!(f, "chaos: {} rounds, {accidents} accidents, {} failed", self.rounds, self.failed)
    }
}
