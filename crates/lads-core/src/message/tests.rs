use super::*;
use crate::room::Lot;
use expect_test::{Expect, expect};
use proptest::prelude::*;

fn hex(message: &Message) -> String {
    let mut bytes = Writer::new();
    encode(message, &mut bytes);
    assert_eq!(decode(&bytes[LENGTH_BYTES..]).as_ref(), Ok(message), "what is put can be taken");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

fn check(message: &Message, expected: &Expect) {
    expected.assert_eq(&hex(message));
}

/// The same page.
#[test]
fn bytes_of_a_file_in_objects_stay_as_documented() {
    let striping = ObjectStriping::new(1 << 20, 2, 4 << 20).unwrap();
    let layout = Layout::in_objects(striping, &[OstId(5), OstId(0), OstId(5)]).unwrap();
    let done = RangeSet::new();
    check(
        &Message::FileId(vec![(EntryId(2), Answer::Want { done, layout })]),
        &expect!["12 00 00 00 07 01 02 00 00 00 80 80 40 02 80 80 80 02 03 05 00 05"],
    );
}

/// The golden transcript of `docs/protocol.md`, section 7: a change here is a new protocol version.
#[test]
fn bytes_on_the_wire_stay_as_documented() {
    check(
        &Message::Hello(Hello {
            magic: MAGIC,
            version_min: 1,
            version: 1,
            features: 0,
            software: "lads 0.1.0".into(),
            host: "dtn1".into(),
            schema: SchemaDigest(Some(*b"\x01\x23\x45\x67\x89\xab\xcd\xef")),
        }),
        &expect![
            "24 00 00 00 01 00 4c 41 44 53 0d 0a 01 01 01 00 0a 6c 61 64 73 20 30 2e 31 2e 30 04 64 74 6e 31 01 23 45 67 89 ab cd ef"
        ],
    );
    let identity = Identity {
        size: 300,
        mtime: Timestamp { seconds: 1_700_000_000, nanos: 5 },
        ctime: Timestamp { seconds: 1_700_000_001, nanos: 6 },
        inode: 12,
    };
    check(
        &Message::NewFile(vec![Entry {
            id: EntryId(2),
            parent: EntryId(1),
            name: b"data".to_vec(),
            kind: Kind::File {
                identity,
                data_bytes: 300,
                striping: Striping { size: 1 << 20, count: 4 },
                source_ost: OstId(3),
                is_different: false,
            },
            metadata: Metadata {
                mode: 0o644,
                uid: 1000,
                gid: 100,
                mtime: identity.mtime,
                xattrs: vec![],
            },
        }]),
        &expect![
            "2d 00 00 00 06 01 02 01 04 64 61 74 61 00 ac 02 80 c4 9f d5 0c 05 82 c4 9f d5 0c 06 0c ac 02 80 80 40 04 03 00 a4 03 e8 07 64 80 c4 9f d5 0c 05 00"
        ],
    );
    let done: RangeSet = [0..100, 200..250].into_iter().collect();
    let layout = Layout::striped(1 << 20, vec![OstId(0), OstId(3)]).unwrap();
    check(
        &Message::FileId(vec![(EntryId(2), Answer::Want { done, layout })]),
        &expect!["11 00 00 00 07 01 02 00 02 00 64 64 32 01 00 80 80 40 02 00 03"],
    );
    check(&Message::Grant(Lot::of(vec![(OstId(3), 2)])), &expect!["05 00 00 00 08 02 01 03 02"]);
    let range = BlockRange { entry: EntryId(2), offset: 0, length: 300 };
    check(&Message::BlockDone(vec![range]), &expect!["06 00 00 00 09 01 02 00 ac 02"]);
    let failure = Failure::new(Side::Sink, Operation::Write, Reason::Os(28)).of_block(
        1 << 20,
        1 << 20,
        OstId(3),
    );
    check(
        &Message::FileDone(vec![
            (EntryId(2), Ending::Complete),
            (EntryId(4), Ending::Failed(failure)),
        ]),
        &expect!["13 00 00 00 0b 02 02 00 04 02 01 05 00 38 01 80 80 40 80 80 40 01 03"],
    );
    check(&Message::Finish { is_complete: true }, &expect!["02 00 00 00 12 01"]);
    check(&Message::Frames(vec![5, 300]), &expect!["05 00 00 00 16 02 05 ac 02"]);
    let osts = OstBytes { elapsed_micros: 7, bytes: vec![5, 300] };
    check(&Message::OstBytes(osts), &expect!["06 00 00 00 18 07 02 05 ac 02"]);
}

proptest! {
    #[test]
    fn any_bytes_are_refused_or_read(bytes: Vec<u8>) {
        let _ = decode(&bytes);
    }

    #[test]
    fn any_bytes_behind_a_type_are_refused_or_read(kind in 1u8..23, mut bytes: Vec<u8>) {
        bytes.insert(0, kind);
        let _ = decode(&bytes);
    }
}

#[test]
fn fields_of_a_later_version_are_ignored() {
    let mut bytes = Writer::new();
    Message::Heartbeat.put(&mut bytes);
    bytes.extend_from_slice(b"more");
    assert_eq!(decode(&bytes), Ok(Message::Heartbeat));
}
