//! What the peer does honestly: the opening, whole files, the end.

use super::{Heard, Opening, Peer, Start, Stop, Told, hello, wrong};
use crate::entries::content_of;
use crate::frame::Frame;
use lads_core::entry::{Entry, Kind};
use lads_core::frame::Row;
use lads_core::issue::Side;
use lads_core::layout::Layout;
use lads_core::message::{Answer, BlockRange, Counters, Ending, Message, Root};
use lads_core::range::RangeSet;
use lads_core::room::Lot;
use lads_core::units::{EntryId, OstId};
use std::collections::HashMap;

/// Blocks of every case, in bytes: the value of `block-size` in [`crate::trial`].
pub const BLOCK_BYTES: usize = 64 << 10;

/// Frames that an honest sink has room for.
const ROOM: u32 = 64;

impl Peer {
    /// Goes honestly so far.
    ///
    /// # Errors
    /// If the honest end does not go along.
    pub fn open(&mut self, how_far: Opening) -> Told {
        if how_far >= Opening::Greeted {
            self.speak(&Message::Hello(hello()))?;
            self.expect(|heard| matches!(heard, Heard::Said(Message::Hello(_))).then_some(()))?;
        }
        if how_far >= Opening::Employed {
            self.employ()?;
        }
        if how_far >= Opening::Connected {
            match self.start {
                Start::Started => self.open_port()?,
                Start::Starts { .. } => self.hear_port()?,
            }
            self.connect_streams()?;
        }
        if how_far >= Opening::Ready {
            self.make_ready()?;
        }
        if how_far >= Opening::Announced {
            while self.files().len() < self.world.source_file_count() {
                self.hear()?;
            }
        }
        Ok(())
    }

    fn employ(&mut self) -> Told {
        self.job = match self.start.clone() {
            Start::Starts { job } => {
                self.speak(&Message::Job(job.clone()))?;
                job
            }
            Start::Started => self.expect(|heard| match heard {
                Heard::Said(Message::Job(job)) => Some(job.clone()),
                _ => None,
            })?,
        };
        Ok(())
    }

    /// Hears where the honest end listens; only if the peer started it.
    ///
    /// # Errors
    /// If it does not say so.
    pub fn hear_listen(&mut self) -> Told {
        self.hear_port()
    }

    /// Opens the data streams that are not open yet.
    ///
    /// # Errors
    /// If the honest end does not take part.
    pub fn connect(&mut self) -> Told {
        self.connect_streams()
    }

    /// Says what becomes of an entry.
    ///
    /// # Errors
    /// If the honest end is gone.
    pub fn answer_honestly(&mut self, entry: EntryId, answer: Answer) -> Told {
        self.speak(&Message::FileId(vec![(entry, answer)]))
    }

    /// Says ROOTS and hears READY, or the other way round.
    ///
    /// # Errors
    /// If the honest end does not take part.
    pub fn make_ready(&mut self) -> Told {
        if self.side == Side::Source {
            self.speak(&Message::Roots(vec![root()]))?;
            let is_ready = |heard: &Heard| matches!(heard, Heard::Said(Message::Ready { .. }));
            return self.expect(|heard| is_ready(heard).then_some(()));
        }
        self.expect(|heard| matches!(heard, Heard::Said(Message::Roots(_))).then_some(()))?;
        self.speak(&Message::Ready {
            ost_count: 1,
            open_files_max: 100,
            is_renamed: false,
            time_unit_nanos: 1,
        })?;
        self.speak(&Message::Grant(Lot::of(vec![(OstId(0), ROOM)])))
    }

    /// Announces entries.
    ///
    /// # Errors
    /// If the honest end is gone.
    pub fn announce(&mut self, entries: &[Entry]) -> Told {
        self.speak(&Message::NewFile(entries.to_vec()))
    }

    /// Announces a file and hears that it is wanted.
    ///
    /// # Errors
    /// If it is not.
    pub fn offer(&mut self, file: &Entry) -> Told<Layout> {
        self.announce(std::slice::from_ref(file))?;
        match self.expect_answer(file.id.0)? {
            Answer::Want { layout, .. } => Ok(layout),
            answer => wrong(format!("{:?} is not wanted: {answer:?}", file.name)),
        }
    }

    /// Moves a file from its announcement to its name.
    ///
    /// # Errors
    /// If that does not go well.
    pub fn deliver(&mut self, file: &Entry, stream: u16) -> Told {
        let layout = self.offer(file)?;
        self.send_data(file, &layout, stream)?;
        self.expect_complete(file.id.0)
    }

    /// Sends a file that was announced, if the sink wants it: the harm may come only then.
    ///
    /// # Errors
    /// As [`Self::deliver`], but not if the sink refuses the file.
    pub fn deliver_if_wanted(&mut self, file: &Entry, stream: u16) -> Told {
        let Answer::Want { layout, .. } = self.expect_answer(file.id.0)? else { return Ok(()) };
        self.send_data(file, &layout, stream)?;
        self.expect_ending(file.id.0).map(drop)
    }

    /// Hears that a file has its name.
    ///
    /// # Errors
    /// If it has not.
    pub fn expect_complete(&mut self, id: u64) -> Told {
        match self.expect_ending(id)? {
            Ending::Complete => Ok(()),
            ending => wrong(format!("entry {id} ended with {ending:?}")),
        }
    }

    /// Sends all blocks of a file that is wanted, and vouches for it.
    ///
    /// # Errors
    /// If there is no room, or nobody who takes them.
    pub fn send_data(&mut self, file: &Entry, layout: &Layout, stream: u16) -> Told {
        let content = content_of(&file.name, usize::try_from(file.size()).unwrap());
        let is_one_block = content.len() <= BLOCK_BYTES;
        let mut offset = 0;
        while offset < content.len() {
            let stripe_end =
                usize::try_from(layout.stripe_end(offset as u64)).unwrap_or(usize::MAX);
            let end = content.len().min(offset + BLOCK_BYTES).min(stripe_end);
            let ost = layout.ost_at(offset as u64).0;
            self.take_grant(ost)?;
            let frame = Frame::of(file.id.0, offset as u64, &content[offset..end]);
            let frame = if is_one_block { frame.whole() } else { frame };
            self.put_frame(stream, &frame.with(|frame| frame.sink_ost = ost))?;
            offset = end;
        }
        if !is_one_block {
            self.await_blocks(file)?;
            self.speak(&Message::FileDone(vec![(file.id, Ending::Complete)]))?;
        }
        Ok(())
    }

    /// Hears that all of a file is durable.
    fn await_blocks(&mut self, file: &Entry) -> Told {
        let mut done = RangeSet::new();
        while !done.contains(0..file.size()) {
            let ranges = self.expect(|heard| match heard {
                Heard::Said(Message::BlockDone(ranges)) => Some(ranges.clone()),
                _ => None,
            })?;
            for range in ranges.iter().filter(|range| range.entry == file.id) {
                done.insert(range.offset..range.offset + range.length);
            }
        }
        Ok(())
    }

    /// Waits until there is room for a frame, and uses it.
    fn take_grant(&mut self, ost: u32) -> Told {
        while self.frames_granted == 0 || self.grants.get(&ost).is_none_or(|&count| count == 0) {
            self.hear()?;
        }
        self.frames_granted -= 1;
        *self.grants.entry(ost).or_default() -= 1;
        Ok(())
    }

    /// Says that everything has ended, and hears that everything is durable.
    ///
    /// # Errors
    /// If it is not.
    pub fn finish(&mut self) -> Told {
        self.speak(&Message::Finish { is_complete: true })?;
        self.expect(|heard| matches!(heard, Heard::Said(Message::Finished(_))).then_some(()))?;
        self.end_as_source()
    }

    /// The honest sink has said FINISHED.
    ///
    /// # Errors
    /// If it does not go.
    pub fn end_as_source(&mut self) -> Told {
        // The honest end has been told everything: now it has to go.
        self.output = None;
        self.linger(false)
    }

    /// Plays an honest sink from here to the end, for entries already announced and others.
    ///
    /// # Errors
    /// If the source does not come to its end.
    pub fn sink_honestly(&mut self) -> Told {
        self.sink_until_finish()?;
        self.end_as_sink()
    }

    /// The same, but for the last word.
    ///
    /// # Errors
    /// If the source does not come to its end.
    pub fn sink_until_finish(&mut self) -> Told {
        let mut sink = HonestSink::default();
        for entry in self.announced.clone() {
            sink.answer(self, &entry)?;
        }
        loop {
            match self.hear()? {
                Heard::Said(Message::NewFile(entries)) => {
                    for entry in entries {
                        sink.answer(self, &entry)?;
                    }
                }
                Heard::Said(Message::FileDone(endings)) => {
                    self.speak(&Message::FileDone(endings))?;
                }
                Heard::Said(Message::Finish { .. }) => return Ok(()),
                Heard::Frame(rows) => sink.take_in(self, &rows)?,
                _ => {}
            }
        }
    }

    /// Says that everything is durable.
    ///
    /// # Errors
    /// If the source is gone.
    pub fn end_as_sink(&mut self) -> Told {
        self.speak(&Message::Finished(Counters::default()))?;
        self.output = None;
        self.linger(false)
    }
}

/// What an honest sink keeps in mind.
#[derive(Default)]
struct HonestSink {
    sizes: HashMap<EntryId, u64>,
}

impl HonestSink {
    fn answer(&mut self, peer: &mut Peer, entry: &Entry) -> Told {
        self.sizes.insert(entry.id, entry.size());
        let answer = match entry.kind {
            Kind::File { .. } => want(OstId(0)),
            _ => Answer::Made,
        };
        peer.speak(&Message::FileId(vec![(entry.id, answer)]))
    }

    fn take_in(&mut self, peer: &mut Peer, rows: &[Row]) -> Told {
        peer.speak(&Message::Grant(Lot::of(vec![(OstId(0), 1)])))?;
        for row in rows {
            let Some(size) = self.sizes.get(&row.block.entry) else { return Err(Stop::Gone) };
            if row.block.end() > *size {
                return wrong(format!("{:?} lies beyond its file", row.block));
            }
            let (entry, offset, length) =
                (row.block.entry, row.block.offset, u64::from(row.block.length));
            if row.is_whole {
                peer.speak(&Message::FileDone(vec![(entry, Ending::Complete)]))?;
            } else {
                peer.speak(&Message::BlockDone(vec![BlockRange { entry, offset, length }]))?;
            }
        }
        Ok(())
    }
}

/// The answer of an honest sink that has nothing of a file and keeps it on one OST.
#[must_use]
pub fn want(ost: OstId) -> Answer {
    Answer::Want { done: RangeSet::new(), layout: Layout::on(ost) }
}

/// What an honest source says that it moves: the contents of a directory.
#[must_use]
pub fn root() -> Root {
    Root { name: b"src".to_vec(), is_directory: true, is_contents_only: true }
}
