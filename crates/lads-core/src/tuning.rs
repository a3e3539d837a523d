//! The numbers of policy: how long, how many, how often, which part.
//!
//! Every number of policy of a transfer is a field of [`Tuning`]; those of remote files are in
//! [`crate::remote::policy`]. LADS runs with [`Tuning::DEFAULT`]. Sessions take the numbers with
//! their configuration, so that the simulator can try others (`lads-sim --sweep-tuning`). Numbers
//! that both ends must agree on, and limits that keep a peer or a disk from asking for too much,
//! are not policy; they are in `limits.rs`, `frame.rs` and the formats.
//!
//! A last sentence that begins with *half* says what half and double of the field do to the share
//! of the fluid bound that a transfer reaches, in percentage points. It gives the mean and its
//! standard error over beds of 8 and 32 OSTs, stripe counts 1 and 4, none, source, sink and both
//! congested, with and without growing files, in three or four weathers. *Same* means that no run
//! differed by even a nanosecond: those beds do not use the field, and it is there for the reason
//! that its text gives. The beds use the default policy, so they say nothing of the fields of
//! `--polite`, which `cargo xtask bench harm` measures.
//!
//! The fields `verdict_…` decide nothing but what a user is told. Their sentence says in how many
//! of 50 transfers another part is named, each with a part that was made slow
//! (`cargo xtask bench verdict`, of which the counters were kept and judged again).

use std::time::Duration;

macro_rules! tuning {
    ($($(#[doc = $doc:literal])+ $name:ident: $kind:ty = $value:expr;)+) => {
        /// All numbers of policy.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct Tuning {
            $($(#[doc = $doc])+ pub $name: $kind,)+
        }

        impl Tuning {
            /// The numbers that LADS runs with.
            pub const DEFAULT: Self = Self { $($name: $value,)+ };

            /// Every field, in order.
            pub const FIELDS: &'static [Field] = &[$(Field {
                name: stringify!($name),
                scaled: |tuning, factor| Self { $name: tuning.$name.scaled(factor), ..tuning },
            },)+];
        }
    };
}

/// One number of policy, for a sweep over all of them.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name in [`Tuning`].
    pub name: &'static str,
    scaled: fn(Tuning, f64) -> Tuning,
}

impl Field {
    /// The same numbers with this one multiplied by `factor`. A count becomes at least 1, unless
    /// the factor is zero.
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
    /// The tracks of a target that hides its OSTs, unless threads or buffers are too few. Between
    /// two file systems with 8 hidden OSTs, 80 files of 8 MiB reach 90 % of the bound, and with
    /// half of the tracks 86 %; with 32 hidden OSTs 81 and 73 %. Double would be more threads than
    /// an end has.
    /// Half and double: same.
    tracks: u32 = 128;
    /// A file that is written on tracks gets one for each of this number of bytes: some eight
    /// blocks. One file of 1 GiB in 8 stripes on hidden OSTs of 25 MB/s takes 6.5 s, and with the
    /// double, too; with four times as much 7.0 s. Half was not measured: 80 files of 8 MiB would
    /// then have 160 tracks.
    /// Half and double: same.
    track_bytes: u64 = 8 * MIB;
    /// An idle track takes over half of a file only if both halves have at least this many bytes:
    /// some blocks, so that a file is not divided for every block. Half and double cost the file of
    /// 1 GiB 1 and 3 %. 16 files of 24 MiB, and 80 of 8 MiB, take as long with half.
    /// Half and double: same.
    share_bytes_min: u64 = 8 * MIB;
    /// Where OSTs are hidden, fewer requests in flight than the first guess are taken only if they
    /// gain this part of the rate.
    ///
    /// The figures of this field and of the next ones are rates over 60 s of simulated storage
    /// (`matching/tests.rs`, noise of 20 %), in percent of what the guess of 128 requests reaches:
    /// 99.8 and 99.4 on 8 and 32 hidden OSTs and 99.7 on one server (± 0.3: what probes cost), 141
    /// on one disk, 158 on a server with a knee. Half and double: same within the error.
    /// A gain of a tenth is beyond what chance shows.
    match_gain_min: f64 = 0.1;
    /// A rate that is lower by no more than this part counts as the same. With half, the knee
    /// reaches 146 and the disk 139: probes end too early; double costs 0.2 on hidden OSTs.
    match_loss_max: f64 = 0.08;
    /// A rate is measured over at least this time while other numbers are tried, and twice this
    /// time during a hold. Half: knee 155; double: knee 160, but a server loses 0.2 more.
    match_epoch_min: Duration = Duration::from_millis(200);
    /// A rate is measured over no more than this time, if at least `match_count_min` requests are
    /// complete. Half and double: the same within the error; with double, one disk is found half a
    /// second later.
    match_epoch_max: Duration = Duration::from_millis(1500);
    /// A rate is measured over at least this many requests, and four times as many during a hold.
    /// Half: knee 152, and 0.5 lost on hidden OSTs; double: knee 162, disk 140.
    match_count_min: u32 = 16;
    /// While other numbers are tried, a rate that is lower by this part ends the measurement when
    /// half of `match_count_min` requests are complete. Half: knee 154; double, so never: 0.3 lost.
    match_clear_loss: f64 = 0.3;
    /// The shortest time for which a number of requests is held before another one is tried. Half:
    /// same; double: disk 139, knee 153, found later.
    match_hold_min: Duration = Duration::from_secs(2);
    /// The longest time. A change that does not change the rate is followed after it, which should
    /// be within 15 seconds. Half and double: same within the error.
    match_hold_max: Duration = Duration::from_secs(12);
    /// After a probe, the number is held for as long as the probe has lost, times this: so that
    /// probes lose about one part in this number. Half and double: same within the error, because
    /// `match_hold_max` holds more often.
    match_cost_parts: u32 = 100;
    /// If the rate changes by this part, another number is tried at once. Half: knee 150, chance
    /// does it; double: same, but only a change by half is followed at once.
    match_change: f64 = 0.25;
    /// If fewer requests than the first guess are in flight, and none returns for this time, the
    /// others begin. No storage of the sweep hangs. Half could be the time of one request; with
    /// double, a hidden OST that hangs stops all others for four seconds.
    match_silence_max: Duration = Duration::from_secs(2);
    /// The number of OSTs of an end from which on OSTs are compared. With fewer there is nothing to
    /// compare with and no other OST to go to, so none is ever congested. Two OSTs that differ
    /// cannot both be the usual one.
    /// Half and double: same.
    osts_min: usize = 3;
    /// A request is slow if it takes longer by this part than requests of its kind usually do, and
    /// longer by this part than the best that its OST has been. Half of all requests take longer
    /// than usual.
    /// Half -0.31 ± 0.19, double -0.06 ± 0.09.
    slow_excess: f64 = 1.0;
    /// The best that an OST has been doubles after each of these times, until it meets what is
    /// measured. So an OST that has always been slow is not congested.
    /// Half -0.13 ± 0.12, double +0.04 ± 0.07.
    floor_doubles_after: Duration = Duration::from_secs(20);
    /// A congested OST may have at least this many requests in flight: one keeps it busy while the
    /// other is on its way.
    /// Half -0.02 ± 0.22, double -0.11 ± 0.20.
    window_min: f64 = 2.0;
    /// A good answer raises the number of requests that an OST may have by this number, divided by
    /// the present number of requests: by one each time that all of them have been answered.
    /// Half -0.04 ± 0.13, double -0.03 ± 0.12.
    window_up: f64 = 1.0;
    /// A request that took longer than usual raises the usual time by this part, a request that
    /// took less lowers it by this part. So the usual time is about the median.
    /// Half +0.01 ± 0.05, double -0.01 ± 0.11.
    usual_step: f64 = 0.05;
    /// `--polite`: as `slow_excess`. One other program with one request at a time makes four of our
    /// requests take 1.25 times as long, 0.25 more. With 0.3 LADS would not notice that program;
    /// with 0.08 it would react to chance.
    polite_slow_excess: f64 = 0.15;
    /// `--polite`: as `floor_doubles_after`. Longer, so that programs that use an OST for minutes
    /// do not come to count as the OST's own speed.
    polite_floor_doubles_after: Duration = Duration::from_secs(600);
    /// `--polite`: as `window_min`. One request at a time is enough to take turns with another
    /// program.
    polite_window_min: f64 = 1.0;
    /// `--polite`: as `window_up`. Where a single request at a time is rare, the time of a single
    /// request is learned while others use the OST, and includes their requests. Then LADS tries a
    /// second request now and then, and finds that the others are there. The number is small so
    /// that this is rare.
    polite_window_up: f64 = 0.1;
    /// `--polite`: a request that took longer than usual raises the usual time by this part; with
    /// `polite_usual_down`, about one request in forty takes less than the usual time. So the usual
    /// time is what an OST needs for LADS alone.
    polite_usual_up: f64 = 0.0005;
    /// `--polite`: a request that took less than usual lowers the usual time by this part.
    polite_usual_down: f64 = 0.02;
    /// Bytes of a request that only probes whether an OST is still congested: an eighth of a block.
    /// Half -0.29 ± 0.26, double +0.04 ± 0.28.
    probe_bytes: u32 = 128 << 10;
    /// A congested OST without requests in flight is probed after this long. That is far shorter
    /// than OSTs stay congested, and far longer than a probe takes.
    /// Half +0.01 ± 0.01, double -0.00 ± 0.00.
    probe_interval: Duration = Duration::from_millis(250);
    /// After this long without a request, nothing is known of an OST that was not congested either,
    /// unless no OST has been congested for `calm_after`. The beds of the sweep have enough threads
    /// for all OSTs, where this rule gains nothing. With 8 threads for 32 OSTs, four of them slow
    /// for 1.5 s at a time, transfers take 8 % longer without it (`tests/congestion.rs`).
    /// Half -0.10 ± 0.12, double -0.11 ± 0.10.
    stale_after: Duration = Duration::from_millis(500);
    /// The slowness known of an OST counts half as much after each of these times of silence.
    /// Without this, an OST that was congested when it was last heard of would get no file, and so
    /// would not be heard of again.
    /// Half +0.07 ± 0.05, double -0.19 ± 0.11.
    forgotten_after: Duration = Duration::from_millis(500);
    /// If no OST was congested for this long, the end counts as calm. An OST is slow for seconds,
    /// and then others become slow, at once or soon.
    /// Half -0.00 ± 0.00, double same.
    calm_after: Duration = Duration::from_secs(5);
    /// The first requests to every OST, this many, are short and one at a time, to learn what a
    /// probe usually takes. None to a track: there is nothing to learn.
    /// Half -0.49 ± 0.30, double -0.16 ± 0.27.
    first_count: u32 = 2;
    /// This many slow answers in a row show that an OST is congested, and this many good ones that
    /// it is not any more. With one, chance would decide.
    /// Half +0.03 ± 0.26, double +0.22 ± 0.27.
    run_min: u32 = 2;
    /// A single request that has not returned after this many times the usual time shows that its
    /// OST is congested.
    /// Half -0.52 ± 0.19, double -0.09 ± 0.13.
    overdue_min: f64 = 3.0;
    /// The weight of a new value in the smoothed slowness of an OST.
    /// Half -0.11 ± 0.20, double -0.09 ± 0.14.
    slowness_weight: f64 = 0.25;
    /// Requests of a kind that must have been seen before a request of that kind is called slow.
    /// Half -0.26 ± 0.16, double -0.41 ± 0.16.
    samples_min: u32 = 4;
    /// For the first `first_usual_count` requests of a kind, the usual time moves by this part. It
    /// is larger than the later one, so that a slow start is soon forgotten.
    /// Half -0.37 ± 0.18, double -0.11 ± 0.08.
    first_usual_step: f64 = 0.2;
    /// See `first_usual_step`. Twenty steps of 0.05 move as far as five of 0.2.
    /// Half -0.15 ± 0.12, double -0.10 ± 0.11.
    first_usual_count: u32 = 16;
    /// Where files grow, an OST of the sink gets only as many requests at a time as it needs to do
    /// this part of its rate. With 0.9, an OST whose latency is a tenth of its service time would
    /// have one request, and be idle for the latency. With 1, each would have two, however short
    /// the latency.
    /// Half same, double -0.78 ± 0.25.
    enough_part: f64 = 0.95;
    /// One in this many requests to an OST may start when the number that is enough is already in
    /// flight, to see whether one more would be better.
    /// Half -0.04 ± 0.08, double -0.00 ± 0.05.
    one_more_every: u32 = 64;
    /// One request raises the known time of a request alone by at most this part, and lowers the
    /// known time between two completions by at most this part. Both lean towards fewer requests:
    /// it takes six slightly slow requests in a row before an OST gets one request more than is
    /// enough. With 0.05 two would do, and two such requests come whenever OSTs turn slow or quick.
    /// Half same, double +0.00 ± 0.00.
    enough_step_little: f64 = 0.01;
    /// The same in the other direction: lowers the first, raises the second.
    /// Half +0.00 ± 0.00, double same.
    enough_step_much: f64 = 0.05;
    /// If more OSTs of the sink are congested than their number divided by this, none counts as
    /// congested when files are placed: then the cause is not the OSTs, and the rest could not take
    /// all files. Without this rule, files that do not grow reach 73 % instead of 99 % where all 32
    /// OSTs of the sink are slow now and then.
    /// Half same, double -0.07 ± 0.07.
    few_parts: usize = 4;
    /// Where threads are fewer than OSTs, a thread stays with an OST for about the bytes that wait
    /// for each OST, divided by this.
    /// Half -0.03 ± 0.02, double same.
    run_parts: u64 = 8;
    /// It stays for at least this number of bytes.
    /// Half -0.24 ± 0.11, double -0.15 ± 0.09.
    run_bytes_min: u64 = 8 * MIB;
    /// A queue of an OST with nothing in flight that could be taken from is passed over in a row at
    /// most this many times the number of OSTs; then it is the turn of such queues, one after the
    /// other. So each OST gets a sixteenth of its fair share of all takings, however congested it
    /// is. If no request takes longer than `service`, the oldest block of an OST moves within
    /// `(passes_max + 1) * osts * service / threads`. It costs little, because a congested OST is
    /// only asked for an eighth of a block.
    /// Half and double: same.
    passes_max: usize = 16;
    /// A new value has one part in this number of the weight in the smoothed service time. That
    /// time decides whether an OST is quick enough for a receiver to write.
    /// Half and double: same.
    service_parts: u32 = 8;
    /// Bytes: files of at most this length share a frame with others. A frame costs 20 µs besides
    /// its bytes, so a file of 128 KiB takes a third longer if it is alone in a frame.
    /// Half and double: same.
    packed_bytes_max: u64 = 128 * KIB;
    /// The most files in one frame: few enough that one slow open does not delay many files. A
    /// frame has room for 256.
    /// Half and double: same.
    packed_count_max: usize = 64;
    /// How many lanes of a source queue are searched for small files that share a frame. 20,000
    /// files of 4 KiB on 8 OSTs over 128 ms take 4.5 s; with half of this 5.0 s, with the double
    /// 5.1, and 12.5 s if only files that follow each other share one.
    packed_lanes: usize = 128;
    /// How many lanes of a source queue are searched for one whose sink OST has room. The search is
    /// a loop under the lock of the session: 64 lanes take a few microseconds.
    /// Half and double: same.
    lookahead_lanes: usize = 64;
    /// How many lanes are searched for one whose sink OST has little to do.
    /// Half -0.44 ± 0.24, double +0.13 ± 0.21.
    balanced_lanes: usize = 16;
    /// Staged blocks may keep open one in this number of the files that may be open; the others are
    /// left to blocks that can be sent.
    /// Half and double: same.
    staged_files_parts: u32 = 2;
    /// New files may always be placed this many bytes ahead of their blocks, for each OST of the
    /// sink: as many bytes as an OST has in requests of 1 MiB.
    /// Half -0.60 ± 0.32, double -0.41 ± 0.24.
    placed_bytes_each: u64 = 4 * MIB;
    /// As many bytes of a source OST may be in hand (placed, and not come) as came from it in this
    /// time.
    /// Half -0.04 ± 0.15, double -0.05 ± 0.12.
    come_interval: Duration = Duration::from_millis(500);
    /// The share of a source OST in hand is multiplied by this while OSTs of the sink are congested
    /// now and then: if one of its files must wait, another need not. With more, files only delay
    /// each other, and some OSTs have more left than others at the end.
    /// Half -0.25 ± 0.26, double -0.43 ± 0.23.
    times_for_choice: u64 = 2;
    /// It is multiplied by this while no OST is congested and files are striped. Stripes of a file
    /// are read side by side; the more files they belong to, the more OSTs of the sink they go to.
    /// A slow server of the source holds part of every file, and the other servers go on with the
    /// next files meanwhile. With 8 OSTs, two to a server, transfers reach 98 % of the bound, with
    /// half of this number 91 %, with a fourth 83 %.
    /// Half -0.90 ± 0.29, double -0.09 ± 0.25.
    times_for_stripes: u64 = 8;
    /// Of this number of last files of a source OST, only a part is in hand. At the end there are
    /// no other files to write while an OST of the sink is slow that was not slow when they were
    /// placed. To place them late delays their source OST for a moment at most.
    /// Half +0.15 ± 0.19, double +0.07 ± 0.06.
    last_files: usize = 4;
    /// The part of `last_files`: one byte in this number.
    /// Half -0.15 ± 0.16, double -0.11 ± 0.12.
    last_parts: u64 = 4;
    /// Bytes that wait for a congested OST of the sink count as their number divided by this: that
    /// OST is about this much slower, and the bytes that may wait for it stay limited.
    /// Half -0.28 ± 0.20, double -0.16 ± 0.14.
    congested_parts: u64 = 8;
    /// Bytes: the source tells the sink when its stage holds this much more or less. It is twice
    /// what is placed ahead for one OST.
    /// Half and double: same.
    staged_step_bytes: u64 = 8 * MIB;
    /// A file gets one more stripe for each of this number of bytes (NASA's Shift does the same). A
    /// file that keeps one OST busy for about a second gains by a second stripe; for a smaller file
    /// a second stripe costs only more requests to the metadata server. A file may get more than
    /// this if the transfer would otherwise take longer (`placement/stripes.rs`).
    /// Half and double: same.
    bytes_per_stripe: u64 = 1 << 30;
    /// An OST that is being rebuilt counts as this many times slower.
    /// Half and double: same.
    degraded_factor: u64 = 4;
    /// An OST that is almost full counts as this many times slower, at most.
    /// Half and double: same.
    fullness_factor_max: u64 = 20;
    /// No stripe has fewer bytes: eight requests of 1 MiB, twice as many as an OST has in flight.
    /// With half of this, the first of 160 files of 8 MiB were split in two, before it was known
    /// that more followed, and 32 OSTs reached 89 % of what is possible instead of 97 %. With the
    /// double, one file of 96 MiB would lie on six of eight OSTs, and take a third longer.
    /// Half -0.80 ± 0.34, double same.
    stripe_bytes_min: u64 = 8 * MIB;
    /// No stripe is shorter than an OST's share of the whole transfer divided by this, because
    /// below that, whole files keep all OSTs busy. About this part is
    /// what one OST may have to do longer than others at the end. With 4, the last of 10 files of
    /// 96 MiB on 8 OSTs would not fit where there is room, and take a fifteenth longer. With 16,
    /// the last of 60 files of 32 MiB would be split in two for a gain of the same size.
    /// Half and double: same.
    share_parts: u64 = 8;
    /// A stripe of this number of bytes is long enough for any transfer. With half of it, the last
    /// files of large transfers would get more stripes than they gain by. With the double, a last
    /// file of 96 MiB would be on one OST.
    /// Half and double: same.
    stripe_bytes_enough: u64 = 32 * MIB;
    /// Where no number of stripes fits, OSTs may have one part in this number more to do than
    /// others at the end, then two parts, and so on.
    /// Half and double: same.
    level_parts: u64 = 8;
    /// The length of an extent of a growing file: the bytes that are left for each OST, divided by
    /// this. An OST that turns five times as slow then needs a fifth of the remaining time for one
    /// extent.
    /// Half -0.05 ± 0.13, double +0.09 ± 0.07.
    extent_parts: u64 = 24;
    /// How often the sink looks at what is left on each OST, to place files again.
    /// Half same, double +0.02 ± 0.15.
    again_interval: Duration = Duration::from_millis(50);
    /// A file that is partly written is placed again only if its OST needs this many times as long
    /// for what is left there as another OST for the whole file. The file must be read again, too,
    /// and the OST may become quick again meanwhile. If nothing is written yet, placing again costs
    /// little more than a round trip.
    /// Half -0.09 ± 0.19, double same.
    again_times_if_begun: f64 = 3.0;
    /// For placing again, an OST counts as slow if its requests take this many times as long as
    /// they should.
    /// Half -0.28 ± 0.16, double +0.05 ± 0.18.
    again_slowness_min: f64 = 2.0;
    /// The sink grants room for this many frames for each request that an OST should have: one that
    /// is being written and one that is coming.
    /// Half -0.05 ± 0.19, double +0.03 ± 0.13.
    room_times: u32 = 2;
    /// It grants this many frames more: those that the network holds of a quick OST. Without them,
    /// growing files with 4 stripes reach 87 % instead of 91 % on 8 OSTs with a congested sink.
    /// Half +0.13 ± 0.15, double -0.09 ± 0.13.
    room_spare: u32 = 6;
    /// It grants as many more as a line of this rate, in bytes per second, holds for one round
    /// trip, within what an OST may have of the buffers. Without them, grants double with each
    /// round trip, and a line of 4 Gbit/s with 128 ms waits for them as long as for TCP.
    room_rate: u64 = 1_250_000_000;
    /// There are enough streams for this rate, in bytes per second, if each window is full
    /// ([`crate::shares::stream_count`]): 5 Gbit/s. Over 128 ms and 4 Gbit/s, where nobody has
    /// tuned TCP, 768 MiB take 10.7 s with 4 streams, 6.1 with 8, 3.5 with 16 (half) and 3.3 with
    /// 32. With double, 16 streams over 26.8 ms lose packets where a switch has a small buffer:
    /// 512 MiB with BBR take 5.1 s instead of 4.65.
    /// Half and double: same.
    stream_rate: u64 = 625_000_000;
    /// A window is taken to hold no more than this where losses make it smaller, as they do with
    /// any congestion control but BBR; and it is what the kernel lets a connection have in flight
    /// where nobody has tuned TCP (4 MiB to send, with all that belongs to them). With Reno, 1
    /// Gbit/s, 128 ms, and every 5,000th packet lost, 1.5 GiB take 44 s with 4 streams, 29 with 8,
    /// 20 with 16 (double) and 15 with 32. With half, there are 14 streams over 26.8 ms.
    /// Half and double: same.
    stream_window_bytes: u64 = 2_500_000;
    /// With many OSTs, each may have the arena divided by this, though there are not as many
    /// buffers for all of them. Over 128 ms and 4 Gbit/s, 768 MiB to one of 256 OSTs take 4.0 s;
    /// with half the same, with double 5.7 s, and with its share 66 s.
    /// Half +0.07 ± 0.06, double same.
    room_parts: u32 = 8;
    /// The source is told of free buffers when the arena divided by this is free, or with grants
    /// for OSTs.
    /// Half -0.03 ± 0.13, double +0.05 ± 0.15.
    room_lots: u32 = 16;
    /// Grants are sent when those that an OST may have, divided by this, are free, so that one
    /// message carries several.
    /// Half -0.52 ± 0.27, double -0.13 ± 0.22.
    grant_parts: u32 = 4;
    /// `--bwlimit`: as many bytes as may go in this time may be sent early, so that a thread that
    /// is late delays nothing.
    /// Half and double: same.
    pace_slack: Duration = Duration::from_millis(100);
    /// `--max-cpu`: the processor time that pays for this time may be used early. A thread that is
    /// late delays nothing then, and nobody waits for shorter than it takes to wake a thread.
    /// Half and double: same.
    cpu_slack: Duration = Duration::from_millis(50);
    /// `--max-cpu`: the longest that a thread waits before its next block. Far less than
    /// `--timeout` by default, because the peer waits meanwhile. If 64 threads take a block of half
    /// a millisecond after each such wait, they use 1.6 % of a processor; half would be 3.2 %, more
    /// than `--max-cpu 1%` of two processors allows.
    /// Half and double: same.
    cpu_wait_max: Duration = Duration::from_secs(2);
    /// As many entries are in flight at first. 20,000 files of 4 KiB from memory to memory took 40
    /// µs of processors a file with 16,384, 39 with 4,096 or 2,048, 35 to 37 with this and with
    /// half of it, and 40 with a quarter.
    /// Half and double: same.
    window_entries: u64 = 1024;
    /// When the window of entries has kept an OST idle for this long, twice as many may be in
    /// flight. Memory waits for less; with four doublings, a long line waits for the time of a
    /// fifth of a round trip.
    /// Half and double: same.
    window_patience: Duration = Duration::from_millis(5);
    /// About how many bytes of entries one announcing message holds: some five hundred files.
    /// Half and double: same.
    announced_bytes: usize = 64 << 10;
    /// The most entries in a message that says that entries have ended, and the most blocks in one
    /// that says that blocks are recorded: some tens of KiB.
    /// Half and double: same.
    rows_per_message: usize = 1000;
    /// About how many bytes of answers one message holds; a single answer may have some hundred
    /// KiB.
    /// Half and double: same.
    answers_bytes: usize = 64 << 10;
    /// The most entries that one thread of the sink looks at in one go: this number of small files
    /// takes a few milliseconds.
    /// Half and double: same.
    examined_count: usize = 64;
    /// The most bytes of their files: large files are looked at one by one, so that the threads
    /// share them.
    /// Half and double: same.
    examined_bytes: u64 = 4 * MIB;
    /// The most files that one thread commits in one go: the first fsync carries the others along.
    /// Half and double: same.
    committed_count: usize = 64;
    /// A thread that commits takes no further file when its files have this many bytes: large files
    /// are committed one by one, so that the threads share them, above all the last ones. Between
    /// emulated file systems (32 OSTs, sink congested, growing files of 8 MiB) medians of five went
    /// from 8.48 to 8.34 s. A quarter of it made 1,000 files of 1 MiB slower on ext4: 1.32 instead
    /// of 1.22 s.
    /// Half -0.18 ± 0.23, double -0.02 ± 0.06.
    committed_bytes: u64 = 16 * MIB;
    /// When this many bytes are written and not recorded, they are recorded. A crash costs
    /// about this much.
    /// Half +0.33 ± 0.18, double +0.21 ± 0.20.
    batch_bytes: u64 = 64 * MIB;
    /// When bytes have been written and not recorded for this long, they are recorded.
    /// Half -0.03 ± 0.15, double +0.12 ± 0.15.
    batch_interval: Duration = Duration::from_secs(1);
    /// After a batch was recorded, at least this many times as long as that took passes before
    /// the next one: a file system that is mounted with FUSE writes nothing to a file while it
    /// syncs it. One file of 2 GiB between 8 hidden OSTs reaches 65 % of the bound without a pause
    /// and 83 % with it. About one part in this number of the time goes to syncs: with half, twice
    /// that; with double, a crash costs twice as much.
    /// Half and double: same.
    batch_parts: u32 = 20;
    /// But no more than this, so that a crash costs ten seconds at most where syncs are slow. With
    /// half, syncs of half a second cost 9 % of the time instead of 5; with double, a crash costs
    /// twice as much.
    /// Half and double: same.
    batch_gap_max: Duration = Duration::from_secs(10);
    /// A write that usually takes less than this is done by the thread that received it: to hand
    /// the write over would cost about as much (docs/decisions/03-receiver-writes.md).
    /// Half same, double -0.18 ± 0.19.
    at_once_max: Duration = Duration::from_millis(3);
    /// How often it is judged which part limits a transfer. In the first tenth of a second, the
    /// rate limit lets through what it saved up: with half of this interval, storage would often
    /// be named instead of the limit. With the double, a change would be shown late.
    /// Half none, double 1.
    verdict_interval: Duration = Duration::from_secs(1);
    /// No part is named if all threads together have worked less than this. Half of it is a few
    /// requests to a rotating disk, which chance decides. With the double, a transfer of few small
    /// files would never get a verdict.
    /// Half and double: none.
    verdict_work_min: Duration = Duration::from_millis(50);
    /// The limit that the user set is named if this part of the bytes sent had to wait for it. A
    /// limit far above the actual rate lets nearly everything pass at once.
    /// Half none, double all 8 with a limit: that is all bytes.
    verdict_limited_part: f64 = 0.5;
    /// `--max-cpu` is named if threads of an end waited for their share for this part of the time.
    /// Whoever uses all of the share waits between any two blocks. Half of this is the noise of a
    /// transfer that uses nearly all of it; with double, a share that takes away a fifth of what
    /// the transfer would use is blamed on something else.
    /// Half and double: none; no transfer had `--max-cpu`.
    verdict_cpu_limited_part: f64 = 0.1;
    /// What follows the source is slow if the source had nothing to do, although its storage was
    /// free, for this part of the time.
    /// Half 1, double 5: that is all of the time.
    verdict_starved_part: f64 = 0.5;
    /// Then it is the network if threads were sending for this part of the time, in sum.
    /// Half and double: none; without the rule, 9 transfers to slow storage.
    verdict_sending_part: f64 = 0.5;
    /// And it is the storage of the sink if calls there took this part of the time, in sum.
    /// Half and double: none; without the rule, 1 over a slow network.
    verdict_writing_part: f64 = 0.25;
    /// Processors are named only if threads of an end together wanted this part of one.
    /// Half and double: none; a quarter 3, and without the rule all 8 over a slow network.
    verdict_wanted_part: f64 = 0.5;
    /// And waited for them for this part of the time that they wanted them.
    /// Half and double: none; with three times as much, no processor is ever named. Without the
    /// rule, they are named where all is in memory and nothing waits.
    verdict_waited_part: f64 = 1.0 / 3.0;
    /// And were not in calls to storage, at both ends, for more than this many times as long.
    /// Half and double: none; without the rule, 7 transfers from and to slow storage.
    verdict_storage_times: f64 = 2.0;
    /// If processors are short at both ends, their idle times are told apart if they differ by this
    /// part of a processor. The kernel counts them in hundredths of a second. A source that is held
    /// up by a sink with a third of a processor is idle for a ninth of the time, so that half of
    /// this number would be too coarse; double is the noise of a machine that does other things.
    /// Half 1, double none.
    verdict_idle_part: f64 = 0.05;
}

/// A number that can be multiplied.
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

/// Counts are rounded, and are at least 1 unless the factor is zero.
macro_rules! counts {
    ($($kind:ty)+) => {$(
        impl Scaled for $kind {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "numbers of policy are far from the limits of their types"
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
