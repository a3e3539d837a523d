//! Whether the page cache holds part of a file: the proof that reading it back reads storage.

use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::os::fd::AsFd;

const PAGE_BYTES: usize = 4096;

/// How many bytes of a range of a file the page cache holds, rounded up to whole pages.
///
/// `offset` must be a multiple of the page size.
///
/// # Errors
/// If the file cannot be mapped.
pub fn resident_bytes(file: impl AsFd, offset: u64, length: usize) -> io::Result<u64> {
    if length == 0 {
        return Ok(0);
    }
    // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing; it is never
    // read through, so that the file may change below it.
    let start = unsafe {
        rustix::mm::mmap(
            std::ptr::null_mut(),
            length,
            ProtFlags::READ,
            MapFlags::SHARED,
            file,
            offset,
        )
    }?;
    let mut pages = vec![0u8; length.div_ceil(PAGE_BYTES)];
    // SAFETY: the range is mapped, and `pages` has a byte for each of its pages.
    let result = unsafe { libc::mincore(start, length, pages.as_mut_ptr()) };
    let error = io::Error::last_os_error();
    // SAFETY: the range was mapped above and is not used any more.
    unsafe { rustix::mm::munmap(start, length) }?;
    if result != 0 {
        return Err(error);
    }
    let resident = pages.iter().filter(|&&page| page & 1 == 1).count();
    Ok((resident * PAGE_BYTES) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_was_just_written_is_in_the_page_cache() {
        let name = format!("lads-residency-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut file = std::fs::File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .unwrap();
        file.write_all(&[7; 3 * PAGE_BYTES]).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(resident_bytes(&file, 0, 3 * PAGE_BYTES).unwrap(), 3 * PAGE_BYTES as u64);
    }
}
