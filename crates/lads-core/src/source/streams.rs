//! Which frames were sent on which stream, so that frames lost with a stream are sent again on
//! another one.
//!
//! A stream carries frames in order. When a stream ends, the sink says how many whole frames of it
//! arrived. The later ones did not arrive, and their grants were not used.

use super::files::Files;
use crate::limits::FRAMES_UNSETTLED_MAX;
use crate::schedule::Work;
use crate::units::{OstId, StreamId};
use std::collections::VecDeque;

/// The frames of all streams.
#[derive(Debug, Default)]
pub(super) struct Streams {
    rows: Vec<Stream>,
}

/// The frames of one stream.
#[derive(Debug, Default)]
struct Stream {
    /// Frames that may still be lost, each with the number of frames sent before it.
    sent: VecDeque<(u64, Work)>,
    /// Frames of files that failed: their blocks are not needed any more, but it is not known
    /// whether they arrived, until a later frame did. If they did not arrive, their grants are
    /// given back.
    unsure: VecDeque<(u64, OstId)>,
    /// The number of whole frames that the sink had when it saw the stream end.
    ended_at: Option<u64>,
}

/// Frames that did not arrive when a stream ended.
#[derive(Debug)]
pub(super) struct Lost {
    /// Frames that are still needed, or may be.
    pub(super) frames: Vec<Work>,
    /// The sink OSTs of the frames that are not needed any more.
    pub(super) unsure: Vec<OstId>,
}

impl Streams {
    /// A frame was sent, after `number` others on this stream. Returns the frame if its stream is
    /// known to be lost.
    pub(super) fn on_sent(
        &mut self,
        stream: StreamId,
        number: u64,
        work: Work,
        files: &mut Files,
    ) -> Option<Work> {
        let row = self.row(stream);
        if row.ended_at.is_some_and(|frames| number >= frames) {
            return Some(work);
        }
        row.forget_settled(files);
        row.sent.push_back((number, work));
        None
    }

    /// When the stream ended, the sink had this many whole frames of it.
    pub(super) fn on_end(&mut self, stream: StreamId, frames: u64, files: &mut Files) -> Lost {
        let row = self.row(stream);
        row.ended_at = Some(frames);
        let mut lost = Lost { frames: Vec::new(), unsure: Vec::new() };
        for (number, work) in std::mem::take(&mut row.sent) {
            if number >= frames {
                lost.frames.push(work);
            } else {
                files.on_back(&work.blocks);
            }
        }
        let unsure = std::mem::take(&mut row.unsure).into_iter();
        lost.unsure.extend(unsure.filter(|(number, _)| *number >= frames).map(|(_, ost)| ost));
        lost
    }

    /// Whether no more frames may be sent: the most frames whose fate may be unknown have been
    /// sent.
    pub(super) fn is_full(&self) -> bool {
        let count: usize = self.rows.iter().map(|stream| stream.sent.len()).sum();
        count >= FRAMES_UNSETTLED_MAX
    }

    /// Forgets all frames for which nothing more will happen.
    pub(super) fn settle(&mut self, files: &mut Files) {
        self.rows.iter_mut().for_each(|stream| stream.forget_all_settled(files));
    }

    fn row(&mut self, stream: StreamId) -> &mut Stream {
        if self.rows.len() <= stream.index() {
            self.rows.resize_with(stream.index() + 1, Stream::default);
        }
        &mut self.rows[stream.index()]
    }
}

impl Stream {
    /// Forgets such frames at the front of the queue.
    fn forget_settled(&mut self, files: &mut Files) {
        while let Some((number, work)) =
            self.sent.pop_front_if(|(_, work)| is_work_settled(files, work))
        {
            self.forget(number, &work, files);
        }
    }

    /// Forgets all such frames, also those behind a frame for which something will still happen.
    fn forget_all_settled(&mut self, files: &mut Files) {
        for (number, work) in std::mem::take(&mut self.sent) {
            if is_work_settled(files, &work) {
                self.forget(number, &work, files);
            } else {
                self.sent.push_back((number, work));
            }
        }
    }

    fn forget(&mut self, number: u64, work: &Work, files: &mut Files) {
        if work.blocks.iter().all(|block| files.has_failed(block.entry)) {
            self.unsure.push_back((number, work.sink_ost));
        } else {
            // This frame arrived, and so did all frames before it.
            self.unsure.retain(|(before, _)| *before > number);
        }
        files.on_back(&work.blocks);
    }
}

fn is_work_settled(files: &Files, work: &Work) -> bool {
    work.blocks.iter().all(|block| files.is_settled(block))
}
