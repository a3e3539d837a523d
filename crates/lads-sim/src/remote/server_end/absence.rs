//! Clients of a server whose connection is broken.

use super::{NAME, Said, ServerEnd, Session, Wire};
use crate::findings::Checked;
use lads_core::remote::locks::ClientNumber;
use lads_core::remote::message::{Ticket, ToClient, VERSION};
use lads_core::remote::policy::{AWAY_MAX, SILENCE_MAX};
use std::time::Duration;

impl Session {
    /// A message is sent. Counted ones are sent in one order, on whatever connection.
    pub(super) fn say(&mut self, message: ToClient) -> Checked<Said> {
        if !is_counted(&message) {
            return Ok(Said { number: None, message });
        }
        let number = Some(self.said_count as u64);
        match self.said.get(self.said_count) {
            Some(before) if *before != message => {
                return Err(format!("{message:?} is said, and was {before:?}"));
            }
            Some(_) => {}
            None => self.said.push(message.clone()),
        }
        self.said_count += 1;
        Ok(Said { number, message })
    }
}

/// Whether a message must arrive, once.
fn is_counted(message: &ToClient) -> bool {
    message.is_counted()
}

impl ServerEnd {
    /// Reports whether everything of a client is kept although its connection is broken.
    pub(in super::super) fn is_kept(&self, number: ClientNumber) -> bool {
        let is_away = |it: &Session| it.away_since.is_some() && !it.is_given_up;
        self.sessions.get(&number).is_some_and(is_away)
    }

    fn kept_count(&self) -> usize {
        self.sessions.keys().filter(|number| self.is_kept(**number)).count()
    }

    /// The server notices that the connection of a client is broken.
    pub(in super::super) fn break_off(&mut self, number: ClientNumber) -> Checked {
        let now = self.shared.now();
        let Some(session) = self.sessions.get(&number).filter(|it| it.away_since.is_none()) else {
            return Ok(());
        };
        let (is_leaving, was_over) = (session.is_leaving, self.server.is_over(number));
        let is_returning = session.is_returning;
        let is_kept = self.event(|server, at| Ok::<_, String>(server.on_broken(number, at)))?;
        let process = self.session(number)?.process;
        self.shared.trace(|| format!("server: client {process} is away: {is_kept}"));
        if is_kept && (is_leaving || was_over || self.away_max == 0) {
            return Err(format!("client {process} is kept, and does not connect again"));
        }
        let may_be_kept = !is_leaving && !was_over && self.away_max > 0;
        let is_pushed_out = !is_kept && may_be_kept && !is_returning;
        let session = self.session(number)?;
        session.to_send.clear();
        session.away_since = Some(now);
        session.is_given_up = !is_kept && !is_pushed_out;
        if !is_kept {
            self.end(number)?;
        }
        self.take_work()?;
        let has_room = self.kept_count() <= self.away_max as usize;
        self.count_given_up();
        if is_pushed_out && has_room {
            return Err(format!("client {process} is not kept"));
        }
        match self.kept_count() <= self.away_max as usize {
            true => Ok(()),
            false => Err("more clients are kept than there is room for".to_owned()),
        }
    }

    /// A client connects again.
    pub(super) fn resume(
        &mut self,
        number: ClientNumber,
        (ticket, heard): (Ticket, u64),
        wire: &mut Wire,
    ) -> Checked {
        let found = self.server.find(ticket);
        if found.is_some_and(|it| it != number) {
            return Err(format!("{number:?} connects again as {found:?}"));
        }
        let Some(number) = found else {
            if self.readmit(ticket)?.is_some() {
                return self.take_work();
            }
            if self.is_kept(number) {
                return Err(format!("{number:?} connects again, and is unknown"));
            }
            self.shared.stats(|it| it.too_late += 1);
            let hello = ToClient::Hello { version: VERSION, name: NAME.to_owned() };
            let messages = [hello, ToClient::Fatal("unknown".to_owned())];
            let said = messages.map(|message| Said { number: None, message });
            wire.replies.extend(said);
            return Ok(());
        };
        let now = self.shared.now();
        if !self.event(|server, at| server.resume(number, heard, at))? {
            return Err(format!("{number:?} has nothing here"));
        }
        let session = self.session(number)?;
        (session.away_since, session.heard_at) = (None, now);
        session.said_count = usize::try_from(heard).unwrap_or(usize::MAX);
        if session.said_count > session.said.len() {
            return Err(format!("{number:?} has heard more than was said"));
        }
        self.take_work()
    }

    /// Gives up the client that is away for the longest time.
    pub(in super::super) fn give_up_oldest(&mut self) -> Checked {
        let count = self.kept_count();
        let is_any = self.event(|server, _| Ok::<_, String>(server.give_up_oldest()))?;
        self.count_given_up();
        match is_any == (count > 0) && self.kept_count() + usize::from(is_any) == count {
            true => self.take_work(),
            false => Err(format!("of {count} clients, {} are kept", self.kept_count())),
        }
    }

    /// A client is silent for too long. One that is over already may be named again.
    pub(super) fn on_silent(&mut self, number: ClientNumber) -> Checked {
        if self.server.is_over(number) {
            return Ok(());
        }
        let now = self.shared.now();
        let session = self.session(number)?;
        let silence = now.saturating_sub(session.heard_at);
        let away = session.away_since.map(|since| now.saturating_sub(since));
        session.is_given_up = away.is_some();
        let is_late = away.is_some_and(|it| it >= AWAY_MAX);
        self.shared.stats(|it| {
            it.given_up += u64::from(away.is_some());
            it.silences += u64::from(!is_late);
        });
        match silence >= SILENCE_MAX || is_late {
            true => Ok(()),
            false => Err(format!("{number:?} is given up after {silence:?}")),
        }
    }

    /// Finds the clients that the session has given up while they were away.
    fn count_given_up(&mut self) {
        let Self { sessions, server, shared, .. } = self;
        for (number, session) in sessions {
            let is_over = session.away_since.is_some() && server.is_over(*number);
            if is_over && !std::mem::replace(&mut session.is_given_up, true) {
                shared.trace(|| format!("server: client {} is given up", session.process));
                shared.stats(|it| it.given_up += 1);
                shared.check.borrow_mut().on_gone(session.process);
            }
        }
    }

    /// Forgets clients that were given up: nobody connects for them.
    pub(super) fn forget_given_up(&mut self) -> Checked {
        let given_up = self.sessions.iter().filter(|(_, session)| session.is_given_up);
        let given_up: Vec<_> = given_up.map(|(number, _)| *number).collect();
        for number in given_up {
            self.forget(number)?;
        }
        self.check_kept_time()
    }

    /// Nobody is kept for longer than was promised.
    fn check_kept_time(&self) -> Checked {
        let limit = AWAY_MAX + Duration::from_secs(3);
        let now = self.shared.now();
        let is_late = |since: Duration| now.saturating_sub(since) > limit;
        let is_late = |it: &Session| !it.is_given_up && it.away_since.is_some_and(is_late);
        match self.sessions.iter().find(|(_, session)| is_late(session)) {
            Some((number, _)) => Err(format!("{number:?} is kept for too long")),
            None => Ok(()),
        }
    }
}
