//! Measures how fast LADS is, compared with other programs that do the same work on the same
//! machine at the same time.
//!
//! Absolute figures from a shared machine are noisy. So the movers take turns, round by round, and
//! the ratio counts. The first round is a warm-up: its result is checked byte for byte, but it is
//! not counted. If something that a benchmark needs is missing, it prints no figure and says what
//! is missing.

pub(crate) mod bare;
mod builds;
mod check;
mod estimates;
mod gathered;
mod journal;
mod lookups;
mod machine;
mod measure;
mod memory;
mod movers;
mod moves;
mod needs;
mod null;
mod race;
pub(crate) mod room;
mod summary;
mod table;
mod threads;

use crate::shell;
use anyhow::{Context, Result};
use machine::Machine;
pub(crate) use moves::Course;
use needs::Needs;
use std::fs;
use std::path::PathBuf;
use std::time::Instant;
use table::Table;

/// The benchmarks of LADS on plain memory and disk. They run if the user names none.
pub(crate) const NAMES: [&str; 18] = [
    "big",
    "medium",
    "small",
    "encrypted",
    "static",
    "null",
    "check",
    "journal",
    "memory",
    "threads",
    "lookups",
    "harm",
    "slow-ost",
    "verdict",
    "grid",
    "rfs",
    "estimates",
    "first",
];

/// What every benchmark needs.
struct Bench {
    lads: PathBuf,
    /// The static program that `cargo xtask dist` builds, which `first` sends.
    first: PathBuf,
    /// The dynamic program that `cargo xtask dist` builds.
    dynamic: PathBuf,
    /// A directory in memory, on tmpfs.
    memory: PathBuf,
    /// A directory on the disk that holds the build.
    disk: PathBuf,
}

/// Measure beside rivals; tables, and pages of emulated file systems, are kept in target/bench
#[derive(Debug, clap::Parser)]
pub(crate) struct Arguments {
    /// Benchmarks; `room` for all between emulated file systems, `page` gathers all tables
    #[arg(value_parser = known_name)]
    names: Vec<String>,
    #[command(flatten)]
    choice: room::Choice,
}

/// The names of all benchmarks.
fn known() -> impl Iterator<Item = &'static str> {
    NAMES.into_iter().chain(room::NAMES)
}

fn known_name(name: &str) -> Result<String, String> {
    if ["room", "page"].into_iter().chain(known()).any(|known| known == name) {
        return Ok(name.to_owned());
    }
    let known: Vec<&str> = known().collect();
    Err(format!("there are {}; room for those of the room, and page", known.join(", ")))
}

/// Runs the named benchmarks. Without a name, runs all of [`NAMES`]; the name `room` stands for all
/// benchmarks of the machine room. Writes `target/bench/NAME.json` and a table for each, and also a
/// page for those of the machine room. The name `page` gathers the tables of all benchmarks.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let disk = shell::target_dir()?.join("bench");
    fs::create_dir_all(&disk)?;
    let Arguments { names, choice } = arguments;
    let names: Vec<&str> = match names.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["page"] => return gathered::run(&disk, &known().collect::<Vec<_>>()),
        [] => NAMES.to_vec(),
        ["room"] => room::NAMES.to_vec(),
        ref some => some.to_vec(),
    };
    let first = room::first::program();
    let dynamic = crate::dist::dynamic_program(&shell::target_dir()?, std::env::consts::ARCH);
    let memory = "/dev/shm".into();
    let bench = Bench { lads: shell::build_lads()?, first, dynamic, memory, disk };
    for name in names {
        println!("\n## {name}\n");
        if room::NAMES.contains(&name) {
            room::Room::new(&bench.lads, &bench.disk)?.run(name, choice)?;
        } else {
            bench.run(name, choice.stage.as_deref())?;
        }
    }
    Ok(())
}

impl Bench {
    /// Runs a benchmark; of one that has stages, those with `word` in their name, which are kept
    /// under a name of their own.
    fn run(&self, name: &str, word: Option<&str>) -> Result<()> {
        let missing = self.needs(name).missing()?;
        if !missing.is_empty() {
            println!("not measured; missing: {}", missing.join("; "));
            return Ok(());
        }
        let machine = Machine::here()?;
        println!("{machine}\n");
        let start = Instant::now();
        let tables = match name {
            "big" | "medium" | "small" => moves::run(self, name)?,
            "encrypted" => moves::run_encrypted(self, word)?,
            "static" => builds::run(self)?,
            "null" => null::run(self)?,
            "check" => check::run(self)?,
            "journal" => journal::run(self)?,
            "memory" => vec![memory::run(self)?],
            "lookups" => vec![lookups::run(self)?],
            "estimates" => vec![estimates::run(self)?],
            "first" => vec![room::first::run(&self.first)?],
            "harm" => vec![room::harm::run(&self.lads)?],
            "slow-ost" => vec![room::slow_ost::run(&self.lads)?],
            "verdict" => vec![room::verdict::run(&self.lads)?],
            "grid" => room::grid::run(&self.lads, &self.disk, word)?,
            "rfs" => room::rfs::run(&self.lads, &self.disk, word)?,
            _ => threads::run(self)?,
        };
        for table in &tables {
            println!("{table}");
        }
        let kept_as = match (name, word) {
            ("encrypted" | "grid" | "rfs", Some(word)) => {
                format!("{name}-{}", word.replace(|it: char| !it.is_alphanumeric(), "-"))
            }
            _ => name.to_owned(),
        };
        self.keep(&kept_as, &machine, &tables, start.elapsed().as_secs_f64())
    }

    fn needs(&self, name: &str) -> Needs<'_> {
        let needs = Needs::default().processor_time();
        match name {
            "big" | "medium" | "small" => {
                let programs = needs.program("rsync").program("unshare").program("ip");
                programs.root("for a network namespace").space(&self.memory, moves::space(name))
            }
            "encrypted" => {
                let programs = ["rsync", "ssh", "sshd", "scp", "rclone", "unshare", "ip"];
                let needs = programs.into_iter().fold(needs, Needs::program);
                needs.root("for a network namespace").space(&self.memory, moves::space("big"))
            }
            "static" => {
                let files = needs.file(&self.first).file(&self.dynamic);
                files.space(&self.memory, builds::space())
            }
            "null" => needs.space(&self.memory, null::FILE_BYTES),
            "check" => needs.program("rsync").program("diff").space(&self.memory, check::space()),
            "estimates" => needs.space(&self.disk, estimates::SPACE),
            "first" => ["ssh", "sshd", "ip"]
                .into_iter()
                .fold(needs.root("for network namespaces").file(&self.first), Needs::program),
            "journal" => {
                needs.space(&self.memory, journal::BYTES * 2).space(&self.disk, journal::BYTES)
            }
            "memory" => needs.space(&self.memory, memory::SPACE).space(&self.disk, memory::BYTES),
            "slow-ost" => room::mounts_need().space(&self.memory, room::slow_ost::SPACE),
            "verdict" => {
                let mounts = room::mounts_need().program("taskset").program("ip");
                mounts.space(&self.memory, room::verdict::SPACE)
            }
            "grid" => room::grid::needs()
                .space(&self.memory, room::grid::SPACE)
                .space(&self.disk, room::grid::SPACE),
            "rfs" => room::rfs::PROGRAMS
                .into_iter()
                .chain(room::records::PROGRAMS)
                .fold(room::mounts_need(), Needs::program)
                .space(&self.memory, room::rfs::SPACE)
                .space(&self.disk, room::rfs::DISK_SPACE),
            "harm" => room::mounts_need().space(&self.memory, room::harm::SPACE),
            "lookups" => {
                needs.space(&self.memory, lookups::SPACE).space(&self.disk, lookups::DISK_BYTES)
            }
            _ => needs.space(&self.memory, threads::BYTES * 2),
        }
    }

    fn keep(
        &self,
        name: &str,
        machine: &Machine,
        tables: &[Table],
        took_seconds: f64,
    ) -> Result<()> {
        let markdown: Vec<String> = tables.iter().map(Table::to_string).collect();
        let path = self.disk.join(format!("{name}.json"));
        let text = serde_json::to_string_pretty(&serde_json::json!({
            "benchmark": name,
            "title": title(name),
            "machine": machine,
            "said": machine.to_string(),
            "markdown": markdown,
            "took_seconds": took_seconds,
            "tables": tables,
        }))?;
        fs::write(&path, text + "\n").with_context(|| path.display().to_string())?;
        println!("kept in {}", path.display());
        Ok(())
    }
}

/// The title of a benchmark that has rivals; the name of any other.
fn title(name: &str) -> &str {
    match name {
        "big" => "one file of 2 GiB on tmpfs",
        "medium" => "1,000 files of 1 MiB on tmpfs",
        "small" => "20,000 files of 4 KiB on tmpfs",
        "encrypted" => "the same three, encrypted, through ssh",
        "check" => "comparison of equal trees on tmpfs",
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[test]
    fn options_and_names_may_be_mixed() {
        let parse = |words: &[&str]| Arguments::try_parse_from([&["bench"], words].concat());
        let words =
            ["fig7", "--repeats", "7", "--stage", "big", "--peer", "wdt=wdt {src} {dst}", "spider"];
        let Arguments { names, choice } = parse(&words).unwrap();
        assert_eq!(names, ["fig7", "spider"]);
        assert_eq!((choice.repeats, choice.stage.as_deref()), (7, Some("big")));
        assert_eq!(choice.peers, [("wdt".to_owned(), "wdt {src} {dst}".to_owned())]);
        assert!(parse(&["fig7", "--repeats", "0"]).is_err(), "it would measure nothing");
        assert!(parse(&["fig77"]).is_err());
    }
}
