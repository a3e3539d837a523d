//! How the sessions of the tests are set: one OST at each end, blocks of 1 MiB, room for all.

use lads_core::congestion::Threshold;
use lads_core::placement::Place;
use lads_core::schedule::{OstSpec, Policy};
use lads_core::sink::{PlacingConfig, SinkConfig};
use lads_core::source::SourceConfig;
use lads_core::tuning::Tuning;
use std::time::Duration;

/// Bytes of a block.
pub(crate) const BLOCK: u32 = 1 << 20;

/// The only OST of an end.
pub(crate) fn osts() -> Vec<OstSpec> {
    vec![OstSpec::new("one", 4)]
}

/// A source with one stream.
#[allow(dead_code, reason = "not every test needs a source")]
pub(crate) fn source_config() -> SourceConfig {
    SourceConfig {
        tuning: Tuning::DEFAULT,
        policy: Policy::Adaptive,
        threshold: Threshold::default(),
        block_size: BLOCK,
        window_entries: 100,
        stream_count: 1,
        is_in_order: false,
        is_dry_run: false,
        may_pass: false,
        may_be_asked: false,
        removes_sources: false,
        is_all_there: true,
        is_comparing: true,
        window_directories: 100,
        open_files_max: 100,
        retries_max: 3,
        bytes_per_second: None,
        stage_bytes: 0,
        stage_threads_max: 0,
    }
}

/// A sink with a journal, and without a stage.
#[allow(dead_code, reason = "not every test needs a sink")]
pub(crate) fn sink_config() -> SinkConfig {
    SinkConfig {
        tuning: Tuning::DEFAULT,
        policy: Policy::Adaptive,
        threshold: Threshold::default(),
        osts: osts(),
        placing: PlacingConfig {
            rule: Place::Aware,
            stripe_size: 1 << 20,
            stripe_count_max: 2000,
            seed: 1,
        },
        placed_bytes_min: None,
        buffer_count: 32,
        buffer_bytes: BLOCK,
        has_journal: true,
        batch_bytes: 8 << 20,
        batch_interval: Duration::from_secs(1),
        verifies_media: false,
        commits_max: 2,
        at_once_max: Duration::ZERO,
        growth: None,
        resends_max: 3,
        removal: None,
        stage: None,
    }
}
