//! Describes system errors for the user, by their text and their name.

use lads_core::errno::name;
use std::io;

/// The text that the standard library and rustix put before the number of an error.
const NUMBER_BEGINS: &str = " (os error ";

/// `No space left on device (ENOSPC)`
pub(super) fn describe(errno: i32) -> String {
    named(&io::Error::from_raw_os_error(errno).to_string())
}

/// Returns the text with the names of system errors in place of their numbers: `(EACCES)` in place
/// of `(os error 13)`.
pub(super) fn named(text: &str) -> String {
    let (mut shown, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, after)) = rest.split_once(NUMBER_BEGINS) {
        shown.push_str(before);
        rest = after;
        match after.split_once(')').map(|(number, after)| (number.parse(), after)) {
            Some((Ok(errno), after)) => {
                match name(errno) {
                    Some(name) => shown += &format!(" ({name})"),
                    None => shown += &format!(" (errno {errno})"),
                }
                rest = after;
            }
            _ => shown.push_str(NUMBER_BEGINS),
        }
    }
    shown + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_names_in_every_message() {
        let denied = io::Error::from_raw_os_error(13);
        let text = format!("cannot open /a: {denied}, and cannot open /b: {denied}; try again");
        let expected = "cannot open /a: Permission denied (EACCES), and cannot open /b: Permission \
                        denied (EACCES); try again";
        assert_eq!(named(&text), expected);
        assert_eq!(named(&rustix::io::Errno::NOSPC.to_string()), describe(28));
        assert_eq!(describe(28), "No space left on device (ENOSPC)");
        assert_eq!(describe(999), "Unknown error 999 (errno 999)");
    }

    #[test]
    fn text_that_only_looks_like_a_number_stays() {
        for text in
            ["", "a (os error ", "a (os error x)", "a (os error 99999999999)", "(os error 13)"]
        {
            assert_eq!(named(text), text);
        }
    }
}
