//! `--source io=uncached` and `--sink io=uncached` leave nothing in the page cache, and a file
//! system that does not take them makes no transfer fail.

use crate::world::{Rng, World, assert_identical, not_tried, run};
use std::fs::File;
use std::path::Path;

const LENGTH: usize = (5 << 19) + 77;

/// How many bytes of a file the page cache holds.
fn resident(path: &Path) -> u64 {
    let file = File::open(path).unwrap();
    let length = usize::try_from(file.metadata().unwrap().len()).unwrap();
    lads_sys::resident_bytes(&file, 0, length).unwrap()
}

/// A large and a small file, of which the page cache holds nothing; `None` if it is their storage.
fn world_not_cached() -> Option<World> {
    let world = World::on_disk();
    let large = world.write("src/large", &Rng::new(1).bytes(LENGTH));
    let small = world.write("src/small", &Rng::new(2).bytes(5000));
    for path in [&large, &small] {
        let file = File::open(path).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        if resident(path) > 0 {
            not_tried("temporary files lie in the page cache");
            return None;
        }
    }
    Some(world)
}

#[test]
fn what_is_read_and_written_uncached_does_not_stay_in_the_page_cache() {
    for mode in ["uncached", "buffered"] {
        let Some(world) = world_not_cached() else { return };
        let [source, sink] = ["source", "sink"].map(|end| format!("--{end}=io={mode}"));
        run(world.cp(&[&source, &sink])).expect(0);
        for end in [world.source(), world.target()] {
            for name in ["large", "small"] {
                let path = end.join(name);
                // The kernel may keep a little that it read ahead, and that nobody asked for.
                let is_cached = resident(&path) > path.metadata().unwrap().len() / 2;
                assert_eq!(is_cached, mode == "buffered", "{mode} {}", path.display());
            }
        }
        assert_identical(&world.source(), &world.target());
    }
}

/// Memory is nothing but page cache: no kernel drops what is written there.
#[test]
fn a_file_system_that_does_not_take_uncached_io_is_told_of_once_at_each_end() {
    let world = World::new();
    for number in 0..20 {
        world.write(format!("src/{number}"), &Rng::new(number).bytes(LENGTH / 8));
    }
    let ended = run(world.cp(&["--source", "io=uncached", "--sink", "io=uncached"])).expect(0);
    assert_identical(&world.source(), &world.target());
    let notices = ended.events_of("notice");
    if notices.is_empty() {
        return not_tried("there is no file system in memory");
    }
    for end in ["source", "sink"] {
        let words = format!("the {end} file system does not support uncached I/O");
        let told = notices.iter().filter(|it| it["text"].as_str().unwrap().contains(&words));
        assert_eq!(told.count(), 1, "{ended:?}");
    }
}
