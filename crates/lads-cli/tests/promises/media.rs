//! `--verify=media` reads from storage, not from memory: the test damages the storage below a page
//! cache that still has the written data.

use crate::tree::{assert_nothing_left_over, is_own_name, visit};
use crate::world::{Mounted, Rng, World, blocks_on_record, run, start, wait_until_gone};
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;

const EXT4: &[&str] = &["mkfs.ext4", "-q", "-F", "-b", "4096"];
const LARGE_BYTES: usize = 8 << 20;
const PAGE_BYTES: usize = 4096;

/// Flips a bit in the image where this page is stored.
fn damage(image: &Path, page: &[u8]) {
    let bytes = fs::read(image).unwrap();
    let mut pages = bytes.chunks_exact(PAGE_BYTES);
    let number = pages.position(|other| other == page).expect("it is durable");
    let file = File::options().write(true).open(image).unwrap();
    file.write_all_at(&[page[0] ^ 1], (number * PAGE_BYTES) as u64).unwrap();
}

/// Returns what storage holds of a file, past the page cache.
fn read_from_storage(path: &Path) -> Vec<u8> {
    let mut command = Command::new("dd");
    command.args(["iflag=direct", "bs=1M", "status=none"]);
    let mut from = std::ffi::OsString::from("if=");
    from.push(path);
    let output = command.arg(from).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output.stdout
}

#[test]
fn damage_below_the_page_cache_is_found_and_mended() {
    let world = World::new();
    let image = world.path("image");
    let Some(mounted) = Mounted::new_image(&world.target(), &image, EXT4) else { return };
    let bytes = Rng::new(1).bytes(LARGE_BYTES);
    world.write("src/large", &bytes);
    let cp = |options: &[&str]| {
        let mut command = world.cp(&["--lab", "block-size=64K", "--verify", "media"]);
        command.args(["--sink", "io=buffered"]).args(options);
        mounted.command(&command)
    };
    let mut stopped = start(cp(&["--bwlimit", "8M"]));
    let sink = stopped.other_end();
    assert!(stopped.runs_until_written(sink, 2 << 20), "over before stopped");
    stopped.signal("TERM");
    stopped.end().expect(9);
    wait_until_gone(sink);

    let target = mounted.seen();
    let blocks = blocks_on_record(&target, "large");
    let block = blocks.first().expect("what was written is on record");
    let offset = usize::try_from(block.offset).unwrap();
    let mut part = None;
    visit(&target, &mut |path, _| {
        if is_own_name(path) && path.extension().is_some_and(|it| it == "part") {
            part = Some(path.to_owned());
        }
    });
    let part = part.expect("it has begun");
    damage(&world.path("image"), &bytes[offset..][..PAGE_BYTES]);
    // An ordinary read still returns the right data from the cache.
    let cached = fs::read(&part).unwrap();
    assert!(cached[offset..][..PAGE_BYTES] == bytes[offset..][..PAGE_BYTES], "it is not cached");
    assert!(read_from_storage(&part)[offset] != bytes[offset], "nothing was damaged");

    let ended = run(cp(&[])).expect(0);
    assert!(ended.count("bytes_skipped") > 0, "it began anew: {ended:?}");
    assert_eq!(ended.count("blocks_resent"), 1, "{ended:?}");
    assert!(read_from_storage(&target.join("large")) == bytes, "the damage is still there");
    assert_nothing_left_over(&target);
}
