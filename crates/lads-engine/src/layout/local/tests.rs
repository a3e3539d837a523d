use super::super::disk::tests::Machine;
use super::*;
use std::fs::File;
use std::path::PathBuf;

/// A directory, the number of its device, and the mount that it is taken for.
struct Place {
    directory: tempfile::TempDir,
    device: u64,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let device = directory.path().metadata().unwrap().dev();
        Self { directory, device }
    }

    fn mount(&self, kind: &str, source: &str) -> Mount {
        let place = self.directory.path().canonicalize().unwrap();
        Mount { id: 7, place, kind: kind.to_owned(), source: PathBuf::from(source) }
    }

    fn layouts(&self, machine: &Machine, mounts: &[Mount]) -> Local {
        Local::over(&[self.directory.path()], &machine.devices(), mounts)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> File {
        std::fs::write(self.directory.path().join(name), bytes).unwrap();
        let file = File::open(self.directory.path().join(name)).unwrap();
        file.sync_all().unwrap();
        file
    }

    fn disk_offset(&self, layouts: &Local, name: &str) -> Option<u64> {
        let directory = OwnedFd::from(File::open(self.directory.path()).unwrap());
        let (name, device) = (name.as_bytes(), self.device);
        layouts.disk_offset(&FileAt { directory: &directory, name, device, inode: 0, size: 0 })
    }
}

#[test]
fn a_place_that_is_not_there_yet_lies_where_its_parent_does() {
    let here = Local::of(&[Path::new("/")]);
    let there = Local::of(&[Path::new("/no/such/place")]);
    assert_eq!(here.osts()[0], there.osts()[0]);
}

#[test]
fn a_disk_that_turns_has_few_requests_and_is_asked_where_files_begin() {
    let (place, machine) = (Place::new(), Machine::new());
    machine.disk("sda", place.device, true);
    let layouts = place.layouts(&machine, &[place.mount("ext4", "/dev/sda")]);
    let expected = OstSpec::new("/dev/sda", 2);
    assert_eq!(layouts.osts(), [expected]);
    assert_eq!(layouts.targets()[0].is_flash, Some(false));
    assert!(layouts.targets()[0].capacity_bytes > 0 && layouts.prefers_direct_writes());
    let file = place.file("file", &[1; 1 << 16]);
    let told = lads_sys::first_extent(&file).ok().flatten();
    assert_eq!(place.disk_offset(&layouts, "file"), told);
    if told.is_none() {
        eprintln!("in part: the file system of temporary files does not say where files begin");
    }
    assert_eq!(place.disk_offset(&layouts, "missing"), None);
}

#[test]
fn flash_is_not_asked_where_files_begin() {
    let (place, machine) = (Place::new(), Machine::new());
    machine.disk("nvme0n1", place.device, false);
    let layouts = place.layouts(&machine, &[]);
    drop(place.file("file", &[1; 1 << 16]));
    assert_eq!((layouts.osts()[0].in_flight_max, layouts.targets()[0].is_flash), (8, Some(true)));
    assert_eq!(place.disk_offset(&layouts, "file"), None);
}

#[test]
fn filefrag_says_the_same_of_where_a_file_begins() {
    let place = Place::new();
    let file = place.file("file", &[1; 1 << 20]);
    let Ok(Some(offset)) = lads_sys::first_extent(&file) else {
        return lads_tried::not_tried("the file system of temporary files has no extents");
    };
    if !lads_tried::has("filefrag") {
        return;
    }
    let path = place.directory.path().join("file");
    let filefrag = lads_tried::find("filefrag").unwrap();
    let output = std::process::Command::new(filefrag).arg("-v").arg(&path).output().unwrap();
    // `   0:        0..     255:    1234567..   1234822:    256:             last,eof`
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let first = text.lines().find_map(|line| line.trim_start().strip_prefix("0:"));
    let block =
        first.and_then(|line| line.split(':').nth(1)?.split("..").next()?.trim().parse().ok());
    let block_bytes = statvfs(place.directory.path()).unwrap().f_frsize;
    assert_eq!(block.map(|block: u64| block * block_bytes), Some(offset), "{text}");
}

#[test]
fn a_file_system_that_hides_its_targets_is_named_and_is_one_target() {
    let (place, machine) = (Place::new(), Machine::new());
    let layouts = place.layouts(&machine, &[place.mount("nfs4", "nas1:/export")]);
    assert_eq!((layouts.kind(), layouts.osts().len()), ("nfs", 1));
    assert_eq!(layouts.osts()[0].in_flight_max, OPAQUE_IN_FLIGHT_MAX);
    assert_eq!(layouts.targets()[0].server, "nas1");
    assert!(layouts.remarks()[0].contains("pNFS") && !layouts.prefers_direct_writes());
}

#[test]
fn a_btrfs_lies_on_its_disks_though_its_files_have_no_device() {
    let (place, machine) = (Place::new(), Machine::new());
    let disk = machine.disk("sdb", 99, true);
    machine.btrfs("5c2b", &[("sdb", disk.as_path())]);
    let layouts = place.layouts(&machine, &[place.mount("btrfs", "/dev/sdb")]);
    assert_eq!(layouts.osts()[0].name, "/dev/sdb");
    assert!(!layouts.prefers_direct_writes(), "its sums want the page cache");
}

#[test]
fn file_systems_on_the_same_disk_are_one_target_and_others_are_not() {
    let (place, machine) = (Place::new(), Machine::new());
    // Any two directories on other devices will do.
    let others = [Path::new("/proc"), Path::new("/sys")];
    let device = |path: &Path| path.metadata().unwrap().dev();
    let disk = machine.disk("sda", place.device, false);
    machine.number(device(others[0]), &machine.device("sda/sda1"));
    machine.disk("sdb", device(others[1]), false);
    let mut layouts = place.layouts(&machine, &[]);
    for (id, other) in others.iter().enumerate() {
        let mount = Mount { id: id as u64, ..Mount::unknown(other) };
        layouts.add(other, mount, &machine.devices());
    }
    let names: Vec<_> = layouts.osts().into_iter().map(|spec| spec.name).collect();
    assert_eq!(names, ["/dev/sda", "/dev/sdb"], "{}", disk.display());
    let root = OwnedFd::from(File::open("/").unwrap());
    let target = |path: &Path| layouts.target(device(path), &root, b"");
    assert_eq!([target(place.directory.path()), target(others[0]), target(others[1])], [0, 0, 1]);
}

#[test]
fn a_device_that_was_not_met_before_is_on_the_target_of_its_mount() {
    let mounts = mounts();
    let Some(proc) = on_which(Path::new("/proc"), &mounts).filter(|it| it.kind == "proc") else {
        return lads_tried::not_tried("/proc is not a mount of its own");
    };
    let machine = Machine::new();
    let mut layouts = Place::new().layouts(&machine, &[]);
    layouts.add(&proc.place, proc.clone(), &machine.devices());
    let directory = OwnedFd::from(File::open("/proc").unwrap());
    let unknown = 0xfff_fff0;
    assert_eq!(layouts.target(unknown, &directory, b"version"), 1);
    let elsewhere = OwnedFd::from(File::open("/").unwrap());
    assert_eq!(layouts.target(unknown, &elsewhere, b""), 1, "and is known from then on");
}

#[test]
fn roots_on_several_disks_are_several_targets() {
    let (place, machine) = (Place::new(), Machine::new());
    machine.disk("sda", place.device, true);
    // Any directory on another device will do.
    let other = Path::new("/proc");
    machine.disk("sdb", other.metadata().unwrap().dev(), true);
    let roots = [place.directory.path(), other, place.directory.path()];
    let layouts = Local::over(&roots, &machine.devices(), &[]);
    let names: Vec<_> = layouts.osts().into_iter().map(|spec| spec.name).collect();
    assert_eq!(names, ["/dev/sda", "/dev/sdb"]);
}

/// A provider for one mount, divided into four tracks.
fn divided(place: &Place, kind: &str, side: Side) -> Local {
    let mut layouts = place.layouts(&Machine::new(), &[place.mount(kind, "somewhere")]);
    layouts.divide(TracksWanted { count: 4, block_size: 1 << 20, side });
    layouts
}

fn new_file(layouts: &Local, place: &Place, size: u64) -> Layout {
    let directory = OwnedFd::from(File::open(place.directory.path()).unwrap());
    let wish = lads_core::placement::Wish::Default;
    layouts.of_new_file(&NewFile::new(&directory, "new", size, &wish)).unwrap().layout
}

#[test]
fn a_mount_that_hides_its_osts_is_divided_into_tracks() {
    let place = Place::new();
    let layouts = divided(&place, "nfs4", Side::Source);
    let track = OstSpec { is_track: true, ..OstSpec::new(layouts.osts()[0].name.clone(), 1) };
    assert_eq!(layouts.osts(), vec![track; 4]);
    assert_eq!(layouts.targets().len(), 4);
    let directory = OwnedFd::from(File::open(place.directory.path()).unwrap());
    let (device, size) = (place.device, 1 << 30);
    let file = FileAt { directory: &directory, name: b"file", device, inode: 0, size };
    let dealt: Vec<Layout> = (0..5).map(|_| layouts.of_file(&file).layout).collect();
    assert_eq!(dealt, [0, 1, 2, 3, 0].map(|track| Layout::on(OstId(track))));
    assert!(layouts.starts_writeback() && !layouts.prefers_direct_writes());
}

#[test]
fn a_long_file_is_written_on_several_tracks_and_past_the_page_cache_of_fuse() {
    let place = Place::new();
    let layouts = divided(&place, "fuse.lads-pfs", Side::Sink);
    assert_eq!(new_file(&layouts, &place, 1 << 20), Layout::on(OstId(0)));
    assert_eq!(new_file(&layouts, &place, 1 << 30).position_count(), 4);
    assert!(layouts.prefers_direct_writes());
}

#[test]
fn tmpfs_is_memory_and_other_kinds_are_not() {
    let place = Place::new();
    let is_memory = |kind| place.layouts(&Machine::new(), &[place.mount(kind, "x")]).is_memory();
    assert_eq!(["ext4", "tmpfs", "nfs4"].map(is_memory), [false, true, false]);
    let locks_files = |kind| {
        let layouts = place.layouts(&Machine::new(), &[place.mount(kind, "x")]);
        layouts.osts().iter().all(|ost| ost.locks_files)
    };
    assert_eq!(["ext4", "tmpfs", "nfs4"].map(locks_files), [false, true, false]);
}

#[test]
fn files_get_their_only_name_late_where_that_is_known_to_be_durable() {
    let place = Place::new();
    let links = |kind| place.layouts(&Machine::new(), &[place.mount(kind, "x")]).links_durably();
    let kinds = ["ext4", "xfs", "tmpfs", "btrfs", "f2fs", "overlay", "nfs4", "fuse.x"];
    assert_eq!(kinds.map(links), [true, true, true, false, false, false, false, false]);
}

#[test]
fn disks_and_memory_are_not_divided() {
    let (place, machine) = (Place::new(), Machine::new());
    assert_eq!(divided(&place, "tmpfs", Side::Sink).osts().len(), 1);
    machine.disk("sda", place.device, true);
    let mut layouts = place.layouts(&machine, &[place.mount("fuse.zfs", "sda")]);
    layouts.divide(TracksWanted { count: 4, block_size: 1 << 20, side: Side::Sink });
    assert_eq!((layouts.osts().len(), layouts.starts_writeback()), (1, false));
    assert_eq!(new_file(&layouts, &place, 1 << 30), Layout::on(OstId(0)));
}

/// The numbers of what follows a divided mount begin after its tracks.
#[test]
fn a_mount_below_a_divided_one_has_a_number_of_its_own() {
    let place = Place::new();
    let below = Mount { id: 8, place: PathBuf::from("/proc"), ..place.mount("proc", "proc") };
    let mounts = [place.mount("nfs", "nas:/a"), below.clone()];
    let roots = [place.directory.path(), Path::new("/proc")];
    let mut layouts = Local::over(&roots, &Machine::new().devices(), &mounts);
    layouts.divide(TracksWanted { count: 4, block_size: 1 << 20, side: Side::Source });
    let directory = OwnedFd::from(File::open("/proc").unwrap());
    let device = Path::new("/proc").metadata().unwrap().dev();
    let file = FileAt { directory: &directory, name: b"version", device, inode: 0, size: 5 };
    assert_eq!(layouts.of_file(&file).layout, Layout::on(OstId(4)));
    assert_eq!((layouts.osts().len(), layouts.targets().len()), (5, 5));
}
