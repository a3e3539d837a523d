//! Where the threads of one end meet: the session behind one lock, and the threads that wait for
//! it.
//!
//! Every thread does the same: lock, tell the session what happened, ask it what to do, unlock, do
//! it. A thread that finds nothing to do waits. Whoever changes the session wakes the threads that
//! have something to do now, and no others: each wake-up costs a system call and a context switch.

use crate::cpu::{CpuLimit, Processors};
use crate::deeds::Deeds;
use crate::fatal::Fatal;
use crate::stream::Streams;
use lads_core::message::Message;
use lads_core::units::StreamId;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often to look whether a session is over, while streams cannot be opened. Half of it would
/// wake the thread twice as often; with the double, an error is told some milliseconds later.
const OVER_INTERVAL: Duration = Duration::from_millis(2);

/// What the lock protects.
#[derive(Debug)]
pub(crate) struct Inner<S> {
    pub(crate) session: S,
    /// Messages of the engine itself; they go before those of the session.
    pub(crate) messages: VecDeque<Message>,
    /// Set when every thread should come to its end.
    pub(crate) is_over: bool,
    pub(crate) fatal: Option<Fatal>,
    workers: Waiting,
    comm: Waiting,
    others: Waiting,
    walkers: Waiting,
}

/// Threads of one kind that wait.
#[derive(Clone, Copy, Debug, Default)]
struct Waiting {
    count: usize,
    /// How many of them have been woken and have not run since. None of them is woken twice: each
    /// wake-up is a system call.
    woken_count: usize,
}

impl Waiting {
    /// Returns whether one more is to be woken, which then counts as woken. `is_needed` is asked
    /// only if one sleeps.
    fn wake_one(&mut self, is_needed: impl FnOnce() -> bool) -> bool {
        let is_woken = self.woken_count < self.count && is_needed();
        self.woken_count += usize::from(is_woken);
        is_woken
    }

    /// The same for all of them.
    fn wake_all(&mut self, is_needed: impl FnOnce() -> bool) -> bool {
        let is_woken = self.wake_one(is_needed);
        if is_woken {
            self.woken_count = self.count;
        }
        is_woken
    }

    /// One of them runs again, because it was woken or because its time is over.
    fn on_awake(&mut self) {
        self.count -= 1;
        self.woken_count = self.woken_count.saturating_sub(1);
    }
}

/// Whom to wake when the lock is released. A thread that is woken before would wait for the lock.
#[derive(Clone, Copy, Debug, Default)]
struct ToWake {
    one_worker: bool,
    all_workers: bool,
    comm: bool,
    others: bool,
    limited: bool,
}

/// What a session says about which threads to wake.
pub(crate) trait Wakes {
    /// Whether an I/O thread may find a task.
    fn may_have_task(&self) -> bool;
    /// Whether there is a message to write.
    fn has_message(&self) -> bool;
    /// Whether the walk should go on.
    fn wants_entries(&self) -> bool;
    /// Whether it was told to stop, and has not yet said that everything is done.
    fn is_stopping(&self) -> bool;
}

/// The session and those waiting for it.
#[derive(Debug)]
pub(crate) struct Hub<S> {
    inner: Mutex<Inner<S>>,
    workers: Condvar,
    comm: Condvar,
    others: Condvar,
    walkers: Condvar,
    watch: Condvar,
    /// Threads that wait for their share of the processors.
    limited: Condvar,
    /// What the user wants of the processors of this end.
    pub(crate) processors: Processors,
    wake: Wake,
    streams: Arc<Streams>,
    /// Counts steps of this end that moved the transfer on.
    moves: AtomicU64,
    /// I/O threads that are at work.
    busy_workers: AtomicUsize,
    /// The calls to storage that its threads are in.
    pub(crate) deeds: Deeds,
}

/// How many I/O threads are woken when there may be a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    /// One, which wakes the next one if it finds a task: any thread can do any task.
    One,
    /// All: each goes on with a file of its own, and no other thread can do that.
    All,
}

/// The kinds of threads that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiter {
    /// An I/O thread, for a task.
    Worker,
    /// The thread that writes messages.
    Comm,
    /// A thread of the walk that waits until the session wants entries.
    Other,
    /// A thread of the walk that waits for something to walk; woken only by [`Hub::wake_walkers`].
    Walker,
}

impl<S: Wakes> Hub<S> {
    pub(crate) fn new(
        session: S,
        wake: Wake,
        streams: Arc<Streams>,
        processors: Processors,
    ) -> Self {
        let inner = Inner {
            session,
            messages: VecDeque::new(),
            is_over: false,
            fatal: None,
            workers: Waiting::default(),
            comm: Waiting::default(),
            others: Waiting::default(),
            walkers: Waiting::default(),
        };
        Self {
            inner: Mutex::new(inner),
            workers: Condvar::new(),
            comm: Condvar::new(),
            others: Condvar::new(),
            walkers: Condvar::new(),
            watch: Condvar::new(),
            limited: Condvar::new(),
            processors,
            wake,
            streams,
            moves: AtomicU64::new(0),
            busy_workers: AtomicUsize::new(0),
            deeds: Deeds::default(),
        }
    }

    /// Runs `act` with the session, then wakes the threads that may have something to do now.
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut Inner<S>) -> R) -> R {
        let mut inner = self.lock();
        let result = act(&mut inner);
        let to_wake = self.to_wake(&mut inner);
        drop(inner);
        self.wake(to_wake);
        result
    }

    /// As [`Self::tell`], by an I/O thread whose task has ended. It looks for the next task itself,
    /// so no other I/O thread is woken for that; if there are more, it wakes another then.
    pub(crate) fn tell_last<R>(&self, act: impl FnOnce(&mut Inner<S>) -> R) -> R {
        // There may be a task that only another thread can do, or this one may have to wait first.
        if self.wake == Wake::All || self.processors.limit.is_some() {
            return self.tell(act);
        }
        self.on_move();
        let mut inner = self.lock();
        let result = act(&mut inner);
        let to_wake = self.others_to_wake(&mut inner);
        drop(inner);
        self.wake(to_wake);
        result
    }

    /// As [`Self::with`], for events that move the transfer on: something arrived, or was done.
    pub(crate) fn tell<R>(&self, act: impl FnOnce(&mut Inner<S>) -> R) -> R {
        self.on_move();
        self.with(act)
    }

    /// This end has completed a step, even if the session need not know of it.
    pub(crate) fn on_move(&self) {
        self.moves.fetch_add(1, Ordering::Relaxed);
    }

    /// A number that changes whenever this end moves on: when something arrived, when something was
    /// done, and when bytes went over its data streams.
    pub(crate) fn moves(&self) -> u64 {
        self.moves.load(Ordering::Relaxed).wrapping_add(self.streams.moves())
    }

    /// A number that changes whenever data came on the connection that carries messages.
    pub(crate) fn signs_of_life(&self) -> u64 {
        self.streams.signs_of_life()
    }

    /// Does a task of an I/O thread, which counts as busy meanwhile.
    pub(crate) fn busy(&self, act: impl FnOnce()) {
        self.busy_workers.fetch_add(1, Ordering::Relaxed);
        act();
        self.busy_workers.fetch_sub(1, Ordering::Relaxed);
        self.on_move();
    }

    /// The number of I/O threads that are at work now.
    pub(crate) fn busy_workers(&self) -> usize {
        self.busy_workers.load(Ordering::Relaxed)
    }

    /// Calls `ask` until it returns something, or until the transfer is over (`None`). Between
    /// calls it waits, at most as long as `ask` says. Before the first, it waits for its share of
    /// the processors, unless it writes messages.
    pub(crate) fn wait_for<R>(
        &self,
        waiter: Waiter,
        mut ask: impl FnMut(&mut Inner<S>) -> Result<R, Option<Duration>>,
    ) -> Option<R> {
        if waiter != Waiter::Comm {
            self.wait_for_share();
        }
        let mut inner = self.lock();
        loop {
            if inner.is_over {
                return None;
            }
            match ask(&mut inner) {
                Ok(found) => {
                    let to_wake = self.to_wake(&mut inner);
                    drop(inner);
                    self.wake(to_wake);
                    return Some(found);
                }
                Err(timeout) => {
                    // The session may have found something to announce instead.
                    if inner.is_comm_to_be_woken() {
                        self.comm.notify_one();
                    }
                    inner = self.wait(inner, waiter, timeout);
                }
            }
        }
    }

    /// Waits as long as the user's share of the processors demands, or until there is nothing
    /// more to take on.
    pub(crate) fn wait_for_share(&self) {
        let Some(limit) = &self.processors.limit else { return };
        limit.wait(|time| {
            let goes_on = |inner: &mut Inner<S>| !inner.is_over && !inner.session.is_stopping();
            drop(self.limited.wait_timeout_while(self.lock(), time, goes_on));
        });
    }

    /// How long at least one thread has waited for its share of the processors.
    pub(crate) fn cpu_limited(&self) -> Duration {
        self.processors.limit.as_ref().map_or(Duration::ZERO, CpuLimit::waited)
    }

    /// Ends the transfer at once for every thread of this end.
    pub(crate) fn fail(&self, fatal: Fatal) {
        let mut inner = self.lock();
        if !inner.is_over {
            inner.fatal.get_or_insert(fatal);
            inner.is_over = true;
        }
        self.wake_all(inner);
        self.streams.shut_down();
    }

    /// Waits until the session is over, but not for longer than this. Returns whether it is.
    pub(crate) fn is_over_within(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        while !self.lock().is_over && Instant::now() < until {
            std::thread::sleep(OVER_INTERVAL);
        }
        self.lock().is_over
    }

    /// Everything is done: every thread may end.
    pub(crate) fn finish(&self) {
        let mut inner = self.lock();
        inner.is_over = true;
        self.wake_all(inner);
    }

    /// Nobody receives on this data stream any more. The network in between may not report that, so
    /// whoever sends on the stream must not wait for it.
    pub(crate) fn end_stream(&self, stream: u16) {
        if stream < self.streams.count() {
            self.streams.lose(StreamId(stream));
        }
    }

    /// Nothing more is sent over the data streams.
    pub(crate) fn end_streams(&self) {
        self.streams.shut_down();
    }

    fn lock(&self) -> MutexGuard<'_, Inner<S>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_all(&self, inner: MutexGuard<'_, Inner<S>>) {
        drop(inner);
        self.workers.notify_all();
        self.comm.notify_all();
        self.others.notify_all();
        self.walkers.notify_all();
        self.watch.notify_all();
        self.limited.notify_all();
    }

    /// Wakes a thread of the walk for each of these jobs. Returns the number of jobs for which no
    /// thread waits.
    pub(crate) fn wake_walkers(&self, inner: &mut Inner<S>, job_count: usize) -> usize {
        let woken = (0..job_count).take_while(|_| inner.walkers.wake_one(|| true));
        let woken_count = woken.inspect(|_| self.walkers.notify_one()).count();
        job_count - woken_count
    }

    /// Makes the watching thread look now, and not only at its next tick.
    pub(crate) fn nudge(&self) {
        self.watch.notify_all();
    }

    /// Waits until nudged, at most for `tick`.
    pub(crate) fn watch_for(&self, tick: Duration) {
        let inner = self.lock();
        if !inner.is_over {
            drop(self.watch.wait_timeout(inner, tick).unwrap_or_else(PoisonError::into_inner));
        }
    }

    fn to_wake(&self, inner: &mut Inner<S>) -> ToWake {
        let mut to_wake = self.others_to_wake(inner);
        let Inner { session, workers, .. } = inner;
        match self.wake {
            Wake::One => to_wake.one_worker = workers.wake_one(|| session.may_have_task()),
            Wake::All => to_wake.all_workers = workers.wake_all(|| session.may_have_task()),
        }
        to_wake
    }

    /// The same without I/O threads.
    fn others_to_wake(&self, inner: &mut Inner<S>) -> ToWake {
        let mut to_wake = ToWake { comm: inner.is_comm_to_be_woken(), ..ToWake::default() };
        let Inner { session, others, .. } = inner;
        to_wake.others = others.wake_all(|| session.wants_entries());
        to_wake.limited = self.processors.limit.is_some() && session.is_stopping();
        to_wake
    }

    fn wake(&self, to_wake: ToWake) {
        let ToWake { one_worker, all_workers, comm, others, limited } = to_wake;
        if one_worker {
            self.workers.notify_one();
        }
        if comm {
            self.comm.notify_one();
        }
        for (is_wanted, condvar) in
            [(all_workers, &self.workers), (others, &self.others), (limited, &self.limited)]
        {
            if is_wanted {
                condvar.notify_all();
            }
        }
    }

    fn wait<'a>(
        &self,
        mut inner: MutexGuard<'a, Inner<S>>,
        waiter: Waiter,
        timeout: Option<Duration>,
    ) -> MutexGuard<'a, Inner<S>> {
        inner.waiting(waiter).count += 1;
        let condvar = match waiter {
            Waiter::Worker => &self.workers,
            Waiter::Comm => &self.comm,
            Waiter::Other => &self.others,
            Waiter::Walker => &self.walkers,
        };
        let mut inner = match timeout {
            Some(timeout) => {
                condvar.wait_timeout(inner, timeout).unwrap_or_else(PoisonError::into_inner).0
            }
            None => condvar.wait(inner).unwrap_or_else(PoisonError::into_inner),
        };
        inner.waiting(waiter).on_awake();
        inner
    }
}

impl<S> Inner<S> {
    /// Queues a message. If one of its kind waits already, the new one replaces it, so that the
    /// queue does not grow while the peer does not read.
    pub(crate) fn push_latest(&mut self, message: Message) {
        let kind = std::mem::discriminant(&message);
        match self.messages.iter_mut().find(|it| std::mem::discriminant(*it) == kind) {
            Some(waiting) => *waiting = message,
            None => self.messages.push_back(message),
        }
    }

    fn waiting(&mut self, waiter: Waiter) -> &mut Waiting {
        match waiter {
            Waiter::Worker => &mut self.workers,
            Waiter::Comm => &mut self.comm,
            Waiter::Other => &mut self.others,
            Waiter::Walker => &mut self.walkers,
        }
    }
}

impl<S: Wakes> Inner<S> {
    /// Whether the thread that writes messages is to be woken; then it counts as woken.
    fn is_comm_to_be_woken(&mut self) -> bool {
        let Self { messages, session, comm, .. } = self;
        comm.wake_one(|| !messages.is_empty() || session.has_message())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::job::Options;
    use lads_core::cpu_share::CpuShare;
    use lads_core::issue::Side;
    use std::thread;

    /// A session in which I/O threads do tasks, each of which may lead to others.
    #[derive(Default)]
    struct Tasks {
        ready: usize,
        done: usize,
        /// The only thread that can do the next task.
        only: Option<usize>,
        message_count: usize,
        wants_entries: bool,
        is_stopping: bool,
    }

    impl Tasks {
        /// Takes the reason for which thread `number` waits.
        fn take(&mut self, waiter: Waiter, number: usize) -> Result<(), Option<Duration>> {
            let count = match waiter {
                Waiter::Worker if self.only.is_some_and(|only| only != number) => return Err(None),
                Waiter::Worker => &mut self.ready,
                Waiter::Comm => &mut self.message_count,
                Waiter::Other | Waiter::Walker => {
                    return self.wants_entries.then_some(()).ok_or(None);
                }
            };
            *count = count.checked_sub(1).ok_or(None)?;
            Ok(())
        }
    }

    impl Wakes for Tasks {
        fn may_have_task(&self) -> bool {
            self.ready > 0
        }

        fn has_message(&self) -> bool {
            self.message_count > 0
        }

        fn wants_entries(&self) -> bool {
            self.wants_entries
        }

        fn is_stopping(&self) -> bool {
            self.is_stopping
        }
    }

    fn hub() -> Hub<Tasks> {
        hub_with(Wake::One, &Options::default())
    }

    fn hub_with(wake: Wake, options: &Options) -> Hub<Tasks> {
        let processors = Processors::of(options, Side::Sink, Clock::start());
        Hub::new(Tasks::default(), wake, Arc::new(Streams::none()), processors.unwrap())
    }

    /// Calls `act` when `count` threads wait without a timeout, and returns when each of them has
    /// found what it waits for. If a wake-up is lost, this does not return.
    fn all_are_woken(
        hub: &Hub<Tasks>,
        waiter: Waiter,
        count: usize,
        act: impl FnOnce(&Hub<Tasks>),
    ) {
        thread::scope(|scope| {
            for number in 0..count {
                let take = move |inner: &mut Inner<Tasks>| inner.session.take(waiter, number);
                scope.spawn(move || hub.wait_for(waiter, take).unwrap());
            }
            while hub.lock().waiting(waiter).count < count {
                thread::yield_now();
            }
            act(hub);
        });
    }

    #[test]
    fn a_thread_that_was_woken_is_not_woken_again_before_it_runs() {
        let mut waiting = Waiting { count: 2, woken_count: 0 };
        let wake = |waiting: &mut Waiting| waiting.wake_one(|| true);
        assert!(!waiting.wake_one(|| false));
        assert!(wake(&mut waiting) && wake(&mut waiting) && !wake(&mut waiting));
        // Another one waits, and was not woken.
        waiting.count += 1;
        assert!(wake(&mut waiting) && !wake(&mut waiting));
        for left in (0..3).rev() {
            waiting.on_awake();
            assert_eq!((waiting.count, waiting.woken_count), (left, left));
        }
    }

    #[test]
    fn a_thread_that_runs_again_leaves_those_that_sleep_to_be_woken() {
        let mut waiting = Waiting { count: 3, woken_count: 0 };
        assert!(waiting.wake_one(|| true));
        waiting.on_awake();
        assert_eq!((waiting.count, waiting.woken_count), (2, 0));
    }

    #[test]
    fn a_thread_whose_time_is_over_takes_no_wake_up_of_another_away() {
        let mut waiting = Waiting { count: 3, woken_count: 0 };
        // Nobody was woken: one of them looks by itself.
        waiting.on_awake();
        assert!(waiting.wake_all(|| true) && !waiting.wake_one(|| true));
        waiting.on_awake();
        waiting.on_awake();
        assert!(!waiting.wake_one(|| true), "nobody waits");
    }

    /// A thread finds each task, whether another thread added it or its own task did.
    #[test]
    fn no_task_is_left_while_threads_wait() {
        const ROUNDS: usize = 2000;
        let hub = hub();
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let next = |inner: &mut Inner<Tasks>| {
                        inner.session.ready = inner.session.ready.checked_sub(1).ok_or(None)?;
                        Ok(())
                    };
                    while hub.wait_for(Waiter::Worker, next).is_some() {
                        hub.tell_last(|Inner { session, .. }| {
                            // Six tasks follow from one that another thread added.
                            session.done += 1;
                            session.ready += [0, 3, 0, 0, 1, 1][session.done % 6];
                        });
                    }
                });
            }
            for round in 1..=ROUNDS {
                hub.with(|inner| inner.session.ready += 1);
                let is_done = || {
                    let inner = hub.lock();
                    inner.session.ready == 0 && inner.session.done >= round
                };
                while !is_done() {
                    thread::yield_now();
                }
            }
            hub.finish();
        });
    }

    #[test]
    fn each_way_to_change_the_session_wakes_the_threads_that_it_concerns() {
        let hub = hub();
        all_are_woken(&hub, Waiter::Comm, 1, |hub| hub.with(|it| it.session.message_count = 1));
        all_are_woken(&hub, Waiter::Comm, 1, |hub| {
            hub.tell_last(|it| it.session.message_count = 1);
        });
        all_are_woken(&hub, Waiter::Comm, 1, |hub| {
            hub.wait_for(Waiter::Worker, |it| {
                it.session.message_count = 1;
                Ok(())
            });
        });
        // One of the I/O threads wakes the other.
        all_are_woken(&hub, Waiter::Worker, 2, |hub| hub.with(|it| it.session.ready = 2));
        all_are_woken(&hub, Waiter::Walker, 2, |hub| {
            hub.with(|it| {
                it.session.wants_entries = true;
                hub.wake_walkers(it, 2);
            });
        });
        hub.with(|it| it.session.wants_entries = false);
        all_are_woken(&hub, Waiter::Other, 2, |hub| hub.with(|it| it.session.wants_entries = true));
    }

    /// The session may have a message instead of a task.
    #[test]
    fn a_thread_that_finds_no_task_has_the_message_sent() {
        let hub = hub();
        thread::scope(|scope| {
            all_are_woken(&hub, Waiter::Comm, 1, |_| {
                scope.spawn(|| {
                    hub.wait_for(Waiter::Worker, |it| -> Result<(), _> {
                        it.session.message_count = 1;
                        Err(None)
                    })
                });
            });
            hub.finish();
        });
    }

    #[test]
    fn all_threads_are_woken_if_only_one_of_them_can_do_the_task() {
        const COUNT: usize = 8;
        let hub = hub_with(Wake::All, &Options::default());
        all_are_woken(&hub, Waiter::Worker, COUNT, |hub| {
            // The threads that have waited longest are the last.
            for only in (0..COUNT).rev() {
                let add = |it: &mut Inner<Tasks>| {
                    (it.session.ready, it.session.only) = (1, Some(only));
                };
                match only % 2 {
                    0 => hub.with(add),
                    _ => hub.tell_last(add),
                }
                while hub.lock().session.ready > 0 {
                    thread::yield_now();
                }
            }
        });
    }

    #[test]
    fn a_thread_whose_task_ended_takes_the_next_itself_unless_it_has_to_wait_first() {
        let half = CpuShare::parse("50%").unwrap();
        for (max_cpu, woken_count) in [(None, 0), (Some(half), 1)] {
            let hub = hub_with(Wake::One, &Options { max_cpu, ..Options::default() });
            hub.lock().workers.count = 1;
            hub.tell_last(|it| it.session.ready = 1);
            assert_eq!(hub.lock().workers.woken_count, woken_count);
            assert!(!hub.to_wake(&mut hub.lock()).limited);
            hub.lock().session.is_stopping = true;
            assert_eq!(hub.to_wake(&mut hub.lock()).limited, max_cpu.is_some());
        }
    }
}
