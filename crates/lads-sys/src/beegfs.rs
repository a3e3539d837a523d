//! What BeeGFS's client says of files, and does with new ones, by calls that need no privilege.
//!
//! Answers are handed on as they are; what they mean is decided elsewhere. Numbers and offsets are
//! those of `beegfs_client.h` of releases 7 and 8, on systems with 64-bit pointers and the usual
//! encoding of call numbers (x86-64, aarch64).

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// `BEEGFS_IOC_TEST_IS_BEEGFS`. It writes eight bytes, whatever its number says.
const TEST: libc::c_ulong = 0x8006_6616;
/// `BEEGFS_IOC_GET_MOUNTID`.
const GET_MOUNT_ID: libc::c_ulong = 0x8100_6618;
/// `BEEGFS_IOC_GET_STRIPEINFO`.
const GET_STRIPING: libc::c_ulong = 0x800c_6619;
/// `BEEGFS_IOC_GET_STRIPETARGET_V2`.
const GET_STRIPE: libc::c_ulong = 0x8218_661a;
/// `BEEGFS_IOC_MKFILE_STRIPEHINTS`.
const MAKE_STRIPED: libc::c_ulong = 0x4018_661b;
/// `BEEGFS_IOC_CREATE_FILE_V3`.
const MAKE_ON: libc::c_ulong = 0x4078_661d;
/// `BEEGFS_IOC_GETENTRYINFO`.
const GET_ENTRY: libc::c_ulong = 0x8044_661f;

/// What the test answers.
const TEST_ANSWER: &[u8; 8] = b"_FhGFS_\0";

const MOUNT_ID_BYTES: usize = 256;
const MAKE_STRIPED_BYTES: usize = 24;
const MAKE_ON_BYTES: usize = 120;

/// `DT_REG`: a file.
const KIND_FILE: u32 = 8;

/// Whether an open file or directory is on BeeGFS.
pub fn is_beegfs(file: impl AsFd) -> bool {
    // SAFETY: the call writes eight bytes; there are eight.
    unsafe { answer(file, TEST, [0; 8]) }.is_ok_and(|answer| answer == *TEST_ANSWER)
}

/// What the client calls this mount; the name of a directory in `/proc/fs/beegfs`.
///
/// # Errors
/// If it is not BeeGFS, or does not answer.
pub fn mount_id(file: impl AsFd) -> io::Result<String> {
    // SAFETY: the call writes a text of at most 256 bytes; there are as many.
    let answer = unsafe { answer(file, GET_MOUNT_ID, [0; MOUNT_ID_BYTES]) }?;
    let end = answer.iter().position(|&byte| byte == 0).unwrap_or(answer.len());
    Ok(String::from_utf8_lossy(&answer[..end]).into_owned())
}

/// How an open file is striped.
///
/// # Errors
/// `EISDIR` for a directory; any other if it is not BeeGFS, or does not answer.
pub fn striping(file: impl AsFd) -> io::Result<[u8; 12]> {
    // SAFETY: the call writes fields of a structure of twelve bytes; there are twelve.
    unsafe { answer(file, GET_STRIPING, [0; 12]) }
}

/// What holds the stripe of this index of an open file.
///
/// # Errors
/// `EINVAL` if it has no such stripe; any other if it is not BeeGFS, or does not answer.
pub fn stripe(file: impl AsFd, index: u32) -> io::Result<[u8; 536]> {
    let mut request = [0; 536];
    request[..4].copy_from_slice(&index.to_ne_bytes());
    // SAFETY: the call reads and writes fields of a structure of 536 bytes; there are as many.
    unsafe { answer(file, GET_STRIPE, request) }
}

/// What a directory is called inside BeeGFS.
///
/// # Errors
/// If it is not BeeGFS, or does not answer.
pub fn entry(directory: impl AsFd) -> io::Result<[u8; 68]> {
    // SAFETY: the call writes fields of a structure of 68 bytes; there are as many.
    unsafe { answer(directory, GET_ENTRY, [0; 68]) }
}

/// Makes a file in stripes of this many bytes (a power of two from 64 KiB on), this many of them.
///
/// # Errors
/// `EEXIST` if something has its name; any other if it cannot be made so.
pub fn make_striped(
    directory: impl AsFd,
    name: &CStr,
    mode: u32,
    target_count: u32,
    chunk_bytes: u32,
) -> io::Result<()> {
    let mut request = Request::<MAKE_STRIPED_BYTES>::new();
    request.put_text(0, name);
    request.put(8, mode);
    request.put(12, target_count);
    request.put(16, chunk_bytes);
    // SAFETY: the call reads a structure of 24 bytes, which there are, and the text that its
    // pointer points to, which outlives the call and ends with a zero.
    unsafe { answer(directory, MAKE_STRIPED, request) }.map(|_| ())
}

/// A file to be made, and on which targets it should best be.
#[derive(Clone, Copy, Debug)]
pub struct NewFile<'a> {
    /// Its name.
    pub name: &'a CStr,
    /// Its permissions.
    pub mode: u32,
    /// The metadata server of the directory, or group of them if that is mirrored.
    pub owner: u32,
    /// Whether the metadata of the directory is mirrored.
    pub is_mirrored: bool,
    /// The name inside BeeGFS of the directory.
    pub directory_id: &'a CStr,
    /// The same of the directory that it is in.
    pub parent_id: &'a CStr,
    /// The targets; none is zero.
    pub targets: &'a [u16],
}

/// Makes a file on targets that it should best be on. How many it is striped over, and in which
/// chunks, its directory says; a server may choose others.
///
/// # Errors
/// `EEXIST` if something has its name; any other if it cannot be made.
pub fn make_on(directory: impl AsFd, file: &NewFile<'_>) -> io::Result<()> {
    let mut targets = file.targets.to_vec();
    targets.push(0);
    let request = request_on(file, &targets);
    // SAFETY: the call reads a structure of 120 bytes, which there are, and what its pointers point
    // to, each as long as the structure says: all of it outlives the call.
    unsafe { answer(directory, MAKE_ON, request) }.map(|_| ())
}

/// `struct BeegfsIoctl_MkFileV3_Arg`; `targets` ends with a zero.
fn request_on(file: &NewFile<'_>, targets: &[u16]) -> Request<MAKE_ON_BYTES> {
    let length = |bytes: usize| u32::try_from(bytes).expect("names and lists are short");
    let mut request = Request::new();
    request.put(0, file.owner);
    // The name of the directory is told for messages only.
    let texts = [(8, file.parent_id), (24, file.directory_id), (40, c"."), (56, file.name)];
    for (at, text) in texts {
        request.put_text(at, text);
        request.put(at + 8, length(text.count_bytes() + 1));
    }
    request.put(36, u32::from(file.is_mirrored));
    request.put(68, KIND_FILE);
    request.put(84, file.mode);
    request.put(88, rustix::process::geteuid().as_raw());
    request.put(92, rustix::process::getegid().as_raw());
    request.put(96, length(targets.len() - 1));
    request.put_pointer(104, targets.as_ptr().expose_provenance());
    request.put(112, length(size_of_val(targets)));
    // The pool of targets, at 116, is that of the directory.
    request
}

/// Bytes that a call takes, aligned as its structure is.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug)]
struct Request<const LENGTH: usize>([u8; LENGTH]);

impl<const LENGTH: usize> Request<LENGTH> {
    fn new() -> Self {
        Self([0; LENGTH])
    }

    fn put(&mut self, at: usize, number: u32) {
        self.0[at..at + 4].copy_from_slice(&number.to_ne_bytes());
    }

    fn put_text(&mut self, at: usize, text: &CStr) {
        self.put_pointer(at, text.as_ptr().expose_provenance());
    }

    fn put_pointer(&mut self, at: usize, pointer: usize) {
        self.0[at..at + 8].copy_from_slice(&(pointer as u64).to_ne_bytes());
    }
}

/// Makes a call whose argument is read and written in place.
///
/// # Safety
/// `argument` must be what the call of this number takes, and as long; what it points to must stay
/// so until the call returns.
unsafe fn answer<T: Copy>(file: impl AsFd, number: libc::c_ulong, argument: T) -> io::Result<T> {
    #[repr(C, align(8))]
    struct Aligned<T>(T);
    let mut argument = Aligned(argument);
    let file = file.as_fd().as_raw_fd();
    // SAFETY: the handle is open; the argument is what the caller vouches for.
    let result = unsafe { libc::ioctl(file, number as _, &raw mut argument) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(argument.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_beegfs_says_so() {
        let here = std::fs::File::open("/").expect("there is a root");
        assert!(!is_beegfs(&here));
        assert!(mount_id(&here).is_err() && striping(&here).is_err());
        assert!(stripe(&here, 0).is_err() && entry(&here).is_err());
        assert!(make_striped(&here, c"file", 0o600, 1, 1 << 20).is_err());
    }

    #[test]
    fn a_request_has_its_fields_where_the_client_looks_for_them() {
        let file = NewFile {
            name: c"ckpt.0041",
            mode: 0o600,
            owner: 7,
            is_mirrored: true,
            directory_id: c"1A-5F0C2D11-1",
            parent_id: c"root",
            targets: &[301, 12],
        };
        let targets = [301, 12, 0];
        let request = request_on(&file, &targets).0;
        let number =
            |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().expect("four bytes"));
        let pointer =
            |at: usize| u64::from_ne_bytes(request[at..at + 8].try_into().expect("eight bytes"));
        assert_eq!([0, 36, 68, 84, 96, 112, 116].map(number), [7, 1, 8, 0o600, 2, 6, 0]);
        assert_eq!([16, 32, 48, 64].map(number), [5, 14, 2, 10], "zeros are counted");
        assert_eq!(pointer(8), file.parent_id.as_ptr().addr() as u64);
        assert_eq!(pointer(24), file.directory_id.as_ptr().addr() as u64);
        assert_eq!(pointer(56), file.name.as_ptr().addr() as u64);
        assert_eq!(pointer(104), targets.as_ptr().addr() as u64);
        assert_eq!((pointer(72), number(80)), (0, 0), "it is no link");
    }
}
