//! Runs a command and counts the processes that say that the shim is in force: the shim says so in
//! every process, if `LADS_RFS_VERBOSE` is `all` (`shim/outside.c` of `lads-mpiio`).

use super::problem::Problem;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// How long it is listened after a command has ended. What it left behind, such as a daemon of its
/// launcher, may hold the pipe for ever. What was said before is there within milliseconds; with
/// half, a busy machine may lose it; double is as much later until a person hears of it.
const LATE: Duration = Duration::from_secs(2);

/// The longest line that is kept together, in bytes: more than the shim ever says.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// What was heard of the processes of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Heard {
    /// The processes that spoke, of as many as there are. A command may start several programs.
    processes: BTreeMap<u64, BTreeSet<u64>>,
    /// How many were alone.
    alone: u64,
    /// The version of LADS and the MPI of the first one.
    shim: Option<String>,
    /// Its file with the token.
    pub(super) token: Option<PathBuf>,
}

/// Runs a command. What it prints goes to stderr, except for what the shim says to us.
pub(super) fn run(command: &[OsString]) -> io::Result<(ExitStatus, Heard)> {
    let mut child = Command::new(&command[0])
        .args(&command[1..])
        .env("LADS_RFS_VERBOSE", "all")
        .stdout(io::stderr().as_fd().try_clone_to_owned()?)
        .stderr(Stdio::piped())
        .spawn()?;
    let pipe = child.stderr.take().expect("piped above");
    let (said, lines) = channel();
    std::thread::Builder::new().spawn(move || {
        pass_on(BufReader::new(pipe), |line| drop(said.send(line)));
    })?;
    let status = child.wait()?;
    Ok((status, listen(&lines)))
}

/// Passes on what is no word of the shim.
fn pass_on(mut from: impl BufRead, mut on_word: impl FnMut(Word)) {
    let mut line = Vec::new();
    while from.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line).is_ok_and(|it| it > 0) {
        match Word::parse(&String::from_utf8_lossy(&line)) {
            Some(word) => on_word(word),
            // If it cannot be told, nobody can be told.
            None => drop(io::stderr().write_all(&line)),
        }
        line.clear();
    }
}

/// Takes in all words until the pipe ends, or is silent for too long.
fn listen(words: &Receiver<Word>) -> Heard {
    let mut heard = Heard::default();
    while let Ok(word) = words.recv_timeout(LATE) {
        heard.take_in(word);
    }
    heard
}

/// What one process says.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Word {
    rank: u64,
    count: u64,
    shim: String,
    token: Option<PathBuf>,
}

impl Word {
    /// Reads `rfs: lads 0.1.0 in force: process 1 of 4 on node7, MPICH Version: 4.0.2, token FILE`;
    /// a launcher may have put something before it.
    fn parse(line: &str) -> Option<Self> {
        let (_, rest) = line.trim_end().split_once("rfs: lads ")?;
        let (version, rest) = rest.split_once(" in force: process ")?;
        let (rank, rest) = rest.split_once(" of ")?;
        let (count, rest) = rest.split_once(" on ")?;
        let (_host, rest) = rest.split_once(", ")?;
        let (mpi, token) = rest.split_once(", token ")?;
        Some(Self {
            rank: rank.parse().ok()?,
            count: count.parse().ok()?,
            shim: format!("lads {version}, {mpi}"),
            token: (token != "not set").then(|| token.into()),
        })
    }
}

impl Heard {
    fn take_in(&mut self, word: Word) {
        self.alone += u64::from(word.count == 1);
        self.processes.entry(word.count).or_default().insert(word.rank);
        self.token = self.token.take().or(word.token);
        self.shim.get_or_insert(word.shim);
    }

    /// Whether the shim is in force in all processes.
    pub(super) fn judge(&self) -> Result<String, Problem> {
        let Some(shim) = &self.shim else {
            return Err(Problem::new(
                "no process of the command reports that the shim is in force",
                "LD_PRELOAD was not passed to the program, or had no effect: lads mpi doctor \
                 PROGRAM shows the reason",
            ));
        };
        if self.alone > 1 {
            return Err(Problem::new(
                format!("{} processes are not connected to each other ({shim})", self.alone),
                "start them with the mpirun of their own MPI",
            ));
        }
        let spoke: u64 = self.processes.values().map(|ranks| ranks.len() as u64).sum();
        let all: u64 = self.processes.keys().sum();
        if spoke < all {
            return Err(Problem::new(
                format!("the shim is in force in only {spoke} of {all} processes ({shim})"),
                "pass the variables to all hosts: mpirun -x LD_PRELOAD -x LADS_RFS_TOKEN_FILE -x \
                 LADS_RFS_VERBOSE (Open MPI), or srun --export=ALL; the shim must exist there, \
                 too",
            ));
        }
        let processes =
            if all == 1 { "the process".to_owned() } else { format!("all {all} processes") };
        Ok(format!("the shim is in force in {processes} ({shim})"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(lines: &[&str]) -> Heard {
        let mut heard = Heard::default();
        pass_on(lines.concat().as_bytes(), |word| heard.take_in(word));
        heard
    }

    const FIRST: &str =
        "rfs: lads 0.1.0 in force: process 0 of 2 on a, MPICH Version: 4.0.2, token not set\n";
    const SECOND: &str =
        "[1]: rfs: lads 0.1.0 in force: process 1 of 2 on b, MPICH Version: 4.0.2, token /t\n";

    #[test]
    fn all_processes_must_speak() {
        let all = heard(&[FIRST, "something else\n", SECOND]);
        let expected = "the shim is in force in all 2 processes (lads 0.1.0, MPICH Version: 4.0.2)";
        assert_eq!(all.judge().unwrap(), expected);
        assert_eq!(all.token, Some("/t".into()));
        // The same one twice is one.
        let some = heard(&[FIRST, FIRST]).judge().unwrap_err();
        assert!(some.what.contains("1 of 2 processes"), "{}", some.what);
        // Four times a program alone is not a program of four processes.
        let alone = FIRST.replace("of 2", "of 1");
        heard(&[&alone]).judge().unwrap();
        assert!(heard(&[&alone, &alone]).judge().unwrap_err().what.starts_with("2 processes"));
        heard(&["rfs: lads 0.1.0\n", "rfs: a file is open\n"]).judge().unwrap_err();
    }
}
