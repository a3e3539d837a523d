//! Where new files go: the rule, what it must know of the OSTs, and what of it waits where.

use crate::board::{Board, lock};
use crate::layout::{Heeds, Layouts, Placed};
use lads_core::layout::Layout;
use lads_core::placement::{Candidate, NewFile, Place, Placer, Wish};
use lads_core::tuning::Tuning;
use lads_core::units::OstId;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

/// How often the OSTs are looked at: as often as Lustre's client asks its servers.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How often it is asked which OSTs are slow.
const ASK_INTERVAL: Duration = Duration::from_millis(20);
/// Most stripes of a file that is placed by us: a wish must fit into an attribute.
const STRIPE_COUNT_MAX: usize = 2000;

/// Places new files.
#[derive(Debug)]
pub(super) struct Placing {
    rule: Place,
    state: Mutex<State>,
    queued: Arc<Queued>,
    /// How many files are not where they were wished to be.
    different_count: AtomicU64,
}

/// For each OST, what is to be written there and is not yet, in bytes.
type Queued = [AtomicU64];

/// What of one file is to be written on which OST; when it is dropped, nothing is any more,
/// whatever became of the file.
#[derive(Debug)]
pub(super) struct Outstanding {
    queued: Arc<Queued>,
    left: Mutex<BTreeMap<OstId, u64>>,
}

#[derive(Debug)]
struct State {
    placer: Placer,
    candidates: Vec<Candidate>,
    looked_at: Option<Instant>,
    asked_at: Option<Instant>,
}

impl Placing {
    pub(super) fn new(rule: Place, layouts: &dyn Layouts) -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let seed = u64::from(since.subsec_nanos()) << 32 | u64::from(std::process::id());
        let placer =
            Placer::new(rule, &Tuning::DEFAULT, layouts.stripe_size(), STRIPE_COUNT_MAX, seed);
        let candidates = Vec::new();
        let heeds_any = match layouts.heeds() {
            Heeds::Nothing => false,
            Heeds::Striping => rule != Place::Spread,
            Heeds::Place => true,
        };
        Self {
            rule: if heeds_any { rule } else { Place::Inherit },
            state: Mutex::new(State { placer, candidates, looked_at: None, asked_at: None }),
            queued: layouts.osts().iter().map(|_| AtomicU64::new(0)).collect(),
            different_count: AtomicU64::new(0),
        }
    }

    /// Where a file should go.
    ///
    /// Until what comes back with it is dropped, the file counts as waiting there: while a thread
    /// makes its file, others must not choose the same OST for being told that it is free.
    pub(super) fn wish(
        &self,
        file: &NewFile,
        layouts: &dyn Layouts,
        slowness: impl FnOnce() -> Vec<u32>,
    ) -> (Wish, Option<Outstanding>) {
        if self.rule == Place::Inherit {
            return (Wish::Default, None);
        }
        let mut state = lock(&self.state);
        let State { placer, candidates, looked_at, asked_at } = &mut *state;
        if looked_at.is_none_or(|then| then.elapsed() >= LOOK_INTERVAL) {
            *candidates = look(layouts);
            (*looked_at, *asked_at) = (Some(Instant::now()), None);
        }
        if asked_at.is_none_or(|then| then.elapsed() >= ASK_INTERVAL) {
            for (candidate, slowness) in candidates.iter_mut().zip(slowness()) {
                candidate.slowness = slowness;
            }
            *asked_at = Some(Instant::now());
        }
        for (candidate, queued) in candidates.iter_mut().zip(self.queued.iter()) {
            candidate.queued_bytes = queued.load(Ordering::Relaxed);
        }
        let wish = placer.wish(file, candidates);
        let Wish::On { stripe_size, osts } = &wish else { return (wish, None) };
        let layout = Layout::striped(*stripe_size, osts.clone());
        let outstanding = layout.map(|layout| self.wait_for(&layout, file.size));
        (wish, outstanding)
    }

    /// Counts a file as waiting where it was placed, and tells if that is not where it should be.
    pub(super) fn on_placed(
        &self,
        placed: &Placed,
        size: u64,
        path: &[u8],
        board: &Board,
    ) -> Outstanding {
        if let Some(difference) = &placed.difference
            && self.different_count.fetch_add(1, Ordering::Relaxed) == 0
        {
            let path = String::from_utf8_lossy(path);
            board.notice(format!(
                "the sink file system does not place every file as wished, which --place inherit \
                 would leave to it: {path}: {difference}"
            ));
        }
        self.wait_for(&placed.layout, size)
    }

    fn wait_for(&self, layout: &Layout, size: u64) -> Outstanding {
        let left = layout.bytes_per_ost(0..size);
        for (ost, bytes) in &left {
            self.queued[ost.index()].fetch_add(*bytes, Ordering::Relaxed);
        }
        Outstanding { queued: Arc::clone(&self.queued), left: Mutex::new(left) }
    }
}

impl Outstanding {
    /// Bytes that were to be written on one OST go to another.
    pub(super) fn on_moved(&self, from: OstId, to: OstId, bytes: u64) {
        let mut left = lock(&self.left);
        let there = left.get_mut(&from);
        let bytes = there.as_ref().map_or(0, |there| bytes.min(**there));
        if let Some(there) = there {
            *there -= bytes;
        }
        *left.entry(to).or_default() += bytes;
        self.queued[from.index()].fetch_sub(bytes, Ordering::Relaxed);
        self.queued[to.index()].fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes were written there.
    pub(super) fn on_written(&self, ost: OstId, bytes: u64) {
        if let Some(left) = lock(&self.left).get_mut(&ost) {
            let bytes = bytes.min(*left);
            *left -= bytes;
            self.queued[ost.index()].fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for Outstanding {
    fn drop(&mut self) {
        for (ost, bytes) in lock(&self.left).iter() {
            self.queued[ost.index()].fetch_sub(*bytes, Ordering::Relaxed);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_or_given_up_waits_no_more() {
        let layouts = crate::layout::open("synthetic:osts=3", "/".as_ref()).unwrap();
        let placing = Placing::new(Place::Aware, layouts.as_ref());
        let board = Board::new("here".to_owned(), true);
        let layout = Layout::striped(10, vec![OstId(2), OstId(0)]).unwrap();
        let file = placing.on_placed(&Placed::at(layout), 25, b"file", &board);
        let queued = || placing.queued.iter().map(|it| it.load(Ordering::Relaxed));
        assert_eq!(queued().collect::<Vec<_>>(), [10, 0, 15]);
        file.on_written(OstId(2), 10);
        file.on_written(OstId(0), 99);
        assert_eq!(queued().collect::<Vec<_>>(), [0, 0, 5]);
        drop(file);
        assert_eq!(queued().sum::<u64>(), 0);
    }

    #[test]
    fn a_file_waits_where_it_is_wished_to_be_while_it_is_made() {
        let layouts = crate::layout::open("synthetic:osts=3", "/".as_ref()).unwrap();
        let placing = Placing::new(Place::Aware, layouts.as_ref());
        let layout = Layout::on(OstId(1));
        let waiting = placing.wait_for(&layout, 7);
        let queued = || placing.queued.iter().map(|it| it.load(Ordering::Relaxed));
        assert_eq!(queued().collect::<Vec<_>>(), [0, 7, 0]);
        drop(waiting);
        assert_eq!(queued().sum::<u64>(), 0);
    }
}
