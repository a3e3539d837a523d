use super::*;
use crate::remote::policy::NEAR_BYTES;
use proptest::prelude::*;
use std::sync::Arc;

const FILE: FileNumber = FileNumber(1);
/// Tests move cells: this many bytes, 16 in a chunk.
const CELL: u64 = CHUNK_BYTES / 16;

/// The bytes of a chunk: one number for each cell.
type Cells = Arc<Vec<u64>>;

impl ChunkBytes for Cells {
    fn take_in(&mut self, from: &Self, part: Range<usize>) -> bool {
        let cells = cells(&(part.start as u64..part.end as u64));
        let Some(own) = Self::get_mut(self) else { return false };
        own[cells.clone()].copy_from_slice(&from[cells]);
        true
    }
}

fn cells(positions: &Range<u64>) -> Range<usize> {
    let place = |it: u64| usize::try_from(it / CELL).unwrap();
    place(positions.start)..place(positions.end)
}

fn reading(chunks_max: u32, slots: u64, prefetch: Prefetch) -> Reading<Cells> {
    let slots = Slots::new(slots * CHUNK_BYTES, FRAME_BYTES, 2);
    let mut reading = Reading::new(chunks_max, slots);
    reading.begin_view(FILE, prefetch);
    reading.begin(FILE, &(0..0));
    reading
}

fn zeros() -> Cells {
    Arc::new(vec![0; 16])
}

fn at(start: u64, count: u64) -> Range<u64> {
    start * CELL..(start + count) * CELL
}

/// Everything that is read ahead now, in cells; the answers are all there.
fn ahead(reading: &mut Reading<Cells>) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    while let Some((_, positions)) = reading.next_ahead(|_, _| true) {
        let number = 1000 + found.len() as u64;
        reading.fetch_ahead(number, FILE, &positions);
        reading.on_fetched(number, positions.end - positions.start, Some(&mut zeros()));
        found.push((positions.start / CELL, positions.end / CELL));
    }
    found
}

fn read(reading: &mut Reading<Cells>, start: u64, count: u64) {
    reading.begin(FILE, &at(start, count));
    if let Found::Missing(positions) = reading.find(FILE, &at(start, count)) {
        reading.fetch(1, FILE, &positions, reading.files[&FILE].changes);
        reading.on_fetched(1, positions.end - positions.start, Some(&mut zeros()));
    }
}

#[test]
fn reads_that_follow_each_other_are_run_ahead_of_further_and_further() {
    let mut reading = reading(9, 0, Prefetch::Auto);
    read(&mut reading, 0, 1);
    assert_eq!(ahead(&mut reading), []);
    read(&mut reading, 1, 1);
    assert_eq!(ahead(&mut reading), [(2, 4)]);
    read(&mut reading, 2, 1);
    assert_eq!(ahead(&mut reading), [(4, 7)]);
    read(&mut reading, 3, 1);
    assert_eq!(ahead(&mut reading), [(7, 12)]);
    read(&mut reading, 4, 1);
    assert_eq!(ahead(&mut reading), [(12, 16)], "from now on up to the end of a chunk");
    read(&mut reading, 5, 1);
    assert_eq!(ahead(&mut reading), [(16, 32)]);
    (6..9).for_each(|it| read(&mut reading, it, 1));
    let all = ahead(&mut reading);
    assert_eq!((all.first(), all.last()), (Some(&(32, 48)), Some(&(112, 128))));
}

#[test]
fn one_distance_is_followed_in_both_directions() {
    for distance in [40, -40] {
        let mut reading = reading(4, 0, Prefetch::Auto);
        let start = |number: i64| u64::try_from(1000 + number * distance).unwrap();
        read(&mut reading, start(0), 1);
        read(&mut reading, start(1), 1);
        assert_eq!(ahead(&mut reading), []);
        read(&mut reading, start(2), 1);
        assert_eq!(ahead(&mut reading), [3, 4].map(|it| (start(it), start(it) + 1)));
    }
}

/// Processes that read records in turn through a shared pointer.
#[test]
fn reads_that_nearly_follow_each_other_are_run_ahead_of() {
    let mut reading = reading(9, 0, Prefetch::Auto);
    let mut start = 0;
    for gap in [64, 192, 64, NEAR_BYTES] {
        reading.begin(FILE, &(start..start + 64));
        start += 64 + gap;
    }
    reading.begin(FILE, &(start..start + 64));
    let next = reading.next_ahead(|_, _| true).map(|it| it.1);
    assert_eq!(next.map(|it| it.start), Some(start + 64), "all of what comes next");
    reading.begin(FILE, &(start + 64 + NEAR_BYTES + 1..start + 129 + NEAR_BYTES));
    assert_eq!(reading.next_ahead(|_, _| true), None);
}

#[test]
fn who_was_wrong_waits_for_more_regular_reads() {
    let mut reading = reading(9, 0, Prefetch::Auto);
    let mut run = |start: u64| -> u64 {
        for count in 0.. {
            read(&mut reading, start + count, 1);
            if !ahead(&mut reading).is_empty() {
                return count;
            }
        }
        unreachable!()
    };
    let needed = [0, 1000, 3000, 9000, 27000, 81000, 300_000].map(&mut run);
    assert_eq!(needed, [1, 2, 4, 8, 16, 16, 16]);
}

#[test]
fn with_a_hint_the_beginning_is_read_at_once_and_without_nothing() {
    let mut always = reading(4, 0, Prefetch::Always);
    assert_eq!(ahead(&mut always), [(0, 16), (16, 32), (32, 48)]);
    // Far away: what was read ahead is not needed any more.
    read(&mut always, 160, 16);
    assert_eq!(ahead(&mut always), [(176, 192), (192, 208), (208, 224)]);
    for prefetch in [Prefetch::Never, Prefetch::Off] {
        let mut reading = reading(4, 0, prefetch);
        (0..9).for_each(|it| read(&mut reading, it, 1));
        assert_eq!(ahead(&mut reading), []);
        let is_kept = reading.find(FILE, &at(3, 1)) != Found::Missing(at(3, 1));
        assert_eq!(is_kept, prefetch == Prefetch::Never);
    }
}

#[test]
fn one_place_and_one_chunk_stay_for_reads_that_are_waited_for() {
    let mut reading = reading(9, 0, Prefetch::Always);
    for number in 0..3 {
        let (_, positions) = reading.next_ahead(|_, _| true).unwrap();
        reading.fetch_ahead(number, FILE, &positions);
    }
    assert_eq!(reading.next_ahead(|_, _| true), None);
    assert_eq!(reading.find(FILE, &at(2, 20)), Found::Coming(0, at(2, 14)));
    assert_eq!(
        reading.next_ahead(|_, _| true),
        Some((FILE, at(48, 16))),
        "now it waits for one of them"
    );
    assert!(reading.is_coming(0) && reading.is_ahead(0));
}

#[test]
fn one_chunk_stays_for_reads_that_are_waited_for_if_several_files_are_read_ahead() {
    let mut reading = reading(4, 0, Prefetch::Always);
    reading.begin_view(FileNumber(2), Prefetch::Always);
    for number in 0..3 {
        let (file, positions) = reading.next_ahead(|_, _| true).unwrap();
        reading.fetch_ahead(number, file, &positions);
        reading.on_fetched(number, CHUNK_BYTES, Some(&mut zeros()));
    }
    assert_eq!(reading.next_ahead(|_, _| true), None);
}

#[test]
fn a_new_hint_is_followed_at_once() {
    let mut reading = reading(4, 0, Prefetch::Never);
    assert_eq!(ahead(&mut reading), []);
    reading.set_prefetch(FILE, Prefetch::Always);
    assert_eq!(ahead(&mut reading), [(0, 16), (16, 32), (32, 48)]);
}

#[test]
fn only_requests_that_overlap_with_a_write_are_stale() {
    let mut reading = reading(9, 0, Prefetch::Never);
    reading.fetch(1, FILE, &at(4, 2), reading.files[&FILE].changes);
    reading.on_write(FILE, &at(2, 2));
    reading.on_write(FILE, &at(6, 2));
    assert!(reading.place_of(1).is_some());
    reading.on_write(FILE, &at(5, 2));
    assert_eq!(reading.place_of(1), None);
}

#[test]
fn no_answer_is_expected_when_the_connection_is_lost() {
    let mut reading = reading(9, 0, Prefetch::Always);
    reading.fetch_ahead(0, FILE, &at(0, 16));
    assert!(reading.is_coming(0));
    reading.clear();
    assert!(!reading.is_coming(0));
}

#[test]
fn a_file_that_must_wait_holds_up_no_other() {
    let mut reading = reading(9, 0, Prefetch::Always);
    let other = FileNumber(2);
    reading.begin_view(other, Prefetch::Always);
    assert_eq!(reading.next_ahead(|_, _| true), Some((FILE, at(0, 16))));
    assert_eq!(reading.next_ahead(|file, _| file != FILE), Some((other, at(0, 16))));
    assert_eq!(reading.next_ahead(|_, _| false), None);
}

#[test]
fn without_memory_nothing_is_kept_or_read_ahead() {
    for chunks_max in 0..2 {
        let mut reading = reading(chunks_max, 9, Prefetch::Always);
        (0..40).for_each(|it| read(&mut reading, it, 1));
        assert_eq!(ahead(&mut reading), []);
        let is_kept = reading.find(FILE, &at(39, 1)) != Found::Missing(at(39, 1));
        assert_eq!(is_kept, chunks_max == 1);
    }
}

#[test]
fn nothing_is_read_ahead_behind_the_end() {
    let mut reading = reading(9, 0, Prefetch::Always);
    let (_, positions) = reading.next_ahead(|_, _| true).unwrap();
    reading.fetch_ahead(0, FILE, &positions);
    reading.on_fetched(0, CELL, Some(&mut zeros()));
    assert_eq!(reading.next_ahead(|_, _| true), None);
    let cell = usize::try_from(CELL).unwrap();
    assert_eq!(reading.find(FILE, &at(0, 9)), Found::Here(zeros(), 0..cell));
    assert_eq!(reading.find(FILE, &at(1, 8)), Found::Missing(at(1, 8)));
    reading.forget(FILE);
    assert_eq!(reading.next_ahead(|_, _| true), None, "the program may have written");
    reading.begin(FILE, &at(0, 1));
    assert!(reading.next_ahead(|_, _| true).is_some(), "somebody may have made it longer");
}

#[test]
fn only_what_is_missing_is_asked_for() {
    let mut reading = reading(9, 0, Prefetch::Never);
    read(&mut reading, 4, 4);
    reading.fetch(7, FILE, &at(12, 2), reading.files[&FILE].changes);
    let mut parts = Vec::new();
    let mut place = 2;
    while place < 20 {
        let (what, end) = match reading.find(FILE, &at(place, 20 - place)) {
            Found::Here(_, part) => ("here", part.end as u64 / CELL),
            Found::Coming(_, it) => ("coming", it.end / CELL),
            Found::Missing(it) => ("missing", it.end / CELL),
            Found::OnDisk(..) => unreachable!(),
        };
        parts.push((what, end));
        place = end;
    }
    let expected = [("missing", 4), ("here", 8), ("missing", 12), ("coming", 14), ("missing", 16)];
    assert_eq!(parts, [&expected[..], &[("missing", 20)]].concat());
}

#[test]
fn a_disk_that_fails_is_not_used_again() {
    let mut reading = reading(2, 9, Prefetch::Never);
    let save = |reading: &mut Reading<Cells>, start| {
        read(reading, start, 16);
        reading.next_save()
    };
    let saved = save(&mut reading, 0).unwrap();
    reading.on_saved(saved, Some(0));
    let saved = save(&mut reading, 16).unwrap();
    read(&mut reading, 32, 16);
    assert!(matches!(reading.find(FILE, &at(0, 1)), Found::OnDisk(..)), "its memory was needed");
    reading.on_saved(saved, None);
    assert_eq!(reading.find(FILE, &at(0, 1)), Found::Missing(at(0, 1)));
    assert!(save(&mut reading, 48).is_none());
}

/// A program, the server's file, and a disk; numbers in cells only grow.
struct World {
    reading: Reading<Cells>,
    server: Vec<u64>,
    /// Own writes that are not at the server.
    unsent: Vec<(usize, u64)>,
    /// What a read must see at least: the last own write, or what was there at the last sync.
    least: Vec<u64>,
    /// Requests: which positions, and what was there when they were asked for.
    asked: BTreeMap<u64, (Range<u64>, Vec<u64>)>,
    disk: HashMap<Slot, Vec<u64>>,
    saving: Vec<Save<Cells>>,
    stamp: u64,
}

const CELLS: usize = 90;

impl World {
    fn new(prefetch: Prefetch) -> Self {
        Self {
            reading: reading(3, 2, prefetch),
            server: vec![0; CELLS],
            unsent: Vec::new(),
            least: vec![0; CELLS],
            asked: BTreeMap::new(),
            disk: HashMap::new(),
            saving: Vec::new(),
            stamp: 0,
        }
    }

    fn write(&mut self, start: usize, count: usize) {
        let end = (start + count).min(CELLS);
        self.reading.on_write(FILE, &at(start as u64, (end - start) as u64));
        self.stamp += 1;
        for cell in start..end {
            self.unsent.push((cell, self.stamp));
            self.least[cell] = self.stamp;
        }
    }

    fn ask(&mut self, positions: &Range<u64>) -> u64 {
        self.stamp += 1;
        self.asked.insert(self.stamp, (positions.clone(), self.server.clone()));
        self.stamp
    }

    /// An answer comes: what was there when it was asked for, or what is there now.
    fn answer(&mut self, number: u64, is_old: bool) -> (Range<u64>, Cells) {
        let (positions, old) = self.asked.remove(&number).unwrap();
        let there = if is_old { &old } else { &self.server };
        let wanted = cells(&positions);
        let got = wanted.start.min(CELLS)..wanted.end.min(CELLS);
        let first = wanted.start / 16 * 16;
        let mut bytes = vec![u64::MAX; 16];
        for cell in got.clone() {
            bytes[cell - first] = there[cell];
        }
        if let Some(place) = self.reading.place_of(number) {
            assert_eq!(place as u64, (wanted.start - first) as u64 * CELL);
        }
        let mut bytes = Arc::new(bytes);
        self.reading.on_fetched(number, got.len() as u64 * CELL, Some(&mut bytes));
        (at(got.start as u64, got.len() as u64), bytes)
    }

    fn check(&self, positions: &Range<u64>, bytes: &Cells, is_checked: bool) {
        for cell in cells(positions) {
            let value = bytes[cell % 16];
            assert!(value != u64::MAX, "cell {cell} was never there");
            assert!(!is_checked || value >= self.least[cell], "cell {cell}: {value} is too old");
        }
    }

    fn read(&mut self, start: usize, count: usize, write: Option<usize>, is_old: bool) {
        let wanted = at(start as u64, count as u64);
        std::mem::take(&mut self.unsent).into_iter().for_each(|(cell, it)| self.server[cell] = it);
        let changes = self.reading.begin(FILE, &wanted);
        // Another thread writes what this one reads: it may see either, but keep nothing old.
        if let Some(cell) = write {
            self.write(cell, 3);
        }
        let mut at = wanted.start;
        while at < wanted.end && at < CELLS as u64 * CELL {
            let chunk = at / CHUNK_BYTES * CHUNK_BYTES;
            match self.reading.find(FILE, &(at..wanted.end)) {
                Found::Here(bytes, part) => {
                    let found = chunk + part.start as u64..chunk + part.end as u64;
                    assert_eq!(found.start, at);
                    self.check(&found, &bytes, write.is_none());
                    at = found.end;
                }
                Found::OnDisk(load, part) => {
                    let mut bytes = Arc::new(self.disk[&load.slot].clone());
                    let found = chunk + part.start as u64..chunk + part.end as u64;
                    self.check(&found, &bytes, write.is_none());
                    self.reading.on_loaded(load, Some(&mut bytes));
                    at = found.end;
                }
                Found::Coming(number, _) => drop(self.answer(number, is_old)),
                Found::Missing(missing) => {
                    assert_eq!(missing.start, at);
                    let number = self.ask(&missing);
                    self.reading.fetch(number, FILE, &missing, changes);
                    let (got, bytes) = self.answer(number, is_old);
                    self.check(&got, &bytes, write.is_none());
                    at = missing.end;
                }
            }
        }
    }

    fn step(&mut self, (what, place, count): (u8, u8, u8)) {
        let (place, count) = (usize::from(place) % CELLS, usize::from(count) % 20 + 1);
        match what % 16 {
            0..3 => self.write(place, count),
            3..6 => self.read(place, count, None, what >= 128),
            6 => self.read(place, count, Some((place + count / 2) % CELLS), what >= 128),
            // Several in a row.
            7 => (place..(place + 12).min(CELLS)).for_each(|it| self.read(it, 1, None, false)),
            8..11 => {
                if let Some((_, positions)) = self.reading.next_ahead(|_, _| true) {
                    let number = self.ask(&positions);
                    self.reading.fetch_ahead(number, FILE, &positions);
                }
            }
            11 | 12 => {
                let number = self.asked.keys().nth(place % self.asked.len().max(1)).copied();
                number.into_iter().for_each(|number| drop(self.answer(number, what >= 128)));
            }
            13 => {
                // Another process writes.
                self.stamp += 1;
                let end = (place + count).min(CELLS);
                self.server[place..end].fill(self.stamp);
            }
            14 => {
                // Sync: what others have written is to be seen.
                std::mem::take(&mut self.unsent)
                    .into_iter()
                    .for_each(|(cell, it)| self.server[cell] = it);
                self.reading.forget(FILE);
                self.least.clone_from(&self.server);
            }
            _ if count > 10 => self.saving.extend(self.reading.next_save()),
            _ if !self.saving.is_empty() => {
                let save = self.saving.swap_remove(place % self.saving.len());
                self.disk.insert(save.slot, save.bytes.to_vec());
                self.reading.on_saved(save, (what != 255).then_some(0));
            }
            _ => {}
        }
        assert!(self.reading.memory.len() <= 3 && self.reading.disk.len() <= 2);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// A read sees all own writes, and what was there at the last sync, whatever was kept, read
    /// ahead, put on the disk or brought back meanwhile.
    #[test]
    fn nothing_is_read_that_is_too_old(
        is_always: bool,
        steps in prop::collection::vec(any::<(u8, u8, u8)>(), 1..120),
    ) {
        let prefetch = if is_always { Prefetch::Always } else { Prefetch::Auto };
        let mut world = World::new(prefetch);
        steps.into_iter().for_each(|step| world.step(step));
    }
}
