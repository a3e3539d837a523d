//! Files whose size is not what their status says: those of `/proc` and `/sys`.

use crate::faultfs::FaultFs;
use crate::world::{World, check, lads, not_tried, run};
use std::fs;
use std::path::Path;

/// Files with contents that do not change, of less than a block and of many blocks.
const FILES: [&str; 3] =
    ["/proc/version", "/proc/kallsyms", "/sys/kernel/mm/transparent_hugepage/enabled"];

#[test]
fn files_of_the_kernel_are_read_to_their_end() {
    let files: Vec<&str> = FILES.into_iter().filter(|file| fs::read(file).is_ok()).collect();
    if files.len() < FILES.len() {
        not_tried("some files of the kernel cannot be read");
    }
    for options in [&["--lab=block-size=64K"][..], &["--lab=block-size=64K", "-c"]] {
        let world = World::new();
        for attempt in 0..2 {
            let mut command = lads(options);
            command.args(&files).arg(world.path("dst/"));
            let ended = run(command).expect(0);
            assert_eq!(ended.count("files_moved"), files.len() as u64, "{attempt}");
            for file in &files {
                let name = Path::new(file).file_name().unwrap();
                let copy = fs::read(world.target().join(name)).unwrap();
                assert!(copy == fs::read(file).unwrap(), "{file}");
            }
        }
    }
}

#[test]
fn a_comparison_reports_files_that_have_no_size() {
    let world = World::new();
    fs::create_dir(world.target()).unwrap();
    fs::copy("/proc/version", world.path("dst/version")).unwrap();
    let target = world.target().display().to_string();
    let ended = run(check(&["/proc/version".to_owned(), target])).expect(3);
    assert_eq!(ended.issue()["errno"], 95);
}

/// Servers of FUSE report the size zero for files whose size they do not know.
#[test]
fn files_of_fuse_without_a_size_are_read_to_their_end() {
    let world = World::new();
    let Some(storage) = FaultFs::mount(&world, "storage") else { return };
    world.write("storage/empty", b"");
    storage.command("fail lookup EIO path=nothing nth=1");
    fs::metadata(storage.path("nothing")).unwrap_err();
    let log = storage.path(".fault/log");
    let text = fs::read(&log).unwrap();
    assert!(!text.is_empty() && log.metadata().unwrap().len() == 0);
    let mut command = lads::<&str>(&[]);
    command.args([&log, &storage.path("empty"), &world.path("dst/")]);
    run(command).expect(0);
    assert_eq!(fs::read(world.path("dst/log")).unwrap(), text);
    let modified = fs::metadata(world.path("dst/log")).unwrap().modified().unwrap();
    assert_eq!(modified, log.metadata().unwrap().modified().unwrap(), "it keeps its time");
    assert_eq!(fs::read(world.path("dst/empty")).unwrap(), b"");
}
