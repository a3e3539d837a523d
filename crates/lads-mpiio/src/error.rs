//! Errors as classes of MPI, and the text of the last one.

use lads_engine::remote::RemoteError;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};

/// An error: its class, as in `rfs.h`, and a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Error {
    class: Class,
    text: String,
}

/// The classes of `rfs.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Class {
    Other = 1,
    Argument = 2,
    BadFile = 5,
    NoSuchFile = 6,
    FileExists = 7,
    FileInUse = 8,
    Access = 9,
    NoSpace = 10,
    Quota = 11,
    ReadOnly = 12,
    Io = 13,
    NoMemory = 14,
    Unsupported = 15,
    Filetype = 16,
}

impl Error {
    pub(crate) fn new(class: Class, text: impl Into<String>) -> Self {
        Self { class, text: text.into() }
    }

    /// The error of a view that cannot be set.
    pub(crate) fn of_view(error: RemoteError) -> Self {
        Self { class: Class::Filetype, ..error.into() }
    }
}

impl From<RemoteError> for Error {
    fn from(error: RemoteError) -> Self {
        Self { class: class_of(error.errno), text: error.text }
    }
}

/// The class of an `errno` of Linux.
fn class_of(errno: i32) -> Class {
    match lads_core::errno::name(errno) {
        Some("ENOENT") => Class::NoSuchFile,
        Some("EEXIST") => Class::FileExists,
        Some("EBUSY" | "ETXTBSY") => Class::FileInUse,
        Some("EACCES" | "EPERM" | "ELOOP") => Class::Access,
        Some("ENOSPC" | "EFBIG") => Class::NoSpace,
        Some("EDQUOT") => Class::Quota,
        Some("EROFS") => Class::ReadOnly,
        Some("EISDIR" | "ENOTDIR" | "ENAMETOOLONG") => Class::BadFile,
        Some("EINVAL") => Class::Argument,
        Some("ENOMEM") => Class::NoMemory,
        Some("EOPNOTSUPP") => Class::Unsupported,
        _ => Class::Io,
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// The class of an outcome; its text is kept for [`last_text`].
pub(crate) fn class_and_text(outcome: Result<(), Error>) -> c_int {
    match outcome {
        Ok(()) => 0,
        Err(Error { class, text }) => {
            let text = CString::new(text.replace('\0', "?")).unwrap_or_default();
            LAST.with_borrow_mut(|last| *last = text);
            class as c_int
        }
    }
}

/// The text of the last error of this thread, until the next one.
pub(crate) fn last_text() -> *const c_char {
    LAST.with_borrow(|last| last.as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_errno_has_a_class() {
        for (errno, class) in [
            (2, Class::NoSuchFile),
            (17, Class::FileExists),
            (13, Class::Access),
            (28, Class::NoSpace),
            (122, Class::Quota),
            (30, Class::ReadOnly),
            (24, Class::Io),
            (5, Class::Io),
            (9999, Class::Io),
        ] {
            assert_eq!(class_of(errno), class, "{errno}");
        }
    }
}
