//! Whether a sink keeps its promises, whatever its storage does and its source says.
//!
//! An owner (`owner.rs`) gives frames to the session and does its tasks, well or badly, and always
//! tells the truth of it. A peer (`peer.rs`) announces files and sends what is granted, as a source
//! would, until it talks nonsense. In which order all of this happens is what the input chooses.
//!
//! What must hold:
//!
//! - Every task can be done, and the session takes in how it went.
//! - A number stands for one entry at a time: as long as something of a file is being written, no
//!   other has its number.
//! - A buffer holds one frame, and for each frame that was granted there is a buffer.
//! - BLOCK_DONE is said of what is durable and on record, and of nothing else; FILE_DONE of files
//!   that have their name.
//! - Whoever waits for a task or a message would have been woken for it.
//! - What is said grows with what was told.
//! - A source that keeps the protocol is never refused, and comes to its end whatever storage does.
//!   After nonsense that was not refused, a stop comes to its end.

mod owner;
mod peer;

use crate::choices::Choices;
use crate::nonsense;
use crate::steps::{self, Play, ROUNDS_MAX, Reached};
use lads_core::frame::{Bound, HEADER_BYTES, Header, put_head};
use lads_core::message::Message;
use lads_core::sink::Event;
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
    let end = End { owner, peer: Peer::default(), choices, is_honest: true, is_refused: false };
    steps::play(end)
}

struct End<'a> {
    owner: Owner,
    peer: Peer,
    choices: Choices<'a>,
    /// Whether the source has kept the protocol so far.
    is_honest: bool,
    is_refused: bool,
}

impl Play for End<'_> {
    fn choices(&self) -> &Choices<'_> {
        &self.choices
    }

    fn reached(&self) -> Reached {
        Reached {
            is_finished: self.owner.sink.is_finished(),
            files_moved: self.owner.sink.counters().files_moved,
            is_refused: self.is_refused,
        }
    }

    fn step(&mut self) {
        match self.choices.below(16) {
            0 => {
                self.go_on();
            }
            1 => {
                let message = self.peer.announce(&mut self.choices);
                self.say(message);
            }
            2 => self.listen(),
            3 => {
                self.owner.take_task();
            }
            4 => {
                self.owner.do_task(&mut self.choices, true);
            }
            5 => {
                self.owner.do_task(&mut self.choices, false);
            }
            6 => {
                let count = 1 + self.choices.below(4);
                self.send(count);
            }
            7 => {
                self.owner.receive(&mut self.choices, true);
            }
            8 => {
                let is_whole = self.choices.is_one_in(2);
                let lost = match is_whole {
                    true => self.owner.receive(&mut self.choices, false),
                    false => self.owner.lose_frame(&mut self.choices),
                };
                self.peer.on_lost(lost);
            }
            9 => {
                let message = self.peer.vouch();
                self.say(message);
            }
            10 => {
                let message = self.peer.drop_one(&mut self.choices);
                self.say(message);
            }
            11 => self.owner.wait(Duration::from_millis(self.choices.below(2000).into())),
            12 => self.say(Some(Message::Staged(self.peer.bytes_left()))),
            13 => {
                self.is_honest = false;
                let message = self.nonsense();
                self.say(message);
            }
            14 => self.send_nonsense(),
            _ => self.stop(),
        }
    }

    /// The source says that this was all, or is stopped; then everything that is to be done is
    /// done.
    fn come_to_an_end(&mut self) {
        // Whoever is refused is not told why; what is under way is brought to its end all the same.
        if self.is_refused {
            while self.owner.receive(&mut self.choices, true).is_some() {}
            while self.owner.do_task(&mut self.choices, true) {}
            return;
        }
        for _ in 0..ROUNDS_MAX {
            if self.owner.sink.is_over() || self.is_refused {
                return;
            }
            if !self.go_on() {
                self.owner.wait(self.owner.config.batch_interval);
                match self.is_honest {
                    true => {
                        let finish = self.peer.finish();
                        self.say(finish);
                    }
                    false => self.owner.tell(Event::Stop),
                }
            }
        }
        panic!("no end: {:?}\n{:?}", self.peer, self.owner);
    }
}

impl End<'_> {
    /// The source says something. If it kept the protocol so far, it must be let.
    fn say(&mut self, message: Option<Message>) {
        let Some(message) = message.filter(|_| !self.is_refused) else { return };
        let refused = self.owner.tell_message(message);
        assert!(refused.is_none() || !self.is_honest, "an honest source: {refused:?}");
        self.is_refused = refused.is_some();
    }

    /// What no honest source says: also a number that it has used before.
    fn nonsense(&mut self) -> Option<Message> {
        if self.choices.is_one_in(4) {
            return self.peer.use_again(&mut self.choices);
        }
        nonsense::message(&mut self.choices, &self.peer.topic(&self.owner.config))
    }

    fn listen(&mut self) {
        while let Some(message) = self.owner.next_message() {
            self.peer.on_message(message, &self.owner.books);
        }
        while let Some(message) = self.peer.place_again() {
            self.say(Some(message));
        }
    }

    /// The source sends a frame of at most this many blocks, if it has something and room for it.
    fn send(&mut self, count_max: u32) {
        let next = self.peer.next_frame(count_max, &self.owner.config);
        let Some((ost, rows, has_only_sums)) = next else { return };
        let is_last_grant = self.peer.granted(ost) == 0;
        let mut head = Vec::new();
        put_head(&rows, 0, Bound { sink_ost: ost, is_last_grant, has_only_sums }, &mut head);
        let header = Header::take(&head[..HEADER_BYTES]).expect("a sound header");
        let refused = self.owner.admit(&header, rows);
        assert!(refused.is_none() || !self.is_honest, "an honest source: {refused:?}");
        self.is_refused |= refused.is_some();
    }

    fn send_nonsense(&mut self) {
        self.is_honest = false;
        let topic = self.peer.topic(&self.owner.config);
        let rows = nonsense::rows(&mut self.choices, &topic);
        let sink_ost = lads_core::units::OstId(self.choices.below(topic.ost_count + 1));
        let is_last_grant = self.choices.is_one_in(2);
        let has_only_sums = self.choices.is_one_in(4);
        let mut head = Vec::new();
        put_head(&rows, 0, Bound { sink_ost, is_last_grant, has_only_sums }, &mut head);
        let header = Header::take(&head[..HEADER_BYTES]).expect("a sound header");
        self.is_refused = self.owner.admit(&header, rows).is_some();
        if !self.is_refused {
            self.peer.use_grant(sink_ost);
        }
    }

    fn stop(&mut self) {
        match self.choices.below(3) {
            0 => self.owner.tell(Event::Stop),
            1 => {
                let stop = self.peer.stop();
                self.say(Some(stop));
            }
            _ => self.owner.tell(Event::StreamEnded { stream: 0, frames: 0 }),
        }
    }

    /// Both ends do all that there is to do, honestly, once round. Says whether there was anything.
    fn go_on(&mut self) -> bool {
        let mut has_moved = false;
        while self.owner.take_task() {
            has_moved = true;
        }
        while self.owner.do_task(&mut self.choices, true) {
            has_moved = true;
        }
        while self.owner.receive(&mut self.choices, true).is_some() {
            has_moved = true;
        }
        self.listen();
        while let Some(message) = self.peer.vouch() {
            self.say(Some(message));
            has_moved = true;
        }
        self.send(1);
        has_moved | self.owner.is_receiving()
    }
}
