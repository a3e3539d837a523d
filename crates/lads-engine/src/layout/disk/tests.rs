use super::*;
use std::fs::{create_dir_all, write};
use std::os::unix::fs::symlink;

/// A machine with devices that are not there: a directory like `/sys`.
pub(in crate::layout) struct Machine {
    directory: tempfile::TempDir,
}

impl Machine {
    pub(in crate::layout) fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    pub(in crate::layout) fn devices(&self) -> Devices {
        Devices::shown_in(self.directory.path().to_owned())
    }

    /// A device by the kernel's name; a partition is `sda/sda1`.
    pub(in crate::layout) fn device(&self, name: &str) -> PathBuf {
        let device = self.directory.path().join("devices").join(name);
        create_dir_all(&device).unwrap();
        if name.contains('/') {
            write(device.join("partition"), "1\n").unwrap();
        }
        device
    }

    /// A disk with its number.
    pub(in crate::layout) fn disk(&self, name: &str, number: u64, turns: bool) -> PathBuf {
        let disk = self.device(name);
        create_dir_all(disk.join("queue")).unwrap();
        write(disk.join("queue/rotational"), if turns { "1\n" } else { "0\n" }).unwrap();
        self.number(number, &disk);
        disk
    }

    /// A volume made of devices, with its number.
    fn volume(&self, name: &str, number: u64, on: &[&Path]) -> PathBuf {
        let volume = self.device(name);
        for device in on {
            let name = device.file_name().unwrap();
            create_dir_all(volume.join("slaves")).unwrap();
            symlink(device, volume.join("slaves").join(name)).unwrap();
        }
        self.number(number, &volume);
        volume
    }

    pub(in crate::layout) fn number(&self, number: u64, device: &Path) {
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let numbers = self.directory.path().join("dev/block");
        create_dir_all(&numbers).unwrap();
        symlink(device, numbers.join(format!("{major}:{minor}"))).unwrap();
    }

    /// A btrfs on devices, by the names it knows them by.
    pub(in crate::layout) fn btrfs(&self, uuid: &str, devices: &[(&str, &Path)]) {
        let list = self.directory.path().join("fs/btrfs").join(uuid).join("devices");
        create_dir_all(&list).unwrap();
        for (name, device) in devices {
            symlink(device, list.join(name)).unwrap();
        }
    }

    fn behind(&self, number: u64) -> Storage {
        self.devices().behind(number).unwrap()
    }
}

fn disks(storage: &Storage) -> Vec<&str> {
    storage.disks.keys().map(String::as_str).collect()
}

#[test]
fn a_partition_is_on_its_disk() {
    let machine = Machine::new();
    machine.disk("sda", 1, true);
    machine.number(2, &machine.device("sda/sda1"));
    let storage = machine.behind(2);
    assert_eq!((storage.name.as_str(), disks(&storage)), ("/dev/sda", vec!["sda"]));
    assert_eq!((storage.in_flight_max(), storage.is_flash()), (2, Some(false)));
    assert!(storage.turns() && storage.is_on_disks_of(&machine.behind(1)));
}

#[test]
fn an_array_of_two_disks_wants_requests_for_both() {
    let machine = Machine::new();
    machine.disk("sda", 1, true);
    machine.disk("sdb", 2, true);
    let parts = [machine.device("sda/sda2"), machine.device("sdb/sdb2")];
    machine.volume("md0", 3, &[&parts[0], &parts[1]]);
    let storage = machine.behind(3);
    assert_eq!((storage.name.as_str(), disks(&storage)), ("/dev/md0", vec!["sda", "sdb"]));
    assert_eq!(storage.in_flight_max(), 4);
    assert!(!storage.is_on_disks_of(&machine.behind(1)));
}

#[test]
fn volumes_on_an_array_are_on_its_disks() {
    let machine = Machine::new();
    let disks_of_it = [machine.disk("nvme0n1", 1, false), machine.disk("nvme1n1", 2, false)];
    let array = machine.volume("md0", 3, &[&disks_of_it[0], &disks_of_it[1]]);
    let first = machine.volume("dm-0", 4, &[&array]);
    create_dir_all(first.join("dm")).unwrap();
    write(first.join("dm/name"), "vg-first\n").unwrap();
    machine.volume("dm-1", 5, &[&array]);
    let (first, second) = (machine.behind(4), machine.behind(5));
    assert_eq!(first.name, "/dev/md0", "what is below both");
    assert!(first.is_on_disks_of(&second));
    assert_eq!((first.in_flight_max(), first.is_flash()), (16, Some(true)));
}

#[test]
fn a_volume_over_several_disks_has_its_own_name() {
    let machine = Machine::new();
    let on = [machine.disk("sda", 1, true), machine.disk("nvme0n1", 2, false)];
    let volume = machine.volume("dm-3", 3, &[&on[0], &on[1]]);
    create_dir_all(volume.join("dm")).unwrap();
    write(volume.join("dm/name"), "vg-scratch\n").unwrap();
    let storage = machine.behind(3);
    assert_eq!(storage.name, "/dev/mapper/vg-scratch");
    assert_eq!((storage.in_flight_max(), storage.turns()), (10, true));
}

#[test]
fn several_paths_to_a_disk_are_one_disk() {
    let machine = Machine::new();
    let paths = [machine.disk("sda", 1, true), machine.disk("sdb", 2, true)];
    let disk = machine.volume("dm-0", 3, &[&paths[0], &paths[1]]);
    create_dir_all(disk.join("dm")).unwrap();
    write(disk.join("dm/uuid"), "mpath-3600508b1001c\n").unwrap();
    create_dir_all(disk.join("queue")).unwrap();
    write(disk.join("queue/rotational"), "1\n").unwrap();
    assert_eq!(disks(&machine.behind(3)), ["dm-0"]);
    assert_eq!(machine.behind(3).in_flight_max(), 2);
}

#[test]
fn a_virtual_disk_that_says_it_turns_is_not_believed() {
    let machine = Machine::new();
    let disk = machine.disk("vda", 1, true);
    create_dir_all(machine.directory.path().join("bus/virtio_blk")).unwrap();
    create_dir_all(disk.join("device")).unwrap();
    let driver = machine.directory.path().join("bus/virtio_blk");
    symlink(driver, disk.join("device/driver")).unwrap();
    let storage = machine.behind(1);
    assert_eq!((storage.turns(), storage.is_flash(), storage.in_flight_max()), (false, None, 8));
}

#[test]
fn a_btrfs_is_on_all_its_devices() {
    let machine = Machine::new();
    machine.disk("sda", 1, true);
    let (first, second) = (machine.device("sda/sda1"), machine.disk("sdb", 2, true));
    machine.btrfs("0b1c-22", &[("sda1", &first), ("sdb", &second)]);
    let storage = machine.devices().behind_btrfs(Path::new("/dev/sdb")).unwrap();
    assert_eq!((storage.name.as_str(), disks(&storage)), ("/dev/sda", vec!["sda", "sdb"]));
    assert_eq!(machine.devices().behind_btrfs(Path::new("/dev/sdc")), None);
}

#[test]
fn what_is_no_block_device_has_no_disks() {
    assert_eq!(Machine::new().devices().behind(1), None);
}

#[test]
fn a_device_that_lies_on_itself_ends_somewhere() {
    let machine = Machine::new();
    let first = machine.device("dm-0");
    machine.volume("dm-1", 1, &[&first]);
    machine.volume("dm-0", 2, &[&machine.device("dm-1")]);
    assert_eq!(machine.behind(2).in_flight_max(), 8);
}
