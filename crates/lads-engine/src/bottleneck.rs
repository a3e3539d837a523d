//! Which part of the path limits the transfer, judged by what its threads waited for.

use crate::event::Bottleneck;
use lads_core::message::Counters;
use lads_core::units::Instant;
use std::time::Duration;

/// How often the bottleneck is judged again. In the first tenth of a second, the rate limit lets
/// through what it saved up: with half of this interval, storage would often be named instead of
/// the limit. With the double, a change would be shown late.
const INTERVAL: Duration = Duration::from_secs(1);

/// With less work than this by all threads together, in microseconds, no bottleneck is named. Half
/// of it is a few requests to a rotating disk, which chance decides. With the double, a transfer of
/// few small files would never get one.
const WORK_MICROS_MIN: u64 = 50_000;

/// What limited the transfer lately.
#[derive(Debug, Default)]
pub(crate) struct Bottlenecks {
    decided: Instant,
    source: Counters,
    sink: Counters,
    lately: Option<Bottleneck>,
}

impl Bottlenecks {
    /// What limits the transfer now, given the counters of both ends.
    pub(crate) fn lately(
        &mut self,
        now: Instant,
        source: &Counters,
        sink: &Counters,
    ) -> Option<Bottleneck> {
        if now.since(self.decided) >= INTERVAL
            && let Some(found) = between((&self.source, &self.sink), (source, sink))
        {
            self.decided = now;
            (self.source, self.sink) = (source.clone(), sink.clone());
            self.lately = Some(found);
        }
        self.lately
    }
}

/// What limited the whole transfer, given the counters of both ends; `None` if too little has
/// happened to tell.
pub(crate) fn of_all(source: &Counters, sink: &Counters) -> Option<Bottleneck> {
    between((&Counters::default(), &Counters::default()), (source, sink))
}

/// The rate limit, if most of the bytes sent had to wait for it: a limit far above the actual rate
/// lets nearly everything pass at once. Otherwise the part for which threads needed most time. If
/// the threads of the source mostly wait to send, that is the network, or a sink that takes longer
/// to write than the network takes.
fn between(before: (&Counters, &Counters), now: (&Counters, &Counters)) -> Option<Bottleneck> {
    let grown = |of: fn(&Counters) -> u64| of(now.0).saturating_sub(of(before.0));
    let (limited, sent) = (grown(|it| it.bytes_limited), grown(|it| it.bytes_sent));
    if limited > sent / 2 {
        return Some(Bottleneck::Limit);
    }
    let reading = grown(|it| it.storage_micros);
    let sending = grown(|it| it.network_micros);
    let writing = now.1.storage_micros.saturating_sub(before.1.storage_micros);
    if reading + sending + writing <= WORK_MICROS_MIN {
        return None;
    }
    Some(match (reading >= sending, writing >= sending) {
        (true, _) if reading >= writing => Bottleneck::SourceStorage,
        (_, true) => Bottleneck::SinkStorage,
        _ => Bottleneck::Network,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(reading: u64, sending: u64, bytes_sent: u64, bytes_limited: u64) -> Counters {
        Counters {
            storage_micros: reading,
            network_micros: sending,
            bytes_sent,
            bytes_limited,
            ..Counters::default()
        }
    }

    fn sink(writing: u64) -> Counters {
        Counters { storage_micros: writing, ..Counters::default() }
    }

    #[test]
    fn what_took_longest_held_the_others_up() {
        for (reading, sending, writing, expected) in [
            (900_000, 10, 10, Bottleneck::SourceStorage),
            (10, 900_000, 10, Bottleneck::Network),
            (10, 10, 900_000, Bottleneck::SinkStorage),
            (10, 800_000, 900_000, Bottleneck::SinkStorage),
        ] {
            let found = of_all(&source(reading, sending, 100, 0), &sink(writing));
            assert_eq!(found, Some(expected));
        }
        assert_eq!(of_all(&source(10, 10, 100, 0), &sink(10)), None);
    }

    /// The summary blamed storage for what `--bwlimit` held up.
    #[test]
    fn a_limit_that_most_bytes_waited_for_held_the_others_up_however_slow_storage_is() {
        let slow = sink(900_000_000);
        assert_eq!(of_all(&source(900_000, 10, 100, 95), &slow), Some(Bottleneck::Limit));
        assert_eq!(of_all(&source(900_000, 10, 100, 10), &slow), Some(Bottleneck::SinkStorage));
    }

    #[test]
    fn it_is_decided_by_what_happened_in_the_last_second_or_so() {
        let at = |millis| Instant::after_start(Duration::from_millis(millis));
        let mut found = Bottlenecks::default();
        let sink = Counters::default();
        assert_eq!(found.lately(at(900), &source(900_000, 0, 10, 0), &sink), None);
        let reading = Some(Bottleneck::SourceStorage);
        assert_eq!(found.lately(at(1000), &source(900_000, 0, 10, 0), &sink), reading);
        let later = source(900_000, 0, 20, 10);
        assert_eq!(found.lately(at(1900), &later, &sink), reading);
        assert_eq!(found.lately(at(2000), &later, &sink), Some(Bottleneck::Limit));
        // Nothing has happened since: it is as it was.
        assert_eq!(found.lately(at(9000), &later, &sink), Some(Bottleneck::Limit));
    }
}
