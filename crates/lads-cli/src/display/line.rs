//! The lines that dry runs and `-v` print for a path.

use super::differences;
use super::place::Places;
use lads_core::message::{Line, Verb};
use lads_core::sizes;
use lads_core::text::escape;

/// Returns the word for what is done with a path, or for how it differs.
pub(super) fn verb(verb: Verb) -> &'static str {
    match verb {
        Verb::Send => "send",
        Verb::Skip => "skip",
        Verb::Directory => "mkdir",
        Verb::Symlink => "symlink",
        Verb::HardLink => "link",
        Verb::Special => "special",
        Verb::Delete => "delete",
        Verb::OnlyAtSource => "only-at-source",
        Verb::OnlyAtSink => "only-at-sink",
        Verb::OtherKind => "other-kind",
        Verb::OtherSize => "other-size",
        Verb::OtherContents => "other-contents",
        Verb::OtherTarget => "other-target",
        Verb::OtherMetadata => "other-metadata",
    }
}

/// `send       run7/a (1.2 MiB)`
pub(super) fn text(line: &Line) -> String {
    if let Some(word) = differences::word(line.verb) {
        return format!("{word:<18} {}", escape(&line.path));
    }
    let size = match line.verb {
        Verb::Send => format!(" ({})", sizes::bytes(line.bytes)),
        _ => String::new(),
    };
    // The same word as rsync uses.
    let word = if line.verb == Verb::Delete { "deleting" } else { verb(line.verb) };
    format!("{word:<10} {}{size}", escape(&line.path))
}

/// Returns what the paths of all lines are relative to: `into dtn2:/scratch/`.
pub(super) fn target(places: &Places, is_check: bool) -> String {
    let word = if is_check { "differences below" } else { "into" };
    format!("{word} {}", places.directory_text())
}
