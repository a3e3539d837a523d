//! What no safe crate asks of TCP, or not safely: how long a round trip takes, a wide window from
//! the start, and the congestion control.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// Space for the name of a congestion control, in bytes (`TCP_CA_NAME_MAX` of the kernel).
const CONGESTION_CONTROL_BYTES_MAX: usize = 16;

/// How long a round trip takes, as TCP measured it; `None` if it has not, or if this is no
/// connection of TCP.
#[must_use]
pub fn round_trip(socket: impl AsFd) -> Option<Duration> {
    let micros = u64::from(info(socket)?.tcpi_rtt);
    (micros > 0).then(|| Duration::from_micros(micros))
}

/// Returns the path MTU of a connection, in bytes; `None` if this is no connection of TCP.
#[must_use]
pub fn path_mtu(socket: impl AsFd) -> Option<u32> {
    info(socket).map(|info| info.tcpi_pmtu).filter(|&bytes| bytes > 0)
}

fn info(socket: impl AsFd) -> Option<libc::tcp_info> {
    // SAFETY: `tcp_info` is plain numbers, for which all zeroes is a value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = libc::socklen_t::try_from(size_of_val(&info)).ok()?;
    // SAFETY: the call writes at most `length` bytes to `info`; the descriptor is open as long as
    // `socket` is borrowed.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    (result == 0).then_some(info)
}

/// The name of the congestion control of a connection; `None` if it is not known.
///
/// An emulated kernel may return only its first bytes, without the zero at their end.
#[must_use]
pub fn congestion_control(socket: impl AsFd) -> Option<Vec<u8>> {
    let mut name = [0_u8; CONGESTION_CONTROL_BYTES_MAX];
    let mut length = libc::socklen_t::try_from(name.len()).ok()?;
    // SAFETY: the call writes at most `length` bytes to `name`; the descriptor is open as long as
    // `socket` is borrowed.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            name.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    let known = name.split(|&byte| byte == 0).next().unwrap_or_default();
    (result == 0 && !known.is_empty()).then(|| known.to_vec())
}

/// Lets a connection announce a window of `bytes` as soon as as much may come, or of half of what
/// `net.ipv4.tcp_rmem` allows if that is less. The kernel goes on adapting it, as it would not
/// after `SO_RCVBUF`.
///
/// A new connection has room for 64 KiB. The kernel makes more only after a program has read what
/// came, a round trip late. A low-water mark of `bytes` makes room for them at once, because the
/// mark could not be reached otherwise; the room stays when the mark is set back.
///
/// # Errors
/// If the socket does not take the option.
pub fn widen_window(socket: impl AsFd, bytes: u32) -> io::Result<()> {
    set_low_water_mark(&socket, bytes)?;
    set_low_water_mark(&socket, 1)
}

fn set_low_water_mark(socket: impl AsFd, bytes: u32) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    // SAFETY: the call reads one `c_int`; the descriptor is open as long as `socket` is borrowed.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const bytes).cast(),
            libc::socklen_t::try_from(size_of_val(&bytes)).expect("a few bytes"),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::sockopt::socket_recv_buffer_size;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (ours, listener.accept().unwrap().0)
    }

    #[test]
    fn a_widened_window_has_room_and_a_single_byte_still_wakes_the_reader() {
        let (mut ours, mut theirs) = pair();
        let before = socket_recv_buffer_size(&ours).unwrap();
        widen_window(&ours, 1 << 20).unwrap();
        let after = socket_recv_buffer_size(&ours).unwrap();
        assert!(after >= (1 << 20) && after > before, "{before} {after}");
        ours.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        theirs.write_all(&[7]).unwrap();
        let mut byte = [0];
        ours.read_exact(&mut byte).unwrap();
        assert_eq!(byte, [7]);
    }

    #[test]
    fn only_a_connection_has_a_round_trip() {
        let (ours, _theirs) = pair();
        assert!(round_trip(&ours).is_some_and(|time| time < Duration::from_secs(10)));
        let file = rustix::fs::memfd_create("file", rustix::fs::MemfdFlags::empty()).unwrap();
        assert_eq!(round_trip(&file), None);
        widen_window(&file, 1 << 20).unwrap_err();
    }

    #[test]
    fn a_connection_has_the_congestion_control_that_was_set() {
        let (ours, _theirs) = pair();
        rustix::net::sockopt::set_tcp_congestion(&ours, "reno").unwrap();
        assert_eq!(congestion_control(&ours).as_deref(), Some(&b"reno"[..]));
        let file = rustix::fs::memfd_create("file", rustix::fs::MemfdFlags::empty()).unwrap();
        assert_eq!(congestion_control(&file), None);
    }
}
