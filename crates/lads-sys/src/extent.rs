//! Where on its device a file begins.
//!
//! Numbers and offsets are those of `linux/fiemap.h`.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Which extents a file has: `FS_IOC_FIEMAP`.
const GET_EXTENTS: libc::c_ulong = 0xc020_660b;

/// Eight-byte words of the head of a request, and of an extent behind it.
const HEAD_WORDS: usize = 4;
const EXTENT_WORDS: usize = 7;

/// The place is not known, not chosen yet, not a place for data alone, or not on the device.
const NO_PLACE: u32 = 0x2 | 0x4 | 0x200 | 0x400;

/// Where on its device the first extent of an open file begins, in bytes; `None` if it has none, or
/// none that has a place of its own yet. Nothing is written to find out.
///
/// # Errors
/// If its file system does not say.
pub fn first_extent(file: impl AsFd) -> io::Result<Option<u64>> {
    let mut request = [0u64; HEAD_WORDS + EXTENT_WORDS];
    // From the first byte to the last; room for one extent.
    request[1] = u64::MAX;
    request[3] = word([1, 0]);
    let file = file.as_fd().as_raw_fd();
    // SAFETY: the kernel reads and writes the head of 32 bytes and as many extents of 56 bytes as
    // the head says there is room for: one; the request is as long as both.
    let result = unsafe { libc::ioctl(file, GET_EXTENTS as _, request.as_mut_ptr()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(place_of(&request)) }
}

/// Reads an answer: in the head, how many extents were found; in the extent, the place on the
/// device and what is special about it.
fn place_of(answer: &[u64; HEAD_WORDS + EXTENT_WORDS]) -> Option<u64> {
    let [_, count] = halves(answer[2]);
    let extent = &answer[HEAD_WORDS..];
    let [flags, _] = halves(extent[5]);
    (count > 0 && flags & NO_PLACE == 0).then_some(extent[1])
}

/// Two 32-bit numbers that follow each other in memory, as one word.
fn word(halves: [u32; 2]) -> u64 {
    let [[a, b, c, d], [e, f, g, h]] = halves.map(u32::to_ne_bytes);
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

/// The two 32-bit numbers of a word, in the order in which they lie in memory.
fn halves(word: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = word.to_ne_bytes();
    [u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h])]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer of one extent that begins at 5 MiB.
    fn answer(count: u32, flags: u32) -> [u64; HEAD_WORDS + EXTENT_WORDS] {
        let (physical, length) = (5 << 20, 1 << 20);
        [
            0,
            u64::MAX,
            word([0, count]),
            word([1, 0]),
            0,
            physical,
            length,
            0,
            0,
            word([flags, 0]),
            0,
        ]
    }

    #[test]
    fn an_answer_is_read_where_the_kernel_puts_it() {
        assert_eq!(place_of(&answer(1, 0x1)), Some(5 << 20), "the last extent is one, too");
        assert_eq!(place_of(&answer(0, 0)), None, "there is none");
        assert_eq!(place_of(&answer(1, 0x4)), None, "its place is not chosen yet");
        assert_eq!(place_of(&answer(1, 0x200)), None, "it lies in the inode");
    }

    #[test]
    fn what_has_no_extents_says_so() {
        let here = std::fs::File::open("/proc/self/status").expect("it can be read");
        assert!(first_extent(&here).is_err());
    }
}
