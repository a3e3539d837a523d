//! Messages of a server to a client: those that wait to be sent, and those that were sent and that
//! the client has not confirmed. If its connection breaks, these are sent again on the next one.

use super::message::{ToClient, Written};
use super::policy::{REPLIES_MAX, UNCONFIRMED_MAX};
use std::collections::VecDeque;

/// The messages for one client.
#[derive(Debug, Default)]
pub struct Replies {
    /// What is sent before all others, and is not counted.
    first: Vec<ToClient>,
    /// The outcomes of frames. They go in one message.
    written: Vec<Written>,
    others: Vec<ToClient>,
    /// Counted messages that were sent; `None` if they are not kept.
    sent: Option<VecDeque<ToClient>>,
    /// The number of counted messages before these.
    confirmed: u64,
    /// How many of these are sent again, from the first on.
    again: usize,
}

impl Replies {
    /// From now on, what is sent is kept until the client confirms it.
    pub fn keep(&mut self) {
        self.sent.get_or_insert_default();
    }

    /// Adds a message.
    pub fn add(&mut self, message: ToClient) {
        self.others.push(message);
    }

    /// Adds a message that goes before all others on this connection.
    pub fn add_first(&mut self, message: ToClient) {
        self.first.push(message);
    }

    /// Forgets the messages that go before all others.
    pub fn clear_first(&mut self) {
        self.first.clear();
    }

    /// Adds the outcome of a frame.
    pub fn add_written(&mut self, written: Written) {
        self.written.push(written);
    }

    /// Reports whether no message waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let is_new = !self.written.is_empty() || !self.others.is_empty();
        self.first.is_empty() && !is_new && self.again == 0
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
        let mut messages = std::mem::take(&mut self.first);
        let again = std::mem::take(&mut self.again);
        messages.extend(self.sent.iter().flatten().take(again).cloned());
        let begin = messages.len();
        let written = std::mem::take(&mut self.written);
        messages.extend((!written.is_empty()).then_some(ToClient::Written(written)));
        messages.append(&mut self.others);
        if let Some(sent) = &mut self.sent {
            sent.extend(messages[begin..].iter().filter(|it| it.is_counted()).cloned());
        }
        // A client that does not confirm what it hears cannot connect again.
        self.sent.take_if(|sent| sent.len() > UNCONFIRMED_MAX);
        messages
    }

    /// The client has heard as many counted messages. Returns whether it can have.
    pub fn confirm(&mut self, heard: u64) -> bool {
        let Some(sent) = &mut self.sent else { return true };
        let count = heard.checked_sub(self.confirmed).and_then(|it| usize::try_from(it).ok());
        let can_have = if self.again == 0 { sent.len() } else { 0 };
        let Some(count) = count.filter(|count| *count <= can_have) else { return false };
        sent.drain(..count);
        self.confirmed = heard;
        true
    }

    /// Reports whether nothing is lost if the connection breaks.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.sent.is_some()
    }

    /// A new connection begins; the client has heard as many counted messages on those before.
    /// What it has not heard is sent again. Returns whether it can have heard as many.
    pub fn begin_again(&mut self, heard: u64) -> bool {
        self.first.clear();
        self.again = 0;
        let can_have = self.confirm(heard);
        self.again = self.sent.as_ref().map_or(0, VecDeque::len);
        can_have
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

    #[test]
    fn what_is_not_confirmed_is_sent_again() {
        let mut replies = Replies::default();
        let reply = |number| ToClient::Reply { number, outcome: Outcome::Done };
        replies.keep();
        replies.add_first(ToClient::Heartbeat);
        (0..4).for_each(|number| replies.add(reply(number)));
        assert_eq!(replies.take().len(), 5);
        assert!(replies.confirm(1) && !replies.confirm(0) && !replies.confirm(5));
        replies.add(reply(4));
        assert!(replies.begin_again(2) && !replies.is_empty());
        replies.add_first(ToClient::Heartbeat);
        let expected = [ToClient::Heartbeat, reply(2), reply(3), reply(4)];
        assert_eq!(replies.take(), expected);
        assert!(replies.is_empty() && replies.begin_again(5) && replies.is_empty());
        assert!(!replies.begin_again(6));
    }

    #[test]
    fn only_what_is_not_counted_is_forgotten_before_a_greeting() {
        let mut replies = Replies::default();
        replies.keep();
        replies.add_first(ToClient::Heartbeat);
        replies.add(ToClient::Grant(1));
        replies.clear_first();
        assert_eq!(replies.take(), [ToClient::Grant(1)]);
        assert!(replies.is_empty() && replies.confirm(1));
    }

    #[test]
    fn a_client_that_confirms_nothing_takes_no_memory() {
        let mut replies = Replies::default();
        replies.keep();
        for _ in 0..=UNCONFIRMED_MAX {
            assert!(replies.is_kept());
            replies.add(ToClient::Grant(1));
            assert_eq!(replies.take(), [ToClient::Grant(1)]);
        }
        assert!(!replies.is_kept());
        replies.add(ToClient::Grant(1));
        assert_eq!(replies.take(), [ToClient::Grant(1)]);
    }
}
