use super::*;
use crate::display::issue::tests::places;
use crate::display::{Meters, Style};
use expect_test::{Expect, expect};
use lads_core::message::Verb;
use lads_core::pool::Io;
use lads_engine::Progress;

pub(in crate::display) fn settings() -> Settings {
    Settings {
        is_quiet: false,
        is_verbose: false,
        has_summary: true,
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
        is_clear: true,
        attempt_count: 1,
    }
}

fn check(report: &Report, settings: &Settings, expected: &Expect) {
    let counted = (&IssueCount::default(), &Differences::default());
    let told = lines(report, settings, &places(), counted).join("\n");
    // The lines of this file are shorter than the line of the outcome, so it is broken up.
    expected.assert_eq(&told.replace("; ", ";\n"));
}

#[test]
fn a_good_end_says_all_that_was_done() {
    check(
        &report(),
        &settings(),
        &expect![[r#"
            lads: done: 4,190 files moved, durable and verified (wire);
            3 skipped: same size and time, not read
                  moved      4,190 files, 1.2 TiB in 2 min 12 s (9.74 GB/s)
                  skipped    3 files, 3.0 GiB: same size and time, not read
                  re-sent    2 blocks
                  verified   what was moved: every block's checksum at the sink, then made durable
                  CPU        source 1 min 01 s, sink 1 min 10 s
                  memory     source 310.0 MiB, sink 305.0 MiB at most
                  busiest    source OST0007: busy for 61 % of the time, with 40.0 GiB
                  slowest    reading at the source held the rest up
                  security   connections authenticated;
                             data neither encrypted nor protected on its way (use --tunnel)"#]],
    );
    let settings = Settings { is_verbose: true, verify: Some(Verify::Media), ..settings() };
    check(
        &report(),
        &settings,
        &expect![[r#"
            lads: done: 4,190 files moved, durable and verified (media);
            3 skipped: same size and time, not read
                  moved      4,190 files, 1.2 TiB in 2 min 12 s (9.74 GB/s)
                  skipped    3 files, 3.0 GiB: same size and time, not read
                  re-sent    2 blocks
                  verified   what was moved: every block's checksum, durable, read back from storage
                  CPU        source 1 min 01 s, sink 1 min 10 s
                  memory     source 310.0 MiB, sink 305.0 MiB at most
                  busiest    source OST0007: busy for 61 % of the time, with 40.0 GiB
                  in storage source 8 min 20 s, sink 8 min 20 s
                  in network source 1 min 30 s, sink 1 min 30 s
                  streams    source 4, sink 4
                  sent       1,226,752 blocks, 1.2 TiB
                  slowest    reading at the source held the rest up
                  security   connections authenticated;
                             data neither encrypted nor protected on its way (use --tunnel)"#]],
    );
}

#[test]
fn a_number_of_requests_that_was_found_to_be_better_is_told() {
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
    let told = |is_verbose| {
        let settings = Settings { is_verbose, ..settings() };
        let counted = (&IssueCount::default(), &Differences::default());
        let lines = lines(&report, &settings, &places(), counted);
        let told = lines.into_iter().filter(|line| line.contains(" in flight "));
        told.collect::<Vec<_>>().join("\n").replace("; ", ";\n")
    };
    expect![[r#"
              reads      2 in flight over 1 file, 1.0 MiB each, direct;
        1 at most: 1.75 times the rate"#]]
    .assert_eq(&told(false));
    expect![[r#"
              reads      2 in flight over 1 file, 1.0 MiB each, direct;
        1 at most: 1.75 times the rate
              writes     128 in flight over 80 files, 1.0 MiB each, buffered"#]]
    .assert_eq(&told(true));
}

#[test]
fn a_dry_run_says_what_would_be_done() {
    let settings = Settings { is_dry_run: true, ..settings() };
    check(
        &report(),
        &settings,
        &expect![[r#"
            lads: this was a dry run: nothing was moved
                  would move 4,190 files, 1.2 TiB
                  skipped    3 files, 3.0 GiB: same size and time, not read"#]],
    );
}

#[test]
fn what_was_not_moved_is_not_said_to_be_verified() {
    let mut report = report();
    let source = &mut report.progress.source;
    (source.files_moved, source.files_verified) = (0, 0);
    (source.files_skipped, source.files_unread, source.files_compared) = (12, 3, 4);
    let counted = (&IssueCount::default(), &Differences::default());
    let told = lines(&report, &settings(), &places(), counted);
    expect![[r#"
        lads: done: nothing was moved
        4 the same by checksum
        3 skipped: same size and time, not read
        5 others there already: links, special or empty files"#]]
    .assert_eq(&told[0].replace("; ", "\n"));
    assert!(!told.join("\n").contains("verified"));
    report.progress.source.files_moved = 2;
    let told = lines(&report, &settings(), &places(), counted);
    assert!(told[0].starts_with("lads: done: 2 link or special files made; "), "{told:?}");
    assert!(!told.join("\n").contains("verified"));
}

#[test]
fn a_comparison_says_what_was_compared_and_how_it_differs() {
    let mut report = report();
    report.progress.source.files_compared = 3;
    report.progress.source.bytes_compared = 3 << 30;
    let settings = Settings { is_dry_run: true, is_check: true, ..settings() };
    let issues = IssueCount::default();
    let mut differences = Differences::default();
    let told = |report: &Report, differences: &Differences| {
        lines(report, &settings, &places(), (&issues, differences))[0].replace("; ", ";\n")
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
    assert!(interrupted.starts_with("lads: not all was compared;\nso far 3 diff"), "{interrupted}");
}

#[test]
fn quiet_is_quiet_only_if_all_went_well() {
    let settings = Settings { is_quiet: true, has_summary: false, ..settings() };
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
            lads: the other host cannot be reached or was lost;
            the same command goes on from here"#]],
    );
}

#[test]
fn a_bad_end_says_how_many_failed() {
    let mut report = report();
    report.exit_code = ExitCode::SinkRefuses;
    let issues = IssueCount { failed: 2, special: 1, ..IssueCount::default() };
    let told = lines(&report, &settings(), &places(), (&issues, &Differences::default()));
    expect![[r#"
        lads: not all is done: the sink refuses; the same command goes on from here
              moved      4,190 files, 1.2 TiB in 2 min 12 s (9.74 GB/s)
              skipped    3 files, 3.0 GiB: same size and time, not read
              failed     2 entries
              left out   1 device, FIFO or socket"#]]
    .assert_eq(&told[..5].join("\n"));
}

#[test]
fn what_is_in_the_way_is_not_called_full() {
    let mut report = report();
    report.exit_code = ExitCode::SinkRefuses;
    let said = |issues| {
        lines(&report, &settings(), &places(), (&issues, &Differences::default()))[0].clone()
    };
    let full = said(IssueCount { failed: 2, sink_full: 1, in_the_way: 1, ..Default::default() });
    let expected = "the sink is full or over quota; the same command goes on from here";
    assert_eq!(full, format!("lads: not all is done: {expected}"));
    let in_the_way = said(IssueCount { failed: 1, in_the_way: 1, ..Default::default() });
    assert_eq!(in_the_way, "lads: not all is done: at the sink, something is in the way");
}

#[test]
fn what_a_lost_transfer_leaves_is_named() {
    let mut report = report();
    report.exit_code = ExitCode::Network;
    let told =
        lines(&report, &settings(), &places(), (&IssueCount::default(), &Differences::default()))
            .join("\n");
    assert!(
        told.contains("unfinished .lads-*.part files and a .lads-*.journal are in dtn2:/scratch/"),
        "{told}"
    );
}

#[test]
fn what_did_not_begin_has_no_summary() {
    let mut report = report();
    report.exit_code = ExitCode::Refused;
    report.message = Some("dtn2: Permission denied (publickey)".to_owned());
    report.progress = Progress::default();
    check(&report, &settings(), &expect![["lads: dtn2: Permission denied (publickey)"]]);
}

#[test]
fn what_was_not_shown_is_counted() {
    let told = [hidden_issues(1, None), hidden_issues(2000, Some("failed.json"))];
    expect![[r#"
        lads: 1 more message not shown; --log FILE lists all
        lads: 2,000 more messages not shown; all are in failed.json"#]]
    .assert_eq(&told.join("\n"));
}
