//! Where new files go: the rule, what it must know of the OSTs, and what of it waits where.

use crate::board::{Board, lock};
use crate::layout::{Layouts, Placed};
use lads_core::placement::{Candidate, NewFile, Place, Placer, Wish};
use lads_core::units::OstId;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// How often the OSTs are looked at: as often as Lustre's client asks its servers.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Most stripes of a file that is placed by us: a wish must fit into an attribute.
const STRIPE_COUNT_MAX: usize = 2000;

/// Places new files.
#[derive(Debug)]
pub(super) struct Placing {
    rule: Place,
    state: Mutex<State>,
    /// For each OST, what is to be written there and is not yet, in bytes.
    queued: Vec<AtomicU64>,
    /// How many files are not where they were wished to be.
    different_count: AtomicU64,
}

#[derive(Debug)]
struct State {
    placer: Placer,
    candidates: Vec<Candidate>,
    looked_at: Option<Instant>,
}

impl Placing {
    pub(super) fn new(rule: Place, layouts: &dyn Layouts) -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let seed = u64::from(since.subsec_nanos()) << 32 | u64::from(std::process::id());
        let placer = Placer::new(rule, layouts.stripe_size(), STRIPE_COUNT_MAX, seed);
        let candidates = Vec::new();
        Self {
            rule: if layouts.heeds_wishes() { rule } else { Place::Inherit },
            state: Mutex::new(State { placer, candidates, looked_at: None }),
            queued: layouts.osts().iter().map(|_| AtomicU64::new(0)).collect(),
            different_count: AtomicU64::new(0),
        }
    }

    /// Where a file should go.
    pub(super) fn wish(&self, file: &NewFile, layouts: &dyn Layouts) -> Wish {
        if self.rule == Place::Inherit {
            return Wish::Default;
        }
        let mut state = lock(&self.state);
        let State { placer, candidates, looked_at } = &mut *state;
        if looked_at.is_none_or(|then| then.elapsed() >= LOOK_INTERVAL) {
            *candidates = look(layouts);
            *looked_at = Some(Instant::now());
        }
        for (candidate, queued) in candidates.iter_mut().zip(&self.queued) {
            candidate.queued_bytes = queued.load(Ordering::Relaxed);
        }
        placer.wish(file, candidates)
    }

    /// So much of a file is going to be written where it was placed.
    pub(super) fn on_placed(&self, placed: &Placed, size: u64, path: &[u8], board: &Board) {
        for (ost, bytes) in placed.layout.bytes_per_ost(0..size) {
            if let Some(queued) = self.queued.get(ost.index()) {
                queued.fetch_add(bytes, Ordering::Relaxed);
            }
        }
        let Some(difference) = &placed.difference else { return };
        if self.different_count.fetch_add(1, Ordering::Relaxed) == 0 {
            let path = String::from_utf8_lossy(path);
            board.notice(format!(
                "the sink file system does not place every file as wished, which --place inherit \
                 would leave to it: {path}: {difference}"
            ));
        }
    }

    /// Bytes were written, or will not be.
    pub(super) fn on_written(&self, ost: OstId, bytes: u64) {
        if let Some(queued) = self.queued.get(ost.index()) {
            let less = |queued: u64| Some(queued.saturating_sub(bytes));
            let _ = queued.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }
}

fn look(layouts: &dyn Layouts) -> Vec<Candidate> {
    let mut servers: HashMap<String, u32> = HashMap::new();
    let targets = layouts.targets().into_iter().enumerate().map(|(index, target)| {
        // Of servers that are not known, each OST has its own.
        let name = if target.server.is_empty() { target.name } else { target.server };
        let next = u32::try_from(index).expect("OST numbers are 32 bits");
        Candidate {
            state: target.state,
            server: *servers.entry(name).or_insert(next),
            capacity_bytes: target.capacity_bytes,
            free_bytes: target.free_bytes,
            ..Candidate::default()
        }
    });
    targets.collect()
}
