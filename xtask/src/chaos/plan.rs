//! Plans a round: a tree, a place, and steps with accidents. All of this follows from the seed.
//! Only what the command does in the meantime does not.

use super::Abilities;
use super::accident::{Accident, Moment, Whom};
use super::options::Choice;
use super::room::Storage;
use super::selection::Selection;
use lads_trees::{Rng, Scale};
use rustix::process::Signal;

/// The direction of the transfer, as seen from where the command is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Here,
    Push,
    Pull,
}

/// A round before it is played.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) scale: Scale,
    /// The number of additional files of a few bytes in one directory.
    pub(super) small_files: usize,
    /// Whether there is a file that is large enough to change several times while it is moved.
    pub(super) has_large_file: bool,
    pub(super) way: Way,
    pub(super) is_tunnelled: bool,
    pub(super) storage: Storage,
    /// Whether the commands run as a user without privileges, who owns both trees.
    pub(super) is_unprivileged: bool,
    /// Whether the target has entries before the first step.
    pub(super) has_old_target: bool,
    /// Whether some of them have other kinds than the entries of the source.
    pub(super) has_old_kinds: bool,
    /// Whether the source has links that lead nowhere, or to a directory that they lie in.
    pub(super) has_bad_links: bool,
    /// The steps in order. All steps except the last have accidents or are dry runs.
    pub(super) steps: Vec<Step>,
}

/// One run of the command, and what happens to it.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// The seed for changes of the kinds of entries of the source before the step.
    pub(super) kind_changes: Option<u64>,
    pub(super) choice: Choice,
    pub(super) selection: Selection,
    pub(super) is_dry_run: bool,
    pub(super) accidents: Vec<(Moment, Accident)>,
    /// The rules of the proxy; empty if the data does not go through one.
    pub(super) network: Vec<String>,
    pub(super) output: Output,
    /// The limit of the size of a file for the processes of the command (`ulimit -f`), in bytes.
    pub(super) file_bytes_max: Option<u64>,
}

/// Where the command's standard output and standard error go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Output {
    /// To files, which the judge reads.
    Kept,
    /// Both are closed.
    Closed,
    /// Into a pipe that is full and that no process reads.
    Blocked,
}

impl Step {
    /// Returns this command without changes, accidents, network rules, limits and timeout, and with
    /// its output kept.
    pub(super) fn calm(&self) -> Self {
        let mut calm = Self {
            kind_changes: None,
            accidents: Vec::new(),
            network: Vec::new(),
            output: Output::Kept,
            file_bytes_max: None,
            ..self.clone()
        };
        calm.choice.leave_out("--bwlimit");
        // A busy machine must not be mistaken for a dead peer.
        calm.choice.leave_out("--timeout");
        calm
    }

    /// Whether nothing but accidents can keep the command from copying everything.
    pub(super) fn is_calm(&self) -> bool {
        self.network.is_empty() && self.file_bytes_max.is_none()
    }

    /// Whether the command removes entries at the source.
    pub(super) fn moves(&self) -> bool {
        self.choice.moves() && !self.is_dry_run
    }
}

/// The properties of a round that are drawn first, because later draws depend on them.
struct Bounds {
    way: Way,
    is_tunnelled: bool,
    storage: Storage,
    is_unprivileged: bool,
}

impl Plan {
    /// Draws a plan from the seed.
    pub(super) fn draw(rng: &mut Rng) -> Self {
        let mut scale = Scale {
            directories: rng.below(10),
            entries: 5 + rng.below(40),
            file_bytes_max: 1 + rng.below(3 << 20),
            has_specials: rng.is_one_in(3),
        };
        let small_files = if rng.is_one_in(4) { 50 + rng.below(400) } else { 0 };
        let has_large_file = rng.is_one_in(2);
        let bounds = Bounds::draw(rng);
        // Only root can create devices.
        scale.has_specials &= !bounds.is_unprivileged;
        // Old entries at the target would take up the space of a small file system.
        let has_old_target = rng.is_one_in(2) && !bounds.is_small();
        let (has_old_kinds, has_bad_links) = (rng.is_one_in(3), rng.is_one_in(2));
        let mut steps: Vec<Step> = Vec::new();
        for _ in 0..=rng.below(3) {
            // On average, half of the steps repeat the previous command.
            let is_same = rng.is_one_in(2);
            let drawn = Step::draw(rng, &bounds);
            steps.push(match steps.last() {
                Some(last) if is_same => {
                    let (choice, selection) = (last.choice.clone(), last.selection);
                    Step { choice, selection, ..drawn }
                }
                _ => drawn,
            });
            if let Some(last) = steps.last_mut() {
                last.make_fit();
            }
            if rng.is_one_in(8) {
                let last = steps[steps.len() - 1].calm();
                steps.push(Step { is_dry_run: true, ..last });
            }
        }
        keep_to_a_network_in_time(&mut steps);
        keep_what_is_moved(&mut steps);
        steps.push(steps[steps.len() - 1].calm());
        if let Some(last) = steps.last_mut() {
            last.is_dry_run = false;
        }
        let Bounds { way, is_tunnelled, storage, is_unprivileged } = bounds;
        Self {
            scale,
            small_files,
            has_large_file,
            way,
            is_tunnelled,
            storage,
            is_unprivileged,
            has_old_target,
            has_old_kinds,
            has_bad_links,
            steps,
        }
    }

    /// Whether a command of the round copies what links lead to.
    pub(super) fn follows_links(&self) -> bool {
        self.steps.iter().any(|step| step.choice.follows_links())
    }

    /// Whether a command of the round removes entries at the source.
    pub(super) fn moves(&self) -> bool {
        self.steps.iter().any(|step| step.choice.moves())
    }
}

impl Plan {
    /// Removes what is not possible on this machine.
    pub(super) fn limit_to(&mut self, abilities: &Abilities) {
        self.is_unprivileged &= abilities.can_drop_privileges;
        let possible = self.storage.or_memory(abilities);
        if possible != self.storage {
            self.storage = possible;
            for step in &mut self.steps {
                step.accidents.retain(|(_, accident)| !accident.is_of_storage());
            }
        }
    }
}

/// Sets the timeouts for steps with a harmful network. A network that swallows data is noticed only
/// after `--timeout`, so that is short. `--connect-timeout` is long, because a busy machine may
/// take long to start a process.
fn keep_to_a_network_in_time(steps: &mut [Step]) {
    for step in steps.iter_mut().filter(|step| !step.network.is_empty()) {
        step.choice.give("--timeout", "2");
        step.choice.give("--connect-timeout", "60");
    }
}

/// Removes the options that delete if a command of the round removes entries at the source: a later
/// command would delete them at the target.
fn keep_what_is_moved(steps: &mut [Step]) {
    if steps.iter().any(|step| step.choice.moves()) {
        steps.iter_mut().for_each(|step| step.choice.leave_out_deletion());
    }
}

impl Bounds {
    fn is_small(&self) -> bool {
        matches!(self.storage, Storage::SmallSink(_))
    }

    fn draw(rng: &mut Rng) -> Self {
        let way = [Way::Here, Way::Here, Way::Push, Way::Pull][rng.below(4)];
        let is_tunnelled = way != Way::Here && rng.is_one_in(3);
        let storage = match rng.below(13) {
            0 => Storage::Ext4,
            1 => Storage::FaultySource,
            2 | 3 => Storage::FaultySink,
            4 => Storage::SmallSink((1 + rng.below(6) as u64) << 20),
            5 | 6 => Storage::ManyTargets,
            7 | 8 => Storage::PlainSink,
            9 => Storage::NoAttributesSink,
            _ => Storage::Memory,
        };
        let is_unprivileged = rng.is_one_in(4) && storage.is_open_to_all();
        Self { way, is_tunnelled, storage, is_unprivileged }
    }
}

impl Step {
    /// Removes the options that delete if a rival runs, because each command would delete the files
    /// of the other one, or if a list chooses the paths.
    fn make_fit(&mut self) {
        let has_rival = self.accidents.iter().any(|(_, it)| matches!(it, Accident::Rival));
        if self.choice.deletes() && (has_rival || self.selection == Selection::Listed) {
            self.choice.leave_out_deletion();
        }
    }

    fn draw(rng: &mut Rng, bounds: &Bounds) -> Self {
        let (mut choice, selection) = (Choice::draw(rng), Selection::draw(rng));
        // rsync, which judges what has arrived, may see a source on the file system to which its
        // links lead, while the command sees it on another one.
        let is_elsewhere = matches!(bounds.storage, Storage::FaultySource | Storage::Ext4);
        if is_elsewhere && choice.follows_links() {
            choice.leave_out("--one-file-system");
        }
        // ramfs has nothing but the page cache, past which --verify media reads.
        if bounds.storage == Storage::NoAttributesSink && choice.value("--verify") == Some("media")
        {
            choice.leave_out("--verify");
        }
        let can_have_proxy = bounds.way != Way::Here && !bounds.is_tunnelled;
        let has_proxy = rng.is_one_in(2) && can_have_proxy;
        let network = if has_proxy { network(rng, bounds.way) } else { Vec::new() };
        let mut accidents = Vec::new();
        for _ in 0..=rng.below(3) {
            let moment = match rng.is_one_in(2) {
                true => Moment::Written(rng.next() % (6 << 20)),
                false => Moment::Millis(rng.next() % 400),
            };
            accidents.push((moment, accident(rng, bounds, has_proxy)));
        }
        if rng.is_one_in(30) {
            // Time in which both ends are stopped does not count as silence.
            choice.give("--timeout", "5");
            accidents.push((Moment::Millis(rng.next() % 400), Accident::Freeze(Whom::All, 6_000)));
        }
        let output = match rng.below(24) {
            0 => Output::Closed,
            1 => Output::Blocked,
            _ => Output::Kept,
        };
        if output == Output::Blocked {
            let moment = Moment::Millis(100 + rng.next() % 900);
            accidents.push((moment, Accident::StopBlocked));
        }
        let file_bytes_max = rng.is_one_in(16).then(|| (256 << 10) + rng.next() % (4 << 20));
        let seed = rng.next();
        let has_kind_changes = rng.is_one_in(3);
        Self {
            kind_changes: has_kind_changes.then_some(seed),
            choice,
            selection,
            is_dry_run: false,
            accidents,
            network,
            output,
            file_bytes_max,
        }
    }
}

fn accident(rng: &mut Rng, bounds: &Bounds, has_proxy: bool) -> Accident {
    let whom = [Whom::Started, Whom::Other, Whom::All][rng.below(3)];
    loop {
        return match rng.below(14) {
            0..=2 => Accident::Kill(whom),
            3 => {
                let signals = [Signal::TERM, Signal::INT, Signal::HUP, Signal::USR1];
                Accident::Stop(whom, signals[rng.below(signals.len())])
            }
            4 => Accident::Freeze(whom, 50 + rng.next() % 700),
            5 | 6 if bounds.storage != Storage::FaultySource => {
                Accident::Change(rng.next(), 1 + rng.below(40))
            }
            // A port can serve only one command at a time.
            7 if !has_proxy => Accident::Twin,
            8 => Accident::Rival,
            9..=13 => match bounds.storage {
                Storage::FaultySource => storage_fault(rng, &SOURCE_CALLS),
                Storage::FaultySink => storage_fault(rng, &SINK_CALLS),
                Storage::SmallSink(_) => Accident::MoreRoom,
                Storage::ManyTargets => target_fault(rng),
                Storage::Memory
                | Storage::Ext4
                | Storage::PlainSink
                | Storage::NoAttributesSink => continue,
            },
            _ => continue,
        };
    }
}

const SOURCE_CALLS: [&str; 10] = [
    "opendir",
    "readdir",
    "open",
    "read",
    "getattr",
    "lookup",
    "readlink",
    "listxattr",
    "getxattr",
    "unlink",
];
const SINK_CALLS: [&str; 19] = [
    "mkdir",
    "create",
    "write",
    "fsync",
    "fdatasync",
    "fsyncdir",
    "rename",
    "setxattr",
    "removexattr",
    "setattr",
    "truncate",
    "fallocate",
    "unlink",
    "symlink",
    "link",
    "open",
    "opendir",
    "lookup",
    "getattr",
];
/// The errors that calls of the storage may return. EPERM and EACCES are not among them: on these,
/// LADS leaves out what needs privileges, and does not report that.
const ERRORS: [&str; 6] = ["EIO", "ENOSPC", "EDQUOT", "EROFS", "ESTALE", "ENOMEM"];

/// An order that does harm to calls of one kind.
fn storage_fault(rng: &mut Rng, calls: &[&'static str]) -> Accident {
    let call = calls[rng.below(calls.len())];
    let when = match rng.below(3) {
        0 => format!("nth={}", 1 + rng.below(30)),
        1 => format!("from={}", 1 + rng.below(30)),
        _ => format!("percent={} seed={}", 1 + rng.below(20), rng.below(1000)),
    };
    match rng.below(6) {
        0 => Accident::Order(format!("short read,write {when}"), None),
        1 => Accident::Order(format!("delay {call} {} {when}", 1 + rng.below(50)), None),
        2 => Accident::Order(format!("hang {call} {when}"), Some(100 + rng.next() % 700)),
        _ => {
            let error = ERRORS[rng.below(ERRORS.len())];
            Accident::Order(format!("fail {call} {error} {when}"), None)
        }
    }
}

/// An order that changes the state of a storage target, or that stops files from growing.
fn target_fault(rng: &mut Rng) -> Accident {
    let state = ["degraded", "full", "no-create", "down"].get(rng.below(5));
    let order = state.map(|state| format!("state {} {state}", rng.below(8)));
    Accident::Order(order.unwrap_or_else(|| "grow off".to_owned()), None)
}

/// Draws one to three rules of the proxy.
fn network(rng: &mut Rng, way: Way) -> Vec<String> {
    let data = if way == Way::Push { "way=out" } else { "way=back" };
    let mut rules = Vec::new();
    for _ in 0..=rng.below(2) {
        let after = rng.next() % (3 << 20);
        let connection = 1 + rng.below(4);
        rules.push(match rng.below(9) {
            0 => format!("delay={}", 1 + rng.below(30)),
            1 => "recut=1..1500".to_owned(),
            // After the openings of three connections.
            2 | 3 => format!("flip {data} of=all after={}", 3 * 58 + after),
            4 => format!("reset connection={connection} after={after}"),
            5 => format!("reset-all of=all after={after}"),
            6 => format!("close {data} connection={connection} after={after}"),
            7 => format!("stop connection={connection} after={after}"),
            _ => format!("black-hole after={after}"),
        });
    }
    rules
}
