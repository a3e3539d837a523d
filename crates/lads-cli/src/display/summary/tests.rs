use super::*;
use crate::display::issue::tests::places;
use crate::display::{Meters, Style};
use expect_test::{Expect, expect};
use lads_core::bottleneck::Bottleneck;
use lads_core::matching::Why;
use lads_core::message::{BusyOst, Counters, Line, Verb};
use lads_core::pool::{Io, Requests};
use lads_core::protection::Protection;
use lads_engine::{Progress, Verify};
use std::time::Duration;

pub(in crate::display) fn settings() -> Settings {
    Settings {
        is_quiet: false,
        detail: Detail::Brief,
        is_json: false,
        is_dry_run: false,
        is_check: false,
        verify: Some(Verify::Wire),
        is_durable: true,
        log: None,
        style: Style { has_color: false },
        meters: Meters::None,
    }
}

/// Returns the report of a transfer that went well.
pub(in crate::display) fn report() -> Report {
    let source = Counters {
        files_found: 4193,
        directories_found: 12,
        bytes_found: 1200 << 30,
        is_walk_ended: true,
        files_moved: 4190,
        files_verified: 4190,
        files_skipped: 3,
        files_unread: 3,
        bytes_unread: 3 << 30,
        bytes_done: 1200 << 30,
        bytes_skipped: 3 << 30,
        bytes_sent: 1198 << 30,
        blocks_sent: 1_226_752,
        blocks_resent: 2,
        cpu_micros: 61_000_000,
        memory_bytes_peak: 310 << 20,
        busiest_ost: Some(BusyOst {
            name: "OST0007".to_owned(),
            busy_micros: 80_100_000,
            bytes: 40 << 30,
        }),
        storage_micros: 500_000_000,
        network_micros: 90_000_000,
        stream_count: 4,
        ..Counters::default()
    };
    let sink = Counters { cpu_micros: 70_200_000, memory_bytes_peak: 305 << 20, ..source.clone() };
    Report {
        exit_code: ExitCode::Ok,
        message: None,
        progress: Progress {
            elapsed: Duration::from_millis(132_000),
            source,
            sink: Counters { busiest_ost: None, ..sink },
            bottleneck: Some(Bottleneck::SourceStorage),
            current: None,
        },
        issue_count: 0,
        protection: Some(Protection::Aes128Gcm),
        is_port_blocked: false,
        attempt_count: 1,
    }
}

/// Returns the summary of a transfer with this number of issues.
fn summary_with(report: &Report, settings: &Settings, issues: &IssueCount) -> Vec<String> {
    let (differences, changes) = (&Differences::default(), &Changes::default());
    lines(report, settings, &places(), Counted { issues, differences, changes })
}

fn summary(report: &Report, settings: &Settings) -> Vec<String> {
    summary_with(report, settings, &IssueCount::default())
}

fn check(report: &Report, settings: &Settings, expected: &Expect) {
    let told = summary(report, settings).join("\n");
    // The lines of this file are shorter than the line of the outcome, so it is broken up.
    expected.assert_eq(&told.replace("; ", ";\n").replace(", durable", ",\ndurable"));
}

#[test]
fn the_summary_has_two_lines_by_default() {
    check(
        &report(),
        &settings(),
        &expect![[r#"
        lads: done: 4,190 files (1.2 TiB) moved in 2 min 12 s (9.74 GB/s),
        durable and verified (wire);
        3 files skipped (same size and time, not read)
              bottleneck storage (source)"#]],
    );
    let mut short = report();
    short.progress.elapsed = Duration::from_millis(2900);
    assert_eq!(summary(&short, &settings()).len(), 1, "too short for a bottleneck");
    short.progress.elapsed = Duration::from_secs(3);
    assert_eq!(summary(&short, &settings()).len(), 2);
}

#[test]
fn more_detail_adds_a_table_of_figures() {
    let full = Settings { detail: Detail::Full, ..settings() };
    check(
        &report(),
        &full,
        &expect![[r#"
            lads: done: 4,190 files (1.2 TiB) moved in 2 min 12 s (9.74 GB/s),
            durable and verified (wire);
            3 files skipped (same size and time, not read)
                  moved      4,190 files, 1.2 TiB in 2 min 12 s (9.74 GB/s)
                  skipped    3 files, 3.0 GiB: same size and time, not read
                  resent     2 blocks
                  verified   the checksum of every moved block, before it was made durable
                  CPU        source 1 min 01 s, sink 1 min 10 s
                  memory     source 310.0 MiB, sink 305.0 MiB at most
                  busiest    source OST0007: busy for 61 % of the time, with 40.0 GiB
                  bottleneck storage (source)
                  security   data encrypted (AES-128-GCM)"#]],
    );
    let verify = Some(Verify::Media);
    let everything = Settings { detail: Detail::Everything, verify, ..settings() };
    check(
        &report(),
        &everything,
        &expect![[r#"
            lads: done: 4,190 files (1.2 TiB) moved in 2 min 12 s (9.74 GB/s),
            durable and verified (media);
            3 files skipped (same size and time, not read)
                  moved      4,190 files, 1.2 TiB in 2 min 12 s (9.74 GB/s)
                  skipped    3 files, 3.0 GiB: same size and time, not read
                  resent     2 blocks
                  verified   the checksum of every moved block, read back from storage
                  CPU        source 1 min 01 s, sink 1 min 10 s
                  memory     source 310.0 MiB, sink 305.0 MiB at most
                  busiest    source OST0007: busy for 61 % of the time, with 40.0 GiB
                  in storage source 8 min 20 s, sink 8 min 20 s
                  in network source 1 min 30 s, sink 1 min 30 s
                  streams    source 4, sink 4
                  sent       1,226,752 blocks, 1.2 TiB
                  bottleneck storage (source)
                  security   data encrypted (AES-128-GCM)"#]],
    );
}

#[test]
fn a_better_number_of_requests_that_was_found_is_reported() {
    let mut report = report();
    let requests = Requests {
        in_flight: 128,
        files: 80,
        request_bytes: 1 << 20,
        limit: 128,
        why: Why::Guess,
        gain_per_mille: 1000,
        io: Io::Buffered,
    };
    report.progress.sink.requests = Some(requests);
    let few = Requests { in_flight: 2, files: 1, limit: 1, io: Io::Direct, ..requests };
    let few = Requests { why: Why::Less, gain_per_mille: 1752, ..few };
    report.progress.source.requests = Some(few);
    let told = |detail| {
        let lines = summary(&report, &Settings { detail, ..settings() });
        let told = lines.into_iter().filter(|line| line.contains(" in flight "));
        told.collect::<Vec<_>>().join("\n").replace("; ", ";\n")
    };
    expect![[r#"
              reads      2 in flight over 1 file, 1.0 MiB each, direct;
        at most 1: 1.75 times the rate"#]]
    .assert_eq(&told(Detail::Full));
    expect![[r#"
              reads      2 in flight over 1 file, 1.0 MiB each, direct;
        at most 1: 1.75 times the rate
              writes     128 in flight over 80 files, 1.0 MiB each, buffered"#]]
    .assert_eq(&told(Detail::Everything));
    assert_eq!(told(Detail::Brief), "");
}

#[test]
fn a_dry_run_reports_what_would_be_done() {
    let mut changes = Changes::default();
    let verbs = [Verb::Send, Verb::Send, Verb::Symlink, Verb::Directory, Verb::Delete];
    for verb in verbs {
        changes.count(&Line { verb, path: b"a".to_vec(), bytes: 3 << 20 });
    }
    let (issues, differences) = (&IssueCount::default(), &Differences::default());
    let settings = Settings { is_dry_run: true, detail: Detail::Full, ..settings() };
    let counted = Counted { issues, differences, changes: &changes };
    let told = lines(&report(), &settings, &places(), counted);
    expect![[r#"
        lads: dry run: 2 files (6.0 MiB), 1 other entry and 1 directory would be moved;
        3 files skipped (same size and time, not read);
        1 entry would be deleted
              would move 2 files (6.0 MiB), 1 other entry and 1 directory
              skipped    3 files, 3.0 GiB: same size and time, not read"#]]
    .assert_eq(&told.join("\n").replace("; ", ";\n"));
    let nothing = Counted { changes: &Changes::default(), ..counted };
    let told = lines(&report(), &settings, &places(), nothing);
    assert!(told[0].starts_with("lads: dry run: nothing would be moved; 3 files"), "{told:?}");
}

#[test]
fn entries_that_were_not_moved_are_not_reported_as_verified() {
    let mut report = report();
    let source = &mut report.progress.source;
    (source.files_moved, source.files_verified) = (0, 0);
    (source.files_skipped, source.files_unread, source.files_compared) = (12, 3, 4);
    source.passed.newer = 1;
    source.entries_removed = 2;
    let told = summary(&report, &settings());
    expect![[r#"
        lads: done: nothing was moved
        4 files unchanged (same checksums at both ends)
        3 files skipped (same size and time, not read)
        5 other entries unchanged (links, special or empty files)
        1 file skipped (newer at the sink, --update)
        2 entries deleted"#]]
    .assert_eq(&told[0].replace("; ", "\n"));
    assert!(!told.join("\n").contains("verified"));
    report.progress.source.files_moved = 2;
    let told = summary(&report, &settings());
    let expected = "lads: done: 2 other entries created (links, special files); ";
    assert!(told[0].starts_with(expected), "{told:?}");
    assert!(!told.join("\n").contains("verified"));
}

/// Links and special files are no files: the first line and the table agree.
#[test]
fn counts_of_files_agree() {
    let mut report = report();
    let source = &mut report.progress.source;
    (source.files_moved, source.files_verified) = (103, 100);
    let told = summary(&report, &Settings { detail: Detail::Full, ..settings() });
    assert!(told[0].contains("done: 100 files ("), "{told:?}");
    assert!(told[0].contains("; 3 other entries created (links, special files); "), "{told:?}");
    assert!(told[1].contains("moved      100 files and 3 other entries, "), "{told:?}");
}

#[test]
fn a_sink_that_keeps_nothing_is_not_reported_as_durable() {
    let told = summary(&report(), &Settings { verify: None, ..settings() });
    assert!(told[0].contains("s), verified (wire) and discarded; "), "{told:?}");
    assert!(!told.join("\n").contains("durable"), "{told:?}");
}

#[test]
fn a_comparison_reports_the_compared_files_and_the_differences() {
    let mut report = report();
    report.progress.source.files_compared = 3;
    report.progress.source.bytes_compared = 3 << 30;
    let settings = Settings { is_dry_run: true, is_check: true, ..settings() };
    let (issues, changes) = (&IssueCount::default(), &Changes::default());
    let mut differences = Differences::default();
    let told = |report: &Report, differences: &Differences| {
        let counted = Counted { issues, differences, changes };
        lines(report, &settings, &places(), counted)[0].replace("; ", ";\n")
    };
    expect![[r#"
        lads: done: no difference;
        the contents of 3 files (3.0 GiB) were read at both ends and are the same"#]]
    .assert_eq(&told(&report, &differences));
    for verb in [Verb::OtherSize, Verb::OnlyAtSink, Verb::OtherSize, Verb::Send] {
        differences.count(verb);
    }
    report.exit_code = ExitCode::Different;
    expect![[r#"
        lads: done: 3 differences: 1 only at the sink, 2 other size;
        the contents of 3 files (3.0 GiB) were read at both ends and are the same"#]]
    .assert_eq(&told(&report, &differences));
    report.exit_code = ExitCode::Interrupted;
    let interrupted = told(&report, &differences);
    assert!(interrupted.starts_with("lads: incomplete: so far 3 diff"), "{interrupted}");
}

#[test]
fn quiet_is_quiet_only_if_all_went_well() {
    let settings = Settings { is_quiet: true, detail: Detail::None, ..settings() };
    check(&report(), &settings, &expect![[""]]);
    let mut report = report();
    report.exit_code = ExitCode::Network;
    report.message =
        Some("ssh: Could not resolve hostname dtn2\r\nconnection closed\x1b".to_owned());
    check(
        &report,
        &settings,
        &expect![[r#"
        lads: ssh: Could not resolve hostname dtn2
              connection closed\u{1b}
        lads: the other host cannot be reached, or the connection was lost;
        the same command resumes"#]],
    );
}

#[test]
fn a_failure_is_reported_with_the_number_of_failed_entries() {
    let mut report = report();
    report.exit_code = ExitCode::SinkRefuses;
    let issues = IssueCount { failed: 2, special: 1, ..IssueCount::default() };
    let told = summary_with(&report, &settings(), &issues);
    expect![[r#"
        lads: incomplete: permission was denied at the sink
              moved      4,190 files, 1.2 TiB in 2 min 12 s (9.74 GB/s)
              failed     2 entries
              bottleneck storage (source)"#]]
    .assert_eq(&told.join("\n"));
    let full = Settings { detail: Detail::Full, ..settings() };
    let told = summary_with(&report, &full, &issues).join("\n");
    assert!(told.contains("skipped    1 device, FIFO or socket"), "{told}");
}

/// The same command does not create a missing directory, and is not permitted more than before.
#[test]
fn a_sink_is_called_full_only_if_it_is_and_only_then_the_same_command_resumes() {
    let mut report = report();
    report.exit_code = ExitCode::SinkRefuses;
    let first = |issues| summary_with(&report, &settings(), &issues)[0].clone();
    let full = first(IssueCount { failed: 2, sink_full: 1, in_the_way: 1, ..Default::default() });
    let expected =
        "the sink is full or over quota; free space there, then the same command resumes";
    assert_eq!(full, format!("lads: incomplete: {expected}"));
    let in_the_way = first(IssueCount { failed: 1, in_the_way: 1, ..Default::default() });
    let expected = "entries of another kind have the same names at the sink";
    assert_eq!(in_the_way, format!("lads: incomplete: {expected}"));
    let others = [in_the_way, first(IssueCount { failed: 1, ..Default::default() })];
    assert!(others.iter().all(|text| !text.contains("resumes")), "{others:?}");
}

#[test]
fn a_lost_transfer_names_the_directory_of_unfinished_files() {
    let mut report = report();
    report.exit_code = ExitCode::Network;
    let told = summary(&report, &settings()).join("\n");
    let expected = "unfinished .lads-*.part files and a .lads-*.journal are in dtn2:/scratch/";
    assert!(told.contains(expected), "{told}");
}

#[test]
fn a_transfer_that_did_not_begin_has_no_summary() {
    let mut report = report();
    report.exit_code = ExitCode::Refused;
    report.message = Some("dtn2: Permission denied (publickey)".to_owned());
    report.progress = Progress::default();
    check(&report, &settings(), &expect![["lads: dtn2: Permission denied (publickey)"]]);
    // The walk may have found files before the sink refused.
    report.progress.source.files_found = 9;
    check(&report, &settings(), &expect![["lads: dtn2: Permission denied (publickey)"]]);
}

#[test]
fn a_bottleneck_is_named_with_its_host() {
    let mut report = report();
    let name = |bottleneck| {
        let mut report = report.clone();
        report.progress.bottleneck = Some(bottleneck);
        summary(&report, &settings())[1].trim_start().to_owned()
    };
    expect![[r#"
        bottleneck storage (source)
        bottleneck CPU (source)
        bottleneck network
        bottleneck CPU at dtn2 (sink)
        bottleneck storage at dtn2 (sink)
        bottleneck --bwlimit
        bottleneck --max-cpu"#]]
    .assert_eq(
        &[
            Bottleneck::SourceStorage,
            Bottleneck::SourceCpu,
            Bottleneck::Network,
            Bottleneck::SinkCpu,
            Bottleneck::SinkStorage,
            Bottleneck::Limit,
            Bottleneck::CpuLimit,
        ]
        .map(name)
        .join("\n"),
    );
    report.progress.bottleneck = None;
    assert_eq!(summary(&report, &settings()).len(), 1);
}

#[test]
fn hidden_messages_are_counted() {
    let told = [hidden_issues(1, None), hidden_issues(2000, Some("failed.json"))];
    expect![[r#"
        lads: 1 more message not shown; --log FILE lists all
        lads: 2,000 more messages not shown; all are in failed.json"#]]
    .assert_eq(&told.join("\n"));
}
