//! The processors of an end: on which its threads run (`pin`), and how much of them they use
//! (`--max-cpu`).

use crate::board::lock;
use crate::clock::Clock;
use crate::event::ExitCode;
use crate::fatal::{Fatal, own_host};
use crate::job::Options;
use crate::thread::spawn_in;
use lads_core::cpu_list::{Pin, cpus};
use lads_core::cpu_share::CpuPace;
use lads_core::issue::Side;
use lads_core::tuning::Tuning;
use lads_core::units::Instant;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fs;
use std::sync::Mutex;
use std::time::Duration;

/// What the user wants of the processors of an end.
#[derive(Debug)]
pub(crate) struct Processors {
    /// How much of them is used; `None` for no limit.
    pub(crate) limit: Option<CpuLimit>,
    /// On which of them threads run; `None` for any.
    pinned: Option<CpuSet>,
}

/// A share of the processors while threads of an end use it.
#[derive(Debug)]
pub(crate) struct CpuLimit {
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    pace: CpuPace,
    /// How many threads wait, and since when at least one does.
    waiting: (usize, Instant),
    /// How long at least one thread has waited, before that.
    waited: Duration,
}

impl CpuLimit {
    /// `None` if an end may use all processors.
    pub(crate) fn of(options: &Options, clock: Clock) -> Option<Self> {
        let share = options.max_cpu?;
        let processors = u32::try_from(online().len()).unwrap_or(u32::MAX);
        let now = clock.now();
        let used = (now, lads_sys::cpu_time());
        let pace = CpuPace::new(share, processors, used, &Tuning::DEFAULT)?;
        let state = State { pace, waiting: (0, now), waited: Duration::ZERO };
        Some(Self { clock, state: Mutex::new(state) })
    }

    /// Calls `wait` with the time that a thread has to wait now, if it has to.
    pub(crate) fn wait(&self, wait: impl FnOnce(Duration)) {
        let now = self.clock.now();
        let mut state = lock(&self.state);
        let time = state.pace.wait(now, lads_sys::cpu_time());
        if time.is_zero() {
            return;
        }
        if state.waiting.0 == 0 {
            state.waiting.1 = now;
        }
        state.waiting.0 += 1;
        drop(state);
        wait(time);
        let now = self.clock.now();
        let mut state = lock(&self.state);
        state.waiting.0 -= 1;
        if state.waiting.0 == 0 {
            let waited = now.since(state.waiting.1);
            state.waited += waited;
        }
    }

    /// How long at least one thread has waited so far.
    pub(crate) fn waited(&self) -> Duration {
        let now = self.clock.now();
        let State { waiting: (count, since), waited, .. } = *lock(&self.state);
        waited + if count > 0 { now.since(since) } else { Duration::ZERO }
    }
}

/// The processors of this host that are switched on.
fn online() -> Vec<u32> {
    let list = fs::read_to_string("/sys/devices/system/cpu/online");
    list.ok().and_then(|list| cpus(&list)).filter(|cpus| !cpus.is_empty()).unwrap_or_else(|| {
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        (0..u32::try_from(count).unwrap_or(1)).collect()
    })
}

impl Processors {
    /// What the user wants of the processors of this end; refused here if they are not there.
    pub(crate) fn of(options: &Options, side: Side, clock: Clock) -> Result<Self, Fatal> {
        let (text, end) = match side {
            Side::Source => (&options.source_pin, "source"),
            Side::Sink => (&options.sink_pin, "sink"),
        };
        let limit = CpuLimit::of(options, clock);
        if text.is_empty() {
            return Ok(Self { limit, pinned: None });
        }
        let pinned = chosen(text).and_then(|set| is_permitted(&set).map(|()| Some(set)));
        let pinned = pinned.map_err(|why| {
            let host = own_host();
            let text = format!(
                "the {end} on {host} cannot run on processors {text}: {why}; choose others with \
                 --{end} pin=CPUS, or omit it"
            );
            Fatal::new(ExitCode::Usage, text)
        })?;
        Ok(Self { limit, pinned })
    }

    /// Makes this thread, and those that it starts, run where the threads of this end shall. A host
    /// that takes processors away meanwhile lets it run elsewhere.
    pub(crate) fn pin_this_thread(&self) {
        if let Some(set) = &self.pinned {
            let _ = sched_setaffinity(None, set);
        }
    }
}

/// The processors that a user named.
fn chosen(text: &str) -> Result<CpuSet, String> {
    let online = online();
    let chosen = match Pin::parse(text)? {
        Pin::Cpus(cpus) => cpus,
        Pin::Node(node) => {
            let path = format!("/sys/devices/system/node/node{node}/cpulist");
            let list = fs::read_to_string(path).map_err(|_| format!("there is no node {node}"))?;
            cpus(&list)
                .filter(|cpus| !cpus.is_empty())
                .ok_or_else(|| format!("node {node} has no processors"))?
        }
    };
    let is_there = |cpu: &u32| online.contains(cpu) && (*cpu as usize) < CpuSet::MAX_CPU;
    match chosen.iter().find(|cpu| !is_there(cpu)) {
        None => {
            let mut set = CpuSet::new();
            chosen.iter().for_each(|&cpu| set.set(cpu as usize));
            Ok(set)
        }
        Some(cpu) => {
            let last = online.last().map_or(0, |last| *last);
            Err(format!("there is no processor {cpu}, the last one is {last}"))
        }
    }
}

/// Whether a thread can run on all of these processors: tried by one that does nothing else.
fn is_permitted(set: &CpuSet) -> Result<(), String> {
    let try_it = || {
        sched_setaffinity(None, set)
            .map_err(|errno| format!("the host does not permit it ({errno})"))?;
        // The kernel leaves out those that it does not permit.
        match sched_getaffinity(None) {
            Ok(given) if given == *set => Ok(()),
            _ => Err("the host does not permit all of them to this user (cpuset)".to_owned()),
        }
    };
    std::thread::scope(|scope| {
        let tried = spawn_in(scope, "lads-pin", try_it).map_err(|error| error.to_string())?;
        tried.join().expect("it does not panic")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lads_core::cpu_share::CpuShare;

    fn options(source_pin: &str) -> Options {
        Options { source_pin: source_pin.to_owned(), ..Options::default() }
    }

    fn source(pinned: &str) -> Result<Processors, Fatal> {
        Processors::of(&options(pinned), Side::Source, Clock::start())
    }

    #[test]
    fn threads_of_an_end_run_where_they_were_pinned_and_no_others() {
        let before = sched_getaffinity(None).unwrap();
        let first = online()[0];
        let processors = source(&first.to_string()).unwrap();
        let seen = std::thread::spawn(move || {
            processors.pin_this_thread();
            sched_getaffinity(None).unwrap()
        });
        let seen = seen.join().unwrap();
        assert_eq!((seen.count(), seen.is_set(first as usize)), (1, true));
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }

    #[test]
    fn an_end_without_such_a_wish_runs_anywhere() {
        let sink = Processors::of(&options("65000"), Side::Sink, Clock::start()).unwrap();
        assert!(sink.pinned.is_none());
    }

    #[test]
    fn a_processor_that_is_not_there_is_named_with_the_end_and_what_to_do() {
        let host = own_host();
        for (pinned, why) in
            [("0,65000", "no processor 65000"), ("node:999", "no node 999"), ("x", "0-3,8")]
        {
            let text = source(pinned).unwrap_err().text;
            for word in [why, "the source on", &host, "--source pin=CPUS"] {
                assert!(text.contains(word), "{text}");
            }
        }
    }

    #[test]
    fn time_in_which_several_threads_wait_counts_once() {
        let max_cpu = Some(CpuShare::parse("0.01").unwrap());
        let options = Options { max_cpu, ..Options::default() };
        let limit = CpuLimit::of(&options, Clock::start()).unwrap();
        // Some threads of this process are always at work, or have been.
        while lads_sys::cpu_time() < Duration::from_millis(20) {}
        let started = std::time::Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope
                    .spawn(|| limit.wait(|_| std::thread::park_timeout(Duration::from_millis(50))));
            }
        });
        assert!(limit.waited() <= started.elapsed(), "{:?}", limit.waited());
    }

    #[test]
    fn without_a_share_nothing_is_limited() {
        assert!(CpuLimit::of(&Options::default(), Clock::start()).is_none());
    }
}
