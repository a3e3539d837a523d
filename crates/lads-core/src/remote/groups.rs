//! The pointers that groups of clients share (MPI 4.0, section 14.4.4).

use std::collections::HashMap;

/// For each group of clients that have opened a file together: its pointer, and how many they are.
#[derive(Debug, Default)]
pub struct Groups(HashMap<[u8; 16], Group>);

#[derive(Debug, Default)]
struct Group {
    position: u64,
    count: u32,
}

impl Groups {
    /// A client of the group opens the file.
    pub fn join(&mut self, group: [u8; 16]) {
        self.0.entry(group).or_default().count += 1;
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

    /// Adds to the pointer. Returns what it was; `None` if that would not be a position.
    pub fn add(&mut self, group: &[u8; 16], bytes: i64) -> Option<u64> {
        let group = self.0.get_mut(group)?;
        let before = group.position;
        group.position =
            before.checked_add_signed(bytes).filter(|&it| i64::try_from(it).is_ok())?;
        Some(before)
    }

    /// Sets the pointer. Returns `None` if the value is no position.
    pub fn set(&mut self, group: &[u8; 16], position: u64) -> Option<()> {
        i64::try_from(position).ok()?;
        self.0.get_mut(group)?.position = position;
        Some(())
    }
}

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
        assert_eq!((groups.add(&one, 5), groups.add(&one, 7)), (Some(0), Some(5)));
        assert_eq!(groups.add(&other, 1), Some(0));
        groups.set(&one, 3).unwrap();
        groups.leave(&one);
        assert_eq!(groups.add(&one, 0), Some(3));
        groups.leave(&one);
        assert_eq!(groups.add(&one, 0), None);
    }

    #[test]
    fn a_pointer_does_not_leave_the_file() {
        let mut groups = Groups::default();
        groups.join([1; 16]);
        assert_eq!(groups.add(&[1; 16], -1), None);
        groups.set(&[1; 16], i64::MAX as u64).unwrap();
        assert_eq!(groups.set(&[1; 16], i64::MAX as u64 + 1), None);
        assert_eq!(groups.set(&[1; 16], u64::MAX), None);
        assert_eq!(groups.add(&[1; 16], 1), None);
        assert_eq!(groups.add(&[1; 16], -1), Some(i64::MAX as u64));
    }
}
