//! Tests `lads mpi` with unmodified programs on the MPIs of Debian: what `env` prints puts the shim
//! in force, and `doctor` says what is wrong.
#![allow(clippy::unwrap_used, reason = "these are tests")]

// The shims are made of its static library, which cargo builds because it is named here.
use lads_mpiio as _;
use lads_shims::Mpi;
use lads_tried::write_script;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

const LADS: &str = env!("CARGO_BIN_EXE_lads");

/// What the launchers of Debian need in a container with few processors, run by root.
const LAUNCHING: [(&str, &str); 5] = [
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
    ("OMPI_MCA_mpi_yield_when_idle", "1"),
    ("OMPI_MCA_btl_vader_single_copy_mechanism", "none"),
];

/// The MPIs that are here, with the program that is tried on each: one that writes a snapshot to
/// the file that it is told.
static PROGRAMS: LazyLock<BTreeMap<Mpi, PathBuf>> = LazyLock::new(|| {
    let mpis = [Mpi::Mpich, Mpi::OpenMpi];
    let is_here = |mpi: &Mpi| {
        lads_tried::has(&wrapper("mpicc", *mpi)) && lads_tried::has(&wrapper("mpirun", *mpi))
    };
    mpis.into_iter().filter(is_here).map(|mpi| (mpi, build(mpi))).collect()
});

/// Where the shims and programs are.
fn built() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("mpi")
}

/// Builds the shim and the program for an MPI.
fn build(mpi: Mpi) -> PathBuf {
    let (test, compiler) = (std::env::current_exe().unwrap(), wrapper("mpicc", mpi));
    let library = lads_shims::newest_static_library(test.parent().unwrap()).unwrap();
    assert_eq!(lads_shims::mpi_of(&compiler), Ok(mpi));
    lads_shims::build(mpi, &compiler, &library, &built(), &[]).unwrap();
    let program = built().join(format!("program.{}", mpi.name()));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../lads-mpiio/examples/jacobi.c");
    let mut command = Command::new(compiler);
    succeeds(command.args(["-std=gnu11", source, "-lm", "-o"]).arg(&program));
    program
}

fn wrapper(name: &str, mpi: Mpi) -> String {
    format!("{name}.{}", mpi.name())
}

fn succeeds(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A shell for a user who has nothing set but where the shims are.
fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]).stdin(Stdio::null()).env("LADS", LADS);
    command.env("LADS_SHIMS", built()).envs(LAUNCHING);
    // No ~/.rfs-token is found by chance.
    command.env("HOME", "/nonexistent");
    command.env_remove("LD_PRELOAD").env_remove("LADS_RFS_TOKEN_FILE");
    command
}

/// A server of remote files in a directory of its own.
struct Server {
    directory: tempfile::TempDir,
    child: Child,
    at: String,
}

impl Server {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("root")).unwrap();
        let mut command = Command::new(LADS);
        command.args(["rfs", "serve", "--sessions=8", "--buffers=64M", "--root=root"]);
        command.arg("--token-file=token").current_dir(&directory);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let at = line.trim().strip_prefix("listening on ").unwrap().to_owned();
        Self { directory, child, at }
    }

    fn token(&self) -> PathBuf {
        self.directory.path().join("token")
    }

    fn has(&self, name: &str) -> bool {
        self.directory.path().join("root").join(name).exists()
    }

    fn remote(&self, name: &str) -> String {
        format!("rfs:{}:{name}", self.at)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the doctor says: whether all is well, and the texts of the checks with what to do.
fn doctor(command: &mut Command) -> (bool, BTreeMap<String, (bool, String)>) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let shown = String::from_utf8_lossy(&stderr);
    let report: Value = serde_json::from_slice(&stdout).unwrap_or_else(|_| panic!("{shown}"));
    let checks = report["checks"].as_array().unwrap().iter().map(|check| {
        let is_ok = check["is_ok"].as_bool().unwrap();
        assert_eq!(check["todo"].is_null(), is_ok, "{check}");
        let text = format!("{} | {}", check["text"].as_str().unwrap(), check["todo"]);
        (check["check"].as_str().unwrap().to_owned(), (is_ok, text))
    });
    let is_ok = report["is_ok"].as_bool().unwrap();
    assert_eq!(status.code(), Some(i32::from(!is_ok)), "{shown}");
    (is_ok, checks.collect())
}

#[test]
fn what_env_prints_puts_the_shim_in_force() {
    for (mpi, program) in PROGRAMS.iter() {
        let server = Server::start();
        let mut command = shell(
            "eval \"$($LADS mpi env $PROGRAM)\"
             $LADS mpi doctor --json $PROGRAM $FILE -- $MPIRUN -n 2 $PROGRAM 8 8 8 1 1 $FILE",
        );
        command.env("PROGRAM", program).env("FILE", server.remote("told"));
        command.env("MPIRUN", wrapper("mpirun", *mpi)).env("LADS_RFS_TOKEN_FILE", server.token());
        let (is_ok, checks) = doctor(&mut command);
        assert!(is_ok, "{checks:?}");
        assert!(
            checks["run"].1.starts_with("the shim is in force in all 2 processes"),
            "{checks:?}"
        );
        assert!(checks["program"].1.contains(&format!("uses {}: /", mpi.title())), "{checks:?}");
        assert!(server.has("told.0"));

        // The same in this shell alone, and as one command.
        let mut alone =
            shell("eval $($LADS mpi env $PROGRAM); $LADS mpi doctor --json $PROGRAM $FILE");
        alone.env("PROGRAM", program).env("FILE", server.remote("told.0"));
        let (is_ok, checks) = doctor(alone.env("LADS_RFS_TOKEN_FILE", server.token()));
        assert!(is_ok && checks["server"].1.contains(", and has rfs:"), "{checks:?}");
        let mut told = shell("$LADS mpi env $PROGRAM");
        told.env("PROGRAM", program).env("LADS_RFS_TOKEN_FILE", server.token());
        let told = succeeds(&mut told);
        let line = told.lines().find_map(|line| line.strip_prefix("#   mpirun ")).unwrap();
        let line = line.replace(" ...", &format!(" 8 8 8 1 1 {}", server.remote("line")));
        succeeds(&mut shell(&format!("{} {line}", wrapper("mpirun", *mpi))));
        assert!(server.has("line.0"), "{line}");
    }
}

#[test]
fn a_run_without_the_shim_is_told_from_one_with_it() {
    for (mpi, program) in PROGRAMS.iter() {
        let directory = tempfile::tempdir().unwrap();
        let run = format!("{} -n 2 {} 8 8 8 1 1 local", wrapper("mpirun", *mpi), program.display());
        let mut command = shell(&format!("$LADS mpi doctor --json -- {run}"));
        let (is_ok, checks) = doctor(command.current_dir(&directory));
        assert!(!is_ok && checks["run"].1.starts_with("no process of the command"), "{checks:?}");
        // The program of the command is looked at, to say why.
        assert!(checks["program"].0 && checks["preload"].1.contains("is not set"), "{checks:?}");
        assert!(directory.path().join("local.0").exists());
        // No token, but the shim is in force all the same.
        let line = format!(
            "eval \"$($LADS mpi env {})\"; $LADS mpi doctor --json -- {run}",
            program.display()
        );
        let mut bare = shell(&line);
        let (is_ok, checks) = doctor(bare.current_dir(&directory).env("LADS_RFS_TOKEN_FILE", ""));
        assert!(!is_ok && checks["run"].0 && !checks["token"].0, "{checks:?}");
        let mut failing = shell("$LADS mpi doctor --json -- sh -c 'exit 3'");
        assert!(doctor(&mut failing).1["command"].1.contains("exit status: 3"));
    }
}

/// A shim for another MPI gives that MPI handles that mean nothing to it: MPICH said "invalid
/// communicator", and Open MPI crashed.
#[test]
fn a_program_with_the_shim_of_another_mpi_is_ended_and_told() {
    let programs = &*PROGRAMS;
    for (mpi, program) in programs {
        for other in programs.keys().filter(|other| *other != mpi) {
            let shim = built().join(other.library());
            let mut command = Command::new(program);
            command.env("LD_PRELOAD", shim).envs(LAUNCHING).args(["8", "8", "8", "1", "1", "x"]);
            let output = command.output().unwrap();
            let told = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{told}");
            let expected = format!("but LD_PRELOAD has the shim for {}", other.title());
            assert!(told.contains(&expected), "{told}");
        }
    }
}

/// Says what the doctor finds wrong with a program, in a shell that has set this.
fn finds(set: &str, program: &str, check: &str, expected: &str) {
    let command = format!("{set} $LADS mpi doctor --json {program}");
    let (is_ok, checks) = doctor(&mut shell(&command));
    let (is_well, text) = checks.get(check).unwrap_or_else(|| panic!("{command}: {checks:?}"));
    assert!(!is_ok && !is_well && text.contains(expected), "{command}: {checks:?}");
}

#[test]
fn what_is_wrong_with_what_is_preloaded_is_told() {
    for (mpi, program) in PROGRAMS.iter() {
        let (shims, program) = (built(), program.to_str().unwrap());
        let (own, shown) = (mpi.library(), shims.display());
        let preload = |value: &str, expected: &str| {
            finds(&format!("LD_PRELOAD='{value}'"), program, "preload", expected);
        };
        finds(
            "",
            program,
            "preload",
            &format!("is not set | \"eval \\\"$(lads mpi env {program})"),
        );
        preload("/nowhere/librfs_mpich.so", "which does not exist");
        preload(&format!("{shown}/program.mpich"), "names no shim");
        preload(&own, "not an absolute path");
        preload(&format!("{shown}/{own}:{shown}/{own}"), "more than one shim");
        for other in PROGRAMS.keys().filter(|other| *other != mpi) {
            let expected = format!("which is for {}, not for {}", other.title(), mpi.title());
            preload(&format!("{shown}/{}", other.library()), &expected);
            finds("", &format!("--mpi {} {program}", other.name()), "program", "omit --mpi");
        }
        // What others have preloaded stays, and a shim takes the place of an old one.
        let script = format!("LD_PRELOAD=/lib/x.so:/old/librfs_mpich.so $LADS mpi env {program}");
        let told = succeeds(&mut shell(&script));
        assert!(
            told.starts_with(&format!("export LD_PRELOAD=/lib/x.so:{shown}/{own}\n")),
            "{told}"
        );
    }
}

#[test]
fn what_is_wrong_with_a_program_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let make = |name: &str, text: &str, mode: u32| {
        fs::write(path(name), text).unwrap();
        fs::set_permissions(path(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    make("script", "#!/bin/sh\n", 0o755);
    make("data", "data", 0o644);
    make("main.c", "int main(void) { return 0; }\n", 0o644);
    let compiled = |name: &str, options: &[&str]| {
        succeeds(Command::new("cc").arg(path("main.c")).args(["-o", &path(name)]).args(options));
    };
    compiled("static", &["-static"]);
    compiled("plain", &[]);
    finds("", &path("nowhere"), "program", "there is no program");
    finds("", &path("data"), "program", "chmod +x");
    finds("", &path("script"), "program", "is a script");
    finds("", &path("static"), "program", "linked statically");
    finds("", &path("plain"), "program", "loads no MPI");
    let mut env = shell("$LADS mpi env $PROGRAM");
    let output = env.env("PROGRAM", path("static")).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    // Whoever says which MPI it is is believed.
    let (_, checks) =
        doctor(&mut shell(&format!("$LADS mpi doctor --json --mpi mpich {}", path("script"))));
    assert!(checks["program"].0, "{checks:?}");
    if lads_tried::is_root() {
        std::os::unix::fs::chown(path("plain"), Some(65534), None).unwrap();
        fs::set_permissions(path("plain"), fs::Permissions::from_mode(0o4755)).unwrap();
        finds("", &path("plain"), "privileges", "the loader ignores LD_PRELOAD");
    }
    // A library that the program needs is gone.
    fs::write(path("lib.c"), "int x;\n").unwrap();
    let library =
        ["-shared", "-Wl,-soname,libmpi.so.40.gone", "-o", &path("lib.so"), &path("lib.c")];
    succeeds(Command::new("cc").args(library));
    compiled("homeless", &["-Wl,--no-as-needed", &path("lib.so")]);
    finds("", &path("homeless"), "program", "libmpi.so.40.gone");
}

#[test]
fn a_shim_that_is_not_built_is_missed() {
    let empty = tempfile::tempdir().unwrap();
    let shims = format!("--shims {}", empty.path().display());
    finds("", &format!("{shims} --mpi mpiabi"), "shim", "cargo xtask shims");
    finds("", &shims, "shim", "cargo xtask shims");
    fs::write(empty.path().join(Mpi::Mpich.library()), "no library").unwrap();
    finds("", &format!("{shims} --mpi mpich"), "shim", "is not a shim of LADS");
}

#[test]
fn what_is_wrong_with_the_token_and_the_server_is_told() {
    let server = Server::start();
    let (token, file) = (server.token(), server.remote("x"));
    let with = |token: &Path| format!("LADS_RFS_TOKEN_FILE={}", token.display());
    finds("", &file, "token", "is not set");
    finds(&with(Path::new("/nowhere")), &file, "token", "copy the file");
    let (_, checks) = doctor(
        shell("$LADS mpi doctor --json $FILE")
            .env("FILE", &file)
            .env("LADS_RFS_TOKEN_FILE", &token),
    );
    assert!(checks["server"].0 && checks["server"].1.contains("does not exist yet"), "{checks:?}");
    let below = server.remote("run1/out");
    finds(&with(&token), &below, "server", "the directory run1 of");
    finds(&with(&token), &below, "server", "mkdir -p run1, below the root of lads rfs serve");
    fs::create_dir(server.directory.path().join("root/run1")).unwrap();
    let (_, checks) = doctor(
        shell("$LADS mpi doctor --json $FILE")
            .env("FILE", &below)
            .env("LADS_RFS_TOKEN_FILE", &token),
    );
    assert!(checks["server"].0, "{checks:?}");
    finds(&with(&token), "rfs:host", "server", "is not a name of a remote file");
    finds(&with(&token), &server.remote("../x"), "server", "answers, but");

    let other = server.directory.path().join("other");
    fs::write(&other, "0a".repeat(32)).unwrap();
    fs::set_permissions(&other, fs::Permissions::from_mode(0o644)).unwrap();
    finds(&with(&other), &file, "token", "chmod 600");
    fs::set_permissions(&other, fs::Permissions::from_mode(0o600)).unwrap();
    finds(&with(&other), &file, "server", "has another token: copy the token file");

    let at = server.at.clone();
    let copy = tempfile::tempdir().unwrap();
    fs::copy(&token, copy.path().join("token")).unwrap();
    drop(server);
    finds(&with(&copy.path().join("token")), &file, "server", &format!("must listen on {at}"));
}

#[test]
fn each_server_of_a_name_is_asked() {
    let (one, other) = (Server::start(), Server::start());
    let of = |file: &str| {
        let mut command = shell("$LADS mpi doctor $FILE");
        command.env("FILE", file).env("LADS_RFS_TOKEN_FILE", one.token());
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let file = format!("rfs:{},{}:x", one.at, other.at);
    let told = of(&file);
    assert!(told.contains(&format!("OK      server      the server {} answers", one.at)), "{told}");
    let lost = format!("not OK  server      the server of remote files {} has", other.at);
    assert!(told.contains(&lost) && told.contains("another token"), "{told}");
    let told = of(&format!("rfs:{0},{0}:x", one.at));
    assert_eq!(told.matches("OK      server      the server").count(), 2, "{told}");
}

#[test]
fn a_server_is_started_for_the_doctor() {
    let place = tempfile::tempdir().unwrap();
    let file = format!("rfs:host:{}", place.path().join("x").display());
    let of = |set: &str, lads: &str| {
        let ssh = "sh -c 'shift; eval \"$*\"' -";
        let mut command = shell(&format!("{set} $LADS mpi doctor --json $FILE"));
        command.env("FILE", &file).env("LADS_RSH", ssh).env("LADS_REMOTE_LADS", lads);
        doctor(&mut command).1
    };
    let checks = of("", LADS);
    assert!(checks["server"].0 && checks["server"].1.contains("does not exist yet"), "{checks:?}");
    assert!(!checks.contains_key("token"), "none is needed: {checks:?}");
    fs::write(place.path().join("x"), "").unwrap();
    let checks = of(&format!("LADS_RFS_HINTS='rfs_timeout=1; rfs_remote_lads={LADS}'"), "/no");
    assert!(checks["server"].1.contains("the server host answers, and has rfs:"), "{checks:?}");
    let mut command = shell("$LADS mpi doctor --json -- true $FILE");
    let (_, checks) = doctor(command.env("FILE", &file));
    assert!(!checks.contains_key("token"), "none is needed: {checks:?}");
    let checks = of("", "/nowhere/lads");
    assert!(!checks["server"].0 && checks["server"].1.contains("/nowhere/lads"), "{checks:?}");
    assert!(checks["server"].1.contains("ssh -o BatchMode=yes host lads"), "{checks:?}");
}

#[test]
fn a_command_line_that_makes_no_sense_is_refused() {
    let of = |line: &str| shell(&format!("$LADS mpi {line}")).output().unwrap();
    assert_eq!(of("env --mpi lam").status.code(), Some(2));
    assert_eq!(of("doctor a b").status.code(), Some(2));
    assert_eq!(of("doctor a b c").status.code(), Some(2));
    assert_eq!(of("doctor -- /no/such/command").status.code(), Some(1));
}

/// A program with 4 MiB of memory for its output, and a local disk.
struct Killed {
    stage: PathBuf,
    /// What it says on standard error.
    told: PathBuf,
    child: Child,
    said: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

/// How many MiB it writes after the first.
const COUNT: usize = 16;
const MIB: usize = 1 << 20;

impl Killed {
    /// Runs it until its first MiB is at the server.
    fn start(mpi: Mpi, place: &Path, file: &str, set: &[(&str, &str)]) -> Self {
        let stage = place.join("stage");
        fs::create_dir(&stage).unwrap();
        let program = place.join("killed");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../lads-mpiio/tests/programs/killed.c");
        let mut compiling = Command::new(wrapper("mpicc", mpi));
        succeeds(compiling.args(["-std=gnu11", source, "-o"]).arg(&program));
        let mut command = Command::new(&program);
        command.args([file, &COUNT.to_string()]).envs(LAUNCHING).envs(set.iter().copied());
        command.env("LD_PRELOAD", built().join(mpi.library()));
        let hints = format!("rfs_buffer_size=4M; rfs_cache_dir={}", stage.display());
        command.env("LADS_RFS_HINTS", hints);
        let told = place.join("told");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(fs::File::create(&told).unwrap()).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(said.next().unwrap().unwrap(), "first");
        Self { stage, told, child, said }
    }

    /// Lets it write the others. The server has stopped.
    fn write(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        assert_eq!(self.said.next().unwrap().unwrap(), "all", "no write waits for the server");
    }

    /// The lists that it has on the local disk.
    fn lists(&self) -> Vec<PathBuf> {
        let names = fs::read_dir(&self.stage).unwrap().map(|it| it.unwrap().path());
        names.filter(|path| path.extension().is_some_and(|it| it == "rfs")).collect()
    }

    /// Lets it end. Returns what it said on standard error.
    fn end(mut self) -> String {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        assert!(self.child.wait().unwrap().success());
        fs::read_to_string(&self.told).unwrap()
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// What was in memory is lost with the program: it had 64 buffers of 64 KiB.
fn is_what_was_left(file: &Path) {
    const PARTS: usize = 16;
    let is_there = |(index, part): &(usize, &[u8])| {
        part.iter().all(|byte| *byte as usize == index / PARTS + 1)
    };
    let is_empty = |(_, part): &(usize, &[u8])| part.iter().all(|byte| *byte == 0);
    let begun = Instant::now();
    loop {
        let there = fs::read(file).unwrap();
        let parts = || there.chunks(MIB / PARTS).enumerate();
        let count = parts().filter(is_there).count();
        assert!(count >= (COUNT + 1) * PARTS - 64, "{count} parts of {} bytes", there.len());
        if parts().all(|part| is_there(&part) || is_empty(&part)) {
            return;
        }
        // The server that went on may just write what had come to it before the program ended.
        assert!(begun.elapsed() < Duration::from_secs(30), "a part is neither there nor empty");
        std::thread::yield_now();
    }
}

fn signal(pid: u32, signal: rustix::process::Signal) {
    try_signal(pid, signal).unwrap();
}

/// Stops a process. When this returns, all its threads stand still; until then, a busy machine may
/// let one of them go on.
fn stop(pid: u32) {
    signal(pid, rustix::process::Signal::STOP);
    let is_stopped = |task: fs::DirEntry| {
        let stat = fs::read_to_string(task.path().join("stat")).unwrap();
        let (_, state) = stat.rsplit_once(") ").unwrap();
        state.starts_with('T')
    };
    let tasks = || fs::read_dir(format!("/proc/{pid}/task")).unwrap().map(Result::unwrap);
    while !tasks().all(is_stopped) {
        std::thread::yield_now();
    }
}

fn try_signal(pid: u32, signal: rustix::process::Signal) -> rustix::io::Result<()> {
    let pid = rustix::process::Pid::from_raw(pid.try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, signal)
}

/// A program is killed while most of its output waits on the local disk, because the server has
/// stopped. What it left there is sent afterwards.
#[test]
fn what_a_killed_program_left_on_the_local_disk_is_sent_by_replay() {
    for mpi in PROGRAMS.keys() {
        let server = Server::start();
        let token = server.token();
        let set = [("LADS_RFS_TOKEN_FILE", token.to_str().unwrap())];
        let file = server.remote("new");
        let mut program = Killed::start(*mpi, server.directory.path(), &file, &set);
        stop(server.child.id());
        program.write();
        let [list] = &program.lists()[..] else { panic!("{:?}", program.lists()) };
        let mut replay = Command::new(LADS);
        replay.args(["rfs", "replay", "--token-file"]).arg(&token).arg(list);
        let output = replay.output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && told.contains("is still running"), "{told}");
        program.kill();
        signal(server.child.id(), rustix::process::Signal::CONT);
        let mut without = shell("$LADS rfs replay $LIST");
        let output = without.env("LIST", list).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && told.contains("needs a token"), "{told}");
        let told = succeeds(&mut replay);
        assert!(told.contains("MiB sent to 127.0.0.1"), "{told}");
        assert!(program.lists().is_empty());
        is_what_was_left(&server.directory.path().join("root/new"));
        let again = replay.output().unwrap();
        assert!(String::from_utf8_lossy(&again.stderr).contains("No such file"), "{again:?}");
    }
}

/// The same, where each process starts a server: replay starts one, too, and needs no token.
#[test]
fn what_is_left_for_a_server_that_ssh_started_is_sent_by_replay() {
    for mpi in PROGRAMS.keys() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
        let lads = path("lads-of-test");
        let script = format!("echo $$ > {}\nexec {LADS} \"$@\"", path("pid"));
        write_script(lads.as_ref(), &script).unwrap();
        let set =
            [("LADS_RSH", "sh -c 'shift; eval \"$*\"' -"), ("LADS_REMOTE_LADS", lads.as_str())];
        let file = format!("rfs:me@host:{}", path("new"));
        let mut program = Killed::start(*mpi, place.path(), &file, &set);
        let server = fs::read_to_string(path("pid")).unwrap().trim().parse().unwrap();
        stop(server);
        program.write();
        program.kill();
        // The kernel ends a group of processes (SIGHUP, SIGCONT) that has a stopped one and whose
        // parent is gone; so the server may be gone, too.
        let _ = try_signal(server, rustix::process::Signal::CONT);
        let [list] = &program.lists()[..] else { panic!("{:?}", program.lists()) };
        let mut replay = shell("$LADS rfs replay $LIST");
        let told = succeeds(replay.env("LIST", list).envs(set));
        assert!(told.contains("MiB sent to me@host"), "{told}");
        assert!(program.lists().is_empty());
        is_what_was_left(Path::new(&path("new")));
    }
}

#[test]
fn how_much_went_to_the_local_disk_is_told_if_asked_for() {
    for mpi in PROGRAMS.keys() {
        let server = Server::start();
        let token = server.token();
        let set = [("LADS_RFS_TOKEN_FILE", token.to_str().unwrap()), ("LADS_RFS_VERBOSE", "1")];
        let file = server.remote("new");
        let mut program = Killed::start(*mpi, server.directory.path(), &file, &set);
        stop(server.child.id());
        program.write();
        signal(server.child.id(), rustix::process::Signal::CONT);
        let told = program.end();
        let numbers = told.lines().find_map(|it| it.strip_prefix("rfs: staged on local disks: "));
        let numbers = numbers.unwrap_or_else(|| panic!("{told}")).split(' ');
        let bytes: Vec<usize> = numbers.filter_map(|it| it.parse().ok()).collect();
        let [while_writing, while_computing] = bytes[..] else { panic!("{told}") };
        assert!(while_writing > 0, "{told}");
        // All that did not fit into memory, and no more than there was.
        let all = while_writing + while_computing;
        assert!(((COUNT - 4) * MIB..=COUNT * MIB).contains(&all), "{told}");
    }
}
