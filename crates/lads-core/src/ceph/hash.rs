//! To which number Ceph folds the name of an object.
//!
//! The hash is Bob Jenkins's of 1996 (`lookup2`, public domain), which every pool uses since Ceph
//! has had pools. It says where data lies, so it can never change.

/// `ceph_str_hash_rjenkins`.
pub(super) fn rjenkins(name: &[u8]) -> u32 {
    let mut state = [0x9e37_79b9, 0x9e37_79b9, 0];
    let (triples, rest) = name.as_chunks::<12>();
    for triple in triples {
        add(&mut state, triple);
        mix(&mut state);
    }
    // What is left: the lowest byte of the third number is the length.
    let mut last = [0; 12];
    last[..rest.len().min(8)].copy_from_slice(&rest[..rest.len().min(8)]);
    if let Some(rest) = rest.get(8..) {
        last[9..9 + rest.len()].copy_from_slice(rest);
    }
    add(&mut state, &last);
    let length = u32::try_from(name.len()).expect("names are short");
    state[2] = state[2].wrapping_add(length);
    mix(&mut state);
    state[2]
}

fn add(state: &mut [u32; 3], bytes: &[u8; 12]) {
    for (number, bytes) in state.iter_mut().zip(bytes.as_chunks::<4>().0) {
        *number = number.wrapping_add(u32::from_le_bytes(*bytes));
    }
}

fn mix([a, b, c]: &mut [u32; 3]) {
    for [right, left, right_again] in [[13, 8, 13], [12, 16, 5], [3, 10, 15]] {
        *a = a.wrapping_sub(*b).wrapping_sub(*c) ^ (*c >> right);
        *b = b.wrapping_sub(*c).wrapping_sub(*a) ^ (*a << left);
        *c = c.wrapping_sub(*a).wrapping_sub(*b) ^ (*b >> right_again);
    }
}
