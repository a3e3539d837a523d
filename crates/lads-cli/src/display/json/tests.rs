use super::super::issue::{describe, tests::places};
use super::super::summary::tests::{report, settings};
use super::*;
use lads_core::issue::{Failure, Side};
use lads_core::message::Verb;
use lads_core::reduction::{Reduction, Reductions};
use lads_core::units::OstId;
use serde_json::Value;
use std::time::Duration;

const SCHEMA: &str = include_str!("../../../../../docs/lads-events.schema.json");
const DOCUMENT: &str = include_str!("../../../../../docs/json.md");

/// Returns every kind of event, as the document shows them.
fn examples() -> Vec<String> {
    let figures = Figures {
        bytes_written: 601 << 30,
        bytes_done: 600 << 30,
        bytes_found: 1200 << 30,
        files_found: 4193,
        percent: Some(50),
        bytes_per_second: 9_712_185_026.0,
        remaining: Some(Duration::from_millis(66_334)),
        ..Figures::default()
    };
    let mut half = report().progress;
    half.elapsed = Duration::from_secs(66);
    half.source.files_moved = 2000;
    half.source.bytes_sent = 599 << 30;
    half.source.blocks_sent = 599 << 10;
    let failure = Failure::new(Side::Sink, Operation::Write, Reason::Os(28));
    let failure = failure.of_block(112 << 20, 1 << 20, OstId(7));
    let no_space = Issue { path: b"run7/ckpt.0041".to_vec(), failure };
    let sent = Line { verb: Verb::Send, path: b"run7/ckpt.0041".to_vec(), bytes: 1_258_291 };
    let path = b"run7/ckpt.0042".to_vec();
    let different = Line { verb: Verb::OtherContents, path, bytes: 1_258_291 };
    let skipped = Line { verb: Verb::Skip, path: b"run7/caf\xe9".to_vec(), bytes: 0 };
    vec![
        start(&places(), &settings()),
        progress(&half, &figures),
        ost_bytes(Side::Sink, &OstBytes { elapsed_micros: 66_000_125, bytes: vec![0, 1 << 30] }),
        line(&sent),
        line(&skipped),
        line(&different),
        issue(&no_space, &describe(&no_space, &places()), &places()),
        notice("direct I/O is not possible at the source; reading through the page cache"),
        reduced(&reduced::Described::new((Reduction::Acls, 12))),
        matching(Duration::from_millis(9100), Side::Source, &few_requests()),
        retry(&Retry {
            attempt: 2,
            message: "lost the connection to dtn2: connection reset; the same command resumes"
                .into(),
            wait: Duration::from_millis(750),
        }),
        summary(&report(), &settings(), &places(), &Differences::default()),
    ]
}

fn few_requests() -> Requests {
    Requests {
        in_flight: 2,
        files: 2,
        request_bytes: 1 << 20,
        limit: 1,
        why: Why::Less,
        gain_per_mille: 1752,
        io: Io::Direct,
    }
}

#[test]
fn the_document_shows_what_is_told() {
    let parse = |line: &str| serde_json::from_str::<Value>(line).expect("it is JSON");
    let shown = DOCUMENT.lines().filter(|line| line.starts_with("{\"version\""));
    let shown: Vec<Value> = shown.map(parse).collect();
    let told: Vec<Value> = examples().iter().map(|line| parse(line)).collect();
    assert_eq!(shown.len(), told.len());
    for (shown, told) in shown.iter().zip(&told) {
        assert_eq!(shown, told);
    }
}

#[test]
fn every_event_is_as_the_schema_says() {
    let mut events = examples();
    events.push(refusal(ExitCode::Usage, "no"));
    use Reason::{
        Archived, Changed, Checksum, Dangling, InTheWay, LargeMetadata, Limit, Loop, ManyNames,
        Media, Os, ParentFailed, SameFile, Special, TooDeep, UnsafeName, Vanished,
    };
    let of_files = [Os(999), Changed, Vanished, Checksum, Media, Special, InTheWay, ParentFailed];
    let of_trees = [UnsafeName, Archived, LargeMetadata, TooDeep, Limit, ManyNames, Dangling, Loop];
    for reason in of_files.into_iter().chain(of_trees).chain([SameFile]) {
        let failure = Failure::new(Side::Source, Operation::Open, reason);
        let plain = Issue { path: b"run7/\xff".to_vec(), failure };
        events.push(issue(&plain, &describe(&plain, &places()), &places()));
    }
    for (why, io) in [
        (Why::Fixed, Io::Absent),
        (Why::Guess, Io::Buffered),
        (Why::Less, Io::Uncached),
        (Why::More, Io::Direct),
    ] {
        let requests = Requests { why, io, ..few_requests() };
        events.push(matching(Duration::ZERO, Side::Sink, &requests));
    }
    let mut matched = report();
    matched.progress.source.requests = Some(few_requests());
    events.push(summary(&matched, &settings(), &places(), &Differences::default()));
    let mut without_metadata = report();
    for kind in Reduction::ALL {
        let mut reductions = Reductions::default();
        reductions.insert(kind);
        without_metadata.progress.sink.reduced.add(reductions);
        events.push(reduced(&reduced::Described::new((kind, 1))));
    }
    events.push(summary(&without_metadata, &settings(), &places(), &Differences::default()));
    events.push(progress(&Progress::default(), &Figures::default()));
    for exit_code in [ExitCode::Different, ExitCode::Running, ExitCode::Limit, ExitCode::Reduced] {
        let report = Report { exit_code, ..report() };
        events.push(summary(&report, &settings(), &places(), &Differences::default()));
    }
    let schema: Value = serde_json::from_str(SCHEMA).expect("it is JSON");
    for event in events {
        let event: Value = serde_json::from_str(&event).expect("it is JSON");
        let kind = event["event"].as_str().expect("it has a kind");
        check(&schema, &schema["$defs"][kind], &event, kind);
    }
}

#[test]
fn every_word_is_in_the_schema() {
    for operation in Operation::ALL {
        assert!(SCHEMA.contains(&format!("\"{}\"", super::operation(operation))));
    }
}

/// Checks a value against the schema, as far as the schema's keywords are used here. Keys that the
/// schema does not name are errors here, though a reader must accept them.
fn check(root: &Value, schema: &Value, value: &Value, place: &str) {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.strip_prefix("#/$defs/").expect("all are there");
        return check(root, &root["$defs"][name], value, place);
    }
    if let Some(expected) = schema.get("const") {
        assert_eq!(value, expected, "{place}");
    }
    if let Some(words) = schema["enum"].as_array() {
        assert!(words.contains(value), "{place}: {value}");
    }
    let is_one_of = |types: &Value| match types {
        Value::Array(types) => types.iter().any(|name| is_type(name, value)),
        name => is_type(name, value),
    };
    assert!(schema.get("type").is_none_or(is_one_of), "{place}: {value}");
    if let Some(min) = schema["minimum"].as_f64() {
        assert!(value.as_f64().is_none_or(|number| number >= min), "{place}: {value}");
    }
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        check(root, &schema["items"], item, &format!("{place}[{index}]"));
    }
    let Some(members) = value.as_object() else { return };
    for (key, member) in members {
        let known = schema["properties"].get(key);
        let known = known.unwrap_or_else(|| panic!("{place}.{key} is not in the schema"));
        check(root, known, member, &format!("{place}.{key}"));
    }
    for key in schema["required"].as_array().into_iter().flatten() {
        assert!(members.contains_key(key.as_str().unwrap()), "{place}.{key} is missing");
    }
}

fn is_type(name: &Value, value: &Value) -> bool {
    match name.as_str().expect("a type has a name") {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        other => panic!("this check does not know the type {other}"),
    }
}
