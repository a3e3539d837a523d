//! Clients that come, whose connection breaks, that come back, and that are gone.

use super::client::{Client, Later};
use super::{Breach, ClientNumber, Server, Ticket, ToClient, Work};
use crate::remote::policy::AWAY_MAX;
use crate::units::Instant;
use std::time::Duration;

impl Server {
    /// A client has connected for the first time. It shows the ticket, which is random, when it
    /// connects again.
    pub fn connect(&mut self, ticket: Ticket, now: Instant) -> ClientNumber {
        self.numbers += 1;
        let number = ClientNumber(self.numbers);
        let ticket = (self.away_max > 0).then_some(ticket);
        let client = Client::new(self.name.clone(), self.frames_each, ticket, now);
        self.clients.insert(number, client);
        number
    }

    /// Returns the client that has this ticket.
    #[must_use]
    pub fn find(&self, ticket: Ticket) -> Option<ClientNumber> {
        let found = self.clients.iter().find(|(_, client)| client.has_ticket(ticket));
        found.map(|(number, _)| *number)
    }

    /// The connection of a client is broken, and nothing more arrives on it. Returns whether the
    /// client may connect again; otherwise [`Self::on_gone`] follows. What was read for it and is
    /// not sent is forgotten.
    pub fn on_broken(&mut self, number: ClientNumber, now: Instant) -> bool {
        self.news.insert(number);
        if !self.client(number).is_some_and(|client| client.may_return()) {
            return false;
        }
        let coming = self.client(number).map(|client| client.begin_absence(now));
        let coming = coming.into_iter().flatten();
        self.work.extend(coming.map(|frame| Work::Drop { client: number, frame }));
        while self.away().count() > self.away_max {
            self.give_up_oldest();
        }
        // A request may have waited behind a read.
        if let Err(breach) = self.go_on(number) {
            self.on_gone(number, Some(breach.to_string()));
        }
        !self.is_over(number)
    }

    /// A client is connected again, and has heard as many counted messages on all connections
    /// before this one. Returns `false` if it has nothing here.
    ///
    /// # Errors
    /// If it cannot have heard as many.
    pub fn resume(
        &mut self,
        number: ClientNumber,
        heard: u64,
        now: Instant,
    ) -> Result<bool, Breach> {
        self.news.insert(number);
        let name = self.name.clone();
        let Some(client) = self.client(number).filter(|it| it.away_since.is_some()) else {
            return Ok(false);
        };
        match client.end_absence(name, heard, now) {
            true => Ok(true),
            false => Err(Breach::Confirmed),
        }
    }

    /// A client has disconnected, or is disconnected for this reason, which is sent to it. Only its
    /// frames that are here and placed are still written. The owner calls [`Self::forget`] as soon
    /// as [`Self::is_ended`].
    pub fn on_gone(&mut self, number: ClientNumber, text: Option<String>) {
        self.news.insert(number);
        let Some(client) = self.client(number) else { return };
        text.into_iter().for_each(|text| client.replies.add(ToClient::Fatal(text)));
        let coming = client.end().into_iter();
        self.work.extend(coming.map(|frame| Work::Drop { client: number, frame }));
        self.writes.on_gone(number);
        self.do_actions();
        self.on_gone_in_return(number);
    }

    /// Reports whether nothing is left to be done for a client that is gone.
    #[must_use]
    pub fn is_ended(&self, number: ClientNumber) -> bool {
        self.clients.get(&number).is_none_or(Client::is_ended)
    }

    /// Keeps nothing of a client that is gone. Others are given its locks.
    pub fn forget(&mut self, number: ClientNumber) {
        let Some(client) = self.clients.remove(&number) else { return };
        let closing = client.later.into_values().filter_map(Later::closing);
        for (file, opened) in client.files.into_iter().chain(closing) {
            self.on_closed(number, file, &opened);
        }
    }

    /// Gives up the client whose connection is broken for the longest time. Returns whether there
    /// is one.
    pub fn give_up_oldest(&mut self) -> bool {
        let oldest = self.away().min().map(|(_, number)| number);
        oldest.into_iter().for_each(|number| self.on_gone(number, None));
        oldest.is_some()
    }

    /// Reports whether a client is gone.
    #[must_use]
    pub fn is_over(&self, number: ClientNumber) -> bool {
        self.clients.get(&number).is_none_or(|client| client.is_over)
    }

    /// Reports whether the connection of a client is broken, and the client may connect again.
    #[must_use]
    pub fn is_away(&self, number: ClientNumber) -> bool {
        self.away().any(|(_, it)| it == number)
    }

    /// Reports whether a client without a connection has frames that are here.
    #[must_use]
    pub fn has_memory(&self, number: ClientNumber) -> bool {
        self.clients.get(&number).is_some_and(Client::has_memory)
    }

    /// The clients that others wait for, and that were silent for `silence_max` although nothing is
    /// done for them; and those whose connection is broken for too long. `away`: for how long this
    /// process was stopped since the last call. Clients that are expected and have not come by now
    /// are not waited for any more.
    pub fn silent(
        &mut self,
        now: Instant,
        away: Duration,
        silence_max: Duration,
    ) -> Vec<ClientNumber> {
        for client in self.clients.values_mut() {
            client.active_at = (client.active_at + away).min(now);
            client.away_since = client.away_since.map(|since| (since + away).min(now));
        }
        self.look_at_return(now, away);
        let holding_up = self.locks.holding_up().into_iter().chain(self.writes.holding_up());
        let is_silent = |number: &ClientNumber| {
            let is_late = |it: &Client| now.since(it.active_at) >= silence_max;
            self.clients.get(number).is_some_and(|it| !it.is_busy() && is_late(it))
        };
        let gone = self.away().filter(|(since, _)| now.since(*since) >= AWAY_MAX);
        holding_up.filter(is_silent).chain(gone.map(|(_, number)| number)).collect()
    }

    /// The clients whose connection is broken, and since when.
    fn away(&self) -> impl Iterator<Item = (Instant, ClientNumber)> {
        let clients = self.clients.iter().filter(|(_, client)| !client.is_over);
        clients.filter_map(|(number, client)| Some((client.away_since?, *number)))
    }
}
