//! Messages of a server that wait to be sent to a client.

use super::message::{ToClient, Written};
use super::policy::REPLIES_MAX;

/// The messages that wait for one client.
#[derive(Debug, Default)]
pub struct Replies {
    /// The outcomes of frames. They go in one message.
    written: Vec<Written>,
    others: Vec<ToClient>,
}

impl Replies {
    /// Adds a message.
    pub fn add(&mut self, message: ToClient) {
        self.others.push(message);
    }

    /// Adds the outcome of a frame.
    pub fn add_written(&mut self, written: Written) {
        self.written.push(written);
    }

    /// Reports whether no message waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.written.is_empty() && self.others.is_empty()
    }

    /// Reports whether no further request may be done until the client takes some messages: memory
    /// for the replies would have no limit.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.others.len() >= REPLIES_MAX
    }

    /// Takes all messages, in the order in which they are to be sent. The outcomes of frames are
    /// first: a reply may tell that earlier frames are written, and an error of one of them must
    /// not arrive after it.
    #[must_use]
    pub fn take(&mut self) -> Vec<ToClient> {
        let written = std::mem::take(&mut self.written);
        let written = (!written.is_empty()).then_some(ToClient::Written(written));
        written.into_iter().chain(self.others.drain(..)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::{Failure, Outcome};
    use super::*;
    use crate::issue::Operation;

    /// `sync` returned, and its caller found no error.
    #[test]
    fn the_errors_of_frames_are_sent_before_a_reply_that_tells_of_them() {
        let mut replies = Replies::default();
        assert!(replies.is_empty() && replies.take().is_empty());
        let reply = |number| ToClient::Reply { number, outcome: Outcome::Done };
        let failure = Some(Failure { operation: Operation::Write, errno: 28 });
        let written = [Written { frame: 1, failure: None }, Written { frame: 2, failure }];
        replies.add(reply(1));
        written.iter().for_each(|it| replies.add_written(*it));
        replies.add(reply(2));
        assert!(!replies.is_empty());
        assert_eq!(replies.take(), [ToClient::Written(written.to_vec()), reply(1), reply(2)]);
        assert!(replies.is_empty());
    }

    #[test]
    fn replies_that_are_not_taken_are_limited() {
        let mut replies = Replies::default();
        (1..REPLIES_MAX).for_each(|_| replies.add(ToClient::Heartbeat));
        assert!(!replies.is_full());
        replies.add(ToClient::Heartbeat);
        assert!(replies.is_full());
        assert_eq!(replies.take().len(), REPLIES_MAX);
        assert!(!replies.is_full());
    }
}
