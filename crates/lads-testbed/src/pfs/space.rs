//! The state of the storage targets: what each may be used for, and how much room it has.
//!
//! This is bookkeeping only; the bytes themselves are elsewhere.

use super::service::Share;
use clap::ValueEnum;
use rustix::io::Errno;
use serde::Serialize;

/// What an OST can be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum TargetState {
    /// Every use.
    Up,
    /// Every use, but new files only if no other OST is left: its disks are being rebuilt.
    Degraded,
    /// Every use that needs no more room.
    Full,
    /// No use: every request fails.
    Down,
    /// Every use except new files.
    NoCreate,
}

/// The room on all storage targets.
pub(super) struct Space {
    targets: Vec<Target>,
    /// The OST at which the search for the place of the next file begins.
    turn: usize,
    objects_ever: u64,
}

/// The room on one OST.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// What it can be used for.
    pub(super) state: TargetState,
    /// How many bytes it can hold.
    pub(super) capacity: u64,
    /// How many bytes it holds.
    pub(super) used: u64,
    /// The number of objects; each belongs to one file.
    pub(super) objects: u64,
}

impl Space {
    /// Makes empty OSTs.
    pub(super) fn new(ost_count: usize, capacity: u64) -> Self {
        let target = Target { state: TargetState::Up, capacity, used: 0, objects: 0 };
        Self { targets: vec![target; ost_count], turn: 0, objects_ever: 0x1000 }
    }

    /// Returns the OSTs in order.
    pub(super) fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// Sets what an OST can be used for.
    pub(super) fn set_state(&mut self, ost: usize, state: TargetState) {
        self.targets[ost].state = state;
    }

    /// Sets how many bytes an OST can hold. If it holds more already, it just takes no more.
    pub(super) fn set_capacity(&mut self, ost: usize, capacity: u64) {
        self.targets[ost].capacity = capacity;
    }

    /// Takes room on all these OSTs, or on none if one has too little.
    ///
    /// # Errors
    /// `ENOSPC`.
    pub(super) fn take(&mut self, shares: &[Share]) -> Result<(), Errno> {
        for (done, (ost, bytes)) in shares.iter().enumerate() {
            if !self.targets[*ost].take(*bytes) {
                self.give_back(&shares[..done]);
                return Err(Errno::NOSPC);
            }
        }
        Ok(())
    }

    /// Gives room back.
    pub(super) fn give_back(&mut self, shares: &[Share]) {
        for (ost, bytes) in shares {
            self.targets[*ost].used -= bytes;
        }
    }

    /// Checks that all these OSTs answer.
    ///
    /// # Errors
    /// `EIO` if one does not answer.
    pub(super) fn check_up(&self, shares: &[Share]) -> Result<(), Errno> {
        let is_down = |(ost, _): &Share| self.targets[*ost].state == TargetState::Down;
        if shares.iter().any(is_down) { Err(Errno::IO) } else { Ok(()) }
    }

    /// Makes an object on an OST; returns its number.
    pub(super) fn make_object(&mut self, ost: usize) -> u64 {
        self.targets[ost].objects += 1;
        self.objects_ever += 1;
        self.objects_ever
    }

    /// Removes an object.
    pub(super) fn remove_object(&mut self, ost: usize) {
        self.targets[ost].objects -= 1;
    }

    /// Returns the next `count` OSTs in turn that take new files, or fewer if there are not as
    /// many; degraded ones come last. The search begins at `first` if given, else where the last
    /// one ended.
    pub(super) fn next_usable(&mut self, count: usize, first: Option<usize>) -> Vec<usize> {
        let ost_count = self.targets.len();
        let begin = first.unwrap_or(self.turn);
        let in_turn = (0..ost_count).map(|step| (begin + step) % ost_count);
        let states: Vec<TargetState> = self.targets.iter().map(Target::usual_state).collect();
        let is_up = |ost: &usize| states[*ost] == TargetState::Up;
        let is_degraded = |ost: &usize| states[*ost] == TargetState::Degraded;
        let usable = in_turn.clone().filter(is_up).chain(in_turn.filter(is_degraded));
        let usable: Vec<usize> = usable.take(count).collect();
        if let (None, Some(last)) = (first, usable.last()) {
            self.turn = last + 1;
        }
        usable
    }

    /// Checks that an OST that was asked for takes a new file.
    ///
    /// # Errors
    /// As Lustre's: `EINVAL` if there is no such OST, `EREMOTEIO` if it is down, `ENOSPC` if it is
    /// full, `ENOBUFS` if it takes no new files.
    pub(super) fn check_takes_files(&self, ost: usize) -> Result<(), Errno> {
        match self.targets.get(ost).ok_or(Errno::INVAL)?.usual_state() {
            TargetState::Up | TargetState::Degraded => Ok(()),
            TargetState::Full => Err(Errno::NOSPC),
            TargetState::Down => Err(Errno::REMOTEIO),
            TargetState::NoCreate => Err(Errno::NOBUFS),
        }
    }
}

impl Target {
    /// Returns the number of bytes that it can still take.
    pub(super) fn free(&self) -> u64 {
        match self.state {
            TargetState::Full => 0,
            _ => self.capacity.saturating_sub(self.used),
        }
    }

    /// Returns the state that was set, or full if there is no room.
    pub(super) fn usual_state(&self) -> TargetState {
        match self.state {
            TargetState::Up | TargetState::Degraded if self.free() == 0 => TargetState::Full,
            state => state,
        }
    }

    fn take(&mut self, bytes: u64) -> bool {
        let fits = bytes <= self.free();
        if fits {
            self.used += bytes;
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_go_round_all_that_take_them() {
        let mut space = Space::new(4, 100);
        assert_eq!(space.next_usable(3, None), [0, 1, 2]);
        assert_eq!(space.next_usable(3, None), [3, 0, 1]);
        assert_eq!(space.next_usable(9, None), [2, 3, 0, 1]);
        assert_eq!(space.next_usable(2, Some(3)), [3, 0]);
    }

    #[test]
    fn files_avoid_what_is_down_or_full_and_take_the_degraded_last() {
        let mut space = Space::new(6, 100);
        space.set_state(0, TargetState::Degraded);
        space.set_state(1, TargetState::Down);
        space.set_state(2, TargetState::NoCreate);
        space.take(&[(3, 100)]).unwrap();
        assert_eq!(space.next_usable(2, None), [4, 5]);
        assert_eq!(space.next_usable(6, None), [4, 5, 0]);
        let checks: Vec<_> = (0..7).map(|ost| space.check_takes_files(ost)).collect();
        let refused = [Errno::REMOTEIO, Errno::NOBUFS, Errno::NOSPC, Errno::INVAL].map(Err);
        assert_eq!(
            checks,
            [Ok(()), refused[0], refused[1], refused[2], Ok(()), Ok(()), refused[3]]
        );
    }

    #[test]
    fn room_is_taken_everywhere_or_nowhere() {
        let mut space = Space::new(2, 100);
        assert_eq!(space.take(&[(0, 60), (1, 101)]), Err(Errno::NOSPC));
        assert_eq!(space.take(&[(0, 100), (1, 40)]), Ok(()));
        space.give_back(&[(0, 50)]);
        assert_eq!(space.targets()[0].free(), 50);
    }
}
