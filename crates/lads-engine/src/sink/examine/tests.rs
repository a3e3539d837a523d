//! What a source may say that nobody asked it for.

use super::*;
use crate::board::Board;
use crate::clock::Clock;
use crate::end::End as _;
use crate::job::Options;
use crate::setup::Setup;
use crate::stream::Streams;
use lads_core::entry::{Identity, Metadata, Xattr};
use lads_core::message::Message;
use lads_core::placement::Striping;
use lads_core::reduction::Reduction;
use lads_core::units::{EntryId, OstId};
use rustix::process::getegid;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;

/// A sink that a source talks to, which may say anything.
struct Bench {
    place: TempDir,
    end: Arc<SinkEnd>,
}

impl Bench {
    fn new(options: Options) -> Self {
        let place = tempfile::tempdir().expect("there is room");
        let board = Arc::new(Board::new("here".to_owned(), true));
        let streams = Arc::new(Streams::none());
        let sink_layout = "synthetic:osts=1".to_owned();
        let options = Options { sink_buffers_bytes: 8 << 20, sink_layout, ..options };
        let setup = Setup { options, streams, board, clock: Clock::start() };
        let target = place.path().join("target");
        fs::create_dir(&target).expect("there is room");
        let end = SinkEnd::open(target.as_os_str().as_bytes().to_vec(), 1, setup)
            .unwrap_or_else(|fatal| panic!("{}", fatal.text));
        let bench = Self { place, end };
        let root = Root { name: b".".to_vec(), is_directory: true, is_contents_only: true };
        bench.hear(&Message::Roots(vec![root]));
        bench
    }

    fn hear(&self, message: &Message) {
        self.end.before(message).unwrap_or_else(|fatal| panic!("{}", fatal.text));
    }

    /// The source announces this; what is answered.
    fn announce(&self, entry: &Entry) -> Answer {
        self.hear(&Message::NewFile(vec![entry.clone()]));
        let item = self.end.table.get(entry.id).expect("it was announced");
        match self.end.examine(entry, &item) {
            Ok(Examined::Answer(answer)) => answer,
            Ok(Examined::Want { done, layout, .. }) => panic!("wanted: {done:?} {layout:?}"),
            Ok(Examined::Compare { layout }) => Answer::Compare { layout },
            Err(failure) => Answer::Failed(failure),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join("target").join(name)
    }
}

fn entry(id: u64, name: &str, kind: Kind) -> Entry {
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    let xattr = |name: &str| Xattr { name: name.as_bytes().to_vec(), value: b"1".to_vec() };
    let names = ["user.x", "trusted.x", "security.capability", "security.x", "system.x"];
    let metadata = Metadata {
        mode: 0o6755,
        uid,
        gid,
        xattrs: names.map(xattr).to_vec(),
        ..Metadata::default()
    };
    Entry { id: EntryId(id), parent: EntryId::ROOT, name: name.into(), kind, metadata }
}

fn special(id: u64, file_type: u32, device: u64) -> Entry {
    let mut entry = entry(id, &format!("special{id}"), Kind::Special { file_type, device });
    // The kernel takes none of a user's on these.
    entry.metadata.xattrs.retain(|xattr| xattr.name != b"user.x");
    entry
}

fn file(id: u64, name: &str) -> Entry {
    let identity = Identity::default();
    let (striping, source_ost) = (Striping::default(), OstId(0));
    entry(
        id,
        name,
        Kind::File { identity, data_bytes: 0, striping, source_ost, is_different: false },
    )
}

fn reason(answer: &Answer) -> Option<Reason> {
    match answer {
        Answer::Failed(failure) => Some(failure.reason),
        _ => None,
    }
}

#[test]
fn special_files_that_nobody_asked_for_are_not_made() {
    const NULL: u64 = 0x103;
    let bench = Bench::new(Options { specials: true, ..Options::default() });
    // Devices; a file, a directory, nothing, and a FIFO with permissions, said to be special.
    let refused = [0o020_000, 0o060_000, 0o100_000, 0o040_000, 0, 0o010_666];
    for (id, file_type) in (1..).zip(refused) {
        let special = special(id, file_type, NULL);
        assert_eq!(reason(&bench.announce(&special)), Some(Reason::Special), "{file_type:o}");
    }
    assert_eq!(bench.announce(&special(9, 0o010_000, 0)), Answer::Made);
    let made = bench.path("special9").symlink_metadata().expect("it was made");
    assert!(made.file_type().is_fifo());
    // Nor is it given rights that only `--privileges` gives.
    assert_eq!(made.mode() & 0o7777, 0o755);
    let names = fs::read_dir(bench.path("")).expect("it is there").filter_map(Result::ok);
    let names: Vec<_> = names.map(|it| it.file_name()).filter(|it| it != "special9").collect();
    assert!(names.iter().all(|name| name.as_bytes().ends_with(b".journal")), "{names:?}");
}

#[test]
fn a_file_gets_no_rights_that_nobody_asked_for() {
    let bench = Bench::new(Options::default());
    // The same in size and time: only its metadata is made so, which takes no data.
    let path = bench.path("file");
    fs::write(&path, "").expect("there is room");
    rustix::fs::utimensat(CWD, &path, &long_ago(), AtFlags::empty()).expect("it is ours");
    let file = file(1, "file");
    assert_eq!(bench.announce(&file), Answer::Have);
    assert_eq!(path.metadata().expect("it is there").mode() & 0o7777, 0o755);
    let mut names = [0; 256];
    let count = rustix::fs::listxattr(&path, &mut names[..]).expect("it is there");
    assert_eq!(&names[..count], b"user.x\0");
    // Told once, when all is done.
    bench.end.examine_all(vec![file]);
    let reduced = bench.end.counters().reduced;
    let counted: Vec<_> = reduced.of_both(Default::default()).collect();
    assert_eq!(counted, [(Reduction::Privileges, 1)]);
}

fn long_ago() -> rustix::fs::Timestamps {
    let zero = rustix::fs::Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::fs::Timestamps { last_access: zero, last_modification: zero }
}

#[test]
fn what_is_not_finished_gets_no_further_name() {
    let bench = Bench::new(Options::default());
    let unfinished = format!(".lads-{:032x}.part", 7);
    fs::write(bench.path(&unfinished), "not whole").expect("there is room");
    fs::create_dir(bench.path("below")).expect("there is room");
    fs::write(bench.path("below").join(&unfinished), "not whole").expect("there is room");
    fs::write(bench.path("first"), "whole").expect("there is room");
    let link = |id, target: &str| {
        entry(id, &format!("link{id}"), Kind::HardLink { target: target.into() })
    };
    for (id, target) in [(1, unfinished.clone()), (2, format!("below/{unfinished}"))] {
        assert_eq!(reason(&bench.announce(&link(id, &target))), Some(Reason::UnsafeName));
        assert!(!bench.path(&format!("link{id}")).exists());
    }
    // No link is followed on the way to what gets a further name, and a directory gets none.
    std::os::unix::fs::symlink("below", bench.path("way")).expect("there is room");
    fs::write(bench.path("below/file"), "whole").expect("there is room");
    for (id, target) in [(3, "way/file"), (4, "below")] {
        assert!(reason(&bench.announce(&link(id, target))).is_some(), "{target}");
    }
    assert_eq!(bench.announce(&link(5, "first")), Answer::Made);
    assert_eq!(fs::read(bench.path("link5")).expect("it was made"), b"whole");
}

#[test]
fn a_new_root_that_was_replaced_by_a_link_is_noticed() {
    let place = tempfile::tempdir().expect("there is room");
    let path = |name: &str| place.path().join(name).as_os_str().as_bytes().to_vec();
    fs::create_dir(place.path().join("made")).expect("there is room");
    std::os::unix::fs::symlink("made", place.path().join("link")).expect("there is room");
    for slashes in ["", "/", "//"] {
        assert!(open_made(&path(&format!("made{slashes}"))).is_ok());
        let error = open_made(&path(&format!("link{slashes}"))).err();
        assert!(matches!(error, Some(Errno::LOOP | Errno::NOTDIR)), "{error:?}");
    }
    if geteuid().is_root() {
        std::os::unix::fs::chown(place.path().join("made"), Some(65_534), None).expect("root may");
        assert_eq!(open_made(&path("made")).err(), Some(Errno::STALE));
    }
}

/// Both would be written to one temporary file.
#[test]
fn of_two_files_with_one_path_the_second_fails_until_the_first_has_ended() {
    let bench = Bench::new(Options::default());
    let sized = |id, size| {
        let mut entry = file(id, "file");
        entry.metadata.xattrs.clear();
        if let Kind::File { identity, data_bytes, .. } = &mut entry.kind {
            (identity.size, *data_bytes) = (size, size);
        }
        entry
    };
    let examine = |entry: &Entry| {
        bench.hear(&Message::NewFile(vec![entry.clone()]));
        bench.end.examine(entry, &bench.end.table.get(entry.id).expect("it was announced"))
    };
    for size in [3, 3 << 20] {
        let first = sized(size, size);
        assert!(matches!(examine(&first), Ok(Examined::Want { .. })));
        let failure = examine(&sized(size + 1, size)).expect_err("the name is in use");
        assert_eq!(failure.reason, Reason::Os(Errno::BUSY.raw_os_error()));
        // A link has a temporary name, too.
        let link = entry(size + 2, "file", Kind::Symlink { target: b"elsewhere".to_vec() });
        let failure = examine(&link).expect_err("the name is in use");
        assert_eq!(failure.reason, Reason::Os(Errno::BUSY.raw_os_error()));
        bench.end.table.take_all();
        assert!(matches!(examine(&sized(size + 3, size)), Ok(Examined::Want { .. })));
        bench.end.table.take_all();
    }
}
