//! Tells the session the states of the OSTs on which it places new files, and tells the user if the
//! file system puts a file elsewhere.

use super::SinkEnd;
use crate::board::lock;
use crate::job::Options;
use crate::layout::{Heeds, Layouts, Placed};
use lads_core::placement::{Candidate, Place};
use lads_core::sink::{Event, PlacingConfig};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// How often the OSTs are looked at: as often as Lustre's client asks its servers.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// The most stripes of a file that LADS places: the wish must fit into an attribute.
const STRIPE_COUNT_MAX: usize = 2000;

/// When the OSTs were looked at, and whether a difference was told.
#[derive(Debug)]
pub(super) struct Placing {
    /// Whether anything about them matters.
    is_chosen: bool,
    looked_at: Mutex<Option<Instant>>,
    has_told: AtomicBool,
}

impl Placing {
    /// The OSTs were not looked at yet; files are placed by this rule.
    pub(super) fn new(rule: Place) -> Self {
        Self {
            is_chosen: rule != Place::Inherit,
            looked_at: Mutex::default(),
            has_told: AtomicBool::new(false),
        }
    }
}

/// By which rule new files are placed on this file system: as the user wants, if it respects that.
pub(super) fn config(options: &Options, layouts: &dyn Layouts) -> PlacingConfig {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let heeds_any = match layouts.heeds() {
        Heeds::Nothing => false,
        Heeds::Striping => options.place != Place::Spread,
        Heeds::Place => true,
    };
    PlacingConfig {
        rule: if heeds_any { options.place } else { Place::Inherit },
        stripe_size: layouts.stripe_size(),
        stripe_count_max: STRIPE_COUNT_MAX,
        seed: u64::from(since.subsec_nanos()) << 32 | u64::from(std::process::id()),
    }
}

impl SinkEnd {
    /// Looks at the OSTs and tells the session, if the last look is too old. Other threads wait
    /// meanwhile: the session must know the OSTs before it places the first file.
    pub(super) fn look_at_osts(&self) {
        if !self.placing.is_chosen {
            return;
        }
        let mut looked_at = lock(&self.placing.looked_at);
        if looked_at.is_none_or(|then| then.elapsed() >= LOOK_INTERVAL) {
            self.tell(Event::Osts(look(self.layouts.as_ref())));
            *looked_at = Some(Instant::now());
        }
    }

    /// The known states of the OSTs are out of date: look again before the next file is placed.
    pub(super) fn look_again_at_osts(&self) {
        *lock(&self.placing.looked_at) = None;
    }

    /// Tells the user of the first file that does not lie where LADS wished it.
    pub(super) fn tell_other_place(&self, placed: &Placed, path: &[u8]) {
        let Some(difference) = &placed.difference else { return };
        if !self.placing.has_told.swap(true, Ordering::Relaxed) {
            let path = String::from_utf8_lossy(path);
            self.board.notice(format!(
                "the sink file system does not place every file as requested (with --sink \
                 place=inherit, it chooses itself): {path}: {difference}"
            ));
        }
    }
}

fn look(layouts: &dyn Layouts) -> Vec<Candidate> {
    let mut servers: HashMap<String, u32> = HashMap::new();
    let targets = layouts.targets().into_iter().enumerate().map(|(index, target)| {
        // If servers are not known, each OST counts as a server.
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
