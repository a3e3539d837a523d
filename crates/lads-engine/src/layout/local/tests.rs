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
