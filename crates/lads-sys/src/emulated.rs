//! The call by which an emulated Lustre takes components for a file that grows.
//!
//! Lustre takes them as an extended attribute. The kernel lets nobody set one while others write to
//! a file of FUSE, and Lustre's client lets them write; so the emulator has a call of its own.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// `_IOW('L', 1, …)`, without its size.
const ADD: u32 = 0x4000_0000 | (b'L' as u32) << 8 | 1;

/// Where the number of a call has the bytes of its argument, and the most that it can say.
const SIZE_SHIFT: u32 = 16;
const SIZE_MAX: usize = (1 << 14) - 1;

/// Whether the number of a call is that of this one.
#[must_use]
pub fn is_addition(number: u32) -> bool {
    let size = u32::try_from(SIZE_MAX).expect("14 bits") << SIZE_SHIFT;
    number & !size == ADD
}

/// Adds components, as `lustre.lov.add` would.
///
/// # Errors
/// `E2BIG` if that is more than the call takes, `ENOTTY` if the file system is another; else those
/// of the attribute.
pub fn add_components(file: impl AsFd, addition: &[u8]) -> io::Result<()> {
    if addition.len() > SIZE_MAX {
        return Err(io::Error::from_raw_os_error(libc::E2BIG));
    }
    let size = u32::try_from(addition.len()).expect("at most SIZE_MAX");
    let number = ADD | size << SIZE_SHIFT;
    // SAFETY: the handle is open; the call reads as many bytes as its number says, which is what
    // there is, and writes none.
    let result = unsafe { libc::ioctl(file.as_fd().as_raw_fd(), number as _, addition.as_ptr()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_says_how_long_its_argument_is_and_is_known_by_the_rest() {
        assert!(is_addition(ADD | 152 << SIZE_SHIFT));
        assert!(!is_addition(ADD + 1));
        assert!(!is_addition(ADD ^ 0x8000_0000));
    }

    #[test]
    fn what_is_no_emulated_file_system_says_so() {
        let here = std::fs::File::open("/").unwrap();
        let error = add_components(&here, &[0; 32]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOTTY));
        let error = add_components(&here, &[0; SIZE_MAX + 1]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::E2BIG));
    }
}
