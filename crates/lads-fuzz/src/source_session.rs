//! Whether a source keeps its promises, whatever its storage does and its sink says.
//!
//! An owner (`owner.rs`) walks a tree and does the tasks of the session, well or badly, and always
//! tells the truth of it. A peer (`peer.rs`) answers, grants and acknowledges, as a sink would,
//! until it talks nonsense. In which order all of this happens is what the input chooses.
//!
//! What must hold:
//!
//! - Every task can be done, and the session takes in how it went.
//! - A frame is sent only if the sink has granted it, holds blocks of its files, each on one OST at
//!   each end, and is no longer than a buffer.
//! - The source vouches for a file only after it was looked at and was the same.
//! - Each entry ends once.
//! - Whoever waits for a task or a message would have been woken for it.
//! - What is said grows with what was told.
//! - A sink that keeps the protocol is never refused, and all that was found comes to an end,
//!   whatever storage does. After nonsense that was not refused, a stop comes to its end.

mod owner;
mod peer;
mod walk;

use crate::choices::Choices;
use crate::nonsense;
use crate::steps::{self, Play, ROUNDS_MAX, Reached};
use lads_core::message::Message;
use lads_core::source::Event;
use owner::Owner;
use peer::Peer;
use std::time::Duration;

/// Plays an input.
///
/// # Panics
/// If a promise is broken.
pub fn run(bytes: &[u8]) {
    let _ = play(bytes);
}

/// Plays an input, and says what it led to.
///
/// # Panics
/// If a promise is broken.
#[must_use]
pub fn play(bytes: &[u8]) -> Reached {
    let mut choices = Choices::new(bytes);
    let owner = Owner::new(&mut choices);
    let mut end = End { owner, peer: Peer::default(), choices, is_honest: true, is_refused: false };
    end.say(Some(Message::Ready {
        ost_count: peer::OST_COUNT,
        open_files_max: 100,
        is_renamed: false,
        time_unit_nanos: 1_000_000_000,
    }));
    steps::play(end)
}

struct End<'a> {
    owner: Owner,
    peer: Peer,
    choices: Choices<'a>,
    /// Whether the sink has kept the protocol so far.
    is_honest: bool,
    is_refused: bool,
}

impl Play for End<'_> {
    fn choices(&self) -> &Choices<'_> {
        &self.choices
    }

    fn reached(&self) -> Reached {
        Reached {
            is_finished: self.owner.source.is_finished(),
            files_moved: self.owner.source.counters().files_moved,
            is_refused: self.is_refused,
        }
    }

    fn step(&mut self) {
        match self.choices.below(16) {
            0 => {
                self.go_on();
            }
            1 => self.owner.walk_on(&mut self.choices, true),
            2 => self.owner.walk_on(&mut self.choices, false),
            3 => self.listen(),
            4 => {
                self.owner.take_task(&self.peer, self.is_honest);
            }
            5 => {
                self.owner.do_task(&mut self.choices, true);
            }
            6 => {
                self.owner.do_task(&mut self.choices, false);
            }
            7 => {
                let message = self.peer.answer(&mut self.choices);
                self.say(message);
            }
            8 => {
                let message = self.peer.grant(&mut self.choices, &mut self.owner.room);
                self.say(message);
            }
            9 => {
                let frame = self.owner.next_frame(&mut self.choices);
                let message = frame.and_then(|frame| self.peer.take_in(frame, &mut self.choices));
                self.say(message);
            }
            10 => {
                let message = self.peer.end_one(&mut self.choices);
                self.say(message);
            }
            11 => {
                let message = self.peer.place_again(&mut self.choices);
                self.say(message);
            }
            12 => {
                let message = self.owner.end_stream();
                self.say(message);
            }
            13 => self.owner.wait(Duration::from_millis(self.choices.below(100).into())),
            14 => {
                self.is_honest = false;
                let topic = self.peer.topic(&self.owner.config);
                let message = nonsense::message(&mut self.choices, &topic);
                self.say(message);
            }
            _ => self.owner.tell(Event::Stop("asked".to_owned())),
        }
    }

    /// The walk comes to its end, or all is stopped; then everything that is to be done is done.
    fn come_to_an_end(&mut self) {
        // Whoever is refused is not told why; what is under way is brought to its end all the same.
        if self.is_refused {
            while self.owner.do_task(&mut self.choices, true) {}
            return;
        }
        if !self.is_honest {
            self.owner.tell(Event::Stop("enough".to_owned()));
        }
        for _ in 0..ROUNDS_MAX {
            if self.owner.source.is_over() || self.is_refused {
                return;
            }
            if !self.go_on() {
                self.owner.wait(Duration::from_secs(1));
                self.owner.come_home(&mut self.choices);
                let finished = self.peer.finished(self.is_honest);
                self.say(finished);
            }
        }
        panic!("no end: {:?}", self.peer);
    }
}

impl End<'_> {
    /// The sink says something. If it kept the protocol so far, it must be let.
    fn say(&mut self, message: Option<Message>) {
        let Some(message) = message.filter(|_| !self.is_refused) else { return };
        let refused = self.owner.tell_message(message);
        assert!(refused.is_none() || !self.is_honest, "an honest sink: {refused:?}");
        self.is_refused = refused.is_some();
    }

    fn listen(&mut self) {
        while let Some(message) = self.owner.next_message() {
            self.peer.on_message(message, &self.owner.unchanged);
        }
        self.owner.take_notes();
    }

    /// Both ends do all that there is to do, honestly, once round. Says whether there was anything.
    fn go_on(&mut self) -> bool {
        let mut has_moved = false;
        while self.owner.take_task(&self.peer, self.is_honest) {
            has_moved = true;
        }
        while self.owner.do_task(&mut self.choices, true) {
            has_moved = true;
        }
        self.listen();
        while let Some(frame) = self.owner.next_frame(&mut self.choices) {
            let message = self.peer.take_in_well(frame);
            self.say(message);
            has_moved = true;
        }
        while let Some(message) = self.peer.answer(&mut self.choices) {
            self.say(Some(message));
            has_moved = true;
        }
        while let Some(message) = self.peer.end_one(&mut self.choices) {
            self.say(Some(message));
            has_moved = true;
        }
        if let Some(message) = self.peer.grant_all(&mut self.owner.room) {
            self.say(Some(message));
            has_moved = true;
        }
        has_moved
    }
}
