//! Checks what must hold after a step: how it may end, and what is there then.

use super::accident::Accident;
use super::history::History;
use super::plan::{Output, Step};
use super::process::Ended;
use super::room::{Room, Storage};
use super::selection::Selection;
use anyhow::{Context, Result, ensure};
use lads_trees::{hash_of, is_own_name, visit};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The exit code of a command that a second SIGINT ended at once. It says nothing more.
const AT_ONCE: i32 = 130;
/// The exit code of a command that moved everything, and reports metadata that the target does not
/// keep.
const REDUCED: i32 = 13;

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
}

/// Judges a step, after its storage works again.
pub(super) fn judge(outcome: &Outcome, step: &Step, room: &Room, history: &History) -> Result<()> {
    for ended in &outcome.ended {
        ends_as_documented(ended, outcome, step, room)?;
        tells_what_is_missing(ended, outcome, step, room, history)?;
    }
    let is_at_rest = !history.has_changed() && !outcome.has_rival() && !step.is_dry_run;
    // A command that ended with another code may have changed what the other command had completed.
    let is_done = |ended: &Ended| matches!(ended.code, Some(0 | REDUCED));
    let is_harmless = |ended: &Ended| is_done(ended) || ended.code == Some(2);
    let is_complete = outcome.ended.iter().any(is_done) && outcome.ended.iter().all(is_harmless);
    let is_reduced = outcome.ended.iter().any(|ended| ended.code == Some(REDUCED));
    let looks_beyond_times =
        ["--ignore-times", "--checksum"].into_iter().any(|option| step.choice.has(option));
    let is_comparable = history.stealthy.is_empty() || looks_beyond_times;
    if is_complete && is_at_rest && is_comparable {
        is_identical(step, room, is_reduced)?;
    }
    Ok(())
}

/// Checks that the exit code is one that the accidents explain, and that the command says why.
fn ends_as_documented(ended: &Ended, outcome: &Outcome, step: &Step, room: &Room) -> Result<()> {
    let Some(code) = ended.code else {
        let is_killed = outcome.has(|it| matches!(it, Accident::Kill(_) | Accident::Stop(..)));
        ensure!(is_killed, "a signal ended it, and nobody sent one: {}", ended.told());
        return Ok(());
    };
    if code == AT_ONCE {
        let is_interrupt = |it: &&Accident| matches!(it, Accident::Stop(_, Signal::INT));
        let interrupts = outcome.happened.iter().filter(is_interrupt).count();
        ensure!(interrupts >= 2, "nobody interrupted it twice: {}", ended.told());
        return Ok(());
    }
    let explained = outcome.happened.iter().flat_map(Accident::exit_codes);
    let mut codes: HashSet<i32> = explained.copied().chain([0]).collect();
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
    ensure!(summary["exit_code"] == code, "the summary says otherwise: {}", ended.told());
    let says_why = matches!(code, 0 | 3 | 6 | 7 | 8 | REDUCED) || ended.message().is_some();
    ensure!(says_why, "it does not say why it ended: {}", ended.told());
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
    visit(&source, &mut |path, metadata| {
        let below = path.strip_prefix(&source).expect("it was met there");
        let is_there = hash_of(&target.join(below)) == hash_of(path);
        let is_told = below.ancestors().any(|above| told.contains(above));
        if metadata.is_file() && !is_there && !is_told && !history.stealthy.contains(below) {
            untold.push(below.to_owned());
        }
    });
    ensure!(untold.is_empty(), "missing and not told: {untold:?}\n{}", ended.told());
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

/// Checks that rsync, with options that make it compare the same things, finds nothing to do.
/// `is_reduced`: the command has reported that metadata could not be kept.
fn is_identical(step: &Step, room: &Room, is_reduced: bool) -> Result<()> {
    let mut command = Command::new("rsync");
    match step.selection {
        // rsync has other rules for the attributes of directories that a list names only
        // implicitly.
        Selection::Listed => command.args(["-rlnci", "--no-D"]),
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
    command.args(step.choice.passing());
    command.args(step.selection.words(&room.path("home")));
    command.arg(format!("{}/", room.source_beneath().display()));
    command.arg(format!("{}/", room.target_beneath().display()));
    let output = command.output()?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "rsync: {complaint}");
    let told = String::from_utf8_lossy(&output.stdout);
    let is_to_do = |line: &&str| {
        !line.starts_with("skipping non-regular file") && !line.contains("cannot delete non-empty")
    };
    // LADS's own names do not have to be removed, nor directories that only they keep: a file that
    // was not on record when its transfer was killed stays until `lads clean`.
    let is_own = |line: &str| {
        line.strip_prefix("*deleting").is_some_and(|path| {
            let path = Path::new(path.trim_start());
            is_own_name(path) || holds_only_own(&room.target_beneath().join(path))
        })
    };
    let to_do: Vec<&str> = told.lines().filter(is_to_do).filter(|line| !is_own(line)).collect();
    let to_do = to_do.join("\n");
    ensure!(to_do.is_empty(), "exit 0, and rsync would still do this ({command:?}):\n{to_do}");
    Ok(())
}

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
            Self { room, step, history: History::default(), _scratch: scratch }
        }

        /// Judges a command that ended with this code and printed these events.
        fn judge(&self, code: i32, told: &[Value], happened: Vec<Accident>) -> Result<()> {
            let summary = serde_json::json!({"event": "summary", "exit_code": code});
            let lines = told.iter().chain([&summary]).map(|event| format!("{event}\n"));
            let ended = vec![Ended::with(code, lines.collect())];
            let outcome = Outcome { ended, happened, memory_bytes_peak: 0 };
            judge(&outcome, &self.step, &self.room, &self.history)
        }
    }

    #[test]
    fn exit_0_is_believed_only_if_all_is_there() {
        let bench = Bench::new("lads-judge-0");
        if !lads_tried::has("rsync") {
            return;
        }
        bench.judge(0, &[], Vec::new()).unwrap();
        fs::write(bench.room.target().join("file"), "another!").unwrap();
        assert!(bench.judge(0, &[], Vec::new()).is_err());
    }

    #[test]
    fn an_exit_code_needs_an_accident_that_explains_it() {
        let bench = Bench::new("lads-judge-codes");
        let fault = || vec![Accident::Order("fail read EIO".to_owned(), None)];
        assert!(bench.judge(3, &[], Vec::new()).is_err());
        bench.judge(3, &[], fault()).unwrap();
        // Exit code 5 needs a message that says why, even if an accident explains it.
        assert!(bench.judge(5, &[], vec![Accident::Kill(Whom::Other)]).is_err());
    }

    #[test]
    fn what_is_missing_must_be_told() {
        let bench = Bench::new("lads-judge-told");
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
}
