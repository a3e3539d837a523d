//! What a long round trip costs a whole transfer, from the start of the command to its end.

use super::*;

const UNTUNED: LineKind = LineKind { options: &["--untuned"], ..LineKind::USUAL };
const LOSSY: LineKind =
    LineKind { rate: "1Gbit", options: &["--loss", "2e-4", "--congestion-control", "reno"] };

pub(super) fn distance() -> Scenario {
    let long = |distance: Distance, files: &str, storage, data| Stage {
        distance: Some(distance),
        rivals: Rivals::Parallel,
        ..stage(
            format!("{files}, {}", distance.said()),
            storage,
            data,
            vec![entry(BY_ITSELF, None, &[])],
        )
    };
    let one = |distance, mib: u64| {
        let data = DataSet::Uniform { files: 1, bytes_each: mib * MIB };
        long(distance, &format!("one of {mib} MiB"), volume(), data)
    };
    let fast = Storage { ost_bytes_per_second: None, ..volume() }.without_latency();
    let many = |distance, count: u64, said: &str, bytes_each: u64| {
        let data = DataSet::Uniform { files: count, bytes_each };
        long(distance, said, Storage { stripe_count: 1, ..fast }, data)
    };
    let on = |line: LineKind, said: &str| Stage {
        name: format!("one of 768 MiB, 128 ms, {said}"),
        line,
        ..one(Distance::Seattle, 768)
    };
    Scenario {
        name: "distance",
        title: "whole transfers over long lines",
        about: "XDD, figures 8 and 29 to 31, including the time before the first byte and after \
                the last. Here: one file in 8 stripes over 8 OSTs of 50 MB/s at each end, and many \
                files between OSTs without limits, over the loops of the XDD paper. All messages \
                of LADS cross the line, on an ssh connection that is already open. Two lines are \
                typical: one between hosts without tuned TCP, and one that loses packets, with the \
                oldest congestion control.",
        stages: vec![
            one(Distance::Ornl, 2048),
            one(Distance::Chicago, 768),
            one(Distance::Seattle, 768),
            one(Distance::Sunnyvale, 768),
            many(Distance::Seattle, 1000, "1,000 of 1 MiB", MIB),
            many(Distance::Seattle, 20_000, "20,000 of 4 KiB", 4 << 10),
            on(UNTUNED, "TCP not tuned"),
            on(LOSSY, "1 Gbit/s, Reno, one in 5,000 lost"),
        ],
        views: vec![
            view("One file", &[0, 1, 2, 3], None, Quantity::Share),
            view("Many files over 128 ms", &[4, 5], None, Quantity::Seconds),
            view("Hosts without tuning, lossy line", &[6, 7], None, Quantity::Seconds),
        ],
    }
}
