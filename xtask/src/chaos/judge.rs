//! Checks what must hold after a step: how it may end, and what is there then.

use super::accident::Accident;
use super::history::History;
use super::plan::{Output, Step};
use super::process::{Ended, REDUCED};
use super::removal::{Before, Company};
use super::room::{Room, Storage};
use super::rsync;
use super::selection::Selection;
use super::view::{blocked, kinds, view};
use anyhow::{Context, Result, ensure};
use lads_trees::{hash_of, is_own_name};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, FileType};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The exit code of a command that a second SIGINT ended at once. It says nothing more.
const AT_ONCE: i32 = 130;

/// The result of a step.
#[derive(Debug)]
pub(super) struct Outcome {
    /// All commands that ended, in the order in which they did.
    pub(super) ended: Vec<Ended>,
    pub(super) happened: Vec<Accident>,
    pub(super) memory_bytes_peak: u64,
}

impl Outcome {
    fn has(&self, is_one: impl Fn(&Accident) -> bool) -> bool {
        self.happened.iter().any(is_one)
    }

    /// Whether a rival ran, so that more than one source was moved.
    fn has_rival(&self) -> bool {
        self.has(|accident| matches!(accident, Accident::Rival))
    }

    fn company(&self) -> Company {
        match () {
            () if self.has_rival() => Company::Rival,
            () if self.has(|accident| matches!(accident, Accident::Twin)) => Company::Twin,
            () => Company::Alone,
        }
    }
}

/// Judges a step, after its storage works again. `before` is what both trees were before it.
pub(super) fn judge(
    outcome: &Outcome,
    step: &Step,
    room: &Room,
    before: &Before,
    history: &mut History,
) -> Result<()> {
    let tree_codes = before.exit_codes(step, outcome.company());
    for ended in &outcome.ended {
        ends_as_documented(ended, outcome, step, room, &tree_codes)?;
        tells_what_is_missing(ended, outcome, step, room, history)?;
    }
    let is_at_rest = !history.has_changed() && !outcome.has_rival() && !step.is_dry_run;
    // A command that ended with another code may have changed what the other command had completed.
    // Without accidents, a command completes everything except for failures that the trees explain.
    let is_calm = outcome.happened.is_empty() && step.is_calm();
    let is_partial = |ended: &Ended| {
        // If links lead nowhere as well, rsync has errors of its own, and goes around in circles.
        let is_only_blocked = tree_codes.contains(&6) && !tree_codes.contains(&3);
        is_calm && ended.code == Some(6) && is_only_blocked && ended.message().is_none()
    };
    let is_done = |ended: &Ended| ended.is_complete() || is_partial(ended);
    let is_harmless = |ended: &Ended| is_done(ended) || ended.code == Some(2);
    let is_complete = outcome.ended.iter().any(is_done) && outcome.ended.iter().all(is_harmless);
    let is_all = is_complete && !outcome.ended.iter().any(is_partial);
    let may_be_reduced = |ended: &Ended| {
        ended.code == Some(REDUCED) || (is_partial(ended) && room.storage.reduces())
    };
    let is_reduced = outcome.ended.iter().any(may_be_reduced);
    let looks_beyond_times =
        ["--ignore-times", "--checksum"].into_iter().any(|option| step.choice.has(option));
    let is_comparable = history.stealthy.is_empty() || looks_beyond_times;
    if is_complete && is_at_rest && is_comparable {
        // Removing its entries changes the time of a directory before another command copies it.
        let has_other_times =
            step.moves() && (step.choice.follows_links() || outcome.ended.len() > 1);
        // So does the first attempt for the second, which does not know that a name is one of two
        // either if the other one is gone.
        let is_resumed = step.moves() && outcome.ended.iter().any(|it| it.count("attempts") > 1);
        let comparison = Comparison {
            step,
            room,
            is_reduced,
            is_all,
            has_other_times: has_other_times || is_resumed,
            has_other_links: is_resumed,
        };
        comparison.finds_nothing_to_do(before.expected(&room.source_beneath()))?;
    }
    let is_all = is_all && is_at_rest;
    before.check(step, outcome.company(), is_all, room, history)
}

/// Checks that the exit code is one that the accidents explain, and that the command says why.
/// `tree_codes`: the codes that the trees explain.
fn ends_as_documented(
    ended: &Ended,
    outcome: &Outcome,
    step: &Step,
    room: &Room,
    tree_codes: &[i32],
) -> Result<()> {
    let Some(code) = ended.code else {
        // A signal may arrive before the command can handle it.
        let is_killed = outcome
            .has(|it| matches!(it, Accident::Kill(_) | Accident::Stop(..) | Accident::StopBlocked));
        ensure!(is_killed, "it was killed by a signal that chaos did not send: {}", ended.told());
        return Ok(());
    };
    if code == AT_ONCE {
        let is_interrupt = |it: &&Accident| matches!(it, Accident::Stop(_, Signal::INT));
        let interrupts = outcome.happened.iter().filter(is_interrupt).count();
        ensure!(interrupts >= 2, "chaos did not interrupt it twice: {}", ended.told());
        return Ok(());
    }
    let explained = outcome.happened.iter().flat_map(Accident::exit_codes);
    let mut codes: HashSet<i32> =
        explained.copied().chain(tree_codes.iter().copied()).chain([0]).collect();
    if !step.network.is_empty() {
        codes.extend([5, 7]);
    }
    if matches!(room.storage, Storage::SmallSink(_)) || step.file_bytes_max.is_some() {
        codes.insert(6);
    }
    if step.output == Output::Closed {
        // The events could not be written.
        codes.insert(1);
    }
    if room.is_of_nobody && outcome.has(|it| matches!(it, Accident::Twin | Accident::Rival)) {
        // The other command may make the target directory read-only at any moment.
        codes.insert(6);
    }
    if room.storage.reduces() {
        codes.insert(REDUCED);
    }
    ensure!(codes.contains(&code), "nothing explains exit code {code}: {}", ended.told());
    if !ended.has_output {
        return Ok(());
    }
    let summary = ended.summary().with_context(|| format!("no summary: {}", ended.told()))?;
    ensure!(summary["exit_code"] == code, "the summary has another exit code: {}", ended.told());
    let says_why = matches!(code, 0 | 3 | 6 | 7 | 8 | REDUCED) || ended.message().is_some();
    ensure!(says_why, "it reported no reason for its end: {}", ended.told());
    Ok(())
}

/// Checks that a command that ran to its end lists every file that is not at the target.
fn tells_what_is_missing(
    ended: &Ended,
    outcome: &Outcome,
    step: &Step,
    room: &Room,
    history: &History,
) -> Result<()> {
    if step.is_dry_run {
        return Ok(());
    }
    let went_to_its_end = matches!(ended.code, Some(3 | 6 | 7 | 8)) && ended.message().is_none();
    let is_simple =
        step.selection == Selection::All && !outcome.has_rival() && !step.choice.passes_over();
    if !ended.has_output || !went_to_its_end || !is_simple || history.has_changed() {
        return Ok(());
    }
    let issues = ended.events().into_iter().filter(|event| event["event"] == "issue");
    let told: HashSet<PathBuf> = issues.filter_map(|issue| path_of(&issue, room)).collect();
    let (source, target) = (room.source_beneath(), room.target_beneath());
    let mut untold = Vec::new();
    view(&source, step.choice.follows_links(), &mut |path, metadata| {
        let below = path.strip_prefix(&source).expect("it was met there");
        let is_there = hash_of(&target.join(below)) == hash_of(path);
        let is_told = below.ancestors().any(|above| told.contains(above));
        if metadata.is_file() && !is_there && !is_told && !history.stealthy.contains(below) {
            untold.push(below.to_owned());
        }
    });
    ensure!(untold.is_empty(), "missing and not reported: {untold:?}\n{}", ended.told());
    Ok(())
}

/// The path that an issue is about, relative to the source or the target.
fn path_of(issue: &Value, room: &Room) -> Option<PathBuf> {
    let path = match issue["path_hex"].as_str() {
        Some(hex) => PathBuf::from(OsStr::from_bytes(&bytes_of(hex)?)),
        None => PathBuf::from(issue["path"].as_str()?),
    };
    let roots = [room.source(), room.target()];
    roots.iter().find_map(|root| path.strip_prefix(root).ok()).map(Path::to_owned)
}

fn bytes_of(hex: &str) -> Option<Vec<u8>> {
    let pairs = hex.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

/// A comparison of both trees by rsync.
struct Comparison<'a> {
    step: &'a Step,
    room: &'a Room,
    /// The command has reported that metadata could not be kept.
    is_reduced: bool,
    /// The command has copied everything. Otherwise, entries of other kinds were in the way.
    is_all: bool,
    /// The directories at the target may have other times than those of the source.
    has_other_times: bool,
    /// Names of one file at the source may be files of their own at the target.
    has_other_links: bool,
}

impl Comparison<'_> {
    /// Checks that rsync, with options that make it compare the same things, finds nothing to do.
    fn finds_nothing_to_do(&self, source: &Path) -> Result<()> {
        let unlike = self.entries_of_other_kinds(source);
        let mut command = self.command(source);
        let output = match rsync::run(&command)? {
            Some(output) => output,
            None => {
                command.arg("--no-hard-links");
                rsync::run(&command)?.context("rsync hangs")?
            }
        };
        let complaint = String::from_utf8_lossy(&output.stderr);
        let is_partial = output.status.code() == Some(rsync::PARTIAL) && !unlike.is_empty();
        ensure!(output.status.success() || is_partial, "rsync: {complaint}");
        let told = String::from_utf8_lossy(&output.stdout);
        let to_do = told.lines().filter(|line| !self.may_remain(line, &unlike));
        let to_do = to_do.collect::<Vec<_>>().join("\n");
        ensure!(to_do.is_empty(), "done, but rsync finds differences ({command:?}):\n{to_do}");
        Ok(())
    }

    /// Returns the command that prints the remaining differences.
    fn command(&self, source: &Path) -> Command {
        let &Self { step, room, is_reduced, .. } = self;
        let mut command = Command::new("rsync");
        // In this locale, rsync escapes everything but ASCII, in a way that can be undone.
        command.env("LC_ALL", "C");
        match step.selection {
            // rsync has other rules for the attributes of directories that a list names only
            // implicitly.
            Selection::Listed => {
                command.args(["-rlnci", "--no-D"]);
                command.args(step.choice.follows_links().then_some("-L"))
            }
            _ => command.args(step.choice.comparison()),
        };
        if room.storage == Storage::PlainSink {
            // Its times are whole seconds of a limited range. A time outside of it counts as kept.
            command.arg("--no-times");
        }
        if is_reduced {
            command.args(["--no-times", "--no-acls", "--no-xattrs", "--no-perms"]);
        }
        // The emulated parallel file system has no ACLs.
        command.args((room.storage == Storage::ManyTargets).then_some("--no-acls"));
        if step.choice.follows_links() && room.is_of_nobody {
            // Some links lead to files of other users.
            command.args(["--no-owner", "--no-group"]);
        }
        command.args(self.has_other_times.then_some("--omit-dir-times"));
        command.args(self.has_other_links.then_some("--no-hard-links"));
        command.args(step.choice.passing());
        command.args(step.selection.words(&room.path("home")));
        command.arg(format!("{}/", source.display()));
        command.arg(format!("{}/", room.target_beneath().display()));
        command
    }

    /// The entries of the source whose place at the target may stay taken by an entry of another
    /// kind.
    fn entries_of_other_kinds(&self, source: &Path) -> Vec<PathBuf> {
        let source = kinds(source, self.step.choice.follows_links());
        let target = kinds(&self.room.target_beneath(), false);
        let mut unlike = Vec::new();
        if !self.is_all {
            unlike.extend(blocked(&source, &target).into_iter().map(Path::to_owned));
        }
        if self.step.choice.passes_over() {
            let is_unlike = |(below, kind): &(&PathBuf, &FileType)| {
                target.get(*below).is_some_and(|other| other != *kind)
            };
            unlike.extend(source.iter().filter(is_unlike).map(|(below, _)| below.clone()));
        }
        unlike
    }

    /// Whether this line of rsync's output may remain although the command is done.
    fn may_remain(&self, line: &str, unlike: &[PathBuf]) -> bool {
        // The last one follows an error about an entry of another kind.
        let remarks =
            ["skipping non-regular file", "cannot delete non-empty", "IO error encountered"];
        if remarks.iter().any(|remark| line.starts_with(remark)) {
            return true;
        }
        let name = unescaped(line.get(ITEMIZED_CHARS..).unwrap_or_default());
        let is_below = |path: &PathBuf| {
            let rest = name.strip_prefix(path.as_os_str().as_bytes());
            let ends = [&b"/"[..], b" -> ", b" => "];
            rest.is_some_and(|it| it.is_empty() || ends.iter().any(|end| it.starts_with(end)))
        };
        if unlike.iter().any(is_below) {
            return true;
        }
        // LADS's own names do not have to be removed, nor directories that only they keep: a file
        // that was not on record when its transfer was killed stays until `lads clean`. Nothing is
        // deleted if anything failed.
        let path = Path::new(OsStr::from_bytes(&name));
        let is_kept = || {
            is_own_name(path)
                || holds_only_own(&self.room.target_beneath().join(path))
                || !(self.is_all || self.step.choice.has("--ignore-errors"))
        };
        line.starts_with("*deleting") && is_kept()
    }
}

/// The number of characters in front of the name in a line of rsync's `--itemize-changes`.
const ITEMIZED_CHARS: usize = 12;

/// A name as rsync prints it, in which `\#ooo` stands for the byte with this octal number.
fn unescaped(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.strip_prefix(b"#").and_then(|after| after.first_chunk::<3>());
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if first == b'\\' => {
                bytes.push(byte);
                rest = &rest[ESCAPE_BYTES..];
            }
            _ => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    bytes
}

/// The length of an escape, such as `\#012`.
const ESCAPE_BYTES: usize = 5;

/// Whether all that is in a directory and below it are names of LADS's own, and there are some.
fn holds_only_own(directory: &Path) -> bool {
    let mut directories = vec![directory.to_path_buf()];
    let mut own_count = 0;
    while let Some(directory) = directories.pop() {
        let Ok(entries) = fs::read_dir(directory) else { return false };
        for path in entries.flatten().map(|entry| entry.path()) {
            if is_own_name(&path) {
                own_count += 1;
            } else if path.is_dir() && !path.is_symlink() {
                directories.push(path);
            } else {
                return false;
            }
        }
    }
    own_count > 0
}

#[cfg(test)]
mod tests {
    use super::super::accident::Whom;
    use super::super::plan::Plan;
    use super::super::room::Room;
    use super::*;
    use crate::scratch::Scratch;
    use lads_trees::Rng;

    /// A room in memory, and a step without accidents that moves everything.
    struct Bench {
        room: Room,
        step: Step,
        history: History,
        // This is the last field, so that it is removed after the room is dropped.
        _scratch: Scratch,
    }

    impl Bench {
        fn new(name: &str) -> Self {
            let scratch = Scratch::new(&std::env::temp_dir(), name).unwrap();
            let room = Room::in_memory(scratch.join("room")).unwrap();
            for directory in [room.source(), room.target()] {
                fs::create_dir_all(&directory).unwrap();
                fs::write(directory.join("file"), "the same").unwrap();
                lads_trees::set_mtime(&directory.join("file"), 1, 0);
                lads_trees::set_mtime(&directory, 1, 0);
            }
            let mut step = Plan::draw(&mut Rng::new(1)).steps[0].calm();
            step.selection = Selection::All;
            for option in ["--remove-source-files", "--copy-links", "--force", "--delete"] {
                step.choice.leave_out(option);
            }
            Self { room, step, history: History::default(), _scratch: scratch }
        }

        /// The result of a command that ended with this code and printed these events.
        fn outcome(&self, code: i32, told: &[Value], happened: Vec<Accident>) -> Outcome {
            let why = (code == 9).then_some("stopped");
            let summary =
                serde_json::json!({"event": "summary", "exit_code": code, "message": why});
            let lines = told.iter().chain([&summary]).map(|event| format!("{event}\n"));
            let ended = vec![Ended::with(code, lines.collect())];
            Outcome { ended, happened, memory_bytes_peak: 0 }
        }

        /// Judges a command that ended with this code and printed these events.
        fn judge(&mut self, code: i32, told: &[Value], happened: Vec<Accident>) -> Result<()> {
            let outcome = self.outcome(code, told, happened);
            let before = Before::look(&self.step, &self.room)?;
            judge(&outcome, &self.step, &self.room, &before, &mut self.history)
        }
    }

    #[test]
    fn exit_0_is_believed_only_if_all_is_there() {
        let mut bench = Bench::new("lads-judge-0");
        if !lads_tried::has("rsync") {
            return;
        }
        bench.judge(0, &[], Vec::new()).unwrap();
        fs::write(bench.room.target().join("file"), "another!").unwrap();
        assert!(bench.judge(0, &[], Vec::new()).is_err());
    }

    #[test]
    fn an_exit_code_needs_an_accident_that_explains_it() {
        let mut bench = Bench::new("lads-judge-codes");
        let fault = || vec![Accident::Order("fail read EIO".to_owned(), None)];
        assert!(bench.judge(3, &[], Vec::new()).is_err());
        bench.judge(3, &[], fault()).unwrap();
        // Exit code 5 needs a message that says why, even if an accident explains it.
        assert!(bench.judge(5, &[], vec![Accident::Kill(Whom::Other)]).is_err());
    }

    #[test]
    fn what_is_missing_must_be_told() {
        let mut bench = Bench::new("lads-judge-told");
        let fault = || vec![Accident::Order("fail read EIO".to_owned(), None)];
        fs::remove_file(bench.room.target().join("file")).unwrap();
        // Nobody writes into the FIFO, so a process that opens it would wait for ever.
        let fifo = bench.room.source().join("fifo");
        assert!(Command::new("mkfifo").arg(fifo).status().unwrap().success());
        assert!(bench.judge(3, &[], fault()).is_err());
        let path = bench.room.source().join("file").display().to_string();
        let issue = serde_json::json!({"event": "issue", "path": path});
        bench.judge(3, &[issue], fault()).unwrap();
    }

    #[test]
    fn nothing_else_may_disappear_at_the_target() {
        let mut bench = Bench::new("lads-judge-removal");
        if !lads_tried::has("rsync") {
            return;
        }
        for (name, may_go) in [("extra", false), ("extra", true), ("file", false)] {
            fs::write(bench.room.target().join("extra"), "only here").unwrap();
            if may_go {
                bench.step.choice.give("--delete", "");
            }
            let outcome = bench.outcome(9, &[], vec![Accident::Stop(Whom::All, Signal::TERM)]);
            let before = Before::look(&bench.step, &bench.room).unwrap();
            let bytes = fs::read(bench.room.target().join(name)).unwrap();
            fs::remove_file(bench.room.target().join(name)).unwrap();
            let judged = judge(&outcome, &bench.step, &bench.room, &before, &mut bench.history);
            assert_eq!(judged.is_ok(), may_go, "{name}: {judged:?}");
            fs::write(bench.room.target().join(name), bytes).unwrap();
        }
    }

    #[test]
    fn what_is_moved_must_be_at_the_target_then_and_later() {
        let mut bench = Bench::new("lads-judge-moved");
        if !lads_tried::has("rsync") {
            return;
        }
        bench.step.choice.give("--remove-source-files", "");
        let [source, target] = [bench.room.source(), bench.room.target()];
        let mut judged = |gone: &[PathBuf]| {
            bench.history.begin_step(&bench.step, &bench.room.source());
            let before = Before::look(&bench.step, &bench.room).unwrap();
            gone.iter().for_each(|path| fs::remove_file(path).unwrap());
            let outcome = bench.outcome(9, &[], vec![Accident::Stop(Whom::All, Signal::TERM)]);
            judge(&outcome, &bench.step, &bench.room, &before, &mut bench.history)
        };
        fs::write(source.join("other"), "not at the target").unwrap();
        judged(&[source.join("file")]).unwrap();
        assert!(judged(&[source.join("other")]).is_err());
        fs::write(target.join("other"), "not at the target").unwrap();
        judged(&[]).unwrap();
        assert!(judged(&[target.join("other")]).is_err());
    }

    #[test]
    fn rsync_decides_what_is_left_at_the_source() {
        let mut bench = Bench::new("lads-judge-left");
        if !lads_tried::has("rsync") {
            return;
        }
        bench.step.choice.give("--remove-source-files", "");
        bench.step.choice.give("--max-size", "4K");
        let large = bench.room.source().join("large");
        fs::write(&large, [0; 5000]).unwrap();
        fs::write(bench.room.target().join("large"), [0; 5000]).unwrap();
        for root in [bench.room.source(), bench.room.target()] {
            lads_trees::set_mtime(&root, 1, 0);
        }
        for (gone, is_right) in [(&["file"][..], true), (&[], false), (&["file", "large"], false)] {
            let before = Before::look(&bench.step, &bench.room).unwrap();
            bench.history.begin_step(&bench.step, &bench.room.source());
            let path = |name: &&str| bench.room.source().join(name);
            gone.iter().map(path).for_each(|path| fs::remove_file(path).unwrap());
            let outcome = bench.outcome(0, &[], Vec::new());
            let judged = judge(&outcome, &bench.step, &bench.room, &before, &mut bench.history);
            assert_eq!(judged.is_ok(), is_right, "{gone:?}: {judged:?}");
            fs::copy(bench.room.target().join("file"), bench.room.source().join("file")).unwrap();
            lads_trees::set_mtime(&bench.room.source().join("file"), 1, 0);
            lads_trees::set_mtime(&bench.room.source(), 1, 0);
            lads_trees::set_mtime(&bench.room.target(), 1, 0);
        }
    }

    #[test]
    fn names_are_read_as_rsync_prints_them() {
        for (printed, name) in [
            ("plain", &b"plain"[..]),
            (r"new\#012line", b"new\nline"),
            (r"\#134#012", br"\#012"),
            (r"a\b\#9", br"a\b\#9"),
            (r"\#303\#274", "\u{fc}".as_bytes()),
        ] {
            assert_eq!(unescaped(printed), name, "{printed}");
        }
    }
}
