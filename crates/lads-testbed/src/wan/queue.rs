//! Takes packets from the kernel and gives them back to it: a netfilter queue, over netlink.
//!
//! Only the first bytes of a packet come to us. Its payload stays in the kernel, which keeps it
//! under its id until we have decided what happens to it. The messages are those of
//! `linux/netfilter/nfnetlink_queue.h`, of which we need five. No available crate supports the flag
//! for whole super-packets and verdicts on many packets at once.

use anyhow::{Context as _, Result, bail};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind,
    netlink::{NETFILTER, SocketAddrNetlink},
    recv, send, socket_with, sockopt,
};

/// `NFNL_SUBSYS_QUEUE << 8`.
const SUBSYSTEM: u16 = 3 << 8;
const MSG_PACKET: u16 = SUBSYSTEM;
const MSG_VERDICT: u16 = SUBSYSTEM | 1;
const MSG_CONFIG: u16 = SUBSYSTEM | 2;
const MSG_VERDICT_BATCH: u16 = SUBSYSTEM | 3;
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;

const ATTRIBUTE_PACKET_HEADER: u16 = 1;
const ATTRIBUTE_VERDICT_HEADER: u16 = 2;
const ATTRIBUTE_PAYLOAD: u16 = 10;
const ATTRIBUTE_FULL_LENGTH: u16 = 13;

const CONFIG_COMMAND: u16 = 1;
const CONFIG_PARAMETERS: u16 = 2;
const CONFIG_LENGTH_MAX: u16 = 3;
const CONFIG_MASK: u16 = 4;
const CONFIG_FLAGS: u16 = 5;
const COMMAND_BIND: u8 = 1;
const COPY_PACKET: u8 = 2;
/// Super-packets come whole, and the kernel does not compute their checksums for us.
const FLAG_GSO: u32 = 1 << 2;

const VERDICT_DROP: u32 = 0;
const VERDICT_ACCEPT: u32 = 1;

/// The number of bytes of each packet that are copied to us. We do not look at them; this is the
/// smallest number with which the message also contains the packet's length.
const COPY_BYTES: u32 = 40;
/// The most packets that the kernel holds for us: 163 ms at 10 GB/s in packets of 9,000 bytes are
/// 180,000. Each one takes memory of the kernel, which nothing else limits.
const PACKETS_MAX: u32 = 400_000;
/// The space for packet heads that wait to be read: more than 50,000 packets.
const RECEIVE_BUFFER_BYTES: usize = 64 << 20;
/// An upper limit for the size of a message that carries 40 bytes of a packet.
const MESSAGE_BYTES_MAX: usize = 4096;

/// One netfilter queue of the network namespace in which it was opened.
pub(crate) struct Queue {
    socket: OwnedFd,
    number: u16,
    buffer: Vec<u8>,
    message: Message,
}

/// A packet that waits for our verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    /// Its number in the queue. Numbers increase, and wrap around.
    pub(crate) id: u32,
    /// Its length, including the IP header.
    pub(crate) bytes: u32,
}

/// The result of a read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// A packet.
    Packet(Packet),
    /// Nothing can be read now.
    Nothing,
    /// Something else: packets overran our buffer, or a packet that we passed a verdict on is gone.
    /// The kernel counts what it drops.
    Complaint,
}

impl Queue {
    /// Takes over a queue of the network namespace of the calling thread.
    pub(crate) fn open(number: u16) -> Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(NETFILTER))
            .context("cannot open a netfilter socket")?;
        bind(&socket, &SocketAddrNetlink::new(0, 0)).context("cannot bind it")?;
        sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER_BYTES)
            .context("cannot enlarge its buffer")?;
        let buffer = vec![0; MESSAGE_BYTES_MAX];
        let mut queue = Self { socket, number, buffer, message: Message::default() };
        queue.configure()?;
        Ok(queue)
    }

    fn configure(&mut self) -> Result<()> {
        self.message.begin(MSG_CONFIG, NLM_F_REQUEST | NLM_F_ACK, self.number);
        self.message.attribute(CONFIG_COMMAND, &[COMMAND_BIND, 0, 0, 0]);
        self.ask().context("cannot take over the netfilter queue")?;
        self.message.begin(MSG_CONFIG, NLM_F_REQUEST | NLM_F_ACK, self.number);
        let [a, b, c, d] = COPY_BYTES.to_be_bytes();
        self.message.attribute(CONFIG_PARAMETERS, &[a, b, c, d, COPY_PACKET]);
        self.message.attribute(CONFIG_LENGTH_MAX, &PACKETS_MAX.to_be_bytes());
        self.message.attribute(CONFIG_FLAGS, &FLAG_GSO.to_be_bytes());
        self.message.attribute(CONFIG_MASK, &FLAG_GSO.to_be_bytes());
        self.ask().context("cannot set up the netfilter queue")
    }

    /// Sends the message and waits for the answer; no packet can come before that.
    fn ask(&mut self) -> Result<()> {
        send(&self.socket, self.message.end(), SendFlags::empty())?;
        let (bytes, _) = recv(&self.socket, &mut *self.buffer, RecvFlags::empty())?;
        let (kind, body) = parse(&self.buffer[..bytes]).context("no netlink message")?;
        let code = body.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes));
        match (kind, code) {
            (NLMSG_ERROR, Some(0)) => Ok(()),
            (NLMSG_ERROR, Some(code)) => Err(Errno::from_raw_os_error(-code).into()),
            _ => bail!("an unexpected answer of kind {kind}"),
        }
    }

    /// Takes the next packet, if one is there.
    pub(crate) fn receive(&mut self) -> Result<Received> {
        match recv(&self.socket, &mut *self.buffer, RecvFlags::DONTWAIT) {
            Ok((bytes, _)) => {
                let packet = packet_in(&self.buffer[..bytes.min(MESSAGE_BYTES_MAX)]);
                Ok(packet.map_or(Received::Complaint, Received::Packet))
            }
            Err(Errno::AGAIN) => Ok(Received::Nothing),
            Err(Errno::NOBUFS | Errno::INTR) => Ok(Received::Complaint),
            Err(error) => Err(error).context("cannot read from the netfilter queue"),
        }
    }

    /// Lets all packets go on that came no later than this one and were not dropped.
    pub(crate) fn accept_through(&mut self, id: u32) -> Result<()> {
        self.pass(MSG_VERDICT_BATCH, VERDICT_ACCEPT, id)
    }

    /// Drops one packet.
    pub(crate) fn drop_packet(&mut self, id: u32) -> Result<()> {
        self.pass(MSG_VERDICT, VERDICT_DROP, id)
    }

    fn pass(&mut self, kind: u16, verdict: u32, id: u32) -> Result<()> {
        self.message.begin(kind, NLM_F_REQUEST, self.number);
        let header = (u64::from(verdict) << 32 | u64::from(id)).to_be_bytes();
        self.message.attribute(ATTRIBUTE_VERDICT_HEADER, &header);
        send(&self.socket, self.message.end(), SendFlags::empty())
            .context("cannot pass a verdict on a packet")?;
        Ok(())
    }

    /// Returns the number of packets that the kernel dropped because they came too fast for us. The
    /// calling thread must be in the queue's network namespace.
    pub(crate) fn dropped_by_kernel(&self) -> u64 {
        let path = "/proc/thread-self/net/netfilter/nfnetlink_queue";
        let table = std::fs::read_to_string(path).unwrap_or_default();
        dropped_in(&table, self.number)
    }
}

impl rustix::fd::AsFd for Queue {
    fn as_fd(&self) -> rustix::fd::BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Returns the sum of the columns `queue_dropped` and `user_dropped` in the queue's row.
fn dropped_in(table: &str, number: u16) -> u64 {
    let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let row = rows.into_iter().find(|row| row.first() == Some(&number.to_string().as_str()));
    let row = row.unwrap_or_default();
    [5, 6].iter().filter_map(|&column| row.get(column)?.parse::<u64>().ok()).sum()
}

/// A netlink message under construction.
#[derive(Default)]
struct Message {
    bytes: Vec<u8>,
}

impl Message {
    /// Writes the headers of netlink (16 bytes) and of netfilter (4 bytes).
    fn begin(&mut self, kind: u16, flags: u16, queue: u16) {
        self.bytes.clear();
        self.bytes.extend([0; 4]);
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(flags.to_ne_bytes());
        self.bytes.extend([0; 8]);
        self.bytes.extend([0, 0]);
        self.bytes.extend(queue.to_be_bytes());
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) {
        let length = u16::try_from(4 + value.len()).expect("attributes are a few bytes");
        self.bytes.extend(length.to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(value);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// Fills in the length and returns the whole message.
    fn end(&mut self) -> &[u8] {
        let length = u32::try_from(self.bytes.len()).expect("messages are a few bytes");
        self.bytes[..4].copy_from_slice(&length.to_ne_bytes());
        &self.bytes
    }
}

/// Returns the kind and body of a netlink message.
fn parse(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let length = usize::try_from(u32::from_ne_bytes(*bytes.first_chunk()?)).ok()?;
    let kind = u16::from_ne_bytes(*bytes.get(4..)?.first_chunk()?);
    Some((kind, bytes.get(16..length)?))
}

/// Returns the packet that a message describes.
fn packet_in(bytes: &[u8]) -> Option<Packet> {
    let (kind, body) = parse(bytes)?;
    if kind != MSG_PACKET {
        return None;
    }
    let mut attributes = body.get(4..)?;
    let (mut id, mut copied, mut full) = (None, None, None);
    while let Some((kind, value, rest)) = next_attribute(attributes) {
        let number = value.first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
        match kind {
            ATTRIBUTE_PACKET_HEADER => id = number,
            ATTRIBUTE_PAYLOAD => copied = u32::try_from(value.len()).ok(),
            ATTRIBUTE_FULL_LENGTH => full = number,
            _ => {}
        }
        attributes = rest;
    }
    Some(Packet { id: id?, bytes: full.or(copied)? })
}

/// Returns the kind and value of the first attribute, and the bytes that follow it.
fn next_attribute(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    /// Flags that share the number with the kind.
    const KIND: u16 = 0x3fff;
    let length = usize::from(u16::from_ne_bytes(*bytes.first_chunk()?));
    let kind = u16::from_ne_bytes(*bytes.get(2..)?.first_chunk()?) & KIND;
    let value = bytes.get(4..length)?;
    let rest = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((kind, value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet_message(payload_bytes: usize, full: Option<u32>) -> Vec<u8> {
        let mut message = Message::default();
        message.begin(MSG_PACKET, 0, 1);
        message.attribute(ATTRIBUTE_PACKET_HEADER, &[0, 0, 0, 7, 8, 0, 2]);
        if let Some(full) = full {
            message.attribute(ATTRIBUTE_FULL_LENGTH, &full.to_be_bytes());
        }
        message.attribute(ATTRIBUTE_PAYLOAD, &vec![0; payload_bytes]);
        message.end().to_vec()
    }

    #[test]
    fn a_packet_is_as_long_as_it_was_and_not_as_was_copied() {
        let message = packet_message(40, Some(65_000));
        assert_eq!(packet_in(&message), Some(Packet { id: 7, bytes: 65_000 }));
        let message = packet_message(28, None);
        assert_eq!(packet_in(&message), Some(Packet { id: 7, bytes: 28 }));
    }

    #[test]
    fn what_is_cut_short_is_no_packet() {
        let message = packet_message(40, Some(65_000));
        for length in 0..message.len() {
            assert_eq!(packet_in(&message[..length]), None);
        }
    }

    #[test]
    fn a_verdict_is_these_bytes() {
        let mut message = Message::default();
        message.begin(MSG_VERDICT_BATCH, NLM_F_REQUEST, 2);
        message.attribute(ATTRIBUTE_VERDICT_HEADER, &[0, 0, 0, 1, 0, 0, 0, 9]);
        let mut expected = vec![32, 0, 0, 0, 3, 3, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
        expected.extend([12, 0, 2, 0, 0, 0, 0, 1, 0, 0, 0, 9]);
        assert_eq!(message.end(), expected);
    }

    #[test]
    fn drops_are_in_the_row_of_the_queue() {
        let table = "    1  4242     0 2    40     3     4       17  1\n\
                     \x20   2  4243     0 2    40     0     0        0  1\n";
        assert_eq!(dropped_in(table, 1), 7);
        assert_eq!(dropped_in(table, 2), 0);
        assert_eq!(dropped_in("", 1), 0);
    }
}
