//! On which OSTs a new file should go.
//!
//! [`Placer::wish`] answers by one of four rules ([`Place`]), from what is known of each OST
//! ([`Candidate`]). What the file system makes of the wish is another matter: its layout is read
//! again after the file has been made.
//!
//! [`Place::Aware`] takes for every stripe the OST on which it will be durable soonest; among
//! equals it draws one by chance. It knows only the load that this transfer has placed itself, so
//! several transfers do not all choose the same OST. The better of two OSTs drawn by chance
//! (Mitzenmacher) would avoid the worst OST, but the OSTs would not finish at the same time: of 80
//! files on 8 OSTs, one OST had 96 MiB instead of 80, and the transfer took that much longer. No
//! file is placed on an OST where it cannot be made, or where the stripe does not fit.

mod stripes;

use crate::tuning::Tuning;
use crate::units::OstId;

/// [`Candidate::slowness`] of an OST that is not slow.
pub const SLOWNESS_ONE: u32 = 1000;

/// Stripe sizes of new files are multiples of this, in bytes: Lustre takes no others.
const STRIPE_SIZE_UNIT: u64 = 64 << 10;

/// By which rule new files are placed (`--sink place=RULE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Place {
    /// Where the file system puts them.
    Inherit,
    /// In stripes of the same size and number as at the source; the file system chooses the OSTs.
    Same,
    /// Each on one OST, servers in turn, as proposed before LADS (layout-aware I/O scheduling,
    /// 2013, section IV). The baseline.
    Spread,
    /// Where they will be durable soonest, as far as is known.
    #[default]
    Aware,
}

/// What an OST can be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OstState {
    /// All files.
    #[default]
    Up,
    /// All files, but it is slow: one of its disks is being rebuilt.
    Degraded,
    /// No new files: it has no space.
    Full,
    /// No new files: its administrator has closed it.
    NoCreate,
    /// It cannot be reached.
    Down,
    /// There is none of this number.
    Absent,
}

impl OstState {
    /// Reports whether new files can go there.
    #[must_use]
    pub fn takes_files(self) -> bool {
        matches!(self, Self::Up | Self::Degraded)
    }
}

/// What is known of an OST when a file is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// What it can be used for.
    pub state: OstState,
    /// The number of its server; OSTs of one server have the same number.
    pub server: u32,
    /// All its space, in bytes; zero if not known.
    pub capacity_bytes: u64,
    /// Its free space, in bytes; without meaning if the capacity is not known.
    pub free_bytes: u64,
    /// The bytes of this transfer that are placed there and not yet written.
    pub queued_bytes: u64,
    /// How long its requests take now, in thousandths of the time that they should take; at least
    /// [`SLOWNESS_ONE`].
    pub slowness: u32,
}

impl Default for Candidate {
    fn default() -> Self {
        Self {
            state: OstState::Up,
            server: 0,
            capacity_bytes: 0,
            free_bytes: 0,
            queued_bytes: 0,
            slowness: SLOWNESS_ONE,
        }
    }
}

/// How a file is striped, without saying where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Striping {
    /// Bytes in a stripe; zero if there is only one stripe.
    pub size: u64,
    /// How many stripes; zero if not known.
    pub count: u32,
}

/// A file to be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewFile {
    /// Its size in bytes.
    pub size: u64,
    /// Bytes of all files that are placed now or soon, this one included. Files that are placed
    /// only after these have come do not count.
    pub coming_bytes: u64,
    /// Bytes of all files that are announced and sent: written ones, placed ones, and those without
    /// a place.
    pub transfer_bytes: u64,
    /// How it is striped at the source.
    pub source: Striping,
}

/// What is asked of the file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Nothing.
    Default,
    /// This many stripes of this size, anywhere.
    Striped {
        /// Bytes in a stripe; a multiple of 64 KiB.
        stripe_size: u64,
        /// How many stripes; at least one.
        stripe_count: usize,
    },
    /// Stripes of this size on these OSTs in turn.
    On {
        /// Bytes in a stripe; a multiple of 64 KiB.
        stripe_size: u64,
        /// The OSTs; at least one, none of them twice.
        osts: Vec<OstId>,
    },
}

/// Places files, one after the other.
#[derive(Clone, Debug)]
pub struct Placer {
    rule: Place,
    tuning: Tuning,
    /// Bytes in a stripe, where the source has nothing to say.
    stripe_size: u64,
    /// Most stripes of a file.
    stripe_count_max: usize,
    /// How many files were placed in turn.
    turn: u64,
    /// State of the generator of chances.
    chance: u64,
}

impl Placer {
    /// A placer with this rule. Stripes have `stripe_size` bytes, and a file at most
    /// `stripe_count_max` of them; `seed` makes transfers differ from each other.
    #[must_use]
    pub fn new(
        rule: Place,
        tuning: &Tuning,
        stripe_size: u64,
        stripe_count_max: usize,
        seed: u64,
    ) -> Self {
        Self {
            rule,
            tuning: *tuning,
            stripe_size: whole_units(stripe_size),
            stripe_count_max: stripe_count_max.max(1),
            turn: 0,
            chance: seed,
        }
    }

    /// Returns where a file should go. [`Wish::Default`] if no OST is known to take it: then the
    /// file system decides, or reports an error.
    pub fn wish(&mut self, file: &NewFile, candidates: &[Candidate]) -> Wish {
        let osts = match self.rule {
            Place::Inherit => return Wish::Default,
            Place::Same => return self.same(file, candidates),
            Place::Spread => self.next_in_turn(file, candidates).into_iter().collect(),
            Place::Aware => self.least_loaded(file, candidates),
        };
        if osts.is_empty() {
            return Wish::Default;
        }
        Wish::On { stripe_size: self.stripe_size, osts }
    }

    fn same(&self, file: &NewFile, candidates: &[Candidate]) -> Wish {
        let eligible = candidates.iter().filter(|it| it.state.takes_files()).count();
        let stripe_count = match file.source.count as usize {
            0 => return Wish::Default,
            count => count.min(eligible).clamp(1, self.stripe_count_max),
        };
        let stripe_size =
            if file.source.size == 0 { self.stripe_size } else { whole_units(file.source.size) };
        Wish::Striped { stripe_size, stripe_count }
    }

    /// The next OST of the next server.
    fn next_in_turn(&mut self, file: &NewFile, candidates: &[Candidate]) -> Option<OstId> {
        let mut order: Vec<(usize, u32, OstId)> = Vec::new();
        for (ost, candidate) in eligible(candidates, file.size) {
            let rank = order.iter().filter(|(_, server, _)| *server == candidate.server).count();
            order.push((rank, candidate.server, ost));
        }
        // The first OST of each server, then the second of each.
        order.sort_unstable();
        let at = self.turn.checked_rem(order.len() as u64)?;
        self.turn += 1;
        order.get(usize::try_from(at).expect("less than the number of OSTs")).map(|it| it.2)
    }

    /// An OST for each stripe.
    fn least_loaded(&mut self, file: &NewFile, candidates: &[Candidate]) -> Vec<OstId> {
        let Some(count) = stripes::count(file, candidates, &self.tuning, self.stripe_count_max)
        else {
            return Vec::new();
        };
        let stripe_bytes = file.size.div_ceil(count as u64);
        let mut left: Vec<_> = eligible(candidates, stripe_bytes).collect();
        let mut stripes = Vec::new();
        while stripes.len() < count {
            // Among equals by chance, so that several transfers do not all take the first.
            let first = self.draw(left.len());
            let in_turn = (first..left.len()).chain(0..first);
            let better = in_turn.min_by_key(|&at| left[at].1.cost(&self.tuning, stripe_bytes));
            let better = better.unwrap_or(first);
            stripes.push(left.swap_remove(better).0);
        }
        stripes
    }

    /// A random number below `count`, nearly uniform (Steele and others, `SplitMix64`).
    fn draw(&mut self, count: usize) -> usize {
        self.chance = self.chance.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.chance;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        let below = (u128::from(bits) * count as u128) >> 64;
        usize::try_from(below).expect("less than count")
    }
}

/// The OSTs that take files and have space for this many bytes.
fn eligible(candidates: &[Candidate], bytes: u64) -> impl Iterator<Item = (OstId, &Candidate)> {
    candidates.iter().enumerate().filter(move |(_, it)| it.takes(bytes)).map(|(index, it)| {
        let index = u32::try_from(index).expect("OST numbers are 32 bits");
        (OstId(index), it)
    })
}

impl Candidate {
    /// Whether a file, or a stripe of one, of this many bytes can go there.
    pub(crate) fn takes(&self, bytes: u64) -> bool {
        self.state.takes_files() && self.space() >= bytes
    }

    /// How many times as expensive a byte counts here as on an OST that is whole and empty, however
    /// quickly this one answers; at least 1.
    pub(crate) fn burden(&self, tuning: &Tuning) -> f64 {
        let answers = Self { slowness: SLOWNESS_ONE, ..*self };
        answers.slowness_in_all(tuning) as f64 / (256.0 * f64::from(SLOWNESS_ONE))
    }

    /// Bytes that it can take, as far as known.
    fn space(&self) -> u64 {
        match self.capacity_bytes {
            0 => u64::MAX,
            _ => self.free_after_queue(),
        }
    }

    /// Space left when all that is placed here is written.
    fn free_after_queue(&self) -> u64 {
        self.free_bytes.saturating_sub(self.queued_bytes)
    }

    /// How long it takes until this many bytes are written here, in no particular unit.
    fn cost(&self, tuning: &Tuning, bytes: u64) -> u128 {
        let bytes = u128::from(self.queued_bytes) + u128::from(bytes) + 1;
        bytes * self.slowness_in_all(tuning)
    }

    /// How long each byte takes, in no particular unit. An OST that is almost full counts as
    /// slower, so that OSTs fill evenly. At least 256,000.
    fn slowness_in_all(&self, tuning: &Tuning) -> u128 {
        let slowness = u128::from(self.slowness.max(SLOWNESS_ONE));
        let degraded = if self.state == OstState::Degraded { tuning.degraded_factor } else { 1 };
        slowness * u128::from(degraded) * self.fullness(tuning.fullness_factor_max)
    }

    /// From 256 for an OST that is empty, or of which nothing is known, to
    /// `factor_max` times that.
    fn fullness(&self, factor_max: u64) -> u128 {
        if self.capacity_bytes == 0 {
            return 256;
        }
        let least = (self.capacity_bytes / factor_max.max(1)).max(1);
        let free = self.free_after_queue().clamp(least, self.capacity_bytes.max(least));
        u128::from(self.capacity_bytes) * 256 / u128::from(free)
    }
}

fn whole_units(stripe_size: u64) -> u64 {
    stripe_size.max(1).div_ceil(STRIPE_SIZE_UNIT).saturating_mul(STRIPE_SIZE_UNIT)
}

#[cfg(test)]
mod tests;
