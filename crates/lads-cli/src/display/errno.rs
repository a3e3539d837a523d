//! Describes a system error for a person, by its text and its name.

use lads_core::errno::name;
use std::io;

/// `No space left on device (ENOSPC)`
pub(super) fn describe(errno: i32) -> String {
    let text = io::Error::from_raw_os_error(errno).to_string();
    // The standard library puts the number after the text.
    let text = text.split(" (os error").next().unwrap_or(&text);
    match name(errno) {
        Some(name) => format!("{text} ({name})"),
        None => format!("{text} (errno {errno})"),
    }
}
