//! The connection of a client breaks, and the client comes back or does not.

use super::{Client, Host, Phase, VERSION};
use lads_core::remote::message::{ToClient, ToServer};
use lads_core::remote::server::{Act, Breach};

impl Client {
    /// A connection begins with the greeting, and with the ticket or what the server has.
    pub(super) fn check_order(&mut self, message: &ToClient) {
        let is_first = self.connection == 0;
        let is_begin = match message {
            ToClient::Hello { version, .. } => *version == VERSION && self.heard == 0,
            ToClient::Ticket(ticket) => {
                self.has_ticket = true;
                *ticket == self.ticket && is_first && self.heard == 1
            }
            ToClient::Restarted { .. } => !is_first && self.heard == 1,
            ToClient::Resumed { requests, frames } => {
                let has = (self.requests, self.frames);
                assert_eq!((*requests, *frames), has, "what the server has");
                !is_first && self.heard == 1
            }
            _ => self.heard >= 2,
        };
        assert!(is_begin || self.is_over, "{message:?} after {} others", self.heard);
    }
}

impl Host<'_> {
    /// The connection of a client breaks or is there again, or it tells how much it has heard.
    pub(super) fn come_and_go(&mut self, index: usize) -> Result<(), Breach> {
        let client = &mut self.clients[index];
        let number = client.number;
        match self.choices.below(8) {
            _ if client.is_over => Ok(()),
            _ if client.is_away => self.come_back(index),
            0 if self.choices.is_one_in(4) => {
                self.end(number);
                Ok(())
            }
            1 if client.may_talk() => {
                client.is_leaving = true;
                self.server.on_message(number, ToServer::Bye, self.now)
            }
            2 | 3 => self.break_off(index),
            _ if client.may_talk() => self.confirm(index),
            _ => self.hear(index),
        }
    }

    /// A client tells how many messages it has heard; rarely of more than there were.
    fn confirm(&mut self, index: usize) -> Result<(), Breach> {
        let heard = self.heard_of(index);
        let client = &mut self.clients[index];
        let message = ToServer::Heartbeat { heard };
        let is_true =
            std::mem::replace(&mut client.confirmed, heard) <= heard && heard == client.counted;
        let done = self.server.on_message(client.number, message, self.now);
        assert_eq!(done, if is_true { Ok(()) } else { Err(Breach::Confirmed) });
        done
    }

    /// How many messages a client has heard; rarely a number that cannot be.
    fn heard_of(&mut self, index: usize) -> u64 {
        let Client { counted, confirmed, said, .. } = self.clients[index];
        match self.choices.below(32) {
            _ if self.clients[index].sound.is_some() => counted,
            30 if confirmed > 0 => confirmed - 1,
            31 => said + 1 + u64::from(self.choices.below(4)),
            _ => counted,
        }
    }

    /// The connection of a client breaks: only the first messages that the server had for it have
    /// arrived, and frames are lost on their way.
    pub(super) fn break_off(&mut self, index: usize) -> Result<(), Breach> {
        self.hear_some(index)?;
        if self.clients[index].may_talk() {
            while self.choices.is_one_in(4) && self.put(index) {}
        }
        if !self.choices.is_one_in(4) {
            // Otherwise the owner says afterwards that these bytes are sent.
            self.clients[index].sending.clear();
        }
        self.begin();
        self.leave(index);
        Ok(())
    }

    /// The first of the messages that the server has for a client arrive.
    pub(super) fn hear_some(&mut self, index: usize) -> Result<(), Breach> {
        let messages = match self.choices.is_one_in(2) {
            true => self.take_messages(index)?,
            false => Vec::new(),
        };
        let heard = self.choices.place_in(messages.len() + 1).unwrap_or(0);
        messages.into_iter().take(heard).for_each(|message| self.hear_one(index, &message));
        Ok(())
    }

    /// Nothing more arrives from a client. The frames whose place is not known are dropped.
    fn leave(&mut self, index: usize) {
        let number = self.clients[index].number;
        let coming = self.server.coming_count(number) as u64;
        let may_return = self.server.on_broken(number, self.now);
        let is_over = self.server.is_over(number);
        let Client { phase, is_leaving, has_ticket, .. } = self.clients[index];
        assert!(phase != Phase::Begun || !may_return, "nothing of it is kept");
        // It may have said that it is back, and waits for a file.
        if !may_return && !is_over && (phase == Phase::Begun || !is_leaving && has_ticket) {
            return self.leave_return(index);
        }
        let client = &mut self.clients[index];
        assert!(may_return != (client.is_leaving || is_over), "whether it may return");
        client.is_away = true;
        client.frames -= coming;
        // Who does not know the ticket cannot come back.
        if !may_return || !client.has_ticket {
            self.end(number);
        }
        self.begin();
        self.take_tasks(index);
        let client = &self.clients[index];
        assert!(client.here.range(client.frames..).next().is_none(), "a dropped frame is kept");
        self.find_given_up();
    }

    /// What goes on while a client is away. Nothing is read for it.
    fn take_tasks(&mut self, index: usize) {
        let Client { number, connection, ref mut tasks, .. } = self.clients[index];
        while let Some(task) = self.server.next_task(number) {
            assert!(!matches!(task.act, Act::Read { .. }), "nobody waits for {task:?}");
            tasks.push((task, number, connection));
        }
    }

    /// The server keeps only so many clients.
    fn find_given_up(&mut self) {
        let is_away = |it: &&mut Client| it.is_away && !it.is_over && it.phase == Phase::Here;
        let away = self.clients.iter_mut().filter(is_away);
        let mut count = 0;
        for client in away {
            client.is_over = self.server.is_over(client.number);
            count += u32::from(!client.is_over);
            let expected = (!client.is_over).then_some(client.number);
            assert_eq!(self.server.find(client.ticket), expected);
        }
        assert!(count <= super::AWAY_MAX, "{count} clients are away");
    }

    fn come_if_expected(&mut self, index: usize) {
        if !self.clients[index].is_over {
            self.readmit(index);
        }
    }

    /// A client is connected again.
    fn come_back(&mut self, index: usize) -> Result<(), Breach> {
        if self.clients[index].phase == Phase::Expected {
            self.readmit(index);
            return Ok(());
        }
        let heard = self.heard_of(index);
        let client = &mut self.clients[index];
        assert_eq!(self.server.find(client.ticket), Some(client.number));
        let is_true = heard == client.counted;
        let done = self.server.resume(client.number, heard, self.now);
        assert_eq!(done, if is_true { Ok(true) } else { Err(Breach::Confirmed) });
        done?;
        (client.is_away, client.connection, client.heard) = (false, client.connection + 1, 0);
        client.confirmed = heard;
        self.reached.resumed += 1;
        Ok(())
    }

    /// At the end, clients that are away come back, or are given up.
    pub(super) fn bring_back(&mut self) {
        for index in 0..self.clients.len() {
            let Client { number, is_away, is_over, .. } = self.clients[index];
            if is_away && !is_over && self.clients[index].phase == Phase::Expected {
                self.clients[index].is_over = self.choices.is_one_in(4);
                self.come_if_expected(index);
            } else if is_away && !is_over {
                let is_given_up = self.choices.is_one_in(2) && self.server.give_up_oldest();
                let done = if is_given_up { Ok(()) } else { self.come_back(index) };
                self.end_at_breach(number, done);
            }
        }
        self.find_given_up();
    }
}
