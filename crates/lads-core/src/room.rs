//! How much room the sink has for each of its OSTs.
//!
//! The sink's arena has a fixed number of buffers. Before the source may send a frame, the sink
//! must have granted a buffer for it. The sink grants buffers *per OST*. When the grants for a slow
//! OST are used up, its blocks wait in the source's queue, as names and numbers, while frames for
//! the other OSTs pass. Without this, frames for one slow OST would fill the arena and stop all
//! others (the weak spot of LADS's sink, FAST '15, section 3.4).

use crate::tuning::Tuning;
use crate::units::OstId;
use std::time::Duration;

/// The sink's books: how many buffers may be under way for each OST.
///
/// An OST does not get its whole share at once. More than its writers and the network need would
/// only wait in memory, and push other buffers out of the cache. So each OST has a window. The
/// window begins small; on a long path, with what the network holds besides. It doubles when the
/// source has used up its grants although the OST has nothing to write (then the network holds the
/// frames). It shrinks by one for each frame that finds a long queue.
#[derive(Debug)]
pub struct Grants {
    osts: Vec<Book>,
    /// The most buffers that one OST may have: the arena divided by the number of OSTs.
    share: u32,
    /// The number of grants, over all OSTs, that the source was told and has not used.
    out_count: u32,
    /// Grants are given in lots of at least the window divided by this ([`Tuning::grant_parts`]).
    parts: u32,
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
    /// A frame that finds this many others finds a long queue, and the window shrinks.
    queue_long: u32,
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
    /// Shares `buffer_count` buffers among OSTs, each of which should have the given number of
    /// requests at a time.
    ///
    /// # Panics
    /// If there are fewer buffers than OSTs, or no OST.
    #[must_use]
    pub fn new(
        buffer_count: u32,
        tuning: &Tuning,
        in_flight_max: impl ExactSizeIterator<Item = u32>,
    ) -> Self {
        let ost_count = u32::try_from(in_flight_max.len()).expect("OST numbers are 32 bits");
        assert!(ost_count > 0 && buffer_count >= ost_count, "{buffer_count} for {ost_count} OSTs");
        let share = buffer_count / ost_count;
        let book = |in_flight_max: u32| {
            let wanted = in_flight_max.saturating_mul(tuning.room_times);
            let window = wanted.saturating_add(tuning.room_spare).min(share);
            let queue_long = in_flight_max.saturating_add(tuning.room_spare / 2);
            Book { outstanding: 0, arriving: 0, held: 0, window, window_min: window, queue_long }
        };
        let parts = tuning.grant_parts.max(1);
        Self { osts: in_flight_max.map(book).collect(), share, out_count: 0, parts }
    }

    /// A round trip to the source takes this long: an OST may have as many frames more as the
    /// network holds. Windows would grow to that by themselves, but only double per round trip.
    pub fn on_round_trip(&mut self, time: Duration, buffer_bytes: u32, tuning: &Tuning) {
        let bytes = time.as_micros().saturating_mul(tuning.room_rate.into()) / 1_000_000;
        let frames = bytes / u128::from(buffer_bytes.max(1));
        let frames = u32::try_from(frames).unwrap_or(u32::MAX);
        for book in &mut self.osts {
            book.window_min = book.window_min.saturating_add(frames).min(self.share);
            book.window = book.window.max(book.window_min);
        }
    }

    /// Whether the source has no grant left for this OST, and gets none until a buffer of the OST
    /// is free.
    #[must_use]
    pub fn is_used_up(&self, ost: OstId) -> bool {
        let book = &self.osts[ost.index()];
        book.outstanding == 0 && book.grantable(self.parts) == 0
    }

    /// Whether there is anything to grant.
    #[must_use]
    pub fn has_new(&self) -> bool {
        self.osts.iter().any(|book| book.grantable(self.parts) > 0)
    }

    /// Grants that can be given now. They count as given when this returns.
    ///
    /// # Panics
    /// If the books of the OSTs do not agree with the grants that were given and used.
    pub fn take_new(&mut self) -> Vec<(OstId, u32)> {
        let mut new = Vec::new();
        let mut outstanding = 0;
        for (index, book) in self.osts.iter_mut().enumerate() {
            outstanding += book.outstanding;
            assert!(book.committed() <= self.share, "OST {index} has {book:?}");
            let count = book.grantable(self.parts);
            if count > 0 {
                book.outstanding += count;
                self.out_count += count;
                outstanding += count;
                let ost = OstId(u32::try_from(index).expect("OST numbers are 32 bits"));
                new.push((ost, count));
            }
        }
        let out_count = self.out_count;
        assert_eq!(outstanding, out_count, "grants on the books of all OSTs, and grants out");
        new
    }

    /// A frame for this OST begins to arrive and uses up a grant. `is_last`: the source says that
    /// this was its last grant for the OST. Returns `false` if the source had no grant, which is a
    /// breach of protocol.
    #[must_use]
    pub fn on_arrival(&mut self, ost: OstId, is_last: bool) -> bool {
        let Some(book) = self.osts.get_mut(ost.index()).filter(|book| book.outstanding > 0) else {
            return false;
        };
        if book.held >= book.queue_long {
            book.window = (book.window - 1).max(book.window_min);
        } else if is_last && book.held == 0 {
            book.window = book.window.saturating_mul(2).min(self.share);
        }
        book.outstanding -= 1;
        book.arriving += 1;
        self.out_count -= 1;
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
    }

    /// The frame's buffer is free again.
    ///
    /// # Panics
    /// If no frame of this OST has a buffer.
    pub fn on_release(&mut self, ost: OstId) {
        let book = &mut self.osts[ost.index()];
        assert!(book.held > 0, "a buffer for {ost} is free that was not taken: {book:?}");
        book.held -= 1;
    }

    /// Frames that arrive, or arrived and are not yet written.
    #[must_use]
    pub fn held_count(&self) -> u32 {
        self.osts.iter().map(|book| book.arriving + book.held).sum()
    }

    /// Buffers that are granted or hold a frame: never more than the arena has.
    #[cfg(test)]
    fn committed_count(&self) -> u32 {
        self.osts.iter().map(Book::committed).sum()
    }
}

/// The source's copy of the books: grants that it has not used.
#[derive(Debug, Default)]
pub struct Room {
    granted: Vec<u32>,
}

impl Room {
    /// The sink granted `count` further buffers. The sum can overflow only if the sink lies; then
    /// it stays at the largest number.
    pub fn on_grant(&mut self, ost: OstId, count: u32) {
        if self.granted.len() <= ost.index() {
            self.granted.resize(ost.index() + 1, 0);
        }
        let granted = &mut self.granted[ost.index()];
        *granted = granted.saturating_add(count);
    }

    /// Whether a frame for any OST may be sent.
    #[must_use]
    pub fn has_any(&self) -> bool {
        self.granted.iter().any(|&count| count > 0)
    }

    /// Whether a frame for this OST may be sent.
    #[must_use]
    pub fn has(&self, ost: OstId) -> bool {
        self.granted.get(ost.index()).is_some_and(|&count| count > 0)
    }

    /// How many frames for this OST may be sent.
    #[must_use]
    pub fn count(&self, ost: OstId) -> u32 {
        self.granted.get(ost.index()).copied().unwrap_or(0)
    }

    /// The most frames that may be sent for any OST.
    #[must_use]
    pub fn most(&self) -> u32 {
        self.granted.iter().copied().max().unwrap_or(0)
    }

    /// Uses up a grant. Returns whether it was the last one for this OST.
    ///
    /// # Panics
    /// If there is no grant for this OST.
    pub fn take(&mut self, ost: OstId) -> bool {
        assert!(self.has(ost), "no room for {ost}");
        self.granted[ost.index()] -= 1;
        self.granted[ost.index()] == 0
    }

    /// Puts back a grant whose frame was not sent.
    pub fn give_back(&mut self, ost: OstId) {
        self.on_grant(ost, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grants(buffer_count: u32, osts: usize) -> Grants {
        Grants::new(buffer_count, &Tuning::DEFAULT, vec![1; osts].into_iter())
    }

    /// A frame arrives, from its first byte to its last.
    fn come(grants: &mut Grants, ost: OstId, is_last: bool) {
        assert!(grants.on_arrival(ost, is_last));
        grants.on_arrived(ost);
    }

    #[test]
    fn a_slow_ost_holds_no_more_than_its_share() {
        let mut grants = grants(8, 2);
        assert_eq!(grants.take_new(), [(OstId(0), 4), (OstId(1), 4)]);
        for _ in 0..4 {
            come(&mut grants, OstId(1), true);
        }
        assert!(!grants.on_arrival(OstId(1), true), "a fifth frame was not granted");
        assert_eq!(grants.take_new(), []);
        come(&mut grants, OstId(0), false);
        grants.on_release(OstId(0));
        assert_eq!(grants.take_new(), [(OstId(0), 1)]);
    }

    #[test]
    fn the_window_grows_while_the_network_holds_all_that_is_granted() {
        let mut grants = grants(256, 1);
        let mut granted: u32 = grants.take_new().iter().map(|(_, count)| count).sum();
        let first = granted;
        for _ in 0..200 {
            granted -= 1;
            come(&mut grants, OstId(0), granted == 0);
            grants.on_release(OstId(0));
            granted += grants.take_new().iter().map(|(_, count)| count).sum::<u32>();
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
        let granted: u32 = grants.take_new().iter().map(|(_, count)| count).sum();
        assert!(granted > grants.osts[0].queue_long, "all that is granted arrives at a time");
        for left in (0..granted).rev() {
            assert!(grants.on_arrival(OstId(0), left == 0));
        }
        assert_eq!(grants.osts[0].window, 2 * window);
    }

    #[test]
    fn a_long_path_has_room_for_what_it_holds_from_the_beginning() {
        let mut grants = grants(256, 2);
        let count =
            |grants: &mut Grants| -> u32 { grants.take_new().iter().map(|(_, count)| count).sum() };
        let before = count(&mut grants);
        let tuning = Tuning { room_rate: 100 << 20, ..Tuning::DEFAULT };
        grants.on_round_trip(Duration::from_millis(250), 1 << 20, &tuning);
        assert_eq!(count(&mut grants), 2 * 25, "25 buffers more for each OST");
        grants.on_round_trip(Duration::from_secs(9), 1 << 20, &tuning);
        assert_eq!(before + 2 * 25 + count(&mut grants), 256, "no more than there are");
    }

    #[test]
    fn an_unknown_ost_has_no_room() {
        assert!(!grants(8, 2).on_arrival(OstId(2), false));
        assert!(!Room::default().has(OstId(9)));
    }
}
