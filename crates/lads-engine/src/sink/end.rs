//! The sink as one of two ends: what it can be asked and told by the threads that talk and watch.

use super::SinkEnd;
use crate::board::lock;
use crate::end::End;
use crate::fatal::Fatal;
use crate::hub::Hub;
use crate::usage;
use lads_core::issue::Side;
use lads_core::message::{Counters, Message};
use lads_core::sink::{Event, Sink};
use lads_core::source::Note;
use lads_core::units::{EntryId, Instant, StreamId};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

impl End for SinkEnd {
    type Session = Sink;
    const SIDE: Side = Side::Sink;
    const WAITS_FOR_PEER: bool = false;

    fn start(end: &Arc<Self>) -> Vec<JoinHandle<()>> {
        end.start()
    }

    fn on_open(&self) {
        if let Some(time) = self.streams.round_trip() {
            self.tell(Event::RoundTrip(time));
        }
    }

    fn on_more(end: &Arc<Self>, stream: StreamId) -> Option<JoinHandle<()>> {
        end.streams.on_more();
        let begun = end.spawn_receiver(stream)?;
        // Nobody receives on it: the source notices that it has ended.
        begun.map_err(|_| end.streams.lose(stream)).ok()
    }

    fn hub(&self) -> &Hub<Sink> {
        &self.hub
    }

    fn before(&self, message: &Message) -> Result<(), Fatal> {
        Self::before(self, message)
    }

    fn counters(&self) -> Counters {
        let mut counters = self.hub.with(|inner| {
            let session = &inner.session;
            let requests = session.requests();
            let threads = self.options.sink_threads;
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
        counters.cpu_limited_micros = usage::micros(self.hub.cpu_limited());
        counters.reduced = *lock(&self.reduced);
        counters.storage_micros += self.other_storage_micros.load(Ordering::Relaxed);
        counters
    }

    fn path_of(&self, entry: EntryId) -> Option<Vec<u8>> {
        Self::path_of(self, entry)
    }

    fn ost_bytes(&self) -> Vec<u64> {
        self.hub.with(|inner| usage::bytes_by_target(&self.osts, inner.session.ost_stats()))
    }

    fn pass_on(&self, _notes: Vec<Note>) {}

    fn on_frames(&self, counts: &[u64]) {
        lock(&self.missing).on_frames(counts, self.streams.count());
    }

    fn tend_streams(&self, now: Instant, timeout: Duration) {
        let unwatched = lock(&self.missing).end_silent(&self.streams, now, timeout);
        for stream in unwatched {
            self.tell(Event::StreamEnded { stream: stream.0, frames: 0 });
        }
    }
}
