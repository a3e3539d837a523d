use super::*;
use crate::ceph::ObjectStriping;
use crate::entry::{Entry, Identity, Kind, Metadata, Timestamp, Xattr};
use crate::layout::{Layout, Part};
use crate::limits::*;
use crate::message::{Answer, BusyOst, Ending, OstBytes, Question, Root, Verb};
use crate::placement::Striping;
use crate::range::RangeSet;
use crate::room::Lot;
use crate::units::OstId;

fn entry(id: u64, parent: u64, name: &[u8], kind: Kind) -> Entry {
    let (id, parent, name) = (EntryId(id), EntryId(parent), name.to_vec());
    Entry { id, parent, name, kind, metadata: Metadata::default() }
}

fn file_kind(size: u64) -> Kind {
    Kind::File {
        identity: Identity { size, ..Identity::default() },
        data_bytes: size,
        striping: Striping::default(),
        source_ost: OstId(0),
        is_different: false,
    }
}

fn file(id: u64, parent: u64) -> Entry {
    entry(id, parent, b"name", file_kind(10))
}

fn directory(id: u64, parent: u64) -> Entry {
    entry(id, parent, b"name", Kind::Directory)
}

/// A sink that has heard ROOTS and of these entries.
fn sink(entries: &[Entry]) -> AtSink {
    let mut gate = AtSink::default();
    gate.on_roots();
    entries.iter().for_each(|entry| gate.on_announced(entry));
    gate
}

fn announces(gate: &AtSink, entries: Vec<Entry>) -> Result<(), ProtocolError> {
    gate.check(&Message::NewFile(entries))
}

fn ends(gate: &AtSink, id: u64, ending: Ending) -> Result<(), ProtocolError> {
    gate.check(&Message::FileDone(vec![(EntryId(id), ending)]))
}

#[track_caller]
fn refused(result: Result<(), ProtocolError>) {
    result.expect_err("it was taken");
}

#[test]
fn nothing_comes_before_roots_and_roots_come_once() {
    let gate = AtSink::default();
    let early = [
        Message::Finish { is_complete: true },
        Message::NewFile(vec![file(1, 0)]),
        Message::FileDone(Vec::new()),
    ];
    early.iter().for_each(|message| refused(gate.check(message)));
    assert_eq!(gate.check(&Message::Roots(Vec::new())), Ok(()));
    assert_eq!(gate.check(&Message::Stop("enough".into())), Ok(()));
    refused(sink(&[]).check(&Message::Roots(Vec::new())));
}

#[test]
fn questions_are_about_names_below_the_root() {
    let gate = AtSource::new(1);
    let asks = |directory: &[u8], names: &[&[u8]]| {
        let names = names.iter().map(|name| name.to_vec()).collect();
        gate.check(&Message::AreThere(Question { number: 1, directory: directory.to_vec(), names }))
    };
    for name in [&b""[..], b"..", b".", b"../x", b"/etc", b"a/b", b"a\0b", &[b'x'; 256]] {
        refused(asks(b"", &[b"fine", name]));
    }
    for directory in [&b"/"[..], b"..", b"a/..", b"./a", b"a//b", b"/etc", &[b'x'; 5000]] {
        refused(asks(directory, &[b"fine"]));
    }
    refused(asks(b"", &[]));
    refused(asks(b"", &[b"name".as_slice(); QUESTION_NAMES_MAX + 1]));
    refused(gate.check(&Message::Removed(SUM_MAX + 1)));
    assert_eq!(asks(b"", &[b"name".as_slice(); QUESTION_NAMES_MAX]), Ok(()));
    assert_eq!(asks(b"a/b", &[b"name"]), Ok(()));
    refused(sink(&[]).check(&Message::Removed(1)));
}

#[test]
fn roots_have_names_that_lead_nowhere_else() {
    let root = |name: &[u8]| {
        let name = name.to_vec();
        Message::Roots(vec![Root { name, is_directory: false, is_contents_only: false }])
    };
    let gate = AtSink::default();
    for name in [&b""[..], b"..", b"a/b", b"/", b"a\0"] {
        refused(gate.check(&root(name)));
    }
    assert_eq!(gate.check(&root(b"run7")), Ok(()));
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    let gate = sink(&[directory(1, 0)]);
    for name in [&b""[..], b"..", b"../x", b"/etc/passwd", b"a/b", b"a\0b", &[b'x'; 256]] {
        refused(announces(&gate, vec![entry(2, 1, name, file_kind(1))]));
        refused(announces(&gate, vec![entry(2, 1, name, Kind::Directory)]));
    }
    refused(announces(&gate, vec![entry(2, 1, b".", Kind::Directory)]));
    refused(announces(&gate, vec![entry(2, 0, b".", file_kind(1))]));
    assert_eq!(announces(&gate, vec![entry(2, 0, b".", Kind::Directory)]), Ok(()));
    for target in [&b""[..], b"..", b"/x", b"a/../../b", b"a//b"] {
        let kind = Kind::HardLink { target: target.to_vec() };
        refused(announces(&gate, vec![entry(2, 1, b"name", kind)]));
    }
}

#[test]
fn a_number_in_use_is_refused_and_a_free_one_is_not() {
    let mut gate = sink(&[directory(1, 0), file(2, 1)]);
    for id in [0, 1, 2] {
        refused(announces(&gate, vec![file(id, 0)]));
    }
    refused(announces(&gate, vec![file(3, 0), file(3, 0)]));
    gate.on_ended(EntryId(2));
    assert_eq!(announces(&gate, vec![file(2, 1)]), Ok(()));
}

#[test]
fn entries_lie_in_directories_that_are_open() {
    let mut gate = sink(&[directory(1, 0), file(2, 1)]);
    for parent in [2, 3, 9] {
        refused(announces(&gate, vec![file(9, parent)]));
    }
    assert_eq!(announces(&gate, vec![directory(3, 1), file(4, 3)]), Ok(()));
    refused(announces(&gate, vec![file(4, 3), directory(3, 1)]));
    refused(announces(&gate, vec![directory(3, 3)]));
    assert!(gate.on_closing(EntryId(1)));
    refused(announces(&gate, vec![file(9, 1)]));
}

#[test]
fn what_no_file_system_has_is_refused() {
    let gate = sink(&[]);
    let late = Timestamp { seconds: 0, nanos: 1_000_000_000 };
    let identity = Identity { size: 10, ..Identity::default() };
    let kind = |identity, data_bytes, striping, source_ost| Kind::File {
        identity,
        data_bytes,
        striping,
        source_ost: OstId(source_ost),
        is_different: false,
    };
    let plain = Striping::default();
    let kinds = [
        kind(Identity { size: FILE_BYTES_MAX + 1, ..identity }, 0, plain, 0),
        kind(identity, 11, plain, 0),
        kind(Identity { mtime: late, ..identity }, 10, plain, 0),
        kind(Identity { ctime: late, ..identity }, 10, plain, 0),
        kind(identity, 10, Striping { size: 1, count: 2001 }, 0),
        kind(identity, 10, plain, OSTS_MAX),
        Kind::Symlink { target: Vec::new() },
        Kind::Symlink { target: vec![b'x'; LINK_BYTES_MAX + 1] },
        Kind::Symlink { target: b"a\0b".to_vec() },
    ];
    for kind in kinds {
        refused(announces(&gate, vec![entry(1, 0, b"name", kind)]));
    }
    let xattr = |name: &[u8], bytes: usize| Metadata {
        xattrs: vec![Xattr { name: name.to_vec(), value: vec![0; bytes] }],
        ..Metadata::default()
    };
    let sound = Metadata::default();
    let all = [
        Metadata { mode: 0o10000, ..sound.clone() },
        Metadata { uid: u32::MAX, ..sound.clone() },
        Metadata { gid: u32::MAX, ..sound.clone() },
        Metadata { mtime: late, ..sound },
        xattr(b"", 1),
        xattr(b"user.a\0", 1),
        xattr(&[b'x'; 256], 1),
        xattr(b"user.a", XATTR_VALUE_BYTES_MAX + 1),
    ];
    for metadata in all {
        refused(announces(&gate, vec![Entry { metadata, ..file(1, 0) }]));
    }
    let metadata = xattr(b"user.a", XATTR_VALUE_BYTES_MAX);
    assert_eq!(announces(&gate, vec![Entry { metadata, ..file(1, 0) }]), Ok(()));
}

#[test]
fn attributes_are_bounded_for_an_entry_and_for_all_that_have_not_ended() {
    let with_attributes = |id: u64, count: usize| {
        let xattr = Xattr { name: b"user.a".to_vec(), value: vec![0; XATTR_VALUE_BYTES_MAX] };
        let metadata = Metadata { xattrs: vec![xattr; count], ..Metadata::default() };
        Entry { metadata, ..file(id, 0) }
    };
    let mut gate = sink(&[]);
    refused(announces(&gate, vec![with_attributes(1, 17)]));
    let mut id = 0;
    let full = loop {
        id += 1;
        let entry = with_attributes(id, 15);
        if announces(&gate, vec![entry.clone()]).is_err() {
            break id;
        }
        gate.on_announced(&entry);
    };
    // 16 MiB that a source waits for, 64 that one batch may be beyond it, 48 of directories.
    assert!((128..140).contains(&full), "{full}");
    gate.on_ended(EntryId(1));
    assert_eq!(announces(&gate, vec![with_attributes(full, 15)]), Ok(()));
}

#[test]
fn entries_and_directories_that_have_not_ended_are_bounded() {
    for (kind, limit) in [(file_kind(1), ENTRIES_OPEN_MAX), (Kind::Directory, DIRECTORIES_OPEN_MAX)]
    {
        let count = (limit + BATCH_ENTRIES_MAX) as u64;
        let all: Vec<Entry> = (1..=count).map(|id| entry(id, 0, b"name", kind.clone())).collect();
        let mut gate = sink(&all);
        let one_more = || vec![entry(count + 1, 0, b"name", kind.clone())];
        refused(announces(&gate, one_more()));
        gate.on_ended(EntryId(7));
        assert_eq!(announces(&gate, one_more()), Ok(()));
    }
}

#[test]
fn directories_are_so_deep_and_no_deeper() {
    let chain = |count: u32| (1..=u64::from(count)).map(|id| directory(id, id - 1)).collect();
    let deepest = DEPTH_MAX + 1;
    assert_eq!(announces(&sink(&[]), chain(deepest)), Ok(()));
    refused(announces(&sink(&[]), chain(deepest + 1)));
    let all: Vec<Entry> = chain(deepest);
    let gate = sink(&all);
    let id = u64::from(deepest);
    refused(announces(&gate, vec![directory(id + 1, id)]));
    assert_eq!(announces(&gate, vec![file(id + 1, id)]), Ok(()));
}

#[test]
fn only_what_was_announced_is_ended_and_directories_once() {
    let mut gate = sink(&[directory(1, 0), file(2, 1)]);
    for id in [0, 3] {
        refused(ends(&gate, id, Ending::Complete));
        refused(ends(&gate, id, Ending::Dropped));
    }
    assert_eq!(ends(&gate, 2, Ending::Dropped), Ok(()));
    refused(ends(&gate, 1, Ending::Dropped));
    let failure = crate::issue::Failure::new(
        crate::issue::Side::Source,
        crate::issue::Operation::Read,
        crate::issue::Reason::Changed,
    );
    refused(ends(&gate, 2, Ending::Failed(failure)));
    assert_eq!(ends(&gate, 1, Ending::Complete), Ok(()));
    assert!(gate.on_closing(EntryId(1)));
    refused(ends(&gate, 1, Ending::Complete));
    assert!(!gate.on_closing(EntryId(2)), "a file is not closed");
    refused(gate.check(&Message::Finish { is_complete: true }));
    gate.on_ended(EntryId(2));
    let finish = Message::Finish { is_complete: true };
    assert_eq!(gate.check(&finish), Ok(()), "only directories are left, and they are closing");
    gate.on_announced(&directory(3, 0));
    refused(gate.check(&finish));
}

#[test]
fn the_end_of_an_unsized_file_has_a_possible_size_and_time() {
    let gate = sink(&[file(1, 0)]);
    let at = |size, nanos| {
        let mtime = Timestamp { seconds: 1, nanos };
        ends(&gate, 1, Ending::CompleteAt { size, mtime })
    };
    assert_eq!(at(FILE_BYTES_MAX, 999_999_999), Ok(()));
    refused(at(FILE_BYTES_MAX + 1, 0));
    refused(at(1, 1_000_000_000));
}

#[test]
fn a_directory_is_closed_after_those_in_it() {
    let mut gate = sink(&[directory(1, 0), directory(2, 1), directory(3, 1), file(4, 3)]);
    assert!(!gate.on_closing(EntryId(1)), "two are open in it");
    assert!(gate.on_closing(EntryId(2)));
    assert_eq!(gate.on_ended(EntryId(2)), None, "one is still open in it");
    assert_eq!(gate.on_ended(EntryId(4)), None);
    assert!(gate.on_closing(EntryId(3)));
    assert_eq!(gate.on_ended(EntryId(3)), Some(EntryId(1)));
    assert_eq!(gate.on_ended(EntryId(1)), None);
}

#[test]
fn each_end_says_only_what_is_its_own() {
    let of_a_sink = [
        Message::Ready { ost_count: 1, open_files_max: 1, is_renamed: false, time_unit_nanos: 1 },
        Message::FileId(Vec::new()),
        Message::Grant(Lot::default()),
        Message::Finished(Counters::default()),
        Message::PlaceAgain(Vec::new()),
    ];
    of_a_sink.iter().for_each(|message| refused(sink(&[]).check(message)));
    let of_a_source = [
        Message::Roots(Vec::new()),
        Message::NewFile(Vec::new()),
        Message::Finish { is_complete: true },
        Message::Frames(Vec::new()),
        Message::Staged(1),
        Message::Job(Vec::new()),
    ];
    of_a_source.iter().for_each(|message| refused(AtSource::new(1).check(message)));
    assert_eq!(sink(&[]).check(&Message::Frames(vec![0; 256])), Ok(()));
    refused(sink(&[]).check(&Message::Frames(vec![0; 257])));
}

/// What a sink with four OSTs says.
fn says(message: &Message) -> Result<(), ProtocolError> {
    let mut gate = AtSource::new(2);
    gate.on_ready(4);
    gate.check(message)
}

fn wants(layout: Option<Layout>) -> Result<(), ProtocolError> {
    let answer = Answer::Want { done: RangeSet::new(), layout: layout.expect("a sound layout") };
    says(&Message::FileId(vec![(EntryId(1), answer)]))
}

#[test]
fn a_sink_is_ready_once_and_has_a_possible_number_of_osts() {
    let ready = |ost_count, open_files_max, time_unit_nanos| Message::Ready {
        ost_count,
        open_files_max,
        is_renamed: false,
        time_unit_nanos,
    };
    let mut gate = AtSource::new(1);
    for (ost_count, open_files_max) in [(0, 1), (OSTS_MAX + 1, 1), (u32::MAX, 1), (1, 0)] {
        refused(gate.check(&ready(ost_count, open_files_max, 1)));
    }
    assert_eq!(gate.check(&ready(OSTS_MAX, 1, 2_000_000_000)), Ok(()));
    refused(gate.check(&ready(OSTS_MAX, 1, 2_000_000_001)));
    gate.on_ready(1);
    refused(gate.check(&ready(1, 1, 1)));
}

#[test]
fn layouts_are_on_osts_that_there_are_and_in_whole_pages() {
    let osts = |numbers: &[u32]| numbers.iter().map(|&ost| OstId(ost)).collect::<Vec<_>>();
    assert_eq!(wants(Some(Layout::on(OstId(3)))), Ok(()));
    assert_eq!(wants(Layout::striped(4096, osts(&[0, 3]))), Ok(()));
    refused(wants(Some(Layout::on(OstId(4)))));
    refused(wants(Layout::striped(4096, osts(&[0, u32::MAX]))));
    for stripe_size in [1, 4095, 4097] {
        refused(wants(Layout::striped(stripe_size, osts(&[0, 1]))));
    }
    let part = |end, numbers| Part { end, stripe_size: 4096, osts: osts(numbers) };
    refused(wants(Layout::composite([part(5000, &[0, 1]), part(u64::MAX, &[2, 3])])));
    assert_eq!(wants(Layout::composite([part(8192, &[0]), part(u64::MAX, &[2, 3])])), Ok(()));
    let objects = |unit: u32| {
        let striping = ObjectStriping::new(unit, 2, 4 * unit).expect("whole units");
        Layout::in_objects(striping, &osts(&[0, 1]))
    };
    assert_eq!(wants(objects(4096)), Ok(()));
    refused(wants(objects(1)));
}

#[test]
fn grants_are_for_osts_that_there_are() {
    let grant = |ost, count| says(&Message::Grant(Lot::of(vec![(OstId(ost), count)])));
    assert_eq!(grant(3, 1000), Ok(()));
    refused(grant(4, 1));
    refused(grant(u32::MAX, 1));
    refused(grant(0, u32::MAX));
    let none = |frames| says(&Message::Grant(Lot { frames, osts: Vec::new() }));
    assert_eq!(none(1000), Ok(()));
    refused(none(u32::MAX));
    // Before READY it is not known how many there are.
    let early = Message::Grant(Lot::of(vec![(OstId(OSTS_MAX), 1)]));
    refused(AtSource::new(1).check(&early));
}

#[test]
fn blocks_have_a_length_and_an_end() {
    for (offset, length) in [(0, 0), (u64::MAX, 1), (0, u64::MAX), (0, (64 << 20) + 1)] {
        let range = vec![BlockRange { entry: EntryId(1), offset, length }];
        refused(says(&Message::BlockDone(range.clone())));
        refused(says(&Message::BlockBad(range)));
    }
}

#[test]
fn a_stream_that_there_is_ends_once() {
    let end = |stream| Message::StreamEnd { stream, frames: u64::MAX };
    let mut gate = AtSource::new(2);
    refused(gate.check(&end(2)));
    refused(gate.check(&end(u16::MAX)));
    assert_eq!(gate.check(&end(1)), Ok(()));
    gate.on_stream_end(1);
    refused(gate.check(&end(1)));
    assert_eq!(gate.check(&end(0)), Ok(()));
}

#[test]
fn news_are_read_by_who_has_a_person_and_are_bounded() {
    let text = |bytes| "x".repeat(bytes);
    let failure = crate::issue::Failure::new(
        crate::issue::Side::Sink,
        crate::issue::Operation::Write,
        crate::issue::Reason::Os(28),
    );
    let issue = |bytes| Message::Issues(vec![Issue { path: vec![b'x'; bytes], failure }]);
    let line = |bytes| {
        let path = vec![b'x'; bytes];
        Message::Lines(vec![Line { verb: Verb::Send, path, bytes: 1 }])
    };
    let counters = |bytes| {
        let busiest_ost = Some(BusyOst { name: text(bytes), ..BusyOst::default() });
        Message::Progress(Counters { busiest_ost, ..Counters::default() })
    };
    let osts = |count| Message::OstBytes(OstBytes { elapsed_micros: 1, bytes: vec![0; count] });
    let news = [
        (Message::Notice(text(TEXT_BYTES_MAX)), Message::Notice(text(TEXT_BYTES_MAX + 1))),
        (issue(PATH_BYTES_MAX), issue(PATH_BYTES_MAX + 1)),
        (line(PATH_BYTES_MAX), line(PATH_BYTES_MAX + 1)),
        (counters(TEXT_BYTES_MAX), counters(TEXT_BYTES_MAX + 1)),
        (osts(OSTS_MAX as usize), osts(OSTS_MAX as usize + 1)),
    ];
    for (bounded, long) in news {
        assert!(is_news(&bounded));
        assert_eq!(check_news(&bounded, Reader::Person), Ok(()));
        refused(check_news(&bounded, Reader::Nobody));
        refused(check_news(&long, Reader::Person));
        let mut cut = long.clone();
        cut_news(&mut cut);
        let has_text = matches!(cut, Message::Notice(_) | Message::Progress(_));
        assert_eq!(check_news(&cut, Reader::Person).is_ok(), has_text, "{cut:?}");
        let mut same = bounded.clone();
        cut_news(&mut same);
        assert_eq!(same, bounded);
    }
    let different = Line { verb: Verb::OtherSize, path: Vec::new(), bytes: 0 };
    let different = Message::Lines(vec![different]);
    assert_eq!(check_news(&different, Reader::PersonWhoCompares), Ok(()));
    refused(check_news(&different, Reader::Person));
    let fatal = |bytes| Message::Fatal { code: 1, text: text(bytes) };
    assert_eq!(check_news(&fatal(10), Reader::Nobody), Ok(()));
    refused(check_news(&fatal(TEXT_BYTES_MAX + 1), Reader::Person));
    let mut umlauts = Message::Notice("ä".repeat(TEXT_BYTES_MAX));
    cut_news(&mut umlauts);
    assert_eq!(check_news(&umlauts, Reader::Person), Ok(()));
}

#[test]
fn the_numbers_of_reduced_entries_are_bounded() {
    let counted = |count| {
        let reduced = crate::reduction::ReducedCounts { times: count, ..Default::default() };
        Message::Progress(Counters { reduced, ..Counters::default() })
    };
    assert_eq!(check_news(&counted(SUM_MAX), Reader::Person), Ok(()));
    refused(check_news(&counted(SUM_MAX + 1), Reader::Person));
}
