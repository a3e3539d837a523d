//! Where a file lies on BeeGFS, as its client answers.
//!
//! The client answers calls on an open file: how it is striped ([`Striping`]), and for each of its
//! stripes which target holds it ([`Stripe`]). Which targets there are, and how they are, stands in
//! a file of the kernel's ([`parse_targets`]). The bytes are those of `beegfs_client.h` of
//! releases 7 and 8, numbers in the order of the machine.
//!
//! The byte at offset `x` is on the target `x / chunk size % target count` (the client module's
//! `Raid0Pattern.c` and `BuddyMirrorPattern.c`). A mirrored file lies on pairs of targets; the
//! first of a pair is read and written, and passes on what is written to the second.

use crate::layout::{Layout, STRIPE_COUNT_MAX};
use crate::placement::OstState;
use crate::units::OstId;

/// Bytes of an answer about a directory.
pub const ENTRY_BYTES: usize = 68;

/// The smallest size of a chunk, in bytes; all are powers of two.
pub const CHUNK_BYTES_MIN: u32 = 64 << 10;

/// Patterns of stripes in which each byte is on the target that the rule says.
const PATTERN_STRIPED: u32 = 1;
const PATTERN_MIRRORED: u32 = 3;

/// Longest name of a directory inside BeeGFS, with the zero behind it.
const ENTRY_ID_BYTES: usize = 27;
/// The metadata of a directory is mirrored, and what owns it is a group.
const FLAG_MIRRORED: u32 = 2;

/// How a file is striped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Striping {
    /// Which rule says where a byte is.
    pub pattern: u32,
    /// Bytes before the next target takes over.
    pub chunk_size: u32,
    /// How many stripes there are.
    pub target_count: u16,
}

/// What holds one of the stripes of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stripe {
    /// The target, or the first of the pair.
    pub target: u32,
    /// What people call the server that holds it; may be empty.
    pub server: String,
}

/// What must be said of a directory to make a file in it on targets of one's choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The metadata server, or group of them, that holds it.
    pub owner: u32,
    /// The name inside BeeGFS of the directory that it is in; no zeros.
    pub parent_id: Vec<u8>,
    /// Its own; no zeros.
    pub id: Vec<u8>,
    /// Whether its metadata is mirrored.
    pub is_mirrored: bool,
}

/// A target as the client lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its number, never zero.
    pub id: u16,
    /// The server that holds it.
    pub server: String,
    /// What it can be used for.
    pub state: OstState,
}

impl Striping {
    /// Reads an answer; `None` if it is too short, or tells of more stripes than any file has: each
    /// of them must be asked for.
    #[must_use]
    pub fn parse(answer: &[u8]) -> Option<Self> {
        let (pattern, chunk_size) = (number(answer, 0)?, number(answer, 4)?);
        let target_count = u16::from_ne_bytes(*answer.get(8..)?.first_chunk()?);
        let is_sound = usize::from(target_count) <= STRIPE_COUNT_MAX;
        is_sound.then_some(Self { pattern, chunk_size, target_count })
    }

    /// Returns where each byte lies; `None` if its pattern is not known, or there are not as many
    /// targets as stripes.
    #[must_use]
    pub fn layout(&self, targets: Vec<OstId>) -> Option<Layout> {
        let is_known = matches!(self.pattern, PATTERN_STRIPED | PATTERN_MIRRORED);
        let is_whole = targets.len() == usize::from(self.target_count);
        Layout::striped(self.chunk_size.into(), targets).filter(|_| is_known && is_whole)
    }
}

impl Stripe {
    /// Reads an answer; `None` if it is too short.
    #[must_use]
    pub fn parse(answer: &[u8]) -> Option<Self> {
        let (target_or_group, first_of_pair) = (number(answer, 4)?, number(answer, 8)?);
        let target = if first_of_pair == 0 { target_or_group } else { first_of_pair };
        let server = until_zero(answer.get(24..280)?);
        Some(Self { target, server: String::from_utf8_lossy(server).into_owned() })
    }
}

impl Entry {
    /// Reads an answer; `None` if it is too short or says nothing.
    #[must_use]
    pub fn parse(answer: &[u8]) -> Option<Self> {
        let name = |at: usize| Some(until_zero(answer.get(at..at + ENTRY_ID_BYTES)?).to_vec());
        let (owner, flags) = (number(answer, 0)?, number(answer, 64)?);
        let (parent_id, id) = (name(4)?, name(4 + ENTRY_ID_BYTES)?);
        let is_mirrored = flags & FLAG_MIRRORED != 0;
        (!id.is_empty()).then_some(Self { owner, parent_id, id, is_mirrored })
    }
}

/// Reads the list of targets, sorted by number; lines that are none are passed over. A line is
/// `[Target ID: 101] @ storage1 [ID: 1]: Online / Good`.
#[must_use]
pub fn parse_targets(list: &str) -> Vec<Target> {
    let mut targets: Vec<Target> = list.lines().filter_map(parse_target).collect();
    targets.sort_by_key(|target| target.id);
    targets.dedup_by_key(|target| target.id);
    targets
}

fn parse_target(line: &str) -> Option<Target> {
    let (id, rest) = line.trim().strip_prefix("[Target ID: ")?.split_once("] @ ")?;
    let (server, states) = rest.rsplit_once(": ")?;
    let (reachability, consistency) = states.split_once(" / ")?;
    let state = match (reachability, consistency) {
        ("Online", "Good") => OstState::Up,
        // Its data is being brought up to date; that of its pair serves meanwhile.
        ("Online", "Needs-resync") => OstState::Degraded,
        _ => OstState::Down,
    };
    let id = id.parse().ok().filter(|&id| id != 0)?;
    Some(Target { id, server: server.to_owned(), state })
}

/// The size of chunks that comes nearest to a wish, in bytes.
#[must_use]
pub fn chunk_size(wished: u64) -> u32 {
    let largest = 1 << 31;
    let wished = u32::try_from(wished).unwrap_or(largest).clamp(CHUNK_BYTES_MIN, largest);
    wished.next_power_of_two()
}

fn number(answer: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*answer.get(at..)?.first_chunk()?))
}

fn until_zero(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bytes of an answer about a stripe.
    const STRIPE_BYTES: usize = 536;

    /// Four chunks of 512 KiB, as a client on x86-64 says it.
    const STRIPED: &[u8] = b"\x01\0\0\0\0\0\x08\0\x04\0\0\0";

    /// The third stripe is on target 301 of node 3; the rest of the names is not zero, for the
    /// client writes no more than the name.
    fn stripe(first_of_pair: u32) -> Vec<u8> {
        let mut answer = [2u32, 301, first_of_pair, 0, 3, 0].map(u32::to_ne_bytes).concat();
        answer.extend(b"storage3\0");
        answer.resize(STRIPE_BYTES, 0xee);
        answer
    }

    #[test]
    fn striping_is_read_where_the_client_puts_it() {
        let striping = Striping::parse(STRIPED).unwrap();
        let expected = Striping { pattern: 1, chunk_size: 512 << 10, target_count: 4 };
        assert_eq!(striping, expected);
        let osts: Vec<_> = [3, 0, 2, 5].map(OstId).to_vec();
        let layout = striping.layout(osts.clone()).unwrap();
        let places = [0, (512 << 10) - 1, 512 << 10, 3 << 19, 4 << 19].map(|x| layout.ost_at(x).0);
        assert_eq!(places, [3, 3, 0, 5, 3]);
        assert_eq!(striping.layout(osts[..3].to_vec()), None, "a stripe is not known");
        assert_eq!(Striping { pattern: 2, ..striping }.layout(osts), None, "nor that pattern");
        assert_eq!(
            Striping::parse(b"\x01\0\0\0\0\0\x08\0\xff\xff\0\0"),
            None,
            "no file has so many"
        );
    }

    #[test]
    fn a_stripe_is_on_its_target_or_on_the_first_of_its_pair() {
        let server = "storage3".to_owned();
        assert_eq!(Stripe::parse(&stripe(0)), Some(Stripe { target: 301, server: server.clone() }));
        assert_eq!(Stripe::parse(&stripe(12)), Some(Stripe { target: 12, server }));
    }

    #[test]
    fn a_directory_is_read_where_the_client_puts_it() {
        let mut answer = 7u32.to_ne_bytes().to_vec();
        answer.extend(b"root\0");
        answer.resize(4 + ENTRY_ID_BYTES, 0xee);
        answer.extend(b"1A-5F0C2D11-1\0");
        answer.resize(60, 0xee);
        answer.extend([1u32, 2].map(u32::to_ne_bytes).concat());
        assert_eq!(answer.len(), ENTRY_BYTES);
        let (parent_id, id) = (b"root".to_vec(), b"1A-5F0C2D11-1".to_vec());
        let expected = Entry { owner: 7, parent_id, id, is_mirrored: true };
        assert_eq!(Entry::parse(&answer), Some(expected));
        assert_eq!(Entry::parse(&[0; ENTRY_BYTES]), None, "it has no name");
    }

    #[test]
    fn the_list_has_a_line_for_each_target() {
        let list = "[Target ID: 301] @ beegfs-storage storage3 [ID: 3]: Online / Needs-resync \n\
                    [Target ID: 101] @ storage1 [ID: 1]: Online / Good \n\
                    nonsense\n[Target ID: 0] @ x: Online / Good\n\
                    [Target ID: 201] @ storage2 [ID: 2]: Probably-offline / Good \n";
        let targets = parse_targets(list);
        let states: Vec<_> = targets.iter().map(|it| (it.id, it.state)).collect();
        let expected = [(101, OstState::Up), (201, OstState::Down), (301, OstState::Degraded)];
        assert_eq!(states, expected);
        assert_eq!(targets[0].server, "storage1 [ID: 1]");
    }

    #[test]
    fn a_chunk_is_a_power_of_two() {
        let sizes = [0, 64 << 10, (64 << 10) + 1, 1 << 20, 3 << 20, u64::MAX].map(chunk_size);
        assert_eq!(sizes, [64 << 10, 64 << 10, 128 << 10, 1 << 20, 4 << 20, 1 << 31]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(answer in prop::collection::vec(any::<u8>(), 0..600)) {
            if let Some(striping) = Striping::parse(&answer) {
                let targets = vec![OstId(1); usize::from(striping.target_count)];
                let _ = striping.layout(targets);
            }
            let is_long = answer.len() >= STRIPE_BYTES;
            prop_assert!(Stripe::parse(&answer).is_some() || !is_long);
            let _ = Entry::parse(&answer);
            let _ = parse_targets(&String::from_utf8_lossy(&answer));
        }

        #[test]
        fn any_list_is_read(
            lines in prop::collection::vec(
                "\\[Target ID: [0-9]{0,6}\\] @ .{0,20}: .{0,9} / .{0,9}", 0..9)) {
            let targets = parse_targets(&lines.join("\n"));
            prop_assert!(targets.windows(2).all(|pair| pair[0].id < pair[1].id));
        }
    }
}
