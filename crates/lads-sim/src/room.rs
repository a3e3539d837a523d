//! Grants that were given and not used, as seen from outside of either session.

use crate::findings::Checked;
use lads_core::room::Lot;
use lads_core::units::OstId;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RoomBooks {
    /// Frames that may be sent, whatever their OST.
    pub(crate) frames: u32,
    osts: Vec<u32>,
}

impl RoomBooks {
    pub(crate) fn new(ost_count: usize) -> Self {
        Self { frames: 0, osts: vec![0; ost_count] }
    }

    /// The sink granted this.
    pub(crate) fn add(&mut self, lot: &Lot) {
        self.frames += lot.frames;
        for (ost, count) in &lot.osts {
            self.osts[ost.index()] += count;
        }
    }

    /// Whether the sink takes a frame for this OST, if it takes any.
    pub(crate) fn is_granted(&self, ost: OstId) -> bool {
        self.osts[ost.index()] > 0
    }

    /// Whether a frame for this OST may be sent.
    pub(crate) fn has(&self, ost: OstId) -> bool {
        self.frames > 0 && self.is_granted(ost)
    }

    /// A frame is sent, or arrives.
    pub(crate) fn take(&mut self, ost: OstId) -> Checked {
        if !self.has(ost) {
            return Err(format!("a frame without room at sink {ost}: {self:?}"));
        }
        self.osts[ost.index()] -= 1;
        self.frames -= 1;
        Ok(())
    }

    /// A frame was not sent, or did not arrive.
    pub(crate) fn give_back(&mut self, ost: OstId) {
        self.osts[ost.index()] += 1;
        self.frames += 1;
    }
}
