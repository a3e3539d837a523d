//! Repeats the experiments of the papers in the machine room: transfers between two emulated
//! parallel file systems, compared with the rivals. The results are seconds, MB/s and the share of
//! the fluid bound.
//!
//! [`scenario`] says what is run, [`mount`] and [`route`] what it runs on, and [`contest`] how.
//! [`peers`] are LADS and its rivals. [`page`] shows the results.

mod contest;
mod data;
pub(super) mod first;
pub(super) mod grid;
pub(super) mod harm;
mod messages;
pub(super) mod mount;
mod page;
mod paper;
mod peers;
pub(super) mod records;
pub(super) mod rfs;
mod route;
mod scenario;
pub(crate) mod show;
pub(super) mod slow_ost;
pub(super) mod verdict;

use super::machine::Machine;
use super::needs::Needs;
use super::table::Table;
use crate::scratch::Scratch;
use crate::shell;
use anyhow::{Context, Result};
use contest::{Arena, DATA, Row, Standing};
use lads_plot::groups::{Kind, Plot, Series, Spread};
use mount::{Bytes, Pair};
use paper::Paper;
use route::{Line, Route};
use scenario::{Quantity, Scenario, Stage, View};
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

pub(super) use scenario::NAMES;

/// What a person may choose.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Choice {
    /// Rounds that count, between emulated file systems
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) repeats: u32,
    /// Another program to run beside, a command with {src} and {dst}
    #[arg(long = "peer", value_name = "NAME=COMMAND", value_parser = peer)]
    pub(crate) peers: Vec<(String, String)>,
    /// Only stages with this in their name; then there is no page, which shows all
    #[arg(long, value_name = "WORD")]
    pub(crate) stage: Option<String>,
}

fn peer(text: &str) -> Result<(String, String), String> {
    let (name, command) = text.split_once('=').ok_or("it has no `=`")?;
    Ok((name.to_owned(), command.to_owned()))
}

/// The programs and places that every scenario needs.
pub(super) struct Room {
    lads: PathBuf,
    testbed: PathBuf,
    kept: PathBuf,
}

/// The results of one stage.
#[derive(Serialize)]
struct Held {
    name: String,
    settings: String,
    standings: Vec<Standing>,
    missing: Vec<String>,
}

impl Room {
    /// Builds what is needed.
    pub(super) fn new(lads: &Path, kept: &Path) -> Result<Self> {
        Ok(Self { lads: lads.into(), testbed: shell::build_testbed()?, kept: kept.into() })
    }

    /// Runs a scenario, and keeps the results in `NAME.json` and `NAME.html`.
    pub(super) fn run(&self, name: &str, choice: &Choice) -> Result<()> {
        let scenario = scenario::of(name).context("no such scenario")?;
        println!("{}\n", scenario.about);
        let missing = needs(&scenario).missing()?;
        if !missing.is_empty() {
            println!("not measured; missing: {}", missing.join("; "));
            return Ok(());
        }
        let machine = Machine::here()?;
        println!("{machine}\n");
        let start = Instant::now();
        let is_wanted = |stage: &&Stage| {
            choice.stage.as_ref().is_none_or(|word| stage.name.contains(word.as_str()))
        };
        let held: Vec<Held> = scenario
            .stages
            .iter()
            .filter(is_wanted)
            .map(|stage| self.hold(stage, choice).with_context(|| stage.name.clone()))
            .collect::<Result<_>>()?;
        if held.len() < scenario.stages.len() {
            println!("{} of {} stages: no page", held.len(), scenario.stages.len());
            return Ok(());
        }
        self.keep(&scenario, &machine, &held, start.elapsed().as_secs_f64())
    }

    fn hold(&self, stage: &Stage, choice: &Choice) -> Result<Held> {
        let notes = Scratch::new(&std::env::temp_dir(), "lads-room")?;
        let pair = Pair::start(&self.testbed, stage.source, stage.sink, &notes.join("mounts"))?;
        let lay = |distance| Line::lay(&self.testbed, distance, stage.line);
        let line = stage.distance.map(lay).transpose()?;
        let route = line.as_ref().map_or_else(Route::loopback, |line| line.route.clone());
        let extent = stage.data.make(&pair.source.path().join(DATA))?;
        let (contestants, missing) = stage.contestants(&self.lads, &route, &notes, &choice.peers);
        let arena = Arena {
            testbed: &self.testbed,
            pair: &pair,
            route: &route,
            congestion: &stage.congestion,
            notes: &notes,
            extent,
            is_placed: stage.is_placed,
        };
        let standings = arena.hold(&contestants, choice.repeats as usize)?;
        let settings = settings(stage, &route, &pair)?;
        let held = Held { name: stage.name.clone(), settings, standings, missing };
        println!("{}\n{}\n", table(&held), held.settings);
        held.missing.iter().for_each(|missing| println!("{missing}"));
        Ok(held)
    }

    fn keep(
        &self,
        scenario: &Scenario,
        machine: &Machine,
        held: &[Held],
        took_seconds: f64,
    ) -> Result<()> {
        let name = scenario.name;
        let markdown: Vec<String> = held.iter().map(|held| table(held).to_string()).collect();
        let text = serde_json::to_string_pretty(&serde_json::json!({
            "benchmark": name,
            "title": scenario.title,
            "about": scenario.about,
            "machine": machine,
            "said": format!("{machine}. {}", scenario.about),
            "markdown": markdown,
            "took_seconds": took_seconds,
            "stages": held,
        }))?;
        let plots = plots(scenario, held);
        let page = page::page(scenario, machine, held, &plots);
        for (extension, text) in [("json", text + "\n"), ("html", page)] {
            let path = self.kept.join(format!("{name}.{extension}"));
            fs::write(&path, text).with_context(|| path.display().to_string())?;
            println!("kept in {}", path.display());
        }
        Ok(())
    }
}

/// What is needed to mount file systems and to measure on them.
pub(super) fn mounts_need() -> Needs<'static> {
    Needs::default()
        .processor_time()
        .root("to drop the page cache and mount file systems")
        .device(Path::new("/dev/fuse"))
}

/// The memory that a scenario needs, in bytes: for source and sink, and some reserve.
fn space(scenario: &Scenario) -> u64 {
    let keeps =
        |stage: &&Stage| [stage.source, stage.sink].iter().any(|it| it.bytes == Bytes::Kept);
    let bytes = scenario.stages.iter().filter(keeps).map(|stage| stage.data.bytes());
    bytes.max().unwrap_or(0) * 2 + (512 << 20)
}

fn needs(scenario: &Scenario) -> Needs<'static> {
    let needs = mounts_need().space(Path::new("/dev/shm"), space(scenario));
    if scenario.stages.iter().any(|stage| stage.distance.is_some()) {
        return needs.program("ip").program("iptables").program("ssh").program("sshd");
    }
    needs
}

/// All settings of a stage, in words.
fn settings(stage: &Stage, route: &Route, pair: &Pair) -> Result<String> {
    let storage = serde_json::to_string(&stage.source)?;
    let mounted = &pair.source.stats()?["settings"];
    let congestion = serde_json::to_string(&stage.congestion)?;
    let data = serde_json::to_string(&stage.data)?;
    Ok(format!(
        "storage at each end {storage}; data {data}; route {}; congestion {congestion}; mounts \
         {mounted}",
        route.name
    ))
}

/// The name of a mover, with the value that was varied for it.
fn name_of(standing: &Standing) -> String {
    match &standing.at {
        Some(at) => format!("{}, {at}", standing.line),
        None => standing.line.clone(),
    }
}

fn machine_text(machine: &Machine) -> String {
    machine.to_string()
}

fn table(held: &Held) -> Table {
    let head = ["mover", "seconds [min–max]", "MB/s", "share of the bound", "CPU s"];
    let rows = held.standings.iter().map(|standing| {
        let name = name_of(standing);
        if let Some(failure) = &standing.failure {
            return vec![name, format!("no figure: {failure}")];
        }
        let of = |index: usize| Spread::of(standing.each(|row| row.figures()[index]).into_iter());
        let [seconds, rate, share] = [0, 1, 2].map(of);
        let cpu = Spread::of(standing.each(Row::cpu_seconds).into_iter()).median;
        let Spread { median, min, max } = seconds;
        vec![
            name,
            format!("{median:.2} [{min:.2}–{max:.2}]"),
            format!("{:.0}", rate.median / 1e6),
            format!("{:.0} %", share.median * 100.0),
            format!("{cpu:.2}"),
        ]
    });
    Table::of_words(&held.name, &head, rows.collect())
}

/// All views as plots, each with the paper's plot and its source, if there is one.
fn plots(scenario: &Scenario, held: &[Held]) -> Vec<(Plot, Option<Paper>)> {
    scenario.views.iter().map(|view| (drawn(view, held), view.paper.clone())).collect()
}

/// A view as a plot.
fn drawn(view: &View, held: &[Held]) -> Plot {
    let stages: Vec<&Held> = view.stages.iter().map(|&index| &held[index]).collect();
    let (ticks, series) = match view.x_label {
        Some(_) => lines(stages[0], view.quantity),
        None => bars(&stages, view.quantity),
    };
    Plot {
        title: view.title.to_owned(),
        x_label: view.x_label.unwrap_or_default().to_owned(),
        ticks,
        y_label: view.quantity.label().to_owned(),
        series,
        kind: if view.x_label.is_some() { Kind::Lines } else { Kind::Bars },
    }
}

/// One line for each mover whose options are varied, and one horizontal line for each other mover.
fn lines(held: &Held, quantity: Quantity) -> (Vec<String>, Vec<Series>) {
    let ticks = unique(held.standings.iter().filter_map(|standing| standing.at.clone()));
    let names = unique(held.standings.iter().map(|standing| standing.line.clone()));
    let mut series = Vec::new();
    for name in names {
        let own = |at: &str| {
            let is_own = |standing: &&Standing| {
                standing.line == name && standing.at.as_deref().is_none_or(|own| own == at)
            };
            held.standings.iter().find(is_own)
        };
        let is_level = held.standings.iter().any(|s| s.line == name && s.at.is_none());
        for (part, select) in quantity.parts() {
            let values = ticks.iter().map(|at| own(at).and_then(|s| spread(s, select))).collect();
            let name = if part.is_empty() { name.clone() } else { format!("{name}: {part}") };
            series.push(Series { name, values, is_level });
        }
    }
    series.retain(|series| series.values.iter().any(Option::is_some));
    (ticks, series)
}

/// One tick for each mover, and one bar for each stage.
fn bars(stages: &[&Held], quantity: Quantity) -> (Vec<String>, Vec<Series>) {
    let standings = stages.iter().flat_map(|held| &held.standings);
    let ticks = unique(standings.map(|standing| standing.line.clone()));
    let series = stages.iter().flat_map(|held| {
        let ticks = &ticks;
        quantity.parts().into_iter().map(move |(_, select)| {
            let own = |line: &String| held.standings.iter().find(|s| &s.line == line);
            let values = ticks.iter().map(|line| own(line).and_then(|s| spread(s, select)));
            Series { name: held.name.clone(), values: values.collect(), is_level: false }
        })
    });
    let series = series.collect();
    (ticks, series)
}

fn unique(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut unique = Vec::new();
    for name in names {
        if !unique.contains(&name) {
            unique.push(name);
        }
    }
    unique
}

/// Selects a number of a run, if the run has it.
type Select = fn(&Row) -> Option<f64>;

fn spread(standing: &Standing, select: Select) -> Option<Spread> {
    let numbers: Vec<f64> = standing.rows.iter().filter_map(select).collect();
    (!numbers.is_empty()).then(|| Spread::of(numbers.into_iter()))
}

impl Quantity {
    fn label(self) -> &'static str {
        match self {
            Self::Throughput => "MB/s",
            Self::Share => "% of the fluid bound",
            Self::Seconds => "seconds",
            Self::Cpu => "% of one core",
            Self::Memory => "MB",
        }
    }

    /// The numbers that are drawn for each mover, with their names.
    fn parts(self) -> Vec<(&'static str, Select)> {
        match self {
            Self::Throughput => vec![("", |row| Some(row.figures()[1] / 1e6))],
            Self::Share => vec![("", |row| Some(row.figures()[2] * 100.0))],
            Self::Seconds => vec![("", |row| Some(row.figures()[0]))],
            Self::Cpu => vec![
                ("source", |row| Some(row.end(true)?.0 * 100.0)),
                ("sink", |row| Some(row.end(false)?.0 * 100.0)),
            ],
            Self::Memory => vec![
                ("source", |row| Some(row.end(true)?.1 / 1e6)),
                ("sink", |row| Some(row.end(false)?.1 / 1e6)),
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contest::End;

    /// Results of a stage, made up for the test: LADS is faster with more threads.
    fn held(stage: &Stage) -> Held {
        let end = End { cpu_seconds: 0.4, memory_bytes_peak: 290e6 };
        let notes = Scratch::new(&std::env::temp_dir(), "held").unwrap();
        let route = Route::loopback();
        let (contestants, missing) = stage.contestants(Path::new("lads"), &route, &notes, &[]);
        let standing = |(index, contestant): (usize, contest::Contestant)| {
            let at = contestant.at.clone();
            let threads = at.as_deref().and_then(|at| at.parse().ok()).unwrap_or(1.5);
            let is_lost = index == 5;
            let row = |round: usize| {
                let seconds = 8.0 / threads * (1.0 + round as f64 / 50.0);
                Row::invented(&contestant, round, seconds, [end, end])
            };
            Standing {
                line: contestant.line.clone(),
                at: contestant.at.clone(),
                rows: if is_lost { Vec::new() } else { (1..=5).map(row).collect() },
                failure: is_lost.then(|| "exit status: 1: <no> such thing".to_owned()),
            }
        };
        let standings = contestants.into_iter().enumerate().map(standing).collect();
        Held { name: stage.name.clone(), settings: "as set".to_owned(), standings, missing }
    }

    #[test]
    fn congestion_that_moves_is_another_one_in_each_round() {
        let mut count = 0;
        for stage in NAMES.iter().flat_map(|name| scenario::of(name).unwrap().stages) {
            let contest::Congestion { source, sink, .. } = stage.congestion;
            for command in [source, sink].into_iter().flatten().filter(|it| it.contains("moving")) {
                assert!(command.ends_with(" SEED={seed}"), "{}: {command}", stage.name);
                count += 1;
            }
        }
        assert!(count > 10, "{count}");
    }

    #[test]
    fn every_scenario_has_a_page_with_all_its_pictures() {
        for name in NAMES {
            let scenario = scenario::of(name).unwrap();
            let held: Vec<Held> = scenario.stages.iter().map(held).collect();
            let page =
                page::page(&scenario, &Machine::here().unwrap(), &held, &plots(&scenario, &held));
            let papers = scenario.views.iter().filter(|view| view.paper.is_some()).count();
            assert_eq!(page.matches("</svg>").count(), scenario.views.len() + papers, "{name}");
            assert!(!page.contains("<no>") && !page.contains("NaN"), "{name}");
            if let Some(place) = std::env::var_os("LADS_PAGES") {
                fs::write(Path::new(&place).join(format!("{name}.html")), page).unwrap();
            }
        }
    }

    #[test]
    fn a_mover_that_failed_has_no_figure() {
        let scenario = scenario::of("fig7").unwrap();
        let text = table(&held(&scenario.stages[0])).to_string();
        let line = text.lines().find(|line| line.contains("no figure")).unwrap();
        assert_eq!(
            line,
            "| LADS, --lab schedule=file, 2 | no figure: exit status: 1: <no> such thing |"
        );
    }
}
