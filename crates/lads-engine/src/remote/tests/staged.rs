//! What goes to the local disk, and what becomes of it.

use super::metered::Metered;
use super::*;
use crate::remote::client::start_here;
use lads_core::remote::name::Server;
use lads_core::view::Datatype;
use std::path::Path;
use std::time::{Duration, Instant};

/// Memory for 64 buffers of 128 KiB.
const MEMORY_BYTES: usize = 8 * MIB;

/// Number of frames in which a client with this memory sends a MiB.
pub(in crate::remote) const FRAMES_OF_MIB: u32 = 8;

pub(in crate::remote) fn options(directory: &Path, bytes_max: usize) -> ClientOptions {
    let settings = StageSettings {
        bytes_max: bytes_max as u64,
        in_foreground: true,
        in_background: false,
        is_synced: false,
        told: Told::default(),
    };
    let stage = StageOptions { directory: directory.to_owned(), settings };
    let buffers_bytes = MEMORY_BYTES as u64;
    ClientOptions { buffers_bytes, stage: Some(stage), ..ClientOptions::default() }
}

impl Place {
    pub(in crate::remote) fn stage(&self) -> PathBuf {
        let path = self.directory.path().join("stage");
        let _ = std::fs::create_dir(&path);
        path
    }

    /// A client with a stage of 64 MiB, which may send no frame at first.
    fn staging(&self) -> Metered {
        self.metered_with(&options(&self.stage(), 64 * MIB))
    }

    fn staged_files(&self) -> Vec<PathBuf> {
        let files = std::fs::read_dir(self.stage()).unwrap();
        files.map(|file| file.unwrap().path()).collect()
    }
}

/// The list that an error names.
pub(super) fn named_list(error: &RemoteError) -> PathBuf {
    let (_, path) = error.text.split_once("lads rfs replay ").expect("it names the list");
    PathBuf::from(path)
}

/// What is left, as soon as the last thread of the connection is gone.
pub(super) fn opened(list: &Path) -> Replay {
    loop {
        match Replay::open(list) {
            Ok(replay) => return replay,
            Err(error) => assert!(error.to_string().contains("is still running"), "{error}"),
        }
        std::thread::yield_now();
    }
}

#[test]
fn what_does_not_fit_into_memory_goes_to_the_disk_at_once() {
    let place = Place::new();
    let client = place.staging();
    let file = client.open(b"new", CREATE, GROUP, false).unwrap();
    let bytes = some_bytes(40 * MIB + 5);
    // It would wait for ever without a stage.
    file.write(1, &[&bytes]).unwrap();
    let staged = client.staged();
    assert!(staged.in_foreground >= 32 << 20 && staged.in_background == 0, "{staged:?}");
    assert_eq!(place.staged_files().len(), 2);
    client.allow_all();
    assert_eq!(read(&file, 30_000_001, 5000), bytes[30_000_000..30_005_000]);
    file.close(false).unwrap();
    assert!(place.bytes("new")[1..] == bytes);
    client.finish().unwrap();
    assert_eq!(place.staged_files().len(), 0, "nothing is left behind");
}

#[test]
fn what_was_sent_from_the_disk_leaves_room_there() {
    let place = Place::new();
    let client = place.metered_with(&options(&place.stage(), 16 * MIB));
    let file = client.open(b"new", CREATE, GROUP, false).unwrap();
    let bytes = some_bytes(20 * MIB);
    for round in 1..=3 {
        // It would wait for ever without room.
        file.write(0, &[&bytes]).unwrap();
        client.allow(20 * FRAMES_OF_MIB);
        file.sync().unwrap();
        assert!(client.staged().in_foreground >= round * (12 << 20));
    }
    file.close(false).unwrap();
    assert!(place.bytes("new") == bytes);
}

/// What is under way cannot be staged. The server takes half a millisecond for each frame, and half
/// of the buffers could be under way for 30 ms.
#[test]
fn no_more_is_under_way_than_keeps_the_server_busy() {
    let place = Place::new();
    let client = place.staging();
    client.allow_all();
    let file = client.open(b"new", CREATE, GROUP, false).unwrap();
    assert_eq!(client.under_way_max(), 32, "half of 64 buffers");
    // A machine that has much else to do may be slow a few times.
    let is_few = |round: u64| {
        file.write(round * (128 << 10), &[&[7; 128 << 10]]).unwrap();
        file.flush().unwrap();
        client.under_way_max() < 8
    };
    assert!((0..1000).any(is_few));
    client.finish().unwrap();
}

#[test]
fn a_stage_that_is_full_is_waited_for() {
    let place = Place::new();
    let client = place.metered_with(&options(&place.stage(), 4 * MIB));
    let file = client.open(b"new", CREATE, GROUP, false).unwrap();
    let bytes = some_bytes(20 * MIB);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| file.write(0, &[&bytes]));
        while client.staged().in_foreground < 4 << 20 {
            std::thread::yield_now();
        }
        client.allow_all();
        writing.join().unwrap().unwrap();
    });
    file.sync().unwrap();
    assert!(place.bytes("new") == bytes);
}

#[test]
fn a_place_that_cannot_be_used_is_named() {
    let place = Place::new();
    let options = options(Path::new("/proc/here"), 64 * MIB);
    let error = Client::connect(&place.at, &place.token, &options).unwrap_err();
    assert!(error.text.contains("/proc/here (rfs_cache_dir)"), "{error}");
}

#[test]
fn while_the_program_computes_room_is_made_for_its_next_output() {
    let place = Place::new();
    let mut options = options(&place.stage(), 64 * MIB);
    let stage = options.stage.as_mut().unwrap();
    stage.settings.in_background = true;
    stage.settings.told.interval = Some(Duration::from_millis(300));
    options.begun = Instant::now();
    let client = place.metered_with(&options);
    let file = client.open(b"new", CREATE, GROUP, false).unwrap();
    let bytes = some_bytes(MEMORY_BYTES);
    file.write(0, &[&bytes]).unwrap();
    // Nothing is sent, so all is needed; two buffers stay in memory.
    while client.staged().in_background < 6 << 20 {
        std::thread::yield_now();
    }
    file.write(MEMORY_BYTES as u64, &[&bytes[..6 * MIB]]).unwrap();
    assert_eq!(client.staged().in_foreground, 0);
    client.allow_all();
    file.sync().unwrap();
    assert!(place.bytes("new") == [&bytes[..], &bytes[..6 * MIB]].concat());
}

#[test]
fn a_file_that_is_being_closed_is_whole_when_it_is_opened_again() {
    let place = Place::new();
    let client = place.staging();
    let file = client.open(b"new", CREATE, GROUP, false).unwrap();
    let bytes = some_bytes(20 * MIB);
    file.write(0, &[&bytes]).unwrap();
    file.close(true).unwrap();
    // Another file is not waited for, and overtakes what is on the disk.
    let other = client.open(b"other", CREATE, GROUP, false).unwrap();
    other.write(0, &[b"first"]).unwrap();
    std::thread::scope(|scope| {
        let again = scope.spawn(|| {
            let again = client.open(b"/new", READ_WRITE, GROUP, false).unwrap();
            assert!(read(&again, 0, bytes.len()) == bytes);
        });
        while client.awaited() == 0 && !again.is_finished() {
            std::thread::yield_now();
        }
        client.allow_all();
        again.join().unwrap();
    });
    other.close(true).unwrap();
    client.finish().unwrap();
    assert_eq!(place.bytes("other"), b"first");
}

#[test]
fn later_writes_win_wherever_the_earlier_ones_wait() {
    let place = Place::new();
    let client = place.staging();
    let file = client.open(b"new", CREATE, GROUP, false).unwrap();
    for round in 0..30u8 {
        file.write(0, &[&vec![round; 2 * MIB]]).unwrap();
        // Another view of the same bytes.
        let mut filetype = Vec::new();
        Datatype::Bytes(u64::from(round) + 1).write(&mut filetype);
        file.set_view(0, &filetype).unwrap();
    }
    client.allow_all();
    file.sync().unwrap();
    assert!(place.bytes("new") == vec![29; 2 * MIB]);
}

#[test]
fn what_was_not_sent_when_the_connection_was_lost_can_be_sent_later() {
    let place = Place::new();
    // Its clock stands still: a piece that is not full stays in the buffer of the file.
    let begun = Instant::now() + Duration::from_secs(3600);
    let options = ClientOptions { begun, ..options(&place.stage(), 64 * MIB) };
    let client = place.metered_with(&options);
    let file = client.open(b"dir/../new", CREATE, GROUP, false);
    assert!(file.is_err(), "a name that leads out");
    let file = client.open(b"new", CREATE, GROUP, false).unwrap();
    let other = client.open(b"other", CREATE, GROUP, false).unwrap();
    other.write(0, &[&some_bytes(3 * MIB)]).unwrap();
    client.allow(3 * FRAMES_OF_MIB);
    other.sync().unwrap();
    let bytes = some_bytes(20 * MIB + 100);
    file.set_view(100, &every(1000, 3000)).unwrap();
    file.write(0, &[&bytes[..20 * MIB]]).unwrap();
    other.write(5, &[b"last"]).unwrap();
    client.cut();
    let error = loop {
        if let Err(error) = file.write(20 << 20, &[&bytes[20 * MIB..]]) {
            break error;
        }
    };
    assert!(error.text.contains("of unsent data are kept"), "{error}");
    let path = named_list(&error);
    drop((file, other, client));
    let error = Replay::open(&place.stage()).unwrap_err();
    assert!(error.to_string().contains("stage"), "{error}");

    let replay = opened(&path);
    assert_eq!(replay.server(), &Server::At(place.at.clone()));
    let (left, mut sent) = (replay.bytes(), 0);
    replay.send(&place.client(), |bytes| sent += bytes).unwrap();
    assert_eq!(sent, left);
    assert_eq!(place.staged_files().len(), 0);
    assert_eq!(place.bytes("other")[..9], [&some_bytes(5)[..], b"last"].concat());
    let there = place.bytes("new");
    for (index, piece) in bytes[..20 * MIB].chunks(1000).enumerate() {
        assert_eq!(&there[100 + index * 3000..][..piece.len()], piece);
    }
}

#[test]
fn what_does_not_fit_on_the_disk_is_lost_with_the_connection_and_nobody_waits() {
    let place = Place::new();
    let client = place.metered_with(&options(&place.stage(), 2 * MIB));
    let file = client.open(b"new", CREATE, GROUP, false).unwrap();
    let bytes = some_bytes(40 * MIB);
    let error = std::thread::scope(|scope| {
        // It waits for a buffer when the connection is lost.
        let writing = scope.spawn(|| file.write(0, &[&bytes]));
        while client.staged().in_foreground < 2 << 20 {
            std::thread::yield_now();
        }
        client.cut();
        writing.join().unwrap().unwrap_err()
    });
    assert!(error.text.contains("2.0 MiB of "), "{error}");
    assert_eq!(Replay::open(&named_list(&error)).map(|it| it.bytes()).ok(), None, "in use");
    drop((file, client));
}

/// Otherwise older bytes would come over newer ones.
#[test]
fn what_was_sent_is_not_sent_again() {
    let place = Place::new();
    let client = place.staging();
    let file = client.open(b"new", CREATE, GROUP, false).unwrap();
    file.write(0, &[&some_bytes(20 * MIB)]).unwrap();
    assert!(client.staged().in_foreground > 0);
    client.allow(20 * FRAMES_OF_MIB);
    file.sync().unwrap();
    file.write(0, &[b"newer"]).unwrap();
    client.cut();
    let path = named_list(&file.sync().unwrap_err());
    drop((file, client));
    assert_eq!(opened(&path).bytes(), 5);
}

/// In a directory that others can write to, a list may be one that they have made.
#[test]
fn a_list_of_another_user_is_not_believed() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let place = Place::new();
    let client = place.staging();
    let file = client.open(b"new", CREATE, GROUP, false).unwrap();
    file.write(0, &[b"mine"]).unwrap();
    client.cut();
    let path = named_list(&file.sync().unwrap_err());
    drop((file, client));
    drop(opened(&path));
    std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
    let error = Replay::open(&path).unwrap_err();
    assert!(error.to_string().contains("another user"), "{error}");
    let link = place.stage().join("link.rfs");
    symlink(&path, &link).unwrap();
    Replay::open(&link).unwrap_err();
}

/// Leaves 20 MiB of a file on the local disk. Returns the list.
fn leave(place: &Place) -> PathBuf {
    let client = place.staging();
    let file = client.open(b"new", CREATE, GROUP, false).unwrap();
    file.write(0, &[&some_bytes(20 * MIB)]).unwrap();
    client.cut();
    named_list(&file.sync().unwrap_err())
}

fn bytes_of(list: &Path) -> PathBuf {
    let mut name = list.to_owned().into_os_string();
    name.push(".bytes");
    name.into()
}

#[test]
fn bytes_that_are_not_those_of_the_list_are_not_sent() {
    let place = Place::new();
    let path = leave(&place);
    let replay = opened(&path);
    std::fs::write(bytes_of(&path), vec![1; 20 * MIB]).unwrap();
    let error = replay.send(&place.client(), |_| {}).unwrap_err();
    assert!(error.to_string().contains("20.0 MiB of 20.0 MiB"), "{error}");
    assert!(matches!(error, ReplayError::Damaged { .. }));
    assert_eq!(place.staged_files().len(), 2, "it is still there");
}

/// Another user may rename the directory, or its files.
#[test]
fn the_files_that_were_checked_are_those_that_are_sent_and_removed() {
    let place = Place::new();
    let replay = opened(&leave(&place));
    let moved = place.directory.path().join("moved");
    std::fs::rename(place.stage(), &moved).unwrap();
    for path in std::fs::read_dir(&moved).unwrap().map(|it| it.unwrap().path()) {
        std::fs::write(place.stage().join(path.file_name().unwrap()), b"of another user").unwrap();
    }
    replay.send(&place.client(), |_| {}).unwrap();
    assert!(place.bytes("new") == some_bytes(20 * MIB));
    assert_eq!((place.staged_files().len(), std::fs::read_dir(&moved).unwrap().count()), (2, 0));
}

/// The server would take them for the bytes of the program: they travel with a checksum of their
/// own.
#[test]
fn bytes_that_return_damaged_from_the_local_disk_are_not_sent() {
    let place = Place::new();
    let client = place.staging();
    let file = client.open(b"new", CREATE, GROUP, false).unwrap();
    file.write(0, &[&some_bytes(20 * MIB)]).unwrap();
    assert!(client.staged().in_foreground > 0);
    let files = place.staged_files();
    let staged = files.iter().find(|path| path.extension().unwrap() == "bytes").unwrap();
    let length = usize::try_from(std::fs::metadata(staged).unwrap().len()).unwrap();
    std::fs::write(staged, vec![1; length]).unwrap();
    client.allow_all();
    let error = file.sync().unwrap_err();
    assert!(error.text.contains("cannot read back staged data in "), "{error}");
    let there = place.bytes("new");
    assert!(some_bytes(20 * MIB).iter().zip(&there).all(|(own, it)| own == it || *it == 0));
}

#[test]
fn files_of_this_host_are_written_through_buffers_as_well() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new").into_os_string().into_encoded_bytes();
    let options = options(directory.path(), 64 * MIB);
    let begin = |it| Client::over(it, Server::Here, &options);
    let client = Metered::new(start_here(&path).unwrap(), begin);
    let file = client.open(&path, CREATE, GROUP, false).unwrap();
    let bytes = some_bytes(20 * MIB);
    file.write(0, &[&bytes]).unwrap();
    assert!(client.staged().in_foreground > 0);
    client.allow_all();
    file.close(true).unwrap();
    client.finish().unwrap();
    assert!(std::fs::read(directory.path().join("new")).unwrap() == bytes);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

/// The list went, although the server had not got the data.
#[test]
fn the_list_is_kept_until_all_frames_are_written() {
    let place = Place::new();
    let client = place.staging();
    let file = client.open(b"new", CREATE, GROUP, false).unwrap();
    file.flush().unwrap();
    file.write(0, &[&some_bytes(20 * MIB)]).unwrap();
    // Nothing was deferred, so that it does not wait.
    client.finish().unwrap();
    assert_eq!(place.staged_files().len(), 2);
    client.cut();
    let path = named_list(&file.sync().unwrap_err());
    drop((file, client));
    opened(&path).send(&place.client(), |_| {}).unwrap();
    assert!(place.bytes("new") == some_bytes(20 * MIB));
}
