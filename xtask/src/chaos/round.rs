//! Plays a round: grows a tree, runs the command, lets accidents happen, and judges the result
//! after each run. At the end the same command runs once more without accidents.

use super::Tools;
use super::accident::{Accident, Moment, Whom};
use super::changes::Changes;
use super::history::{History, own_names};
use super::judge::{self, Outcome};
use super::kinds;
use super::options::Choice;
use super::plan::{Output, Plan, Step, Way};
use super::process::{self, Ended, Member, Running, within};
use super::removal::Before;
use super::report::Report;
use super::room::{AS_NOBODY, NOBODY, Network, Room};
use super::selection::Selection;
use super::tree;
use super::view;
use anyhow::{Context, Result, bail, ensure};
use lads_trees::{Rng, describe};
use rustix::process::Signal;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// The name of a directory outside of the source to which links of the source lead.
const ELSEWHERE: &str = "elsewhere";
/// The limit for a step. No step takes that long, even on a busy machine: its timeouts are at most
/// 12 s.
const HANG: Duration = Duration::from_secs(60);
/// The interval between two checks whether an accident is due or a command has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);
/// The interval between two searches for the processes of the round. A search takes a millisecond.
const MEMBERS_INTERVAL: Duration = Duration::from_millis(10);
/// The memory that a process may have in addition to its buffers, in bytes: for the program, its
/// threads, and what it knows about the tree.
const MEMORY_BESIDE_BUFFERS_BYTES: u64 = 64 << 20;

/// A round that is played.
pub(super) struct Round<'a> {
    tools: &'a Tools,
    room: Room,
    way: Way,
    is_tunnelled: bool,
    is_unprivileged: bool,
    history: History,
    run_count: usize,
    /// What happened so far, for a report of a failure.
    pub(super) story: Vec<String>,
    pub(super) report: Report,
    /// The options of the last rival, if one ran.
    rival: Option<Choice>,
    /// Whether all runs are about the same files and keep a journal. Then the last run knows what
    /// the earlier ones began.
    is_all_known: bool,
    /// Whether the last command has copied everything. Otherwise, its journal stays.
    is_last_complete: bool,
    /// The text of the links that files and directories of the source become.
    link_text: PathBuf,
}

/// The state of a step that is running.
struct Scene<'a> {
    step: &'a Step,
    began: Instant,
    running: Vec<Running>,
    ended: Vec<Ended>,
    members: Vec<Member>,
    members_seen: Instant,
    accidents: Vec<(Moment, Accident)>,
    changes: Vec<Changes>,
    /// The processes that are frozen, and the time when each group of them continues.
    frozen: Vec<(Vec<u32>, Instant)>,
    /// The time when the storage must release calls that hang.
    release: Option<Instant>,
    /// The accidents that have happened.
    happened: Vec<Accident>,
    memory_bytes_peak: u64,
}

impl<'a> Round<'a> {
    /// Prepares a round in `directory`.
    pub(super) fn new(plan: &Plan, directory: PathBuf, tools: &'a Tools) -> Result<Self> {
        let first = plan.steps.first().context("a plan has a step")?;
        let files =
            |step: &Step| (step.selection, step.choice.sizes(), step.choice.follows_links());
        let is_all_known = plan
            .steps
            .iter()
            .all(|step| !step.choice.has("--lab journal") && files(step) == files(first));
        // A link to the canary would let a command remove it.
        let referent = if plan.follows_links() { ELSEWHERE } else { "canary" };
        Ok(Self {
            link_text: directory.join(referent),
            tools,
            room: Room::new(directory, plan.storage, tools)?,
            way: plan.way,
            is_tunnelled: plan.is_tunnelled,
            is_unprivileged: plan.is_unprivileged,
            history: History::default(),
            run_count: 0,
            story: vec![format!(
                "{:?}, {:?}, {}",
                plan.way,
                plan.storage,
                if plan.is_unprivileged { "without privileges" } else { "as root" }
            )],
            report: Report::default(),
            rival: None,
            is_all_known,
            is_last_complete: false,
        })
    }

    /// Plays the whole round. An error is a broken promise, or something that chaos could not do.
    pub(super) fn play(&mut self, plan: &Plan, rng: &mut Rng) -> Result<()> {
        let source = self.room.source_beneath();
        let canary = self.room.path("canary");
        tree::grow(rng, &source, plan, &canary, &self.room.path(ELSEWHERE))?;
        self.history.learn(&source);
        tree::grow_rival(rng, &source, &self.room.path("home/rival"))?;
        if plan.has_old_target {
            tree::plant(rng, &source, &self.room.target_beneath(), &canary)?;
            if plan.has_old_kinds {
                tree::plant_kinds(rng, &source, &self.room.target_beneath(), &canary)?;
            }
            self.history.learn(&self.room.target_beneath());
        }
        if self.is_unprivileged {
            self.room.give_to_nobody(plan.moves())?;
        }
        let canary = describe(&self.room.path("canary"));
        let (last, steps) = plan.steps.split_last().context("a plan has a step")?;
        for (index, step) in steps.iter().enumerate() {
            self.play_step(step, index > 0)?;
            ensure!(describe(&self.room.path("canary")) == canary, "the canary was touched");
        }
        self.end_well(last)?;
        ensure!(describe(&self.room.path("canary")) == canary, "the canary was touched");
        Ok(())
    }

    /// Plays a step with its accidents, and judges it.
    fn play_step(&mut self, step: &Step, is_resumed: bool) -> Result<()> {
        let (source, target) = (self.room.source_beneath(), self.room.target_beneath());
        if let Some(seed) = step.kind_changes {
            let owner = self.is_unprivileged.then_some(NOBODY);
            let said = kinds::change(seed, &source, &self.link_text, owner, &mut self.history)?;
            self.story.extend(said);
        }
        step.selection.prepare(&self.room.path("home"), &source)?;
        self.history.begin_step(step, &source);
        let before = Before::look(step, &self.room)?;
        let target_before = step.is_dry_run.then(|| describe(&target));
        let outcome = self.run(step)?;
        self.room.mend()?;
        self.report.add(&outcome, is_resumed);
        self.is_last_complete = outcome.ended.iter().all(Ended::is_complete);
        self.report.add_network(&step.network);
        let faults = self.history.faults(&target);
        ensure!(faults.is_empty(), "{}", faults.join("\n"));
        if let Some(before) = target_before {
            ensure!(describe(&target) == before, "the dry run changed the target");
        }
        judge::judge(&outcome, step, &self.room, &before, &mut self.history)?;
        ensure!(self.stage_is_empty()?, "there are files left in the stage");
        Ok(())
    }

    fn stage_is_empty(&self) -> Result<bool> {
        Ok(self.room.path("stage").read_dir()?.next().is_none())
    }

    /// Runs the same command once more without accidents, and also the rival if one ran. Then
    /// everything must be right.
    fn end_well(&mut self, last: &Step) -> Result<()> {
        if let Some(choice) = self.rival.take() {
            let words = self.rival_words(&choice);
            let rival = view::kinds(&self.room.path("home/rival"), false);
            let target = view::kinds(&self.room.target_beneath(), false);
            let is_blocked = !view::blocked(&rival, &target).is_empty();
            let ended = self.run_to_its_end(words)?;
            let is_explained = ended.code == Some(0) || (ended.code == Some(6) && is_blocked);
            ensure!(is_explained, "the rival, alone: {}", ended.told());
            self.history.moves.on_rival(&rival);
        }
        self.play_step(last, true)?;
        if !self.history.stealthy.is_empty() {
            let mut thorough = last.clone();
            thorough.choice.give("--ignore-times", "");
            self.play_step(&thorough, true)?;
        }
        // A partial copy of a file that is gone from the source is recorded only if a block of it
        // was.
        if self.is_all_known && !self.history.has_lost_names {
            let mut left = own_names(&self.room.target_beneath());
            if !self.is_last_complete {
                left.retain(|path| path.extension() != Some(OsStr::new("journal")));
            }
            ensure!(left.is_empty(), "left over: {left:?}");
        }
        Ok(())
    }

    fn run_to_its_end(&mut self, command: Command) -> Result<Ended> {
        let mut running = self.start(command, Output::Kept)?;
        let began = Instant::now();
        loop {
            if let Some(ended) = running.ended()? {
                return Ok(ended);
            }
            if began.elapsed() > HANG {
                bail!("it hangs: {}", running.kill()?.told());
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    fn start(&mut self, command: Command, output: Output) -> Result<Running> {
        self.run_count += 1;
        let command = match self.is_unprivileged {
            true => within(&AS_NOBODY, &command),
            false => command,
        };
        let running = Running::start(command, &self.room.directory, self.run_count, output)?;
        self.story.push(format!("$ {}", running.line()));
        Ok(running)
    }

    /// Runs a step until all its processes have ended.
    fn run(&mut self, step: &Step) -> Result<Outcome> {
        let network = match step.network.as_slice() {
            [] => None,
            rules => {
                self.story.push(format!("proxy: {}", rules.join("; ")));
                let log = self.room.path("proxy.log");
                Some(Network::start(&self.tools.testbed, &log, 1, rules)?)
            }
        };
        let mut command = self.command(step, network.as_ref());
        if let Some(bytes) = step.file_bytes_max {
            command = within(&["prlimit", &format!("--fsize={bytes}"), "--"], &command);
        }
        let running = vec![self.start(command, step.output)?];
        let now = Instant::now();
        let mut scene = Scene {
            step,
            began: now,
            running,
            ended: Vec::new(),
            members: Vec::new(),
            members_seen: now,
            accidents: step.accidents.clone(),
            changes: Vec::new(),
            frozen: Vec::new(),
            release: None,
            happened: Vec::new(),
            memory_bytes_peak: 0,
        };
        while !self.is_over(&mut scene)? {
            self.go_on(&mut scene)?;
            std::thread::sleep(LOOK_INTERVAL);
        }
        let bound = step.choice.buffers_bytes_max() + MEMORY_BESIDE_BUFFERS_BYTES;
        let peak = scene.memory_bytes_peak;
        ensure!(peak <= bound, "a process had {peak} bytes of memory; {bound} are allowed");
        let happened = scene.happened;
        Ok(Outcome { ended: scene.ended, happened, memory_bytes_peak: peak })
    }

    /// Whether all processes of the step have ended. Returns an error if the step hangs.
    fn is_over(&mut self, scene: &mut Scene<'_>) -> Result<bool> {
        let mut index = 0;
        while index < scene.running.len() {
            match scene.running[index].ended()? {
                Some(ended) => {
                    scene.running.remove(index);
                    self.story.push(format!("{}\n  {}", ended.line, ended.told()));
                    scene.ended.push(ended);
                }
                None => index += 1,
            }
        }
        if scene.members_seen.elapsed() > MEMBERS_INTERVAL || scene.running.is_empty() {
            let mut seen = process::members(&self.room.directory);
            scene.members.retain(|old| !seen.contains(old) && !process::has_ended(old.pid));
            scene.members.append(&mut seen);
            scene.members_seen = Instant::now();
        }
        if scene.began.elapsed() > HANG {
            self.end_what_hangs(scene)?;
        }
        Ok(scene.running.is_empty() && scene.members.is_empty())
    }

    fn end_what_hangs(&mut self, scene: &mut Scene<'_>) -> Result<()> {
        let mut stuck = Vec::new();
        for member in &scene.members {
            stuck.push(process::state(member.pid));
            process::signal(member.pid, Signal::KILL);
        }
        let what = if scene.running.is_empty() { "a process is left" } else { "it hangs" };
        for running in scene.running.drain(..) {
            self.story.push(running.kill()?.told());
        }
        bail!("{what}: {}", stuck.join("\n"));
    }

    /// Lets everything happen that is due.
    fn go_on(&mut self, scene: &mut Scene<'_>) -> Result<()> {
        for &Member { pid, .. } in &scene.members {
            scene.memory_bytes_peak = scene.memory_bytes_peak.max(process::memory_bytes_peak(pid));
        }
        let now = Instant::now();
        scene.frozen.retain(|(pids, until)| {
            let is_over = *until <= now;
            if is_over {
                pids.iter().for_each(|&pid| process::signal(pid, Signal::CONT));
            }
            !is_over
        });
        if scene.release.is_some_and(|until| until <= now) {
            scene.release = None;
            self.room.order("release")?;
        }
        let source = self.room.source_beneath();
        for changes in &mut scene.changes {
            if let Some(said) = changes.make_next(&source, &mut self.history)? {
                self.story.push(format!("  at {:?}: {said}", scene.began.elapsed()));
            }
        }
        scene.changes.retain(|changes| !changes.are_over() && !scene.running.is_empty());
        if scene.running.is_empty() {
            return Ok(());
        }
        let written = scene.members.iter().map(|member| process::bytes_written(member.pid)).sum();
        let is_due = |moment: Moment| match moment {
            Moment::Written(bytes) => bytes <= written,
            Moment::Millis(millis) => scene.began.elapsed() >= Duration::from_millis(millis),
        };
        let (due, later) = std::mem::take(&mut scene.accidents)
            .into_iter()
            .partition(|(moment, _)| is_due(*moment));
        scene.accidents = later;
        let due: Vec<(Moment, Accident)> = due;
        due.into_iter().try_for_each(|(_, accident)| self.happen(accident, scene))
    }

    /// Lets an accident happen.
    fn happen(&mut self, accident: Accident, scene: &mut Scene<'_>) -> Result<()> {
        let pids = |whom: Whom| -> Vec<u32> {
            let all = process::members(&self.room.directory);
            let is_meant = |member: &Member| match whom {
                Whom::All => true,
                Whom::Other => member.is_other_end,
                Whom::Started => member.is_started,
            };
            all.into_iter().filter(is_meant).map(|member| member.pid).collect()
        };
        self.story.push(format!("  at {:?}: {accident}", scene.began.elapsed()));
        match &accident {
            Accident::Kill(whom) => {
                pids(*whom).into_iter().for_each(|pid| process::signal(pid, Signal::KILL));
            }
            Accident::Stop(whom, signal) => {
                pids(*whom).into_iter().for_each(|pid| process::signal(pid, *signal));
            }
            Accident::Freeze(whom, millis) => {
                let pids = pids(*whom);
                pids.iter().for_each(|&pid| process::signal(pid, Signal::STOP));
                scene.frozen.push((pids, Instant::now() + Duration::from_millis(*millis)));
            }
            Accident::StopBlocked => {
                scene.running.iter().for_each(|running| running.signal(Signal::TERM));
            }
            Accident::Change(seed, count) => {
                let changes = Changes::new(*seed, *count, self.is_unprivileged);
                scene.changes.push(changes);
            }
            Accident::Twin => {
                let command = self.command(scene.step, None);
                scene.running.push(self.start(command, Output::Kept)?);
            }
            Accident::Rival => {
                let command = self.rival_words(&scene.step.choice);
                self.history.learn(&self.room.path("home/rival"));
                scene.running.push(self.start(command, Output::Kept)?);
                self.rival = Some(scene.step.choice.clone());
            }
            Accident::Order(order, millis) => {
                self.room.order(order)?;
                if let Some(millis) = millis {
                    scene.release = Some(Instant::now() + Duration::from_millis(*millis));
                }
            }
            Accident::MoreRoom => self.room.give_room()?,
        }
        scene.happened.push(accident);
        Ok(())
    }

    /// The command of a step.
    fn command(&self, step: &Step, network: Option<&Network>) -> Command {
        let mut command = self.lads(&step.choice, step.selection);
        if step.is_dry_run {
            command.arg("--dry-run");
        }
        if let Some(network) = network {
            let (port, behind) = (network.port, network.behind);
            command.arg(format!("--data-address=127.0.0.1:{port}"));
            command.arg(format!("--ports={behind}-{behind}"));
        } else if self.way != Way::Here && !self.is_tunnelled {
            command.arg("--data-address=127.0.0.1");
        }
        let (source, target) = (self.room.source(), self.room.target());
        let (source, target) = (format!("{}/", source.display()), target.display().to_string());
        match self.way {
            Way::Here => command.args([source, target]),
            Way::Push => command.args([source, format!("there:{target}")]),
            Way::Pull => command.args([format!("there:{source}"), target]),
        };
        command
    }

    /// The command of a rival, which moves another source into the same target.
    fn rival_words(&self, choice: &Choice) -> Command {
        let mut command = Command::new(&self.tools.lads);
        command.args(["cp", "--json"]).args(choice.words(
            &self.room.path("stage").display().to_string(),
            &self.room.path("rival.log").display().to_string(),
        ));
        command.arg(format!("{}/", self.room.path("home/rival").display()));
        command.arg(self.room.target());
        command
    }

    fn lads(&self, choice: &Choice, selection: Selection) -> Command {
        let path = |name: &str| self.room.path(name).display().to_string();
        let mut command = Command::new(&self.tools.lads);
        command.args(["cp", "--json"]).args(choice.words(&path("stage"), &path("issues.log")));
        command.args(selection.words(&self.room.path("home")));
        if self.way != Way::Here {
            command.arg(format!("--rsh={}", self.room.remote_shell().display()));
            command.arg(format!("--remote-lads={}", self.tools.lads.display()));
        }
        if self.is_tunnelled {
            command.arg("--tunnel");
        }
        // The remote shell passes it on: the other host has to ask for the level, too.
        command.envs(choice.value("--data").map(|level| ("LADS_DATA", level)));
        command
    }

    /// Keeps what is needed to look into a failure.
    pub(super) fn keep(&self) -> Result<()> {
        self.room.keep();
        Ok(std::fs::write(self.room.path("story"), self.story.join("\n"))?)
    }
}
