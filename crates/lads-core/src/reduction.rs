//! Metadata that an entry has at the source and does not get at the sink: all kinds.
//!
//! An entry whose metadata is reduced counts as moved, because its data is complete. Each kind is
//! counted, and reported once at the end of the transfer with the number of entries.
//! `docs/metadata.md` lists the kinds, and the metadata that is never moved.

/// A kind of metadata that entries do not get.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// Set-id bits of files, capabilities and `trusted.` attributes, which are only kept with
    /// `--privileges`.
    Privileges,
    /// Owner or group, which the sink's user may not set because it is not root.
    Owner,
    /// Owner or group, which root may not set on this file system.
    OwnerRefused,
    /// Set-id bits of a file whose owner or group could not be set: with another owner, they would
    /// give the rights of that owner.
    SetIdBits,
    /// Permissions that the file system of the sink does not store.
    Permissions,
    /// Extended attributes that the file system of the sink does not store.
    Attributes,
    /// ACLs that the file system of the sink does not store. The group then gets the rights of the
    /// ACL's `group::` entry.
    Acls,
    /// Extended attributes and ACLs that are too large for the file system of the sink.
    LargeAttributes,
    /// Extended attributes that the sink's user may not set.
    AttributesRefused,
    /// Extended attributes that the source's user may not read.
    AttributesUnreadable,
    /// Times of change outside the range of the sink's file system, or that it does not store.
    Times,
}

impl Reduction {
    /// All kinds, in the order in which they are reported.
    pub const ALL: [Self; 11] = [
        Self::Acls,
        Self::Attributes,
        Self::LargeAttributes,
        Self::AttributesRefused,
        Self::AttributesUnreadable,
        Self::Permissions,
        Self::Times,
        Self::OwnerRefused,
        Self::SetIdBits,
        Self::Owner,
        Self::Privileges,
    ];

    /// Reports whether the transfer is incomplete because of it. It is not if the user has to ask
    /// for this metadata and did not, or, as with rsync, if only root can set it.
    #[must_use]
    pub fn is_loss(self) -> bool {
        !matches!(self, Self::Privileges | Self::Owner)
    }

    fn bit(self) -> u16 {
        1 << (self as u16)
    }
}

/// The kinds of metadata that one entry does not get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reductions {
    bits: u16,
}

impl Reductions {
    /// Adds a kind.
    pub fn insert(&mut self, kind: Reduction) {
        self.bits |= kind.bit();
    }

    /// Adds all kinds of another set.
    pub fn extend(&mut self, others: Self) {
        self.bits |= others.bits;
    }

    /// Returns whether the set has this kind.
    #[must_use]
    pub fn contains(self, kind: Reduction) -> bool {
        self.bits & kind.bit() != 0
    }

    /// Returns whether the entry gets all of its metadata.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.bits == 0
    }
}

/// The number of entries with reduced metadata, for each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReducedCounts {
    /// Entries with [`Reduction::Privileges`].
    pub privileges: u64,
    /// Entries with [`Reduction::Owner`].
    pub owner: u64,
    /// Entries with [`Reduction::OwnerRefused`].
    pub owner_refused: u64,
    /// Entries with [`Reduction::SetIdBits`].
    pub set_id_bits: u64,
    /// Entries with [`Reduction::Permissions`].
    pub permissions: u64,
    /// Entries with [`Reduction::Attributes`].
    pub attributes: u64,
    /// Entries with [`Reduction::Acls`].
    pub acls: u64,
    /// Entries with [`Reduction::LargeAttributes`].
    pub large_attributes: u64,
    /// Entries with [`Reduction::AttributesRefused`].
    pub attributes_refused: u64,
    /// Entries with [`Reduction::AttributesUnreadable`].
    pub attributes_unreadable: u64,
    /// Entries with [`Reduction::Times`].
    pub times: u64,
}

impl ReducedCounts {
    /// Counts an entry.
    pub fn add(&mut self, reductions: Reductions) {
        for kind in Reduction::ALL.into_iter().filter(|kind| reductions.contains(*kind)) {
            *self.count_mut(kind) += 1;
        }
    }

    /// Returns the number of entries that do not get this kind of metadata.
    #[must_use]
    pub fn of(mut self, kind: Reduction) -> u64 {
        *self.count_mut(kind)
    }

    /// Returns the kinds that were counted, each with the number of entries at both ends.
    pub fn of_both(self, other: Self) -> impl Iterator<Item = (Reduction, u64)> {
        let of_both = move |kind| (kind, self.of(kind).saturating_add(other.of(kind)));
        Reduction::ALL.into_iter().map(of_both).filter(|(_, count)| *count > 0)
    }

    fn count_mut(&mut self, kind: Reduction) -> &mut u64 {
        match kind {
            Reduction::Privileges => &mut self.privileges,
            Reduction::Owner => &mut self.owner,
            Reduction::OwnerRefused => &mut self.owner_refused,
            Reduction::SetIdBits => &mut self.set_id_bits,
            Reduction::Permissions => &mut self.permissions,
            Reduction::Attributes => &mut self.attributes,
            Reduction::Acls => &mut self.acls,
            Reduction::LargeAttributes => &mut self.large_attributes,
            Reduction::AttributesRefused => &mut self.attributes_refused,
            Reduction::AttributesUnreadable => &mut self.attributes_unreadable,
            Reduction::Times => &mut self.times,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_counts_once_for_each_kind() {
        let mut counts = ReducedCounts::default();
        for kind in Reduction::ALL {
            let mut reductions = Reductions::default();
            assert!(reductions.is_empty());
            reductions.insert(kind);
            reductions.insert(kind);
            counts.add(reductions);
            let has = |other| reductions.contains(other) == (other == kind);
            assert!(Reduction::ALL.into_iter().all(has), "{kind:?}");
        }
        assert!(Reduction::ALL.into_iter().all(|kind| counts.of(kind) == 1), "{counts:?}");
        let both: Vec<_> = counts.of_both(counts).collect();
        assert_eq!(both, Reduction::ALL.map(|kind| (kind, 2)));
        assert_eq!(ReducedCounts::default().of_both(ReducedCounts::default()).count(), 0);
    }
}
