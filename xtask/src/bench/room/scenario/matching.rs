//! File systems that do not tell where files lie: how close LADS comes to what is possible there.

use super::*;

/// Files of a bed, and the number of stripes of each.
type Files = (&'static str, DataSet, u32);

const LITTLE_ONES: Files = ("640 of 1 MiB", DataSet::Uniform { files: 640, bytes_each: MIB }, 1);
const MIDDLE_ONES: Files = ("80 of 8 MiB", DataSet::Uniform { files: 80, bytes_each: 8 * MIB }, 1);
const STRIPED: Files = ("one of 2 GiB", DataSet::Uniform { files: 1, bytes_each: 2048 * MIB }, 8);

/// One OST in eight at a fifth of its rate, and then another.
const SLOW_OF_8: &str = "congest moving COUNT=1 DWELL=0.7 RATE=5000000 SEED={seed}";
const SLOW_OF_32: &str = "congest moving COUNT=4 DWELL=1.5 RATE=2500000 SEED={seed}";

pub(super) fn matching() -> Scenario {
    let eight = Storage { hides_layouts: true, ..ndm_storage() };
    let (many, ..) = many_osts(0, "");
    let many = Storage { hides_layouts: true, ..many };
    let all = [LITTLE_ONES, MIDDLE_ONES, STRIPED];
    let of = |name: &'static str, storage, slow, files| {
        let ends = [[false, false], [true, false], [false, true], [true, true]];
        ends.map(|ends| hidden(name, storage, files, slow, ends))
    };
    let stages = all
        .into_iter()
        .flat_map(|files| of("8", eight, SLOW_OF_8, files))
        .chain(all.into_iter().flat_map(|files| of("32", many, SLOW_OF_32, files)))
        .collect();
    Scenario {
        name: "matching",
        title: "file systems that hide their OSTs",
        about: "Beyond the papers: GPFS, NFS, and most that are mounted with FUSE hide their OSTs. \
                Here: 8 hidden OSTs of 25 MB/s or 32 of 12.5 MB/s at each end; one in eight at a \
                fifth of its rate, a different one each time, at the source, at the sink or at \
                both. The file system places the files of the sink, and the bound has to write \
                them there.",
        stages,
        views: vec![
            view("8 hidden OSTs, 640 of 1 MiB", &[0, 1, 2, 3], None, Quantity::Share),
            view("8 hidden OSTs, 80 of 8 MiB", &[4, 5, 6, 7], None, Quantity::Share),
            view("8 hidden OSTs, one of 2 GiB", &[8, 9, 10, 11], None, Quantity::Share),
            view("32 hidden OSTs, 640 of 1 MiB", &[12, 13, 14, 15], None, Quantity::Share),
            view("32 hidden OSTs, 80 of 8 MiB", &[16, 17, 18, 19], None, Quantity::Share),
            view("32 hidden OSTs, one of 2 GiB", &[20, 21, 22, 23], None, Quantity::Share),
        ],
    }
}

fn hidden(
    osts: &str,
    storage: Storage,
    (files, data, stripe_count): Files,
    slow: &str,
    [source, sink]: [bool; 2],
) -> Stage {
    let place = match (source, sink) {
        (false, false) => "clear",
        (true, false) => "source",
        (false, true) => "sink",
        (true, true) => "both",
    };
    let there = |is_there: bool| is_there.then(|| slow.to_owned());
    Stage {
        congestion: congested_at(there(source), there(sink)),
        is_placed: true,
        rivals: Rivals::Parallel,
        ..stage(
            format!("{osts} hidden, {files}, {place}"),
            Storage { stripe_count, ..storage },
            data,
            vec![entry(BY_ITSELF, None, &[])],
        )
    }
}
