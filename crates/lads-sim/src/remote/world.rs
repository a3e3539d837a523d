//! What happens next, and whether it may.

mod trouble;

use super::check::{Compared, PROCESSES_MAX, SLOTS};
use super::client_disk::LeftFrame;
use super::client_end::Link;
use super::disk::DiskFile;
use super::program::{Done, Process, Stop};
use super::server_end::ServerEnd;
use super::{PATHS, Shared, Stats};
use crate::findings::{Checked, Trace};
use crate::rng::{Rng, mix};
use lads_core::remote::client::{Settings, StageSettings};
use lads_core::remote::locks::ClientNumber;
use lads_core::remote::message::FRAME_BYTES;
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Steps in which something goes wrong.
const STEPS: u64 = 6000;
/// Processes that are started while something goes wrong; others send what these left.
const STARTED_MAX: usize = 7;
/// Rounds without anything that happens, after each of which some time passes.
const IDLE_ROUNDS_MAX: u32 = 1000;
const IDLE_TIME: Duration = Duration::from_millis(400);
/// Polls after which all calls of a process have noticed the loss of its connection.
const LOSS_POLLS_MAX: u32 = 2000;

const TIMEOUT: Duration = Duration::from_secs(60);
/// A client that waits for one that is gone does not lose its patience before the server does.
const STALL_TIMEOUTS: u32 = 3;
/// The time after which nobody waits any more for clients that are gone.
const GIVEN_UP: Duration = Duration::from_secs(130);

/// A thread.
type Task = Pin<Box<dyn Future<Output = Done>>>;

/// A process, its client, and the threads of both.
struct Member {
    process: Rc<Process>,
    link: Rc<Link>,
    number: ClientNumber,
    threads: Vec<Task>,
    disks: Vec<Task>,
    state: State,
    has_stage: bool,
    /// Nothing arrives, at either end.
    is_frozen: bool,
    frozen_at: Duration,
    /// Its client does not try to connect again before this.
    back_at: Duration,
    /// It was killed.
    is_dead: bool,
    /// It ended well, and said so as its last word.
    has_said_bye: bool,
    /// The server knows that it is gone.
    is_noticed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    /// It closes its files.
    Ending,
    Over,
}

/// What may go wrong, in this many of 10,000 steps.
struct Weather {
    cut: u32,
    breaks: u32,
    death: u32,
    crash: u32,
    freeze: u32,
    restarts: Restarts,
}

/// How often a server is killed and started again, as in [`Weather`].
#[derive(Default)]
struct Restarts {
    rate: u32,
    /// The rate before all clients have returned.
    rate_in_return: u32,
    /// How much time passes at most in a step meanwhile, in microseconds.
    micros: u64,
}

impl Restarts {
    fn new(rng: &mut Rng) -> Self {
        let rate = *rng.pick(&[3, 6, 12]);
        let rate_in_return = rate * *rng.pick(&[1, 1, 5]);
        Self { rate, rate_in_return, micros: *rng.pick(&[2000, 20_000, 150_000]) }
    }
}

pub(super) struct World {
    rng: Rng,
    shared: Shared,
    server: ServerEnd,
    frames_each: u32,
    members: Vec<Member>,
    running_max: usize,
    weather: Weather,
    /// The part of the things of each kind that do not happen yet, in thousandths: what is slow.
    delays: [u32; ACTIONS],
    has_other_servers: bool,
    keeps_reads: bool,
    threads_max: u64,
    has_stages: bool,
    /// How many clients the server keeps whose connection is broken.
    away_max: u32,
    /// Whether the server gives up clients that are away before their time.
    is_impatient: bool,
    /// Whether clients find out that the server crashed by connecting again.
    finds_crashes: bool,
    /// How much time passes at most in a step while somebody is silent or away, in microseconds.
    slow_micros: u64,
}

fn poll(task: &mut Task) -> Poll<Done> {
    task.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

impl World {
    pub(super) fn new(seed: u64, trace: Trace) -> Self {
        let mut rng = Rng::new(seed ^ 0x7266_735f_776f_726c);
        // Some files lie around the end of the first chunk.
        let base = if rng.hits(250) { u64::from(FRAME_BYTES) - 20 } else { 0 };
        let shared = Shared::new(trace, base, if rng.hits(300) { 150 } else { 0 });
        let files = PATHS.iter().map(|_| DiskFile::new(base)).collect();
        let frames_each = rng.count(1, 4);
        let away_max = if rng.hits(100) { 0 } else { rng.count(1, 4) };
        let mut server = ServerEnd::new(shared.clone(), files, (frames_each, away_max));
        server.failing_per_mille = if rng.hits(300) { rng.count(5, 60) } else { 0 };
        let or_none = |rng: &mut Rng, part, rate| if rng.hits(part) { rate } else { 0 };
        let weather = Weather {
            cut: or_none(&mut rng, 300, 5),
            breaks: or_none(&mut rng, 600, 30),
            death: or_none(&mut rng, 400, 4),
            crash: or_none(&mut rng, 250, 3),
            freeze: or_none(&mut rng, 300, 6),
            // In every fourth world; the others stay what they were when they broke a promise.
            restarts: if seed % 4 == 1 { Restarts::new(&mut rng) } else { Restarts::default() },
        };
        Self {
            delays: std::array::from_fn(|_| *rng.pick(&[0, 0, 300, 700, 950])),
            running_max: *rng.pick(&[1, 2, 2, 3, 3, 4]),
            has_other_servers: rng.hits(200),
            keeps_reads: rng.hits(500),
            threads_max: rng.between(1, 2),
            has_stages: rng.hits(500),
            is_impatient: rng.hits(300),
            finds_crashes: rng.hits(500),
            slow_micros: *rng.pick(&[50_000, 150_000, 400_000]),
            away_max,
            rng,
            shared,
            server,
            frames_each,
            members: Vec::new(),
            weather,
        }
    }

    pub(super) fn run(mut self) -> Checked<Stats> {
        let mut steps = 0;
        while steps < STEPS {
            steps += 1;
            self.step().map_err(|what| format!("step {steps}: {what}"))?;
        }
        self.shared.is_troubled.set(false);
        self.server.failing_per_mille = 0;
        self.drain()?;
        self.shared.check.borrow().check_files(&self.server.files, Compared::All)?;
        self.replay_all()?;
        let files = self.server.files.iter().flat_map(DiskFile::all);
        let fingerprint = files.fold(0, |all, (_, stamp)| mix(all ^ u64::from(stamp)));
        self.shared.stats(|it| {
            it.steps = steps;
            it.fingerprint = (fingerprint ^ self.rng.number()) >> 32;
        });
        Ok(*self.shared.stats.borrow())
    }

    fn settings(&mut self) -> Settings {
        let rng = &mut self.rng;
        let buffer_bytes = 1 << rng.count(1, 4);
        let slots = rng.between(1, 8);
        let stage = self.has_stages.then(|| StageSettings {
            bytes_max: slots * u64::from(buffer_bytes),
            in_foreground: rng.hits(700),
            in_background: rng.hits(700),
            is_synced: rng.hits(300),
            told: Default::default(),
        });
        Settings {
            buffers: rng.count(2, 6),
            buffer_bytes,
            chunks_max: *rng.pick(&[0, 1, 1, 1, 2, 3]),
            read_cache_bytes: u64::from(FRAME_BYTES) * rng.below(3),
            stage,
            timeout: TIMEOUT,
            stall_timeouts: STALL_TIMEOUTS,
            has_other_servers: self.has_other_servers,
        }
    }

    /// Starts a process.
    fn start(&mut self, replayed: Option<Vec<LeftFrame>>) -> Checked {
        let number = self.members.len();
        let is_replay = replayed.is_some();
        let mut settings = self.settings();
        if is_replay {
            settings.stage = None;
        }
        let (has_stage, has_cache) = (settings.stage.is_some(), settings.read_cache_bytes > 0);
        let of = |rng: &mut Rng| Rng::new(rng.number());
        let link = Link::new(number, self.shared.clone(), settings, of(&mut self.rng));
        let threads = self.rng.between(1, self.threads_max);
        let rng = of(&mut self.rng);
        let process = Process::new(Rc::clone(&link), rng, threads == 1, self.keeps_reads);
        let tasks = match replayed {
            Some(frames) => vec![Box::pin(Rc::clone(&process).replay(frames)) as Task],
            None => (0..threads)
                .map(|_| {
                    let count = self.rng.count(20, 200);
                    Box::pin(Rc::clone(&process).run_thread(count)) as Task
                })
                .collect(),
        };
        let mut disks: Vec<Task> = Vec::new();
        if has_stage {
            disks.push(Box::pin(Rc::clone(&link).stage()));
        }
        if has_cache {
            disks.push(Box::pin(Rc::clone(&link).save()));
        }
        let client = self.server.connect(number, is_replay);
        link.on_connected()?;
        if !is_replay {
            self.shared.inboxes.borrow_mut().insert(number, VecDeque::new());
        }
        self.shared.trace(|| format!("process {number} starts as {client:?}"));
        self.members.push(Member {
            process,
            link,
            number: client,
            threads: tasks,
            disks,
            state: State::Running,
            has_stage,
            is_frozen: false,
            frozen_at: Duration::ZERO,
            back_at: Duration::ZERO,
            is_dead: false,
            has_said_bye: false,
            is_noticed: false,
        });
        Ok(())
    }

    fn running(&self) -> usize {
        self.members.iter().filter(|it| it.state != State::Over).count()
    }

    fn step(&mut self) -> Checked {
        let is_slow = (0..self.members.len()).any(|index| self.is_silent(index));
        let micros = match is_slow {
            true if self.server.is_expecting() => self.weather.restarts.micros,
            true => self.slow_micros,
            false => 2000,
        };
        let time = Duration::from_micros(self.rng.below(micros));
        self.pass(time)?;
        let started = self.members.len();
        if started < STARTED_MAX && self.running() < self.running_max && self.rng.hits(100) {
            self.start(None)?;
        }
        if self.members.is_empty() {
            return Ok(());
        }
        let is_left = |it: &Member| it.state != State::Over || !it.is_noticed;
        let left = (0..self.members.len()).filter(|index| is_left(&self.members[*index]));
        let left: Vec<_> = left.collect();
        if left.is_empty() || self.rng.hits(50) {
            let index = self.rng.index(self.members.len());
            return self.act(index, NOTICE).map(drop);
        }
        let index = *self.rng.pick(&left);
        self.trouble(index)?;
        let action = self.rng.index(ACTIONS);
        let delay = if action < 4 { 0 } else { self.delays[action] };
        if self.rng.hits(delay) {
            return Ok(());
        }
        self.act(index, action).map(drop)
    }

    /// Time passes.
    fn pass(&mut self, time: Duration) -> Checked {
        self.shared.clock.set(self.shared.now() + time);
        self.server.look()?;
        for index in 0..self.members.len() {
            if self.members[index].state == State::Over || self.members[index].link.is_lost() {
                continue;
            }
            let was_down = self.members[index].link.is_down();
            self.members[index].link.look()?;
            if !was_down && self.members[index].link.is_down() {
                self.on_broken(index);
            }
            self.check_silence(index)?;
            self.on_loss(index)?;
        }
        Ok(())
    }

    /// One of the things that can happen with a member. Returns whether it did.
    fn act(&mut self, index: usize, action: usize) -> Checked<bool> {
        let member = &mut self.members[index];
        let is_linked = !member.is_noticed && !member.is_frozen;
        match action {
            0..4 | 6 => self.run_threads(index),
            4 => self.run_disks(index),
            5 if member.state != State::Over => member.link.send(),
            7 if is_linked => {
                let did = self.server.hear(member.number, &mut member.link.wire.borrow_mut())?;
                member.number = self.server.number_of(index).unwrap_or(member.number);
                Ok(did)
            }
            8 if is_linked => {
                let frame = member.link.wire.borrow_mut().frames.pop_front();
                let Some(frame) = frame else { return Ok(false) };
                self.server.receive(member.number, frame, true)?;
                Ok(true)
            }
            9 => self.server.work(member.number, &mut self.rng),
            10 => self.server.store(&mut self.rng),
            11 if is_linked => {
                let link = &member.link;
                let did = self.server.answer(member.number, &mut link.wire.borrow_mut())?;
                if link.is_lost() || link.is_down() || member.state == State::Over {
                    link.forget_answers();
                }
                Ok(did)
            }
            12 if is_linked => {
                let did = member.link.hear()?;
                self.on_loss(index)?;
                Ok(did)
            }
            13 if is_linked => member.link.receive(),
            NOTICE => self.notice(index),
            RECONNECT => self.reconnect(index),
            _ => Ok(false),
        }
    }

    /// A thread of a process continues, until it waits.
    fn run_threads(&mut self, index: usize) -> Checked<bool> {
        let member = &mut self.members[index];
        if member.threads.is_empty() {
            return self.end_threads(index);
        }
        let chosen = self.rng.index(member.threads.len());
        if let Poll::Ready(done) = poll(&mut member.threads[chosen]) {
            drop(member.threads.swap_remove(chosen));
            stopped(member, done)?;
            member.link.check_waits()?;
            return Ok(true);
        }
        member.link.check_waits()?;
        Ok(false)
    }

    /// All threads of a process have ended.
    fn end_threads(&mut self, index: usize) -> Checked<bool> {
        let member = &mut self.members[index];
        match member.state {
            State::Over => return Ok(false),
            State::Running if !member.link.is_lost() => {
                member.threads.push(Box::pin(Rc::clone(&member.process).end()));
                member.state = State::Ending;
                return Ok(true);
            }
            // The threads for the local disk end after the loss.
            _ if member.link.is_lost() && !member.disks.is_empty() => return Ok(false),
            _ => {}
        }
        let is_lost = member.link.is_lost();
        member.state = State::Over;
        self.shared.inboxes.borrow_mut().remove(&index);
        member.process.clear();
        let link = &member.link;
        let (awaited, waits) = (link.event(|client, _| client.awaited()), link.waits());
        if awaited > 0 || !waits.is_empty() {
            return Err(format!("no call is left, and {awaited} are waited for: {waits:?}"));
        }
        if link.for_writing.in_use() > 0 {
            return Err(format!("{} buffers are in use at the end", link.for_writing.in_use()));
        }
        if !is_lost {
            if !link.disk.borrow().left()?.is_empty() {
                return Err("all is at the server, and still on the list".to_owned());
            }
            let has_returned = link.has_returned();
            self.shared.stats(|it| {
                it.finished += 1;
                it.returned += u64::from(has_returned);
            });
            member.disks.clear();
            self.shared.trace(|| format!("process {index} ends"));
            member.has_said_bye = link.say_farewell();
            if member.has_said_bye == link.is_away() {
                return Err(format!("process {index} ends well, and does not say so"));
            }
        }
        Ok(true)
    }

    fn run_disks(&mut self, index: usize) -> Checked<bool> {
        let member = &mut self.members[index];
        if member.disks.is_empty() {
            return Ok(false);
        }
        let chosen = self.rng.index(member.disks.len());
        if let Poll::Ready(done) = poll(&mut member.disks[chosen]) {
            drop(member.disks.swap_remove(chosen));
            stopped(member, done)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// If the connection of a process was just lost, all its calls end.
    fn on_loss(&mut self, index: usize) -> Checked {
        let member = &self.members[index];
        if member.state == State::Over || !member.link.is_lost() {
            return Ok(());
        }
        self.shared.check.borrow_mut().on_gone(member.process.number);
        self.truncate(index);
        for _ in 0..LOSS_POLLS_MAX {
            self.run_threads(index)?;
            self.run_disks(index)?;
            if self.members[index].state == State::Over {
                return Ok(());
            }
        }
        let Member { link, threads, disks, .. } = &self.members[index];
        Err(format!(
            "the connection of {index} is lost, and {} threads and {} of the disks wait for {:?}; \
             {} buffers are in use",
            threads.len(),
            disks.len(),
            link.waits(),
            link.for_writing.in_use()
        ))
    }

    /// Nothing goes wrong any more, and all that was begun is done.
    fn drain(&mut self) -> Checked {
        for member in &mut self.members {
            member.is_frozen = false;
        }
        let (begin, before) = (self.shared.now(), *self.shared.stats.borrow());
        let mut idle = 0;
        while !self.is_drained()? {
            let mut did = false;
            for index in 0..self.members.len() {
                for action in 3..ACTIONS {
                    did |= self.act(index, action)?;
                }
            }
            self.pass(Duration::from_micros(100))?;
            if !did {
                idle += 1;
                self.pass(IDLE_TIME)?;
            }
            let (now, stats) = (self.shared.now(), *self.shared.stats.borrow());
            let is_late = now.saturating_sub(begin) > GIVEN_UP && stats.stalls > before.stalls;
            if idle > IDLE_ROUNDS_MAX || is_late || stats.timeouts > before.timeouts {
                let waits: Vec<_> = self.members.iter().map(|it| it.link.waits()).collect();
                return Err(format!("something is never done: {waits:?}"));
            }
        }
        Ok(())
    }

    fn is_drained(&mut self) -> Checked<bool> {
        let mut is_drained = !self.server.has_jobs();
        for member in &self.members {
            is_drained &= member.state == State::Over && member.is_noticed;
            is_drained = is_drained && self.server.forget(member.number)?;
        }
        Ok(is_drained)
    }

    /// Other programs send what is on the local disks.
    fn replay_all(&mut self) -> Checked {
        for index in 0..self.members.len().min(STARTED_MAX) {
            let member = &self.members[index];
            let left = member.link.disk.borrow().left()?;
            let is_all_kept = member.link.forgotten_bytes.get() == 0 && !member.is_dead;
            let is_lost = member.has_stage && member.link.is_lost();
            if left.is_empty() {
                if is_lost && is_all_kept {
                    self.shared.check.borrow().check_kept(index)?;
                }
                continue;
            }
            if self.members.len() == PROCESSES_MAX {
                return Ok(());
            }
            self.shared.stats(|it| it.replayed += left.len() as u64);
            self.start(Some(left.clone()))?;
            self.drain()?;
            let files = &self.server.files;
            check_left(files, &left)?;
            let check = self.shared.check.borrow();
            if is_lost && is_all_kept {
                check.check_kept(index)?;
                check.check_files(files, Compared::Process(index))?;
            } else {
                check.check_files(files, Compared::Synced(index))?;
            }
        }
        Ok(())
    }
}

/// A thread has ended.
fn stopped(member: &Member, done: Done) -> Checked {
    match done {
        Ok(()) => Ok(()),
        Err(Stop::Lost) if member.link.is_lost() => Ok(()),
        Err(Stop::Lost) => Err("a call finds a loss that there is not".to_owned()),
        Err(Stop::Broken(what)) => Err(what),
    }
}

/// The bytes that were kept are in the files.
fn check_left(files: &[DiskFile], left: &[LeftFrame]) -> Checked {
    let mut expected = std::collections::BTreeMap::new();
    for frame in left {
        let path = PATHS.iter().position(|it| it.as_bytes() == frame.path).unwrap_or(0);
        for (offset, stamp) in frame.bytes()? {
            expected.insert((path, offset), stamp);
        }
    }
    for (path, file) in files.iter().enumerate() {
        for (offset, stamp) in file.all() {
            if expected.get(&(path, offset)).is_some_and(|it| *it != stamp) {
                return Err(format!("byte {offset} of file {path} was kept, and is {stamp}"));
            }
        }
    }
    Ok(())
}

/// Kinds of things that happen; see [`World::act`].
const ACTIONS: usize = 16;
/// The server notices that a client is gone, or forgets it.
const NOTICE: usize = 14;
/// A client connects again.
const RECONNECT: usize = 15;

const _: () = assert!(SLOTS.is_multiple_of(PATHS.len()));
