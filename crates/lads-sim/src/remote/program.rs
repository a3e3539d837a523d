//! What a process does: its threads write, read and synchronize files that it opens, and it sends
//! messages to other processes after a fence.

use super::PATHS;
use super::check::{Clock, SLOTS};
use super::client_disk::LeftFrame;
use super::client_end::Link;
use super::client_threads::pause;
use super::handle::Handle;
use crate::rng::Rng;
use lads_core::remote::client::Wait;
use lads_core::remote::message::LockKind;
use lads_core::remote::reading::Prefetch;
use lads_core::view::{Datatype, View};
use std::cell::{Cell, RefCell, RefMut};
use std::collections::VecDeque;
use std::rc::Rc;

/// Why a thread stops.
#[derive(Debug)]
pub(super) enum Stop {
    /// The connection is lost.
    Lost,
    /// A promise was broken.
    Broken(String),
}

/// The result of a call.
pub(super) type Done<T = ()> = Result<T, Stop>;

impl From<String> for Stop {
    fn from(text: String) -> Self {
        Self::Broken(text)
    }
}

impl From<&str> for Stop {
    fn from(text: &str) -> Self {
        Self::Broken(text.to_owned())
    }
}

/// A process of the program.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) number: usize,
    pub(super) link: Rc<Link>,
    /// The number of writes through each slot.
    pub(super) owns: [Cell<u32>; SLOTS],
    /// What it knows of all writes.
    pub(super) clock: Cell<Clock>,
    slots: RefCell<Vec<Slot>>,
    rng: RefCell<Rng>,
    has_one_thread: bool,
    keeps_reads: bool,
}

#[derive(Clone, Debug)]
enum Slot {
    Closed,
    /// It is being opened or closed.
    Busy,
    Open(Rc<Handle>),
}

impl Process {
    pub(super) fn new(
        link: Rc<Link>,
        rng: Rng,
        has_one_thread: bool,
        keeps_reads: bool,
    ) -> Rc<Self> {
        Rc::new(Self {
            number: link.process,
            link,
            owns: Default::default(),
            clock: Cell::default(),
            slots: RefCell::new(vec![Slot::Closed; SLOTS]),
            rng: RefCell::new(rng),
            has_one_thread,
            keeps_reads,
        })
    }

    pub(super) fn rng(&self) -> RefMut<'_, Rng> {
        self.rng.borrow_mut()
    }

    /// The process learns something.
    pub(super) fn know(&self, act: impl FnOnce(&mut Clock)) {
        let mut clock = self.clock.get();
        act(&mut clock);
        self.clock.set(clock);
    }

    fn slot(&self, slot: usize) -> Slot {
        self.slots.borrow()[slot].clone()
    }

    /// The files that are open.
    pub(super) fn open_handles(&self) -> Vec<Rc<Handle>> {
        let slots = self.slots.borrow();
        let handle = |slot: &Slot| match slot {
            Slot::Open(handle) => Some(Rc::clone(handle)),
            Slot::Closed | Slot::Busy => None,
        };
        slots.iter().filter_map(handle).collect()
    }

    fn set_slot(&self, slot: usize, to: Slot) {
        self.slots.borrow_mut()[slot] = to;
    }

    /// Forgets the files: the process is over.
    pub(super) fn clear(&self) {
        self.slots.borrow_mut().fill(Slot::Closed);
    }

    /// Does this many things, one after the other.
    pub(super) async fn run_thread(self: Rc<Self>, count: u32) -> Done {
        self.link.wait(&Wait::Connected).await;
        for _ in 0..count {
            self.act().await?;
            let polls = self.rng().below(2);
            pause(polls).await;
        }
        Ok(())
    }

    async fn act(&self) -> Done {
        // Most calls are for one file, so that they meet; others come between if some are kept.
        let choice = self.rng().below(if self.keeps_reads { 14 } else { 10 });
        let slot = match choice {
            0..6 => 0,
            6 | 7 => 1,
            8 => 3,
            _ => 2,
        };
        match self.slot(slot) {
            Slot::Busy => {
                pause(1).await;
                Ok(())
            }
            Slot::Closed => self.open_slot(slot).await,
            Slot::Open(handle) => self.act_on(handle).await,
        }
    }

    async fn open_slot(&self, slot: usize) -> Done {
        self.set_slot(slot, Slot::Busy);
        let defers = self.rng().hits(500);
        let prefetch = self.prefetch();
        let opened = self.open(slot, defers, prefetch).await?;
        self.set_slot(slot, opened.map_or(Slot::Closed, |it| Slot::Open(Rc::new(it))));
        Ok(())
    }

    fn prefetch(&self) -> Prefetch {
        let all = [Prefetch::Auto, Prefetch::Always, Prefetch::Never, Prefetch::Off];
        if self.keeps_reads { *self.rng().pick(&all) } else { Prefetch::Off }
    }

    async fn act_on(&self, handle: Rc<Handle>) -> Done {
        let choice = self.rng().below(100);
        match choice {
            0..16 if self.keeps_reads => self.read(&handle).await,
            0..32 => self.write(&handle).await,
            32..56 => self.read(&handle).await,
            // Others look for what was written last.
            56..65 => {
                self.write(&handle).await?;
                self.send_message().await
            }
            65..75 if self.take_message() => self.read(&handle).await,
            65..75 => Ok(()),
            75..78 => self.sync(&handle, true).await,
            78..81 => self.sync(&handle, false).await,
            // A program sets no view while another thread reads.
            81..86 if Rc::strong_count(&handle) > 2 => Ok(()),
            81..86 => self.set_view(&handle).await,
            86..90 => self.use_lock(&handle).await,
            90..92 => self.size(&handle).await,
            92..94 => self.close_slot(handle).await,
            94 | 95 if self.has_one_thread => self.set_size(&handle).await,
            96 | 97 => {
                let prefetch = self.prefetch();
                self.set_prefetch(&handle, prefetch).await;
                Ok(())
            }
            _ => {
                let polls = self.rng().below(60);
                pause(polls).await;
                Ok(())
            }
        }
    }

    /// Closes a file that no other thread uses.
    async fn close_slot(&self, handle: Rc<Handle>) -> Done {
        if Rc::strong_count(&handle) > 2 {
            return Ok(());
        }
        let slot = handle.slot;
        self.set_slot(slot, Slot::Busy);
        let defers = self.rng().hits(500);
        self.close(&handle, defers).await?;
        drop(handle);
        self.set_slot(slot, Slot::Closed);
        Ok(())
    }

    /// Does some things with a file that is locked.
    async fn use_lock(&self, handle: &Handle) -> Done {
        if handle.is_locked.replace(true) {
            return Ok(());
        }
        let kind = *self.rng().pick(&[LockKind::Exclusive, LockKind::Exclusive, LockKind::Shared]);
        if self.lock(handle, kind).await? {
            let count = self.rng().below(4);
            for _ in 0..count {
                let writes = kind == LockKind::Exclusive && self.rng().hits(500);
                if writes { self.write(handle).await? } else { self.read(handle).await? }
            }
            self.unlock(handle).await;
        }
        handle.is_locked.set(false);
        Ok(())
    }

    /// Waits until all clients see what was written before.
    async fn fence(&self) -> Done<Clock> {
        let mut known = self.clock.get();
        for slot in 0..SLOTS {
            if let Slot::Open(handle) = self.slot(slot) {
                let (_, writes) = self.sealed_counts(&handle).await;
                known.raise(handle.component, writes);
            }
        }
        let link = &self.link;
        if link.event(|client, _| client.has_other_servers()) {
            let written = link.event(|client, _| client.until_written());
            link.wait(&written).await;
        } else {
            link.wait(&Wait::FewUnsent).await;
            let number = link.event(|client, _| client.fence());
            if let Some(number) = number {
                link.say_all();
                self.wait_for(number).await?;
            }
        }
        if link.is_lost() {
            return Err(Stop::Lost);
        }
        self.know(|clock| clock.merge(&known));
        Ok(self.clock.get())
    }

    async fn wait_for(&self, number: u64) -> Done {
        self.link.wait(&Wait::Reply(number)).await;
        match self.link.event(|client, _| client.take_reply(number)) {
            Some(Ok(_)) => Ok(()),
            _ if self.link.is_lost() => Err(Stop::Lost),
            other => Err(Stop::Broken(format!("a fence returns {other:?}"))),
        }
    }

    /// Tells another process what happened here.
    async fn send_message(&self) -> Done {
        let clock = self.fence().await?;
        let mut inboxes = self.link.shared.inboxes.borrow_mut();
        let others: Vec<_> = inboxes.keys().copied().filter(|it| *it != self.number).collect();
        if !others.is_empty() {
            let to = *self.rng().pick(&others);
            inboxes.entry(to).or_default().push_back(clock);
            if self.rng().hits(self.link.shared.doomed_per_mille) {
                self.link.shared.doomed.set(Some(self.number));
            }
        }
        Ok(())
    }

    /// Takes a message of another process, if there is one.
    fn take_message(&self) -> bool {
        let mut inboxes = self.link.shared.inboxes.borrow_mut();
        let message = inboxes.get_mut(&self.number).and_then(VecDeque::pop_front);
        let Some(clock) = message else { return false };
        self.know(|own| own.merge(&clock));
        self.link.stats(|it| it.messages += 1);
        true
    }

    /// Closes all files, and waits for everything that was deferred.
    pub(super) async fn end(self: Rc<Self>) -> Done {
        for slot in 0..SLOTS {
            if let Slot::Open(handle) = self.slot(slot) {
                self.set_slot(slot, Slot::Busy);
                let defers = self.rng().hits(500);
                self.close(&handle, defers).await?;
            }
            self.set_slot(slot, Slot::Closed);
        }
        self.finish().await
    }

    /// Sends what another process left on its local disk.
    pub(super) async fn replay(self: Rc<Self>, frames: Vec<LeftFrame>) -> Done {
        self.link.wait(&Wait::Connected).await;
        for LeftFrame { displacement, filetype, path, position, stamps } in frames {
            let index = PATHS.iter().position(|it| it.as_bytes() == path);
            let slot = index.ok_or("an unknown path is on a list")? * (SLOTS / PATHS.len());
            while !matches!(self.slot(slot), Slot::Open(_)) {
                self.open_slot(slot).await?;
            }
            let Slot::Open(handle) = self.slot(slot) else { continue };
            let datatype = Datatype::take(&filetype).map_err(|error| error.to_string())?;
            let shape = View::new(displacement, &datatype).map_err(|error| error.to_string())?;
            self.use_view(&handle, displacement, &filetype, shape).await;
            let guard = handle.tail.lock().await;
            let positions = position..position + stamps.len() as u64;
            self.write_at(&handle, guard, positions, Some(stamps)).await?;
        }
        Ok(())
    }
}
