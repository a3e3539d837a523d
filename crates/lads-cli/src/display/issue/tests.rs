use super::*;
use expect_test::{expect, expect_file};
use lads_core::issue::Operation::{self, *};
use lads_core::issue::Side::{self, Sink, Source};
use lads_core::units::OstId;
use lads_engine::{Job, Location};

pub(in crate::display) fn places() -> Places {
    let parse = |text: &str| Location::parse(text.as_ref()).expect("it is text");
    Places::new(&Job::new(vec![parse("/data/run7")], parse("dtn2:/scratch/")))
}

/// Failures that users meet in practice.
const FAULTS: &[(Side, Operation, Reason)] = &[
    (Source, Examine, Reason::Os(2)),
    (Source, Examine, Reason::Special),
    (Source, Examine, Reason::Dangling),
    (Source, Examine, Reason::Loop),
    (Source, List, Reason::TooDeep),
    (Source, List, Reason::Os(13)),
    (Source, List, Reason::Os(40)),
    (Source, Open, Reason::Os(13)),
    (Source, Open, Reason::Os(24)),
    (Source, Open, Reason::Vanished),
    (Source, Read, Reason::Vanished),
    (Source, Open, Reason::Os(127)),
    (Source, Read, Reason::Os(5)),
    (Source, Read, Reason::Os(22)),
    (Source, Read, Reason::Os(110)),
    (Source, Read, Reason::Os(116)),
    (Source, Read, Reason::Os(12)),
    (Source, Read, Reason::Changed),
    (Sink, Create, Reason::Os(1)),
    (Sink, Create, Reason::Os(13)),
    (Sink, Create, Reason::Os(17)),
    (Sink, Create, Reason::Os(30)),
    (Sink, Link, Reason::Os(1)),
    (Sink, Link, Reason::Os(13)),
    (Sink, Link, Reason::Os(31)),
    (Sink, Create, Reason::Os(36)),
    (Sink, Create, Reason::Os(84)),
    (Sink, Create, Reason::InTheWay),
    (Sink, Create, Reason::ParentFailed),
    (Sink, Create, Reason::UnsafeName),
    (Sink, Preallocate, Reason::Os(95)),
    (Sink, Write, Reason::Os(5)),
    (Sink, Write, Reason::Os(27)),
    (Sink, Write, Reason::Os(28)),
    (Sink, Write, Reason::Os(122)),
    (Sink, Write, Reason::Os(108)),
    (Sink, Write, Reason::Checksum),
    (Sink, Sync, Reason::Os(5)),
    (Sink, SetMetadata, Reason::Os(1)),
    (Sink, SetMetadata, Reason::Os(95)),
    (Sink, Rename, Reason::Os(16)),
    (Sink, Rename, Reason::Os(21)),
    (Sink, Journal, Reason::Os(28)),
    (Sink, Verify, Reason::Media),
    (Sink, Verify, Reason::Os(999)),
];

#[test]
fn common_faults_are_told_with_what_to_do() {
    let mut told = String::new();
    for &(side, operation, reason) in FAULTS {
        let mut failure = Failure::new(side, operation, reason);
        if matches!(operation, Read | Write | Verify) {
            failure = failure.of_block(112 << 20, 1 << 20, OstId(7));
        }
        let issue = Issue { path: b"run7/ckpt.0041".to_vec(), failure };
        let described = describe(&issue, &places());
        for line in described.lines(Style { has_color: false }) {
            told += &(line + "\n");
        }
    }
    expect_file!["golden/issues.txt"].assert_eq(&told);
}

#[test]
fn colours_frame_the_message_and_names_cannot_break_out() {
    let failure = Failure::new(Source, Open, Reason::Os(13));
    let issue = Issue { path: b"run7/\x1b[31m\n\xff".to_vec(), failure };
    let lines = describe(&issue, &places()).lines(Style { has_color: true });
    let shown = lines[0].replace('\x1b', "ESC").replace(": ", ":\n");
    expect![[r#"
        lads:
        ESC[31mcannot open source:/data/run7/\u{1b}[31m\n\xff:
        Permission denied (EACCES)ESC[0m"#]]
    .assert_eq(&shown);
}
