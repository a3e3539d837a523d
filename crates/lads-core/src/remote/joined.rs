//! Joins the pieces that several processes write, so that storage is asked once for what lies side
//! by side. Where each process has a part of every row of a file, a row is whole only when the
//! pieces of all are put together. The RFS paper has MPI do that before it writes (two-phase I/O,
//! section 4); a server has the frames of all processes and can do it without asking them.

use super::policy::{JOINED_ALONE, JOINED_BYTES, JOINED_PIECE_BYTES_MAX, JOINED_PIECES};
use super::scatter::Spot;
use std::ops::Range;

/// Reports whether pieces are joined with those of others: they are short, and in the order of the
/// file. Those of a view that shows a byte twice need not be.
#[must_use]
pub fn are_joined(spots: &[Spot]) -> bool {
    let bytes: u64 = spots.iter().map(|spot| spot.run.length).sum();
    let is_short = bytes < JOINED_PIECE_BYTES_MAX * spots.len() as u64;
    let follow = |one: &Spot, next: &Spot| one.run.offset + one.run.length <= next.run.offset;
    spots.len() > 1 && is_short && spots.is_sorted_by(follow)
}

/// Returns where in a file pieces are joined, in bytes: the place of the first of these spots.
/// Places are the same for all processes, unless pieces are far apart. `None` if there is no spot.
#[must_use]
pub fn place_of(spots: &[Spot]) -> Option<Range<u64>> {
    let (first, last) = (spots.first()?, spots.last()?);
    let at_least = spots.get(JOINED_PIECES).unwrap_or(last);
    let start = first.run.offset / JOINED_BYTES * JOINED_BYTES;
    Some(start..start.saturating_add(JOINED_BYTES).max(at_least.run.offset))
}

/// Returns the part of a place whose pieces are written if no other client's pieces are known to
/// begin there: only some of them, so that the rest may be joined with pieces that arrive later.
#[must_use]
pub fn alone_in(place: Range<u64>, spots: &[Spot]) -> Range<u64> {
    let is_apart = |pair: &&[Spot]| pair[0].run.offset + pair[0].run.length < pair[1].run.offset;
    let next = spots.windows(2).filter(is_apart).nth(JOINED_ALONE - 1);
    let end = next.map_or(place.end, |pair| pair[1].run.offset);
    place.start..place.end.min(end)
}

/// Reports whether some of the spots, which are in the order of the file, begin in a place.
#[must_use]
pub fn are_in(spots: &[Spot], place: &Range<u64>) -> bool {
    let first = spots.partition_point(|spot| spot.run.offset < place.start);
    spots.get(first).is_some_and(|spot| spot.run.offset < place.end)
}

/// Takes the spots that begin in a place out of those that are in the order of the file.
pub fn take_in(spots: &mut Vec<Spot>, place: &Range<u64>) -> Vec<Spot> {
    let first = spots.partition_point(|spot| spot.run.offset < place.start);
    let end = spots.partition_point(|spot| spot.run.offset < place.end);
    spots.drain(first..end).collect()
}

/// A piece of one of several parts: the number of the part, and the spot.
pub type Piece = (usize, Spot);

/// Puts the spots of several parts into the order of the file.
#[must_use]
pub fn in_order(parts: &[&[Spot]]) -> Vec<Piece> {
    let spots = parts.iter().enumerate();
    let spots = spots.flat_map(|(part, spots)| spots.iter().map(move |&spot| (part, spot)));
    let mut pieces: Vec<_> = spots.collect();
    pieces.sort_by_key(|(_, spot)| spot.run.offset);
    pieces
}

/// The pieces that lie side by side, at most this many at a time. What two processes write to the
/// same place is apart.
///
/// # Panics
/// If none may be together.
pub fn side_by_side(pieces: &[Piece], most: usize) -> impl Iterator<Item = &[Piece]> {
    let meet = |(_, one): &Piece, (_, next): &Piece| {
        one.run.offset.checked_add(one.run.length) == Some(next.run.offset)
    };
    pieces.chunk_by(meet).flat_map(move |group| group.chunks(most))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::Run;

    fn spot(offset: u64, length: u64) -> Spot {
        Spot { run: Run { offset, length }, place: u32::try_from(offset).unwrap() }
    }

    /// A piece of 512 bytes in each KiB, from one in the file on.
    fn pieces(from: u64, count: u64) -> Vec<Spot> {
        (from..from + count).map(|it| spot(it * 1024, 512)).collect()
    }

    #[test]
    fn only_short_pieces_in_order_are_joined() {
        assert!(!are_joined(&[]) && !are_joined(&[spot(0, 10)]));
        let long = JOINED_PIECE_BYTES_MAX;
        assert!(!are_joined(&[spot(0, long), spot(2 * long, long)]));
        assert!(are_joined(&[spot(5, long - 1), spot(2 * long, long)]));
        assert!(are_joined(&[spot(0, 10), spot(10, 10)]));
        assert!(
            !are_joined(&[spot(0, 10), spot(9, 10)]) && !are_joined(&[spot(20, 1), spot(9, 1)])
        );
    }

    #[test]
    fn places_are_the_same_for_all() {
        assert_eq!(place_of(&[]), None);
        assert_eq!(place_of(&[spot(5, 1)]), Some(0..JOINED_BYTES));
        let second = [spot(JOINED_BYTES + 7, 1), spot(JOINED_BYTES + 9, 1)];
        assert_eq!(place_of(&second), Some(JOINED_BYTES..2 * JOINED_BYTES));
    }

    #[test]
    fn the_place_has_many_pieces_however_far_apart_they_are() {
        let pieces: Vec<_> = (0..1000).map(|it| spot(it * JOINED_BYTES, 10)).collect();
        let place = place_of(&pieces).unwrap();
        assert_eq!(take_in(&mut pieces.clone(), &place).len(), JOINED_PIECES);
    }

    #[test]
    fn a_few_pieces_are_written_as_long_as_no_others_are_known() {
        let place = 0..JOINED_BYTES;
        assert_eq!(alone_in(place.clone(), &pieces(0, JOINED_ALONE as u64)), place);
        let end = 1024 * JOINED_ALONE as u64;
        assert_eq!(alone_in(place.clone(), &pieces(0, 200)), 0..end);
        assert_eq!(alone_in(0..2000, &pieces(0, 200)), 0..2000);
        // Those that lie side by side are one write.
        let together: Vec<_> = (0..200).map(|it| spot(it * 512, 512)).collect();
        assert_eq!(alone_in(place.clone(), &together), place);
    }

    #[test]
    fn pieces_are_in_a_place_if_they_begin_there() {
        let pieces = pieces(1, 2);
        let places = [0..1024, 0..1025, 1024..1025, 1025..2048, 2048..9000, 2049..9000];
        let are_there = places.map(|place| are_in(&pieces, &place));
        assert_eq!(are_there, [false, true, true, false, true, false]);
    }

    #[test]
    fn what_is_in_the_place_is_taken() {
        let mut spots = pieces(0, 10);
        assert_eq!(take_in(&mut spots, &(1024..3072)), pieces(1, 2));
        assert_eq!(spots, [pieces(0, 1), pieces(3, 7)].concat());
        assert!(take_in(&mut spots, &(9217..20_000)).is_empty());
    }

    #[test]
    fn what_several_write_side_by_side_is_put_together() {
        let (left, right) = (pieces(0, 3), [spot(512, 512), spot(1536, 512), spot(4096, 1)]);
        let pieces = in_order(&[&left, &right]);
        let places = |most| -> Vec<Vec<_>> {
            let groups = side_by_side(&pieces, most);
            groups.map(|it| it.iter().map(|(part, at)| (*part, at.run.offset)).collect()).collect()
        };
        let whole = [(0, 0), (1, 512), (0, 1024), (1, 1536), (0, 2048)];
        assert_eq!(places(100), [whole.to_vec(), vec![(1, 4096)]]);
        let short = places(2);
        assert_eq!(short.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 1, 1]);
    }

    #[test]
    fn what_is_written_twice_is_not_put_together() {
        let pieces = in_order(&[&[spot(0, 10), spot(10, 10)], &[spot(5, 5), spot(10, 10)]]);
        let lengths: Vec<_> = side_by_side(&pieces, 9).map(<[Piece]>::len).collect();
        assert_eq!(lengths, [1, 2, 1]);
    }
}
