//! Which of the blocks that wait for one source OST go into the next frame.

use super::{Begun, Work, work_of};
use crate::limits::SPLIT_LANES_MAX;
use crate::plan::{Lane, Piece, Plan};
use crate::room::Room;
use crate::tuning::Tuning;
use crate::units::{Block, EntryId, EntryMap};
use std::collections::VecDeque;

pub(super) const PAGE_BYTES: u64 = 4096;

/// Whether a lane has a small file for a frame.
enum Packed {
    Block(Block),
    /// The lane has nothing left, or stands elsewhere, too: it goes from here.
    Gone,
    /// The frame has no space for it, or it goes elsewhere.
    Not,
}

/// The parts of the schedule that are needed to fill a frame from one OST's queue.
pub(super) struct Shelf<'a> {
    pub(super) tuning: &'a Tuning,
    pub(super) plans: &'a mut EntryMap<Plan>,
    pub(super) room: &'a Room,
    pub(super) begun: &'a mut Begun,
    pub(super) frame_bytes_max: u64,
    /// Whether the frame is to be staged: it may hold only blocks whose OST of the sink takes no
    /// more.
    pub(super) is_staging: bool,
    /// Whether queues are of tracks. Their lanes are not split by OSTs of the sink: what is to be
    /// read from one offset to another can be halved, and given to another track.
    pub(super) has_tracks: bool,
}

impl Shelf<'_> {
    /// Takes a frame for an OST of the sink that has little to do. Several lanes may have blocks
    /// for the same sink OST, which would wait there while other OSTs are idle. Queues of rotating
    /// disks are not reordered.
    pub(super) fn take_balanced(
        &mut self,
        lanes: &mut VecDeque<Lane>,
        bytes_max: u32,
    ) -> Option<(Work, Option<Lane>)> {
        let is_on_disk = lanes.front().is_some_and(|lane| lane.disk_offset > 0);
        let spare_wanted = if is_on_disk { 0 } else { self.spare_wanted(lanes) };
        (spare_wanted > 1)
            .then(|| self.take_frame(lanes, bytes_max, spare_wanted, self.tuning.balanced_lanes))?
    }

    /// How much a sink OST must have to spare to count as having little to do ([`Room::spare`]).
    /// Only sink OSTs of the first lanes are looked at.
    ///
    /// For files with one stripe it is half of the most that any of them has to spare. Such a file
    /// keeps one OST of the sink as busy as its source OST can, and to read further files at the
    /// same time only delays the end of all. Stripes of one file are read side by side and meet at
    /// one OST of the sink while others have nothing; so for striped files it is the most that any
    /// of them has.
    fn spare_wanted(&self, lanes: &VecDeque<Lane>) -> u32 {
        let most = self.room.most_spare();
        let mut wanted = 0;
        for lane in lanes.iter().take(self.tuning.balanced_lanes) {
            let Some((plan, piece)) = self.next_piece(lane) else { continue };
            if plan.source.position_count() == 1 {
                return wanted.max(most / 2);
            }
            if !lane.is_begun && self.begun.count >= self.begun.limit(self.is_staging) {
                break;
            }
            wanted = wanted.max(self.room.spare(piece.sink_ost));
            if wanted == most {
                break;
            }
        }
        wanted
    }

    /// Takes a block of at most `bytes_max` bytes from the first lane whose sink OST has room (or
    /// has none, if the block is to be staged). If the block is a whole small file, the small files
    /// behind it go into the same frame. Also returns the lane if it is the first one of its file
    /// to be begun and the file has other lanes.
    pub(super) fn take_frame(
        &mut self,
        lanes: &mut VecDeque<Lane>,
        bytes_max: u32,
        spare_wanted: u32,
        lookahead: usize,
    ) -> Option<(Work, Option<Lane>)> {
        let mut at = 0;
        let mut first_unbegun = None;
        while at < lanes.len().min(lookahead) {
            let mut lane = lanes[at];
            let Some((plan, mut piece)) = self.next_piece(&lane) else {
                lanes.remove(at);
                continue;
            };
            piece.length = piece.length.min(bytes_max);
            if plan.is_begun && !lane.is_begun {
                // It stands further ahead.
                lanes.remove(at);
                continue;
            }
            match first_unbegun {
                None if !lane.is_begun => first_unbegun = Some(lane),
                Some(before) => assert!(!lane.is_begun, "{lane:?} has begun, behind {before:?}"),
                None => {}
            }
            if !lane.is_begun && self.begun.count >= self.begun.limit(self.is_staging) {
                // No lane behind this one has been begun.
                return None;
            }
            let (is_small, is_comparison) = (self.is_packed(plan, &piece), plan.is_comparison);
            let is_passed = match self.is_staging {
                true => is_comparison || self.room.is_granted(piece.sink_ost),
                false => self.room.spare(piece.sink_ost) < spare_wanted,
            };
            if is_passed {
                let is_splittable = lane.sink_position.is_none() && self.can_be_split(plan);
                if lane.is_begun && is_splittable {
                    // Lanes of the same file for other OSTs of the sink need not wait for this
                    // lane.
                    lanes.remove(at);
                    self.put_back(lanes, at, lane, true);
                } else {
                    at += 1;
                }
                continue;
            }
            let is_new = !std::mem::replace(&mut lane.is_begun, true);
            self.admit(lane.entry);
            let mut work = Work { is_comparison, ..work_of(&lane, &piece) };
            self.take(&work.blocks[0]);
            lanes.remove(at);
            if is_small {
                self.pack(lanes, at, &mut work, bytes_max);
                return Some((work, None));
            }
            lane.offset = piece.offset + u64::from(piece.length);
            let has_strays = self.extend(&mut lane, &mut work, bytes_max);
            let place = if is_new { lanes.partition_point(|other| other.is_begun) } else { at };
            self.put_back(lanes, place, lane, has_strays);
            return Some((work, is_new.then_some(lane)));
        }
        None
    }

    /// Adds the next stripes of the lane while the frame has space: several short stripes cost no
    /// more than one block. Returns whether it stopped at a short stripe that goes to another OST
    /// of the sink.
    fn extend(&mut self, lane: &mut Lane, work: &mut Work, bytes_max: u32) -> bool {
        let bytes_max = self.frame_bytes_max.min(bytes_max.into());
        let mut bytes = in_pages(work.blocks[0].length);
        while work.blocks.len() < self.tuning.packed_count_max
            && let Some((plan, piece)) = self.next_piece(lane)
        {
            bytes += in_pages(piece.length);
            if bytes > bytes_max {
                return false;
            }
            if piece.sink_ost != work.sink_ost {
                return lane.sink_position.is_none() && self.can_be_split(plan);
            }
            let block = Block { entry: lane.entry, offset: piece.offset, length: piece.length };
            work.blocks.push(block);
            self.take(&block);
            lane.offset = block.end();
        }
        false
    }

    /// Puts the rest of a lane back. If `is_split`, it becomes one lane for each OST of the sink,
    /// so that stripes for the same sink OST follow each other.
    fn put_back(&self, lanes: &mut VecDeque<Lane>, place: usize, lane: Lane, is_split: bool) {
        if is_split && let Some(plan) = self.plans.get(&lane.entry) {
            plan.split(&lane).rev().for_each(|lane| lanes.insert(place, lane));
            return;
        }
        // Of lanes that were one lane, the one with the least progress goes first.
        let behind = lanes.iter().skip(place).take_while(|other| {
            (other.entry, other.mirror, other.position) == (lane.entry, lane.mirror, lane.position)
                && other.offset < lane.offset
        });
        let place = place + behind.count();
        lanes.insert(place, lane);
    }

    /// Adds small files that follow in the queue and go to the same OST of the sink, while the
    /// frame has space. Files for other OSTs of the sink stay where they are: files are placed on
    /// all OSTs in turn, so those for one OST never follow each other. On a rotating disk, only
    /// files that follow each other share a frame.
    fn pack(&mut self, lanes: &mut VecDeque<Lane>, at: usize, work: &mut Work, bytes_max: u32) {
        let bytes_max = self.frame_bytes_max.min(bytes_max.into());
        let mut bytes = in_pages(work.blocks[0].length);
        let end = lanes.len().min(at + self.tuning.packed_lanes);
        let (mut looked, mut kept) = (at, at);
        while looked < end && work.blocks.len() < self.tuning.packed_count_max {
            let lane = lanes[looked];
            match self.packed(&lane, work, bytes_max.saturating_sub(bytes)) {
                Packed::Block(block) => {
                    bytes += in_pages(block.length);
                    work.blocks.push(block);
                    self.take(&block);
                }
                Packed::Gone => {}
                Packed::Not if lane.disk_offset > 0 => break,
                Packed::Not => {
                    lanes.swap(kept, looked);
                    kept += 1;
                }
            }
            looked += 1;
        }
        lanes.drain(kept..looked);
    }

    /// Whether the file of a lane goes into the frame; it is begun then.
    fn packed(&mut self, lane: &Lane, work: &Work, bytes_max: u64) -> Packed {
        let Some((plan, piece)) = self.next_piece(lane) else { return Packed::Gone };
        if plan.is_begun && !lane.is_begun {
            return Packed::Gone;
        }
        let fits = self.is_packed(plan, &piece)
            && (lane.mirror, piece.sink_ost) == (work.mirror, work.sink_ost)
            && plan.is_comparison == work.is_comparison
            && in_pages(piece.length) <= bytes_max;
        if !fits || !self.admit(lane.entry) {
            return Packed::Not;
        }
        Packed::Block(Block { entry: lane.entry, offset: piece.offset, length: piece.length })
    }

    fn next_piece(&self, lane: &Lane) -> Option<(&Plan, Piece)> {
        let plan = self.plans.get(&lane.entry)?;
        Some((plan, plan.next_piece(lane)?))
    }

    /// Marks a block of a file as handed out.
    fn take(&mut self, block: &Block) {
        if let Some(plan) = self.plans.get_mut(&block.entry) {
            plan.take(block.offset..block.end());
        }
    }

    /// Whether the block is a small file, which shares a frame with others.
    fn is_packed(&self, plan: &Plan, piece: &Piece) -> bool {
        plan.size <= self.tuning.packed_bytes_max && u64::from(piece.length) == plan.size
    }

    /// Whether a file may have one lane for each OST of the sink: only if these are not too many.
    fn can_be_split(&self, plan: &Plan) -> bool {
        let sink_count = plan.sink.position_count();
        let is_few = sink_count * plan.source.position_count() <= SPLIT_LANES_MAX;
        sink_count > 1 && is_few && !self.has_tracks && !plan.is_in_order
    }

    fn admit(&mut self, entry: EntryId) -> bool {
        let count_max = self.begun.limit(self.is_staging);
        self.plans.get_mut(&entry).is_some_and(|plan| self.begun.admit(plan, count_max))
    }
}

/// A length rounded up to whole pages: each block of a frame begins on a page of its own.
fn in_pages(length: u32) -> u64 {
    u64::from(length).div_ceil(PAGE_BYTES) * PAGE_BYTES
}
