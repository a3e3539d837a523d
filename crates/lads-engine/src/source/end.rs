//! The source as one of two ends, for the threads that talk and watch.

use super::SourceEnd;
use crate::board::lock;
use crate::end::End;
use crate::fatal::Fatal;
use crate::hub::Hub;
use crate::usage;
use lads_core::issue::Side;
use lads_core::message::{Counters, Message};
use lads_core::source::{Note, Source};
use lads_core::units::{EntryId, Instant, StreamId};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

impl End for SourceEnd {
    type Session = Source;
    const SIDE: Side = Side::Source;
    const WAITS_FOR_PEER: bool = true;

    fn start(end: &Arc<Self>) -> Vec<JoinHandle<()>> {
        end.start()
    }

    fn on_more(end: &Arc<Self>, _stream: StreamId) -> Option<JoinHandle<()>> {
        end.start_one_more(end.streams.on_more())
    }

    fn hub(&self) -> &Hub<Source> {
        &self.hub
    }

    fn before(&self, message: &Message) -> Result<(), Fatal> {
        match message {
            Message::Ready { is_renamed, .. } => self.before_ready(*is_renamed),
            _ => Ok(()),
        }
    }

    fn counters(&self) -> Counters {
        let counters = self.hub.with(|inner| {
            let session = &inner.session;
            let requests = session.requests();
            let threads = self.options.source_threads;
            Counters {
                requests: requests.map(|it| self.io_bytes.complete(it, threads)),
                ..usage::complete(
                    session.counters(),
                    &self.osts,
                    session.ost_stats(),
                    &self.streams,
                    self.clock.now().since_start(),
                )
            }
        });
        let reduced = *lock(&self.reduced);
        Counters { cpu_limited_micros: usage::micros(self.hub.cpu_limited()), reduced, ..counters }
    }

    fn path_of(&self, entry: EntryId) -> Option<Vec<u8>> {
        Self::path_of(self, entry)
    }

    fn ost_bytes(&self) -> Vec<u64> {
        self.hub.with(|inner| usage::bytes_by_target(&self.osts, inner.session.ost_stats()))
    }

    fn pass_on(&self, notes: Vec<Note>) {
        Self::pass_on(self, notes);
    }

    fn on_frames(&self, _counts: &[u64]) {}

    fn tend_streams(&self, now: Instant, timeout: Duration) {
        let mut told = lock(&self.frames_told);
        if told.at.is_some_and(|at| now.since(at) < timeout / 6) {
            return;
        }
        told.at = Some(now);
        let counts = self.streams.frames();
        if counts != told.counts {
            told.counts.clone_from(&counts);
            self.hub.with(|inner| inner.messages.push_back(Message::Frames(counts)));
        }
    }
}
