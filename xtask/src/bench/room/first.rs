//! Measures the first transfer to a distant host that has only ssh, including the time to send LADS
//! there, and later transfers.

use super::super::table::Table;
use super::route::{Distance, Line, LineKind};
use crate::scratch::Scratch;
use crate::shell;
use anyhow::{Context, Result};
use lads_plot::groups::Spread;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Number of rounds. It is odd, so that the median is one of the results.
const ROUNDS: usize = 5;

/// Returns the static program that `cargo xtask dist` builds, which users download.
pub(in crate::bench) fn program() -> PathBuf {
    shell::root().join("target/dist").join(format!("lads-{}", std::env::consts::ARCH))
}

/// Measured commands, and whether the host has LADS before each one.
const ROWS: [(&str, Option<bool>); 5] = [
    ("`ssh HOST true`", None),
    ("`lads deploy HOST`", Some(false)),
    ("`lads deploy HOST`, LADS is already present", Some(true)),
    ("`lads cp FILE HOST:`", Some(false)),
    ("`lads cp FILE HOST:`, LADS is already present", Some(true)),
];

/// Measures over 128 ms. Each command opens its own ssh connection.
pub(in crate::bench) fn run(program: &Path) -> Result<Table> {
    let testbed = shell::build_testbed()?;
    let line = Line::lay(&testbed, Distance::Seattle, LineKind::USUAL)?;
    let scratch = Scratch::new(&std::env::temp_dir(), "lads-first")?;
    let (file, cache, target) =
        (scratch.join("file"), scratch.join("cache"), scratch.join("target"));
    fs::write(&file, vec![7; 1000])?;
    let ssh = format!("{} -oSetEnv=LADS_CACHE={}", line.own_shell(), cache.display());
    let command = |row: usize| -> Command {
        if row == 0 {
            let mut words = ssh.split(' ');
            let mut command = line.route.at_source(words.next().unwrap_or_default());
            command.args(words).args(["sink", "true"]);
            return command;
        }
        let mut command = line.route.at_source(&program.display().to_string());
        match row {
            1 | 2 => command.args(["deploy", "-e", &ssh, "sink"]),
            _ => {
                command.args(["cp", "-q", "-e", &ssh, "--data-address", &line.route.sink_address]);
                command.arg(&file).arg(format!("sink:{}", target.display()))
            }
        };
        command
    };
    let mut seconds: Vec<Vec<f64>> = vec![Vec::new(); ROWS.len()];
    for _ in 0..ROUNDS {
        for (row, (name, has_lads)) in ROWS.iter().enumerate() {
            if *has_lads == Some(false) && cache.exists() {
                fs::remove_dir_all(&cache)?;
            }
            let _ = fs::remove_file(&target);
            let start = Instant::now();
            shell::run_quietly(&mut command(row)).with_context(|| (*name).to_owned())?;
            seconds[row].push(start.elapsed().as_secs_f64());
        }
    }
    let rows = ROWS.iter().zip(&seconds).map(|((name, _), seconds)| {
        let Spread { median, min, max } = Spread::of(seconds.iter().copied());
        vec![(*name).to_owned(), format!("{median:.2}"), format!("{min:.2} to {max:.2}")]
    });
    let title = format!("first: a host that has only ssh, {}", line.route.name);
    Ok(Table::of_words(&title, &["command", "s", "from, to"], rows.collect()))
}
