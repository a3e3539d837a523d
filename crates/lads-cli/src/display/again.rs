//! Messages about a transfer that was interrupted: the same command resumes it, unless an end is a
//! pipe or a device, which cannot be read or written a second time.

use std::borrow::Cow;

/// The phrases of messages for a transfer that can be resumed, and those in their place for one
/// that cannot.
const PHRASES: [(&str, &str); 2] = [
    ("the same command resumes", "it can only start over"),
    ("run the same command again to resume", "start over"),
];

/// Returns the text without claims that are untrue if an end can be read or written only once.
pub(super) fn fit(text: &str, is_once: bool) -> Cow<'_, str> {
    let mut text = Cow::Borrowed(text);
    for (resumes, starts_over) in PHRASES {
        if is_once && text.contains(resumes) {
            text = Cow::Owned(text.replace(resumes, starts_over));
        }
    }
    text
}
