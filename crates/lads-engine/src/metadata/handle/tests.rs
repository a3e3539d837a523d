use super::*;
use crate::job::Options;
use crate::metadata::{apply, differs};
use lads_core::entry::{Metadata, Timestamp};
use rustix::fs::mknodat;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use tempfile::TempDir;

const FIFO: Kind = Kind::Special { file_type: 0o010_000, device: 0 };

/// An open directory with a FIFO, a link and a file that the link leads to.
fn place() -> (TempDir, OwnedFd) {
    let place = tempfile::tempdir().expect("there is room");
    let directory: OwnedFd = fs::File::open(place.path()).expect("it is there").into();
    mknodat(&directory, "fifo", FileType::Fifo, Mode::RUSR, 0).expect("FIFOs are known");
    fs::write(place.path().join("file"), "file").expect("there is room");
    symlink("file", place.path().join("link")).expect("there is room");
    fs::set_permissions(place.path().join("file"), fs::Permissions::from_mode(0o600))
        .expect("it is ours");
    (place, directory)
}

/// What is wanted of something of ours: our owner, this mode, a moment long ago.
fn wanted(path: &Path, mode: u32) -> Metadata {
    let it = path.symlink_metadata().expect("it is there");
    let mtime = Timestamp { seconds: 1_000_000_000, nanos: 5 };
    Metadata { mode, uid: it.uid(), gid: it.gid(), mtime, xattrs: Vec::new() }
}

fn dress(held: &Held, metadata: &Metadata) {
    let options = Options::default();
    assert!(differs(held, held.stat(), metadata, metadata.mtime, &options));
    apply(held, held.stat(), metadata, Some(metadata.mode), &options, true).expect("it is ours");
}

fn mode_and_time(path: &Path) -> (u32, i64) {
    let it = path.symlink_metadata().expect("it is there");
    (it.mode() & 0o7777, it.mtime())
}

#[test]
fn what_is_held_gets_its_metadata_and_not_what_took_its_name() {
    let (place, directory) = place();
    let path = |name| place.path().join(name);
    let file_before = mode_and_time(&path("file"));
    let held = Held::open(&directory, b"fifo").expect("it is there");
    fs::rename(path("fifo"), path("moved")).expect("it is ours");
    symlink("file", path("fifo")).expect("the name is free");
    dress(&held, &wanted(&path("moved"), 0o640));
    assert_eq!(mode_and_time(&path("moved")), (0o640, 1_000_000_000));
    assert_eq!(mode_and_time(&path("file")), file_before);
    let again = Held::open(&directory, b"moved").expect("it is there");
    let options = Options::default();
    let moved = wanted(&path("moved"), 0o640);
    assert!(!differs(&again, again.stat(), &moved, moved.mtime, &options));
}

#[test]
fn a_link_that_is_held_gets_the_time_not_what_it_leads_to() {
    let (place, directory) = place();
    let path = |name| place.path().join(name);
    let file_before = mode_and_time(&path("file"));
    let held = Held::open(&directory, b"link").expect("it is there");
    dress(&held, &wanted(&path("link"), 0o640));
    assert_eq!(mode_and_time(&path("link")), (0o777, 1_000_000_000));
    assert_eq!(mode_and_time(&path("file")), file_before);
}

#[test]
fn only_what_is_the_same_as_at_the_source_is() {
    let (_place, directory) = place();
    let is = |name: &[u8], kind: &Kind| {
        Held::open(&directory, name).expect("it is there").is(kind).expect("it can be read")
    };
    let link = |target: &[u8]| Kind::Symlink { target: target.to_vec() };
    assert!(is(b"fifo", &FIFO) && is(b"link", &link(b"file")));
    assert!(!is(b"link", &link(b"other")) && !is(b"fifo", &link(b"file")));
    assert!(!is(b"link", &FIFO) && !is(b"file", &FIFO));
    assert!(!is(b"fifo", &Kind::Special { file_type: 0o140_000, device: 0 }));
    // The number of a FIFO means nothing; that of a device is the device.
    assert!(is(b"fifo", &Kind::Special { file_type: 0o010_000, device: 9 }));
    let devices: OwnedFd = fs::File::open("/dev").expect("it is there").into();
    let null = Held::open(&devices, b"null").expect("it is there");
    let device = |device| Kind::Special { file_type: 0o020_000, device };
    assert!(null.is(&device(null.stat().st_rdev)).expect("it can be read"));
    assert!(!null.is(&device(0)).expect("it can be read"));
}

#[test]
fn what_has_another_name_or_another_owner_was_not_just_made() {
    let (place, directory) = place();
    let held = |name: &[u8]| Held::open(&directory, name).expect("it is there");
    assert!(held(b"fifo").is_as_made() && held(b"link").is_as_made());
    fs::hard_link(place.path().join("fifo"), place.path().join("other")).expect("it is ours");
    assert!(!held(b"fifo").is_as_made());
    fs::remove_file(place.path().join("other")).expect("it is ours");
    if rustix::process::geteuid().is_root() {
        for name in ["fifo", "link"] {
            std::os::unix::fs::lchown(place.path().join(name), Some(65_534), None)
                .expect("root may");
        }
        assert!(!held(b"fifo").is_as_made());
        assert!(held(b"link").is_as_made());
    }
}
