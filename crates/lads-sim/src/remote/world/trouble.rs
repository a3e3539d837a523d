//! What goes wrong: connections that break, processes that die, a server that crashes. And how it
//! goes on.

use super::{Member, State, TIMEOUT, World};
use crate::findings::Checked;
use crate::remote::check::Compared;
use crate::remote::server_end::ServerEnd;
use lads_core::remote::locks::ClientNumber;
use lads_core::remote::policy::AWAY_TIMEOUTS;
use std::time::Duration;

/// A client looks once in a second, and time passes in steps.
const NOTICED: Duration = Duration::from_secs(3);

impl World {
    pub(super) fn trouble(&mut self, index: usize) -> Checked {
        if let Some(doomed) = self.shared.doomed.take()
            && self.members[doomed].state != State::Over
        {
            self.kill(doomed);
        }
        let (cut, breaks, death) = (self.weather.cut, self.weather.breaks, self.weather.death);
        let (crash, freeze) = (self.weather.crash, self.weather.freeze);
        let restarts = &self.weather.restarts;
        let is_expecting = self.server.is_expecting();
        let restart = if is_expecting { restarts.rate_in_return } else { restarts.rate };
        let is_up = self.members[index].state != State::Over;
        let mut hits = |rate: u32| self.rng.below(10_000) < u64::from(rate);
        if is_up && hits(cut) {
            self.shared.stats(|it| it.cut_connections += 1);
            self.members[index].link.lose("it is cut");
            self.on_loss(index)?;
        } else if is_up && hits(breaks) {
            self.break_off(index)?;
        } else if is_up && hits(death) {
            self.kill(index);
        } else if hits(crash) {
            self.crash()?;
        } else if restart > 0 && hits(restart) {
            self.restart()?;
        } else if is_up && hits(freeze) {
            self.freeze(index);
        }
        Ok(())
    }

    fn freeze(&mut self, index: usize) {
        self.shared.stats(|it| it.freezes += 1);
        self.shared.trace(|| format!("client {index} is cut off"));
        let now = self.shared.now();
        let member = &mut self.members[index];
        if !std::mem::replace(&mut member.is_frozen, true) {
            member.frozen_at = now;
        }
    }

    /// A connection breaks.
    fn break_off(&mut self, index: usize) -> Checked {
        if self.members[index].link.is_down() {
            return Ok(());
        }
        self.members[index].link.break_off("it is broken");
        self.on_broken(index);
        self.on_loss(index)
    }

    /// The connection of a client has just been broken: a part of what is in flight arrives, and
    /// the client connects again at once or later. One that was cut off may stay so.
    pub(super) fn on_broken(&mut self, index: usize) {
        self.truncate(index);
        let rng = &mut self.rng;
        let seconds = match rng.below(12) {
            0..9 => 0,
            9 => rng.below(30),
            10 => rng.between(61, 100),
            _ => rng.between(100, 140),
        };
        let is_thawed = rng.hits(500);
        let member = &mut self.members[index];
        member.back_at = self.shared.now() + Duration::from_secs(seconds);
        member.is_frozen &= !is_thawed;
    }

    /// A part of what is in flight does not arrive.
    pub(super) fn truncate(&mut self, index: usize) {
        let link = &self.members[index].link;
        let mut wire = link.wire.borrow_mut();
        let (messages, frames) = (wire.messages.len(), wire.frames.len());
        wire.messages.truncate(self.rng.index(messages + 1));
        wire.frames.truncate(self.rng.index(frames + 1));
        drop(wire);
        link.forget_answers();
    }

    /// A client connects again, or tries to.
    pub(super) fn reconnect(&mut self, index: usize) -> Checked<bool> {
        let now = self.shared.now();
        let member = &self.members[index];
        let (is_troubled, link) = (self.shared.is_troubled(), &member.link);
        if member.state == State::Over || member.is_frozen || !link.is_down() {
            return Ok(false);
        }
        if is_troubled && (now < member.back_at || self.rng.hits(200)) {
            link.event(|client, _| client.on_not_connected("refused".to_owned()));
            return Ok(false);
        }
        self.end_at_server(index)?;
        self.members[index].link.on_connected()?;
        Ok(true)
    }

    /// Whether nothing happens with a client until some time has passed.
    pub(super) fn is_silent(&self, index: usize) -> bool {
        let member = &self.members[index];
        if member.state == State::Over {
            let is_kept = self.server.is_kept(member.number) && !self.is_impatient;
            return is_kept || member.is_frozen && !member.is_noticed;
        }
        member.is_frozen || member.link.is_down() && self.shared.now() < member.back_at
    }

    /// A client from whose connection nothing arrives notices that, and gives it up.
    pub(super) fn check_silence(&self, index: usize) -> Checked {
        let member = &self.members[index];
        let silence = self.shared.now().saturating_sub(member.frozen_at);
        if !member.is_frozen || member.link.is_lost() {
            return Ok(());
        }
        let is_noticed = silence <= TIMEOUT + NOTICED || member.link.is_away();
        match is_noticed && silence <= TIMEOUT * (1 + AWAY_TIMEOUTS) + NOTICED * 2 {
            true => Ok(()),
            false => Err(format!("client {index} does not notice that nothing arrives")),
        }
    }

    fn kill(&mut self, index: usize) {
        self.shared.stats(|it| it.deaths += 1);
        self.shared.trace(|| format!("process {index} is killed"));
        let member = &mut self.members[index];
        member.threads.clear();
        member.disks.clear();
        member.process.clear();
        (member.state, member.is_dead) = (State::Over, true);
        self.shared.inboxes.borrow_mut().remove(&index);
        self.shared.check.borrow_mut().on_gone(index);
        self.truncate(index);
    }

    /// The server notices that a client has no connection any more, or forgets it.
    pub(super) fn notice(&mut self, index: usize) -> Checked<bool> {
        let is_troubled = self.shared.is_troubled();
        let member = &mut self.members[index];
        if member.is_noticed {
            if self.is_impatient && self.server.is_kept(member.number) && self.rng.hits(100) {
                self.server.give_up_oldest()?;
            }
            self.server.forget(self.members[index].number)?;
            return Ok(false);
        }
        let is_over = member.state == State::Over;
        let is_saying_bye = member.has_said_bye && !member.link.wire.borrow().messages.is_empty();
        if member.is_frozen && is_troubled || is_saying_bye || !(is_over || member.link.is_down()) {
            return Ok(false);
        }
        if self.server.is_kept(member.number) && !is_over {
            return Ok(false);
        }
        self.end_at_server(index)?;
        self.members[index].is_noticed = is_over;
        Ok(true)
    }

    /// The connection of a client ends at the server; of a frame, a part may have arrived.
    fn end_at_server(&mut self, index: usize) -> Checked {
        let Member { link, number, .. } = &self.members[index];
        let frame = link.wire.borrow_mut().frames.pop_front();
        let is_there = !self.server.is_kept(*number);
        if let Some(frame) = frame.filter(|_| is_there && self.rng.hits(300)) {
            self.server.receive(*number, frame, false)?;
        }
        *link.wire.borrow_mut() = Default::default();
        self.server.break_off(*number)
    }

    /// The host of the server crashes, and another server begins.
    fn crash(&mut self) -> Checked {
        self.shared.stats(|it| it.crashes += 1);
        self.shared.trace(|| "the server crashes".to_owned());
        for _ in 0..self.rng.below(4) {
            self.server.store(&mut self.rng)?;
        }
        let mut files = self.server.files.clone();
        files.iter_mut().for_each(|file| file.crash(&mut self.rng));
        let failing = self.server.failing_per_mille;
        let rooms = (self.frames_each, self.away_max);
        self.server = ServerEnd::new(self.shared.clone(), files, rooms);
        self.server.failing_per_mille = failing;
        self.shared.check.borrow_mut().on_crash();
        for index in 0..self.members.len() {
            self.members[index].number = ClientNumber(u64::MAX);
            if self.members[index].state == State::Over {
                self.members[index].is_noticed = true;
            } else {
                self.on_crash(index)?;
            }
        }
        self.shared.check.borrow().check_files(&self.server.files, Compared::All)
    }

    /// The server is killed, and another one begins on the same host.
    fn restart(&mut self) -> Checked {
        let is_again = self.server.is_expecting();
        self.shared.stats(|it| {
            it.restarts += 1;
            it.restarts_in_return += u64::from(is_again);
        });
        self.shared.trace(|| "the server is killed and started again".to_owned());
        for _ in 0..self.rng.below(4) {
            self.server.store(&mut self.rng)?;
        }
        self.server.restart();
        for index in 0..self.members.len() {
            self.members[index].number = ClientNumber(u64::MAX);
            if self.members[index].state == State::Over {
                self.members[index].is_noticed = true;
                continue;
            }
            let link = &self.members[index].link;
            if !link.is_down() && !link.is_lost() {
                link.break_off("the server is killed");
                self.on_broken(index);
            }
            let link = &self.members[index].link;
            *link.wire.borrow_mut() = Default::default();
            if link.is_lost() {
                self.shared.check.borrow_mut().on_gone(index);
                self.members[index].is_noticed = true;
            }
            self.on_loss(index)?;
        }
        Ok(())
    }

    /// A client finds that its server crashed: now, or when it connects again and is unknown.
    fn on_crash(&mut self, index: usize) -> Checked {
        self.shared.check.borrow_mut().on_gone(index);
        let link = &self.members[index].link;
        match self.finds_crashes {
            true if link.is_down() => {}
            true => link.break_off("the server crashed"),
            false => link.lose("the server crashed"),
        }
        *link.wire.borrow_mut() = Default::default();
        self.members[index].is_noticed = self.members[index].link.is_lost();
        self.on_loss(index)
    }
}
