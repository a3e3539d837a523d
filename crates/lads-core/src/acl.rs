//! POSIX ACLs in the form in which Linux passes them in extended attributes.
//!
//! ```text
//! version (4 bytes)   { tag (2)  permissions (2)  id (4) } for each entry; all little endian
//! ```

/// The only version of this form.
const VERSION: u32 = 2;
const ENTRY_BYTES: usize = 8;
/// The tag of the `user::` entry: the rights of the owner.
const USER_OBJ: u16 = 1;
/// The tag of the `group::` entry: the rights of the owning group.
const GROUP_OBJ: u16 = 4;
/// The tag of the mask: the most rights that named users and all groups have.
const MASK: u16 = 0x10;
/// The tag of the `other::` entry.
const OTHER: u16 = 0x20;
/// The group bits of a mode.
const GROUP_BITS: u32 = 0o070;

/// Returns the mode that a file with this mode and ACL gets if the ACL is lost.
///
/// The group bits of a file with an ACL are the ACL's mask, which is often wider than the rights of
/// the owning group. Without the ACL they would be the rights of that group, so they are limited to
/// its `group::` entry. If the ACL cannot be read, the group gets no rights.
#[must_use]
pub fn mode_without(mode: u32, acl: &[u8]) -> u32 {
    let group = entry(acl, GROUP_OBJ).unwrap_or(0) << 3;
    mode & (!GROUP_BITS | group)
}

/// Returns the permission bits of a mode that an ACL stands for: those of `user::`, of the mask (of
/// `group::` without a mask), and of `other::`. `None` if the ACL cannot be read.
#[must_use]
pub fn permissions(acl: &[u8]) -> Option<u32> {
    let group = entry(acl, MASK).or_else(|| entry(acl, GROUP_OBJ))?;
    Some(entry(acl, USER_OBJ)? << 6 | group << 3 | entry(acl, OTHER)?)
}

/// Returns the permissions of the first entry with this tag.
fn entry(acl: &[u8], tag: u16) -> Option<u32> {
    let (version, entries) = acl.split_first_chunk()?;
    if u32::from_le_bytes(*version) != VERSION {
        return None;
    }
    let (entries, rest) = entries.as_chunks::<ENTRY_BYTES>();
    let of_tag = |entry: &[u8; ENTRY_BYTES]| {
        let [tag_low, tag_high, low, high, ..] = *entry;
        let is_found = u16::from_le_bytes([tag_low, tag_high]) == tag;
        is_found.then(|| u32::from(u16::from_le_bytes([low, high])) & 0o7)
    };
    entries.iter().find_map(of_tag).filter(|_| rest.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(entries: &[(u16, u16)]) -> Vec<u8> {
        let entry = |(tag, permissions): &(u16, u16)| {
            [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &u32::MAX.to_le_bytes()].concat()
        };
        [2_u32.to_le_bytes().to_vec(), entries.iter().flat_map(entry).collect()].concat()
    }

    #[test]
    fn the_group_gets_its_own_rights_and_not_those_of_the_mask() {
        // user::rw-, user:1000:rw-, group::, mask::rw-, other::r--
        let with = |group| acl(&[(1, 6), (2, 6), (4, group), (0x10, 6), (0x20, 4)]);
        assert_eq!(mode_without(0o664, &with(0)), 0o604);
        assert_eq!(mode_without(0o664, &with(4)), 0o644);
        // A right that the mask takes away is not given back.
        assert_eq!(mode_without(0o2664, &with(7)), 0o2664);
    }

    #[test]
    fn the_mask_stands_for_the_group_if_there_is_one() {
        // user::rwx, user:1000:rwx, group::r-x, mask::rw-, other::--x
        let with_mask = acl(&[(1, 7), (2, 7), (4, 5), (0x10, 6), (0x20, 1)]);
        assert_eq!(permissions(&with_mask), Some(0o761));
        assert_eq!(permissions(&acl(&[(1, 6), (4, 5), (0x20, 0)])), Some(0o650));
        for length in 0..with_mask.len() {
            assert_eq!(permissions(&with_mask[..length]), None, "{length}");
        }
    }

    #[test]
    fn an_acl_that_cannot_be_read_gives_the_group_no_rights() {
        let whole = acl(&[(1, 6), (4, 6), (0x20, 4)]);
        assert_eq!(mode_without(0o664, &whole), 0o664);
        for length in (0..whole.len()).filter(|length| *length != 20) {
            assert_eq!(mode_without(0o664, &whole[..length]), 0o604, "{length}");
        }
        let mut other = whole;
        other[0] = 3;
        assert_eq!(mode_without(0o664, &other), 0o604);
    }
}
