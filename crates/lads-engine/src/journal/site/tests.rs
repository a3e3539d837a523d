#![allow(clippy::unwrap_used, reason = "these are tests")]

use super::*;
use crate::event::Happening;
use lads_core::journal::Holder;
use rustix::fs::{CWD, Gid, Uid, chownat, mknodat};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use tempfile::TempDir;

fn board() -> Board {
    Board::new("here".to_owned(), true)
}

fn site(directory: &Path) -> Site {
    Site::new(Arc::new(File::open(directory).unwrap().into()), "sink:here:dst", 7)
}

/// A directory, and where the journal is in it.
fn place() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(".lads-0000000000000007.journal");
    (directory, path)
}

/// Opens it, which is refused.
fn refusal(directory: &Path) -> String {
    let refusal = site(directory).open(&board()).err().expect("it is refused").text;
    assert!(!directory.join(".lads-0000000000000007.journal.new").exists(), "{refusal}");
    refusal
}

/// A sound journal in which everything is done, as somebody else may make one.
fn planted() -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&Record::Begin { format: FORMAT, salt: [1; 16] }, &mut bytes);
    bytes
}

/// A journal that others made was used: files had the bytes that they wished, a pipe was waited
/// for, and 5 GB were read into memory.
#[test]
fn what_others_made_is_not_used_and_not_written_to() {
    type Plant<'a> = &'a dyn Fn(&Path);
    let cases: [(&str, Plant<'_>); 6] = [
        ("not a regular file", &|path| symlink("victim", path).unwrap()),
        ("not a regular file", &|path| {
            mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        }),
        ("not a regular file", &|path| fs::create_dir(path).unwrap()),
        ("2 names", &|path| fs::hard_link(path.with_file_name("victim"), path).unwrap()),
        ("other users may write", &|path| {
            fs::write(path, planted()).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o620)).unwrap();
        }),
        ("5368709120 bytes", &|path| File::create(path).unwrap().set_len(5 << 30).unwrap()),
    ];
    for (words, plant) in cases {
        let (directory, path) = place();
        let victim = directory.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        plant(&path);
        if path.is_file() {
            let mode = path.metadata().unwrap().permissions().mode() & 0o620;
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
        let refusal = refusal(directory.path());
        assert!(refusal.contains(words) && refusal.contains("remove it"), "{refusal}");
        assert_eq!(fs::read(&victim).unwrap(), b"precious", "{words}");
    }
}

#[test]
fn not_even_root_uses_the_journal_of_another_user() {
    if !lads_tried::is_root() {
        return;
    }
    let (directory, path) = place();
    fs::write(&path, planted()).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let (uid, gid) = (Uid::from_raw(65534), Gid::from_raw(65534));
    chownat(CWD, &path, Some(uid), Some(gid), AtFlags::empty()).unwrap();
    let refusal = refusal(directory.path());
    assert!(refusal.contains("another user (65534)"), "{refusal}");
    assert_eq!(fs::read(&path).unwrap(), planted());
}

#[test]
fn what_was_about_to_become_a_journal_is_removed() {
    let (directory, path) = place();
    fs::write(path.with_extension("journal.new"), "torn").unwrap();
    let opened = site(directory.path()).open(&board()).unwrap();
    assert!(path.exists() && !path.with_extension("journal.new").exists());
    drop(opened);
}

/// A lock was taken on a file that had lost its name to a new one: two had one journal.
#[test]
fn however_many_open_it_one_at_a_time_has_it() {
    let (directory, _) = place();
    let (holders, times) = (AtomicU32::new(0), AtomicU32::new(0));
    let open_often = |number: u32| {
        for turn in 0..100 {
            let site = site(directory.path());
            match site.open(&board()) {
                Ok(opened) => {
                    assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "two have it");
                    times.fetch_add(1, Ordering::SeqCst);
                    let log = site.shorten(&opened.log, opened.salt).unwrap_or(opened.log);
                    std::thread::yield_now();
                    holders.fetch_sub(1, Ordering::SeqCst);
                    if (turn + number).is_multiple_of(2) {
                        site.remove(&log).unwrap();
                    }
                }
                Err(refusal) => assert!(refusal.text.contains("already running"), "{refusal:?}"),
            }
        }
    };
    std::thread::scope(|scope| {
        for number in 0..4 {
            scope.spawn(move || open_often(number));
        }
    });
    assert!(times.load(Ordering::SeqCst) > 0, "somebody has had it");
}

#[test]
fn where_there_are_no_locks_the_process_that_the_journal_names_counts() {
    let (directory, _) = place();
    let site = site(directory.path());
    let check = |holder: Holder| {
        let replay = Replay { holder: Some(holder), ..Replay::default() };
        site.check_holder(&replay).map_err(|refusal| refusal.text)
    };
    let own = holder::own();
    let refusal = check(own.clone()).unwrap_err();
    assert!(refusal.contains("already running") && refusal.contains(&own.pid.to_string()));
    let elsewhere = Holder { host: b"dtn7".to_vec(), ..own.clone() };
    let refusal = check(elsewhere).unwrap_err();
    assert!(refusal.contains("dtn7") && refusal.contains("remove that file"), "{refusal}");
    assert!(check(Holder { started_ticks: own.started_ticks + 1, ..own }).is_ok());
}

#[test]
fn a_journal_of_another_format_is_told_and_its_salt_finds_what_it_left() {
    let (directory, path) = place();
    let mut bytes = Vec::new();
    encode(&Record::Begin { format: 1, salt: [9; 16] }, &mut bytes);
    fs::write(&path, &bytes).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let board = board();
    let opened = site(directory.path()).open(&board).unwrap();
    assert_eq!(opened.salt, [9; 16]);
    let told = board.take_happenings();
    let is_told =
        |it: &Happening| matches!(it, Happening::Notice(text) if text.contains("format 1"));
    assert!(told.iter().any(is_told), "{told:?}");
    assert_eq!(log::read(File::open(&path).unwrap()).unwrap().other_format, None);
}
