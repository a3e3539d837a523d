//! By which numbers is it decided: how long, how many, how often, which part.
//!
//! Every number of policy of this crate is a field of [`Tuning`]. [`Tuning::DEFAULT`] is what runs;
//! sessions take it with their configuration, so that the simulator can try others
//! (`lads-sim --sweep-tuning`). What two ends must agree on, and what keeps a peer or a disk from
//! asking for too much, is no policy and stands elsewhere (`limits.rs`, `frame.rs`, formats).
//!
//! Where the last sentence of a field begins with *half*, it says what half and double of it do to
//! the share of the fluid bound that is reached, in points of a hundred: the mean over beds of 8
//! and 32 OSTs, one and four stripes, none, source, sink and both congested, with files that grow
//! and files that do not, in three or four weathers, and its standard error. *Same* is a run that
//! does not differ in any nanosecond: those beds do not come to use it, and it is there for what
//! the field says. The others have not been swept.

use std::time::Duration;

macro_rules! tuning {
    ($($(#[doc = $doc:literal])+ $name:ident: $kind:ty = $value:expr;)+) => {
        /// All numbers of policy.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct Tuning {
            $($(#[doc = $doc])+ pub $name: $kind,)+
        }

        impl Tuning {
            /// What runs.
            pub const DEFAULT: Self = Self { $($name: $value,)+ };

            /// Every field, in order.
            pub const FIELDS: &'static [Field] = &[$(Field {
                name: stringify!($name),
                scaled: |tuning, factor| Self { $name: tuning.$name.scaled(factor), ..tuning },
            },)+];
        }
    };
}

/// One number of policy, as a sweep goes through them.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// What it is called in [`Tuning`].
    pub name: &'static str,
    scaled: fn(Tuning, f64) -> Tuning,
}

impl Field {
    /// The same numbers, but this one multiplied; one that counts becomes at least 1, unless the
    /// factor is zero.
    #[must_use]
    pub fn scaled(&self, tuning: Tuning, factor: f64) -> Tuning {
        (self.scaled)(tuning, factor)
    }
}

impl Default for Tuning {
    fn default() -> Self {
        Self::DEFAULT
    }
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

tuning! {
    /// OSTs of an end: with fewer than this there is nothing to compare with, and nowhere to go, so
    /// none is ever congested. Two that differ cannot both be what is usual.
    /// Half and double: same.
    osts_min: usize = 3;
    /// A request is slow if it takes longer by this part than others of its kind usually do, and
    /// than the best that its OST has been. Half of all requests take longer than usual.
    /// Half -0.31 ± 0.19, double -0.06 ± 0.09.
    slow_excess: f64 = 1.0;
    /// It is not if it takes longer by at most this part. What lies between counts for neither.
    /// Half +0.00 ± 0.08, double -0.13 ± 0.13.
    clear_excess: f64 = 0.5;
    /// An OST that has always been slow is not congested: it is what it is. The best that it has
    /// been counts as twice as long after so long, until that meets what is measured.
    /// Half -0.13 ± 0.12, double +0.04 ± 0.07.
    floor_doubles_after: Duration = Duration::from_secs(20);
    /// A congested OST has this many requests in flight at least, if it may have them: one keeps it
    /// busy while the other is on its way.
    window_min: f64 = 2.0;
    /// A good answer makes the number of requests that an OST may have larger by this part of one,
    /// divided by that number: by one each time that all of them have been answered.
    /// Half -0.04 ± 0.13, double -0.03 ± 0.12.
    window_up: f64 = 1.0;
    /// A request that took longer than usual makes what is usual longer by this part, one that took
    /// less shorter: so it is about the median.
    usual_step: f64 = 0.05;
    /// `--polite`: as `slow_excess`. One program besides ours, with one request at a time, makes
    /// four of ours take five quarters of their time, 0.25 more; 0.3 would not see it, with 0.08
    /// chance would.
    /// Half and double: same.
    polite_slow_excess: f64 = 0.15;
    /// `--polite`: as `clear_excess`; what an OST takes for us alone differs by less.
    /// Half and double: same.
    polite_clear_excess: f64 = 0.08;
    /// `--polite`: as `floor_doubles_after`. Others that use an OST for minutes do not become what
    /// it is.
    /// Half and double: same.
    polite_floor_doubles_after: Duration = Duration::from_secs(600);
    /// `--polite`: as `window_min`. Who gives way takes turns, and need not go away.
    polite_window_min: f64 = 1.0;
    /// `--polite`: as `window_up`. Where one at a time is rare, what one takes is learned on the
    /// shared OST, and others are part of it: then a second is tried now and then, and it is seen
    /// that they are there. So seldom.
    /// Half and double: same.
    polite_window_up: f64 = 0.1;
    /// `--polite`: by this part what is usual becomes longer, and by the other shorter: about one
    /// request in forty takes less than usual, which is what an OST does for us alone.
    polite_usual_up: f64 = 0.0005;
    /// The other.
    polite_usual_down: f64 = 0.02;
    /// Bytes of a request that only looks whether an OST is still congested: an eighth of a block.
    probe_bytes: u32 = 128 << 10;
    /// A congested OST without requests in flight is probed after this long: far shorter than OSTs
    /// are congested, far longer than a probe takes.
    probe_interval: Duration = Duration::from_millis(250);
    /// After this long nothing is known of an OST that was not congested, either, unless it is
    /// calm.
    /// Half -0.10 ± 0.12, double -0.11 ± 0.10.
    stale_after: Duration = Duration::from_millis(500);
    /// Files are not placed on an OST that was congested when it was last heard of, and if it has
    /// none it is not heard of: so what is known of it means half as much after each of these.
    /// Half +0.07 ± 0.05, double -0.19 ± 0.11.
    forgotten_after: Duration = Duration::from_millis(500);
    /// If no OST was congested for so long, it is calm. What is slow is so for seconds, and other
    /// OSTs are next, at once or soon.
    /// Half -0.00 ± 0.00, double same.
    calm_after: Duration = Duration::from_secs(5);
    /// So many first requests to every OST are short, and one at a time: so it is known what a
    /// probe usually takes.
    first_count: u32 = 2;
    /// This many answers in a row tell that an OST is congested, or is not any more. With one,
    /// chance tells.
    run_min: u32 = 2;
    /// A request that is not back after this many times the usual time tells by itself.
    /// Half -0.52 ± 0.19, double -0.09 ± 0.13.
    overdue_min: f64 = 3.0;
    /// What is new weighs this part in the mean of how slow an OST is.
    slowness_weight: f64 = 0.25;
    /// Requests of a kind to have seen before any is called slow.
    samples_min: u32 = 4;
    /// Until `first_usual_count` of a kind have been seen, what is usual moves by this part, which
    /// is more than later: a slow start is soon forgotten.
    first_usual_step: f64 = 0.2;
    /// See `first_usual_step`; twenty steps of 0.05 are as many as five of 0.2.
    first_usual_count: u32 = 16;
    /// Where files grow, an OST of the sink gets as few requests as do this part of what it can.
    /// With 0.9 an OST whose latency is a tenth of its service time would have one, and be idle for
    /// as long; with 1 each would have two, however short the latency.
    enough_part: f64 = 0.95;
    /// Of this number of requests to an OST, one may start while the number that is enough is in
    /// flight, to see whether one more would be better.
    /// Half -0.04 ± 0.08, double -0.00 ± 0.05.
    one_more_every: u32 = 64;
    /// One request makes the time that one takes alone longer by at most this part, and the gap
    /// between two shorter: both lean towards fewer requests, and it takes six in a row that are a
    /// little slow before an OST is given one more than is enough. With 0.05 two are enough for
    /// that, and they come whenever OSTs turn slow or quick.
    enough_step_little: f64 = 0.01;
    /// The other way round, by this part.
    enough_step_much: f64 = 0.05;
    /// If more OSTs of the sink than their number divided by this are congested, none counts as
    /// such when files are placed: it is something else that is slow, and the rest could not take
    /// it all.
    /// Half same, double -0.07 ± 0.07.
    few_parts: usize = 4;
    /// Threads that are fewer than OSTs stay with an OST for about this part of what waits for
    /// each.
    /// Half -0.03 ± 0.02, double same.
    run_parts: u64 = 8;
    /// But for this number of bytes at least.
    run_bytes_min: u64 = 8 * MIB;
    /// A queue that could be taken from, of an OST with nothing in flight, is passed over at most
    /// this many times the number of OSTs in a row; of those that were, one after the other. So
    /// each OST gets a sixteenth of its fair share of all takings, however congested it is: if no
    /// request takes longer than `service`, what has waited longest on an OST moves within
    /// `(passes_max + 1) * osts * service / threads`. It costs little, for a congested OST is only
    /// asked for an eighth of a block.
    passes_max: usize = 16;
    /// What is new weighs one part in this number in the service time by which an OST is called
    /// quick enough for a receiver to write.
    service_parts: u32 = 8;
    /// Bytes: files no longer than this travel many to a frame. With 20 µs for what each frame
    /// costs besides its bytes, one of 128 KiB takes a third longer for being alone.
    packed_bytes_max: u64 = 128 * KIB;
    /// Files in one frame at most: few enough that a slow open does not hold many files back. A
    /// frame has room for 256.
    packed_count_max: usize = 64;
    /// How far down a queue of the source to look for a lane whose sink OST has room. It is a loop
    /// under the lock of the session: 64 lanes take a few microseconds.
    lookahead_lanes: usize = 64;
    /// How far down to look for one whose sink OST has little to do.
    /// Half -0.44 ± 0.24, double +0.13 ± 0.21.
    balanced_lanes: usize = 16;
    /// What is staged may keep one in this number of the files open that may be; the others are for
    /// what can be sent.
    staged_files_parts: u32 = 2;
    /// New files are placed this many bytes ahead of their blocks, for each OST of the sink, in any
    /// case: as many as it has requests of 1 MiB.
    placed_bytes_each: u64 = 4 * MIB;
    /// What came from a source OST in this time may be in hand: placed, and not come.
    /// Half -0.04 ± 0.15, double -0.05 ± 0.12.
    come_interval: Duration = Duration::from_millis(500);
    /// This many times as much is in hand while OSTs of the sink are congested now and then: if one
    /// of the files waits, another need not. Otherwise more files only get into each other's way,
    /// and some OSTs are left with more than others at the end.
    /// Half -0.25 ± 0.26, double -0.43 ± 0.23.
    times_for_choice: u64 = 2;
    /// The same while none is and files are striped: their stripes are read side by side, and the
    /// more files they are of, the more OSTs of the sink they are for. A slow server of the source
    /// holds part of every file, and the others go on with the next ones meanwhile: with 8 OSTs,
    /// two to a server, they reach 98 % of the bound, with half of it 91 %, with a fourth 83 %.
    times_for_stripes: u64 = 8;
    /// Of this number of last files of a source OST only a part is in hand. At the end there are no
    /// others to be written while an OST of the sink is slow that was not when they were placed;
    /// and placed late they cost their source OST a moment at most.
    /// Half +0.15 ± 0.19, double +0.07 ± 0.06.
    last_files: usize = 4;
    /// That part: one byte in this number.
    /// Half -0.15 ± 0.16, double -0.11 ± 0.12.
    last_parts: u64 = 4;
    /// What waits for a congested OST of the sink counts as its bytes divided by this: it moves
    /// about that much slower, and there is an end to what may wait for one.
    /// Half -0.28 ± 0.20, double -0.16 ± 0.14.
    congested_parts: u64 = 8;
    /// Bytes: the sink is told when the stage of the source holds this much more or less, twice
    /// what one OST is sent ahead.
    staged_step_bytes: u64 = 8 * MIB;
    /// A file gets one stripe more for each of this number of bytes (NASA's Shift does the same). A
    /// file that fills one OST's bandwidth for about a second gains by a second one; a smaller one
    /// costs only more requests to the metadata server. How many more it gets if the transfer would
    /// otherwise take longer is another question.
    bytes_per_stripe: u64 = 1 << 30;
    /// How many times slower an OST counts that is being rebuilt.
    degraded_factor: u64 = 4;
    /// How many times slower one counts that is almost full, at most.
    fullness_factor_max: u64 = 20;
    /// No stripe has fewer bytes: eight requests of 1 MiB, twice as many as an OST has under way.
    /// With half of it the first of 160 files of 8 MiB were torn in two, before it was known that
    /// more followed, and 32 OSTs came to 89 % of what is possible, not 97 %. With the double, one
    /// file of 96 MiB would lie on six of eight OSTs, and take a third longer.
    stripe_bytes_min: u64 = 8 * MIB;
    /// Nor is a stripe shorter than an OST's share of the whole transfer divided by this, for
    /// then whole files keep all OSTs busy. About as much is what one OST may have to do longer
    /// than others at the end: with 4, the last of 10 files of 96 MiB on 8 OSTs would not fit where
    /// there is room, and take a fifteenth longer; with 16, the last of 60 files of 32 MiB would be
    /// torn in two to win as little.
    /// Half and double: same.
    share_parts: u64 = 8;
    /// A stripe of this number of bytes is long enough for any transfer. Half of it would tear the
    /// last files of large transfers into more pieces than they gain by; with the double, a last
    /// file of 96 MiB would be on one OST.
    stripe_bytes_enough: u64 = 32 * MIB;
    /// Where no number of stripes fits, OSTs may have one part in this number more to do than
    /// others have at the end, and so on.
    /// Half and double: same.
    level_parts: u64 = 8;
    /// An extent of a file that grows is what is left for each OST, divided by this: one
    /// that turns five times as slow needs a fifth of the time that is left for it.
    /// Half -0.05 ± 0.13, double +0.09 ± 0.07.
    extent_parts: u64 = 24;
    /// How often it is looked at what is left where, to place files again.
    again_interval: Duration = Duration::from_millis(50);
    /// A file of which something is written is placed again only if its OST needs this many times
    /// as long for what is left there as another would for the whole file: it is read again as
    /// well, and the OST may be quick again meanwhile. If nothing is written, it costs little more
    /// than a round trip.
    /// Half -0.09 ± 0.19, double same.
    again_times_if_begun: f64 = 3.0;
    /// An OST counts as slow for that if its requests take this many times as long as they should.
    again_slowness_min: f64 = 2.0;
    /// The sink grants room for this many frames for each request that an OST should have: one that
    /// is written and one that comes.
    room_times: u32 = 2;
    /// And for this number of further frames: what the network holds of a quick OST.
    /// Half +0.13 ± 0.15, double -0.09 ± 0.13.
    room_spare: u32 = 6;
    /// Grants travel when those that an OST may have, divided by this, are free: in handfuls.
    grant_parts: u32 = 4;
    /// `--bwlimit`: what may go in this time may be sent early, so that a thread which is late need
    /// not be waited for.
    /// Half and double: same.
    pace_slack: Duration = Duration::from_millis(100);
    /// Bytes of entries in one message that announces them, about: half a thousand files.
    announced_bytes: usize = 64 << 10;
    /// Entries in one message that says that they have ended, and blocks in one that says that they
    /// are on record; some tens of KiB.
    rows_per_message: usize = 1000;
    /// Bytes of answers in one message, about: one may be some hundred KiB by itself.
    answers_bytes: usize = 64 << 10;
    /// Entries looked at in one go by one thread of the sink: this number of small files takes a
    /// few milliseconds.
    examined_count: usize = 64;
    /// Bytes of their files: large files are looked at one by one, so that the threads share them.
    examined_bytes: u64 = 4 * MIB;
    /// Files committed in one go by one thread: the first fsync takes the others along.
    committed_count: usize = 64;
    /// When this many bytes are written and not on record, they are put on record: what a crash can
    /// cost.
    batch_bytes: u64 = 64 * MIB;
    /// When bytes were written and not on record for so long, they are put on record.
    batch_interval: Duration = Duration::from_secs(1);
    /// A write that usually takes less than this is done by the thread that received it: handing it
    /// over would cost about as much (ARCHITECTURE.md, decision 3).
    at_once_max: Duration = Duration::from_millis(3);
}

/// What can be multiplied.
trait Scaled {
    fn scaled(self, factor: f64) -> Self;
}

impl Scaled for f64 {
    fn scaled(self, factor: f64) -> Self {
        self * factor
    }
}

impl Scaled for Duration {
    fn scaled(self, factor: f64) -> Self {
        self.mul_f64(factor)
    }
}

/// Numbers that count: near enough, and at least one where there is to be any.
macro_rules! counts {
    ($($kind:ty)+) => {$(
        impl Scaled for $kind {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "numbers of policy are far from the ends of what numbers can be"
            )]
            fn scaled(self, factor: f64) -> Self {
                let least = if factor > 0.0 { 1 } else { 0 };
                ((self as f64 * factor).round() as $kind).max(least)
            }
        }
    )+};
}

counts!(u32 u64 usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_is_scaled_by_itself() {
        for field in Tuning::FIELDS {
            let doubled = field.scaled(Tuning::DEFAULT, 2.0);
            assert_ne!(doubled, Tuning::DEFAULT, "{}", field.name);
            assert_eq!(field.scaled(doubled, 0.5), Tuning::DEFAULT, "{}", field.name);
        }
    }

    #[test]
    fn what_counts_is_at_least_one_unless_it_is_off() {
        assert_eq!(1_u32.scaled(0.25), 1);
        assert_eq!(3_usize.scaled(0.0), 0);
        assert_eq!(Duration::from_secs(1).scaled(0.5), Duration::from_millis(500));
    }
}
