use super::issue::tests::places;
use super::summary::tests::{report, settings};
use super::*;
use expect_test::expect;
use lads_core::issue::{Failure, Operation, Side};
use lads_core::message::{Counters, Line, Verb};

/// Shows these events, and returns stdout, stderr and the exit code.
fn show(settings: Settings, happenings: Vec<Happening>) -> (String, String, u8) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut display = Display::new(settings, places(), Box::new(&mut out), Box::new(&mut err));
    display.start();
    for happening in happenings {
        display.on(happening);
    }
    let code = display.finish(&report());
    drop(display);
    let text = |bytes| String::from_utf8(bytes).expect("it is text");
    (text(out), text(err), code)
}

fn progress(millis: u64) -> Happening {
    let source = Counters { bytes_found: 2000, bytes_done: millis, ..Counters::default() };
    let elapsed = Duration::from_millis(millis);
    Happening::Progress(Box::new(Progress { elapsed, source, ..Progress::default() }))
}

fn line(verb: Verb, path: &str) -> Happening {
    Happening::Line(Line { verb, path: path.as_bytes().to_vec(), bytes: 1_258_291 })
}

fn issue(reason: Reason) -> Happening {
    let failure = Failure::new(Side::Source, Operation::Open, reason);
    Happening::Issue(Issue { path: b"run7/a".to_vec(), failure })
}

#[test]
fn paths_go_to_stdout_below_the_target() {
    let lines = vec![
        line(Verb::Directory, "run7"),
        line(Verb::Send, "run7/a"),
        line(Verb::Skip, "run7/b\n"),
        line(Verb::Symlink, "run7/c"),
        line(Verb::HardLink, "run7/d"),
        line(Verb::Special, "run7/e"),
    ];
    let (out, ..) = show(settings(), lines);
    expect![[r#"
        into dtn2:/scratch/
        mkdir      run7
        send       run7/a (1.2 MiB)
        skip       run7/b\n
        symlink    run7/c
        link       run7/d
        special    run7/e
    "#]]
    .assert_eq(&out);
}

#[test]
fn a_terminal_line_is_drawn_ten_times_a_second_and_erased() {
    let meters = Meters::Redrawn { columns: || 40 };
    let happenings = (0..=20).map(|step| progress(step * 50)).collect();
    let (_, err, _) = show(Settings { meters, detail: Detail::None, ..settings() }, happenings);
    assert_eq!(err.matches("scanning").count(), 11);
    assert!(err.ends_with("\r\x1b[K"), "{err:?}");
    assert!(!err.contains('\n'));
}

/// A terminal may wrap after its last column, and the line could not be erased then.
#[test]
fn the_last_column_of_a_terminal_is_left_free() {
    let meters = Meters::Redrawn { columns: || 80 };
    let Happening::Progress(progress) = progress(0) else { unreachable!() };
    let current = Some(b"a/path/that/is/longer/than/the/line/of/the/terminal".to_vec());
    let progress = Happening::Progress(Box::new(Progress { current, ..*progress }));
    let settings = Settings { meters, detail: Detail::None, ..settings() };
    let (_, err, _) = show(settings, vec![progress]);
    let line = err.trim_matches('\r').split('\x1b').next().unwrap();
    assert_eq!(line.chars().count(), 79, "{err:?}");
}

/// An attempt begins with the counters at zero, and the line would stand still until they have
/// caught up.
#[test]
fn after_a_retry_progress_begins_again() {
    let meters = Meters::Redrawn { columns: || 40 };
    let retry = Retry { attempt: 2, message: "lost".to_owned(), wait: Duration::ZERO };
    let happenings = vec![progress(1000), Happening::Retry(retry), progress(0)];
    let settings = Settings { meters, detail: Detail::None, ..settings() };
    let (_, err, _) = show(settings, happenings);
    let lines: Vec<&str> = err.split('\r').filter(|line| line.contains("scanning")).collect();
    assert!(lines[0].starts_with("1000 B of"), "{err:?}");
    assert!(lines[1].starts_with("0 B of"), "{err:?}");
}

fn waiting(seconds: u64) -> Happening {
    let (elapsed, limit) = (Duration::from_secs(seconds), Duration::from_secs(300));
    let what = "LADS on dtn2 to answer".to_owned();
    Happening::Waiting(Waiting { what, elapsed, limit })
}

/// ssh asks for a password on the same terminal, at the position of the cursor.
#[test]
fn a_wait_is_shown_below_the_cursor_and_erased() {
    let meters = Meters::Redrawn { columns: || 46 };
    let happenings = vec![waiting(3), waiting(64)];
    let (_, err, _) = show(Settings { meters, detail: Detail::None, ..settings() }, happenings);
    expect![[r#"
        ESCDESC[AESC7CR
        waited 3 s (at most 5 min 00 s) for LADS on dESC[JESC8ESCDESC[AESC7CR
        waited 1 min 04 s (at most 5 min 00 s) for LAESC[JESC8ESC[J"#]]
    .assert_eq(&err.replace('\r', "CR").replace('\x1b', "ESC"));
}

#[test]
fn a_wait_is_told_once_where_there_is_no_terminal_and_never_if_quiet() {
    let happenings = || vec![waiting(3), waiting(4), waiting(5)];
    let told = "lads: waited 3 s (at most 5 min 00 s) for LADS on dtn2 to answer\n";
    let plain = Meters::Plain { interval: Duration::from_secs(1) };
    for meters in [plain, Meters::None] {
        let settings = || Settings { meters, detail: Detail::None, ..settings() };
        assert_eq!(show(settings(), happenings()).1, told);
        assert_eq!(show(Settings { is_quiet: true, ..settings() }, happenings()).1, "");
        let (out, err, _) = show(Settings { is_json: true, ..settings() }, happenings());
        assert_eq!((out.matches("\"notice\"").count(), err.as_str()), (1, ""), "{out}");
    }
}

#[test]
fn messages_erase_the_terminal_line_first() {
    let meters = Meters::Redrawn { columns: || 40 };
    let happenings = vec![progress(0), Happening::Notice("to\nknow".to_owned()), progress(200)];
    let (_, err, _) = show(Settings { meters, detail: Detail::None, ..settings() }, happenings);
    expect![[r#"
        CR0 B of 2.0 KiB, scanning…  0 B/s  0:00ESC[KCRESC[Klads: to
              know
        CR200 B of 2.0 KiB, scanning…  1.00 kB/sESC[KCRESC[K"#]]
    .assert_eq(&err.replace('\r', "CR").replace('\x1b', "ESC"));
}

#[test]
fn without_a_terminal_a_line_comes_every_so_often() {
    let meters = Meters::Plain { interval: Duration::from_secs(1) };
    let happenings = (0..30).map(|step| progress(step * 100)).collect();
    let (_, err, _) = show(Settings { meters, detail: Detail::None, ..settings() }, happenings);
    expect![[r#"
        lads: 1000 B of 2.0 KiB, scanning…  0 of 0 entries  1.00 kB/s  0:01
        lads: 2.0 KiB of 2.0 KiB, scanning…  0 of 0 entries  1.00 kB/s  0:02
    "#]]
    .assert_eq(&err);
}

/// Records what is written to either of two outputs, in the order in which a terminal shows it.
#[derive(Clone, Default)]
struct OneTerminal(std::rc::Rc<std::cell::RefCell<Vec<u8>>>);

impl Write for OneTerminal {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A regression test: the summary used to stand in the middle of the list.
#[test]
fn what_is_told_stands_in_the_order_in_which_it_happened_and_the_summary_last() {
    let terminal = OneTerminal::default();
    let out = Box::new(io::BufWriter::new(terminal.clone()));
    let mut display = Display::new(settings(), places(), out, Box::new(terminal.clone()));
    for happening in [line(Verb::Send, "a"), issue(Reason::Changed), line(Verb::Send, "b")] {
        display.on(happening);
    }
    display.finish(&report());
    drop(display);
    let shown = String::from_utf8(terminal.0.take()).unwrap();
    let at = |words: &str| shown.find(words).unwrap_or_else(|| panic!("no {words} in {shown}"));
    let places =
        ["send       a", "cannot open", "send       b", "lads: done", "bottleneck"].map(at);
    assert!(places.is_sorted(), "{shown}");
}

#[test]
fn only_the_first_issues_are_shown_and_all_are_logged() {
    let mut log = Vec::new();
    let mut err = Vec::new();
    let mut display = Display::new(settings(), places(), Box::new(io::sink()), Box::new(&mut err));
    display.log_to(Box::new(&mut log));
    for _ in 0..25 {
        display.on(issue(Reason::Vanished));
    }
    display.finish(&report());
    drop(display);
    let err = String::from_utf8(err).unwrap();
    assert_eq!(err.matches("cannot open").count(), 20);
    assert!(err.contains("5 more messages not shown"), "{err}");
    assert_eq!(log.iter().filter(|&&byte| byte == b'\n').count(), 25);
}

#[test]
fn quiet_shows_failures_and_nothing_else() {
    let settings = Settings { is_quiet: true, detail: Detail::None, ..settings() };
    let notice = Happening::Notice("x".to_owned());
    let happenings =
        vec![line(Verb::Send, "a"), notice, issue(Reason::Special), issue(Reason::Os(13))];
    let (out, err, _) = show(settings, happenings);
    assert_eq!(out, "");
    assert_eq!(err.lines().count(), 2, "{err}");
    assert!(err.contains("EACCES"));
}

#[test]
fn a_program_gets_events_and_the_summary_last() {
    let settings = Settings { is_json: true, ..settings() };
    let happenings = vec![progress(0), progress(500), progress(1000), issue(Reason::Changed)];
    let (out, err, _) = show(settings, happenings);
    assert_eq!(err, "");
    let events: Vec<String> = out
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .map(|event| event["event"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(events, ["start", "progress", "progress", "issue", "summary"]);
}

/// A writer that fails every write with one kind of error.
struct Failing(io::ErrorKind);

impl Write for Failing {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(self.0.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn show_to(out: Failing, stop: &StopFlag) -> u8 {
    let mut display = Display::new(settings(), places(), Box::new(out), Box::new(io::sink()));
    display.stop_without_reader(stop.clone());
    display.on(line(Verb::Send, "a"));
    display.finish(&report())
}

#[test]
fn a_dry_run_stops_when_nobody_reads_it() {
    let stop = StopFlag::new();
    assert_eq!(show_to(Failing(io::ErrorKind::BrokenPipe), &stop), 0);
    assert!(stop.is_set());
}

#[test]
fn output_that_is_lost_is_no_success() {
    let stop = StopFlag::new();
    assert_eq!(show_to(Failing(io::ErrorKind::StorageFull), &stop), ExitCode::Other as u8);
    assert!(!stop.is_set());
}
