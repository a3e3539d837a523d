//! How near transfers come to what is possible when targets are congested, and whether nothing
//! stands still: beds of OSTs in the weather of a seed, with the real sessions between them.
//!
//! A [`Scenario`] is one of those that the real engine is measured in, between emulated file
//! systems ([`Scenario::all`]). Here it takes milliseconds, and the network, the processors and the
//! file systems cost nothing: what is left is what `lads-core` decides.

use crate::findings::{Checked, Trace};
use crate::options::{Faults, Network, Options, OstModel};
use crate::recorder::{Recorder, Sample};
use crate::rng::Rng;
use crate::session::{Ended, Session};
use crate::tree::Tree;
use crate::watch::Watch;
use crate::weather::{Servers, Sky, Weather};
use crate::world::World;
use crate::{Failure, TRACE_LINES, caught, ending};
use lads_core::congestion::Threshold;
use lads_core::growth::GrowthConfig;
use lads_core::layout::Layout;
use lads_core::limits::{DIRECTORIES_OPEN_MAX, ENTRIES_OPEN_MAX, RESENDS_MAX};
use lads_core::placement::Place;
use lads_core::schedule::Policy;
use lads_core::shares::{
    BUFFERS_BYTES, RETRIES_MAX, commits_max, reading_threads, writing_threads,
};
use lads_core::sink::{PlacingConfig, SinkConfig};
use lads_core::source::SourceConfig;
use lads_core::tuning::Tuning;
use lads_core::units::OstId;
use std::fmt;
use std::time::Duration;

/// Which OSTs are slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Congestion {
    /// None.
    Clear,
    /// One in eight at the source, a fifth of its rate, others after 0.7 to 5 s.
    Source,
    /// The same at the sink.
    Sink,
    /// At both ends.
    Both,
    /// The whole sink, every other few seconds.
    FullSink,
    /// No OST, but four servers share them, and can do half of what these can.
    HalfServers(End),
    /// No OST, but one of four servers, a fifth of what its OSTs can, others after 0.7 to 5 s.
    SlowServer(End),
}

/// Of which end something is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The one that reads.
    Source,
    /// The one that writes.
    Sink,
    /// Either.
    Both,
}

impl End {
    fn has_source(self) -> bool {
        matches!(self, Self::Source | Self::Both)
    }

    fn has_sink(self) -> bool {
        matches!(self, Self::Sink | Self::Both)
    }

    fn word(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Sink => "sink",
            Self::Both => "both",
        }
    }
}

/// What a bed is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// OSTs of each end.
    pub ost_count: usize,
    /// Which are slow.
    pub congestion: Congestion,
    /// On how many OSTs each file lies at the source.
    pub stripe_count: usize,
    /// Whether the sink chooses where files go; otherwise each goes to the next OST.
    pub is_placed: bool,
    /// Whether they grow over its OSTs while they are written.
    pub is_growing: bool,
}

/// By which rules a bed is run.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Rules {
    /// The policy of both ends.
    pub policy: Policy,
    /// What is slow, for [`Policy::Threshold`].
    pub threshold: Threshold,
    /// By which numbers they decide.
    pub tuning: Tuning,
}

impl Rules {
    /// As they are, by this policy.
    #[must_use]
    pub fn of(policy: Policy) -> Self {
        Self { policy, ..Self::default() }
    }
}

/// How large a bed is: the more it has to move, the less it matters how it begins and ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    /// How many files; the first of them begins on the first OST, the second on the second.
    pub file_count: usize,
    /// Blocks in a file, each of 1 MiB.
    pub file_blocks: u64,
    /// Of an end of eight OSTs; one of 32 has the same.
    pub bytes_per_second: f64,
    /// Buffers at the sink, for each of its OSTs.
    pub buffers_each: u32,
    /// Source threads; by default as many as requests that its OSTs should have.
    pub threads: Option<u32>,
}

impl Size {
    /// As the engine is measured: 160 files of 8 MiB.
    #[must_use]
    pub fn full(ost_count: usize) -> Self {
        let bytes_per_second = 200.0 * BLOCK as f64;
        let buffer_count = u32::try_from(BUFFERS_BYTES / BLOCK).expect("some hundred");
        let buffers_each = buffer_count / u32::try_from(ost_count).expect("a few OSTs");
        Self { file_count: 160, file_blocks: 8, bytes_per_second, buffers_each, threads: None }
    }

    /// How long a block takes by itself, on an OST that is not slow.
    #[must_use]
    pub fn service_seconds(&self, ost_count: usize) -> f64 {
        BLOCK as f64 * ost_count as f64 / self.bytes_per_second
    }

    /// So small that a thousand take seconds.
    fn small(rng: &mut Rng, ost_count: usize) -> Self {
        let threads = rng.hits(300).then(|| rng.count(2, 16));
        let files_each = if ost_count > 8 { 1 } else { 4 };
        let buffers_each = rng.count(2, 16);
        Self {
            file_count: files_each * ost_count,
            file_blocks: 4,
            bytes_per_second: 40.0 * BLOCK as f64,
            buffers_each,
            threads,
        }
    }
}

/// Conditions of a recorded run besides its congestion.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    /// The user's limit of the rate.
    pub bytes_per_second: Option<u64>,
    /// Longest time that the sink takes to make a batch durable, in microseconds.
    pub sync_micros_max: u64,
    /// Whether an earlier attempt was stopped.
    pub is_resumed: bool,
}

impl Default for Conditions {
    fn default() -> Self {
        Self { bytes_per_second: None, sync_micros_max: SYNC_MICROS_MAX, is_resumed: false }
    }
}

/// How a transfer went.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// How long it took, in seconds.
    pub seconds: f64,
    /// In how long it could have been done by someone who knows the future, in seconds.
    pub bound_seconds: f64,
    /// The longest time in which an OST had nothing to do although it could have had, in seconds.
    pub wait_seconds_max: f64,
    /// When each read of the source began and how long it took, in seconds.
    pub reads: Vec<(f64, f64)>,
}

impl Outcome {
    /// How much of what was possible was reached; 1 is all of it.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.bound_seconds / self.seconds
    }
}

const BLOCK: u64 = 1 << 20;
/// As an engine on Lustre has it.
const IN_FLIGHT_MAX: u32 = 4;
/// Longest time that the sink takes to make a batch durable, in microseconds.
const SYNC_MICROS_MAX: u64 = 2000;
/// A network that limits nothing.
const NETWORK: Network =
    Network { stream_count: 4, delay_micros: 50, jitter_micros: 50, page_nanos: 1000 };
const GROWTH: GrowthConfig =
    GrowthConfig { extents_max: 16, unit_bytes: 64 << 10, ost_count: u32::MAX };

impl Scenario {
    /// All of them: 8 and 32 OSTs, stripes on one OST and on four, every kind of congestion, files
    /// that are placed and grow, that are placed, and that are neither.
    #[must_use]
    pub fn all() -> Vec<Self> {
        use Congestion::{Both, Clear, FullSink, Sink, Source};
        let mut all = Vec::new();
        for ost_count in [8, 32] {
            for stripe_count in [1, 4] {
                for congestion in [Clear, Source, Sink, Both, FullSink] {
                    for (is_placed, is_growing) in [(true, true), (true, false), (false, false)] {
                        let scenario =
                            Self { ost_count, congestion, stripe_count, is_placed, is_growing };
                        all.push(scenario);
                    }
                }
            }
        }
        all
    }

    /// Those in which servers are what limits, in the same kinds of beds.
    #[must_use]
    pub fn with_servers() -> Vec<Self> {
        let ends = [End::Source, End::Sink, End::Both];
        let half = ends.map(Congestion::HalfServers);
        let slow = ends.map(Congestion::SlowServer);
        let mut all = Vec::new();
        for scenario in Self::all() {
            if scenario.congestion == Congestion::Clear && scenario.is_placed {
                let with = |congestion| Self { congestion, ..scenario };
                all.extend(half.into_iter().chain(slow).map(with));
            }
        }
        all
    }

    /// One of them, smaller, as a seed draws it, by the policy that is the default; what was
    /// promised is checked, and that no OST is passed over for too long.
    ///
    /// # Errors
    /// If something did not hold.
    pub fn check(seed: u64) -> Result<Outcome, Failure> {
        let mut rng = Rng::new(seed);
        let scenario = *rng.pick(&Self::all());
        let size = Size::small(&mut rng, scenario.ost_count);
        scenario.run(seed, size, &Rules::default())
    }

    /// Runs it in the weather of a seed.
    ///
    /// # Errors
    /// If something did not hold that always must.
    pub fn run(&self, seed: u64, size: Size, rules: &Rules) -> Result<Outcome, Failure> {
        let run = |lines| {
            let trace = Trace::new(lines);
            let kept = trace.clone();
            (caught(|| self.run_kept(seed, size, rules, trace)), kept.lines())
        };
        run(0).0.map_err(|what| {
            let (_, trace) = run(TRACE_LINES);
            Failure { seed, what: format!("{self}, {:?}: {what}", rules.policy), trace }
        })
    }

    /// Runs it, and returns the counters of both ends from its beginning to its end.
    ///
    /// # Errors
    /// If something did not hold that always must.
    pub fn record(
        &self,
        seed: u64,
        size: Size,
        conditions: Conditions,
    ) -> Result<Vec<Sample>, Failure> {
        caught(|| self.record_kept(seed, size, conditions)).map_err(|what| {
            let what = format!("{self}, {conditions:?}: {what}");
            Failure { seed, what, trace: Vec::new() }
        })
    }

    fn record_kept(&self, seed: u64, size: Size, conditions: Conditions) -> Checked<Vec<Sample>> {
        let (mut world, _) = self.world(seed, size, &Rules::default(), Trace::new(0));
        world.options.source.bytes_per_second = conditions.bytes_per_second;
        world.options.sync_micros_max = conditions.sync_micros_max;
        if conditions.is_resumed {
            Session::run(&mut world, Faults { stops: 1, ..Faults::default() })?;
        }
        world.recorder = Some(Recorder::default());
        let (session, ended) = Session::run(&mut world, Faults::default())?;
        if ended != Ended::Finished {
            return Err(format!("no fault was injected, and it ended so: {ended:?}"));
        }
        let mut recorder = world.recorder.take().expect("it was set above");
        let [source, sink] = [session.source.session.counters(), session.sink.session.counters()];
        recorder.take(world.now, source, sink);
        Ok(recorder.into_samples())
    }

    /// Returns the world of a seed before its first attempt, and the least time that it takes.
    fn world(&self, seed: u64, size: Size, rules: &Rules, trace: Trace) -> (World, Duration) {
        let mut rng = Rng::new(seed);
        let (source, sink) = self.weather(&mut rng, size);
        let stripes: Vec<Layout> = (0..self.ost_count).map(|first| self.stripes(first)).collect();
        let tree = Tree::of_files(size.file_count, size.file_blocks * BLOCK, &stripes);
        let bound = self.bound(&tree, source, sink);
        let options = self.options(source, sink, size, rules, seed);
        let mut world = World::new(rng, options, tree, trace);
        world.is_placed = true;
        (world, bound)
    }

    fn run_kept(&self, seed: u64, size: Size, rules: &Rules, trace: Trace) -> Checked<Outcome> {
        let (mut world, bound) = self.world(seed, size, rules, trace);
        world.watch = Some(Watch::new(&world.options));
        let (session, ended) = Session::run(&mut world, Faults::default())?;
        if ended != Ended::Finished {
            return Err(format!("nothing went wrong, and it ended so: {ended:?}"));
        }
        session.check_finished(&world)?;
        ending::check_same(&world)?;
        let watch = world.watch.as_ref().expect("it was begun above");
        Ok(Outcome {
            seconds: world.now.since_start().as_secs_f64(),
            bound_seconds: bound.as_secs_f64(),
            wait_seconds_max: watch.wait_max().as_secs_f64(),
            reads: watch.reads(),
        })
    }

    /// The stripes of a file whose first is on this OST; on all OSTs they begin on the first one,
    /// as file systems have it that leave nothing to choose.
    fn stripes(&self, first: usize) -> Layout {
        let first = if self.stripe_count == self.ost_count { 0 } else { first };
        let osts = (0..self.stripe_count).map(|step| ost_at((first + step) % self.ost_count));
        Layout::striped(BLOCK, osts.collect()).expect("an OST at least")
    }

    fn weather(&self, rng: &mut Rng, size: Size) -> (Weather, Weather) {
        use Congestion::{Both, FullSink, HalfServers, Sink, SlowServer, Source};
        let dwell = rng.micros(700_000, 5_000_000);
        let servers = |has_end: fn(End) -> bool| match self.congestion {
            HalfServers(end) if has_end(end) => Servers::Half,
            SlowServer(end) if has_end(end) => Servers::OneSlow(dwell),
            _ => Servers::Unlimited,
        };
        let weather = |rng: &mut Rng, sky, servers| Weather {
            seed: rng.number(),
            sky,
            ost_count: self.ost_count,
            bytes_per_second: size.bytes_per_second / self.ost_count as f64,
            servers,
        };
        let moving = |is_slow| if is_slow { Sky::Moving(dwell) } else { Sky::Clear };
        let source_sky = moving(matches!(self.congestion, Source | Both));
        let source = weather(rng, source_sky, servers(End::has_source));
        let sink = match self.congestion {
            FullSink => Sky::Full(dwell),
            congestion => moving(matches!(congestion, Sink | Both)),
        };
        (source, weather(rng, sink, servers(End::has_sink)))
    }

    /// The least time: at the source bytes lie where they lie; at the sink, too, if they are not
    /// placed.
    fn bound(&self, tree: &Tree, source: Weather, sink: Weather) -> Duration {
        let mut at_source = vec![0; self.ost_count];
        let mut at_sink = vec![0; self.ost_count];
        for (index, file) in tree.files.iter().enumerate() {
            let size = file.versions[0].identity.size;
            for (ost, bytes) in file.layout.bytes_per_ost(0..size) {
                at_source[ost.index()] += bytes;
            }
            at_sink[index % self.ost_count] += size;
        }
        let by_sink = match self.is_placed {
            true => sink.bound_anywhere(at_source.iter().sum()),
            false => sink.bound_in_place(&at_sink),
        };
        source.bound_in_place(&at_source).max(by_sink)
    }

    fn placing(&self, seed: u64) -> PlacingConfig {
        PlacingConfig {
            rule: if self.is_placed { Place::Aware } else { Place::Spread },
            stripe_size: BLOCK,
            stripe_count_max: self.ost_count,
            seed,
        }
    }

    /// As an engine would set it up.
    fn options(
        &self,
        source: Weather,
        sink: Weather,
        size: Size,
        rules: &Rules,
        seed: u64,
    ) -> Options {
        let Rules { policy, threshold, tuning } = *rules;
        let source_osts = OstModel::served(source, IN_FLIGHT_MAX);
        let sink_osts = OstModel::served(sink, IN_FLIGHT_MAX);
        let ost_count = u32::try_from(self.ost_count).expect("a few OSTs");
        let block_size = u32::try_from(BLOCK).expect("1 MiB");
        let placed_bytes_min = Some(u64::from(ost_count) * tuning.placed_bytes_each);
        let specs =
            |osts: &[OstModel]| -> Vec<_> { osts.iter().map(|ost| ost.spec.clone()).collect() };
        let source_workers = reading_threads(0, &specs(&source_osts));
        let source_workers = size.threads.map_or(source_workers, |it| it.min(source_workers));
        let sink_workers = writing_threads(0, &specs(&sink_osts));
        Options {
            source: SourceConfig {
                tuning,
                policy,
                threshold,
                block_size,
                window_entries: ENTRIES_OPEN_MAX as u64,
                stream_count: 4,
                is_in_order: false,
                is_dry_run: false,
                may_pass: false,
                may_be_asked: false,
                removes_sources: false,
                is_all_there: true,
                is_comparing: true,
                window_directories: DIRECTORIES_OPEN_MAX as u64,
                open_files_max: 1000,
                retries_max: RETRIES_MAX,
                bytes_per_second: None,
                stage_bytes: 0,
                stage_threads_max: 0,
            },
            sink: SinkConfig {
                tuning,
                policy,
                threshold,
                osts: specs(&sink_osts),
                placing: self.placing(seed),
                placed_bytes_min: placed_bytes_min.filter(|_| self.is_placed),
                buffer_count: ost_count * size.buffers_each,
                buffer_bytes: block_size,
                has_journal: true,
                batch_bytes: tuning.batch_bytes,
                batch_interval: tuning.batch_interval,
                verifies_media: false,
                commits_max: commits_max(sink_workers, None),
                at_once_max: tuning.at_once_max,
                growth: self.is_growing.then_some(GROWTH),
                resends_max: RESENDS_MAX,
                removal: None,
                stage: None,
            },
            source_workers,
            matched: None,
            sink_workers,
            network: NETWORK,
            sink_open_files_max: 1000,
            entry_count: 0,
            sync_micros_max: SYNC_MICROS_MAX,
            file_pages_max: 0,
            large_per_mille: 0,
            is_depth_first: false,
            changes_block_size: false,
            commits_in_steps: false,
            faults: Faults::default(),
            source_osts,
            sink_osts,
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let congestion = match self.congestion {
            Congestion::Clear => "clear".to_owned(),
            Congestion::Source => "source".to_owned(),
            Congestion::Sink => "sink".to_owned(),
            Congestion::Both => "both".to_owned(),
            Congestion::FullSink => "sink, all".to_owned(),
            Congestion::HalfServers(end) => format!("half servers, {}", end.word()),
            Congestion::SlowServer(end) => format!("slow server, {}", end.word()),
        };
        let placing = match (self.is_growing, self.is_placed) {
            (true, _) => "growing",
            (false, true) => "placed",
            (false, false) => "in turn",
        };
        let Self { ost_count, stripe_count, .. } = self;
        write!(f, "{ost_count} OSTs, {stripe_count} stripes, {placing}, {congestion}")
    }
}

fn ost_at(index: usize) -> OstId {
    OstId(u32::try_from(index).expect("a few"))
}
