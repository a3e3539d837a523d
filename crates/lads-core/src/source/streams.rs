//! Which frames went out on which stream: what is lost with a stream is sent again on another.
//!
//! A stream carries frames in their order. When one ends, the sink says how many whole frames it
//! had of it; those after them did not arrive, and their grants were not used.

use super::{Open, Source, is_settled};
use crate::limits::FRAMES_UNSETTLED_MAX;
use crate::schedule::Work;
use crate::units::{EntryId, OstId, StreamId};
use std::collections::{HashMap, HashSet, VecDeque};

/// The frames of one stream.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// Frames that may still be lost, each with how many went before it.
    sent: VecDeque<(u64, Work)>,
    /// Of these, frames of which nothing is needed any more because their files failed: whether
    /// they arrived is only known when a later one did. Their grants are given back if not.
    unsure: VecDeque<(u64, OstId)>,
    /// Frames that the sink had when it saw the stream end.
    ended_at: Option<u64>,
}

impl Stream {
    /// Forgets frames for which nothing more has to happen, from the first on.
    fn forget_settled(&mut self, open: &HashMap<EntryId, Open>, failed: &HashSet<EntryId>) {
        let is_settled = |(_, work): &mut (u64, Work)| is_work_settled(open, work);
        while let Some((number, work)) = self.sent.pop_front_if(is_settled) {
            self.forget(number, &work, failed);
        }
    }

    /// Forgets all such frames, also those behind one for which something has to happen.
    fn forget_all_settled(&mut self, open: &HashMap<EntryId, Open>, failed: &HashSet<EntryId>) {
        for (number, work) in std::mem::take(&mut self.sent) {
            if is_work_settled(open, &work) {
                self.forget(number, &work, failed);
            } else {
                self.sent.push_back((number, work));
            }
        }
    }

    fn forget(&mut self, number: u64, work: &Work, failed: &HashSet<EntryId>) {
        if work.blocks.iter().all(|block| failed.contains(&block.entry)) {
            self.unsure.push_back((number, work.sink_ost));
        } else {
            // It arrived, and so did all before it.
            self.unsure.retain(|(before, _)| *before > number);
        }
    }
}

impl Source {
    /// A frame went out; this many went before it on this stream.
    pub(super) fn on_sent(&mut self, stream: StreamId, number: u64, work: Work) {
        let work = self.free_slot(work);
        if !work.is_comparison {
            self.counters.blocks_sent += work.blocks.len() as u64;
            self.counters.bytes_sent += work.bytes();
        }
        self.grow_streams(stream);
        if self.streams[stream.index()].ended_at.is_some_and(|frames| number >= frames) {
            self.on_lost(work);
            return;
        }
        let Self { streams, open, failed, .. } = self;
        streams[stream.index()].forget_settled(open, failed);
        streams[stream.index()].sent.push_back((number, work));
    }

    /// The sink had this many whole frames of a stream when it ended.
    pub(super) fn on_stream_end(&mut self, stream: u16, frames: u64) {
        let stream = StreamId(stream);
        self.grow_streams(stream);
        let row = &mut self.streams[stream.index()];
        row.ended_at = Some(frames);
        for (number, work) in std::mem::take(&mut row.sent) {
            if number >= frames {
                self.on_lost(work);
            }
        }
        for (number, sink_ost) in std::mem::take(&mut self.streams[stream.index()].unsure) {
            if number >= frames {
                self.schedule.on_not_sent(sink_ost);
            }
        }
    }

    /// A frame did not arrive whole: its grant was not used, and its blocks must go again.
    pub(super) fn on_lost(&mut self, work: Work) {
        let work = self.free_slot(work);
        self.schedule.on_not_sent(work.sink_ost);
        for block in work.blocks {
            if !is_settled(&self.open, &block) {
                self.send_again(block);
            }
        }
    }

    /// Whether the sink may be sent more, although it has not said what became of all that was.
    pub(super) fn has_few_unsettled(&mut self) -> bool {
        let Self { streams, open, failed, .. } = self;
        let count = |streams: &[Stream]| streams.iter().map(|it| it.sent.len()).sum::<usize>();
        if count(streams) < FRAMES_UNSETTLED_MAX {
            return true;
        }
        streams.iter_mut().for_each(|stream| stream.forget_all_settled(open, failed));
        count(streams) < FRAMES_UNSETTLED_MAX
    }

    fn grow_streams(&mut self, stream: StreamId) {
        if self.streams.len() <= stream.index() {
            self.streams.resize_with(stream.index() + 1, Stream::default);
        }
    }
}

fn is_work_settled(open: &HashMap<EntryId, Open>, work: &Work) -> bool {
    work.blocks.iter().all(|block| is_settled(open, block))
}
