//! The order in which a sink makes things durable and reports them, seen in its system calls. A
//! power cut shows a wrong order only if it comes at the right moment; this test shows it always.

use crate::trace::{Call, Trace};
use crate::world::{Rng, World};
use lads_core::journal::{BlockRecord, replay};
use lads_core::message::{Ending, Message};
use lads_core::range::RangeSet;
use lads_core::units::EntryId;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

const BLOCK_BYTES: u64 = 64 << 10;
const LARGE_BYTES: u64 = 16 * BLOCK_BYTES + 99;
const SMALL_COUNT: usize = 12;

/// Pushes a file of several blocks and some small ones; returns the trace of the sink. It takes two
/// seconds, so that blocks go on record before the large file is whole.
fn traced(options: &[&str]) -> Option<(World, Trace)> {
    let world = World::new();
    let mut rng = Rng::new(1);
    world.write("src/large", &rng.bytes(usize::try_from(LARGE_BYTES).unwrap()));
    for number in 0..SMALL_COUNT {
        world.write(format!("src/d{}/small{number}", number % 2), &rng.bytes(1000 + number));
    }
    let trace = Trace::of_sink(
        &world,
        &[&["--lab", "block-size=64K", "--bwlimit", "512K"], options].concat(),
    )?;
    Some((world, trace))
}

/// Returns the paths of the entries that the source announced.
fn announced(world: &World, trace: &Trace) -> HashMap<EntryId, PathBuf> {
    let mut paths = HashMap::from([(EntryId::ROOT, world.target())]);
    for said in &trace.heard {
        let Message::NewFile(entries) = &said.message else { continue };
        for entry in entries {
            let path = match entry.name.as_slice() {
                b"." => paths[&entry.parent].clone(),
                name => paths[&entry.parent].join(OsStr::from_bytes(name)),
            };
            paths.insert(entry.id, path);
        }
    }
    paths
}

/// A write to the journal, and the blocks of the large file that it puts on record for the first
/// time.
struct Recorded {
    journal: PathBuf,
    begin: usize,
    end: usize,
    blocks: Vec<BlockRecord>,
}

fn recorded(trace: &Trace) -> Vec<Recorded> {
    let is_journal = |path: &Path| path.to_str().is_some_and(|path| path.contains(".journal"));
    let mut bytes: Vec<u8> = Vec::new();
    let mut count_before = 0;
    let mut all = Vec::new();
    for call in trace.calls(|call| call.name == "pwrite64" && is_journal(&call.handles[0])) {
        let range = call.range();
        let [start, end] = [range.start, range.end].map(|at| usize::try_from(at).unwrap());
        bytes.resize(bytes.len().max(end), 0);
        bytes[start..end].copy_from_slice(&call.texts[0]);
        let Some(begun) = replay(&bytes).files.remove(b"large".as_slice()) else { continue };
        let blocks = begun.blocks[count_before..].to_vec();
        count_before = begun.blocks.len();
        let (begin, end, journal) = (call.begin, call.end, call.handles[0].clone());
        all.push(Recorded { journal, begin, end, blocks });
    }
    all
}

fn range_of(block: &BlockRecord) -> Range<u64> {
    block.offset..block.offset + u64::from(block.length)
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

/// Returns the temporary name from which a file was renamed to its own.
fn part_of(trace: &Trace, path: &Path) -> PathBuf {
    let mut renames = trace.calls.iter().filter_map(Call::renames);
    renames.find(|(_, to)| to == path).unwrap_or_else(|| panic!("{path:?} got no name")).0
}

#[test]
fn data_is_durable_before_it_is_on_record_and_on_record_before_it_is_said_to_be_done() {
    for options in [&[][..], &["--sink", "io=direct"]] {
        let Some((world, trace)) = traced(options) else { return };
        let part = part_of(&trace, &world.target().join("large"));
        let records = recorded(&trace);
        for record in &records {
            for range in record.blocks.iter().map(range_of) {
                let writes = trace.calls(|it| it.writes(&part) && overlap(&it.range(), &range));
                let written = writes.map(|it| it.end).max().expect("it was written");
                let is_durable = trace.is_synced(&part, written, record.begin);
                assert!(is_durable, "{range:?} was on record before it was durable");
            }
        }
        let paths = announced(&world, &trace);
        let last_written = trace.calls(|it| it.writes(&part)).map(|it| it.end).max();
        let all_written = last_written.expect("it was written");
        let mut said_to_be_done = RangeSet::new();
        let mut on_record_count = 0;
        for said in &trace.told {
            let Message::BlockDone(ranges) = &said.message else { continue };
            for done in ranges {
                assert_eq!(paths[&done.entry], world.target().join("large"));
                let done = done.offset..done.offset + done.length;
                if said.begin < all_written {
                    is_on_record(&trace, &records, &done, said.begin);
                    on_record_count += 1;
                }
                said_to_be_done.insert(done);
            }
        }
        // Otherwise the loop would have checked nothing.
        assert_eq!(said_to_be_done.byte_count(), LARGE_BYTES);
        assert!(on_record_count > 0, "nothing went on record before all was written");
    }
}

/// Asserts that all blocks of a range were durably on record before this line of the trace.
fn is_on_record(trace: &Trace, records: &[Recorded], done: &Range<u64>, before: usize) {
    let durable = records.iter().filter(|it| trace.is_synced(&it.journal, it.end, before));
    let durable: RangeSet = durable.flat_map(|it| it.blocks.iter().map(range_of)).collect();
    assert!(durable.contains(done.clone()), "{done:?} was said to be done and not on record");
}

#[test]
fn a_file_is_durable_before_it_has_its_name_and_its_name_before_it_is_said_to_be_done() {
    for options in [&[][..], &["--lab=journal=no"]] {
        let Some((world, trace)) = traced(options) else { return };
        let paths = announced(&world, &trace);
        let mut count = 0;
        for said in &trace.told {
            let Message::FileDone(endings) = &said.message else { continue };
            for path in endings.iter().filter(|it| it.1 == Ending::Complete).map(|it| &paths[&it.0])
            {
                let renamed = |call: &&Call| call.renames().is_some_and(|(_, to)| to == *path);
                let Some(rename) = trace.calls.iter().find(renamed) else {
                    assert!(path.is_dir(), "{path:?} is done and has no name");
                    continue;
                };
                let (part, _) = rename.renames().unwrap();
                let writes = trace.calls(|call| call.writes(&part)).map(|call| call.end);
                let written = writes.max().expect("none of the files is empty");
                let is_durable = trace.is_synced(&part, written, rename.begin);
                assert!(is_durable, "{path:?} got its name before it was durable");
                let is_named = trace.is_synced(&rename.handles[1], rename.end, said.begin);
                assert!(is_named, "{path:?} was said to be done before its name was durable");
                count += 1;
            }
        }
        assert_eq!(count, SMALL_COUNT + 1);
    }
}

#[test]
fn the_journal_is_durable_before_it_has_its_name_and_its_end_is_durable_too() {
    let Some((world, trace)) = traced(&[]) else { return };
    let is_of_journal = |path: &Path| path.to_str().is_some_and(|it| it.ends_with(".journal"));
    let renamed = |call: &&Call| call.renames().is_some_and(|(_, to)| is_of_journal(&to));
    let rename = trace.calls.iter().find(renamed).expect("a journal is begun");
    let (new, _) = rename.renames().unwrap();
    assert!(trace.is_synced(&new, 0, rename.begin));
    let records = recorded(&trace);
    assert!(trace.is_synced(&world.target(), rename.end, records[0].begin));
    let is_removal = |call: &Call| {
        call.name == "unlinkat" && is_of_journal(Path::new(OsStr::from_bytes(&call.texts[0])))
    };
    let removed = trace.calls(is_removal).last().expect("the journal is removed").end;
    let finished = trace.told.iter().find(|said| matches!(said.message, Message::Finished(_)));
    let finished = finished.expect("the sink says that it has finished").begin;
    assert!(trace.is_synced(&world.target(), removed, finished), "it may come back");
}
