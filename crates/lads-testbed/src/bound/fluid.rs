//! The least time in which given bytes could have moved between two file systems, if the bytes were
//! a fluid and the mover knew the future.
//!
//! **A source** holds given bytes on each OST. What an OSS can have given by a moment `t` has a
//! limit for each subset of its OSTs: what that subset could serve by `t`, plus all that lies on
//! the other OSTs. The least of these limits counts, and the source's limit is the sum over the
//! OSSes. For servers whose sets of possible rates are polymatroids, as these are (each OST's rate,
//! the OSS's cap on the sum), this limit can be reached: the rank function of their sum is the sum
//! of their rank functions (Edmonds 1970).
//!
//! **A network** is a server with one rate. **A sink** is a server whose rate is the sum over its
//! OSSes: a mover that may place any byte on any OST keeps all of them busy.

use super::curve::{Curve, Steps};

/// A rate that no emulated part reaches, in bytes per second. It stands for "unlimited", and byte
/// counts at this rate stay exact in 53 bits for hours.
pub const UNLIMITED: f64 = 1e13;

/// The largest number of OSTs of an OSS for which every subset is examined (2^12 subsets take
/// milliseconds). With more OSTs, only each OST alone and the whole OSS are examined.
pub const EXACT_OSTS_MAX: usize = 12;

/// An OSS: the limit of the whole, and its OSTs.
#[derive(Clone, Debug)]
pub struct Server {
    /// The rate that all its OSTs together cannot exceed.
    pub cap: Steps,
    /// Its OSTs.
    pub osts: Vec<Target>,
}

/// An OST: its rate, and the bytes on it that are to be moved.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its rate.
    pub rate: Steps,
    /// The bytes to be read from it; not used for a sink.
    pub bytes: f64,
}

/// A way from the OSTs of a source to those of a sink.
#[derive(Clone, Debug)]
pub struct Way {
    /// The OSSes that the bytes lie on.
    pub source: Vec<Server>,
    /// The rate of the network.
    pub network: Steps,
    /// The OSSes that the bytes go to, in any placement; `None` if the sink takes everything at
    /// once.
    pub sink: Option<Vec<Server>>,
}

/// The least time of the whole move, and the time that each part would need alone. `None` means
/// never.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// Bytes to be moved.
    pub bytes: f64,
    /// The time for all parts together.
    pub seconds: Option<f64>,
    /// The time if network and sink take everything at once.
    pub source_seconds: Option<f64>,
    /// The time if source and sink are always ready.
    pub network_seconds: Option<f64>,
    /// The time if source and network are always ready.
    pub sink_seconds: Option<f64>,
    /// Whether the bound can be reached. If not, a move may need longer than this, but never less.
    pub is_exact: bool,
}

impl Way {
    /// Returns the least time for a fluid that goes this way.
    pub fn bound(&self) -> Bound {
        let osts = self.source.iter().flat_map(|server| &server.osts);
        let bytes: f64 = osts.map(|ost| ost.bytes).sum();
        let given = total(self.source.iter().map(Server::given));
        let network = Curve::integral(&self.network);
        let sink = self.sink.as_ref().map(|servers| total(servers.iter().map(Server::taken)));
        let arrived = given.through(&network);
        let written = sink.as_ref().map_or_else(|| arrived.clone(), |sink| arrived.through(sink));
        // A few bytes less than all: a sum of thousands of 53-bit numbers is not exact.
        let enough = |curve: &Curve| curve.time_of(bytes - (16.0 + bytes * 1e-9).min(bytes));
        Bound {
            bytes,
            seconds: enough(&written),
            source_seconds: enough(&given),
            network_seconds: enough(&network),
            sink_seconds: sink.map_or(Some(0.0), |sink| enough(&sink)),
            is_exact: self.source.iter().all(Server::is_exact),
        }
    }
}

impl Server {
    /// Returns the most that can have been read from it by each moment.
    fn given(&self) -> Curve {
        let osts: Vec<&Target> = self.osts.iter().filter(|ost| ost.bytes > 0.0).collect();
        if self.is_exact() && !self.is_uncapped() {
            return self.given_exactly(&osts);
        }
        let one_by_one = total(
            osts.iter().map(|ost| Curve::integral(&ost.rate).min(&Curve::constant(ost.bytes))),
        );
        one_by_one.min(&Curve::integral(&self.rate_of(osts.iter().copied())))
    }

    /// Returns the minimum over all subsets of these OSTs.
    fn given_exactly(&self, osts: &[&Target]) -> Curve {
        let all: f64 = osts.iter().map(|ost| ost.bytes).sum();
        let mut least = Curve::constant(all);
        for subset in 1_u32..1 << osts.len() {
            let chosen = || (0..osts.len()).filter(|i| subset & 1 << i != 0).map(|i| osts[i]);
            let others = all - chosen().map(|ost| ost.bytes).sum::<f64>();
            let served = Curve::integral(&self.rate_of(chosen()));
            least = least.min(&served.plus(&Curve::constant(others)));
        }
        least
    }

    /// Returns the most that can have been written to it by each moment.
    fn taken(&self) -> Curve {
        Curve::integral(&self.rate_of(self.osts.iter()))
    }

    fn rate_of<'a>(&self, osts: impl Iterator<Item = &'a Target>) -> Steps {
        let sum = osts.fold(Steps::constant(0.0), |sum, ost| sum.plus(&ost.rate));
        sum.min(&self.cap)
    }

    fn is_uncapped(&self) -> bool {
        self.cap.is_at_least(UNLIMITED)
    }

    fn is_exact(&self) -> bool {
        let used = self.osts.iter().filter(|ost| ost.bytes > 0.0).count();
        used <= EXACT_OSTS_MAX || self.is_uncapped()
    }
}

fn total(curves: impl Iterator<Item = Curve>) -> Curve {
    curves.fold(Curve::constant(0.0), |sum, curve| sum.plus(&curve))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The tests count in megabytes: then a few bytes more or less do not matter.
    const MB: f64 = 1e6;

    fn ost(megabytes_per_second: f64, megabytes: f64) -> Target {
        Target { rate: Steps::constant(megabytes_per_second * MB), bytes: megabytes * MB }
    }

    fn server(megabytes_per_second: f64, osts: Vec<Target>) -> Server {
        Server { cap: Steps::constant(megabytes_per_second * MB), osts }
    }

    fn source_only(source: Vec<Server>) -> Way {
        Way { source, network: Steps::constant(UNLIMITED), sink: None }
    }

    #[track_caller]
    fn assert_seconds(bound: Bound, expected: f64) {
        let seconds = bound.seconds.unwrap();
        assert!((seconds - expected).abs() < 1e-4 * expected, "{seconds} s, not {expected} s");
    }

    #[test]
    fn the_fullest_ost_decides_where_bytes_lie_fixed() {
        let osts = vec![ost(100.0, 1e6), ost(100.0, 3e6)];
        assert_seconds(source_only(vec![server(UNLIMITED / MB, osts)]).bound(), 3e4);
    }

    #[test]
    fn an_oss_holds_all_its_osts_back() {
        let osts = vec![ost(100.0, 1e6), ost(100.0, 1e6)];
        assert_seconds(source_only(vec![server(50.0, osts)]).bound(), 4e4);
    }

    #[test]
    fn a_pair_of_osts_can_be_what_decides() {
        // Two OSTs are slow until 1000 s; the third is fast all the time; the cap is 100. The pair
        // needs 2 × 10 × 1000 + 100 × x = 100,000, so 800 s more. Neither a single OST nor the
        // whole needs that long: alone 10,000 + 100 (t - 1000) = 50,000 at 1400 s; whole 100 t =
        // 150,000 at 1500 s.
        let mut slow_first = Steps::constant(10.0 * MB);
        slow_first.change(1000.0, 100.0 * MB);
        let slow = Target { rate: slow_first, bytes: 50_000.0 * MB };
        let osts = vec![slow.clone(), slow, ost(100.0, 50_000.0)];
        assert_seconds(source_only(vec![server(100.0, osts)]).bound(), 1800.0);
    }

    #[test]
    fn a_sink_takes_bytes_wherever_there_is_room() {
        let way = Way {
            source: vec![server(UNLIMITED / MB, vec![ost(1e6, 6e6)])],
            network: Steps::constant(UNLIMITED),
            sink: Some(vec![server(UNLIMITED / MB, vec![ost(100.0, 0.0), ost(500.0, 0.0)])]),
        };
        assert_seconds(way.bound(), 1e4);
    }

    #[test]
    fn a_sink_that_was_quick_too_early_cannot_make_up_for_it() {
        // The source gives 100 a second; the sink takes 1000 for 500 s, then 50. So 50,000 go
        // at once, and the other 50,000 need 1000 s more, though the sink alone needs 100 s.
        let mut slowed = Steps::constant(1000.0 * MB);
        slowed.change(500.0, 50.0 * MB);
        let way = Way {
            source: vec![server(UNLIMITED / MB, vec![ost(100.0, 1e5)])],
            network: Steps::constant(UNLIMITED),
            sink: Some(vec![server(UNLIMITED / MB, vec![Target { rate: slowed, bytes: 0.0 }])]),
        };
        let bound = way.bound();
        assert_seconds(bound, 1500.0);
        assert!(bound.sink_seconds.unwrap() < 101.0, "{bound:?}");
    }

    #[test]
    fn a_network_holds_everything_back() {
        let mut way = source_only(vec![server(UNLIMITED / MB, vec![ost(1e6, 1e6)])]);
        way.network = Steps::constant(1000.0 * MB);
        assert_seconds(way.bound(), 1000.0);
    }

    #[test]
    fn what_lies_on_a_dead_ost_never_comes() {
        let way = source_only(vec![server(UNLIMITED / MB, vec![ost(0.0, 1e6), ost(9.0, 1e6)])]);
        assert_eq!(way.bound().seconds, None);
    }

    #[test]
    fn many_osts_below_a_cap_are_not_looked_at_subset_by_subset() {
        let osts = vec![ost(10.0, 1e5); EXACT_OSTS_MAX + 1];
        let bound = source_only(vec![server(65.0, osts.clone())]).bound();
        assert!(!bound.is_exact);
        assert_seconds(bound, 1.3e6 / 65.0);
        assert!(source_only(vec![server(UNLIMITED / MB, osts)]).bound().is_exact);
    }

    /// An OST with rates in three steps of 1000 s, and some bytes.
    fn any_ost() -> impl Strategy<Value = Target> {
        ([1_u32..100, 1..100, 1..100], 1_u32..100).prop_map(|(rates, gigabytes)| {
            let mut rate = Steps::constant(f64::from(rates[0]) * MB);
            rate.change(1000.0, f64::from(rates[1]) * MB);
            rate.change(2000.0, f64::from(rates[2]) * MB);
            Target { rate, bytes: f64::from(gigabytes) * 1000.0 * MB }
        })
    }

    /// The time of a mover that serves the OSTs of a capped OSS in a given order, each with all
    /// that is left of the cap, in steps of 10 s.
    fn seconds_in_order(server: &Server, order: &[usize]) -> f64 {
        let cap = Curve::integral(&server.cap);
        let curves: Vec<Curve> = server.osts.iter().map(|ost| Curve::integral(&ost.rate)).collect();
        let mut left: Vec<f64> = server.osts.iter().map(|ost| ost.bytes).collect();
        let mut now = 0.0;
        while left.iter().any(|&bytes| bytes > 1.0) {
            let mut room = cap.at(now + 10.0) - cap.at(now);
            for &index in order {
                let could = curves[index].at(now + 10.0) - curves[index].at(now);
                let moved = could.min(room).min(left[index]);
                room -= moved;
                left[index] -= moved;
            }
            now += 10.0;
        }
        now
    }

    proptest! {
        #[test]
        fn no_order_of_service_beats_the_bound_and_some_time_more_is_enough(
            osts in prop::collection::vec(any_ost(), 1..6),
            cap in 1_u32..300,
            turn in 0_usize..6,
        ) {
            let server = server(f64::from(cap), osts);
            let mut order: Vec<usize> = (0..server.osts.len()).collect();
            order.rotate_left(turn % server.osts.len());
            let bound = source_only(vec![server.clone()]).bound().seconds.unwrap();
            prop_assert!(bound <= seconds_in_order(&server, &order) * 1.0001);
        }

        #[test]
        fn without_caps_the_slowest_ost_decides(
            osts in prop::collection::vec(any_ost(), 1..20),
        ) {
            let alone = osts.iter().map(|ost| {
                Curve::integral(&ost.rate).time_of(ost.bytes).unwrap()
            });
            let slowest = alone.fold(0.0, f64::max);
            let bound = source_only(vec![server(UNLIMITED / MB, osts)]).bound();
            prop_assert!((bound.seconds.unwrap() - slowest).abs() <= slowest * 1e-4);
        }

        #[test]
        fn the_subsets_tell_at_least_as_much_as_singles_and_the_whole(
            osts in prop::collection::vec(any_ost(), 2..6),
            cap in 1_u32..300,
        ) {
            let cap = f64::from(cap);
            let exact = source_only(vec![server(cap, osts.clone())]).bound().seconds.unwrap();
            let whole: f64 = osts.iter().map(|ost| ost.bytes).sum();
            prop_assert!(exact >= whole / (cap * MB) * 0.999);
            let alone = source_only(vec![server(UNLIMITED / MB, osts)]).bound().seconds.unwrap();
            prop_assert!(exact >= alone * 0.999);
        }

        #[test]
        fn a_way_is_never_faster_than_its_slowest_part(
            source in prop::collection::vec(any_ost(), 1..5),
            sink in prop::collection::vec(any_ost(), 1..5),
            network in 1_u32..300,
        ) {
            let way = Way {
                source: vec![server(150.0, source)],
                network: Steps::constant(f64::from(network) * MB),
                sink: Some(vec![server(UNLIMITED / MB, sink)]),
            };
            let bound = way.bound();
            let parts = [bound.source_seconds, bound.network_seconds, bound.sink_seconds];
            for part in parts {
                prop_assert!(bound.seconds.unwrap() >= part.unwrap() * 0.999);
            }
        }
    }
}
