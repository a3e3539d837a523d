//! What dry runs and `-v` say of a path.

use super::place::Places;
use super::style::escape;
use crate::sizes;
use lads_core::message::{Line, Verb};

/// The word for what is done with a path.
pub(super) fn verb(verb: Verb) -> &'static str {
    match verb {
        Verb::Send => "send",
        Verb::Skip => "skip",
        Verb::Directory => "mkdir",
        Verb::Symlink => "symlink",
        Verb::HardLink => "link",
        Verb::Special => "special",
        Verb::Delete => "delete",
    }
}

/// `send       run7/a (1.2 MiB)`
pub(super) fn text(line: &Line) -> String {
    let size = match line.verb {
        Verb::Send => format!(" ({})", sizes::bytes(line.bytes)),
        _ => String::new(),
    };
    // As rsync says it.
    let word = if line.verb == Verb::Delete { "deleting" } else { verb(line.verb) };
    format!("{word:<10} {}{size}", escape(&line.path))
}

/// What the paths of all lines are relative to: `into dtn2:/scratch/`.
pub(super) fn target(places: &Places) -> String {
    let target = places.target_text();
    let slash = if target.ends_with('/') { "" } else { "/" };
    format!("into {target}{slash}")
}
