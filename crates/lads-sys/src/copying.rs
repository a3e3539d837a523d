//! Copies of bytes that nobody reads soon.

/// Copies pieces one behind the other, past the cache. The processor need not read the lines of
/// `to` before it writes them, and what a program has in the cache stays there. Whoever reads the
/// copy at once waits for the memory. Returns how many bytes were copied.
///
/// # Panics
/// If they have no room.
pub fn gather_past_cache<'a>(to: &mut [u8], pieces: impl Iterator<Item = &'a [u8]>) -> usize {
    let mut copied = 0;
    for piece in pieces {
        stream(&mut to[copied..copied + piece.len()], piece);
        copied += piece.len();
    }
    end_stream();
    copied
}

/// Copies as many bytes. Other threads may see them only after [`end_stream`].
#[cfg(target_arch = "x86_64")]
fn stream(to: &mut [u8], from: &[u8]) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
    // SAFETY: sixteen bytes of any values are a value of this type.
    let (head, lines, tail) = unsafe { to.align_to_mut::<__m128i>() };
    let (first, rest) = from.split_at(head.len());
    let (middle, last) = rest.split_at(size_of_val(lines));
    head.copy_from_slice(first);
    for (line, bytes) in lines.iter_mut().zip(middle.as_chunks::<16>().0) {
        // SAFETY: every x86-64 has SSE2. `line` is aligned, as a reference is; a load from anywhere
        // is allowed.
        unsafe { _mm_stream_si128(line, _mm_loadu_si128(bytes.as_ptr().cast())) };
    }
    tail.copy_from_slice(last);
}

#[cfg(target_arch = "x86_64")]
fn end_stream() {
    // SAFETY: every x86-64 has SSE.
    unsafe { std::arch::x86_64::_mm_sfence() };
}

#[cfg(not(target_arch = "x86_64"))]
fn stream(to: &mut [u8], from: &[u8]) {
    to.copy_from_slice(from);
}

#[cfg(not(target_arch = "x86_64"))]
fn end_stream() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_lie_one_behind_the_other_from_any_place_on() {
        let from: Vec<u8> = (0..400u32).map(|index| (index * 7 % 251) as u8).collect();
        for start in 0..20 {
            for length in [1, 3, 15, 16, 17, 31, 64, 65, 300] {
                let mut to = vec![0; 400];
                let copied = gather_past_cache(&mut to[start..], from[3..].chunks(length).take(1));
                assert_eq!(copied, length);
                gather_past_cache(&mut to[start..start + 50], from[..50].chunks(length));
                assert!(to[..start].iter().all(|byte| *byte == 0));
                assert_eq!(to[start..start + 50], from[..50]);
                let end = start + length.max(50);
                assert_eq!(to[start + 50..end], from[53..3 + length.max(50)]);
                assert!(to[end..].iter().all(|byte| *byte == 0));
            }
        }
    }

    #[test]
    fn pieces_without_bytes_are_passed_over() {
        let from: Vec<u8> = (1..=100).collect();
        let pieces = [&[], &from[..37], &[], &[], &from[37..], &[]];
        let mut to = [0; 117];
        assert_eq!(gather_past_cache(&mut to, pieces.into_iter()), 100);
        assert!(to[..100] == from && to[100..] == [0; 17]);
        assert_eq!(gather_past_cache(&mut [], [&[][..]; 2].into_iter()), 0);
    }

    /// Bytes that are left out without a word would be missing in a file.
    #[test]
    #[should_panic(expected = "out of range")]
    fn pieces_that_have_no_room_are_a_mistake() {
        gather_past_cache(&mut [0; 40], [[1; 30]; 2].iter().map(<[u8; 30]>::as_slice));
    }
}
