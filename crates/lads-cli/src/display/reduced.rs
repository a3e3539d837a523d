//! Describes a kind of metadata that entries did not get.

use super::style::{Style, Tone};
use lads_core::reduction::Reduction;
use lads_core::sizes::count;

/// A kind of metadata that entries did not get, in words.
#[derive(Debug)]
pub(super) struct Described {
    pub(super) kind: Reduction,
    /// The number of entries.
    pub(super) entries: u64,
    /// The metadata, the number of entries, and the reason.
    pub(super) message: String,
    /// The option or the step that helps.
    pub(super) advice: &'static str,
}

impl Described {
    /// Describes the kind, of which there are this many entries.
    pub(super) fn new((kind, entries): (Reduction, u64)) -> Self {
        let (metadata, reason, advice) = words(kind);
        let noun = if entries == 1 { "entry" } else { "entries" };
        let message = format!("not kept: {metadata} of {} {noun} ({reason})", count(entries));
        Self { kind, entries, message, advice }
    }

    /// Returns the message and the advice as two lines for a terminal.
    pub(super) fn lines(&self, style: Style) -> [String; 2] {
        let message = style.paint(Tone::Careful, &self.message);
        [format!("lads: {message}"), format!("      {}", self.advice)]
    }
}

const WITHOUT_ATTRIBUTES: &str =
    "add --no-xattrs to move entries without extended attributes and ACLs";

/// Returns the metadata, the reason and the advice.
fn words(kind: Reduction) -> (&'static str, &'static str, &'static str) {
    match kind {
        Reduction::Acls => (
            "ACLs",
            "the file system of the sink does not store them; the group has the rights of group::",
            WITHOUT_ATTRIBUTES,
        ),
        Reduction::Attributes => (
            "extended attributes",
            "the file system of the sink does not store them",
            WITHOUT_ATTRIBUTES,
        ),
        Reduction::LargeAttributes => (
            "extended attributes or ACLs",
            "they are larger than the file system of the sink can store",
            WITHOUT_ATTRIBUTES,
        ),
        Reduction::AttributesRefused => (
            "extended attributes",
            "the user at the sink may not set them",
            "run lads as root at the sink, or without --privileges",
        ),
        Reduction::AttributesUnreadable => (
            "extended attributes",
            "the user at the source may not read them",
            "run lads as root at the source, or add --no-xattrs",
        ),
        Reduction::Permissions => (
            "permissions",
            "the file system of the sink does not store them",
            "add --no-perms to skip them",
        ),
        Reduction::Times => (
            "times of change",
            "the file system of the sink does not store them",
            "the next run sends these files again unless --checksum is given; --no-times skips all \
             times",
        ),
        Reduction::OwnerRefused => (
            "owner or group",
            "root may not set them on the file system of the sink",
            "add --no-owner to skip them",
        ),
        Reduction::SetIdBits => (
            "set-user-id or set-group-id bits",
            "the owner or group of the files could not be set",
            "run lads as root at the sink, or without --privileges",
        ),
        Reduction::Owner => (
            "owner or group",
            "only root may set them",
            "run lads as root at the sink, or add --no-owner",
        ),
        Reduction::Privileges => (
            "set-user-id or set-group-id bits, capabilities or trusted attributes",
            "they are kept only with --privileges",
            "add --privileges to keep them",
        ),
    }
}

/// Returns the word for a kind in JSON.
pub(super) fn word(kind: Reduction) -> &'static str {
    match kind {
        Reduction::Privileges => "privileges",
        Reduction::Owner => "owner",
        Reduction::OwnerRefused => "owner-refused",
        Reduction::SetIdBits => "set-id-bits",
        Reduction::Permissions => "permissions",
        Reduction::Attributes => "attributes",
        Reduction::Acls => "acls",
        Reduction::LargeAttributes => "large-attributes",
        Reduction::AttributesRefused => "attributes-refused",
        Reduction::AttributesUnreadable => "attributes-unreadable",
        Reduction::Times => "times",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_in_the_page_with_its_option_and_in_the_schema() {
        const PAGE: &str = include_str!("../../../../docs/metadata.md");
        const SCHEMA: &str = include_str!("../../../../docs/lads-events.schema.json");
        for kind in Reduction::ALL {
            let row = PAGE.lines().find(|line| line.starts_with(&format!("| `{}`", word(kind))));
            let row = row.unwrap_or_else(|| panic!("{kind:?} has no row"));
            assert!(SCHEMA.contains(&format!("\"{}\"", word(kind))), "{kind:?}");
            assert!(row.contains(if kind.is_loss() { "| 13 |" } else { "| 0 |" }), "{row}");
            let advice = Described::new((kind, 1)).advice;
            let option = advice.split(' ').find(|word| word.starts_with("--"));
            let option = option.expect("advice names an option").trim_end_matches(';');
            assert!(row.contains(option), "{row}: {option}");
        }
    }

    #[test]
    fn the_number_of_entries_is_in_the_message() {
        let message = |entries| Described::new((Reduction::Attributes, entries)).message;
        assert!(message(1).starts_with("not kept: extended attributes of 1 entry ("));
        assert!(message(4193).starts_with("not kept: extended attributes of 4,193 entries ("));
    }
}
