//! Scenarios with enough threads, and with slow OSTs or servers: how close LADS comes to what is
//! possible.

use super::*;

pub(super) fn congestion() -> Scenario {
    // No mover in this scenario goes through the page cache.
    let through =
        |(storage, files, slow): Bed| (Storage { is_written_back: false, ..storage }, files, slow);
    let eight = through((ndm_storage(), 160, "COUNT=1 DWELL=0.7 RATE=5000000"));
    let many = through(many_osts(320, "COUNT=4 DWELL=1.5 RATE=2500000"));
    let run = lads_beside;
    let by_layout = |mut stage: Stage| {
        stage.lads.push(entry("LADS, --lab schedule=layout", None, &["--lab", "schedule=layout"]));
        stage
    };
    let beside_plain = |mut stage: Stage| {
        stage.lads.push(entry("LADS, --lab place-extents=0", None, &["--lab", "place-extents=0"]));
        stage
    };
    // A metadata server that takes 5 ms for a call that sets a layout or adds to it, or for every
    // operation on names.
    let (storage, files, slow) = eight;
    let late = (Storage { layout_latency_micros: 5_000, ..storage }, files, slow);
    let busy = (Storage { metadata_latency_micros: 5_000, ..storage }, files, slow);
    let placed = |name, bed| Stage {
        is_placed: true,
        lads: vec![entry("LADS, --sink place=spread", None, &["--sink", "place=spread"])],
        ..run(name, bed, [false, true])
    };
    let in_four = |name, (storage, files, slow): Bed, ends| {
        lads_beside(name, (Storage { stripe_count: 4, ..storage }, files, slow), ends)
    };
    Scenario {
        name: "congestion",
        title: "one OST in eight slow, in turn",
        about: "Beyond the papers: enough threads, and congestion that moves every 0.7 or 1.5 s, \
                at the source, at the sink and at both, differently in each round. Here: 8 OSTs of \
                25 MB/s and 160 files of 8 MiB, 32 OSTs of 12.5 MB/s and 320 files; at the source \
                in one stripe or in four. Files of the sink grow over its OSTs extent by extent, \
                but with --lab place-extents=0. Where files are placed in turn at the sink, the \
                bound has to write them there, too.",
        stages: vec![
            beside_plain(run("8 OSTs, clear", eight, [false, false])),
            beside_plain(run("8 OSTs, source", eight, [true, false])),
            by_layout(beside_plain(run("8 OSTs, sink", eight, [false, true]))),
            beside_plain(run("8 OSTs, both", eight, [true, true])),
            beside_plain(run("32 OSTs, clear", many, [false, false])),
            beside_plain(run("32 OSTs, source", many, [true, false])),
            by_layout(beside_plain(run("32 OSTs, sink", many, [false, true]))),
            beside_plain(run("32 OSTs, both", many, [true, true])),
            placed("8 OSTs, sink, placed in turn", eight),
            placed("32 OSTs, sink, placed in turn", many),
            in_four("8 OSTs, stripe count 4, source", eight, [true, false]),
            beside_plain(in_four("8 OSTs, stripe count 4, sink", eight, [false, true])),
            beside_plain(in_four("8 OSTs, stripe count 4, both", eight, [true, true])),
            beside_plain(run("8 OSTs, 5 ms for each layout call, sink", late, [false, true])),
            beside_plain(run("8 OSTs, 5 ms for each metadata call, sink", busy, [false, true])),
        ],
        views: vec![
            view("8 OSTs", &[0, 1, 2, 3], None, Quantity::Share),
            view("32 OSTs", &[4, 5, 6, 7], None, Quantity::Share),
            view("Placed in turn", &[8, 9], None, Quantity::Share),
            view("Stripe count 4, 8 OSTs", &[10, 11, 12], None, Quantity::Share),
            view("A busy metadata server, 8 OSTs", &[2, 13, 14], None, Quantity::Share),
        ],
    }
}

pub(super) fn servers() -> Scenario {
    let storage = Storage {
        osses: 4,
        ost_bytes_per_second: Some(25_000_000),
        is_written_back: false,
        ..ndm_storage()
    };
    // Two OSTs of a server can do 50 MB/s together.
    let half = Storage { oss_bytes_per_second: Some(25_000_000), ..storage };
    let slow = |is_there: bool| is_there.then(|| "oss-rate 1 10000000".to_owned());
    let run = |name, storage, [source, sink]: [bool; 2]| Stage {
        congestion: congested_at(slow(source), slow(sink)),
        rivals: Rivals::No,
        ..stage(
            name,
            storage,
            DataSet::Uniform { files: 80, bytes_each: 8 * MIB },
            vec![entry(BY_ITSELF, None, &[])],
        )
    };
    Scenario {
        name: "servers",
        title: "OSTs that share a server of half their rate",
        about: "LADS (FAST '15), section 2.3: OSTs of one server share its rate. Here: 8 OSTs of \
                25 MB/s, two on each of four servers with 25 MB/s, or with the rate of their OSTs; \
                one server with 10 MB/s, at the source or at the sink. 80 files of 8 MiB.",
        stages: vec![
            run("half, clear", half, [false, false]),
            run("half, one slow at the source", half, [true, false]),
            run("half, one slow at the sink", half, [false, true]),
            run("one slow at the source", storage, [true, false]),
            run("one slow at the sink", storage, [false, true]),
        ],
        views: vec![
            view("Servers do half", &[0, 1, 2], None, Quantity::Share),
            view("Only one server is the limit", &[3, 4], None, Quantity::Share),
        ],
    }
}

/// LADS with default options, while OSTs of the source, of the sink, or of both are slow.
fn lads_beside(
    name: &'static str,
    (storage, files, slow): Bed,
    [source, sink]: [bool; 2],
) -> Stage {
    let there = |is_there: bool| is_there.then(|| format!("congest moving {slow} SEED={{seed}}"));
    Stage {
        congestion: congested_at(there(source), there(sink)),
        rivals: Rivals::No,
        ..stage(
            name,
            storage,
            DataSet::Uniform { files, bytes_each: 8 * MIB },
            vec![entry(BY_ITSELF, None, &[])],
        )
    }
}
