//! What a client keeps of the bytes that it has read, and what it reads ahead (the RFS paper,
//! section 5.1).
//!
//! The stream of a view is cut into chunks of [`FRAME_BYTES`]. A chunk that holds something has a
//! buffer in memory, a slot of a file on a local disk, or both, and a set of the positions that it
//! holds. When there is no room, the chunk goes that was used least recently.
//!
//! What is read ahead is what would come next if the program went on as it does (`pattern.rs`). The
//! more often that was right, the further it goes; when it was wrong, it starts over, and the
//! program must go on regularly for longer.
//!
//! Nothing is kept beyond what could change it: a write of these positions, and whatever makes the
//! writes of others visible ([`Reading::forget`]). An answer that is in flight then is used by
//! whoever asked for it, and not kept. After that nothing is read ahead until the program reads
//! again, which is when its own writes have been put in order.

mod pattern;

use super::message::{FRAME_BYTES, FileNumber};
use super::policy::AHEAD_MAX;
use crate::range::RangeSet;
use crate::staging::{Slot, Slots};
use pattern::Pattern;
pub use pattern::Prefetch;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

const CHUNK_BYTES: u64 = FRAME_BYTES as u64;

/// A buffer for a chunk, shared with whoever copies from it.
pub trait ChunkBytes: Clone {
    /// Copies a part of another buffer to the same place of this one. Returns `false` if that
    /// cannot be done because somebody else uses this one.
    fn take_in(&mut self, from: &Self, part: Range<usize>) -> bool;
}

/// What a connection keeps.
#[derive(Debug)]
pub struct Reading<B> {
    files: BTreeMap<FileNumber, File>,
    memory: BTreeMap<Key, Chunk<B>>,
    chunks_max: usize,
    disk: BTreeMap<Key, Kept>,
    slots: Slots,
    /// What was asked for, by the number of the request.
    under_way: HashMap<u64, Fetch>,
    /// Chunks on their way to the disk, or back: with each, whether it is still to be kept.
    moving: HashMap<u64, (Key, bool)>,
    /// Counts what was done: what was used last has the largest number.
    clock: u64,
}

/// A chunk of the view of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    file: FileNumber,
    index: u64,
}

#[derive(Debug)]
struct File {
    prefetch: Prefetch,
    pattern: Pattern,
    /// From here on nothing was there when it was read ahead.
    end: u64,
    /// Nothing is read ahead until the program reads again.
    is_paused: bool,
    /// How often what was kept was forgotten, or written over.
    changes: u64,
}

#[derive(Debug)]
struct Chunk<B> {
    bytes: B,
    valid: RangeSet,
    used: u64,
    /// It was read ahead, and the program has not come to its end.
    is_ahead: bool,
    /// It is on the disk, or was not worth it.
    is_saved: bool,
}

#[derive(Debug)]
struct Kept {
    slot: Slot,
    valid: RangeSet,
    /// What is in the slot: how many bytes, and their checksum.
    length: u32,
    checksum: u64,
    used: u64,
}

#[derive(Debug)]
struct Fetch {
    file: FileNumber,
    positions: Range<u64>,
    is_ahead: bool,
    /// Somebody waits for it.
    is_waited_for: bool,
    is_stale: bool,
}

/// Where the first bytes of what is to be read are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found<B> {
    /// In this part of a buffer.
    Here(B, Range<usize>),
    /// In this part of a chunk on the disk.
    OnDisk(Load, Range<usize>),
    /// These have been asked for, with this request.
    Coming(u64, Range<u64>),
    /// These must be asked for; they are in one chunk.
    Missing(Range<u64>),
}

/// A chunk that is being brought back from the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    id: u64,
    valid: RangeSet,
    /// Where it is.
    pub slot: Slot,
    /// How many bytes are there.
    pub length: u32,
    /// Their checksum.
    pub checksum: u64,
}

/// A chunk that is being put on the disk.
#[derive(Clone, Debug)]
pub struct Save<B> {
    id: u64,
    valid: RangeSet,
    /// Where it goes.
    pub slot: Slot,
    /// Its buffer.
    pub bytes: B,
    /// How many bytes of it.
    pub length: u32,
}

impl Key {
    fn of(file: FileNumber, position: u64) -> Self {
        Self { file, index: position / CHUNK_BYTES }
    }

    fn positions(self) -> Range<u64> {
        let start = self.index * CHUNK_BYTES;
        start..start.saturating_add(CHUNK_BYTES)
    }

    /// Where positions lie in the chunk.
    fn part(self, positions: &Range<u64>) -> Range<usize> {
        let place = |it: u64| usize::try_from(it - self.positions().start).expect("it is inside");
        place(positions.start)..place(positions.end)
    }

    fn all(file: FileNumber, positions: &Range<u64>) -> std::ops::RangeInclusive<Self> {
        let last = positions.end.saturating_sub(1);
        Self::of(file, positions.start)..=Self::of(file, last)
    }
}

impl<B: ChunkBytes> Reading<B> {
    /// Room for this many chunks in memory, and for others on a disk.
    #[must_use]
    pub fn new(chunks_max: u32, slots: Slots) -> Self {
        Self {
            files: BTreeMap::new(),
            memory: BTreeMap::new(),
            chunks_max: chunks_max as usize,
            disk: BTreeMap::new(),
            slots,
            under_way: HashMap::new(),
            moving: HashMap::new(),
            clock: 0,
        }
    }

    /// A view of a file is set: nothing of it is known.
    pub fn begin_view(&mut self, file: FileNumber, prefetch: Prefetch) {
        self.forget(file);
        let changes = self.files.get(&file).map_or(0, |it| it.changes);
        let pattern = Pattern::new();
        let new = File { prefetch, pattern, end: u64::MAX, is_paused: false, changes };
        self.files.insert(file, new);
    }

    /// From now on a file is read like this. All that the program has written is known here.
    pub fn set_prefetch(&mut self, file: FileNumber, prefetch: Prefetch) {
        self.forget(file);
        if let Some(file) = self.files.get_mut(&file) {
            (file.prefetch, file.is_paused) = (prefetch, false);
        }
    }

    /// A file is closed.
    pub fn close(&mut self, file: FileNumber) {
        self.forget(file);
        self.files.remove(&file);
    }

    /// Forgets all that is known of a file.
    pub fn forget(&mut self, file: FileNumber) {
        self.on_write(file, &(0..u64::MAX));
    }

    /// The program writes to these positions.
    pub fn on_write(&mut self, file: FileNumber, positions: &Range<u64>) {
        let Some(of) = self.files.get_mut(&file) else { return };
        (of.is_paused, of.end) = (true, u64::MAX);
        of.changes += 1;
        let keys = Key::all(file, positions);
        let gone = |valid: &mut RangeSet| {
            valid.remove(positions.clone());
            valid.is_empty()
        };
        self.memory.extract_if(keys.clone(), |_, chunk| gone(&mut chunk.valid)).for_each(drop);
        let from_disk = self.disk.extract_if(keys.clone(), |_, kept| gone(&mut kept.valid));
        from_disk.for_each(|(_, kept)| self.slots.on_drained(kept.slot));
        let meets = |it: &Range<u64>| it.start < positions.end && positions.start < it.end;
        for fetch in self.under_way.values_mut() {
            fetch.is_stale |= fetch.file == file && meets(&fetch.positions);
        }
        for (key, is_kept) in self.moving.values_mut() {
            *is_kept &= !keys.contains(key);
        }
    }

    /// The program reads these positions, and all that it has written before is known here. Returns
    /// how often the file was changed.
    pub fn begin(&mut self, file: FileNumber, positions: &Range<u64>) -> u64 {
        let Some(of) = self.files.get_mut(&file) else { return 0 };
        of.is_paused = false;
        let was_wrong = of.pattern.on_read(positions, window_max(self.chunks_max));
        let changes = of.changes;
        if was_wrong {
            let chunks = self.memory.range_mut(Key::all(file, &(0..u64::MAX)));
            chunks.for_each(|(_, chunk)| chunk.is_ahead = false);
        }
        changes
    }

    /// Returns where the first of these positions are.
    pub fn find(&mut self, file: FileNumber, positions: &Range<u64>) -> Found<B> {
        self.clock += 1;
        let (at, key) = (positions.start, Key::of(file, positions.start));
        let end = positions.end.min(key.positions().end);
        let mut known_from = end;
        let mut from = |valid: &RangeSet| {
            let next = valid.next_from(at).filter(|next| next.start < end)?;
            known_from = known_from.min(next.start);
            (next.start == at).then(|| at..next.end.min(end))
        };
        if let Some(chunk) = self.memory.get_mut(&key)
            && let Some(found) = from(&chunk.valid)
        {
            chunk.used = self.clock;
            chunk.is_ahead &= chunk.valid.next_from(found.end).is_some();
            return Found::Here(chunk.bytes.clone(), key.part(&found));
        }
        if let Some(found) = self.disk.get(&key).and_then(|kept| from(&kept.valid)) {
            let Kept { slot, valid, length, checksum, .. } =
                self.disk.remove(&key).expect("just seen");
            let id = self.move_chunk(key);
            return Found::OnDisk(Load { id, valid, slot, length, checksum }, key.part(&found));
        }
        let fetches = self.under_way.iter_mut().filter(|(_, it)| it.file == file && !it.is_stale);
        for (number, fetch) in fetches {
            if fetch.positions.contains(&at) {
                fetch.is_waited_for = true;
                return Found::Coming(*number, at..fetch.positions.end.min(end));
            }
            if fetch.positions.start > at {
                known_from = known_from.min(fetch.positions.start);
            }
        }
        Found::Missing(at..known_from)
    }

    /// These positions are asked for, because the program reads them; it began when the file had
    /// been changed so often.
    pub fn fetch(&mut self, number: u64, file: FileNumber, positions: &Range<u64>, changes: u64) {
        let of = self.files.get(&file);
        let keeps = of.is_some_and(|it| it.changes == changes && it.prefetch != Prefetch::Off);
        let positions = positions.clone();
        let fetch =
            Fetch { file, positions, is_ahead: false, is_waited_for: true, is_stale: !keeps };
        self.under_way.insert(number, fetch);
    }

    /// These positions are asked for ahead.
    pub fn fetch_ahead(&mut self, number: u64, file: FileNumber, positions: &Range<u64>) {
        let positions = positions.clone();
        let fetch =
            Fetch { file, positions, is_ahead: true, is_waited_for: false, is_stale: false };
        self.under_way.insert(number, fetch);
    }

    /// Reports whether a request is in flight, or its answer was not taken in yet.
    #[must_use]
    pub fn is_coming(&self, number: u64) -> bool {
        self.under_way.contains_key(&number)
    }

    /// Reports whether nobody waits in a call for the answer to a request.
    #[must_use]
    pub fn is_ahead(&self, number: u64) -> bool {
        self.under_way.get(&number).is_some_and(|it| it.is_ahead)
    }

    /// Returns where in a chunk the answer to a request belongs; `None` if it will not be kept.
    #[must_use]
    pub fn place_of(&self, number: u64) -> Option<usize> {
        let fetch = self.under_way.get(&number).filter(|it| !it.is_stale)?;
        let place = fetch.positions.start % CHUNK_BYTES;
        Some(usize::try_from(place).expect("a chunk is shorter"))
    }

    /// The answer to a request: how many bytes there were, and the buffer that has them where they
    /// belong. Returns whether they are kept.
    pub fn on_fetched(&mut self, number: u64, count: u64, bytes: Option<&mut B>) -> bool {
        let Some(fetch) = self.under_way.remove(&number) else { return false };
        let Fetch { file, positions, is_ahead, is_stale, .. } = fetch;
        let of = self.files.get_mut(&file).filter(|_| !is_stale);
        let Some(of) = of else { return false };
        let got = positions.start..positions.start.saturating_add(count).min(positions.end);
        if is_ahead && got.end < positions.end {
            of.end = of.end.min(got.end);
        }
        let Some(bytes) = bytes.filter(|_| !got.is_empty()) else { return false };
        let key = Key::of(file, got.start);
        self.put(key, bytes, &RangeSet::from_iter([got]), is_ahead, false)
    }

    /// No answer to a request comes. Where the file ends is not known from that.
    pub fn cancel(&mut self, number: u64) {
        self.under_way.remove(&number);
    }

    fn put(
        &mut self,
        key: Key,
        bytes: &mut B,
        got: &RangeSet,
        is_ahead: bool,
        is_saved: bool,
    ) -> bool {
        self.clock += 1;
        if let Some(chunk) = self.memory.get_mut(&key) {
            chunk.put(key, bytes, got);
            chunk.is_saved &= is_saved;
            (chunk.used, chunk.is_ahead) = (self.clock, chunk.is_ahead || is_ahead);
            return true;
        }
        if !self.make_room() {
            return false;
        }
        let valid = got.clone();
        let chunk = Chunk { bytes: bytes.clone(), valid, used: self.clock, is_ahead, is_saved };
        self.memory.insert(key, chunk);
        true
    }

    /// Room for one more chunk in memory: the one that was used least recently goes, but none that
    /// was read ahead and will be needed.
    fn make_room(&mut self) -> bool {
        if self.memory.len() < self.chunks_max {
            return true;
        }
        let may_go = self.memory.iter().filter(|(_, chunk)| !chunk.is_ahead);
        let oldest = may_go.min_by_key(|(_, chunk)| chunk.used).map(|(key, _)| *key);
        oldest.and_then(|key| self.memory.remove(&key)).is_some()
    }

    /// What is read ahead next: positions of one chunk, of the first file of which they may be.
    pub fn next_ahead(
        &self,
        may_be: impl Fn(FileNumber, &Range<u64>) -> bool,
    ) -> Option<(FileNumber, Range<u64>)> {
        let is_idle = |fetch: &&Fetch| fetch.is_ahead && !fetch.is_waited_for;
        if self.under_way.values().filter(is_idle).count() >= AHEAD_MAX {
            return None;
        }
        self.files.keys().find_map(|&file| {
            let positions = self.next_ahead_of(file)?;
            may_be(file, &positions).then_some((file, positions))
        })
    }

    fn next_ahead_of(&self, file: FileNumber) -> Option<Range<u64>> {
        let of = self.files.get(&file).filter(|of| !of.is_paused)?;
        let window = window_max(self.chunks_max);
        of.pattern.targets(of.prefetch, window).find_map(|target| {
            let missing = self.first_missing(file, target.start..target.end.min(of.end))?;
            self.has_room_ahead(Key::of(file, missing.start)).then_some(missing)
        })
    }

    /// The first positions that are neither there nor asked for; within one chunk.
    fn first_missing(&self, file: FileNumber, positions: Range<u64>) -> Option<Range<u64>> {
        let mut at = positions.start;
        while at < positions.end {
            let key = Key::of(file, at);
            let mut end = positions.end.min(key.positions().end);
            let mut known = None;
            let fetched = self.under_way.values().filter(|it| it.file == file && !it.is_stale);
            let kept = [self.memory.get(&key).map(|it| &it.valid)];
            let kept = kept.into_iter().chain([self.disk.get(&key).map(|it| &it.valid)]).flatten();
            let next = kept.filter_map(|valid| valid.next_from(at));
            for next in next.chain(fetched.map(|it| it.positions.clone())) {
                if next.start <= at && at < next.end {
                    known = known.max(Some(next.end));
                } else if next.start > at {
                    end = end.min(next.start);
                }
            }
            match known {
                Some(end) => at = end,
                None => return Some(at..end),
            }
        }
        None
    }

    /// Whether one chunk is left, beside those that are read ahead, for what is not.
    fn has_room_ahead(&self, key: Key) -> bool {
        let ahead = self.memory.iter().filter(|(_, chunk)| chunk.is_ahead).map(|(key, _)| *key);
        let coming = self.under_way.values().filter(|fetch| fetch.is_ahead);
        let coming = coming.map(|fetch| Key::of(fetch.file, fetch.positions.start));
        let mut keys: Vec<Key> = ahead.chain(coming).chain([key]).collect();
        keys.sort_unstable();
        keys.dedup();
        keys.len() < self.chunks_max
    }

    /// A chunk in memory that is to be put on the disk: it is full, or others were used since.
    pub fn next_save(&mut self) -> Option<Save<B>> {
        let newest = self.memory.values().map(|chunk| chunk.used).max()?;
        let (&key, _) = self.memory.iter().find(|(_, chunk)| {
            let is_full = chunk.valid.byte_count() == CHUNK_BYTES;
            !chunk.is_saved && (is_full || chunk.used != newest)
        })?;
        // What is there of it goes away: it is in memory, or was invalid there too.
        let before = self.disk.remove(&key);
        before.into_iter().for_each(|kept| self.slots.on_drained(kept.slot));
        if !self.slots.has_room()
            && let Some(oldest) = self.disk.iter().min_by_key(|(_, kept)| kept.used)
        {
            let oldest = *oldest.0;
            self.disk.remove(&oldest).into_iter().for_each(|it| self.slots.on_drained(it.slot));
        }
        let slot = self.slots.reserve()?;
        let id = self.move_chunk(key);
        let chunk = self.memory.get_mut(&key)?;
        chunk.is_saved = true;
        let end = chunk.valid.iter().last().map_or(0, |range| range.end - key.positions().start);
        let length = u32::try_from(end).expect("a chunk is shorter");
        Some(Save { id, valid: chunk.valid.clone(), slot, bytes: chunk.bytes.clone(), length })
    }

    fn move_chunk(&mut self, key: Key) -> u64 {
        self.clock += 1;
        self.moving.insert(self.clock, (key, true));
        self.clock
    }

    /// A chunk is on the disk, with this checksum; or the disk has failed.
    pub fn on_saved(&mut self, save: Save<B>, checksum: Option<u64>) {
        let Save { id, valid, slot, length, .. } = save;
        let moved = self.moving.remove(&id);
        let Some(checksum) = checksum else {
            self.slots.on_not_staged(slot);
            return self.give_up_disk();
        };
        match moved.filter(|(_, is_kept)| *is_kept) {
            Some((key, _)) => {
                self.slots.on_staged();
                self.keep(key, Kept { slot, valid, length, checksum, used: self.clock });
            }
            None => self.slots.on_not_staged(slot),
        }
    }

    /// A chunk is back from the disk; or the disk has failed.
    pub fn on_loaded(&mut self, load: Load, bytes: Option<&mut B>) {
        let Load { id, valid, slot, length, checksum } = load;
        let moved = self.moving.remove(&id);
        let Some(bytes) = bytes else {
            self.slots.on_drained(slot);
            return self.give_up_disk();
        };
        let Some((key, true)) = moved else { return self.slots.on_drained(slot) };
        self.put(key, bytes, &valid, false, true);
        self.keep(key, Kept { slot, valid, length, checksum, used: self.clock });
    }

    fn keep(&mut self, key: Key, kept: Kept) {
        let before = self.disk.insert(key, kept);
        before.into_iter().for_each(|it| self.slots.on_drained(it.slot));
    }

    fn give_up_disk(&mut self) {
        self.slots.close();
        self.disk.clear();
        self.moving.values_mut().for_each(|(_, is_kept)| *is_kept = false);
    }

    /// The connection is lost: nothing comes any more.
    pub fn clear(&mut self) {
        self.under_way.clear();
    }
}

impl<B: ChunkBytes> Chunk<B> {
    /// Puts further bytes in. If somebody else uses the buffer now, their own becomes that of the
    /// chunk.
    fn put(&mut self, key: Key, bytes: &mut B, got: &RangeSet) {
        let is_in = got.iter().all(|range| self.bytes.take_in(bytes, key.part(&range)));
        if !is_in {
            let mut rest = self.valid.clone();
            got.iter().for_each(|range| rest.remove(range));
            let is_in = rest.iter().all(|range| bytes.take_in(&self.bytes, key.part(&range)));
            assert!(is_in, "nobody uses what has just come");
            self.bytes = bytes.clone();
        }
        for range in got.iter() {
            self.valid.insert(range);
        }
    }
}

/// How far ahead may be read, in bytes: one chunk stays for what is not read ahead.
fn window_max(chunks_max: usize) -> u64 {
    (chunks_max as u64).saturating_sub(1) * CHUNK_BYTES
}

#[cfg(test)]
mod tests;
