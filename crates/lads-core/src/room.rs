//! How much room the sink has for each of its OSTs.
//!
//! The sink's arena has a fixed number of buffers. Before a frame may be sent, the sink must have
//! granted a buffer for it, and it grants them *per OST*: frames bound for a slow OST run out of
//! grants and wait in the source's queue, as names and numbers, while frames for the others pass.
//! Without this they would fill the sink's arena, and one slow target would stop them all (the
//! weak spot of LADS's sink, FAST '15, section 3.4).

use crate::units::OstId;

/// The sink's books: how many buffers may be under way for each OST.
#[derive(Debug)]
pub struct Grants {
    /// Granted and not yet used, by OST.
    outstanding: Vec<u32>,
    /// Frames arrived and not yet written, by OST.
    held: Vec<u32>,
    /// Most of both together, by OST.
    share: u32,
}

impl Grants {
    /// Shares `buffer_count` buffers among `ost_count` OSTs.
    ///
    /// # Panics
    /// If there are fewer buffers than OSTs, or no OST.
    #[must_use]
    pub fn new(buffer_count: u32, ost_count: u32) -> Self {
        assert!(ost_count > 0 && buffer_count >= ost_count, "{buffer_count} for {ost_count} OSTs");
        let rows = vec![0; ost_count as usize];
        Self { outstanding: rows.clone(), held: rows, share: buffer_count / ost_count }
    }

    /// What can be granted now; it is on the books as granted when this returns.
    pub fn take_new(&mut self) -> Vec<(OstId, u32)> {
        let mut new = Vec::new();
        for (index, outstanding) in self.outstanding.iter_mut().enumerate() {
            let count = self.share - *outstanding - self.held[index];
            // Wait until a quarter of the share is free, so that grants travel in handfuls.
            let is_worth_a_message = count > 0 && count >= self.share.div_ceil(4);
            if is_worth_a_message {
                *outstanding += count;
                let ost = OstId(u32::try_from(index).expect("as many as ost_count"));
                new.push((ost, count));
            }
        }
        new
    }

    /// A frame for this OST begins to arrive: a grant is used up.
    /// `false` if the source had none, which is a breach of protocol.
    #[must_use]
    pub fn on_arrival(&mut self, ost: OstId) -> bool {
        match self.outstanding.get_mut(ost.index()) {
            Some(count) if *count > 0 => {
                *count -= 1;
                self.held[ost.index()] += 1;
                true
            }
            _ => false,
        }
    }

    /// The frame did not arrive whole: the source may use its grant again.
    pub fn on_lost(&mut self, ost: OstId) {
        self.held[ost.index()] -= 1;
        self.outstanding[ost.index()] += 1;
    }

    /// The frame's buffer is free again.
    pub fn on_release(&mut self, ost: OstId) {
        self.held[ost.index()] -= 1;
    }

    /// Frames that arrived and are not yet written.
    #[must_use]
    pub fn held_count(&self) -> u32 {
        self.held.iter().sum()
    }
}

/// The source's copy of the books: grants that it has not used.
#[derive(Debug, Default)]
pub struct Room {
    granted: Vec<u32>,
}

impl Room {
    /// The sink granted further buffers. The count can overflow only if the sink lies; then it
    /// stays at the largest number.
    pub fn on_grant(&mut self, ost: OstId, count: u32) {
        if self.granted.len() <= ost.index() {
            self.granted.resize(ost.index() + 1, 0);
        }
        let granted = &mut self.granted[ost.index()];
        *granted = granted.saturating_add(count);
    }

    /// Whether a frame for this OST may be sent.
    #[must_use]
    pub fn has(&self, ost: OstId) -> bool {
        self.granted.get(ost.index()).is_some_and(|&count| count > 0)
    }

    /// Uses a grant up.
    ///
    /// # Panics
    /// If there is none.
    pub fn take(&mut self, ost: OstId) {
        assert!(self.has(ost), "no room for {ost}");
        self.granted[ost.index()] -= 1;
    }

    /// Puts a grant back that was not needed after all.
    pub fn give_back(&mut self, ost: OstId) {
        self.on_grant(ost, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_ost_holds_no_more_than_its_share() {
        let mut grants = Grants::new(8, 2);
        assert_eq!(grants.take_new(), [(OstId(0), 4), (OstId(1), 4)]);
        for _ in 0..4 {
            assert!(grants.on_arrival(OstId(1)));
        }
        assert!(!grants.on_arrival(OstId(1)), "a fifth frame was not granted");
        assert_eq!(grants.take_new(), []);
        assert!(grants.on_arrival(OstId(0)));
        grants.on_release(OstId(0));
        assert_eq!(grants.take_new(), [(OstId(0), 1)]);
    }

    #[test]
    fn an_unknown_ost_has_no_room() {
        assert!(!Grants::new(8, 2).on_arrival(OstId(2)));
        assert!(!Room::default().has(OstId(9)));
    }
}
