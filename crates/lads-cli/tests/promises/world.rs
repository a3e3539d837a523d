//! Helpers for the tests: a place to work in, the command, random choices, and the comparison.

use lads_core::journal::{BlockRecord, replay};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub(crate) use lads_trees::Rng;
pub(crate) use lads_tried::{Stopwatch, has, is_root, not_tried, write_script};

/// The command under test.
pub(crate) const LADS: &str = env!("CARGO_BIN_EXE_lads");
/// Nothing here takes this long; a test that does, hangs.
const HANG: Duration = Duration::from_secs(60);
/// The limit on a machine that is busy all the time.
const BUSY_HANG: Duration = Duration::from_secs(600);
/// How often to check a condition that another process brings about.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// Runs a test once for each seed: `quick` of them, or `full` with `LADS_TRUST=1`.
pub(crate) fn for_seeds(quick: u64, full: u64, test: impl Fn(u64)) {
    let only = std::env::var("LADS_SEED").ok().map(|seed| seed.parse().unwrap());
    let is_full = std::env::var_os("LADS_TRUST").is_some_and(|value| value == "1");
    let seeds = match only {
        Some(seed) => seed..seed + 1,
        None => 1..1 + if is_full { full } else { quick },
    };
    for seed in seeds {
        let shown = ShownOnFailure(format!("LADS_SEED={seed}"));
        test(seed);
        drop(shown);
    }
}

/// Prints a text if the test fails while this exists.
pub(crate) struct ShownOnFailure(pub(crate) String);

impl Drop for ShownOnFailure {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with {}", self.0);
        }
    }
}

/// A place to work in, with a source and a target that do not exist yet.
pub(crate) struct World {
    dir: TempDir,
}

impl World {
    /// Makes a world in memory, where that is possible.
    pub(crate) fn new() -> Self {
        let memory = Path::new("/dev/shm");
        if memory.is_dir() { Self::within(memory) } else { Self::on_disk() }
    }

    /// Makes a world with 12 MiB to move: four files of several blocks and forty small ones.
    pub(crate) fn with_files(rng: &mut Rng) -> Self {
        let world = Self::new();
        for number in 0..4 {
            world.write(format!("src/large{number}"), &rng.bytes(5 << 19));
        }
        for number in 0..40 {
            world.write(format!("src/small/{number}"), &rng.bytes(52_428));
        }
        world
    }

    /// Makes a world on storage that can be read past the page cache.
    pub(crate) fn on_disk() -> Self {
        Self::within(&std::env::temp_dir())
    }

    fn within(parent: &Path) -> Self {
        let dir = tempfile::Builder::new().prefix("lads-promise-").tempdir_in(parent).unwrap();
        // Some tests run the command as another user, who must have access.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        Self { dir }
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn source(&self) -> PathBuf {
        self.path("src")
    }

    pub(crate) fn target(&self) -> PathBuf {
        self.path("dst")
    }

    /// Returns `SOURCE/`, which means its contents.
    pub(crate) fn source_contents(&self) -> String {
        format!("{}/", self.source().display())
    }

    /// Writes a file, and makes the directories above it.
    pub(crate) fn write(&self, name: impl AsRef<Path>, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    /// `lads cp --json SOURCE/ TARGET` with these options; it keeps all that rsync keeps.
    pub(crate) fn cp(&self, options: &[&str]) -> Command {
        let mut command = lads(options);
        command.arg(AS_RSYNC).arg(self.source_contents()).arg(self.target());
        command
    }

    /// Changes four bytes of a file of the target and restores its time of change, as a disk that
    /// damages data does.
    pub(crate) fn damage(&self, name: &str, offset: u64) {
        let path = self.target().join(name);
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        let file = fs::File::options().read(true).write(true).open(path).unwrap();
        let mut bytes = [0; 4];
        file.read_exact_at(&mut bytes, offset).unwrap();
        file.write_all_at(&bytes.map(|byte| !byte), offset).unwrap();
        file.set_modified(modified).unwrap();
        file.sync_all().unwrap();
    }

    /// Makes a script in place of ssh, which drops the host and runs the rest on this machine.
    pub(crate) fn fake_shell(&self, script: &str) -> String {
        let path = self.path(format!("shell-{}", script.len()));
        write_script(&path, script).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

/// The option to keep what `rsync -aHAXS` keeps and `lads cp` keeps only if asked: rsync compares
/// trees with set-id bits.
pub(crate) const AS_RSYNC: &str = "--privileges";

/// The script of a fake shell that just runs the command here.
pub(crate) const RUN_HERE: &str = "shift; exec \"$@\"";

/// `lads cp --json` with these words.
pub(crate) fn lads<W: AsRef<OsStr>>(words: &[W]) -> Command {
    let mut command = Command::new(LADS);
    command.arg("cp").arg("--json").args(words);
    command
}

/// `lads check --json` with these words.
pub(crate) fn check<W: AsRef<OsStr>>(words: &[W]) -> Command {
    let mut command = Command::new(LADS);
    command.arg("check").arg("--json").args(words);
    command
}

/// `lads cp --json` to or from a host called `there`, which a fake shell reaches.
pub(crate) fn there(shell: &str) -> Command {
    lads(&["-e", shell, "--remote-lads", LADS, "--data-address", "127.0.0.1"])
}

/// How a command ended.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
    pub(crate) elapsed: Duration,
    /// Elapsed time without the time in which the machine was too busy.
    unhurried: Duration,
}

impl Ended {
    /// Returns its JSON output, line by line.
    pub(crate) fn events(&self) -> Vec<Value> {
        self.stdout
            .split(|&byte| byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice(line).unwrap_or_else(|_| panic!("{self:?}")))
            .collect()
    }

    /// Returns the events of one kind.
    pub(crate) fn events_of(&self, kind: &str) -> Vec<Value> {
        self.events().into_iter().filter(|event| event["event"] == kind).collect()
    }

    /// Returns the reported differences as `verb path`, sorted.
    pub(crate) fn differences(&self) -> Vec<String> {
        let text = |event: &Value| {
            let (verb, path) = (event["verb"].as_str().unwrap(), event["path"].as_str().unwrap());
            format!("{verb} {path}")
        };
        let mut told: Vec<String> = self.events_of("difference").iter().map(text).collect();
        told.sort();
        assert_eq!(self.summary()["difference_count"], told.len());
        told
    }

    /// Returns the only issue that was reported.
    pub(crate) fn issue(&self) -> Value {
        let mut issues = self.events_of("issue");
        assert_eq!(issues.len(), 1, "{self:?}");
        issues.remove(0)
    }

    /// Returns the last event, the summary.
    pub(crate) fn summary(&self) -> Value {
        let summary = self.events().pop().unwrap_or_else(|| panic!("no summary: {self:?}"));
        assert_eq!(summary["event"], "summary", "{self:?}");
        summary
    }

    /// Returns one of the counts in the summary, such as `blocks_sent`.
    pub(crate) fn count(&self, name: &str) -> u64 {
        let summary = self.summary();
        summary[name].as_u64().unwrap_or_else(|| panic!("no {name} in {summary}"))
    }

    /// Asserts the exit code.
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }

    /// Asserts that the output for a person contains each of these.
    #[track_caller]
    pub(crate) fn says(self, words: &[&str]) -> Self {
        let message = self.summary()["message"].as_str().unwrap_or_default().to_owned();
        for word in words {
            let is_said = message.contains(word) || self.stderr.contains(word);
            assert!(is_said, "{word:?} is not said: {self:?}");
        }
        self
    }

    /// Asserts that it took at most this time on a machine with nothing else to do.
    #[track_caller]
    pub(crate) fn within(self, limit: Duration) -> Self {
        self.was_within(limit);
        self
    }

    /// As [`Self::within`].
    #[track_caller]
    pub(crate) fn was_within(&self, limit: Duration) {
        assert!(self.unhurried <= limit, "it took {:?}: {self:?}", self.unhurried);
    }
}

impl std::fmt::Debug for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stdout = String::from_utf8_lossy(&self.stdout);
        let told = stdout.lines().filter(|line| !line.contains("\"progress\""));
        let told: Vec<_> = told.take(40).collect();
        writeln!(f, "exit {:?} after {:?}", self.code, self.elapsed)?;
        writeln!(f, "{}\n{}", self.stderr, told.join("\n"))
    }
}

/// The length of an image of a file system: as much as XFS needs. Little of it is written.
const IMAGE_BYTES: u64 = 320 << 20;

/// A running command; it is ended with the test.
pub(crate) struct Running {
    child: Child,
    output: TempDir,
    started: Instant,
    watch: Stopwatch,
}

/// Starts a command whose output is kept.
pub(crate) fn start(mut command: Command) -> Running {
    let output = tempfile::tempdir().unwrap();
    let file = |name| fs::File::create(output.path().join(name)).unwrap();
    command.stdin(Stdio::null()).stdout(file("stdout")).stderr(file("stderr"));
    begin(command, output)
}

/// Starts a command that has its own standard output and standard error.
pub(crate) fn start_with(mut command: Command) -> Running {
    let output = tempfile::tempdir().unwrap();
    for name in ["stdout", "stderr"] {
        fs::write(output.path().join(name), b"").unwrap();
    }
    command.stdin(Stdio::null());
    begin(command, output)
}

/// Starts a command whose output is kept. Returns the pipe from which it reads, too.
pub(crate) fn start_fed(mut command: Command) -> (Running, ChildStdin) {
    let output = tempfile::tempdir().unwrap();
    let file = |name| fs::File::create(output.path().join(name)).unwrap();
    command.stdin(Stdio::piped()).stdout(file("stdout")).stderr(file("stderr"));
    let mut running = begin(command, output);
    let input = running.child.stdin.take().unwrap();
    (running, input)
}

fn begin(mut command: Command, output: TempDir) -> Running {
    let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    Running { child, output, started: Instant::now(), watch: Stopwatch::start() }
}

/// Runs a command to its end.
pub(crate) fn run(command: Command) -> Ended {
    start(command).end()
}

impl Running {
    /// Returns the process that moves data; the one that was started only stands in front of it.
    pub(crate) fn pid(&self) -> u32 {
        wait_for("the command to begin", || child_of(self.child.id()))
    }

    /// Returns the process that it started: the other end.
    pub(crate) fn other_end(&self) -> u32 {
        let pid = self.pid();
        wait_for("the other end to start", || child_of(pid))
    }

    /// Returns the number of the process that was started.
    pub(crate) fn own_pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns what follows these words on a line of its output, if that was written.
    pub(crate) fn word_after(&self, words: &str) -> Option<String> {
        let told = fs::read_to_string(self.output.path().join("stdout")).unwrap_or_default();
        let line = told.split_inclusive('\n').find_map(|line| line.strip_prefix(words))?;
        line.strip_suffix('\n').map(str::to_owned)
    }

    /// Returns whether the output for a person contains this so far.
    pub(crate) fn has_said(&self, words: &str) -> bool {
        fs::read_to_string(self.output.path().join("stderr")).is_ok_and(|all| all.contains(words))
    }

    /// Returns the bytes that the source has sent, as far as reported (`--json --progress`).
    pub(crate) fn bytes_sent(&self) -> u64 {
        let told = fs::read_to_string(self.output.path().join("stdout")).unwrap_or_default();
        let events = told.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events.filter_map(|event| event["bytes_sent"].as_u64()).max().unwrap_or(0)
    }

    /// Returns whether something was moved, as far as reported, after it began again this often.
    pub(crate) fn has_moved(&self, retry_count: usize) -> bool {
        let told = fs::read_to_string(self.output.path().join("stdout")).unwrap_or_default();
        let events = told.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut left = retry_count;
        let mut events = events.skip_while(|event| {
            left -= usize::from(left > 0 && event["event"] == "retry");
            left > 0
        });
        events.any(|event| event["bytes_done"].as_u64() > event["bytes_skipped"].as_u64())
    }

    /// Returns whether the output for a program contains this so far.
    pub(crate) fn told(&self, words: &str) -> bool {
        fs::read_to_string(self.output.path().join("stdout")).is_ok_and(|all| all.contains(words))
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits until it ends; fails the test if it hangs.
    pub(crate) fn end(mut self) -> Ended {
        while self.is_running() {
            if self.watch.elapsed() > HANG || self.started.elapsed() > BUSY_HANG {
                let _ = self.child.kill();
                let ended = self.collect();
                panic!("it hangs: {ended:?}");
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        self.collect()
    }

    fn collect(&mut self) -> Ended {
        let (elapsed, unhurried) = (self.started.elapsed(), self.watch.elapsed());
        let status = self.child.wait().unwrap();
        let read = |name| fs::read(self.output.path().join(name)).unwrap();
        let stderr = String::from_utf8_lossy(&read("stderr")).into_owned();
        Ended { code: status.code(), stdout: read("stdout"), stderr, elapsed, unhurried }
    }

    pub(crate) fn signal(&self, signal: &str) {
        send_signal(self.child.id(), signal);
    }

    /// Kills it and the process that it started; waits until both are gone. `release` releases a
    /// call of theirs that hangs.
    pub(crate) fn kill_both_ends(mut self, release: impl FnOnce()) {
        let pids = self.pids();
        let _ = self.child.kill();
        pids.iter().for_each(|&pid| send_signal(pid, "KILL"));
        release();
        let _ = self.child.wait();
        pids.into_iter().for_each(wait_until_gone);
    }

    /// Returns the process that moves data and the other end, as far as they exist.
    fn pids(&self) -> Vec<u32> {
        let pid = child_of(self.child.id());
        pid.into_iter().chain(pid.and_then(child_of)).collect()
    }

    /// Waits until the process `pid` has written this many bytes, or until the command has ended.
    /// Returns whether the command still runs.
    pub(crate) fn runs_until_written(&mut self, pid: u32, bytes: u64) -> bool {
        loop {
            if !self.is_running() {
                return false;
            }
            if bytes_written_by(pid).is_some_and(|written| written >= bytes) {
                return true;
            }
            assert!(self.started.elapsed() < BUSY_HANG, "nothing is written");
            std::thread::sleep(LOOK_INTERVAL);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            let pids = self.pids();
            pids.iter().for_each(|&pid| send_signal(pid, "KILL"));
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Sends a signal to a process, which may be gone already.
pub(crate) fn send_signal(pid: u32, signal: &str) {
    let _ = Command::new("kill").arg(format!("-{signal}")).arg(pid.to_string()).status();
}

/// Waits until a process is gone, or only its entry in the process table is left.
pub(crate) fn wait_until_gone(pid: u32) {
    wait_for("a process to end", || {
        let state = stat_of(pid).map(|(state, _)| state);
        // Its other threads may still be in a call, and keep files open.
        let threads = fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
        (state.is_none() || state.is_some_and(|state| state == "Z") && threads <= 1).then_some(())
    });
}

/// Waits until a condition is true.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let (started, watch) = (Instant::now(), Stopwatch::start());
    loop {
        if let Some(found) = look() {
            return found;
        }
        let is_over = watch.elapsed() > HANG || started.elapsed() > BUSY_HANG;
        assert!(!is_over, "waited in vain for {what}");
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// Returns a process's first child.
pub(crate) fn child_of(parent: u32) -> Option<u32> {
    let processes = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let mut children: Vec<_> =
        processes.filter(|&pid| stat_of(pid).is_some_and(|(_, above)| above == parent)).collect();
    children.sort_unstable();
    children.first().copied()
}

/// Returns the state and parent of a process.
fn stat_of(pid: u32) -> Option<(String, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}

fn bytes_written_by(pid: u32) -> Option<u64> {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    io.lines().find_map(|line| line.strip_prefix("wchar: "))?.parse().ok()
}

/// Asserts that rsync finds nothing to do: names, data, metadata, links, holes.
#[track_caller]
pub(crate) fn assert_identical(source: &Path, target: &Path) {
    finds_nothing_to_do(comparison(source, target));
}

fn comparison(source: &Path, target: &Path) -> Command {
    let mut command = Command::new("rsync");
    command.args(["-aHAXSnci", "--delete"]);
    command.arg(format!("{}/", source.display())).arg(format!("{}/", target.display()));
    command
}

#[track_caller]
fn finds_nothing_to_do(mut comparison: Command) {
    let output = comparison.output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "rsync: {complained}");
    assert_eq!(told, "", "rsync would still do this");
}

/// A mount namespace of its own with a file system mounted in it; it is ended when this is dropped.
pub(crate) struct Mounted {
    holder: Child,
    at: PathBuf,
}

impl Mounted {
    /// Mounts a tmpfs with these options at a directory; returns `None` if that is not permitted
    /// here.
    pub(crate) fn tmpfs(at: &Path, options: &str) -> Option<Self> {
        Self::by("mount -t tmpfs -o \"$1\" none \"$2\"", at, options.as_ref())
    }

    /// Makes a file system in a new image with this command, and mounts it at a directory; returns
    /// `None` if that is not possible here.
    pub(crate) fn new_image(at: &Path, image: &Path, make: &[&str]) -> Option<Self> {
        if !is_root() || !has("unshare") || !has(make[0]) {
            return None;
        }
        if !Path::new("/dev/loop-control").exists() {
            not_tried("there are no loop devices");
            return None;
        }
        fs::File::create(image).unwrap().set_len(IMAGE_BYTES).unwrap();
        let mut command = Command::new(lads_tried::find(make[0]).unwrap());
        assert!(command.args(&make[1..]).arg(image).status().unwrap().success());
        Self::image(at, image, "loop")
    }

    /// Mounts the file system in an image at a directory; returns `None` if that is not permitted
    /// here.
    pub(crate) fn image(at: &Path, image: &Path, options: &str) -> Option<Self> {
        Self::by(&format!("mount -o {options} \"$1\" \"$2\""), at, image.as_os_str())
    }

    /// Mounts with this command.
    fn by(mount: &str, at: &Path, what: &OsStr) -> Option<Self> {
        fs::create_dir_all(at).unwrap();
        let script = format!("{mount} && echo ready && exec cat");
        let mut holder = Command::new("unshare")
            .args(["-m", "sh", "-c", &script, "sh"])
            .arg(what)
            .arg(at)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let mut said = [0; 6];
        let stdout = holder.stdout.as_mut().unwrap();
        if std::io::Read::read_exact(stdout, &mut said).is_err() {
            let _ = holder.wait();
            not_tried("mounting is not permitted here");
            return None;
        }
        Some(Self { holder, at: at.to_owned() })
    }

    /// Mounts another tmpfs in the same namespace.
    pub(crate) fn mount_too(&self, at: &Path) {
        fs::create_dir_all(at).unwrap();
        let mut mount = Command::new("mount");
        let status = self.command(mount.args(["-t", "tmpfs", "none"]).arg(at)).status();
        assert!(status.unwrap().success(), "cannot mount at {}", at.display());
    }

    /// Returns the same command, to be run in this mount namespace.
    pub(crate) fn command(&self, command: &Command) -> Command {
        let mut inside = Command::new("nsenter");
        inside.args(["-t", &self.holder.id().to_string(), "-m", "--"]);
        inside.arg(command.get_program()).args(command.get_args());
        inside
    }

    /// Asserts that rsync finds nothing to do between a source and the mounted directory.
    #[track_caller]
    pub(crate) fn assert_identical_to(&self, source: &Path) {
        finds_nothing_to_do(self.command(&comparison(source, &self.at)));
    }

    /// Returns a path to the mounted directory from outside the namespace.
    pub(crate) fn seen(&self) -> PathBuf {
        self.seen_at(&self.at)
    }

    /// Returns a path to any directory of the namespace from outside.
    pub(crate) fn seen_at(&self, path: &Path) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.holder.id()));
        root.join(path.strip_prefix("/").unwrap())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Asserts that a resumed transfer did not send again what the earlier one had reported as done.
#[track_caller]
pub(crate) fn sends_nothing_again(before: &Ended, after: &Ended) {
    let missing = after.count("bytes_found") - before.count("bytes_done");
    assert!(after.count("bytes_sent") <= missing, "{before:?}\nand then {after:?}");
}

/// Returns the blocks of a file that an unfinished transfer into this directory has on record.
pub(crate) fn blocks_on_record(target: &Path, path: &str) -> Vec<BlockRecord> {
    let is_journal = |entry: &fs::DirEntry| {
        entry.file_name().to_str().is_some_and(|name| name.ends_with(".journal"))
    };
    let mut entries = fs::read_dir(target).into_iter().flatten().filter_map(Result::ok);
    let journal = entries.find(is_journal).and_then(|entry| fs::read(entry.path()).ok());
    let begun = journal.and_then(|bytes| replay(&bytes).files.remove(path.as_bytes()));
    begun.map_or_else(Vec::new, |begun| begun.blocks)
}

/// Returns the number of bytes in these blocks.
pub(crate) fn byte_count(blocks: &[BlockRecord]) -> u64 {
    blocks.iter().map(|block| u64::from(block.length)).sum()
}

/// Returns the same command, run as an unprivileged user.
pub(crate) fn as_nobody(command: &Command) -> Command {
    let mut other = Command::new("setpriv");
    other.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
    other.arg(command.get_program()).args(command.get_args());
    other
}
