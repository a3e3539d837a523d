//! Makes text from elsewhere fit for a terminal.

use std::fmt::Write as _;

/// Escapes control characters, characters that change the direction of writing, bytes that are not
/// UTF-8, and the backslash, which becomes two.
#[must_use]
pub fn escape(name: &[u8]) -> String {
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

/// Escapes a message as [`escape`] does a name, but keeps line breaks and backslashes.
#[must_use]
pub fn escape_text(text: &str) -> String {
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
    }
}
