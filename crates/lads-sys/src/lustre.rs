//! What Lustre's client says of its storage targets, by the calls that need no privilege.
//!
//! Numbers and offsets are those of `lustre_user.h` and `lustre_ioctl.h`, 2.12 to 2.17, on systems
//! with 64-bit pointers and the usual encoding of call numbers (x86-64, aarch64).

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// How many OSTs there are: `LL_IOC_GETOBDCOUNT`.
const GET_COUNT: libc::c_ulong = 0x8008_66a8;
/// State and space of one OST: `IOC_OBD_STATFS`.
const GET_STATUS: libc::c_ulong = 0xc008_66a4;
/// Read an open file from one of its mirrors: `LL_IOC_FLR_SET_MIRROR`.
const SET_MIRROR: libc::c_ulong = 0x4008_66b1;
/// Name of the client's own device: `OBD_IOC_GETDTNAME`, and what it was before 2.12.
const GET_NAMES: [libc::c_ulong; 2] = [0x8080_667f, 0xc008_6683];

/// Bytes of `struct obd_statfs`, and of the text that names a target.
const STATUS_BYTES: usize = 144;
const UUID_BYTES: usize = 40;
const NAME_BYTES: usize = 128;

/// Bytes of `struct obd_ioctl_data` with two numbers behind it, each padded to eight bytes.
const REQUEST_BYTES: usize = 592;
const REQUEST_VERSION: u32 = 0x0001_0004;
/// Ask for an OST, and do not wait for one that does not answer.
const OST_WITHOUT_DELAY: u32 = 2 | 4;

/// The OST is being rebuilt.
pub const STATE_DEGRADED: u32 = 0x1;
/// Nothing can be written.
pub const STATE_READ_ONLY: u32 = 0x2;
/// No new objects can be made.
pub const STATE_NO_CREATE: u32 = 0x4;
/// There is no space.
pub const STATE_NO_SPACE: u32 = 0x20;
/// There are no inodes.
pub const STATE_NO_INODES: u32 = 0x40;
/// It is not on spinning disks.
pub const STATE_FLASH: u32 = 0x200;

/// State and space of one OST.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ost {
    /// Bits `STATE_…`.
    pub state: u32,
    /// All its space, in bytes.
    pub capacity_bytes: u64,
    /// Its space that a user can have, in bytes.
    pub free_bytes: u64,
    /// What Lustre calls it, like `scratch-OST000a_UUID`.
    pub uuid: String,
}

/// How many OSTs the file system of an open directory has.
///
/// # Errors
/// If it is not Lustre, or does not answer.
pub fn ost_count(directory: impl AsFd) -> io::Result<u32> {
    // Zero going in asks for OSTs; anything else for MDTs.
    let mut count = 0u32;
    // SAFETY: the call reads and writes one 32-bit number, to which the pointer points.
    unsafe { call(directory, GET_COUNT, (&raw mut count).cast()) }?;
    Ok(count)
}

/// What the OST of this index is like.
///
/// # Errors
/// `ENODEV` if there is none from this index on, `EAGAIN` if only this one is missing, `ENODATA`
/// if it is inactive; anything else if the call is not understood.
pub fn ost(directory: impl AsFd, index: u32) -> io::Result<Ost> {
    let mut status = [0u64; STATUS_BYTES / 8];
    let mut uuid = [0u8; UUID_BYTES];
    let mut request = Request::new(index, status.as_mut_ptr(), uuid.as_mut_ptr());
    // SAFETY: the request is as long as it says, and points to memory of ours that is as long as
    // it says and outlives the call.
    unsafe { call(directory, GET_STATUS, (&raw mut request).cast()) }?;
    Ok(status_of(&status, &uuid))
}

/// What the client calls its own device, like `scratch-clilov-ffff8801…`: the name of the file
/// system and, behind the last dash, the number of the mount.
///
/// # Errors
/// If it is not Lustre, or does not answer.
pub fn device_name(directory: impl AsFd) -> io::Result<String> {
    let mut last = io::Error::from_raw_os_error(libc::ENOTTY);
    for number in GET_NAMES {
        let mut name = [0u8; NAME_BYTES];
        // SAFETY: both calls write at most 128 bytes, which is what there is.
        match unsafe { call(directory.as_fd(), number, name.as_mut_ptr().cast()) } {
            Ok(()) => return Ok(text_of(&name)),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Sees that an open file is read from this mirror.
///
/// # Errors
/// `EINVAL` if it is not open for direct I/O, or has no such mirror; anything else if the call is
/// not understood.
pub fn choose_mirror(file: impl AsFd, mirror: u16) -> io::Result<()> {
    // SAFETY: the call takes its argument as a number, and neither reads nor writes memory.
    unsafe { call(file, SET_MIRROR, std::ptr::without_provenance_mut(mirror.into())) }
}

/// # Safety
/// `argument` must be what the call of this number takes, and stay so until it returns.
unsafe fn call(
    directory: impl AsFd,
    number: libc::c_ulong,
    argument: *mut libc::c_void,
) -> io::Result<()> {
    let handle = directory.as_fd().as_raw_fd();
    // SAFETY: the handle is open; the argument is what the caller vouches for.
    let result = unsafe { libc::ioctl(handle, number as _, argument) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// `struct obd_ioctl_data`, of which few fields matter, and the kind and index of a target.
#[repr(C, align(8))]
struct Request([u8; REQUEST_BYTES]);

impl Request {
    fn new(index: u32, status: *mut u64, uuid: *mut u8) -> Self {
        let mut request = Self([0; REQUEST_BYTES]);
        let length = |bytes: usize| u32::try_from(bytes).expect("a few hundred");
        request.put(0, &length(REQUEST_BYTES).to_ne_bytes());
        request.put(4, &REQUEST_VERSION.to_ne_bytes());
        request.put(480, &length(STATUS_BYTES).to_ne_bytes());
        request.put(488, &(status.expose_provenance() as u64).to_ne_bytes());
        request.put(496, &length(UUID_BYTES).to_ne_bytes());
        request.put(504, &(uuid.expose_provenance() as u64).to_ne_bytes());
        // What comes inline must have an address that is not null, which nobody uses.
        for (length_at, pointer_at) in [(512, 520), (528, 536)] {
            request.put(length_at, &4u32.to_ne_bytes());
            request.put(pointer_at, &1u64.to_ne_bytes());
        }
        request.put(576, &OST_WITHOUT_DELAY.to_ne_bytes());
        request.put(584, &index.to_ne_bytes());
        request
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

/// Reads `struct obd_statfs`: blocks at 8, free to users at 24, block size at 88, state at 104.
fn status_of(status: &[u64; STATUS_BYTES / 8], uuid: &[u8]) -> Ost {
    let half = |at: usize| {
        let bytes = status[at / 8].to_ne_bytes();
        let [a, b, c, d] = [0, 1, 2, 3].map(|byte| bytes[at % 8 + byte]);
        u32::from_ne_bytes([a, b, c, d])
    };
    let block_bytes = u64::from(half(88));
    Ost {
        state: half(104),
        capacity_bytes: status[1].saturating_mul(block_bytes),
        free_bytes: status[3].saturating_mul(block_bytes),
        uuid: text_of(uuid),
    }
}

fn text_of(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_lustre_says_so() {
        let here = std::fs::File::open("/").unwrap();
        assert!(ost_count(&here).is_err());
        assert!(ost(&here, 0).is_err());
        assert!(device_name(&here).is_err());
    }

    #[test]
    fn a_request_has_its_fields_where_lustre_looks_for_them() {
        let (mut status, mut uuid) = ([0u64; STATUS_BYTES / 8], [0u8; UUID_BYTES]);
        let request = Request::new(7, status.as_mut_ptr(), uuid.as_mut_ptr()).0;
        let number = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().unwrap());
        let found = [0, 4, 480, 496, 512, 528, 576, 584].map(number);
        assert_eq!(found, [592, 0x1_0004, 144, 40, 4, 4, 6, 7]);
    }

    #[test]
    fn an_answer_is_read_where_lustre_puts_it() {
        let mut status = [0u64; STATUS_BYTES / 8];
        (status[1], status[3]) = (1000, 10);
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&4096u32.to_ne_bytes());
        status[11] = u64::from_ne_bytes(bytes);
        bytes[..4].copy_from_slice(&(STATE_DEGRADED | STATE_FLASH).to_ne_bytes());
        status[13] = u64::from_ne_bytes(bytes);
        let ost = status_of(&status, b"fs-OST0007_UUID\0\0\0");
        assert_eq!((ost.capacity_bytes, ost.free_bytes), (4_096_000, 40_960));
        assert_eq!((ost.state, ost.uuid.as_str()), (0x201, "fs-OST0007_UUID"));
    }
}
