//! Where the fuzzer begins: inputs that are what honest peers and file systems say.
//!
//! Those of the readers are made here, from the golden bytes of `docs/protocol.md` and by the
//! core's own encoders; `UPDATE_EXPECT=1` writes them to `fuzz/seeds`. Those of the sessions are
//! random choices that led far, and must still do so.

#![expect(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use lads_core::ceph::{FileLayout, ObjectStriping};
use lads_core::entry::{Identity, Timestamp};
use lads_core::frame::{Bound, Row, put_head};
use lads_core::issue::Operation;
use lads_core::journal::{BlockRecord, FORMAT, Record, encode};
use lads_core::limits::PACKET_BYTES_MAX;
use lads_core::lov::{Lov, Stripes};
use lads_core::packet::{Channel, Packet};
use lads_core::remote::message::{
    Call, Failure, Fenced, FileNumber, LockKind, OpenMode, Outcome, Request, Ticket, ToClient,
    ToServer, Unsent, VERSION, ViewNumber, WriteNumber, Written,
};
use lads_core::units::{Block, EntryId, OstId, StreamId};
use lads_core::view::{Datatype, Dimension, Distribution, Part, Slice};
use lads_fuzz::{
    TARGETS, remote_client, remote_message, remote_server, sink_session, source_session,
};
use std::fs;
use std::path::{Path, PathBuf};

/// All seeds of a target together, in bytes: a fuzzer begins with small ones, and they are kept
/// with the source.
const SEED_BYTES_MAX: u64 = 8 << 10;

fn directory(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target)
}

/// The seeds of a target, in the order of their names.
fn committed(target: &str) -> Vec<(String, Vec<u8>)> {
    let directory = directory(target);
    let entries = fs::read_dir(&directory).unwrap_or_else(|error| {
        panic!("{} ({error}); UPDATE_EXPECT=1 makes it", directory.display())
    });
    let mut seeds: Vec<(String, Vec<u8>)> = entries
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, fs::read(path).unwrap())
        })
        .collect();
    seeds.sort();
    seeds
}

/// Compares the seeds of a target with what they should be, or writes them.
fn check(target: &str, seeds: Vec<(&str, Vec<u8>)>) {
    let mut seeds: Vec<(String, Vec<u8>)> =
        seeds.into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect();
    seeds.sort();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::create_dir_all(directory(target)).unwrap();
        for (name, bytes) in &seeds {
            fs::write(directory(target).join(name), bytes).unwrap();
        }
    }
    assert_eq!(committed(target), seeds, "seeds of {target}; UPDATE_EXPECT=1 writes them anew");
}

#[test]
fn messages_begin_with_the_golden_transcript() {
    let page =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocol.md"));
    let page = page.unwrap();
    let transcript = page.split("## 7. Golden transcript").nth(1).unwrap();
    let transcript = transcript.split("## 8.").next().unwrap();
    let seeds: Vec<(String, Vec<u8>)> = (transcript.split("```").skip(1).step_by(2).enumerate())
        .map(|(number, block)| (format!("golden-{number:02}"), body_of(block)))
        .collect();
    assert!(seeds.len() >= 10, "{} messages on the page", seeds.len());
    check("message", seeds.iter().map(|(name, bytes)| (name.as_str(), bytes.clone())).collect());
}

/// What stands behind the length of a message, from `text` and its bytes in hexadecimal.
fn body_of(block: &str) -> Vec<u8> {
    let digits: String = block.split_whitespace().filter(|word| *word != "text").collect();
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    assert!(rest.is_empty(), "{digits}");
    let byte = |pair: &[u8; 2]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    let bytes = pairs.iter().map(byte);
    bytes.skip(lads_core::message::LENGTH_BYTES).collect()
}

#[test]
fn frames_begin_with_one_block_and_with_several_files() {
    let row = |entry, offset, length, is_whole| Row {
        block: Block { entry: EntryId(entry), offset, length },
        is_whole,
        checksum: 0x1234_5678_9abc_def0,
    };
    let head = |rows: &[Row], has_only_sums| {
        let mut head = Vec::new();
        put_head(
            rows,
            7,
            Bound { sink_ost: OstId(3), is_last_grant: true, has_only_sums },
            &mut head,
        );
        // The first byte says that the checksums are as they are.
        [vec![0], head].concat()
    };
    let files: Vec<Row> = (1..=5).map(|entry| row(entry, 0, 4096, true)).collect();
    check(
        "frame",
        vec![
            ("block", head(&[row(2, 1 << 20, 1 << 20, false)], false)),
            ("files", head(&files, false)),
            ("sums", head(&files, true)),
        ],
    );
}

#[test]
fn packets_begin_with_one_of_each_channel() {
    let head = |channel, bytes| Packet { channel, bytes }.head();
    let heads = [
        head(Channel::Messages, 300),
        head(Channel::Stream(StreamId(0)), 1),
        head(Channel::Stream(StreamId(1)), PACKET_BYTES_MAX),
    ];
    // The first byte says how many streams there are.
    check("packet", vec![("channels", [&[2][..], heads.as_flattened()].concat())]);
}

#[test]
fn journals_begin_with_files_that_are_begun_and_forgotten() {
    let file = |number: u64| Record::File {
        number,
        path: format!("run/{number}").into_bytes(),
        identity: Identity {
            size: 3 << 20,
            mtime: Timestamp { seconds: 1_700_000_000, nanos: 5 },
            ..Identity::default()
        },
    };
    let block = |at: u64| BlockRecord { offset: at << 20, length: 1 << 20, checksum: at };
    let records = [
        Record::Begin { format: FORMAT, salt: [7; 16] },
        file(1),
        file(2),
        Record::Blocks { number: 1, part: Identity::default(), blocks: vec![block(0), block(2)] },
        Record::Blocks { number: 2, part: Identity::default(), blocks: vec![block(1)] },
        Record::Forget { number: 1 },
    ];
    let mut bytes = vec![0];
    records.iter().for_each(|record| encode(record, &mut bytes));
    // Once as it is, and once so that its checksums are made to match whatever is changed.
    let mut sealed = bytes.clone();
    sealed[0] = 1;
    check("journal", vec![("sound", bytes), ("sealed", sealed)]);
}

#[test]
fn filters_begin_with_patterns_of_every_kind() {
    let file = b"\x00src/main/a.o\n*.o\nmain/*\n**/a.?\nsrc/**/[a-z].o\n[!x]*\n\\*".to_vec();
    let directory = b"\x01src/tmp\ntmp/\n/src/***\n*".to_vec();
    check("filter", vec![("file", file), ("directory", directory)]);
}

#[test]
fn layouts_begin_with_what_each_file_system_says() {
    let kind = |kind: u8, bytes: &[u8]| [&[kind], bytes].concat();
    let osts = [OstId(3), OstId(0), OstId(3)];
    let wish = Lov::wish_on(1 << 20, &osts);
    let progressive =
        Lov::wish_composite([(1 << 20, Lov::wish(65536, 1)), (u64::MAX, wish.clone())]);
    let ceph = FileLayout {
        striping: ObjectStriping::new(1 << 20, 2, 4 << 20).unwrap(),
        pool: "data".to_owned(),
        namespace: "run".to_owned(),
    };
    let targets = "[Target ID: 101] @ storage1 [ID: 1]: Online / Good\n";
    let config = "<Filesystem>\nName a\n<DataHandleRanges>\nRange io1 1-9\n</DataHandleRanges>\n\
                  </Filesystem>\nAlias io1 tcp://io1:3334\n";
    let seeds = vec![
        ("lustre-plain", kind(0, &with_objects(&wish).encode())),
        ("lustre-progressive", kind(0, &progressive.encode())),
        ("ceph", kind(1, ceph.to_string().as_bytes())),
        ("beegfs-striping", kind(2, b"\x01\0\0\0\0\0\x08\0\x04\0\0\0")),
        ("beegfs-targets", kind(2, targets.as_bytes())),
        ("orangefs-rule", kind(3, b"\x0d\0\0\0simple_stripe\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0")),
        ("orangefs-config", kind(3, config.as_bytes())),
        ("objects", kind(4, &[2, 16, 2, 2, 0, 1, 2, 3])),
        ("parts", kind(5, &[1, 0, 1, 3, 0, 20, 3, 0, 16])),
    ];
    check("layouts", seeds);
}

#[test]
fn views_begin_with_datatypes_of_every_kind() {
    let seed = |datatype: &Datatype| {
        let mut bytes = [4096_u64.to_le_bytes(), 100_u64.to_le_bytes()].concat();
        datatype.write(&mut bytes);
        bytes
    };
    let double = || Box::new(Datatype::Bytes(8));
    let vector = Datatype::Vector { count: 5, block: 2, stride: 32, of: double() };
    let resized = Datatype::Resized { begin: -8, extent: 24, of: double() };
    let indexed = Datatype::Indexed { blocks: vec![(2, 0), (1, 64), (3, 80)], of: double() };
    let part = |block, at, of| Part { block, at, of };
    let seeds = [
        ("struct", Datatype::Struct(vec![part(1, 0, vector.clone()), part(2, 256, resized)])),
        ("vector", vector),
        ("indexed", indexed),
        (
            "subarray",
            Datatype::Subarray {
                is_fortran: false,
                slices: vec![
                    Slice { size: 4, length: 2, start: 1 },
                    Slice { size: 9, length: 3, start: 6 },
                ],
                of: double(),
            },
        ),
        (
            "darray",
            Datatype::Darray {
                is_fortran: true,
                rank: 3,
                dimensions: vec![
                    Dimension { size: 7, distribution: Distribution::Cyclic(2), processes: 2 },
                    Dimension { size: 9, distribution: Distribution::Block(None), processes: 3 },
                ],
                of: double(),
            },
        ),
    ];
    check("view", seeds.iter().map(|(name, it)| (*name, seed(it))).collect());
}

#[test]
fn messages_of_remote_files_begin_with_one_of_each_kind() {
    let (file, view, path) = (FileNumber(3), ViewNumber(7), b"run/out".to_vec());
    let mode = OpenMode { reads: true, writes: true, creates: true, is_new: false };
    let mut filetype = Vec::new();
    Datatype::Bytes(8).write(&mut filetype);
    let failure = Failure { operation: Operation::Write, errno: 28 };
    let ticket = Ticket([9; 16]);
    let unsent = Unsent { write: WriteNumber(5), view, position: 1 << 30, length: 1 << 20 };
    let calls = [
        ("open", Call::Open { file, path: path.clone(), mode, group: [9; 16] }),
        ("view", Call::View { view, file, displacement: 4096, filetype }),
        ("read", Call::Read { view, position: 1 << 30, length: 1 << 20 }),
        ("close", Call::Close { file }),
        ("shared", Call::AddShared { file, bytes: -5 }),
        ("delete", Call::Delete { path }),
        ("lock", Call::Lock { file, kind: LockKind::Exclusive }),
        ("fence", Call::Fence { unsent: vec![unsent] }),
        ("return", Call::Return { frames: 7, writes: vec![Fenced { fence: 9, unsent }] }),
    ];
    let to_server = |message| [vec![0], remote_message::body_of(&message)].concat();
    let to_client = |message| [vec![1], remote_message::body_of(&message)].concat();
    let written = [None, Some(failure)];
    let written = (5..).zip(written).map(|(frame, failure)| Written { frame, failure }).collect();
    let reply = |outcome| to_client(ToClient::Reply { number: 300, outcome });
    let mut seeds = vec![
        ("hello", to_server(ToServer::Hello { version: VERSION, name: "n1".to_owned() })),
        ("resume", to_server(ToServer::Resume { version: VERSION, ticket, heard: 500 })),
        ("heartbeat", to_server(ToServer::Heartbeat { heard: 500 })),
        ("ticket", to_client(ToClient::Ticket(ticket))),
        ("resumed", to_client(ToClient::Resumed { requests: 300, frames: 1 << 20 })),
        ("restarted", to_client(ToClient::Restarted { written: vec![5], done: vec![300, 301] })),
        ("written", to_client(ToClient::Written(written))),
        ("grant", to_client(ToClient::Grant(64))),
        ("fatal", to_client(ToClient::Fatal("no".to_owned()))),
        ("reply-number", reply(Outcome::Number(1 << 20))),
        ("reply-failed", reply(Outcome::Failed(failure))),
    ];
    seeds.extend(calls.map(|(name, call)| {
        (name, to_server(ToServer::Request(Request { number: 300, frames_before: 40, call })))
    }));
    check("remote_message", seeds);
}

/// As Lustre answers it for a file: a wish that was granted.
fn with_objects(wish: &Lov) -> Lov {
    let lads_core::lov::Body::Stripes(stripes) = &wish.components[0].body else {
        panic!("a wish is for stripes")
    };
    Lov::plain(Stripes { form: lads_core::lov::Form::V1, ..stripes.clone() })
}

/// A target that is refused at once tries nothing, whatever its name says.
#[test]
fn seeds_of_the_sessions_lead_to_their_ends() {
    let sink: Vec<_> =
        committed("sink_session").iter().map(|(_, it)| sink_session::play(it)).collect();
    assert!(sink.iter().any(|it| it.is_finished && it.files_moved >= 20), "{sink:?}");
    assert!(sink.iter().any(|it| it.is_refused && it.files_moved >= 1), "{sink:?}");
    let source: Vec<_> =
        committed("source_session").iter().map(|(_, it)| source_session::play(it)).collect();
    assert!(source.iter().any(|it| it.is_finished && it.files_moved >= 10), "{source:?}");
    assert!(source.iter().any(|it| it.is_refused && it.files_moved >= 1), "{source:?}");
    let server: Vec<_> =
        committed("remote_server").iter().map(|(_, it)| remote_server::play(it)).collect();
    assert!(server.iter().any(|it| it.written >= 10 && it.dropped >= 1), "{server:?}");
    assert!(server.iter().any(|it| it.is_refused && it.written >= 1), "{server:?}");
    let is_far = |it: &remote_server::Reached| it.resumed >= 3 && it.written >= 15;
    assert!(server.iter().any(|it| is_far(it) && !it.is_refused), "{server:?}");
    let is_far = |it: &remote_server::Reached| it.restarted >= 2 && it.returned >= 3;
    assert!(server.iter().any(|it| is_far(it) && it.written >= 10), "{server:?}");
    let client: Vec<_> =
        committed("remote_client").iter().map(|(_, it)| remote_client::play(it)).collect();
    assert!(client.iter().any(|it| it.sent >= 20 && it.drained >= 10), "{client:?}");
    assert!(client.iter().any(|it| it.loaded >= 1 && it.reads >= 4), "{client:?}");
    assert!(client.iter().any(|it| it.is_refused && it.written >= 10), "{client:?}");
    let is_far = |it: &remote_client::Reached| it.resumed >= 2 && it.written >= 10;
    assert!(client.iter().any(|it| is_far(it) && it.reads >= 3), "{client:?}");
    let is_far = |it: &remote_client::Reached| it.restarted >= 2 && it.written >= 10;
    assert!(client.iter().any(|it| is_far(it) && it.sent >= 15), "{client:?}");
}

#[test]
fn seeds_are_small() {
    for target in TARGETS {
        let bytes: u64 = committed(target.name).iter().map(|(_, bytes)| bytes.len() as u64).sum();
        assert!((1..=SEED_BYTES_MAX).contains(&bytes), "{bytes} bytes for {}", target.name);
    }
}
