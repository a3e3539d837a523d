//! `lads bench SRC DST`: how fast each part of a transfer is alone, and how fast all are together.
//!
//! Each part is a transfer of its own, by this program: an end that does not count is `null:`,
//! which costs no storage. What is written goes into a directory of its own, and is removed.

mod room;
mod run;
mod show;

use crate::args::{self, BenchArgs, CopyArgs};
use crate::{code_of_printing, complain, front, request};
use anyhow::{Context, Result, bail, ensure};
use clap::FromArgMatches;
use lads_engine::{ExitCode, Job, Location, StopFlag, deploy};
use room::Room;
use run::{Failed, Limits, Measured, measure};
use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::Command;
use std::time::{Duration, Instant};

/// How often each part is measured. With half, there is no spread; with double, each transfer has
/// half the time, and ssh and slow start of TCP take a larger part of it.
const ROUNDS: u32 = 3;
/// The number of transfers.
const RUNS: u32 = ROUNDS * 4;

/// How long all is measured, if nothing is said: 10 seconds for each transfer. With half, a line of
/// 128 ms is at its full rate for 3 seconds of each; with double, a person waits for four minutes.
const TIME: Duration = Duration::from_secs(120);

/// How much each transfer moves at most, if nothing is said: 1 GB/s for 10 seconds.
const SIZE_BYTES: u64 = 10 << 30;

/// The shortest time for a transfer: ssh and a long line need a second before data moves.
const RUN_TIME_MIN: Duration = Duration::from_secs(2);

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Read,
    Network,
    Write,
    Together,
}

impl Part {
    const ALL: [Self; 4] = [Self::Read, Self::Network, Self::Write, Self::Together];

    fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Network => "network",
            Self::Write => "write",
            Self::Together => "together",
        }
    }
}

/// The rates of a part, one for each round, in bytes per second.
#[derive(Debug)]
struct Figure {
    part: Part,
    rates: Vec<f64>,
}

impl Figure {
    fn median(&self) -> f64 {
        let mut rates = self.rates.clone();
        rates.sort_unstable_by(f64::total_cmp);
        rates.get(rates.len() / 2).copied().unwrap_or(0.0)
    }

    fn least(&self) -> f64 {
        self.rates.iter().copied().reduce(f64::min).unwrap_or(0.0)
    }

    fn most(&self) -> f64 {
        self.rates.iter().copied().reduce(f64::max).unwrap_or(0.0)
    }
}

/// What was found out.
#[derive(Debug)]
struct Findings {
    figures: Vec<Figure>,
    elapsed: Duration,
}

/// Which part limits a transfer.
#[derive(Debug, PartialEq)]
struct Verdict {
    /// The slowest part.
    slowest: Part,
    /// The parts that may be as slow, as far as the spread can tell.
    rivals: Vec<Part>,
    /// How many times as fast the next one is.
    headroom: f64,
    /// How much of the slowest part's rate all reach together, 1.0 being all of it.
    share: f64,
}

impl Findings {
    fn figure(&self, part: Part) -> &Figure {
        self.figures.iter().find(|it| it.part == part).expect("all parts are there")
    }

    fn verdict(&self) -> Verdict {
        let mut alone: Vec<&Figure> =
            self.figures.iter().filter(|it| it.part != Part::Together).collect();
        alone.sort_by(|left, right| left.median().total_cmp(&right.median()));
        let (slowest, others) = (alone[0], &alone[1..]);
        let is_rival = |it: &&&Figure| it.least() <= slowest.most();
        Verdict {
            slowest: slowest.part,
            rivals: others.iter().filter(is_rival).map(|it| it.part).collect(),
            headroom: others[0].median() / slowest.median(),
            share: self.figure(Part::Together).median() / slowest.median(),
        }
    }
}

/// Measures, and shows the result.
pub(super) fn run(args: &BenchArgs) -> std::process::ExitCode {
    let plan = match Plan::new(args) {
        Ok(plan) => plan,
        Err(error) => {
            complain(&format!("{error:#}"));
            return std::process::ExitCode::from(ExitCode::Usage as u8);
        }
    };
    front::run(|stop| match plan.measure(stop) {
        Ok(findings) => {
            let shown = show::write(args, &findings, &mut io::stdout().lock());
            code_of_printing(shown, ExitCode::Other)
        }
        Err(_) if stop.is_set() => {
            complain("stopped; the written files are removed");
            ExitCode::Interrupted as u8
        }
        Err(error) => {
            complain(&format!("{error:#}"));
            let failed = error.chain().find_map(|it| it.downcast_ref::<Failed>());
            failed.map_or(ExitCode::Other as u8, |it| it.code)
        }
    })
}

/// What to measure, and between which places.
struct Plan {
    job: Job,
    /// The options for each transfer, as the user gave them.
    options: Vec<OsString>,
    limits: Limits,
    is_shown: bool,
}

impl Plan {
    fn new(args: &BenchArgs) -> Result<Self> {
        let words = [OsStr::new("lads"), OsStr::new("cp")].into_iter();
        let words = words.chain(args.options.iter().map(OsString::as_os_str));
        let words = words.chain([OsStr::new("--")]).chain(args.paths.iter().map(AsRef::as_ref));
        let matches = args::command().get_matches_from(words);
        let matches = matches.subcommand_matches("cp").context("only options can follow --")?;
        let job = request::job(&CopyArgs::from_arg_matches(matches)?, matches)?;
        ensure!(job.sources.len() == 1, "only options can follow --");
        let is_storage = |it: &Location| it.keeps_data() && it.path != b"-";
        if !is_storage(&job.sources[0]) || !is_storage(&job.target) {
            bail!("lads bench SRC DST measures storage at both ends");
        }
        let time = args.time.unwrap_or(TIME) / RUNS;
        ensure!(
            time >= RUN_TIME_MIN,
            "--time must be 24s or more: each of {RUNS} transfers needs 2 s"
        );
        Ok(Self {
            job,
            options: args.options.clone(),
            limits: Limits { time, bytes: args.size.unwrap_or(SIZE_BYTES) },
            is_shown: io::stderr().is_terminal() && !args.quiet,
        })
    }

    fn measure(&self, stop: &StopFlag) -> Result<Findings> {
        let began = Instant::now();
        let Job { remote, program, .. } = &self.job;
        for host in [&self.job.sources[0].host, &self.job.target.host].into_iter().flatten() {
            // A part can run on that host alone, where nothing sends LADS.
            if remote.lads.is_none() {
                deploy(remote, host, program, stop)
                    .map_err(|(code, message)| Failed { code: code as u8, message })?;
            }
        }
        let mut room = Room::make(&self.job)?;
        let limits = Limits { bytes: self.limits.bytes.min(room.free_bytes / 4), ..self.limits };
        let mut figures = Part::ALL.map(|part| Figure { part, rates: Vec::new() });
        let mut shape = String::new();
        let mut begun = 0;
        for round in 0..ROUNDS {
            // Reading comes first: it says of which sizes the files are.
            for figure in &mut figures {
                let part = figure.part;
                begun += 1;
                self.show(part, begun);
                let command = self.command(part, &shape, &room);
                let measured = measure(command, &limits, stop);
                let measured = measured.with_context(|| part_name(part))?;
                if part == Part::Read && round == 0 {
                    shape = shape_of(&measured, limits.bytes);
                }
                figure.rates.push(measured.bytes_per_second);
                if matches!(part, Part::Write | Part::Together) {
                    room.empty()?;
                }
            }
        }
        if self.is_shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
        room.remove()?;
        Ok(Findings { figures: figures.into(), elapsed: began.elapsed() })
    }

    fn show(&self, part: Part, number: u32) {
        if self.is_shown {
            let name = part_name(part);
            // If stderr is closed, nobody waits for progress.
            let _ = write!(io::stderr(), "\rlads: {name} ({number} of {RUNS})\x1b[K");
        }
    }

    /// The transfer in which only this part takes time.
    fn command(&self, part: Part, shape: &str, room: &Room) -> Command {
        let (source, sink) = (&self.job.sources[0], &self.job.target);
        let null_source = format!("null:{shape}").into_bytes();
        let at = |place: &Location, path: &[u8]| match &place.host {
            Some(host) => [host.as_bytes(), b":", path].concat(),
            None => path.to_vec(),
        };
        let (on, from, to) = match part {
            Part::Read => (source.host.as_deref(), local(source), b"null:".to_vec()),
            Part::Network => (None, at(source, &null_source), at(sink, b"null:")),
            Part::Write => (sink.host.as_deref(), null_source, room.inside()),
            Part::Together => {
                let from = match &source.host {
                    Some(_) => at(source, &source.path),
                    None => local(source),
                };
                (None, from, at(sink, &room.inside()))
            }
        };
        let seconds = format!("{:.3}s", self.limits.time.as_secs_f64());
        let mut words: Vec<Vec<u8>> = Vec::new();
        for word in ["cp", "--json", "--stop-with-stdin", "--stop-after", &seconds] {
            words.push(word.as_bytes().to_vec());
        }
        // What nobody has read lately is in no page cache.
        words.push(b"--source=io=direct".to_vec());
        words.extend(self.options.iter().map(|it| it.as_bytes().to_vec()));
        words.extend([b"--".to_vec(), from, to]);
        self.program(on, words)
    }

    /// LADS with these words, here or on another host.
    fn program(&self, host: Option<&str>, words: Vec<Vec<u8>>) -> Command {
        match host {
            Some(host) => self.job.remote.lads_command_on(host, &self.job.program, &words),
            None => {
                let mut command = Command::new(&self.job.program);
                command.args(words.into_iter().map(OsString::from_vec));
                command
            }
        }
    }
}

/// A path on the host itself, written so that nothing in it is taken for a host or an option.
fn local(place: &Location) -> Vec<u8> {
    if place.path.starts_with(b"/") { place.path.clone() } else { [b"./", &*place.path].concat() }
}

/// Files without storage, of the mean size of those that were found, and at most so many bytes.
fn shape_of(measured: &Measured, bytes_max: u64) -> String {
    let mean = measured.bytes_found / measured.files_found.max(1);
    match bytes_max.checked_div(mean) {
        Some(count) if count > 1 => format!("{count}x{mean}"),
        _ => bytes_max.to_string(),
    }
}

fn part_name(part: Part) -> &'static str {
    match part {
        Part::Read => "read alone",
        Part::Network => "network alone",
        Part::Write => "write alone",
        Part::Together => "all together",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(rates: [[f64; 3]; 4]) -> Findings {
        let figures = Part::ALL.into_iter().zip(rates);
        let figures = figures.map(|(part, rates)| Figure { part, rates: rates.to_vec() });
        Findings { figures: figures.collect(), elapsed: Duration::ZERO }
    }

    #[test]
    fn the_slowest_part_limits() {
        let verdict =
            findings([[9.0, 8.0, 9.5], [4.0, 3.0, 3.5], [1.0, 1.1, 0.9], [0.8, 0.9, 0.9]])
                .verdict();
        let expected = Verdict { slowest: Part::Write, rivals: vec![], headroom: 3.5, share: 0.9 };
        assert_eq!(verdict, expected);
    }

    #[test]
    fn parts_that_overlap_may_both_be_the_slowest() {
        let verdict =
            findings([[2.0, 2.2, 2.1], [2.0, 2.3, 2.4], [9.0, 9.0, 9.0], [1.0, 1.0, 1.0]])
                .verdict();
        assert_eq!((verdict.slowest, verdict.rivals), (Part::Read, vec![Part::Network]));
    }

    #[test]
    fn what_stands_for_the_files_has_their_mean_size() {
        let found = |files_found, bytes_found| {
            shape_of(&Measured { bytes_per_second: 1.0, files_found, bytes_found }, 1000)
        };
        assert_eq!(found(3, 30), "100x10");
        assert_eq!(found(1, 4000), "1000");
        assert_eq!([found(0, 0), found(7, 0)], ["1000", "1000"]);
    }

    #[test]
    fn paths_are_never_taken_for_hosts_or_options() {
        let word = |path: &str| {
            local(&Location { host: Some("dtn".to_owned()), path: path.as_bytes().to_vec() })
        };
        assert_eq!(word("/a/b"), b"/a/b");
        assert_eq!(word("-x"), b"./-x");
        assert_eq!(word("null:4K"), b"./null:4K");
    }
}
