//! Counts how source and sink differ, by kind of difference.

use lads_core::message::Verb;
use lads_core::sizes::{count, counted};

/// All kinds of difference, in the order in which they are shown, with their words.
const KINDS: [(Verb, &str); 7] = [
    (Verb::OnlyAtSource, "only at the source"),
    (Verb::OnlyAtSink, "only at the sink"),
    (Verb::OtherKind, "other kind"),
    (Verb::OtherSize, "other size"),
    (Verb::OtherContents, "other contents"),
    (Verb::OtherTarget, "other target"),
    (Verb::OtherMetadata, "other metadata"),
];

/// The number of differences of each kind.
#[derive(Debug, Default)]
pub(super) struct Differences {
    counts: [u64; KINDS.len()],
}

impl Differences {
    /// Counts a line if it reports a difference.
    pub(super) fn count(&mut self, verb: Verb) {
        if let Some(place) = KINDS.iter().position(|(kind, _)| *kind == verb) {
            self.counts[place] += 1;
        }
    }

    /// Returns the number of differences.
    pub(super) fn sum(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns a text such as `3 differences: 2 other size, 1 other contents`; or `no difference`.
    pub(super) fn text(&self) -> String {
        if self.sum() == 0 {
            return "no difference".to_owned();
        }
        let kinds = self.counts.iter().zip(KINDS).filter(|(counted, _)| **counted > 0);
        let parts: Vec<String> =
            kinds.map(|(counted, (_, word))| format!("{} {word}", count(*counted))).collect();
        format!("{}: {}", counted(self.sum(), "difference"), parts.join(", "))
    }
}

/// Returns the word for a difference; `None` if the verb is not one.
pub(super) fn word(verb: Verb) -> Option<&'static str> {
    KINDS.into_iter().find(|(kind, _)| *kind == verb).map(|(_, word)| word)
}
