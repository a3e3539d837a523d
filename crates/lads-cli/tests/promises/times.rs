//! File systems that keep times in coarse units, or only times of a short range.

use crate::faultfs::FaultFs;
use crate::tree::assert_nothing_left_over;
use crate::world::{AS_RSYNC, Ended, World, check, lads, run};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_OMIT, utimensat};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Units of times: of ext4 with small inodes and of NTFS, in nanoseconds.
const UNITS: [&str; 2] = ["1000000000", "100"];
const SECONDS: i64 = 1_646_561_410;

/// A target whose times are coarse.
struct Coarse {
    // Unmounted before the directory that it is in is removed.
    storage: FaultFs,
    world: World,
}

impl Coarse {
    fn new(unit: &str) -> Option<Self> {
        let world = World::new();
        let storage = FaultFs::mount_with(&world, "storage", &["--time-unit", unit])?;
        for (number, name) in ["d/a", "d/b", "c"].into_iter().enumerate() {
            let path = world.write(format!("src/{name}"), &[b'x'; 3000]);
            set_time(&path, SECONDS, 735_461_012 + u32::try_from(number).unwrap());
        }
        symlink("c", world.path("src/link")).unwrap();
        for (name, nanos) in [("link", 999_999_999), ("d", 1), ("", 123_456_789)] {
            set_time(&world.path("src").join(name), SECONDS, nanos);
        }
        Some(Self { storage, world })
    }

    fn target(&self) -> PathBuf {
        self.storage.path("dst")
    }

    /// Runs `lads cp` with these options.
    fn cp(&self, options: &[&str]) -> Ended {
        let mut command = lads(options);
        command.arg(AS_RSYNC).arg(self.world.source_contents()).arg(self.target());
        run(command).expect(0)
    }

    /// Runs `lads check`, and returns the reported differences.
    fn differences(&self) -> Vec<String> {
        let mut command = check(&["--metadata"]);
        command.arg(self.world.source_contents()).arg(self.target());
        run(command).differences()
    }
}

fn set_time(path: &Path, seconds: i64, nanos: u32) {
    let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let time = Timespec { tv_sec: seconds, tv_nsec: nanos.into() };
    let times = Timestamps { last_access: omit, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

#[test]
fn a_target_with_coarse_times_receives_nothing_again() {
    for unit in UNITS {
        let Some(coarse) = Coarse::new(unit) else { return };
        assert_eq!(coarse.cp(&[]).count("files_moved"), 4, "{unit}");
        for options in [&[][..], &["-u"], &["-n"], &["-u", "-n"]] {
            let again = coarse.cp(options);
            assert_eq!(again.count("files_skipped"), 4, "{unit} {options:?}: {again:?}");
            assert_eq!(again.count("files_moved"), 0, "{unit} {options:?}: {again:?}");
        }
        assert_eq!(coarse.differences(), Vec::<String>::new(), "{unit}");
        assert_nothing_left_over(&coarse.target());
    }
}

#[test]
fn a_target_with_coarse_times_is_not_written_to_for_a_time_that_it_cannot_keep() {
    let Some(coarse) = Coarse::new(UNITS[0]) else { return };
    coarse.cp(&[]);
    // A call that would set a time fails from now on, except those of directories, which are set in
    // any case, and of the file with which the unit is learned.
    for name in ["/dst/d/a", "/dst/d/b", "/dst/c", "/dst/link"] {
        coarse.storage.command(&format!("fail setattr EIO path={name}"));
    }
    assert_eq!(coarse.cp(&[]).count("files_skipped"), 4);
    assert_eq!(coarse.cp(&["-c"]).count("files_skipped"), 4);
}

#[test]
fn a_change_that_a_coarse_target_can_show_is_sent() {
    for unit in UNITS {
        let Some(coarse) = Coarse::new(unit) else { return };
        coarse.cp(&[]);
        let path = coarse.world.write("src/c", &[b'y'; 3000]);
        // A dry run cannot tell whole seconds from units of two seconds.
        set_time(&path, SECONDS + 3, 0);
        set_time(&coarse.world.path("src"), SECONDS, 123_456_789);
        let difference = coarse.differences();
        assert_eq!(difference, ["other-contents c"], "{unit}");
        assert_eq!(coarse.cp(&["-n"]).count("files_skipped"), 3, "{unit}");
        assert_eq!(coarse.cp(&["-u"]).count("files_moved"), 1, "{unit}");
        assert_eq!(fs::read(coarse.target().join("c")).unwrap(), [b'y'; 3000]);
        assert_eq!(coarse.cp(&[]).count("files_moved"), 0, "{unit}");
        set_time(&path, SECONDS + 5, 0);
        assert_eq!(coarse.differences(), ["other-metadata c"], "{unit}");
    }
}

#[test]
fn a_file_that_is_newer_at_a_coarse_target_is_passed_over() {
    let Some(coarse) = Coarse::new(UNITS[0]) else { return };
    coarse.cp(&[]);
    fs::write(coarse.target().join("c"), "newer, and of another length").unwrap();
    set_time(&coarse.target().join("c"), SECONDS + 1, 0);
    let ended = coarse.cp(&["-u"]);
    assert_eq!((ended.count("files_moved"), ended.count("files_skipped")), (0, 3), "{ended:?}");
}

/// Returns the time of the last change of a file's status.
fn changed_at(path: &Path) -> SystemTime {
    let metadata = fs::metadata(path).unwrap();
    let positive = |number: i64| u64::try_from(number).unwrap();
    let seconds = Duration::from_secs(positive(metadata.ctime()));
    SystemTime::UNIX_EPOCH + seconds + Duration::from_nanos(positive(metadata.ctime_nsec()))
}

/// A second change within the second would leave the same times.
#[test]
fn a_file_that_changed_within_the_present_second_is_read_when_the_second_is_over() {
    let world = World::new();
    let options = ["--time-unit", UNITS[0]];
    let Some(storage) = FaultFs::mount_with(&world, "src", &options) else { return };
    // If this second is nearly over, the test proves less.
    for options in [&[][..], &["-n", "-c"]] {
        let path = world.write("src/new", &[b'x'; 3000]);
        run(world.cp(options)).expect(0);
        let settled = changed_at(&path) + Duration::from_secs(1);
        assert!(SystemTime::now() >= settled, "{options:?}: it was read before");
    }
    assert_eq!(fs::read(world.target().join("new")).unwrap(), [b'x'; 3000]);
    drop(storage);
}

/// A file that changed within a second of its first copy, and kept its size, had the same time in
/// the unit of the sink, and was skipped from then on.
#[test]
fn a_file_that_changes_after_it_was_copied_is_copied_again_to_a_coarse_target() {
    let world = World::new();
    let options = ["--time-unit", UNITS[0]];
    let Some(storage) = FaultFs::mount_with(&world, "dst", &options) else { return };
    // If the present second is nearly over, a round proves less.
    for (round, options) in [&[][..], &["-u"], &["-c", "-n"], &[]].into_iter().enumerate() {
        for contents in ["before", "after "] {
            let bytes = format!("{contents} {round}").into_bytes();
            let path = world.write("src/new", &bytes);
            run(world.cp(options)).expect(0);
            let settled = changed_at(&path) + Duration::from_secs(1);
            assert!(SystemTime::now() >= settled, "{options:?}: it was read before");
            if !options.contains(&"-n") {
                assert_eq!(fs::read(world.target().join("new")).unwrap(), bytes);
            }
        }
    }
    drop(storage);
}
