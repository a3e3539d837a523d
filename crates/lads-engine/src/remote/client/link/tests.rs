//! Local disks that fail, or on which data is made durable.

use super::super::cache::Durability;
use super::*;
use crate::remote::Client;
use crate::remote::tests::access::once;
use crate::remote::tests::metered::Metered;
use crate::remote::tests::staged::{FRAMES_OF_MIB, options};
use crate::remote::tests::{CREATE, GROUP, MIB, Place, some_bytes};
use crate::slots::SlotFile;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fdatasync, ftruncate, memfd_create};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// A client that may send no frame at first, and whose local disk the test has changed.
fn client(place: &Place, options: &ClientOptions, change: impl FnOnce(&mut Cache, u32)) -> Metered {
    let mut link = Link::new(Server::Here, "it".to_owned(), options).unwrap();
    let cache = &mut link.stage.as_mut().unwrap().cache;
    change(cache, buffer_bytes(options.buffers_bytes));
    Metered::new(place.connection(), |it| Client::begin_with(link, false, once(it)))
}

/// On a busy machine, the error of a failed write replaced the reason of the loss in 10 % of all
/// runs, if the server sent a record that is not genuine and closed the connection.
#[test]
fn a_changed_record_is_the_reason_of_a_loss_even_if_a_write_failed_first() {
    struct Changed;
    impl Read for Changed {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::new(io::ErrorKind::InvalidData, "changed"))
        }
    }
    let options = ClientOptions::default();
    let link = Arc::new(Link::new(Server::Here, "it".to_owned(), &options).unwrap());
    link.break_off("broken pipe");
    let heard = Link::listen(&Arc::downgrade(&link), &mut Changed);
    assert_eq!(heard.as_deref(), Some("changed"));
    assert_eq!(link.lock().broken.as_deref(), Some("changed"));
}

/// Files that were made durable, in this order.
static SYNCED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

const RECORDED: Durability = Durability {
    sync: |file| {
        record(file);
        fdatasync(file)
    },
    sync_names: |directory| {
        record(directory.as_fd());
        Ok(())
    },
};

fn record(file: BorrowedFd<'_>) {
    let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
    lock(&SYNCED).push(path);
}

/// Returns the number of times that the bytes and the list of a stage were made durable. The
/// directory is made durable first, and each frame before its record.
fn syncs(place: &Place) -> (usize, usize) {
    let directory = place.stage();
    let synced = lock(&SYNCED);
    let mut synced = synced.iter().filter(|path| path.starts_with(&directory));
    assert_eq!(synced.next(), Some(&directory));
    let synced: Vec<_> = synced.map(|path| path.extension().unwrap().to_str().unwrap()).collect();
    let count = |of| synced.iter().filter(|it| **it == of).count();
    for (index, file) in synced.iter().enumerate() {
        assert!(*file != "bytes" || synced.get(index + 1) == Some(&"rfs"), "{synced:?}");
    }
    assert_eq!(count("bytes") + count("rfs"), synced.len());
    (count("bytes"), count("rfs"))
}

fn synced_options(place: &Place, is_synced: bool) -> ClientOptions {
    let mut options = options(&place.stage(), 64 * MIB);
    options.stage.as_mut().unwrap().settings.is_synced = is_synced;
    options
}

#[test]
fn staged_data_is_durable_at_once_if_the_user_wants_that() {
    let place = Place::new();
    let client = client(&place, &synced_options(&place, true), |cache, slot_bytes| {
        cache.remove();
        *cache = Cache::make(&place.stage(), Server::Here, slot_bytes, RECORDED).unwrap();
    });
    let staged = || usize::try_from(client.staged().in_foreground).unwrap() / MIB;
    let file = client.open(b"new", CREATE, GROUP, false).unwrap();
    file.write(0, &[&some_bytes(20 * MIB)]).unwrap();
    // One sync is enough for the frames of a MiB.
    let together = staged();
    assert!(together > 0);
    assert_eq!(syncs(&place), (together, together));
    client.allow(20 * FRAMES_OF_MIB);
    file.sync().unwrap();
    // Frames that are written must not be sent again after a crash, over data that is written
    // later.
    assert_eq!(syncs(&place), (together, together + 1));
    file.write(0, &[&some_bytes(9 * MIB)]).unwrap();
    let all = staged();
    assert!(all > together);
    assert_eq!(syncs(&place), (all, all + 1));
    client.allow(9 * FRAMES_OF_MIB);
    // Before a slot has other bytes, the list records that its frame is written.
    file.flush().unwrap();
    file.write(0, &[&some_bytes(8 * MIB + 1)]).unwrap();
    let (of_bytes, of_list) = syncs(&place);
    assert!(of_bytes >= all && of_list - of_bytes == 2, "{of_bytes} {of_list}");
    client.allow_all();
    file.sync().unwrap();
}

/// The device takes all bytes, and makes none durable.
#[test]
fn a_disk_that_makes_nothing_durable_is_used_only_if_the_user_does_not_want_that() {
    for is_synced in [false, true] {
        let place = Place::new();
        let client = client(&place, &synced_options(&place, is_synced), |cache, slot_bytes| {
            let device = File::options().read(true).write(true).open("/dev/zero").unwrap();
            assert_eq!(fdatasync(&device), Err(Errno::INVAL));
            cache.bytes = SlotFile::new(device.into(), slot_bytes);
        });
        let file = client.open(b"new", CREATE, GROUP, false).unwrap();
        let bytes = some_bytes(20 * MIB);
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| file.write(0, &[&bytes]));
            if is_synced {
                client.allow_all();
            }
            writing.join().unwrap().unwrap();
        });
        assert_eq!(client.staged().in_foreground > 0, !is_synced);
        if is_synced {
            file.sync().unwrap();
            assert!(place.bytes("new") == bytes);
        }
    }
}

/// A file that takes this number of bytes.
fn full_after(bytes: usize) -> OwnedFd {
    let file = memfd_create("full", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, bytes as u64).unwrap();
    fcntl_add_seals(&file, SealFlags::GROW).unwrap();
    file
}

#[test]
fn data_that_a_full_disk_does_not_take_stays_in_memory() {
    let place = Place::new();
    let client = client(&place, &options(&place.stage(), 64 * MIB), |cache, slot_bytes| {
        cache.bytes = SlotFile::new(full_after(4 * MIB), slot_bytes);
    });
    let file = client.open(b"new", CREATE, GROUP, false).unwrap();
    let bytes = some_bytes(30 * MIB);
    file.write(0, &[&bytes[..12 * MIB]]).unwrap();
    let staged = client.staged();
    assert_eq!(staged.in_foreground, 4 << 20);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| file.write(12 << 20, &[&bytes[12 * MIB..]]));
        client.allow_all();
        writing.join().unwrap().unwrap();
    });
    file.sync().unwrap();
    assert!(place.bytes("new") == bytes);
    assert_eq!(client.staged(), staged);
}

/// The thread that sends found the buffer in use when it was due, and did not look again.
#[test]
fn a_buffer_that_is_in_use_when_it_is_due_is_sent_later() {
    let place = Place::new();
    let client = place.client();
    let file = client.open(b"new", CREATE, GROUP, false).unwrap();
    let tail = client.link.tails().pop().unwrap();
    let due = || client.link.event(|it, now| it.next_timeout(now));
    loop {
        file.write(0, &[b"short"]).unwrap();
        let tail = lock(&tail);
        if tail.is_filling() {
            let first = due();
            while due() == first {
                std::thread::yield_now();
            }
            break;
        }
    }
    while place.bytes("new") != b"short" {
        std::thread::yield_now();
    }
}
