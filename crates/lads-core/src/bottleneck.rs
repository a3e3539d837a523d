//! Which part of the path limits the transfer, judged by what its threads waited for.

use crate::message::Counters;
use crate::tuning::Tuning;
use crate::units::Instant;
use std::time::Duration;

/// Which part of the path limits the transfer, judged by what its threads waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bottleneck {
    /// Reading at the source.
    SourceStorage,
    /// The processors of the source's host.
    SourceCpu,
    /// The network between the ends.
    Network,
    /// The processors of the sink's host.
    SinkCpu,
    /// Writing at the sink.
    SinkStorage,
    /// The rate limit that the user set.
    Limit,
    /// The share of the processors that the user set.
    CpuLimit,
}

/// What limited the transfer lately, and for how long each part has.
#[derive(Debug, Default)]
pub struct Bottlenecks {
    tuning: Tuning,
    decided: Instant,
    source: Counters,
    sink: Counters,
    lately: Option<Bottleneck>,
    spans: Vec<(Bottleneck, Duration)>,
}

impl Bottlenecks {
    /// What limits the transfer now, given the counters of both ends.
    pub fn lately(
        &mut self,
        now: Instant,
        source: &Counters,
        sink: &Counters,
    ) -> Option<Bottleneck> {
        let span = now.since(self.decided);
        if span >= self.tuning.verdict_interval
            && let Some(found) =
                between(&self.tuning, (&self.source, &self.sink), (source, sink), span)
        {
            self.decided = now;
            (self.source, self.sink) = (source.clone(), sink.clone());
            self.lately = Some(found);
            match self.spans.iter_mut().find(|(it, _)| *it == found) {
                Some((_, sum)) => *sum += span,
                None => self.spans.push((found, span)),
            }
        }
        self.lately
    }

    /// What limited the whole transfer, which took until `now`: the part that did so for most of
    /// the time. `None` if too little has happened to tell.
    #[must_use]
    pub fn of_all(&self, now: Instant, source: &Counters, sink: &Counters) -> Option<Bottleneck> {
        let longest = self.spans.iter().max_by_key(|(_, sum)| *sum);
        longest.map(|(it, _)| *it).or_else(|| {
            let nothing = Counters::default();
            between(&self.tuning, (&nothing, &nothing), (source, sink), now.since_start())
        })
    }
}

/// What limited the transfer in a span of time, given the counters of both ends before and after:
///
/// - The rate limit, if most of the bytes sent had to wait for it: a limit far above the actual
///   rate lets nearly everything pass at once.
/// - The share of the processors that the person allows, if threads of an end had to wait for it.
/// - The processors of an end, if its threads had to wait for them, and calls to storage do not
///   explain where the time went: what is short is where threads queue. Threads that are woken
///   together wait for each other even where a processor is idle most of the time: if both ends
///   wait, it is the end whose processors had less idle time, or else the one whose threads waited
///   the larger part of the time.
/// - What follows the source, if the source had nothing to do although its storage was free. That
///   is the sink's storage if calls there took long and sending did not, and otherwise the network.
/// - Otherwise the source's storage, or the network if threads took longer to send than to read.
///   Each block has room at the sink before it is sent, so slow storage there does not slow down
///   sending.
fn between(
    tuning: &Tuning,
    before: (&Counters, &Counters),
    now: (&Counters, &Counters),
    span: Duration,
) -> Option<Bottleneck> {
    let of_source = |of: fn(&Counters) -> u64| of(now.0).saturating_sub(of(before.0));
    let of_sink = |of: fn(&Counters) -> u64| of(now.1).saturating_sub(of(before.1));
    let time_of_source = |of| Duration::from_micros(of_source(of));
    let time_of_sink = |of| Duration::from_micros(of_sink(of));
    let sent = of_source(|it| it.bytes_sent);
    if of_source(|it| it.bytes_limited) as f64 > sent as f64 * tuning.verdict_limited_part {
        return Some(Bottleneck::Limit);
    }
    let reading = time_of_source(|it| it.storage_micros);
    let sending = time_of_source(|it| it.network_micros);
    let writing = time_of_sink(|it| it.storage_micros);
    if reading.saturating_add(sending).saturating_add(writing) <= tuning.verdict_work_min {
        return None;
    }
    let cpu_limited = |it: &Counters| it.cpu_limited_micros;
    let cpu_limited = time_of_source(cpu_limited).max(time_of_sink(cpu_limited));
    if cpu_limited > span.mul_f64(tuning.verdict_cpu_limited_part) {
        return Some(Bottleneck::CpuLimit);
    }
    let starved = time_of_source(|it| it.starved_micros);
    let is_starved = starved > span.mul_f64(tuning.verdict_starved_part);
    let in_storage = reading.saturating_add(writing);
    let delay = |it: &Counters| it.cpu_delay_micros;
    let lack = |had, waited| cpu_lack(tuning, had, waited, in_storage, span);
    let waited = time_of_source(delay);
    // Threads that wait for a processor may hold what others of the source wait for.
    let cpu_of_source =
        lack(time_of_source(|it| it.cpu_micros), waited).filter(|_| !is_starved || waited > span);
    let cpu_of_sink = lack(time_of_sink(|it| it.cpu_micros), time_of_sink(delay));
    let idle = time_of_source(|it| it.cpu_idle_micros);
    let idle_at_sink = time_of_sink(|it| it.cpu_idle_micros);
    let idle_part = span.mul_f64(tuning.verdict_idle_part);
    let is_sending = sending >= span.mul_f64(tuning.verdict_sending_part);
    let is_writing = writing > span.mul_f64(tuning.verdict_writing_part);
    Some(match (cpu_of_source, cpu_of_sink) {
        (Some(_), None) => Bottleneck::SourceCpu,
        (None, Some(_)) => Bottleneck::SinkCpu,
        (Some(_), Some(_)) if idle + idle_part < idle_at_sink => Bottleneck::SourceCpu,
        (Some(_), Some(_)) if idle_at_sink + idle_part < idle => Bottleneck::SinkCpu,
        (Some(source), Some(sink)) if sink <= source => Bottleneck::SourceCpu,
        (Some(_), Some(_)) => Bottleneck::SinkCpu,
        _ if is_starved && !is_sending && is_writing => Bottleneck::SinkStorage,
        _ if !is_starved && reading >= sending => Bottleneck::SourceStorage,
        _ => Bottleneck::Network,
    })
}

/// For which part of the time that threads of an end wanted a processor they waited for it; `None`
/// if that was no hindrance: together they wanted little of a processor
/// ([`Tuning::verdict_wanted_part`]), or waited for a small part of that time
/// ([`Tuning::verdict_waited_part`]), or threads of both ends were in calls to storage for far
/// longer ([`Tuning::verdict_storage_times`]). In a call to fast storage, a thread mostly has a
/// processor or waits for one, so the calls of both ends take about as long as that.
fn cpu_lack(
    tuning: &Tuning,
    had: Duration,
    waited: Duration,
    in_storage: Duration,
    span: Duration,
) -> Option<f64> {
    let wanted = had.saturating_add(waited);
    let is_short = wanted > span.mul_f64(tuning.verdict_wanted_part)
        && waited > wanted.mul_f64(tuning.verdict_waited_part)
        && in_storage <= wanted.mul_f64(tuning.verdict_storage_times);
    is_short.then(|| waited.as_secs_f64() / wanted.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Duration = Duration::from_secs(1);

    fn at(millis: u64) -> Instant {
        Instant::after_start(Duration::from_millis(millis))
    }

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

    fn found(source: &Counters, sink: &Counters) -> Option<Bottleneck> {
        let nothing = Counters::default();
        between(&Tuning::DEFAULT, (&nothing, &nothing), (source, sink), SPAN)
    }

    #[test]
    fn a_source_that_is_never_idle_reads_or_sends() {
        let busy_sink = sink(3_000_000);
        for (reading, sending, expected) in [
            (900_000, 10, Bottleneck::SourceStorage),
            (10, 900_000, Bottleneck::Network),
            (2_000_000, 1_900_000, Bottleneck::SourceStorage),
        ] {
            assert_eq!(found(&source(reading, sending, 100, 0), &busy_sink), Some(expected));
        }
        assert_eq!(found(&source(10, 10, 100, 0), &sink(10)), None);
    }

    #[test]
    fn a_source_that_is_idle_waits_for_the_storage_of_the_sink_if_that_is_busy() {
        let idle = Counters { starved_micros: 600_000, ..source(100_000, 300_000, 100, 0) };
        assert_eq!(found(&idle, &sink(900_000)), Some(Bottleneck::SinkStorage));
        assert_eq!(found(&idle, &sink(100_000)), Some(Bottleneck::Network), "it waits for answers");
        let sends = Counters { network_micros: 900_000, ..idle };
        assert_eq!(found(&sends, &sink(900_000)), Some(Bottleneck::Network));
    }

    #[test]
    fn threads_that_wait_for_a_processor_need_it() {
        let with = |counters, cpu_micros, cpu_delay_micros| Counters {
            cpu_micros,
            cpu_delay_micros,
            ..counters
        };
        let (reading, idle_sink) = (source(900_000, 10, 100, 0), sink(10));
        let short = |counters| with(counters, 400_000, 400_000);
        assert_eq!(found(&short(reading.clone()), &idle_sink), Some(Bottleneck::SourceCpu));
        assert_eq!(found(&reading, &short(idle_sink.clone())), Some(Bottleneck::SinkCpu));
        let both = found(&with(reading.clone(), 900_000, 800_000), &short(idle_sink.clone()));
        assert_eq!(both, Some(Bottleneck::SinkCpu), "its threads wait for more of the time");
        let idle = |counters, cpu_idle_micros| Counters { cpu_idle_micros, ..counters };
        let source = short(reading.clone());
        let held_up = idle(with(reading.clone(), 900_000, 4_000_000), 100_000);
        assert_eq!(found(&held_up, &short(idle_sink.clone())), Some(Bottleneck::SinkCpu));
        let sink = idle(with(idle_sink.clone(), 300_000, 2_000_000), 400_000);
        assert_eq!(found(&source, &sink), Some(Bottleneck::SourceCpu), "the sink has idle time");
        let plenty = found(&with(reading.clone(), 900_000, 100_000), &idle_sink);
        assert_eq!(plenty, Some(Bottleneck::SourceStorage), "it has what it needs");
        let little = found(&with(reading, 50_000, 200_000), &idle_sink);
        assert_eq!(little, Some(Bottleneck::SourceStorage), "it needs little");
    }

    /// As measured where storage was slow and other programs used the processors: the summary
    /// blamed the processors.
    #[test]
    fn threads_that_are_in_calls_to_slow_storage_hardly_lack_processors() {
        let busy =
            |counters| Counters { cpu_micros: 200_000, cpu_delay_micros: 1_200_000, ..counters };
        let reading = busy(source(25_000_000, 60_000, 100, 0));
        assert_eq!(found(&reading, &busy(sink(5_000_000))), Some(Bottleneck::SourceStorage));
        let idle = Counters { starved_micros: 1_000_000, ..busy(source(800_000, 60_000, 100, 0)) };
        assert_eq!(found(&idle, &busy(sink(20_000_000))), Some(Bottleneck::SinkStorage));
        assert_eq!(found(&idle, &busy(sink(1_000_000))), Some(Bottleneck::SourceCpu));
    }

    /// The summary blamed storage for what `--bwlimit` held up.
    #[test]
    fn a_limit_that_most_bytes_waited_for_held_the_others_up_however_slow_storage_is() {
        let slow = sink(900_000_000);
        let limited = |bytes| Counters {
            starved_micros: 900_000,
            cpu_delay_micros: 900_000,
            cpu_micros: 900_000,
            ..source(900_000, 10, 100, bytes)
        };
        assert_eq!(found(&limited(95), &slow), Some(Bottleneck::Limit));
        assert_eq!(found(&limited(10), &slow), Some(Bottleneck::SinkStorage));
    }

    #[test]
    fn an_end_that_waits_for_its_share_of_the_processors_is_held_up_by_that() {
        let with = |counters, cpu_limited_micros| Counters { cpu_limited_micros, ..counters };
        let (source, sink) = (source(900_000, 10, 100, 0), sink(900_000));
        for (at_source, at_sink) in [(500_000, 0), (0, 150_000)] {
            let found = found(&with(source.clone(), at_source), &with(sink.clone(), at_sink));
            assert_eq!(found, Some(Bottleneck::CpuLimit));
        }
        let rarely = found(&with(source.clone(), 50_000), &sink);
        assert_eq!(rarely, Some(Bottleneck::SourceStorage));
    }

    #[test]
    fn it_is_decided_by_what_happened_in_the_last_second_or_so() {
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

    #[test]
    fn all_in_all_it_is_what_limited_most_of_the_time() {
        let mut found = Bottlenecks::default();
        let idle = Counters::default();
        let all = found.of_all(at(500), &source(0, 400_000, 1, 0), &idle);
        assert_eq!(all, Some(Bottleneck::Network), "it was over before it was decided");
        found.lately(at(3000), &source(900_000, 0, 10, 0), &idle);
        found.lately(at(4000), &source(900_000, 900_000, 10, 0), &idle);
        let all = found.of_all(at(4100), &source(900_000, 8_900_000, 10, 0), &idle);
        assert_eq!(all, Some(Bottleneck::SourceStorage));
    }
}
