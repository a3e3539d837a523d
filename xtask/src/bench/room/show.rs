//! Shows in a minute what the machine room can do: LADS between two emulated file systems, each
//! with a slow OST, and the time that its rivals need for the same.

use super::contest::{Arena, Congestion, Contestant, DATA};
use super::data::DataSet;
use super::mount::{Bytes, Pair, Storage, bound_to_us};
use super::route::Route;
use super::{mounts_need, peers};
use crate::scratch::Scratch;
use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::Child;

const STORAGE: Storage = Storage {
    osts: 8,
    osses: 2,
    ost_bytes_per_second: Some(20_000_000),
    oss_bytes_per_second: None,
    latency_micros: 0,
    metadata_latency_micros: 0,
    layout_latency_micros: 0,
    stripe_count: 1,
    one_stripe_until: None,
    is_written_back: true,
    hides_layouts: false,
    bytes: Bytes::Kept,
};

const FILES: DataSet = DataSet::Uniform { files: 80, bytes_each: 4 << 20 };

/// What the show needs but is missing here.
pub(crate) fn missing() -> Result<Vec<String>> {
    mounts_need().space(Path::new("/dev/shm"), FILES.bytes() * 3).missing()
}

/// Runs the show.
pub(crate) fn run(lads: &Path, testbed: &Path) -> Result<()> {
    let notes = Scratch::new(&std::env::temp_dir(), "lads-show")?;
    let pair = Pair::start(testbed, STORAGE, STORAGE, &notes.join("mounts"))?;
    let extent = FILES.make(&pair.source.path().join(DATA))?;
    let route = Route::loopback();
    let congestion = Congestion {
        source: Some("rate 2 8000000".to_owned()),
        sink: Some("rate 5 4000000".to_owned()),
        ..Congestion::default()
    };
    println!(
        "{} files, {} MiB, move from one file system (the source) to another (the sink). Each has \
         8 storage targets (OSTs), each with a part of the files and 20 MB/s, except two slow \
         ones: OST 2 of the source has 8 MB/s, OST 5 of the sink 4 MB/s. Below, a bar for each OST \
         shows how busy it is: the others should not wait for the slow ones.\n",
        extent.files,
        extent.bytes >> 20
    );
    let arena = Arena {
        testbed,
        pair: &pair,
        route: &route,
        congestion: &congestion,
        notes: &notes,
        extent,
        is_placed: false,
    };
    println!("LADS:");
    let row = arena.run_once(&watched(peers::lads(lads, "LADS", None, &[]), testbed), 0)?;
    let work = peers::Work { ost_count: STORAGE.osts, file_count: extent.files };
    let (rivals, missing) = peers::all(&route, &notes, &[], work);
    let rivals = rivals.into_iter();
    let rivals: Vec<String> = rivals
        .filter(|rival| ["8 × cp", peers::RSYNC].contains(&rival.line.as_str()))
        .map(|rival| {
            println!("\n{}, for comparison:", rival.line);
            in_words(&watched(rival, testbed), &arena)
        })
        .collect();
    println!("\n{}", sentence(row.figures(), &rivals));
    missing.iter().for_each(|missing| println!("({missing})"));
    Ok(())
}

/// The same contestant, with a live picture while it runs.
fn watched(contestant: Contestant, testbed: &Path) -> Contestant {
    let Contestant { line, at, run } = contestant;
    let testbed = testbed.to_owned();
    let run = move |route: &Route, source: &Path, sink: &Path| {
        let _picture = Picture::start(&testbed, source, sink)?;
        run(route, source, sink)
    };
    Contestant { line, at, run: Box::new(run) }
}

fn in_words(rival: &Contestant, arena: &Arena<'_>) -> String {
    match arena.run_once(rival, 0) {
        Ok(row) => format!("{} took {:.1} s", rival.line, row.figures()[0]),
        Err(error) => format!("{} failed ({error})", rival.line),
    }
}

/// The result as text, for a reader who does not know LADS. The share is that of the fluid bound.
fn sentence([seconds, rate, share]: [f64; 3], rivals: &[String]) -> String {
    format!(
        "LADS took {seconds:.1} s ({:.0} MB/s), and every byte is the same. With these two slow \
         OSTs, no program can take less than {:.1} s: LADS reached {:.0} % of the best possible \
         speed. On the same storage: {}.",
        rate / 1e6,
        seconds * share,
        share * 100.0,
        rivals.join(", ")
    )
}

/// The live picture. It ends when this is dropped.
struct Picture(Child);

impl Picture {
    /// Shows the file systems that hold these directories.
    fn start(testbed: &Path, source: &Path, sink: &Path) -> Result<Self> {
        let mounts = [source, sink].map(|directory| directory.parent().unwrap_or(directory));
        let child = bound_to_us(testbed)
            .arg("watch")
            .args(mounts)
            .spawn()
            .context("cannot start the live picture")?;
        Ok(Self(child))
    }
}

impl Drop for Picture {
    fn drop(&mut self) {
        // An error means that the process has already ended.
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::sentence;

    #[test]
    fn a_stranger_is_told_what_was_possible_in_seconds() {
        let rivals = ["8 × cp took 11.2 s".to_owned(), "rsync took 40.0 s".to_owned()];
        assert_eq!(
            sentence([5.0, 67.1e6, 0.96], &rivals),
            "LADS took 5.0 s (67 MB/s), and every byte is the same. With these two slow \
             OSTs, no program can take less than 4.8 s: LADS reached 96 % of the best possible \
             speed. On the same storage: 8 × cp took 11.2 s, rsync took 40.0 s."
        );
    }
}
