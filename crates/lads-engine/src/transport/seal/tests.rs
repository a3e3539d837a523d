use super::*;
use expect_test::expect;
use proptest::prelude::*;

const SECRET: [u8; SECRET_BYTES] = [7; SECRET_BYTES];
const SALT: [u8; SALT_BYTES] = [9; SALT_BYTES];
const ALL: [Protection; 3] =
    [Protection::Authenticated, Protection::Aes128Gcm, Protection::ChaCha20Poly1305];

fn seals(protection: Protection, role: Role) -> Seals {
    Seals::new(protection, &SECRET, &SALT, role).unwrap()
}

/// Both ends of one direction.
fn ends(protection: Protection) -> (Sealer, Opener) {
    (seals(protection, Role::Connects).sealer, seals(protection, Role::Listens).opener)
}

/// Both ends of one direction, whose keys are good for two records.
fn ends_with_short_keys(protection: Protection) -> (Sealer, Opener) {
    let key = || RecordKey::new(protection, SECRET, 2).unwrap();
    (Sealer::new(key()), Opener::new(key()))
}

fn some_bytes(count: usize) -> Vec<u8> {
    (0..251u8).cycle().take(count).collect()
}

/// The records of some pieces, as they are on the wire.
fn records_of(sealer: &mut Sealer, pieces: &[&[u8]]) -> Vec<u8> {
    let pieces: Vec<_> = pieces.iter().map(|it| IoSlice::new(it)).collect();
    let mut wire = Vec::new();
    let write = |bytes: &[u8]| {
        assert!(bytes.len() <= WRITTEN_BYTES);
        wire.extend_from_slice(bytes);
        Ok(())
    };
    sealer.write(&pieces, write).unwrap();
    wire
}

/// Reads from the wire, at most `at_once` bytes in a call.
fn read_from(
    opener: &mut Opener,
    wire: &mut &[u8],
    wanted: &mut [u8],
    at_once: usize,
) -> io::Result<usize> {
    opener.read(wanted, |pieces| {
        let mut count = 0;
        for piece in pieces {
            let now = piece.len().min(wire.len()).min(at_once - count);
            piece[..now].copy_from_slice(&wire[..now]);
            *wire = &wire[now..];
            count += now;
        }
        Ok(count)
    })
}

/// Reads to the end of the wire, `wanted` bytes at a time.
fn all_of(opener: &mut Opener, mut wire: &[u8], wanted: usize) -> io::Result<Vec<u8>> {
    let (mut all, mut some) = (Vec::new(), vec![0; wanted]);
    loop {
        match read_from(opener, &mut wire, &mut some, usize::MAX)? {
            0 => return Ok(all),
            count => all.extend_from_slice(&some[..count]),
        }
    }
}

fn is_refused(result: &io::Result<Vec<u8>>) -> bool {
    matches!(result, Err(error) if error.kind() == io::ErrorKind::InvalidData)
}

proptest! {
    /// The other end does not know how they were written.
    #[test]
    fn records_are_the_same_if_they_are_made_in_place(
        length in 0..600_000usize,
        protection in prop::sample::select(&ALL[..]),
    ) {
        let payload = some_bytes(length);
        let expected = records_of(&mut ends_with_short_keys(protection).0, &[b"head", &payload]);
        let (mut wire, mut payload) = (Vec::new(), payload);
        let write = |pieces: &mut [IoSlice<'_>]| {
            pieces.iter().for_each(|it| wire.extend_from_slice(it));
            Ok(())
        };
        ends_with_short_keys(protection).0.write_last(&[b"head"], &mut payload, write).unwrap();
        prop_assert!(wire == expected);
    }

    #[test]
    fn what_is_read_is_what_was_written(
        lengths in prop::collection::vec(0..200_000usize, 1..5),
        wanted in 1..300_000usize,
        at_once in 1..100_000usize,
        protection in prop::sample::select(&ALL[..]),
        has_short_keys: bool,
    ) {
        let make = if has_short_keys { ends_with_short_keys } else { ends };
        let (mut sealer, mut opener) = make(protection);
        let pieces: Vec<_> = lengths.iter().map(|&count| some_bytes(count)).collect();
        let pieces: Vec<_> = pieces.iter().map(Vec::as_slice).collect();
        let wire = records_of(&mut sealer, &pieces);
        let (mut rest, mut all, mut some) = (&wire[..], Vec::new(), vec![0; wanted]);
        loop {
            match read_from(&mut opener, &mut rest, &mut some, at_once).unwrap() {
                0 => break,
                count => all.extend_from_slice(&some[..count]),
            }
        }
        prop_assert!(all == pieces.concat());
    }
}

/// The first piece and each record come with one call, into the place where they belong.
#[test]
fn a_frame_is_read_directly_into_its_buffer() {
    for protection in ALL {
        let (mut sealer, mut opener) = ends(protection);
        let payload = some_bytes(3 * RECORD_BYTES + 5);
        let wire = records_of(&mut sealer, &[b"head", &payload]);
        let mut rest = &wire[..];
        let mut head = [0; 4];
        assert_eq!(read_from(&mut opener, &mut rest, &mut head, usize::MAX).unwrap(), 4);
        let (mut to, mut filled) = (vec![0; payload.len()], 0);
        for expected in [RECORD_BYTES, RECORD_BYTES, RECORD_BYTES, 5] {
            let count = read_from(&mut opener, &mut rest, &mut to[filled..], usize::MAX).unwrap();
            assert_eq!(count, expected);
            filled += count;
        }
        assert!((&head, &to) == (b"head", &payload) && opener.rest.is_empty());
    }
}

#[test]
fn a_record_that_is_longer_than_what_is_asked_for_comes_in_parts() {
    let wire = records_of(&mut ends(Protection::Aes128Gcm).0, &[b"head", b"payload", b"more"]);
    for wanted in 1..10 {
        let all = all_of(&mut ends(Protection::Aes128Gcm).1, &wire, wanted).unwrap();
        assert_eq!(all, b"headpayloadmore", "{wanted} bytes at a time");
    }
}

#[test]
fn what_is_encrypted_cannot_be_read_on_its_way() {
    for protection in ALL {
        let (mut sealer, _) = ends(protection);
        let wire = records_of(&mut sealer, &[b"head", &[b'a'; 1000]]);
        let shows = wire.windows(3).any(|it| it == b"aaa");
        assert_eq!(shows, protection == Protection::Authenticated);
    }
}

#[test]
fn bytes_that_were_changed_are_refused() {
    for protection in ALL {
        let (mut sealer, _) = ends(protection);
        let wire = records_of(&mut sealer, &[b"head", b"payload"]);
        for at in 0..wire.len() {
            let mut changed = wire.clone();
            changed[at] ^= 1;
            let result = all_of(&mut ends(protection).1, &changed, 100);
            // A length that is too large is found at the end, at the latest.
            assert!(result.is_err(), "{protection:?}: byte {at}");
        }
        // Nothing of a record that is not genuine is left where it was read to.
        let mut changed = wire.clone();
        changed[LENGTH_BYTES] ^= 1;
        let (mut rest, mut to) = (&changed[..], [0; 100]);
        read_from(&mut ends(protection).1, &mut rest, &mut to, usize::MAX).unwrap_err();
        assert!(to.iter().all(|&byte| byte == 0), "{protection:?}: {to:?}");
    }
}

#[test]
fn records_in_another_order_of_another_connection_or_direction_are_refused() {
    for protection in ALL {
        let mut sealer = ends(protection).0;
        let [one, two] = [b"one", b"two"].map(|it| records_of(&mut sealer, &[it]));
        let opened = |wires: &[&[u8]]| all_of(&mut ends(protection).1, &wires.concat(), 100);
        assert_eq!(opened(&[&one, &two]).unwrap(), b"onetwo");
        for wires in [&[&two[..], &one][..], &[&two], &[&one, &one]] {
            assert!(is_refused(&opened(wires)), "{protection:?}");
        }
        let others = [
            Seals::new(protection, &[8; SECRET_BYTES], &SALT, Role::Listens),
            Seals::new(protection, &SECRET, &[8; SALT_BYTES], Role::Listens),
            Seals::new(protection, &SECRET, &SALT, Role::Connects),
        ];
        for other in others {
            assert!(is_refused(&all_of(&mut other.unwrap().opener, &one, 100)), "{protection:?}");
        }
    }
    let of_another_kind = all_of(
        &mut ends(Protection::ChaCha20Poly1305).1,
        &records_of(&mut ends(Protection::Aes128Gcm).0, &[b"one"]),
        100,
    );
    assert!(is_refused(&of_another_kind));
}

#[test]
fn a_key_is_replaced_after_so_many_records() {
    for protection in ALL {
        let (mut sealer, mut opener) = ends_with_short_keys(protection);
        let wires: Vec<_> = (0..7).map(|_| records_of(&mut sealer, &[b"same"])).collect();
        // The numbers begin again with each key, and no record is like another.
        assert!((1..7).all(|later| wires[..later].iter().all(|it| *it != wires[later])));
        assert_eq!(all_of(&mut opener, &wires.concat(), 9).unwrap(), b"same".repeat(7));
        let longer = Opener::new(RecordKey::new(protection, SECRET, 3).unwrap());
        assert!(is_refused(&all_of(&mut { longer }, &wires.concat(), 9)));
    }
}

#[test]
fn the_end_of_a_connection_is_the_end_of_a_record_or_an_error() {
    let mut sealer = ends(Protection::Aes128Gcm).0;
    let wire = records_of(&mut sealer, &[b"head", b"payload"]);
    let ends_of_records = [0, LENGTH_BYTES + 4 + TAG_BYTES, wire.len()];
    for end in 0..=wire.len() {
        let result = all_of(&mut ends(Protection::Aes128Gcm).1, &wire[..end], 100);
        match result {
            Ok(_) => assert!(ends_of_records.contains(&end)),
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
                assert!(!ends_of_records.contains(&end));
            }
        }
    }
}

#[test]
fn no_record_is_longer_than_it_may_be_or_empty() {
    for length in [0, (64 << 10) + 1, u32::MAX] {
        let wire = [&length.to_le_bytes()[..], &[0; 64]].concat();
        assert!(is_refused(&all_of(&mut ends(Protection::Aes128Gcm).1, &wire, 100)));
    }
}

/// Another build may be at the other end: a change here is a change of the protocol.
#[test]
fn records_on_the_wire_stay_as_they_are() {
    let mut text = format!("token {}\n", hex(&token(&SECRET)));
    for protection in ALL {
        let (mut sealer, _) = ends(protection);
        let wire = records_of(&mut sealer, &[b"head", b"payload"]);
        let lines: Vec<_> = wire.chunks(32).map(hex).collect();
        text += &format!("{protection:?}\n{}\n", lines.join("\n"));
    }
    expect![[r#"
        token 359307eb3c659657f017c52df22656276c8a6684dfa684c1c5bb3e2c3435bfde
        Authenticated
        0400000068656164407e376699eb9a9e85c8d09f244a947e070000007061796c
        6f616421d3ba129a4a5c52998b4fa1f64f2f00
        Aes128Gcm
        040000005031c3a9945f379e20c1d90e3bfe3db23eecbccd07000000cbac6cac
        f01d41e3a480c48ae51159d63ba4c13fb64c7b
        ChaCha20Poly1305
        04000000c404f85fdef6853f63303205b72557610d881ec0070000004290c923
        7c2faae641c2c514241da38451152ccba865f0
    "#]]
    .assert_eq(&text);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn nothing_is_protected_where_that_was_agreed() {
    assert!(Seals::new(Protection::Plain, &SECRET, &SALT, Role::Connects).is_none());
}

#[test]
fn a_token_says_nothing_of_the_keys() {
    assert_ne!(token(&SECRET), SECRET);
    assert_ne!(token(&SECRET), token(&[8; SECRET_BYTES]));
    assert_ne!(salt().unwrap(), salt().unwrap());
}
