//! Tests on a real CephFS: LADS sees files where the cluster has them, and moves them in and out
//! whole.
//!
//! `LADS_TEST_CEPH` names the mount, and `CEPH_CONF` tells how to reach the cluster. `cargo xtask
//! ceph up` makes a cluster and prints both; `cargo xtask ci` does so by itself.

use crate::world::{LADS, Rng, World, assert_identical, has, lads, not_tried, run};
use rustix::fs::{XattrFlags, getxattr, setxattr};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tempfile::TempDir;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Makes a directory on CephFS; returns `None`, and prints a message, where there is none.
fn on_ceph() -> Option<TempDir> {
    match std::env::var_os("LADS_TEST_CEPH") {
        Some(mount) => Some(TempDir::new_in(mount).unwrap()),
        None => {
            not_tried("LADS_TEST_CEPH names no CephFS: `cargo xtask ceph up` makes one");
            None
        }
    }
}

fn set_layout(path: &Path, attribute: &str, unit: u64, count: u64, object_size: u64, pool: &str) {
    let layout =
        format!("stripe_unit={unit} stripe_count={count} object_size={object_size} pool={pool}");
    setxattr(path, attribute, layout.as_bytes(), XattrFlags::empty()).unwrap();
}

fn layout_of(path: &Path) -> String {
    let mut value = vec![0; 1000];
    let length = getxattr(path, "ceph.file.layout", value.as_mut_slice()).unwrap();
    value.truncate(length);
    String::from_utf8(value).unwrap()
}

/// Returns the JSON output of `lads`, line by line.
fn told(command: &str, paths: &[PathBuf]) -> Vec<Value> {
    let output = Command::new(LADS).args([command, "--json"]).args(paths).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Asks the monitor the question of `ceph osd map` for each line with a pool and an object. The
/// command itself would take a tenth of a second for each.
const OSD_MAP: &str = "
import json, rados, sys
with rados.Rados(conffile='') as cluster:
    for line in sys.stdin:
        pool, name = line.split()
        question = json.dumps(dict(prefix='osd map', pool=pool, object=name, format='json'))
        print(json.loads(cluster.mon_command(question, b'')[1])['acting_primary'])
";

/// Returns the OSD on which the cluster has each object, by pool and name.
fn osds_by_the_cluster(objects: &str) -> Vec<String> {
    let mut python = Command::new("/usr/bin/python3");
    python.args(["-c", OSD_MAP]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut python = python.spawn().unwrap();
    let mut stdin = python.stdin.take().unwrap();
    let objects = objects.to_owned();
    let asking = std::thread::spawn(move || stdin.write_all(objects.as_bytes()).unwrap());
    let output = python.wait_with_output().unwrap();
    asking.join().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|osd| format!("osd.{osd}")).collect()
}

#[test]
fn layout_agrees_with_the_cluster_on_every_object() {
    let Some(place) = on_ceph() else { return };
    let mut rng = Rng::new(7);
    let mut below = |end: u64| rng.next() % end;
    let mut questions = String::new();
    let mut files = Vec::new();
    for number in 0..20 {
        let path = place.path().join(format!("file-{number}"));
        let file = File::create(&path).unwrap();
        let (unit, count) = (64 * KIB * (1 + below(8)), 1 + below(5));
        let (object_size, pool) = (unit * (1 + below(4)), ["data", "more"][number % 2]);
        set_layout(&path, "ceph.file.layout", unit, count, object_size, pool);
        let objects = 1 + below(40);
        // Just long enough to need this number of objects.
        let (sets, rest) = ((objects - 1) / count, (objects - 1) % count);
        file.set_len(sets * count * object_size + rest * unit + 1 + below(unit)).unwrap();
        let inode = path.metadata().unwrap().ino();
        for object in 0..objects {
            questions += &format!("{pool} {inode:x}.{object:08x}\n");
        }
        files.push((path, count, objects));
    }
    let osts = told("osts", &[place.path().to_owned()]);
    let paths: Vec<PathBuf> = files.iter().map(|(path, ..)| path.clone()).collect();
    let mut osds = osds_by_the_cluster(&questions).into_iter();
    for ((path, count, objects), layout) in files.iter().zip(told("layout", &paths)) {
        for object in 0..*objects {
            let at = |number: u64| usize::try_from(number).unwrap();
            let ost = &layout["parts"][at(object / count)]["osts"][at(object % count)];
            let osd = osds.next().unwrap();
            let name = &osts[at(ost.as_u64().unwrap())]["name"];
            assert_eq!(*name, osd, "object {object} of {}", path.display());
        }
        let parts = layout["parts"].as_array().unwrap().len();
        assert_eq!(parts as u64, objects.div_ceil(*count), "no more parts than object sets");
    }
}

/// Makes files whose lengths are close to those of stripes and objects, and links, holes, modes and
/// attributes.
fn grow(root: &Path) {
    let mut rng = Rng::new(3);
    for (number, size) in
        [0, 1, 4 * KIB, 64 * KIB - 1, 64 * KIB, MIB, MIB + 1, 4 * MIB, 9 * MIB + 77, 20 * MIB]
            .into_iter()
            .enumerate()
    {
        let directory = root.join(format!("directory {}", number % 3));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join(format!("file-{number}"));
        fs::write(&path, rng.bytes(usize::try_from(size).unwrap())).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode([0o644, 0o600, 0o755][number % 3]))
            .unwrap();
        setxattr(&path, "user.number", &[7], XattrFlags::empty()).unwrap();
        File::options().write(true).open(&path).unwrap().set_modified(moment(number)).unwrap();
    }
    let sparse = File::create(root.join("sparse")).unwrap();
    sparse.write_all_at(&rng.bytes(100_000), 5 * MIB).unwrap();
    sparse.set_len(12 * MIB).unwrap();
    symlink("directory 0/file-0", root.join("link")).unwrap();
    fs::hard_link(root.join("sparse"), root.join("same")).unwrap();
    let odd = root.join(std::ffi::OsStr::from_bytes(b"caf\xc3\xa9\nnew"));
    fs::write(odd, "odd").unwrap();
}

fn moment(number: usize) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(1_600_000_000_123 + 12_345 * number as u64)
}

#[test]
fn a_tree_moves_to_ceph_between_its_layouts_and_back() {
    let Some(place) = on_ceph() else { return };
    if !has("rsync") {
        return;
    }
    let (world, at) = (World::on_disk(), |name: &str| place.path().join(name));
    grow(&world.source());
    for (name, unit, count, object_size, pool) in
        [("wide", 64 * KIB, 3, MIB, "data"), ("plain", 4 * MIB, 1, 4 * MIB, "more")]
    {
        fs::create_dir(at(name)).unwrap();
        set_layout(&at(name), "ceph.dir.layout", unit, count, object_size, pool);
    }
    let ways =
        [(world.source(), at("wide")), (at("wide"), at("plain")), (at("plain"), world.target())];
    for (from, to) in ways {
        let from = format!("{}/", from.display());
        run(lads(&["-aHX", from.as_str(), to.to_str().unwrap()])).expect(0);
        assert_identical(&world.source(), &to);
    }
    let layout = layout_of(&at("plain").join("directory 0/file-9"));
    assert!(layout.contains("stripe_count=1 object_size=4194304 pool=more"), "{layout}");
}

#[test]
fn a_new_file_on_ceph_is_cut_as_at_the_source_if_that_is_wanted() {
    let Some(place) = on_ceph() else { return };
    let source = place.path().join("source");
    let target = place.path().join("target");
    let file = File::create(&source).unwrap();
    set_layout(&source, "ceph.file.layout", 128 * KIB, 3, MIB, "data");
    file.write_all_at(&Rng::new(1).bytes(3 << 20), 0).unwrap();
    let (from, to) = (source.to_str().unwrap(), target.to_str().unwrap());
    run(lads(&["--sink", "place=same", from, to])).expect(0);
    assert_eq!(fs::read(&target).unwrap(), fs::read(&source).unwrap());
    let layout = layout_of(&target);
    assert!(
        layout.starts_with("stripe_unit=131072 stripe_count=3 object_size=4194304"),
        "{layout}"
    );
}
