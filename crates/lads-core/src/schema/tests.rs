use super::*;
use crate::ceph::ObjectStriping;
use crate::congestion::Threshold;
use crate::cpu_share::{CpuShare, CpuUnit};
use crate::entry::{Entry, Identity, Kind, Metadata, Timestamp, Xattr};
use crate::filter::{Rule, Verdict};
use crate::frame::{Bound, Row, put_head};
use crate::issue::{Failure, Issue, Operation, Reason, Side};
use crate::layout::{Layout, Part};
use crate::matching::Why;
use crate::message::wire::{Wire, Writer};
use crate::message::{
    Answer, BlockRange, BusyOst, Counters, DataPort, Ending, Hello, LENGTH_BYTES, Line, Message,
    OstBytes, Presence, Question, Root, SchemaDigest, VERSION, Verb, encode,
};
use crate::packet::{Channel, Packet};
use crate::pass::{Pass, PassCounts};
use crate::placement::{Place, Striping};
use crate::pool::{Io, Requests};
use crate::protection::{DataLevel, Protection, Secret};
use crate::range::RangeSet;
use crate::reduction::ReducedCounts;
use crate::room::Lot;
use crate::schedule::Policy;
use crate::units::{Block, EntryId, OstId, StreamId};
use expect_test::{expect, expect_file};

/// What is made of fields.
fn forms() -> String {
    [
        Message::wire_form(),
        Hello::wire_form(),
        Root::wire_form(),
        Entry::wire_form(),
        Kind::wire_form(),
        Identity::wire_form(),
        Timestamp::wire_form(),
        Striping::wire_form(),
        Metadata::wire_form(),
        Xattr::wire_form(),
        Answer::wire_form(),
        Ending::wire_form(),
        Failure::wire_form(),
        Reason::wire_form(),
        Side::wire_form(),
        Lot::wire_form(),
        BlockRange::wire_form(),
        Counters::wire_form(),
        PassCounts::wire_form(),
        ReducedCounts::wire_form(),
        Pass::wire_form(),
        BusyOst::wire_form(),
        Requests::wire_form(),
        Why::wire_form(),
        Io::wire_form(),
        OstBytes::wire_form(),
        Issue::wire_form(),
        Line::wire_form(),
        Verb::wire_form(),
        Question::wire_form(),
        Presence::wire_form(),
        Rule::wire_form(),
        Verdict::wire_form(),
        Place::wire_form(),
        Policy::wire_form(),
        Threshold::wire_form(),
        CpuShare::wire_form(),
        CpuUnit::wire_form(),
        EntryId::wire_form(),
        OstId::wire_form(),
        Secret::wire_form(),
        DataPort::wire_form(),
        Protection::wire_form(),
        DataLevel::wire_form(),
    ]
    .concat()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

fn bytes_of(what: &str, value: &impl Wire) -> String {
    let mut bytes = Writer::new();
    value.put(&mut bytes);
    format!("{what}: {}\n", hex(&bytes))
}

/// What has a form of its own, as bytes.
fn examples() -> String {
    let striping = ObjectStriping::new(1 << 20, 2, 4 << 20).unwrap();
    let objects = Layout::in_objects(striping, &[OstId(5), OstId(0)]).unwrap();
    let parts = vec![
        Part { end: 1 << 20, stripe_size: 4096, osts: vec![OstId(3)] },
        Part { end: u64::MAX, stripe_size: u64::MAX, osts: vec![OstId(0)] },
    ];
    let ranges: RangeSet = [0..100, 200..250].into_iter().collect();
    let mut text = String::new();
    for (number, operation) in Operation::ALL.iter().enumerate() {
        text += &bytes_of(&format!("Operation {number} {operation:?}"), operation);
    }
    text += &bytes_of("Part that ends", &parts[0]);
    text += &bytes_of("Part without end", &parts[1]);
    text += &bytes_of("Layout of parts", &Layout::composite(parts).unwrap());
    text += &bytes_of("Layout in objects", &objects);
    text += &bytes_of("RangeSet", &ranges);
    text += &bytes_of("pair", &(EntryId(300), OstId(2)));
    text += &bytes_of("u8", &200u8);
    text += &bytes_of("u16", &300u16);
    text += &bytes_of("u32", &70_000u32);
    text += &bytes_of("u64", &u64::MAX);
    text += &bytes_of("i32", &-3i32);
    text += &bytes_of("i64", &i64::MIN);
    text += &bytes_of("bool", &true);
    text += &bytes_of("fixed bytes", &[7u8; 8]);
    text += &bytes_of("bytes", &b"ab".to_vec());
    text += &bytes_of("text", &"ab".to_owned());
    text += &bytes_of("list", &vec![OstId(1), OstId(300)]);
    text += &bytes_of("something", &Some(5u64));
    text += &bytes_of("nothing", &None::<u64>);
    text += &bytes_of("SchemaDigest", &SchemaDigest(Some([1; 8])));
    text
}

/// What stands before messages and blocks.
fn heads() -> String {
    let mut message = Writer::new();
    encode(&Message::Finish { is_complete: true }, &mut message);
    assert_eq!(message.len(), LENGTH_BYTES + 2);
    let row = |is_whole| Row {
        block: Block { entry: EntryId(2), offset: 4096, length: 300 },
        is_whole,
        checksum: 0x0102_0304_0506_0708,
    };
    let frame = |is_last_grant, has_only_sums| {
        let bound = Bound { sink_ost: OstId(3), is_last_grant, has_only_sums };
        let mut head = Vec::new();
        put_head(&[row(false), row(true)], 7, bound, &mut head);
        hex(&head)
    };
    let packet = |channel| hex(&Packet { channel, bytes: 258 }.head());
    format!(
        "message: {}\nframe, last grant: {}\nframe of sums: {}\npacket of messages: {}\npacket of \
         stream 1: {}\n",
        hex(&message),
        frame(true, false),
        frame(false, true),
        packet(Channel::Messages),
        packet(Channel::Stream(StreamId(1)))
    )
}

#[test]
fn the_description_of_messages_and_frames_is_what_the_code_says() {
    let text = format!("{}\n{}\n{}", forms(), examples(), heads());
    expect_file!["messages.txt"].assert_eq(&text);
}

/// The names and types of the fields in a line of the description.
fn fields_of(line: &str) -> &str {
    match line.strip_prefix("  ") {
        // After the number and the name of a choice.
        Some(choice) => choice.splitn(3, ' ').nth(2).unwrap_or_default(),
        None => line.split_once(" = ").map_or("", |(_, fields)| fields),
    }
}

/// Every type of a field is described: in a line of its own, or by bytes.
#[test]
fn every_type_of_a_field_is_described() {
    let (forms, examples) = (forms(), examples());
    let transports = include_str!("transports.txt");
    let is_name = |word: &&str| word.chars().next().is_some_and(char::is_uppercase);
    let lines = forms.lines().chain(transports.lines());
    let words = lines.flat_map(|line| fields_of(line).split([' ', '<', '>', ',', '(', ')']));
    for name in words.filter(is_name) {
        let is_described = [forms.as_str(), transports].iter().any(|text| {
            let begins = |line: &str| {
                line.starts_with(&format!("{name} = ")) || line == format!("{name} is one of")
            };
            text.lines().any(begins)
        }) || examples.lines().any(|line| line.starts_with(name))
            || ["Vec", "Option", "String"].contains(&name);
        assert!(is_described, "{name} is not described");
    }
}

/// If this fails, the wire has changed. Builds with another digest are refused, so nothing goes
/// wrong; but if a version with the old one was released, raise `VERSION`, so that people are told
/// two versions. Then `UPDATE_EXPECT=1` writes the digest anew.
#[test]
fn this_version_means_this_wire() {
    let pinned = format!("protocol {VERSION}, wire {}", SchemaDigest(Some(DIGEST)));
    expect!["protocol 2, wire 8241a05791da243f"].assert_eq(&pinned);
}

#[test]
fn to_move_a_type_changes_nothing_and_to_swap_fields_does() {
    let here = struct_form("a::b::C", &[("x", "u64"), ("y", "alloc::vec::Vec<d::E>")]);
    assert_eq!(here, "C = x: u64, y: Vec<E>\n");
    assert_ne!(here, struct_form("a::b::C", &[("y", "alloc::vec::Vec<d::E>"), ("x", "u64")]));
}
