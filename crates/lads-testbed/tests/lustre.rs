//! Tests `lads` on an emulated Lustre: it finds where files lie, reads and writes them there, and
//! places new files where it is told to.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "these are tests")]

use lads_core::lov::{ATTRIBUTE, ATTRIBUTE_ADD, Lov};
use lads_core::units::OstId;
use rustix::fs::{CWD, Mode, OFlags, XattrFlags, fsetxattr, openat, setxattr};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use tempfile::TempDir;

const TESTBED: &str = env!("CARGO_BIN_EXE_lads-testbed");
const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;

/// A mounted emulator; it is unmounted when this is dropped.
struct Mounted {
    server: Child,
    mount: PathBuf,
    _place: TempDir,
}

/// Mounts an emulator; returns `None`, and prints the reason, where nothing can be mounted.
fn mounted(words: &[&str]) -> Option<Mounted> {
    if !lads_tried::is_root() {
        return None;
    }
    if File::open("/dev/fuse").is_err() {
        lads_tried::not_tried("this needs /dev/fuse");
        return None;
    }
    let place = tempfile::tempdir().unwrap();
    let (mount, backing) = (place.path().join("mount"), place.path().join("backing"));
    fs::create_dir(&mount).unwrap();
    fs::create_dir(&backing).unwrap();
    let mut command = Command::new(TESTBED);
    command.arg("pfs").args(words).arg("--backing").args([&backing, &mount]);
    let mut server = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = String::new();
    let output = server.stdout.take().unwrap();
    BufReader::new(output).read_line(&mut ready).unwrap();
    assert_eq!(ready, "ready\n");
    Some(Mounted { server, mount, _place: place })
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let id = rustix::process::Pid::from_child(&self.server);
        let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        let _ = self.server.wait();
    }
}

impl Mounted {
    fn control(&self, command: &str) {
        let path = self.mount.join(".pfs/control");
        let mut control = fs::OpenOptions::new().write(true).open(path).unwrap();
        writeln!(control, "{command}").unwrap();
    }

    /// Returns one figure of each OST, by its name in the statistics.
    fn stats(&self, key: &str) -> Vec<u64> {
        let text = fs::read_to_string(self.mount.join(".pfs/stats")).unwrap();
        let value: Value = serde_json::from_str(&text).unwrap();
        value["osts"].as_array().unwrap().iter().map(|ost| ost[key].as_u64().unwrap()).collect()
    }

    /// Makes a file with this layout, and with data that differs everywhere.
    fn make(&self, name: &str, wish: &Lov, size: u64) -> PathBuf {
        let path = self.mount.join(name);
        let delayed = OFlags::from_bits_retain(0o20_400);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | delayed;
        let file = openat(CWD, &path, flags, Mode::RUSR | Mode::WUSR).unwrap();
        fsetxattr(&file, ATTRIBUTE, &wish.encode(), XattrFlags::empty()).unwrap();
        let mut data = vec![0; usize::try_from(size).unwrap()];
        fastrand::Rng::with_seed(size ^ name.len() as u64).fill(&mut data);
        File::from(file).write_all_at(&data, 0).unwrap();
        path
    }
}

/// Returns the `lads` of this build, and builds it if needed.
fn lads() -> Command {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    let path = PATH.get_or_init(|| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--package", "lads-cli"]);
        let directory = Path::new(TESTBED).parent().unwrap();
        if directory.ends_with("release") {
            cargo.arg("--release");
        }
        assert!(cargo.status().unwrap().success());
        directory.join("lads")
    });
    Command::new(path)
}

fn run(words: &[&str], paths: &[&Path]) -> String {
    let output = lads().args(words).args(paths).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "lads {words:?}: {told}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the output of `lads layout` for each path.
fn layouts_of(paths: &[PathBuf]) -> Vec<Value> {
    let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    let told = run(&["layout", "--json"], &paths);
    told.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns how many of the files have stripes on each of eight OSTs. The counters of the mount
/// would also count a journal that is unlinked but not yet closed.
fn files_by_ost(paths: impl Iterator<Item = PathBuf>) -> [usize; 8] {
    let mut counts = [0; 8];
    for layout in layouts_of(&paths.collect::<Vec<_>>()) {
        for ost in layout["parts"][0]["osts"].as_array().unwrap() {
            counts[usize::try_from(ost.as_u64().unwrap()).unwrap()] += 1;
        }
    }
    counts
}

/// Returns how many bytes of a range each OST holds, according to `lads layout`. It counts by
/// pages, because stripes are whole pages.
fn expected(layout: &Value, range: Range<u64>) -> BTreeMap<u64, u64> {
    let parts = layout["parts"].as_array().unwrap();
    let mut bytes = BTreeMap::new();
    for page in (range.start / PAGE)..range.end.div_ceil(PAGE) {
        let offset = page * PAGE;
        let holds = |part: &&Value| part["end_bytes"].as_u64().is_none_or(|end| offset < end);
        let part = parts.iter().find(holds).unwrap();
        let osts = part["osts"].as_array().unwrap();
        let stripe = offset / part["stripe_size_bytes"].as_u64().unwrap_or(u64::MAX);
        let ost = osts[usize::try_from(stripe % osts.len() as u64).unwrap()].as_u64().unwrap();
        *bytes.entry(ost).or_default() += range.end.min(offset + PAGE) - offset;
    }
    bytes
}

/// Returns a random layout: plain on chosen OSTs, plain anywhere, or with several parts.
fn random_wish(rng: &mut fastrand::Rng, ost_count: u32) -> Lov {
    let stripe_size = 65536 * rng.u32(1..20);
    let mut osts: Vec<OstId> = (0..ost_count).map(OstId).collect();
    rng.shuffle(&mut osts);
    osts.truncate(rng.usize(1..=osts.len()));
    match rng.u32(0..3) {
        0 => Lov::wish_on(stripe_size, &osts),
        1 => Lov::wish(stripe_size, u16::try_from(osts.len()).unwrap()),
        _ => {
            let border = 65536 * rng.u64(1..30);
            let first = (border, Lov::wish(65536, 1));
            Lov::wish_composite([first, (u64::MAX, Lov::wish_on(stripe_size, &osts))])
        }
    }
}

#[test]
fn the_osts_that_are_shown_are_those_that_serve_a_read() {
    let Some(lustre) = mounted(&["--osts", "7", "--osses", "3"]) else { return };
    let mut rng = fastrand::Rng::with_seed(11);
    let files: Vec<(PathBuf, u64)> = (0..200)
        .map(|number| {
            let size = PAGE * rng.u64(1..700);
            let wish = random_wish(&mut rng, 7);
            (lustre.make(&format!("file-{number}"), &wish, size), size)
        })
        .collect();
    let paths: Vec<PathBuf> = files.iter().map(|(path, _)| path.clone()).collect();
    for ((path, size), layout) in files.iter().zip(layouts_of(&paths)) {
        let start = PAGE * rng.u64(0..size / PAGE);
        let range = start..start + PAGE * rng.u64(1..=(size - start) / PAGE);
        lustre.control("reset-stats");
        read_past_cache(path, range.clone());
        let read = lustre.stats("read_bytes");
        let expected = expected(&layout, range.clone());
        for (ost, &bytes) in read.iter().enumerate() {
            let wanted = expected.get(&(ost as u64)).copied().unwrap_or(0);
            assert_eq!(bytes, wanted, "OST {ost}, {range:?} of {layout}");
        }
    }
}

/// Reads a range of whole pages past the cache, so that the emulator sees the read.
fn read_past_cache(path: &Path, range: Range<u64>) {
    let flags = OFlags::RDONLY | OFlags::DIRECT;
    let file = File::from(openat(CWD, path, flags, Mode::empty()).unwrap());
    let length = usize::try_from(range.end - range.start).unwrap();
    let mut memory = vec![0; length + 4096];
    let start = memory.as_ptr().align_offset(4096);
    file.read_exact_at(&mut memory[start..start + length], range.start).unwrap();
}

/// Makes files of many sizes and layouts in a directory; returns their paths and sizes.
fn make_tree(lustre: &Mounted, ost_count: u32, seed: u64) -> Vec<(PathBuf, u64)> {
    fs::create_dir(lustre.mount.join("tree")).unwrap();
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..60)
        .map(|number| {
            let size = if number % 3 == 0 { rng.u64(0..9000) } else { PAGE * rng.u64(1..1500) };
            let wish = random_wish(&mut rng, ost_count);
            (lustre.make(&format!("tree/file-{number}"), &wish, size), size)
        })
        .collect()
}

fn assert_same(files: &[(PathBuf, u64)], target: &Path) {
    for (path, _) in files {
        let copy = target.join("tree").join(path.file_name().unwrap());
        assert!(fs::read(path).unwrap() == fs::read(copy).unwrap(), "{}", path.display());
    }
}

#[test]
fn a_file_grows_by_components_and_takes_nothing_behind_them() {
    let Some(lustre) = mounted(&["--osts", "4", "--osses", "2"]) else { return };
    let on = |ost| Lov::wish_on(65536, &[OstId(ost)]);
    let first = Lov::wish_composite([(MIB, on(2))]);
    let path = lustre.make("open", &first, MIB);
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    let refused = |result: std::io::Result<()>| {
        assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EINVAL));
    };
    refused(file.write_all_at(&[1], MIB));
    refused(file.set_len(MIB + 1));
    let add = |start, end, ost| {
        let addition = Lov::wish_components(start, [(end, on(ost))]).encode();
        fsetxattr(&file, ATTRIBUTE_ADD, &addition, XattrFlags::empty())
    };
    assert!(add(2 * MIB, 3 * MIB, 1).is_err(), "there would be a gap");
    add(MIB, 2 * MIB, 3).unwrap();
    add(2 * MIB, u64::MAX, 0).unwrap();
    lustre.control("reset-stats");
    file.write_all_at(&vec![7; 65536], MIB).unwrap();
    file.write_all_at(&vec![8; 2 * 65536], 5 * MIB).unwrap();
    file.sync_all().unwrap();
    assert_eq!(lustre.stats("written_bytes"), [2 * 65536, 0, 0, 65536]);
    let layout = &layouts_of(&[path])[0];
    let osts: Vec<u64> = layout["parts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["osts"][0].as_u64().unwrap())
        .collect();
    assert_eq!(osts, [2, 3, 0]);
}

#[test]
fn a_tree_moves_between_layouts_of_all_kinds_whatever_the_rule() {
    let Some(source) = mounted(&["--osts", "8", "--osses", "2"]) else { return };
    let words = ["--osts", "5", "--osses", "2", "--stripe-count", "3", "--stripe-size", "192K"];
    let Some(sink) = mounted(&words) else { return };
    let files = make_tree(&source, 8, 5);
    let parts =
        Lov::wish_composite([(MIB, Lov::wish(65536, 1)), (u64::MAX, Lov::wish(131_072, 4))]);
    for rule in ["inherit", "same", "spread", "aware"] {
        let target = sink.mount.join(rule);
        fs::create_dir(&target).unwrap();
        if rule == "inherit" {
            // LADS makes the directory below it, which inherits this layout.
            setxattr(&target, ATTRIBUTE, &parts.encode(), XattrFlags::empty()).unwrap();
        }
        source.control("reset-stats");
        let place = format!("--sink=place={rule}");
        let words = ["cp", "-q", "--source", "io=direct", &place];
        run(&words, &[&source.mount.join("tree"), &target]);
        let read = source.stats("read_bytes");
        assert_same(&files, &target);
        // A file on an OST that seems to have become slow is placed again, once, and read again.
        let times_max = if rule == "aware" { 2 } else { 1 };
        assert_reads(&files, &read, times_max);
    }
    let same = layouts_of(&[sink.mount.join("same/tree/file-1")]);
    assert!(same[0]["parts"].as_array().unwrap().len() == 1, "{}", same[0]);
}

/// Asserts that each OST of the source has served what lies on it, once, or at most this many
/// times. It counts whole pages, because less than a page is not read past the page cache.
fn assert_reads(files: &[(PathBuf, u64)], read: &[u64], times_max: u64) {
    let paths: Vec<PathBuf> = files.iter().map(|(path, _)| path.clone()).collect();
    let mut lies = vec![0; read.len()];
    for ((_, size), layout) in files.iter().zip(layouts_of(&paths)) {
        for (ost, bytes) in expected(&layout, 0..*size) {
            lies[usize::try_from(ost).unwrap()] += bytes;
        }
    }
    let slack = files.len() as u64 * PAGE;
    for (ost, (&read, &lies)) in read.iter().zip(&lies).enumerate() {
        let is_read = read + slack >= lies && read <= lies * times_max + slack;
        assert!(is_read, "OST {ost}: {read}, not {lies}");
    }
}

#[test]
fn no_new_file_comes_to_an_ost_that_is_full_down_or_closed() {
    let Some(sink) = mounted(&["--osts", "8", "--osses", "4"]) else { return };
    let source = tempfile::tempdir().unwrap();
    for number in 0..80 {
        fs::write(source.path().join(format!("file-{number}")), vec![7; number * 1000]).unwrap();
    }
    for (ost, state) in [(1, "full"), (4, "down"), (6, "no-create")] {
        sink.control(&format!("state {ost} {state}"));
    }
    for rule in ["aware", "spread"] {
        let target = sink.mount.join(rule);
        fs::create_dir(&target).unwrap();
        let slash = source.path().join("");
        let told = lads()
            .args(["cp", "-q", &format!("--sink=place={rule}")])
            .args([&slash, &target])
            .output();
        let told = told.unwrap();
        assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
        assert!(told.stderr.is_empty(), "{}", String::from_utf8_lossy(&told.stderr));
        let new = files_by_ost((0..80).map(|number| target.join(format!("file-{number}"))));
        assert_eq!(new.iter().sum::<usize>(), 80, "{rule}: {new:?}");
        for ost in [1, 4, 6] {
            assert_eq!(new[ost], 0, "{rule}: {new:?}");
        }
        let least = if rule == "spread" { 16 } else { 1 };
        assert!([0, 2, 3, 5, 7].iter().all(|&ost| new[ost] >= least), "{rule}: {new:?}");
    }
}

/// Users send this output when their file system is not used as well as it could be.
#[test]
fn a_probe_tells_a_program_what_came_of_each_wish_and_leaves_no_file() {
    let Some(lustre) = mounted(&["--osts", "4", "--osses", "2"]) else { return };
    let probe = || -> Value {
        let told = run(&["probe", "--json"], &[&lustre.mount]);
        serde_json::from_str(&told).unwrap()
    };
    let found = probe();
    assert_eq!((&found["kind"], &found["statfs_type"]), (&"lustre".into(), &0x6573_5546.into()));
    let attribute = found["layout"]["attribute_hex"].as_str().unwrap();
    assert!(attribute.starts_with("d00bd10b"), "{attribute}");
    assert!(found["layout"]["understood"].as_str().unwrap().contains("stripe_size: 1048576"));
    assert_eq!(found["targets"][3]["name"], "OST0003");
    let trials = found["new_files"]["trials"].as_array().unwrap();
    let osts: Vec<&Value> = trials.iter().map(|trial| &trial["osts"]).collect();
    assert_eq!(osts, [&json!([3]), &json!([3, 2])]);
    assert!(trials.iter().all(|trial| trial["outcome"] == "as-wished"), "{trials:?}");

    lustre.control("state 3 full");
    assert_eq!(probe()["new_files"]["trials"][0]["osts"], json!([2]), "not on a full one");
    lustre.control("state all down");
    let found = probe();
    assert_eq!(found["new_files"]["not_tried"], "no-target", "{found}");
    let left = fs::read_dir(&lustre.mount).unwrap().count();
    assert_eq!(left, 0, "the control directory is not listed, and no trial is left");
}

#[test]
fn new_files_come_to_all_osts_alike() {
    let Some(sink) = mounted(&["--osts", "8", "--osses", "2"]) else { return };
    let source = tempfile::tempdir().unwrap();
    for number in 0..400 {
        fs::write(source.path().join(format!("file-{number}")), vec![7; 5000]).unwrap();
    }
    let slash = source.path().join("");
    run(&["cp", "-q", "--sink", "place=aware"], &[&slash, &sink.mount]);
    let counts = files_by_ost((0..400).map(|number| sink.mount.join(format!("file-{number}"))));
    let square = |&count: &usize| f64::from(u32::try_from(count).unwrap()) - 50.0;
    let chi_square: f64 = counts.iter().map(|count| square(count).powi(2) / 50.0).sum();
    // With 7 degrees of freedom, chance alone exceeds this in one of a thousand cases.
    assert!(chi_square < 24.3, "{chi_square}: {counts:?}");
}

#[test]
fn a_file_that_comes_alone_lies_on_all_osts_that_have_nothing_to_do() {
    let Some(sink) = mounted(&["--osts", "4"]) else { return };
    let source = tempfile::tempdir().unwrap();
    let file = source.path().join("file");
    File::create(&file).unwrap().set_len(160 * MIB).unwrap();
    run(&["cp", "-q"], &[&file, &sink.mount]);
    assert_eq!(files_by_ost([sink.mount.join("file")].into_iter())[..4], [1, 1, 1, 1]);
}

/// Moves 24 files to eight OSTs, the third of which is very slow, and checks that each file arrives
/// whole. Returns the number of bytes written to the slow OST, and how many files begin there.
fn moved_beside_a_slow_ost(options: &[&str]) -> Option<(u64, usize)> {
    // On a busy machine another OST may look slow for a moment. Of four OSTs, two do not count as
    // congested (the machine would be the cause); of eight they do.
    let sink = mounted(&["--osts", "8", "--rate", "40000000"])?;
    sink.control("rate 2 250000");
    let source = tempfile::tempdir().unwrap();
    let mut files = Vec::new();
    for number in 0..24 {
        let mut data = vec![0; 2 << 20];
        fastrand::Rng::with_seed(number).fill(&mut data);
        let path = source.path().join(format!("file-{number}"));
        fs::write(&path, data).unwrap();
        files.push((path, 2 * MIB));
    }
    let words = [&["cp", "-q", "--lab", "block-size=256K"], options].concat();
    run(&words, &[&source.path().join(""), &sink.mount]);
    for (path, _) in &files {
        let copy = sink.mount.join(path.file_name().unwrap());
        assert!(fs::read(path).unwrap() == fs::read(copy).unwrap(), "{}", path.display());
    }
    let there = files_by_ost((0..24).map(|number| sink.mount.join(format!("file-{number}"))));
    Some((sink.stats("written_bytes")[2], there[2]))
}

#[test]
fn no_file_is_left_to_an_ost_that_turned_out_to_be_slow() {
    let Some(moved) = moved_beside_a_slow_ost(&["--lab", "place-extents=0"]) else { return };
    let (written_bytes, file_count) = moved;
    // Before the OST was asked for anything, nobody knew that it is slow, and some files were
    // placed there.
    assert!(written_bytes > 0);
    assert_eq!(file_count, 0, "{written_bytes} bytes were written there");
}

#[test]
fn an_ost_that_turned_out_to_be_slow_gets_little_of_files_that_grow() {
    let Some((written_bytes, file_count)) = moved_beside_a_slow_ost(&[]) else { return };
    // An even share would be 6 MiB. The first extents of three files, 1 MiB each, may come there
    // before anybody knows that the OST is slow, and cannot be taken back once they are begun. On a
    // busy machine, one more may.
    assert_eq!(file_count, 3, "files begin on all OSTs alike");
    assert!((1..=4 * MIB).contains(&written_bytes), "{written_bytes} bytes");
}

#[test]
fn files_that_are_all_on_the_same_osts_come_to_all_osts_of_the_sink() {
    let Some(source) = mounted(&["--osts", "4"]) else { return };
    let Some(sink) = mounted(&["--osts", "8", "--stripe-count", "2"]) else { return };
    fs::create_dir(source.mount.join("tree")).unwrap();
    for number in 0..64 {
        let wish = Lov::wish_on(65536, &[OstId(0), OstId(1)]);
        source.make(&format!("tree/file-{number}"), &wish, 70_000);
    }
    for rule in ["same", "inherit", "aware", "spread"] {
        let target = sink.mount.join(rule);
        fs::create_dir(&target).unwrap();
        run(&["cp", "-q", &format!("--sink=place={rule}")], &[&source.mount.join("tree"), &target]);
        let counts = files_by_ost((0..64).map(|number| target.join(format!("tree/file-{number}"))));
        assert!(counts.iter().all(|&count| (1..=24).contains(&count)), "{rule}: {counts:?}");
    }
}
