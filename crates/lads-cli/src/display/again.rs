//! What the same command does after a transfer that did not come to its end: it goes on, but not
//! with a pipe or a device, which cannot be read or written a second time.

use std::borrow::Cow;

/// How messages say that a transfer goes on, and what is true if it does not.
const WORDS: [(&str, &str); 4] = [
    ("the same command goes on from here", "it can only begin anew"),
    ("the same command goes on from there", "it can only begin anew"),
    ("the same command resumes", "it can only begin anew"),
    ("run the same command again: it goes on from here", "begin anew"),
];

/// The text, without what is not true if an end can be read or written only once.
pub(super) fn fit(text: &str, is_once: bool) -> Cow<'_, str> {
    let mut text = Cow::Borrowed(text);
    for (goes_on, anew) in WORDS {
        if is_once && text.contains(goes_on) {
            text = Cow::Owned(text.replace(goes_on, anew));
        }
    }
    text
}
