//! Colours, and the escaping of names that may hold any bytes.

use std::fmt::Write;

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

/// Makes a name fit to be shown. It escapes control characters, characters that change the
/// direction of writing, bytes that are not UTF-8, and the backslash, which becomes two.
pub(crate) fn escape(name: &[u8]) -> String {
    let mut shown = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '\\' => shown.push_str("\\\\"),
                letter if is_shown(letter) => shown.push(letter),
                letter => shown.extend(letter.escape_default()),
            }
        }
        for byte in chunk.invalid() {
            write!(shown, "\\x{byte:02x}").expect("a String takes everything");
        }
    }
    shown
}

/// Makes a message from elsewhere fit to be shown: as [`escape`], but line breaks stay.
pub(crate) fn escape_text(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.trim_end().chars() {
        match letter {
            '\r' => {}
            '\n' | '\t' => shown.push(letter),
            letter if is_shown(letter) => shown.push(letter),
            letter => shown.extend(letter.escape_default()),
        }
    }
    shown
}

/// Indents all lines after the first so that they begin below its text.
pub(super) fn indented(text: &str) -> String {
    text.replace('\n', "\n      ")
}

fn is_shown(letter: char) -> bool {
    let turns_direction = matches!(letter,
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}');
    !letter.is_control() && !turns_direction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_reaches_the_terminal_as_a_command() {
        assert_eq!(escape(b"a\x1b[2Jb\nc\\"), "a\\u{1b}[2Jb\\nc\\\\");
        assert_eq!(escape(b"caf\xc3\xa9 \xff\xfe"), "café \\xff\\xfe");
        assert_eq!(escape("a\u{202e}b\u{9b}".as_bytes()), "a\\u{202e}b\\u{9b}");
    }

    #[test]
    fn messages_keep_their_lines() {
        assert_eq!(escape_text("one\r\ntwo\x1b[0m\n"), "one\ntwo\\u{1b}[0m");
        assert_eq!(indented("one\ntwo"), "one\n      two");
    }
}
