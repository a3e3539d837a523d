//! The connection breaks and is made again.

use super::*;
use crate::remote::message::Ticket;

impl Program {
    /// A program that can connect again.
    pub(super) fn with_ticket() -> Self {
        let mut program = Self::new(None);
        program.deliver(ToClient::Ticket(Ticket([7; 16])));
        program
    }

    /// The connection breaks, and is made again by a server that has as many requests and frames.
    pub(super) fn come_back(&mut self, requests: u64, frames: u64) {
        assert!(self.client.on_broken("cut", self.now));
        assert!(self.calls().is_empty() && self.send().is_empty());
        self.client.on_connected(self.now);
        self.deliver(ToClient::Hello { version: VERSION, name: "host".to_owned() });
        self.deliver(ToClient::Resumed { requests, frames });
    }
}

/// Where such a read began counted as the end of the file: nothing behind it was read ahead.
#[test]
fn a_broken_connection_does_not_end_what_is_read_ahead() {
    let mut program = Program::with_ticket();
    program.client.set_prefetch(&mut program.tail, Prefetch::Always, program.now);
    let mut read = program.read(0..100);
    assert!(matches!(program.client.step(&mut read), Step::Wait(Wait::Reply(2))));
    let before: Vec<_> = program.calls().into_iter().map(|(.., call)| call).collect();
    assert_eq!(before.len(), 4);
    program.come_back(6, 0);
    let again = program.calls();
    assert_eq!(again[0].0, 6);
    assert_eq!(again.into_iter().map(|(.., call)| call).collect::<Vec<_>>(), before);
}
