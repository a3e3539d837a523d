//! How much room the sink has, in all and for each of its OSTs.
//!
//! The sink's arena has a fixed number of buffers. Before the source may send a frame, the sink
//! must have granted a buffer for it. The sink also says how many frames it takes for each OST.
//! When those for a slow OST are used up, its blocks wait in the source's queue, as names and
//! numbers, while frames for the other OSTs pass. Without this, frames for one slow OST would fill
//! the arena and stop all others (the weak spot of LADS's sink, FAST '15, section 3.4).
//!
//! With few OSTs, the arena has a buffer for every frame that the sink takes. With many, most of
//! them have nothing to do at a time, and buffers that are kept for them would be idle. So it takes
//! more frames for the OSTs together than it has buffers, and a frame needs both: a buffer, and a
//! grant for its OST.

use crate::tuning::Tuning;
use crate::units::OstId;
use std::time::Duration;

/// What the sink grants at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lot {
    /// The number of further frames, whatever their OST.
    pub frames: u32,
    /// For each of these OSTs, how many further frames there may be among them.
    pub osts: Vec<(OstId, u32)>,
}

impl Lot {
    /// Room for these frames, and a buffer for each of them.
    #[must_use]
    pub fn of(osts: Vec<(OstId, u32)>) -> Self {
        let frames = osts.iter().fold(0, |sum: u32, &(_, count)| sum.saturating_add(count));
        Self { frames, osts }
    }
}

/// What an OST has buffers for.
#[derive(Clone, Copy, Debug)]
pub struct Uses {
    /// The most requests that it should have at a time.
    pub in_flight_max: u32,
    /// Whether it is a track ([`crate::tracks`]).
    pub is_track: bool,
}

/// The sink's books: how many buffers may be in flight, in all and for each OST.
///
/// An OST does not get all that it may have at once. More than its writers and the network need
/// would only wait in memory, and push other buffers out of the cache. So each OST has a window.
/// The window begins small; on a long path, with what the network holds besides. It doubles when
/// the source has used up its grants although the OST has nothing to write (then the network holds
/// the frames). It shrinks by one for each frame that finds a long queue.
///
/// With many OSTs, a window begins with less than the OST needs. Then it also doubles when all that
/// was granted is written, and a queue counts as long only if more frames came since it was empty
/// than the window holds. An OST that hangs keeps the few buffers that it began with.
#[derive(Debug)]
pub struct Grants {
    osts: Vec<Book>,
    buffer_count: u32,
    /// The most buffers that one OST may have.
    ost_max: u32,
    /// The buffers divided by the number of OSTs. A window begins with no more than this.
    share: u32,
    /// The number of frames that the source was told it may send and has not sent.
    out_count: u32,
    /// Frames that arrive, or arrived and are not yet written.
    held_count: u32,
    /// Grants are given in lots of at least the window divided by this ([`Tuning::grant_parts`]).
    parts: u32,
    /// The same for buffers ([`Tuning::room_lots`]).
    lot: u32,
    /// Whether there may be more grants than buffers.
    is_scarce: bool,
}

#[derive(Clone, Debug)]
struct Book {
    /// Granted and not yet used.
    outstanding: u32,
    /// Frames of which only a part has arrived. They are on the network, not in a queue.
    arriving: u32,
    /// Frames arrived and not yet written.
    held: u32,
    /// The most that `outstanding`, `arriving` and `held` together may be now.
    window: u32,
    /// The window never falls below this.
    window_min: u32,
    /// What the OST needs to be busy, if it is as quick as the network.
    needed: u32,
    /// A frame that finds this many others finds a long queue, and the window shrinks.
    queue_long: u32,
    /// Whether the source had no grant left when it sent the latest frame.
    is_used_up: bool,
    /// Frames that came since the OST had nothing to write.
    since_idle_count: u32,
}

impl Book {
    /// Buffers that are granted, or that a frame has or will have.
    fn committed(&self) -> u32 {
        self.outstanding + self.arriving + self.held
    }

    /// The part of the window that is free; zero if that is less than the window divided by
    /// `parts`, so that one message carries several grants.
    fn grantable(&self, parts: u32) -> u32 {
        let free = self.window.saturating_sub(self.committed());
        if free >= self.window.div_ceil(parts) { free } else { 0 }
    }
}

impl Grants {
    /// Room in `buffer_count` buffers for these OSTs. If each OST `keeps_to_its_share`, there is a
    /// buffer for every grant.
    ///
    /// Tracks of a target that hides its OSTs get more than their share only for what the network
    /// holds. Otherwise the tracks of a slow OST hold up buffers: with eight buffers each, 8 hidden
    /// OSTs, one of them slow at either end, took 4.56 s instead of 4.41.
    ///
    /// # Panics
    /// If there are fewer buffers than OSTs, or no OST.
    #[must_use]
    pub fn new(
        buffer_count: u32,
        tuning: &Tuning,
        osts: impl ExactSizeIterator<Item = Uses>,
        keeps_to_its_share: bool,
    ) -> Self {
        let ost_count = u32::try_from(osts.len()).expect("OST numbers are 32 bits");
        assert!(ost_count > 0 && buffer_count >= ost_count, "{buffer_count} for {ost_count} OSTs");
        let share = buffer_count / ost_count;
        let part = if keeps_to_its_share { 0 } else { buffer_count / tuning.room_parts.max(1) };
        let ost_max = share.max(part);
        let book = |ost: Uses| {
            let wanted = ost.in_flight_max.saturating_mul(tuning.room_times);
            let most = if ost.is_track { share } else { ost_max };
            let needed = wanted.saturating_add(tuning.room_spare).min(most);
            Book {
                outstanding: 0,
                arriving: 0,
                held: 0,
                window: needed.min(share),
                window_min: needed.min(share),
                needed,
                queue_long: ost.in_flight_max.saturating_add(tuning.room_spare / 2),
                is_used_up: false,
                since_idle_count: 0,
            }
        };
        Self {
            osts: osts.map(book).collect(),
            buffer_count,
            ost_max,
            share,
            out_count: 0,
            held_count: 0,
            parts: tuning.grant_parts.max(1),
            lot: buffer_count.div_ceil(tuning.room_lots.max(1)),
            is_scarce: ost_max > share,
        }
    }

    /// A round trip to the source takes this long: an OST may have as many frames more as the
    /// network holds. Windows would grow to that by themselves, but only double per round trip.
    pub fn on_round_trip(&mut self, time: Duration, buffer_bytes: u32, tuning: &Tuning) {
        let bytes = time.as_micros().saturating_mul(tuning.room_rate.into()) / 1_000_000;
        let frames = bytes / u128::from(buffer_bytes.max(1));
        let frames = u32::try_from(frames).unwrap_or(u32::MAX);
        for book in &mut self.osts {
            book.needed = book.needed.saturating_add(frames).min(self.ost_max);
            book.window_min = book.needed.min(self.share);
            book.window = book.window.max(book.window_min);
        }
    }

    /// Reports whether the source has no grant left for this OST, and gets none until a buffer of
    /// the OST is free.
    #[must_use]
    pub fn is_used_up(&self, ost: OstId) -> bool {
        let book = &self.osts[ost.index()];
        book.outstanding == 0 && book.grantable(self.parts) == 0
    }

    /// Reports whether there is anything to grant.
    #[must_use]
    pub fn has_new(&self) -> bool {
        self.is_lot_free() || self.osts.iter().any(|book| book.grantable(self.parts) > 0)
    }

    /// Buffers that are neither granted nor hold a frame.
    fn free_count(&self) -> u32 {
        self.buffer_count - self.out_count - self.held_count
    }

    /// Whether the source should be told of free buffers, though there is no grant for an OST:
    /// there are enough for a message, or the source has none.
    fn is_lot_free(&self) -> bool {
        let free = self.free_count();
        self.is_scarce && (free >= self.lot || (free > 0 && self.out_count == 0))
    }

    /// What can be granted now. It counts as granted when this returns.
    ///
    /// # Panics
    /// If the books of an OST do not agree with what was granted and used.
    pub fn take_new(&mut self) -> Lot {
        let mut osts = Vec::new();
        for (index, book) in self.osts.iter_mut().enumerate() {
            assert!(book.committed() <= self.ost_max, "OST {index} has {book:?}");
            let count = book.grantable(self.parts);
            if count > 0 {
                book.outstanding += count;
                osts.push((OstId::from_index(index), count));
            }
        }
        let is_told = self.is_lot_free() || !osts.is_empty();
        let frames = if is_told { self.free_count() } else { 0 };
        self.out_count += frames;
        Lot { frames, osts }
    }

    /// A frame for this OST begins to arrive and uses up a grant. `is_last`: the source says that
    /// this was its last grant for the OST. Returns `false` if the source had no grant, which is a
    /// breach of protocol.
    #[must_use]
    pub fn on_arrival(&mut self, ost: OstId, is_last: bool) -> bool {
        let Some(book) = self.osts.get_mut(ost.index()).filter(|book| book.outstanding > 0) else {
            return false;
        };
        if self.out_count == 0 {
            return false;
        }
        book.since_idle_count = book.since_idle_count.saturating_add(1);
        let is_slow = book.window > book.needed || book.since_idle_count > book.window;
        if book.held >= book.queue_long && is_slow {
            book.window = (book.window - 1).max(book.window_min);
        } else if is_last && book.held == 0 {
            book.window = book.window.saturating_mul(2).min(self.ost_max);
        }
        book.is_used_up = is_last;
        book.outstanding -= 1;
        book.arriving += 1;
        self.out_count -= 1;
        self.held_count += 1;
        true
    }

    /// The frame has arrived whole.
    ///
    /// # Panics
    /// If no frame of this OST was on its way.
    pub fn on_arrived(&mut self, ost: OstId) {
        let book = &mut self.osts[ost.index()];
        assert!(book.arriving > 0, "a frame for {ost} is there that never came: {book:?}");
        book.arriving -= 1;
        book.held += 1;
    }

    /// The frame did not arrive whole: the source may use the grant again.
    ///
    /// # Panics
    /// If no frame of this OST was on its way.
    pub fn on_lost(&mut self, ost: OstId) {
        let book = &mut self.osts[ost.index()];
        assert!(book.arriving > 0, "a frame for {ost} is lost that never came: {book:?}");
        book.arriving -= 1;
        book.outstanding += 1;
        self.out_count += 1;
        self.held_count -= 1;
    }

    /// The frame arrived, and its buffer is free again without it: the source sends it again, and
    /// uses the same grant.
    ///
    /// # Panics
    /// If no frame of this OST has a buffer.
    pub fn on_dropped(&mut self, ost: OstId) {
        let book = &mut self.osts[ost.index()];
        assert!(book.held > 0, "a frame for {ost} is dropped that is not there: {book:?}");
        book.held -= 1;
        book.outstanding += 1;
        self.out_count += 1;
        self.held_count -= 1;
    }

    /// The frame's buffer is free again.
    ///
    /// # Panics
    /// If no frame of this OST has a buffer.
    pub fn on_release(&mut self, ost: OstId) {
        let book = &mut self.osts[ost.index()];
        assert!(book.held > 0, "a buffer for {ost} is free that was not taken: {book:?}");
        book.held -= 1;
        self.held_count -= 1;
        if book.held + book.arriving == 0 {
            if book.is_used_up {
                book.window = book.window.max(book.window.saturating_mul(2).min(book.needed));
            }
            book.is_used_up = false;
            book.since_idle_count = 0;
        }
    }

    /// Frames that arrive, or arrived and are not yet written.
    #[must_use]
    pub fn held_count(&self) -> u32 {
        self.held_count
    }

    /// Grants for all OSTs that are not used, and frames that have a buffer.
    #[cfg(test)]
    fn committed_count(&self) -> u32 {
        self.osts.iter().map(Book::committed).sum()
    }
}

/// The source's copy of the books: grants that it has not used.
#[derive(Debug, Default)]
pub struct Room {
    /// Frames that may be sent, whatever their OST.
    frames: u32,
    osts: Vec<Granted>,
    /// The most grants that any OST has had at a time.
    most: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Granted {
    count: u32,
    /// The most that `count` has been: about the OST's window at the sink.
    most: u32,
}

impl Room {
    /// The sink granted this. A sum can overflow only if the sink lies; then it stays at the
    /// largest number.
    pub fn on_grant(&mut self, lot: &Lot) {
        self.frames = self.frames.saturating_add(lot.frames);
        lot.osts.iter().for_each(|&(ost, count)| self.add(ost, count));
    }

    fn add(&mut self, ost: OstId, count: u32) {
        if self.osts.len() <= ost.index() {
            self.osts.resize(ost.index() + 1, Granted::default());
        }
        let granted = &mut self.osts[ost.index()];
        granted.count = granted.count.saturating_add(count);
        granted.most = granted.most.max(granted.count);
        self.most = self.most.max(granted.most);
    }

    /// Reports whether a frame for any OST may be sent.
    #[must_use]
    pub fn has_any(&self) -> bool {
        self.frames > 0 && self.osts.iter().any(|granted| granted.count > 0)
    }

    /// Reports whether a frame for this OST may be sent.
    #[must_use]
    pub fn has(&self, ost: OstId) -> bool {
        self.frames > 0 && self.is_granted(ost)
    }

    /// Reports whether there is a grant for this OST. If no frame may be sent nevertheless, the
    /// frames for other OSTs hold the buffers.
    #[must_use]
    pub fn is_granted(&self, ost: OstId) -> bool {
        self.osts.get(ost.index()).is_some_and(|granted| granted.count > 0)
    }

    /// How little this OST has to do: the part of its window that is left, times the largest
    /// window. If all OSTs have the same window, it is the number of grants that are left for this
    /// one.
    #[must_use]
    pub fn spare(&self, ost: OstId) -> u32 {
        self.osts.get(ost.index()).map_or(0, |granted| self.spare_of(granted))
    }

    fn spare_of(&self, granted: &Granted) -> u32 {
        let scaled = u64::from(granted.count) * u64::from(self.most);
        let spare = scaled / u64::from(granted.most.max(1));
        u32::try_from(spare).expect("no more than the largest window")
    }

    /// The most that [`Self::spare`] is for any OST.
    #[must_use]
    pub fn most_spare(&self) -> u32 {
        self.osts.iter().map(|granted| self.spare_of(granted)).max().unwrap_or(0)
    }

    /// Uses up a grant. Returns whether it was the last one for this OST.
    ///
    /// # Panics
    /// If there is no grant for this OST.
    pub fn take(&mut self, ost: OstId) -> bool {
        assert!(self.has(ost), "no room for {ost}");
        let granted = &mut self.osts[ost.index()];
        granted.count -= 1;
        self.frames -= 1;
        granted.count == 0
    }

    /// Puts back a grant whose frame was not sent.
    pub fn give_back(&mut self, ost: OstId) {
        self.frames = self.frames.saturating_add(1);
        self.add(ost, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses(count: usize, is_track: bool) -> impl ExactSizeIterator<Item = Uses> {
        vec![Uses { in_flight_max: 1, is_track }; count].into_iter()
    }

    fn grants(buffer_count: u32, osts: usize) -> Grants {
        Grants::new(buffer_count, &Tuning::DEFAULT, uses(osts, false), false)
    }

    /// A frame arrives, from its first byte to its last.
    fn come(grants: &mut Grants, ost: OstId, is_last: bool) {
        assert!(grants.on_arrival(ost, is_last));
        grants.on_arrived(ost);
    }

    /// The number of grants that are new, over all OSTs.
    fn new_count(grants: &mut Grants) -> u32 {
        grants.take_new().osts.iter().map(|(_, count)| count).sum()
    }

    #[test]
    fn a_slow_ost_holds_no_more_than_its_share() {
        let mut grants = grants(8, 2);
        assert!(grants.has_new());
        assert_eq!(grants.take_new(), Lot::of(vec![(OstId(0), 4), (OstId(1), 4)]));
        assert!(!grants.has_new());
        for _ in 0..4 {
            come(&mut grants, OstId(1), true);
        }
        assert!(!grants.on_arrival(OstId(1), true), "a fifth frame was not granted");
        assert_eq!(grants.take_new(), Lot::default());
        come(&mut grants, OstId(0), false);
        grants.on_release(OstId(0));
        assert!(grants.has_new());
        assert_eq!(grants.take_new(), Lot::of(vec![(OstId(0), 1)]));
    }

    #[test]
    fn a_frame_that_is_arriving_uses_up_a_grant() {
        let mut grants = grants(8, 2);
        grants.take_new();
        (0..4).for_each(|_| assert!(grants.on_arrival(OstId(1), false)));
        assert_eq!(grants.take_new(), Lot::default());
    }

    #[test]
    fn the_window_grows_while_the_network_holds_all_that_is_granted() {
        let mut grants = grants(256, 1);
        let mut granted = new_count(&mut grants);
        let first = granted;
        for _ in 0..200 {
            granted -= 1;
            come(&mut grants, OstId(0), granted == 0);
            grants.on_release(OstId(0));
            granted += new_count(&mut grants);
        }
        assert_eq!(granted, first, "a source that never runs out needs no more");
        for _ in 0..20 {
            come(&mut grants, OstId(0), true);
            grants.on_release(OstId(0));
            grants.take_new();
        }
        assert!(grants.committed_count() > 200, "{}", grants.committed_count());
        assert!(grants.committed_count() <= 256);
    }

    #[test]
    fn frames_that_arrive_side_by_side_are_on_the_network_and_not_in_a_queue() {
        let mut grants = grants(256, 1);
        let window = grants.osts[0].window;
        let granted = new_count(&mut grants);
        assert!(granted > grants.osts[0].queue_long, "all that is granted arrives at a time");
        for left in (0..granted).rev() {
            assert!(grants.on_arrival(OstId(0), left == 0));
        }
        assert_eq!(grants.osts[0].window, 2 * window);
    }

    #[test]
    fn each_frame_that_finds_a_long_queue_takes_one_from_a_window_that_has_grown() {
        let mut grants = grants(256, 1);
        let window = grants.osts[0].window;
        let granted = new_count(&mut grants);
        (0..granted).for_each(|_| assert!(grants.on_arrival(OstId(0), true)));
        (0..granted).for_each(|_| grants.on_arrived(OstId(0)));
        let grown = grants.osts[0].window;
        grants.take_new();
        assert!(grants.on_arrival(OstId(0), false));
        assert!(grants.on_arrival(OstId(0), false));
        assert_eq!(grants.osts[0].window, grown - 2);
        assert!(grown - 2 > window);
    }

    #[test]
    fn a_long_path_has_room_for_what_it_holds_from_the_beginning() {
        let mut grants = grants(256, 2);
        let before = new_count(&mut grants);
        let tuning = Tuning { room_rate: 100 << 20, ..Tuning::DEFAULT };
        grants.on_round_trip(Duration::from_millis(250), 1 << 20, &tuning);
        assert_eq!(new_count(&mut grants), 2 * 25, "25 buffers more for each OST");
        grants.on_round_trip(Duration::from_secs(9), 1 << 20, &tuning);
        assert_eq!(before + 2 * 25 + new_count(&mut grants), 256, "no more than there are");
    }

    /// Frames for one OST come, all that are granted at a time, and are written before the next
    /// grant arrives. How many come at a time in the end.
    fn at_a_time(grants: &mut Grants, ost: OstId) -> u32 {
        let mut count = 0;
        for _ in 0..20 {
            grants.take_new();
            count = grants.osts[ost.index()].outstanding;
            for left in (0..count).rev() {
                come(grants, ost, left == 0);
            }
            (0..count).for_each(|_| grants.on_release(ost));
        }
        count
    }

    #[test]
    fn one_of_many_osts_gets_what_a_long_path_holds() {
        let mut grants = grants(256, 128);
        grants.on_round_trip(Duration::from_millis(100), 1 << 20, &Tuning::DEFAULT);
        assert_eq!(at_a_time(&mut grants, OstId(5)), 256 / Tuning::DEFAULT.room_parts);
        assert_eq!(grants.osts[6].window, 2, "another has what it began with");
    }

    #[test]
    fn an_ost_that_hangs_keeps_the_window_that_it_began_with() {
        let mut grants = grants(256, 128);
        grants.on_round_trip(Duration::from_millis(100), 1 << 20, &Tuning::DEFAULT);
        grants.take_new();
        for left in (0..2).rev() {
            come(&mut grants, OstId(5), left == 0);
        }
        assert!(grants.is_used_up(OstId(5)));
    }

    #[test]
    fn with_a_stage_an_ost_keeps_to_its_share() {
        let mut grants = Grants::new(256, &Tuning::DEFAULT, uses(128, false), true);
        grants.on_round_trip(Duration::from_millis(100), 1 << 20, &Tuning::DEFAULT);
        assert_eq!(at_a_time(&mut grants, OstId(5)), 2);
    }

    #[test]
    fn a_track_gets_more_than_its_share_only_for_what_the_network_holds() {
        let mut grants = Grants::new(256, &Tuning::DEFAULT, uses(128, true), false);
        assert_eq!(at_a_time(&mut grants, OstId(5)), 2);
        grants.on_round_trip(Duration::from_millis(100), 1 << 20, &Tuning::DEFAULT);
        assert_eq!(at_a_time(&mut grants, OstId(5)), 256 / Tuning::DEFAULT.room_parts);
    }

    /// Every OST may have more than its share, and all together not more than there is.
    #[test]
    fn no_frame_comes_without_a_buffer() {
        let mut grants = grants(64, 32);
        let lot = grants.take_new();
        assert_eq!(lot, Lot::of((0..32).map(|ost| (OstId(ost), 2)).collect()));
        // The windows of eight of them grow to eight.
        for ost in 0..8 {
            assert_eq!(at_a_time(&mut grants, OstId(ost)), 8);
        }
        let lot = grants.take_new();
        let count = |grants: &Grants| (grants.out_count, grants.committed_count());
        assert_eq!((lot.frames > 0, count(&grants)), (true, (64, 8 * 8 + 24 * 2)));
        for number in 0..64 {
            come(&mut grants, OstId(number % 8), false);
        }
        assert!(!grants.on_arrival(OstId(8), false), "there is a grant, and no buffer");
        assert_eq!(grants.take_new(), Lot::default());
        grants.on_release(OstId(1));
        let lot = grants.take_new();
        assert_eq!((lot.frames, lot.osts), (1, vec![]), "the source has none");
        assert!(grants.on_arrival(OstId(8), false));
    }

    #[test]
    fn a_buffer_of_a_lost_frame_is_granted_still() {
        let mut grants = grants(2, 1);
        assert_eq!(grants.take_new(), Lot::of(vec![(OstId(0), 2)]));
        assert!(grants.on_arrival(OstId(0), false));
        grants.on_lost(OstId(0));
        assert_eq!((grants.held_count(), grants.committed_count()), (0, 2));
        (0..2).for_each(|left| assert!(grants.on_arrival(OstId(0), left == 1)));
        assert!(!grants.on_arrival(OstId(0), true));
    }

    #[test]
    fn a_frame_needs_a_buffer_and_a_grant_of_its_ost() {
        let mut room = Room::default();
        room.on_grant(&Lot { frames: 1, osts: vec![(OstId(0), 2), (OstId(1), 2)] });
        assert!(room.has_any() && room.has(OstId(0)) && !room.has(OstId(2)));
        assert!(!room.take(OstId(0)), "another grant is left");
        assert!(!room.has_any() && !room.has(OstId(1)) && room.is_granted(OstId(1)));
        room.give_back(OstId(0));
        assert!(room.has(OstId(1)));
    }

    #[test]
    fn an_ost_with_a_small_window_can_have_as_much_to_spare_as_others() {
        let mut room = Room::default();
        room.on_grant(&Lot::of(vec![(OstId(0), 4), (OstId(1), 40)]));
        assert_eq!((room.spare(OstId(0)), room.spare(OstId(1))), (40, 40));
        room.take(OstId(0));
        (0..3).for_each(|_| assert!(!room.take(OstId(1))));
        assert_eq!((room.spare(OstId(0)), room.spare(OstId(1)), room.most_spare()), (30, 37, 37));
        (0..3).for_each(|left| assert_eq!(room.take(OstId(0)), left == 2));
        assert!(!room.has(OstId(0)) && room.has(OstId(1)));
        assert_eq!((room.spare(OstId(0)), room.spare(OstId(9))), (0, 0));
    }

    #[test]
    fn an_unknown_ost_has_no_room() {
        assert!(!grants(8, 2).on_arrival(OstId(2), false));
        assert!(!Room::default().has(OstId(9)));
    }
}
