//! Colours, and the layout of messages of several lines.

use super::errno;
use lads_core::text::escape_text;

/// Whether to use colours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    /// Whether to use colours.
    pub(crate) has_color: bool,
}

/// The meaning of a colour. The words always say the same.
#[derive(Clone, Copy, Debug)]
pub(super) enum Tone {
    /// Something failed.
    Bad,
    /// Something was left out, or needs attention.
    Careful,
    /// All went well.
    Good,
}

impl Style {
    /// Returns the text in a colour, if colours are used.
    pub(super) fn paint(self, tone: Tone, text: &str) -> String {
        if !self.has_color {
            return text.to_owned();
        }
        let code = match tone {
            Tone::Bad => "31",
            Tone::Careful => "33",
            Tone::Good => "32",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// Makes a message that may hold a system error fit to be shown: as [`escape_text`], with the names
/// of errors in place of their numbers.
pub(crate) fn message(text: &str) -> String {
    escape_text(&errno::named(text))
}

/// Indents all lines after the first so that they begin below its text.
pub(super) fn indented(text: &str) -> String {
    text.replace('\n', "\n      ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_keep_their_lines() {
        assert_eq!(indented("one\ntwo"), "one\n      two");
    }
}
