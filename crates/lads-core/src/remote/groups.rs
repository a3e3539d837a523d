//! The pointers that groups of clients share (MPI 4.0, section 14.4.4).

use super::message::Failure;
use crate::issue::Operation;
use std::collections::HashMap;

/// For each group of clients that have opened a file together: its pointer, and how many they are.
#[derive(Debug, Default)]
pub struct Groups(HashMap<[u8; 16], Group>);

#[derive(Debug)]
struct Group {
    /// `None`: it is not known, because the server was started again.
    position: Option<u64>,
    count: u32,
}

impl Groups {
    /// A client of the group opens the file.
    pub fn join(&mut self, group: [u8; 16]) {
        self.join_at(group, Some(0));
    }

    /// A client of the group opens the file that it had open before the server was started again.
    pub fn join_again(&mut self, group: [u8; 16]) {
        self.join_at(group, None);
    }

    fn join_at(&mut self, group: [u8; 16], position: Option<u64>) {
        self.0.entry(group).or_insert(Group { position, count: 0 }).count += 1;
    }

    /// A client of the group closes the file.
    pub fn leave(&mut self, group: &[u8; 16]) {
        let is_last = self.0.get_mut(group).is_some_and(|it| {
            it.count -= 1;
            it.count == 0
        });
        if is_last {
            self.0.remove(group);
        }
    }

    /// Adds to the pointer. Returns what it was.
    ///
    /// # Errors
    /// If that would not be a position, or the pointer is not known.
    pub fn add(&mut self, group: &[u8; 16], bytes: i64) -> Result<u64, Failure> {
        let group = self.0.get_mut(group).ok_or(INVALID)?;
        let before = group.position.ok_or(NOT_KNOWN)?;
        let after = before.checked_add_signed(bytes).filter(|&it| i64::try_from(it).is_ok());
        group.position = Some(after.ok_or(INVALID)?);
        Ok(before)
    }

    /// Sets the pointer.
    ///
    /// # Errors
    /// If the value is no position.
    pub fn set(&mut self, group: &[u8; 16], position: u64) -> Result<(), Failure> {
        i64::try_from(position).map_err(|_| INVALID)?;
        self.0.get_mut(group).ok_or(INVALID)?.position = Some(position);
        Ok(())
    }
}

/// A pointer that is no position: `EINVAL`.
const INVALID: Failure = Failure { operation: Operation::Examine, errno: 22 };

/// A pointer that is not known any more: `ESTALE`.
const NOT_KNOWN: Failure = Failure { operation: Operation::Examine, errno: 116 };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_lives_as_long_as_its_group() {
        let mut groups = Groups::default();
        let (one, other) = ([1; 16], [2; 16]);
        groups.join(one);
        groups.join(one);
        groups.join(other);
        assert_eq!((groups.add(&one, 5), groups.add(&one, 7)), (Ok(0), Ok(5)));
        assert_eq!(groups.add(&other, 1), Ok(0));
        groups.set(&one, 3).unwrap();
        groups.leave(&one);
        assert_eq!(groups.add(&one, 0), Ok(3));
        groups.leave(&one);
        assert_eq!(groups.add(&one, 0), Err(INVALID));
    }

    /// Another client of the group may have moved it.
    #[test]
    fn after_a_restart_a_pointer_is_not_known_until_it_is_set() {
        let mut groups = Groups::default();
        let group = [1; 16];
        groups.join_again(group);
        groups.join(group);
        assert_eq!(groups.add(&group, 5), Err(NOT_KNOWN));
        groups.set(&group, 3).unwrap();
        assert_eq!(groups.add(&group, 5), Ok(3));
    }

    #[test]
    fn a_pointer_does_not_leave_the_file() {
        let mut groups = Groups::default();
        groups.join([1; 16]);
        assert_eq!(groups.add(&[1; 16], -1), Err(INVALID));
        groups.set(&[1; 16], i64::MAX as u64).unwrap();
        assert_eq!(groups.set(&[1; 16], i64::MAX as u64 + 1), Err(INVALID));
        assert_eq!(groups.set(&[1; 16], u64::MAX), Err(INVALID));
        assert_eq!(groups.add(&[1; 16], 1), Err(INVALID));
        assert_eq!(groups.add(&[1; 16], -1), Ok(i64::MAX as u64));
    }
}
