//! Runs one case against the real `lads`, and looks at what came of it.

use crate::case::{Case, Manner, Role};
use crate::cases;
use crate::oracle;
use crate::peer::{Opening, Peer, STREAMS, Start, Stop};
use crate::process::{Limits, Watched};
use crate::snapshot::Snapshot;
use crate::world::World;
use lads_core::issue::Side;
use std::fs::{self, File};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;
use tempfile::TempDir;

/// User and group of the honest end that is somebody else.
const NOBODY: u32 = 65_534;

/// Memory for blocks at the honest end, as `--buffers` has it, in bytes.
const BUFFERS_BYTES: u64 = 16 << 20;

/// Threads of an honest end: an honest transfer of this size has 9, the largest about 140.
const THREADS_MAX: u64 = 150;

/// Descriptors of an honest end: an honest transfer of this size has 18; 256 directories are kept
/// open, and a door at which people crowd has 100 of them.
const DESCRIPTORS_MAX: u64 = 1000;

/// The longest documented wait is 30 s, for data streams to be connected; an honest transfer of
/// this size takes 0.1 s.
const ELAPSED_MAX: Duration = Duration::from_secs(40);

/// Options of every case: two streams, small blocks, and a silent peer is dead after two seconds,
/// but one that a busy machine has not started yet is not.
const OPTIONS: [&str; 10] = [
    "--streams",
    "2",
    "--buffers",
    "16M",
    "--lab",
    "block-size=64K",
    "--timeout",
    "2",
    "--connect-timeout",
    "60",
];

/// The programs that a trial needs.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `lads`.
    pub lads: PathBuf,
    /// What plays the peer when it is called with `peer CASE` or `job FILE`.
    pub peer: PathBuf,
}

/// Where a peer that `lads cp` started finds its world.
const WORLD_VARIABLE: &str = "LADS_HOSTILE_WORLD";

/// Runs a case in this manner, as often as it wants.
///
/// # Errors
/// What was found wrong.
pub fn run(programs: &Programs, case: &Case, manner: Manner) -> Result<(), String> {
    assert_eq!(usize::from(STREAMS), OPTIONS[1].parse::<usize>().unwrap());
    (1..=case.rounds).try_for_each(|round| {
        run_once(programs, case, manner).map_err(|wrong| match case.rounds {
            1 => wrong,
            rounds => format!("round {round} of {rounds}: {wrong}"),
        })
    })
}

fn run_once(programs: &Programs, case: &Case, manner: Manner) -> Result<(), String> {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let place = tempfile::Builder::new().prefix("lads-hostile-").tempdir_in(parent).unwrap();
    let trial = Trial { programs, case, manner, world: World::at(place.path()) };
    trial.make_ready(&place);
    let outside = trial.look_outside();
    let watched = trial.meet();
    let mut wrongs = watched.beyond(&trial.limits());
    wrongs.extend(trial.verdict(&watched));
    wrongs.extend(oracle::of_output(&trial.world));
    let difference = outside.difference(&trial.look_outside());
    if !difference.is_empty() {
        wrongs.push(format!("outside the target, something changed:\n{difference}"));
    }
    let role = case.role_in(manner);
    if role.side() == Side::Source {
        let code = watched.status.and_then(|status| status.code());
        let is_arrived = code == Some(0);
        wrongs.extend(oracle::of_target(&trial.world, case, is_arrived));
    }
    if wrongs.is_empty() {
        return Ok(());
    }
    let printed = trial.printed();
    Err(format!("{}\n--- {watched:?}\n{printed}", wrongs.join("\n")))
}

struct Trial<'a> {
    programs: &'a Programs,
    case: &'a Case,
    manner: Manner,
    world: World,
}

impl Trial<'_> {
    fn make_ready(&self, place: &TempDir) {
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        self.world.make();
        if self.manner == Manner::Nobody {
            let notes = self.world.peer().join("notes");
            for path in [self.world.target(), self.world.peer(), notes] {
                chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
            }
        }
        (self.case.setup)(&self.world);
        if let Some(plants) = self.case.plants {
            let journal = World::journal_name(&self.job_of(self.case.role));
            plants(&self.world, &self.world.target().join(journal));
        }
    }

    /// What the honest end may have at most.
    fn limits(&self) -> Limits {
        Limits {
            memory_bytes: BUFFERS_BYTES + self.case.memory_bytes,
            threads: THREADS_MAX,
            descriptors: DESCRIPTORS_MAX,
            elapsed: ELAPSED_MAX,
        }
    }

    fn look_outside(&self) -> Snapshot {
        Snapshot::of(self.world.root(), &[self.world.target(), self.world.peer()])
    }

    /// The two ends meet: how the honest one ended.
    fn meet(&self) -> Watched {
        let role = self.case.role_in(self.manner);
        if role.is_client() { self.meet_as_client(role) } else { self.meet_as_server(role) }
    }

    fn meet_as_server(&self, role: Role) -> Watched {
        let words = format!("peer {}", self.case.name);
        let mut child = self.start(&mut self.copy(role, &words), Stdio::null(), "stdout");
        let watched = Watched::until_end(&mut child, &self.limits());
        self.end_peer();
        watched
    }

    fn meet_as_client(&self, role: Role) -> Watched {
        let job = self.job_of(role);
        let mut serve = Command::new(&self.programs.lads);
        serve.arg("serve").stdout(Stdio::piped());
        let mut child = self.start(&mut serve, Stdio::piped(), "");
        let (input, output) = (child.stdout.take().unwrap(), child.stdin.take().unwrap());
        let start = Start::Starts { job };
        let mut peer =
            Peer::new(self.world.clone(), role.side(), start, self.case.is_piped(), input, output);
        let (case, world) = (*self.case, self.world.clone());
        let (ended, end) = mpsc::channel();
        std::thread::spawn(move || {
            play(&case, &mut peer, &world);
            drop(peer);
            let _ = ended.send(());
        });
        let watched = Watched::until_end(&mut child, &self.limits());
        // The honest end is gone, so the peer hears no more; what it found is written down soon.
        let _ = end.recv_timeout(Duration::from_secs(5));
        watched
    }

    /// What `lads cp` would tell the other end to do, as it tells it to a peer that only listens.
    fn job_of(&self, role: Role) -> Vec<u8> {
        let at = self.world.peer().join("job");
        let mut child = self.start(&mut self.copy(role, "job"), Stdio::null(), "job-stdout");
        let _ = Watched::until_end(&mut child, &self.limits());
        let mut job = fs::read(at).expect("lads cp says JOB");
        if let Some((honest, forged)) = self.case.forged_job {
            let place = job.windows(honest.len()).position(|bytes| bytes == honest);
            let place = place.expect("the job holds what is to be forged");
            job[place..][..forged.len()].copy_from_slice(forged);
        }
        job
    }

    /// `lads cp` with the peer as its remote shell. For a client, what it would tell `lads serve`.
    fn copy(&self, role: Role, words: &str) -> Command {
        let shell = format!("'{}' {words}", self.programs.peer.display());
        let mut command = Command::new(&self.programs.lads);
        command.arg("cp").args(OPTIONS).args(["-e", &shell]);
        if self.case.has_data_address {
            command.args(["--data-address", "127.0.0.1"]);
        }
        command.args(self.case.options);
        let here = |path: PathBuf| path.display().to_string();
        let (source, target) = (here(self.world.source()) + "/", here(self.world.target()));
        // The honest `serve` of a client is the sink if the client is the source.
        match role {
            Role::Source => command.arg("localhost:/src/").arg(target),
            Role::Sink => command.arg(source).arg("localhost:/dst"),
            Role::ClientSource => command.arg(source).arg(format!("localhost:{target}")),
            Role::ClientSink => command.arg(format!("localhost:{source}")).arg(target),
        };
        command
    }

    fn start(&self, command: &mut Command, input: Stdio, output: &str) -> Child {
        // Whoever lies has the keys. So it can as well lie in clear.
        command.env(WORLD_VARIABLE, self.world.root()).env("LADS_DATA", "plain").stdin(input);
        let create = |name: &str| File::create(self.world.peer().join(name)).unwrap();
        if !output.is_empty() {
            command.stdout(create(output));
        }
        command.stderr(create("stderr"));
        if self.manner == Manner::Nobody {
            command.uid(NOBODY).gid(NOBODY);
        }
        command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"))
    }

    /// Ends the peer that `lads cp` started, should it still run.
    fn end_peer(&self) {
        let noted = self.world.noted();
        let Some(pid) = noted.iter().find_map(|line| line.strip_prefix("pid ")) else { return };
        let is_peer = || {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.windows(self.case.name.len()).any(|part| part == self.case.name.as_bytes())
        };
        for _ in 0..1000 {
            if !is_peer() {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = Command::new("kill").args(["-KILL", pid]).status();
    }

    /// What is wrong with how it ended.
    fn verdict(&self, watched: &Watched) -> Vec<String> {
        let noted = self.world.noted();
        let mut wrongs = Vec::new();
        let has = |line: &str| noted.iter().any(|noted| noted == line);
        if !has("opened") || !has("lied") {
            wrongs.push(format!("the peer never came to its lie: {noted:?}"));
        }
        wrongs
            .extend(noted.iter().filter_map(|line| line.strip_prefix("wrong ")).map(str::to_owned));
        match watched.status.map(|status| status.code()) {
            Some(Some(code)) if self.case.exits.contains(&code) => {}
            // What fails at a sink is told to the client, and counts there.
            Some(Some(0)) if self.manner == Manner::Served && self.case.exits.contains(&6) => {}
            Some(code) => {
                wrongs.push(format!("exit {code:?}, not one of {:?}", self.case.exits));
            }
            None => wrongs.push("it had to be killed".to_owned()),
        }
        let said = self.printed();
        let is_only_silence = said.contains("no heartbeat");
        if self.case.is_noticed && is_only_silence {
            wrongs.push("the lie was not noticed, only that nothing followed it".to_owned());
        }
        wrongs
    }

    /// What the honest end told a person, or the peer.
    fn printed(&self) -> String {
        let read = |name| fs::read(self.world.peer().join(name)).unwrap_or_default();
        let stderr = String::from_utf8_lossy(&read("stderr")).escape_debug().to_string();
        let stderr: String = stderr.replace("\\n", "\n").chars().take(4000).collect();
        format!("{stderr}{}", self.world.noted().join("\n"))
    }
}

/// Plays a case's peer to its end, and writes down what it found.
fn play(case: &Case, peer: &mut Peer, world: &World) {
    let told = peer.open(case.opening).and_then(|()| {
        world.note("opened");
        (case.lie)(peer)?;
        peer.see_it_go()
    });
    match told {
        Ok(()) | Err(Stop::Gone) => {}
        Err(Stop::Wrong(text)) => world.note(&format!("wrong {text}")),
    }
}

/// What the program does that `lads cp` takes for its remote shell: the words behind its name are
/// `peer CASE HOST lads serve`, or `job HOST lads serve`.
///
/// # Panics
/// If it was not started by a trial.
pub fn serve(words: &[String]) {
    let world = World::at(Path::new(&std::env::var_os(WORLD_VARIABLE).expect("set by the trial")));
    if words[0] == "job" {
        write_job(&world);
        return;
    }
    let case = cases::find(&words[1]).expect("a case of this name");
    world.note(&format!("pid {}", std::process::id()));
    let (input, output) = (std::io::stdin(), take_stdout());
    let mut peer =
        Peer::new(world.clone(), case.role.side(), Start::Started, case.is_piped(), input, output);
    play(&case, &mut peer, &world);
}

/// Hears what the honest end would tell `lads serve` to do, and writes it down.
fn write_job(world: &World) {
    let (input, output) = (std::io::stdin(), take_stdout());
    let mut peer = Peer::new(world.clone(), Side::Sink, Start::Started, false, input, output);
    if peer.open(Opening::Employed).is_ok() {
        fs::write(world.peer().join("job"), peer.job()).unwrap();
    }
}

/// Standard output as a file that really is closed when the peer hangs up.
fn take_stdout() -> File {
    let output = std::io::stdout().as_fd().try_clone_to_owned().unwrap();
    let nothing = File::options().write(true).open("/dev/null").unwrap();
    rustix::stdio::dup2_stdout(nothing).unwrap();
    output.into()
}
