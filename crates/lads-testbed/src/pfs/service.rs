//! The threads that wait until storage targets have served a request, and then answer it.
//!
//! [`Model`] knows when each request is done. The threads here let its time pass and run the
//! [`Answer`] of each request that is done. One thread at a time watches the clock. When an answer
//! is due, that thread runs it and another one takes over the watch, so that no two wake up for the
//! same moment and long answers do not delay others. Requests that nothing limits never wait here:
//! the thread that submits one answers it at once.

use super::model::Model;
use super::queues::{Direction, Piece, Start, Ticket};
use crate::clock::monotonic;
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

/// The function to call when a request has been served, or has failed.
pub(super) type Answer = Box<dyn FnOnce(Result<(), Errno>) + Send>;

/// An OST, and the bytes of a request that are on it.
pub(super) type Share = (usize, u64);

/// The threads that serve requests.
pub(super) struct Service {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    /// Wakes the thread that watches the clock.
    watch: Condvar,
    /// Wakes a thread that has nothing to do.
    idle: Condvar,
}

struct State {
    model: Model,
    requests: HashMap<Ticket, Request>,
    /// Answers that are only delayed, sorted by the time when they are due.
    delayed: BTreeMap<(Duration, Ticket), Answer>,
    due: VecDeque<(Answer, Result<(), Errno>)>,
    tickets: Ticket,
    /// The time until which a thread watches the clock; `None` if no thread does, or if it waits
    /// without a limit.
    watched_until: Option<Duration>,
    is_watched: bool,
    is_over: bool,
}

struct Request {
    pieces_left: usize,
    /// Whether the caller that submitted it is still busy with it.
    is_held: bool,
    answer: Answer,
}

impl Service {
    /// Starts to serve, with this number of threads.
    pub(super) fn start(model: Model, thread_count: usize) -> Self {
        let state = State {
            model,
            requests: HashMap::new(),
            delayed: BTreeMap::new(),
            due: VecDeque::new(),
            tickets: 0,
            watched_until: None,
            is_watched: false,
            is_over: false,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            watch: Condvar::new(),
            idle: Condvar::new(),
        });
        let start = |_| {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || shared.serve())
        };
        let threads = (0..thread_count.max(1)).map(start).collect();
        Self { shared, threads }
    }

    /// Submits a request to all OSTs that have a share in it, and answers it when they have served
    /// it. If nothing limits them, it is answered before this returns.
    pub(super) fn submit(
        &self,
        shares: &[Share],
        direction: Direction,
        start: Start,
        answer: Answer,
    ) {
        let ticket = self.begin(shares, direction, start, answer);
        self.release(ticket, Ok(()));
    }

    /// Like [`Self::submit`], but does not answer before [`Self::release`]: the caller can do
    /// something while the OSTs serve the request.
    pub(super) fn begin(
        &self,
        shares: &[Share],
        direction: Direction,
        start: Start,
        answer: Answer,
    ) -> Ticket {
        let mut state = self.shared.lock();
        state.advance();
        let ticket = state.next_ticket();
        let queued = shares.iter().filter(|(ost, bytes)| {
            state.model.submit(*ost, Piece { ticket, bytes: *bytes, direction, start })
        });
        let pieces_left = queued.count();
        state.requests.insert(ticket, Request { pieces_left, is_held: true, answer });
        self.shared.wake_for(&mut state);
        ticket
    }

    /// Allows a request to be answered; answers at once if the caller's own part has failed.
    pub(super) fn release(&self, ticket: Ticket, result: Result<(), Errno>) {
        let mut state = self.shared.lock();
        // The request is gone if an OST failed it.
        let Some(request) = state.requests.get_mut(&ticket) else { return };
        request.is_held = false;
        if (request.pieces_left == 0 || result.is_err())
            && let Some(request) = state.requests.remove(&ticket)
        {
            drop(state);
            (request.answer)(result);
        }
    }

    /// Runs an answer after a delay; at once, if the delay is zero.
    pub(super) fn delay(&self, by: Duration, answer: Answer) {
        if by.is_zero() {
            return answer(Ok(()));
        }
        let mut state = self.shared.lock();
        let ticket = state.next_ticket();
        state.delayed.insert((monotonic() + by, ticket), answer);
        self.shared.wake_for(&mut state);
    }

    /// Runs a function on the model, brought up to the present time.
    pub(super) fn with_model<T>(&self, act: impl FnOnce(&mut Model) -> T) -> T {
        let mut state = self.shared.lock();
        state.advance();
        let result = act(&mut state.model);
        self.shared.wake_for(&mut state);
        result
    }

    /// Fails all requests that have a piece at an OST.
    pub(super) fn abandon(&self, ost: usize, error: Errno) {
        let mut state = self.shared.lock();
        state.advance();
        for ticket in state.model.abandon(ost) {
            // The other OSTs still serve their pieces, though nobody needs them.
            if let Some(request) = state.requests.remove(&ticket) {
                state.due.push_back((request.answer, Err(error)));
            }
        }
        self.shared.wake_for(&mut state);
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.watch.notify_all();
        self.shared.idle.notify_all();
        for thread in self.threads.drain(..) {
            thread.join().expect("answers do not panic");
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics while it holds the lock")
    }

    /// Makes sure that a thread is awake when something is due.
    fn wake_for(&self, state: &mut State) {
        if !state.is_watched {
            self.idle.notify_one();
            return;
        }
        let until = state.watched_until;
        let is_too_late = |next| until.is_none_or(|until| next < until);
        if !state.due.is_empty() || state.next_timeout().is_some_and(is_too_late) {
            self.watch.notify_one();
        }
    }

    /// The main loop of each thread.
    fn serve(&self) {
        let mut state = self.lock();
        while !state.is_over {
            state.advance();
            if let Some((answer, result)) = state.due.pop_front() {
                if !state.is_watched {
                    self.idle.notify_one();
                }
                drop(state);
                answer(result);
                state = self.lock();
            } else if state.is_watched {
                state = self.idle.wait(state).expect("as in `lock`");
            } else {
                state = self.watch(state);
            }
        }
    }

    /// Waits until something is due, or may be.
    fn watch<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.is_watched = true;
        state.watched_until = state.next_timeout();
        state = match state.watched_until {
            None => self.watch.wait(state).expect("as in `lock`"),
            Some(until) => {
                let wait = until.saturating_sub(monotonic());
                self.watch.wait_timeout(state, wait).expect("as in `lock`").0
            }
        };
        state.is_watched = false;
        state.watched_until = None;
        state
    }
}

impl State {
    fn next_ticket(&mut self) -> Ticket {
        self.tickets += 1;
        self.tickets
    }

    fn next_timeout(&mut self) -> Option<Duration> {
        let delayed = self.delayed.first_key_value().map(|((due, _), _)| *due);
        self.model.next_timeout().into_iter().chain(delayed).min()
    }

    /// Lets time pass until now.
    fn advance(&mut self) {
        let (now, mut ended) = (monotonic(), Vec::new());
        self.model.advance(now, &mut ended);
        for ticket in ended {
            self.on_piece_served(ticket);
        }
        while let Some(entry) = self.delayed.first_entry().filter(|it| it.key().0 <= now) {
            self.due.push_back((entry.remove(), Ok(())));
        }
    }

    fn on_piece_served(&mut self, ticket: Ticket) {
        // The request is gone if another OST failed it.
        let Some(request) = self.requests.get_mut(&ticket) else { return };
        request.pieces_left -= 1;
        if (request.pieces_left, request.is_held) == (0, false)
            && let Some(request) = self.requests.remove(&ticket)
        {
            self.due.push_back((request.answer, Ok(())));
        }
    }
}
