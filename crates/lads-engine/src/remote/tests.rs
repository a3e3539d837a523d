//! Clients and a server in one process, over loopback.

pub(in crate::remote) mod access;
mod by_hand;
mod coherent;
mod gathered;
mod limits;
pub(in crate::remote) mod metered;
mod middle;
mod reading;
mod resting;
mod resumed;
pub(in crate::remote) mod staged;
mod strange;

use super::*;
use crate::stop::StopFlag;
use by_hand::stranger;
use lads_core::remote::message::{FRAME_BYTES, LockKind, OpenMode};
use std::net::Ipv4Addr;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

const READ_WRITE: OpenMode = OpenMode { reads: true, writes: true, creates: false, is_new: false };
pub(in crate::remote) const CREATE: OpenMode = OpenMode { creates: true, ..READ_WRITE };
pub(in crate::remote) const GROUP: [u8; 16] = [7; 16];
pub(in crate::remote) const MIB: usize = FRAME_BYTES as usize;
const EACCES: i32 = 13;
const ENOENT: i32 = 2;
const EIO: i32 = 5;
const EEXIST: i32 = 17;
const EINVAL: i32 = 22;

/// A server, and the directory that it shows.
pub(in crate::remote) struct Place {
    directory: tempfile::TempDir,
    at: String,
    token: Token,
    stop: StopFlag,
    server: Option<JoinHandle<()>>,
}

impl Place {
    pub(in crate::remote) fn new() -> Self {
        Self::with_layout("auto")
    }

    fn with_layout(layout: &str) -> Self {
        Self::with(layout, |_| {})
    }

    fn with(layout: &str, change: impl FnOnce(&mut FileServer)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("root");
        std::fs::create_dir(&root).unwrap();
        let path = directory.path().join("token");
        make_token(&path).unwrap();
        let token = read_token(&path).unwrap();
        let config = ServerConfig {
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            root,
            token,
            sessions_max: 4,
            buffers_bytes: 16 << 20,
            layout: layout.to_owned(),
        };
        let mut server = FileServer::open(&config).unwrap();
        change(&mut server);
        let (at, stop) = (server.address().to_string(), StopFlag::new());
        let stopped = stop.clone();
        let server = std::thread::spawn(move || server.run(&stopped, &|_| {}).unwrap());
        Self { directory, at, token, stop, server: Some(server) }
    }

    pub(in crate::remote) fn client(&self) -> Client {
        Client::connect(&self.at, &self.token, &ClientOptions::default()).unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("root").join(name)
    }

    pub(in crate::remote) fn bytes(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.stop.set("the test is over");
        let _ = self.server.take().unwrap().join();
    }
}

pub(in crate::remote) fn some_bytes(count: usize) -> Vec<u8> {
    (0..count).map(|index| u8::try_from(index * 31 % 251).unwrap()).collect()
}

fn read(file: &FileHandle, position: u64, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    let got = file.read(position, &mut [&mut bytes]).unwrap();
    bytes.truncate(usize::try_from(got).unwrap());
    bytes
}

/// Every `period` bytes, `length` of them.
pub(in crate::remote) fn every(length: u64, period: i64) -> Vec<u8> {
    let mut tree = vec![1];
    tree.extend(0i64.to_le_bytes());
    tree.extend(period.to_le_bytes());
    tree.push(0);
    tree.extend(length.to_le_bytes());
    tree
}

#[test]
fn what_is_written_is_there_and_is_read_back() {
    let place = Place::new();
    let client = place.client();
    let file = client.open(b"/new", CREATE, GROUP, false).unwrap();
    let bytes = some_bytes(5 * MIB + 17);
    let (head, tail) = bytes.split_at(3 * MIB + 5);
    file.write(3, &[head, tail]).unwrap();
    assert_eq!(read(&file, 3, bytes.len() + 100), bytes, "up to the end of the file");
    assert_eq!(file.size().unwrap(), bytes.len() as u64 + 3);
    file.close(false).unwrap();
    assert_eq!(place.bytes("new")[3..], bytes);
}

#[test]
fn many_small_writes_travel_together() {
    let place = Place::new();
    let client = place.client();
    let file = client.open(b"new", CREATE, GROUP, false).unwrap();
    let bytes = some_bytes(3 * MIB);
    for (index, piece) in bytes.chunks(1000).enumerate() {
        file.write(index as u64 * 1000, &[piece]).unwrap();
    }
    file.sync().unwrap();
    assert_eq!(place.bytes("new"), bytes);
}

#[test]
fn the_server_scatters_over_the_view_and_its_osts() {
    let place = Place::with_layout("synthetic:osts=4,stripe_size=64K");
    let client = place.client();
    let file = client.open(b"new", CREATE, GROUP, false).unwrap();
    let bytes = some_bytes(2 * MIB);
    file.set_view(100, &every(1000, 3000)).unwrap();
    file.write(0, &[&bytes]).unwrap();
    assert_eq!(read(&file, 500, 10_000), bytes[500..10_500]);
    file.flush().unwrap();
    let there = place.bytes("new");
    for (index, piece) in bytes.chunks(1000).enumerate() {
        assert_eq!(&there[100 + index * 3000..][..piece.len()], piece);
    }
    assert!(there[1100..3100].iter().all(|&byte| byte == 0), "between the runs");
    // Behind the last byte that is there: 100 + 2,097 * 3,000 + 152 bytes.
    assert_eq!(file.end().unwrap(), 2 * MIB as u64);
}

#[test]
fn later_writes_win() {
    let place = Place::new();
    let client = place.client();
    let file = client.open(b"new", CREATE, GROUP, false).unwrap();
    for round in 0..50u8 {
        file.write(u64::from(round % 7), &[&vec![round; 100_000]]).unwrap();
        file.set_view(0, &every(1, 1)).unwrap();
    }
    file.sync().unwrap();
    let there = place.bytes("new");
    assert_eq!(there[6..100_000], [49; 99_994][..], "49 is 7 * 7");
}

#[test]
fn errors_have_their_numbers() {
    let place = Place::new();
    let client = place.client();
    let errno = |path: &[u8], mode| client.open(path, mode, GROUP, false).unwrap_err().errno;
    assert_eq!(errno(b"none", READ_WRITE), ENOENT);
    assert_eq!(errno(b"none/new", CREATE), ENOENT);
    assert_eq!(errno(b"a/../../b", CREATE), EINVAL);
    std::fs::write(place.path("there"), b"x").unwrap();
    assert_eq!(errno(b"there", OpenMode { is_new: true, ..CREATE }), EEXIST);
    assert_eq!(client.delete(b"none").unwrap_err().errno, ENOENT);
    client.delete(b"there").unwrap();
    assert!(!place.path("there").exists());
}

#[test]
fn links_are_not_followed() {
    let place = Place::new();
    let outside = place.directory.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("secret"), b"x").unwrap();
    symlink(&outside, place.path("directory")).unwrap();
    symlink(outside.join("secret"), place.path("file")).unwrap();
    let client = place.client();
    for path in [&b"directory/secret"[..], b"file", b"directory/new"] {
        client.open(path, CREATE, GROUP, false).unwrap_err();
        client.open(path, READ_WRITE, GROUP, true).unwrap().sync().unwrap_err();
    }
    client.delete(b"directory/secret").unwrap_err();
    assert!(outside.join("secret").exists() && !outside.join("new").exists());
}

#[test]
fn a_deferred_open_fails_with_the_next_call() {
    let place = Place::new();
    let client = place.client();
    let file = client.open(b"none", READ_WRITE, GROUP, true).unwrap();
    let _ = file.write(0, &[b"x"]);
    let error = file.sync().unwrap_err();
    assert_eq!(error.errno, ENOENT);
    assert!(error.text.contains("none"), "{error}");
}

#[test]
fn the_error_of_a_deferred_close_comes_at_the_end() {
    let place = Place::new();
    let client = place.client();
    std::fs::write(place.path("there"), b"x").unwrap();
    let only_read = OpenMode { writes: false, ..READ_WRITE };
    let file = client.open(b"there", only_read, GROUP, false).unwrap();
    file.write(0, &[b"y"]).unwrap();
    file.close(true).unwrap();
    client.finish().unwrap_err();
    client.finish().unwrap();
    let file = client.open(b"there", READ_WRITE, GROUP, false).unwrap();
    file.write(0, &[b"z"]).unwrap();
    file.close(true).unwrap();
    client.finish().unwrap();
    assert_eq!(place.bytes("there"), b"z");
}

#[test]
fn the_error_of_a_deferred_open_comes_at_the_end() {
    let place = Place::new();
    let client = place.client();
    let _file = client.open(b"none", READ_WRITE, GROUP, true).unwrap();
    assert_eq!(client.finish().unwrap_err().errno, ENOENT);
    client.finish().unwrap();
}

#[test]
fn a_failed_write_is_told_once() {
    let place = Place::new();
    let client = place.client();
    std::fs::write(place.path("there"), b"x").unwrap();
    let only_read = OpenMode { writes: false, ..READ_WRITE };
    let file = client.open(b"there", only_read, GROUP, false).unwrap();
    file.write(0, &[b"y"]).unwrap();
    file.flush().unwrap_err();
    file.flush().unwrap();
    assert_eq!(place.bytes("there"), b"x");
}

#[test]
fn a_fence_waits_for_all_files_and_leaves_their_errors() {
    let place = Place::new();
    let (client, other) = (place.client(), place.client());
    std::fs::write(place.path("there"), b"x").unwrap();
    let only_read = OpenMode { writes: false, ..READ_WRITE };
    let failed = client.open(b"there", only_read, GROUP, false).unwrap();
    failed.write(0, &[b"y"]).unwrap();
    let bytes = some_bytes(2 * MIB + 17);
    let deferred = client.open(b"deferred", CREATE, GROUP, true).unwrap();
    let closed = client.open(b"closed", CREATE, GROUP, true).unwrap();
    deferred.write(0, &[&bytes]).unwrap();
    closed.write(0, &[&bytes]).unwrap();
    closed.close(true).unwrap();
    client.fence();
    for name in [&b"deferred"[..], b"closed"] {
        let file = other.open(name, READ_WRITE, GROUP, false).unwrap();
        assert_eq!(read(&file, 0, bytes.len()), bytes);
    }
    failed.write(0, &[b"z"]).unwrap_err();
}

#[test]
fn clients_of_a_group_share_a_pointer() {
    let place = Place::new();
    let clients = [place.client(), place.client()];
    let open = |client: &Client| client.open(b"new", CREATE, GROUP, false).unwrap();
    let files = [open(&clients[0]), open(&clients[1])];
    assert_eq!(files[0].add_shared(10).unwrap(), 0);
    assert_eq!(files[1].add_shared(5).unwrap(), 10);
    files[0].set_shared(3).unwrap();
    assert_eq!(files[1].add_shared(0).unwrap(), 3);
    for beyond in [i64::MAX as u64 + 1, u64::MAX] {
        assert_eq!(files[0].set_shared(beyond).unwrap_err().errno, EINVAL);
    }
    files[0].set_shared(i64::MAX as u64).unwrap();
    assert_eq!(files[1].add_shared(0).unwrap(), i64::MAX as u64);
}

#[test]
fn lengths_are_set() {
    let place = Place::new();
    let client = place.client();
    let file = client.open(b"new", CREATE, GROUP, false).unwrap();
    file.write(0, &[&some_bytes(100)]).unwrap();
    file.set_size(10).unwrap();
    assert_eq!(place.bytes("new").len(), 10);
    file.preallocate(0).unwrap();
    assert_eq!(file.size().unwrap(), 10);
    file.preallocate(4096).unwrap();
    assert_eq!(file.size().unwrap(), 4096);
    assert_eq!(file.set_size(u64::MAX).unwrap_err().errno, EINVAL);
    assert_eq!(place.bytes("new")[..10], some_bytes(10));
}

#[test]
fn a_client_without_the_token_is_turned_away() {
    let place = Place::new();
    let other = place.directory.path().join("other");
    make_token(&other).unwrap();
    let token = read_token(&other).unwrap();
    let error = Client::connect(&place.at, &token, &ClientOptions::default()).unwrap_err();
    let expected = format!("{} has another token: copy the token file of the server", place.at);
    assert!(error.text.contains(&expected), "{error}");
    assert_eq!(error.errno, EACCES);
}

#[test]
fn there_are_no_more_clients_than_may_be() {
    let place = Place::new();
    let clients: Vec<_> = (0..4).map(|_| place.client()).collect();
    let files = clients.iter().map(|client| client.open(b"new", CREATE, GROUP, false).unwrap());
    let files: Vec<_> = files.collect();
    let one_more = Client::connect(&place.at, &place.token, &ClientOptions::default());
    let used = one_more.and_then(|client| client.open(b"new", CREATE, GROUP, false));
    assert_eq!(used.unwrap_err().errno, EIO);
    drop((files, clients));
}

#[test]
fn when_the_server_is_gone_every_call_fails_and_none_waits() {
    let place = Place::new();
    let client = place.client();
    let file = client.open(b"new", CREATE, GROUP, false).unwrap();
    file.write(0, &[&some_bytes(10)]).unwrap();
    // As if the line were cut.
    client.cut();
    let bytes = some_bytes(MIB);
    while file.write(0, &[&bytes]).is_ok() {}
    assert_eq!(file.sync().unwrap_err().errno, EIO);
    assert_eq!(file.read(0, &mut [&mut [0; 10]]).unwrap_err().errno, EIO);
    assert!(client.is_lost());
}

/// A message in a packet, as a client sends it.
fn packet(message: &impl lads_core::message::wire::Wire) -> Vec<u8> {
    let mut bytes = Vec::new();
    lads_core::remote::message::encode(message, &mut bytes);
    let count = u32::try_from(bytes.len()).unwrap();
    let channel = lads_core::packet::Channel::Messages;
    let head = lads_core::packet::Packet { channel, bytes: count }.head();
    [head.as_slice(), &bytes].concat()
}

#[test]
fn a_client_that_breaks_the_protocol_is_cut_off_and_others_go_on() {
    use lads_core::remote::message::{Call, FileNumber, Request, ToServer, VERSION, ViewNumber};
    use std::io::{Read, Write};
    let place = Place::new();
    let client = place.client();
    let file = client.open(b"new", CREATE, GROUP, false).unwrap();
    let request =
        |number, call| packet(&ToServer::Request(Request { number, frames_before: 0, call }));
    let view = ViewNumber(9);
    let mode = READ_WRITE;
    let (file_number, path) = (FileNumber(1), b"new".to_vec());
    let open = Call::Open { file: file_number, path, mode, group: GROUP };
    let set = Call::View { view, file: FileNumber(5), displacement: 0, filetype: vec![] };
    let long = Call::Read { view, position: 0, length: u32::MAX };
    let mut ungranted = Vec::new();
    let row = lads_core::frame::Row {
        block: lads_core::units::Block {
            entry: lads_core::units::EntryId(9),
            offset: 0,
            length: u32::MAX,
        },
        is_whole: false,
        checksum: 0,
    };
    let bound = lads_core::frame::Bound {
        sink_ost: lads_core::units::OstId(7),
        is_last_grant: false,
        has_only_sums: false,
    };
    lads_core::frame::put_head(&[row], 0, bound, &mut ungranted);
    let stream = lads_core::packet::Channel::Stream(lads_core::units::StreamId(0));
    let count = u32::try_from(ungranted.len()).unwrap();
    let head = lads_core::packet::Packet { channel: stream, bytes: count }.head();
    let lies = [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        request(1, Call::Size { file: file_number }),
        request(0, Call::Size { file: file_number }),
        request(0, set),
        request(0, long),
        [request(0, open.clone()), request(1, open.clone())].concat(),
        [request(0, open), request(1, Call::Unlock { file: file_number })].concat(),
        [head.as_slice(), &ungranted].concat(),
        packet(&ToServer::Hello { version: 99, name: String::new() }),
    ];
    for (index, lie) in lies.iter().enumerate() {
        // The server replies to the greeting. Frames that come before are not even looked at. The
        // place of one that was cut off may not be free yet.
        let mut stranger = loop {
            let mut stranger = stranger(&place);
            let hello = packet(&ToServer::Hello { version: VERSION, name: String::new() });
            if stranger.write_all(&hello).is_ok() && stranger.read_exact(&mut [0]).is_ok() {
                break stranger;
            }
        };
        stranger.write_all(lie).unwrap();
        // What the server said before, and then the end.
        let mut said = Vec::new();
        let ended = stranger.read_to_end(&mut said);
        assert!(ended.is_ok() && said.len() < 1000, "lie {index}: {ended:?}");
    }
    file.write(0, &[b"still here"]).unwrap();
    file.sync().unwrap();
    assert_eq!(place.bytes("new"), b"still here");
}

#[test]
fn a_view_that_is_none_is_refused_and_changes_nothing() {
    let place = Place::new();
    let client = place.client();
    let file = client.open(b"new", CREATE, GROUP, false).unwrap();
    assert_eq!(file.set_view(0, &[200, 1, 2]).unwrap_err().errno, EINVAL);
    file.write(0, &[b"x"]).unwrap();
    file.sync().unwrap();
    assert_eq!(place.bytes("new"), b"x");
}

/// The largest filetype set anew ended the connection: for a moment, the server had both.
#[test]
fn a_large_view_is_set_again_and_again() {
    let place = Place::new();
    let client = place.client();
    let file = client.open(b"new", CREATE, GROUP, false).unwrap();
    let parts = lads_core::limits::VIEW_PARTS_MAX;
    // An indexed datatype: every other byte.
    let mut tree = vec![3];
    tree.extend(u32::try_from(parts).unwrap().to_le_bytes());
    for index in 0..parts as u64 {
        tree.extend([1, 2 * index].map(u64::to_le_bytes).concat());
    }
    tree.extend([&[0][..], &1u64.to_le_bytes()].concat());
    for round in 1..4 {
        file.set_view(0, &tree).unwrap();
        file.write(0, &[&[round; 1000]]).unwrap();
    }
    file.sync().unwrap();
    assert!(place.bytes("new").iter().step_by(2).all(|&byte| byte == 3));
}

/// Two clients write the same bytes in many frames, and read them.
#[test]
fn what_is_locked_is_never_mixed() {
    const BYTES: usize = 3 * MIB + 5;
    let place = Place::with_layout("synthetic:osts=4,stripe_size=64K");
    let rounds = |value: u8| {
        let client = place.client();
        // Two names of one file.
        let file = client.open(b"new", CREATE, [value; 16], false).unwrap();
        for round in 0..20 {
            file.lock(LockKind::Exclusive).unwrap();
            file.write(7, &[&vec![value + round; BYTES]]).unwrap();
            file.unlock();
            file.lock(LockKind::Shared).unwrap();
            let there = read(&file, 7, BYTES);
            file.unlock();
            assert!(there.len() == BYTES && there.iter().all(|&byte| byte == there[0]));
        }
        file.close(false).unwrap();
    };
    std::thread::scope(|scope| {
        let threads = [0, 50, 100].map(|value| scope.spawn(move || rounds(value)));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// A client that waits for a lock goes on when the one that has it is gone, and what that one had
/// begun is written.
#[test]
fn a_lock_goes_on_when_its_client_is_gone() {
    let place = Place::with_layout("synthetic:osts=1,latency_ms=50");
    let (dies, waits) = (place.client(), place.client());
    let held = dies.open(b"new", CREATE, GROUP, false).unwrap();
    let file = waits.open(b"new", CREATE, GROUP, false).unwrap();
    held.lock(LockKind::Exclusive).unwrap();
    held.write(0, &[&vec![1; 8 * MIB]]).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| file.lock(LockKind::Exclusive));
        while place.bytes("new").is_empty() {
            std::thread::yield_now();
        }
        dies.cut();
        waiting.join().unwrap().unwrap();
    });
    let size = file.size().unwrap();
    let there = read(&file, 0, 8 * MIB);
    assert_eq!(there.len() as u64, size, "nothing comes later");
    file.write(0, &[&vec![2; 8 * MIB]]).unwrap();
    file.unlock();
    assert!(read(&file, 0, 8 * MIB).iter().all(|&byte| byte == 2));
}

/// A client that closes the file gives its lock back, too; and what it does beside is not held up.
#[test]
fn a_lock_that_is_waited_for_holds_up_nothing_else() {
    let place = Place::new();
    let clients = [place.client(), place.client()];
    let [held, file] =
        [0, 1].map(|it: usize| clients[it].open(b"new", CREATE, GROUP, false).unwrap());
    let other = clients[1].open(b"other", CREATE, GROUP, false).unwrap();
    held.lock(LockKind::Shared).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| file.lock(LockKind::Exclusive));
        for _ in 0..10 {
            other.write(0, &[b"x"]).unwrap();
            other.lock(LockKind::Exclusive).unwrap();
            other.unlock();
            other.sync().unwrap();
        }
        held.close(false).unwrap();
        waiting.join().unwrap().unwrap();
    });
}

/// It uses another server meanwhile, where the bytes go.
#[test]
fn a_client_that_holds_up_others_and_says_that_it_lives_is_waited_for() {
    // It says so every two seconds at least.
    let silence_max = Duration::from_secs(6);
    let place = Place::with("auto", |server| server.silence_max = silence_max);
    let (busy, waits) = (place.client(), place.client());
    let held = busy.open(b"new", CREATE, GROUP, false).unwrap();
    let file = waits.open(b"new", CREATE, GROUP, false).unwrap();
    held.lock(LockKind::Exclusive).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| file.lock(LockKind::Exclusive));
        let presence = held.presence();
        std::thread::sleep(silence_max * 2);
        assert!(!waiting.is_finished());
        held.unlock();
        drop(presence);
        waiting.join().unwrap().unwrap();
    });
    held.sync().unwrap();
}

/// A client that is stopped, as by a debugger, while it has a lock: its connection stays open.
#[test]
fn a_client_that_holds_up_others_and_is_silent_is_cut_off() {
    let silence_max = Duration::from_millis(300);
    let place = Place::with("auto", |server| server.silence_max = silence_max);
    let (silent, waits) = (place.client(), place.client());
    let held = silent.open(b"new", CREATE, GROUP, false).unwrap();
    let file = waits.open(b"new", CREATE, GROUP, false).unwrap();
    held.lock(LockKind::Exclusive).unwrap();
    file.lock(LockKind::Exclusive).unwrap();
    assert_eq!(held.sync().unwrap_err().errno, EIO);
    file.write(0, &[b"x"]).unwrap();
    file.unlock();
    file.sync().unwrap();
    assert_eq!(place.bytes("new"), b"x");
}
