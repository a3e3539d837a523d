//! What kind of world a seed makes: how large, how fast, and what goes wrong in it.
//!
//! Each seed switches on a random few of the faults (swarm testing: Groce et al., 2012): a world
//! in which everything fails at once hides what fails only when the rest works.

use crate::rng::{Rng, mix};
use crate::weather::{SERVER_COUNT, Weather, server_of};
use lads_core::congestion::Threshold;
use lads_core::growth::GrowthConfig;
use lads_core::layout::{Layout, Part};
use lads_core::placement::Place;
use lads_core::schedule::{OstSpec, Policy};
use lads_core::sink::{PlacingConfig, SinkConfig, StageConfig};
use lads_core::source::SourceConfig;
use lads_core::tuning::Tuning;
use lads_core::units::{Instant, OstId};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// Worlds of earlier seeds have no such troubles: some of them tell a story in `tests/seeds.rs`.
const TROUBLED_FROM: u64 = 50_000;

/// A page, in bytes: layouts and blocks are whole pages.
pub(crate) const PAGE: u64 = 4096;
/// Data streams at most.
const STREAMS_MAX: u16 = 4;

/// How one storage target behaves.
#[derive(Clone, Debug)]
pub(crate) struct OstModel {
    pub(crate) spec: OstSpec,
    speed: Speed,
}

/// How long requests to a storage target take.
#[derive(Clone, Debug)]
enum Speed {
    /// Each by itself, as chance will have it.
    Drawn {
        /// Least time that a request takes.
        latency_micros: u64,
        /// Time that a page takes.
        page_nanos: u64,
    },
    /// One after the other, at a rate that changes; first by the server, then by the OST.
    Served {
        weather: Weather,
        ost: usize,
        /// When its server has let through all that was asked of its OSTs.
        server_free_at: Rc<Cell<Instant>>,
        /// When it has done all that it was asked.
        free_at: Instant,
    },
}

impl OstModel {
    fn draw(rng: &mut Rng, index: u32, has_slow: bool) -> Self {
        let slowness = if has_slow && rng.hits(250) { rng.between(10, 100) } else { 1 };
        let mut spec = OstSpec::new(format!("OST{index:04x}"), rng.count(1, 4));
        let latency_micros = rng.of_any_size(20, 2000) * slowness;
        spec.locks_files = latency_micros.is_multiple_of(3);
        let page_nanos = rng.of_any_size(500, 20_000) * slowness;
        Self { spec, speed: Speed::Drawn { latency_micros, page_nanos } }
    }

    /// All OSTs of an end, in this weather.
    pub(crate) fn served(weather: Weather, in_flight_max: u32) -> Vec<Self> {
        let servers = [(); SERVER_COUNT].map(|()| Rc::new(Cell::new(Instant::START)));
        let model = |ost| Self {
            spec: OstSpec::new(format!("OST{ost:04x}"), in_flight_max),
            speed: Speed::Served {
                weather,
                ost,
                server_free_at: Rc::clone(&servers[server_of(ost)]),
                free_at: Instant::START,
            },
        };
        (0..weather.ost_count).map(model).collect()
    }

    /// How long a request for this many bytes takes this time, if it comes now.
    pub(crate) fn service(&mut self, rng: &mut Rng, now: Instant, bytes: u64) -> Duration {
        match &mut self.speed {
            Speed::Drawn { latency_micros, page_nanos } => {
                let nanos = *latency_micros * 1000 + bytes.div_ceil(PAGE) * *page_nanos;
                Duration::from_nanos(nanos / 2 + rng.below(nanos + 1))
            }
            Speed::Served { weather, ost, server_free_at, free_at } => {
                let begun_at = now.max(server_free_at.get());
                let through_at = weather.let_through_at(server_of(*ost), begun_at, bytes);
                server_free_at.set(through_at);
                *free_at = weather.served_at(*ost, through_at.max(*free_at), bytes);
                free_at.since(now)
            }
        }
    }
}

/// How often something goes wrong, in a thousand chances; how many times, for what is counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) read_error: u32,
    pub(crate) list_error: u32,
    pub(crate) examine_error: u32,
    pub(crate) write_error: u32,
    /// Whether writes fail for want of space, not with an I/O error.
    pub(crate) is_full: bool,
    pub(crate) sync_error: u32,
    pub(crate) journal_error: u32,
    pub(crate) commit_error: u32,
    pub(crate) close_error: u32,
    pub(crate) rot: u32,
    pub(crate) payload_flip: u32,
    pub(crate) head_flip: u32,
    /// The sink wants a file to be announced anew, for whatever reason.
    pub(crate) place_again: u32,
    pub(crate) changes: u32,
    pub(crate) stream_losses: u32,
    pub(crate) network_losses: u32,
    pub(crate) source_crashes: u32,
    pub(crate) sink_crashes: u32,
    pub(crate) power_cuts: u32,
    pub(crate) stops: u32,
    pub(crate) stage_write_error: u32,
    pub(crate) stage_read_error: u32,
    /// The stage gives back other bytes than were written.
    pub(crate) stage_rot: u32,
    /// An end does and says nothing for a while, or never again.
    pub(crate) silences: u32,
    /// The host of the source is gone, and the sink hears nothing of it.
    pub(crate) source_deaths: u32,
    /// A call of a thread to storage never returns.
    pub(crate) hangs: u32,
}

impl Faults {
    fn draw(rng: &mut Rng) -> Self {
        let mut faults = Self::default();
        if rng.hits(100) {
            return faults;
        }
        faults.read_error = rate(rng, 20);
        faults.list_error = rate(rng, 100);
        faults.examine_error = rate(rng, 50);
        faults.write_error = rate(rng, 20);
        faults.is_full = rng.hits(300);
        faults.sync_error = rate(rng, 50);
        faults.journal_error = rate(rng, 50);
        faults.commit_error = rate(rng, 50);
        faults.close_error = rate(rng, 50);
        faults.rot = rate(rng, 200);
        faults.payload_flip = rate(rng, 100);
        faults.head_flip = rate(rng, 10);
        faults.place_again = rate(rng, 100);
        faults.changes = times(rng, 12);
        faults.stream_losses = times(rng, 5);
        faults.network_losses = times(rng, 1);
        faults.source_crashes = times(rng, 1);
        faults.sink_crashes = times(rng, 1);
        faults.power_cuts = times(rng, 1);
        faults.stops = times(rng, 1);
        faults
    }
}

/// Mostly never, otherwise up to `most` in a thousand chances.
fn rate(rng: &mut Rng, most: u64) -> u32 {
    if rng.hits(750) { 0 } else { rng.of_any_size(2, most).try_into().expect("small") }
}

/// Mostly never, otherwise up to `most` times.
fn times(rng: &mut Rng, most: u32) -> u32 {
    if rng.hits(700) { 0 } else { rng.count(1, most) }
}

/// How the connection behaves.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    pub(crate) stream_count: u16,
    pub(crate) delay_micros: u64,
    pub(crate) jitter_micros: u64,
    /// Time that a page takes on one stream.
    pub(crate) page_nanos: u64,
}

/// All that the seed decides about a world before it begins.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) source_osts: Vec<OstModel>,
    pub(crate) sink_osts: Vec<OstModel>,
    pub(crate) source_workers: u32,
    /// With how many requests in flight each end begins, if it looks for the best number.
    pub(crate) matched: Option<u32>,
    pub(crate) sink_workers: u32,
    pub(crate) network: Network,
    pub(crate) source: SourceConfig,
    pub(crate) sink: SinkConfig,
    /// Files that the sink can keep open.
    pub(crate) sink_open_files_max: u32,
    /// How many things lie at the source, about.
    pub(crate) entry_count: u32,
    /// How long it takes to make data durable, in microseconds, at most.
    pub(crate) sync_micros_max: u64,
    /// How large the largest files are, in pages.
    pub(crate) file_pages_max: u64,
    /// How many in a thousand files are larger than one block.
    pub(crate) large_per_mille: u32,
    /// Whether directories are walked to the bottom first.
    pub(crate) is_depth_first: bool,
    /// Whether each attempt may have blocks of another size.
    pub(crate) changes_block_size: bool,
    /// Whether a file is made durable, renamed, and its directory made durable one after the other.
    pub(crate) commits_in_steps: bool,
    pub(crate) faults: Faults,
}

impl Options {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let has_slow = rng.hits(400);
        let draw_osts = |rng: &mut Rng| {
            let count = rng.count(1, 6);
            (0..count).map(|index| OstModel::draw(rng, index, has_slow)).collect::<Vec<_>>()
        };
        let source_osts = draw_osts(rng);
        let sink_osts = draw_osts(rng);
        let block_size = draw_block_size(rng);
        let has_many = rng.hits(150);
        Self {
            source: draw_source(rng, block_size),
            sink: draw_sink(rng, &sink_osts, block_size),
            network: draw_network(rng),
            source_workers: rng.count(1, 8),
            matched: None,
            sink_workers: rng.count(1, 8),
            sink_open_files_max: if rng.hits(300) { rng.count(1, 4) } else { 1000 },
            entry_count: if has_many { rng.count(100, 300) } else { rng.count(1, 50) },
            sync_micros_max: 50_000,
            file_pages_max: rng.between(64, 1200),
            large_per_mille: if has_many { rng.count(0, 400) } else { rng.count(0, 700) },
            is_depth_first: rng.hits(500),
            changes_block_size: rng.hits(200),
            commits_in_steps: false,
            faults: Faults::draw(rng),
            source_osts,
            sink_osts,
        }
    }

    /// Some worlds have a stage. Drawn from dice of its own, so that the other worlds stay what
    /// they were before there were stages.
    pub(crate) fn draw_stage(&mut self, rng: &mut Rng) {
        if !rng.hits(700) {
            return;
        }
        let slots = rng.of_any_size(1, 400);
        let bytes = slots * u64::from(self.source.block_size) + rng.below(4096);
        let ost_count = u32::try_from(self.sink_osts.len()).expect("a few");
        let spare = self.sink.buffer_count - self.sink.kept_count() - ost_count;
        if spare > 0 && rng.hits(600) {
            self.sink.stage = Some(StageConfig {
                bytes,
                threads_max: rng.count(1, self.sink_workers),
                drains_max: rng.count(1, spare),
                writes_max: rng.count(1, self.sink_workers),
            });
        } else {
            self.source.stage_bytes = bytes;
            self.source.stage_threads_max = rng.count(1, self.source_workers);
        }
        if rng.hits(600) {
            let rate = |rng: &mut Rng| if rng.hits(500) { rng.count(2, 200) } else { 0 };
            self.faults.stage_write_error = rate(rng);
            self.faults.stage_read_error = rate(rng);
            self.faults.stage_rot = rate(rng);
        }
    }

    /// Worlds from [`TROUBLED_FROM`] on may have ends that fall silent, and calls that never
    /// return. Drawn from dice of its own, so that the other worlds stay what they were before.
    pub(crate) fn draw_troubles(&mut self, seed: u64) {
        if seed < TROUBLED_FROM {
            return;
        }
        let rng = &mut Rng::new(mix(seed ^ TROUBLED_FROM));
        self.commits_in_steps = rng.hits(800);
        self.faults.silences = times(rng, 2);
        self.faults.source_deaths = times(rng, 1);
        self.faults.hangs = times(rng, 2);
    }

    /// In one of eight worlds from [`TROUBLED_FROM`] on, the ends look for the best number of
    /// requests in flight, far more often than in life. Drawn from dice of its own, too; no seed of
    /// the tests is among these, so that they stay what they were.
    pub(crate) fn draw_matching(&mut self, seed: u64) {
        if seed < TROUBLED_FROM || seed % 8 != 3 {
            return;
        }
        let rng = &mut Rng::new(mix(mix(seed)));
        self.matched = Some(rng.count(1, 16));
        let millis = Duration::from_millis;
        for tuning in [&mut self.source.tuning, &mut self.sink.tuning] {
            tuning.match_count_min = rng.count(1, 8);
            tuning.match_epoch_min = millis(rng.of_any_size(1, 100));
            tuning.match_hold_min = millis(rng.of_any_size(1, 100));
            tuning.match_hold_max = millis(rng.of_any_size(10, 1000));
            tuning.match_silence_max = millis(rng.of_any_size(10, 2000));
        }
    }

    /// The next attempt may be made with other settings.
    pub(crate) fn redraw(&mut self, rng: &mut Rng) {
        if self.changes_block_size {
            let block_size = draw_block_size(rng);
            self.source.block_size = block_size;
            self.sink.buffer_bytes = block_size;
        }
    }

    pub(crate) fn source_specs(&self) -> Vec<OstSpec> {
        self.source_osts.iter().map(|ost| ost.spec.clone()).collect()
    }
}

fn draw_block_size(rng: &mut Rng) -> u32 {
    u32::try_from(rng.of_any_size(16, 256) * PAGE).expect("at most 1 MiB")
}

fn draw_source(rng: &mut Rng, block_size: u32) -> SourceConfig {
    SourceConfig {
        tuning: Tuning::DEFAULT,
        policy: draw_policy(rng),
        threshold: draw_threshold(rng),
        block_size,
        window_entries: rng.of_any_size(1, 1000),
        stream_count: STREAMS_MAX,
        // Not drawn, so that seeds keep their meaning.
        is_in_order: u64::from(block_size) / PAGE % 10 == 3,
        is_dry_run: false,
        may_pass: false,
        may_be_asked: false,
        removes_sources: false,
        is_all_there: true,
        is_comparing: true,
        window_directories: u64::MAX,
        open_files_max: if rng.hits(300) { rng.count(1, 4) } else { 1000 },
        retries_max: rng.count(0, 3),
        bytes_per_second: rng.hits(150).then(|| rng.of_any_size(1 << 20, 1 << 28)),
        stage_bytes: 0,
        stage_threads_max: 0,
    }
}

fn draw_policy(rng: &mut Rng) -> Policy {
    match rng.count(0, 6) {
        0 => Policy::File,
        1 => Policy::Layout,
        2 => Policy::Threshold,
        3 => Policy::Polite,
        _ => Policy::Adaptive,
    }
}

fn draw_threshold(rng: &mut Rng) -> Threshold {
    Threshold {
        window: rng.count(1, 40),
        limit_micros: rng.count(1, 100_000),
        skips: rng.count(0, 20),
    }
}

fn draw_sink(rng: &mut Rng, osts: &[OstModel], block_size: u32) -> SinkConfig {
    let ost_count = u32::try_from(osts.len()).expect("a few");
    // With a single buffer for each OST, one grant that is lost stops everything.
    let buffers_each = if rng.hits(200) { 1 } else { rng.count(1, 8) };
    let mut config = SinkConfig {
        tuning: Tuning::DEFAULT,
        policy: draw_policy(rng),
        threshold: draw_threshold(rng),
        osts: osts.iter().map(|ost| ost.spec.clone()).collect(),
        placing: PlacingConfig {
            rule: Place::Aware,
            stripe_size: PAGE * 16,
            stripe_count_max: osts.len(),
            seed: 0,
        },
        placed_bytes_min: rng.hits(500).then(|| rng.of_any_size(1, 1 << 24)),
        buffer_count: ost_count * buffers_each + rng.count(0, ost_count - 1),
        buffer_bytes: block_size,
        has_journal: rng.hits(850),
        batch_bytes: rng.of_any_size(1 << 16, 1 << 26),
        batch_interval: rng.micros(1000, 500_000),
        verifies_media: rng.hits(300),
        commits_max: rng.count(1, 4),
        at_once_max: Duration::from_micros(rng.of_any_size(1, 5000)),
        growth: rng.hits(500).then(|| GrowthConfig {
            extents_max: rng.count(2, 6),
            unit_bytes: PAGE,
            ost_count: u32::MAX,
        }),
        resends_max: rng.count(0, 20),
        removal: None,
        stage: None,
    };
    // As with hundreds of OSTs: there is no buffer for each grant. Not drawn, so that seeds mean
    // what they did.
    config.tuning.room_parts = [1, 2, 8][config.buffer_count as usize % 3];
    config.buffer_count += config.kept_count();
    config
}

fn draw_network(rng: &mut Rng) -> Network {
    Network {
        stream_count: u16::try_from(rng.count(1, STREAMS_MAX.into())).expect("a few"),
        delay_micros: rng.of_any_size(10, 50_000),
        jitter_micros: rng.of_any_size(1, 20_000),
        page_nanos: rng.of_any_size(500, 20_000),
    }
}

/// Where a file lies, among this many OSTs.
pub(crate) fn draw_layout(rng: &mut Rng, ost_count: usize) -> Layout {
    if ost_count == 1 || rng.hits(500) {
        return Layout::on(ost_at(rng.index(ost_count)));
    }
    let part_count = if rng.hits(300) { rng.between(2, 4) } else { 1 };
    let mut end = 0;
    let parts = (1..=part_count).map(|number| {
        end += rng.of_any_size(1, 512) * PAGE;
        Part {
            end: if number == part_count { u64::MAX } else { end },
            stripe_size: rng.of_any_size(16, 256) * PAGE,
            osts: draw_osts(rng, ost_count),
        }
    });
    Layout::composite(parts).expect("parts follow each other, and none is empty")
}

/// The same stripes, each on the next OST.
pub(crate) fn moved_on(layout: &Layout, ost_count: usize) -> Layout {
    let next = |ost: OstId| ost_at((ost.index() + 1) % ost_count);
    let parts = layout.parts().into_iter();
    let parts = parts.map(|it| Part { osts: it.osts.into_iter().map(next).collect(), ..it });
    Layout::composite(parts).expect("as sound as it was")
}

fn draw_osts(rng: &mut Rng, ost_count: usize) -> Vec<OstId> {
    let count = rng.between(1, ost_count as u64);
    let first = rng.index(ost_count);
    (0..usize::try_from(count).expect("a few"))
        .map(|step| ost_at((first + step) % ost_count))
        .collect()
}

fn ost_at(index: usize) -> OstId {
    OstId(u32::try_from(index).expect("a few"))
}
