//! Tests of `lads rfs replay`: nothing is removed that was not sent, and nothing is trusted that
//! another user may have put there.

use crate::faultfs::FaultFs;
use crate::world::{Ended, LADS, World, has, run};
use lads_core::remote::kept::{Kept, Record, begin, encode};
use lads_core::remote::message::{FileNumber, ViewNumber};
use lads_core::remote::name::Server;
use lads_core::staging::Slot;
use lads_core::view::Datatype;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use twox_hash::XxHash3_64;

/// Bytes of a frame, and of its slot.
const FRAME_BYTES: u32 = 64 << 10;
const FRAMES: u32 = 6;

/// A command that may not hang ends long before this, on any machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Files that a program has left on its local disk, for a file of this host: frames through two
/// views by turns. The data of the second view follows that of the first.
struct Left {
    list: PathBuf,
    target: PathBuf,
    /// The offsets of the records of the list.
    starts: Vec<usize>,
}

impl Left {
    fn new(world: &World, target: PathBuf) -> Self {
        let list = world.path("lads-of-test.rfs");
        let path = target.as_os_str().as_encoded_bytes();
        let mut filetype = Vec::new();
        Datatype::Bytes(u64::from(FRAME_BYTES)).write(&mut filetype);
        let view = |number: u32, displacement| Record::View {
            view: ViewNumber(number),
            file: FileNumber(1),
            path: path.to_vec(),
            displacement,
            filetype: filetype.clone(),
        };
        let second = u64::from(FRAMES / 2 * FRAME_BYTES);
        let mut records = vec![begin(Server::Here, FRAME_BYTES), view(0, 0), view(1, second)];
        records.extend((0..FRAMES).map(|index| Record::Kept(kept(index))));
        records.extend([Record::Gone { id: u64::from(FRAMES) + 1 }, Record::End]);
        let (mut bytes, mut starts) = (Vec::new(), Vec::new());
        for record in &records {
            starts.push(bytes.len());
            encode(record, &mut bytes);
        }
        fs::write(&list, bytes).unwrap();
        let left = Self { list, target, starts };
        fs::write(left.bytes(), (0..FRAMES).flat_map(frame).collect::<Vec<_>>()).unwrap();
        left
    }

    fn bytes(&self) -> PathBuf {
        let mut path = self.list.clone().into_os_string();
        path.push(".bytes");
        path.into()
    }

    fn files(&self) -> [Option<Vec<u8>>; 2] {
        [&self.list, &self.bytes()].map(|path| fs::read(path).ok())
    }

    fn replay(&self, options: &[&str]) -> Ended {
        run(replay(&self.list, options)).within(LIMIT)
    }

    /// Replays files of which something is damaged. Nothing may be removed.
    fn replay_damaged(&self, options: &[&str], expected: &[&str]) {
        let before = self.files();
        let ended = self.replay(options).expect(7);
        for words in expected {
            assert!(ended.stderr.contains(words), "{words:?} is missing: {ended:?}");
        }
        assert!(before.iter().all(Option::is_some) && self.files() == before, "{ended:?}");
    }

    /// Replays whole files.
    fn replay_whole(&self) {
        let ended = self.replay(&[]).expect(0);
        assert_eq!(self.files(), [None, None], "{ended:?}");
        assert!(fs::read(&self.target).unwrap() == all(), "{ended:?}");
    }
}

fn replay(list: &Path, options: &[&str]) -> Command {
    let mut command = Command::new(LADS);
    command.args(["rfs", "replay"]).args(options).arg(list);
    command
}

fn frame(index: u32) -> Vec<u8> {
    vec![u8::try_from(index + 1).unwrap(); FRAME_BYTES as usize]
}

fn kept(index: u32) -> Kept {
    Kept {
        id: index.into(),
        view: ViewNumber(index % 2),
        position: u64::from(index / 2 * FRAME_BYTES),
        length: FRAME_BYTES,
        slot: Slot(index),
        checksum: XxHash3_64::oneshot(&frame(index)),
    }
}

/// The file that the program wrote.
fn all() -> Vec<u8> {
    let of_view = |view| (0..FRAMES).filter(move |index| index % 2 == view);
    of_view(0).chain(of_view(1)).flat_map(frame).collect()
}

fn flip(path: &Path, offset: u64) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 4], offset).unwrap();
}

#[test]
fn data_of_two_views_is_sent_in_the_order_of_the_program() {
    let world = World::new();
    Left::new(&world, world.path("new")).replay_whole();
}

/// One flipped bit ended the reading of the list. What followed it was removed and never sent.
#[test]
fn a_damaged_or_truncated_list_is_kept_and_so_is_its_data() {
    let world = World::new();
    let left = Left::new(&world, world.path("new"));
    let whole = fs::read(&left.list).unwrap();
    let middles = left.starts.iter().map(|start| start + 16);
    for (record, offset) in middles.enumerate() {
        flip(&left.list, offset as u64);
        let expected = match record {
            0 => "it is unknown where its data belongs".to_owned(),
            _ => format!(
                "bytes of the list cannot be read, the first at offset {}",
                left.starts[record]
            ),
        };
        left.replay_damaged(&[], &[&expected, "nothing was sent"]);
        fs::write(&left.list, &whole).unwrap();
    }
    for length in [0, 5, 20, left.starts[4], left.starts[9], left.starts[10], whole.len() - 1] {
        fs::write(&left.list, &whole[..length]).unwrap();
        left.replay_damaged(&[], &["is damaged: ", "nothing was removed"]);
    }
    assert!(!left.target.exists(), "nothing is sent");
    fs::write(&left.list, &whole).unwrap();
    left.replay_whole();
}

#[test]
fn the_readable_data_of_a_damaged_list_is_sent_if_the_user_wants_that() {
    let world = World::new();
    let left = Left::new(&world, world.path("new"));
    let whole = fs::read(&left.list).unwrap();
    // The record of the third frame.
    flip(&left.list, left.starts[5] as u64 + 16);
    left.replay_damaged(&["--send-readable"], &["cannot be read", "The rest was sent"]);
    let mut expected = all();
    expected[FRAME_BYTES as usize..][..FRAME_BYTES as usize].fill(0);
    assert!(fs::read(&left.target).unwrap() == expected);
    fs::write(&left.list, &whole).unwrap();
    left.replay_whole();
}

#[test]
fn data_that_is_damaged_or_truncated_is_not_sent_and_everything_is_kept() {
    let world = World::new();
    let left = Left::new(&world, world.path("new"));
    let whole = fs::read(left.bytes()).unwrap();
    flip(&left.bytes(), u64::from(FRAME_BYTES) * 2 + 5);
    left.replay_damaged(&[], &["64.0 KiB of 384.0 KiB of data cannot be read", "checksum"]);
    let mut expected = all();
    expected[FRAME_BYTES as usize..][..FRAME_BYTES as usize].fill(0);
    assert!(fs::read(&left.target).unwrap() == expected, "the rest is sent");
    for length in [0, whole.len() - 1] {
        fs::write(left.bytes(), &whole[..length]).unwrap();
        left.replay_damaged(&[], &["of data cannot be read"]);
    }
    fs::write(left.bytes(), &whole).unwrap();
    left.replay_whole();
}

/// The list went although the server had not made the data durable.
#[test]
fn nothing_is_removed_before_the_server_has_made_it_durable() {
    let world = World::new();
    let Some(storage) = FaultFs::mount(&world, "storage") else { return };
    let left = Left::new(&world, storage.path("new"));
    let before = left.files();
    for call in ["fsync", "fsyncdir"] {
        storage.command(&format!("fail {call} EIO"));
        let ended = left.replay(&[]).expect(6);
        assert!(left.files() == before && ended.stderr.contains("cannot make"), "{ended:?}");
        storage.command("clear");
        fs::remove_file(&left.target).unwrap();
    }
    left.replay_whole();
}

/// A list names the server that gets the token of its reader. A FIFO was waited for, and a device
/// was read, for ever.
#[test]
fn only_regular_files_of_this_user_are_read() {
    let world = World::new();
    let left = Left::new(&world, world.path("new"));
    let refuses = |path: &Path, words: &str| {
        let ended = run(replay(path, &[])).within(LIMIT).expect(6);
        assert!(ended.stderr.contains(words), "{words:?} is missing: {ended:?}");
    };
    let link = world.path("link.rfs");
    symlink(&left.list, &link).unwrap();
    refuses(&link, "symbolic links");
    refuses(Path::new("/dev/zero"), "not a regular file");
    refuses(&world.path(""), "not a regular file");
    for path in [left.list.clone(), left.bytes()] {
        let aside = world.path("aside");
        fs::rename(&path, &aside).unwrap();
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        refuses(&left.list, "not a regular file");
        fs::remove_file(&path).unwrap();
        symlink(&aside, &path).unwrap();
        refuses(&left.list, "symbolic links");
        fs::rename(&aside, &path).unwrap();
        if chown(&path, Some(65534), None).is_ok() {
            refuses(&left.list, "another user");
            chown(&path, Some(0), None).unwrap();
        }
    }
    left.replay_whole();
}

/// The list was checked, and then read by its name: another user could exchange it in between.
#[test]
fn each_file_is_looked_up_once() {
    let world = World::new();
    if !has("strace") {
        return;
    }
    let left = Left::new(&world, world.path("new"));
    let trace = world.path("trace");
    let mut command = Command::new("strace");
    command.args(["-f", "-e", "trace=open,openat,openat2,unlink,unlinkat", "-o"]).arg(&trace);
    command.arg(LADS).args(["rfs", "replay"]).arg(&left.list);
    run(command).expect(0);
    let trace = fs::read_to_string(trace).unwrap();
    let calls = |call: &str, name: &str| {
        let named = trace.lines().filter(|line| line.contains(call) && line.contains(name));
        named.map(str::to_owned).collect::<Vec<_>>()
    };
    for name in ["lads-of-test.rfs\"", "lads-of-test.rfs.bytes\""] {
        for call in ["open", "unlink"] {
            let calls = calls(call, name);
            assert_eq!(calls.len(), 1, "{calls:#?}");
            assert!(!calls[0].contains('/'), "relative to the directory: {calls:?}");
        }
    }
}
