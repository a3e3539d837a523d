//! How source and sink differ, counted by kind.

use lads_core::message::Verb;
use lads_core::sizes::{count, counted};

/// All kinds, in the order in which they are told, with their words.
const KINDS: [(Verb, &str); 7] = [
    (Verb::OnlyAtSource, "only at the source"),
    (Verb::OnlyAtSink, "only at the sink"),
    (Verb::OtherKind, "other kind"),
    (Verb::OtherSize, "other size"),
    (Verb::OtherContents, "other contents"),
    (Verb::OtherTarget, "other target"),
    (Verb::OtherMetadata, "other metadata"),
];

/// How many differences of each kind there are.
#[derive(Debug, Default)]
pub(super) struct Differences {
    counts: [u64; KINDS.len()],
}

impl Differences {
    /// Something is, or would be, done with a path, or it differs.
    pub(super) fn count(&mut self, verb: Verb) {
        if let Some(place) = KINDS.iter().position(|(kind, _)| *kind == verb) {
            self.counts[place] += 1;
        }
    }

    /// How many there are.
    pub(super) fn sum(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// `3 differences: 2 other size, 1 other contents`; none are `no difference`.
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

/// What a difference is called; `None` if it is none.
pub(super) fn word(verb: Verb) -> Option<&'static str> {
    KINDS.into_iter().find(|(kind, _)| *kind == verb).map(|(_, word)| word)
}
