//! A tree over several file systems: each of them counts as a target, at either end.

use crate::world::{LADS, Mounted, Rng, World, has, is_root, run};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::process::Command;

/// The mounts below source and target, and how many files of 1 MiB each holds.
const MOUNTS: [(&str, u64); 2] = [("first", 3), ("second", 5)];

/// Makes a source over two mounts, and a target over two mounts.
fn mounted(world: &World) -> Option<Mounted> {
    if !is_root() || !has("unshare") {
        return None;
    }
    let mounted = Mounted::tmpfs(&world.path("src/first"), "size=32m")?;
    for path in ["src/second", "dst/first", "dst/second"] {
        mounted.mount_too(&world.path(path));
    }
    for (name, count) in MOUNTS {
        for number in 0..count {
            let bytes = Rng::new(number).bytes(1 << 20);
            let directory = mounted.seen_at(&world.source()).join(name);
            fs::write(directory.join(number.to_string()), bytes).unwrap();
        }
    }
    Some(mounted)
}

#[test]
fn every_mount_below_the_source_and_below_the_target_is_a_target_of_its_own() {
    let world = World::new();
    let Some(mounted) = mounted(&world) else { return };
    let ended = run(mounted.command(&world.cp(&[]))).expect(0);
    let summary = ended.summary();
    for (side, root) in [("source", world.source()), ("sink", world.target())] {
        let busiest = &summary[side]["busiest_ost"];
        let (name, count) = MOUNTS
            .into_iter()
            .find(|(name, _)| busiest["name"].as_str() == root.join(name).to_str())
            .unwrap_or_else(|| panic!("{side}: {busiest}"));
        assert_eq!(busiest["bytes"].as_u64(), Some(count << 20), "{side}: all of {name}, no more");
    }
    let device = |path: &str| mounted.seen_at(&world.path(path)).metadata().unwrap().dev();
    assert_ne!(device("dst/first/0"), device("dst/second/0"));
    for (name, count) in MOUNTS {
        for number in 0..count {
            let [source, target] = [world.source(), world.target()].map(|root| {
                fs::read(mounted.seen_at(&root).join(name).join(number.to_string())).unwrap()
            });
            assert!(source == target, "{name}/{number}");
        }
    }
}

#[test]
fn every_mount_below_a_place_is_shown_with_its_targets() {
    let world = World::new();
    let Some(mounted) = mounted(&world) else { return };
    let root = world.source();
    let mut command = Command::new(LADS);
    command.args(["osts", "--json"]).arg(&root);
    let output = mounted.command(&command).output().unwrap();
    let names: Vec<Value> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["name"].clone())
        .collect();
    let own =
        names.iter().filter(|name| name.as_str().unwrap().starts_with(root.to_str().unwrap()));
    assert_eq!(own.count(), MOUNTS.len(), "{names:?}");
}

#[test]
fn two_sources_on_two_mounts_are_two_targets() {
    let world = World::new();
    let Some(mounted) = mounted(&world) else { return };
    let sources = MOUNTS.map(|(name, _)| world.source().join(name));
    let mut command = Command::new(LADS);
    command.args(["cp", "--json"]).args(&sources).arg(world.target());
    let summary = run(mounted.command(&command)).expect(0).summary();
    let busiest = &summary["source"]["busiest_ost"];
    let of =
        |(name, _): &(&str, u64)| busiest["name"].as_str() == world.source().join(name).to_str();
    let (name, count) = MOUNTS.into_iter().find(of).unwrap_or_else(|| panic!("{busiest}"));
    assert_eq!(busiest["bytes"].as_u64(), Some(count << 20), "all of {name}, no more");
}
