//! Programs whose processes read what others have written, and exchange only messages in between.

use super::slow::{Pace, Slow};
use super::{Mpi, Place, on_each_mpi, on_every_mpi, on_those, succeeds, told_by};
use std::collections::BTreeSet;
use std::path::Path;

const MESSAGES: [&str; 8] =
    ["barrier", "ordered", "sync", "atomic", "ring", "ibarrier", "put", "threads"];

/// Hints with which programs read old values: so the tests would notice a message without a fence.
const UNFENCED: &str = "rfs_consistency=mpi";

/// Runs a program with these words and a file. Writes of every second process arrive late. Returns
/// the output of the program.
fn run(mpi: Mpi, place: &Place, processes: u32, hints: &str, words: &[&str]) -> String {
    let slow = Slow::to(&place.server.at, Pace::Slow);
    let mut command = place.run(mpi, processes);
    command.env("LADS_RFS_HINTS", hints).args(words);
    command.arg(format!("rfs:{},{}:visible", place.server.at, slow.at));
    let output = command.output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(told.contains(" old values") || told.contains(" checks, "), "{words:?}: {output:?}");
    told
}

/// Returns the messages after which all processes see what others have written.
fn seen(mpi: Mpi, place: &Place, processes: u32, hints: &str) -> Vec<&'static str> {
    let options = ["-std=gnu11", "-pthread"];
    let program = place.program(mpi, "tests/programs/visible.c", &options);
    let is_seen = |message: &&str| {
        let told = run(mpi, place, processes, hints, &[program.to_str().unwrap(), *message]);
        told.contains(" checks, 0 failures")
    };
    MESSAGES.into_iter().filter(is_seen).collect()
}

#[test]
fn after_any_message_a_process_sees_what_others_have_written() {
    on_every_mpi(|mpi, place| assert_eq!(seen(mpi, place, 2, ""), MESSAGES, "{mpi:?}"));
    // The processes of other MPIs spin if there are more of them than processors.
    on_those(&[Mpi::Ompi], |mpi, place| assert_eq!(seen(mpi, place, 4, ""), MESSAGES));
}

#[test]
fn with_rfs_consistency_mpi_a_process_sees_what_others_have_written_after_a_sync() {
    on_each_mpi(|mpi, place| {
        assert_eq!(seen(mpi, place, 2, UNFENCED), ["sync", "atomic"], "{mpi:?}");
    });
}

#[test]
fn messages_of_fortran_programs_have_fences() {
    on_each_mpi(|mpi, place| {
        if !lads_tried::has(&mpi.command("mpifort")) {
            return;
        }
        for option in ["-DUSE_MPI", "-DUSE_F08", "-DUSE_MPIF"] {
            let program = place.program(mpi, "tests/programs/visible.F90", &[option]);
            let program = program.to_str().unwrap();
            let is_seen =
                |hints| run(mpi, place, 2, hints, &[program]).contains("visible: 0 old values");
            assert!(is_seen("") && !is_seen(UNFENCED), "{mpi:?}, {option}");
        }
    });
}

/// HDF5 as a shared library, and linked statically.
#[test]
fn processes_of_hdf5_see_what_others_have_written_before_a_barrier() {
    on_each_mpi(|mpi, place| {
        let compiler = mpi.command("h5pcc");
        if !lads_tried::has(&compiler) {
            return;
        }
        for linking in ["-shlib", "-noshlib"] {
            let options = [linking, "-std=gnu11"];
            let program = place.compiled(&compiler, "tests/programs/hdf5.c", &options, &[]);
            let words = [program.to_str().unwrap(), "behind"];
            let is_seen = |hints| run(mpi, place, 2, hints, &words).contains(" checks, 0 failures");
            assert!(is_seen("") && !is_seen(UNFENCED), "{mpi:?}, {linking}");
        }
    });
}

#[test]
fn a_profiler_behind_the_shim_sees_each_barrier_once() {
    on_each_mpi(|mpi, place| {
        let profiler = place.program(mpi, "tests/programs/profiler.c", &["-shared", "-fPIC"]);
        let program = place.program(mpi, "tests/programs/visible.c", &["-pthread"]);
        let libraries = format!("{}:{}", Place::shim(mpi).display(), profiler.display());
        let mut command = mpi.run(2, Some(Path::new(&libraries)));
        command.env("LADS_RFS_TOKEN_FILE", place.token()).arg(program);
        let output = succeeds(command.args(["barrier", &place.remote("profiled")]));
        let told = String::from_utf8_lossy(&output.stderr);
        // Each of the 8 rounds has two.
        assert_eq!(told.matches("profiler: 16 barriers\n").count(), 2, "{told}");
    });
}

/// Functions by which another process may hear of a write, in every MPI.
const FENCED: [&str; 42] = [
    "Accumulate",
    "Allgatherv",
    "Allreduce",
    "Alltoallw",
    "Barrier",
    "Bcast",
    "Bsend",
    "Cart_create",
    "Comm_accept",
    "Comm_create_group",
    "Comm_dup",
    "Comm_free",
    "Comm_spawn_multiple",
    "Comm_split",
    "Dist_graph_create_adjacent",
    "Fetch_and_op",
    "Gatherv",
    "Get",
    "Iallreduce",
    "Ibarrier",
    "Imrecv",
    "Ineighbor_alltoallw",
    "Intercomm_merge",
    "Irecv",
    "Isend",
    "Isendrecv",
    "Issend",
    "Mrecv",
    "Neighbor_alltoall",
    "Pready",
    "Put",
    "Recv",
    "Reduce_scatter_block",
    "Rput",
    "Scatter",
    "Send",
    "Sendrecv_replace",
    "Start",
    "Startall",
    "Win_complete",
    "Win_fence",
    "Win_unlock_all",
];

/// Functions that only the calling process notices.
const LOCAL: [&str; 20] = [
    "Abort",
    "Address",
    "Buffer_attach",
    "Comm_get_attr",
    "Comm_rank",
    "Comm_set_name",
    "Comm_size",
    "Get_address",
    "Get_count",
    "Group_incl",
    "Info_set",
    "Iprobe",
    "Op_create",
    "Pack",
    "Probe",
    "Recv_init",
    "Type_commit",
    "Win_get_attr",
    "Wtime",
    "Grequest_complete",
];

/// Returns the functions that the shim of an MPI defines.
fn defined(mpi: Mpi) -> BTreeSet<String> {
    let told = told_by("nm", &["-D", "--defined-only"], Place::shim(mpi));
    told.lines().filter_map(|line| line.split_whitespace().last()).map(str::to_owned).collect()
}

#[test]
fn functions_that_send_messages_have_fences_and_local_ones_do_not() {
    on_every_mpi(|mpi, _| {
        let defined = defined(mpi);
        let has =
            |name: &str| ["MPI_", "PMPI_"].map(|it| defined.contains(&(it.to_owned() + name)));
        let missed = FENCED.iter().filter(|name| has(name) != [true; 2]);
        assert_eq!(missed.collect::<Vec<_>>(), Vec::<&&str>::new(), "{mpi:?}");
        let needless = LOCAL.iter().filter(|name| has(name) != [false; 2]);
        assert_eq!(needless.collect::<Vec<_>>(), Vec::<&&str>::new(), "{mpi:?}");
        let has_large_counts = !matches!(mpi, Mpi::Ompi | Mpi::NewOmpi);
        assert_eq!(has("Alltoallw_c"), [has_large_counts; 2], "{mpi:?}");
    });
}

#[test]
fn shims_are_the_same_in_every_directory() {
    on_each_mpi(|mpi, place| {
        let shim = Place::build_shim(mpi, &place.path("shim"));
        let is_same = std::fs::read(shim).unwrap() == std::fs::read(Place::shim(mpi)).unwrap();
        assert!(is_same, "{mpi:?}");
        assert_eq!(std::fs::read_dir(place.path("shim")).unwrap().count(), 1);
    });
}
