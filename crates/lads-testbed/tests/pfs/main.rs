//! Tests an emulated file system as other programs see it: mounted, and used through the kernel.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "these are tests")]

use anyhow::Result;
use lads_core::lov::{self, Lov, Place};
use lads_core::units::OstId;
use lads_testbed::daemon::{Daemon, obstacle};
use rustix::fs::{FallocateFlags, Mode, OFlags, RenameFlags, SeekFrom, XattrFlags};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

mod differential;

const MIB: usize = 1 << 20;

/// Runs a test on a mount with these settings; prints a message if mounting is not possible.
fn on_a_mount(settings: &[&str], test: impl FnOnce(&Daemon) -> Result<()>) {
    if let Some(obstacle) = obstacle() {
        lads_tried::not_tried(obstacle);
        return;
    }
    let program = Path::new(env!("CARGO_BIN_EXE_lads-testbed"));
    let daemon = Daemon::start(program, settings).unwrap();
    test(&daemon).unwrap();
    daemon.stop().unwrap();
}

/// Makes a file that gets its layout later.
fn create_delayed(path: &Path) -> Result<File> {
    let delay = OFlags::NOCTTY | OFlags::from_bits_retain(libc::O_ASYNC.unsigned_abs());
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | delay;
    Ok(rustix::fs::open(path, flags, Mode::from_raw_mode(0o644))?.into())
}

fn wish(file: &File, wish: &Lov) -> rustix::io::Result<()> {
    rustix::fs::fsetxattr(file, lov::ATTRIBUTE, &wish.encode(), XattrFlags::empty())
}

fn layout(path: &Path) -> rustix::io::Result<Lov> {
    let mut value = vec![0; lov::BYTES_MAX];
    let length = rustix::fs::getxattr(path, lov::ATTRIBUTE, &mut value[..])?;
    Ok(Lov::parse(&value[..length]).unwrap())
}

fn set_default(directory: &Path, wish: &Lov) -> rustix::io::Result<()> {
    rustix::fs::setxattr(directory, lov::ATTRIBUTE, &wish.encode(), XattrFlags::empty())
}

/// Returns the OST of each of the first megabytes of a file; `None` where there is none.
fn places(path: &Path, count: u64) -> Vec<Option<u32>> {
    let lov = layout(path).unwrap();
    let place = |index| match lov.usual_replica_at(index << 20)?.place {
        Place::Ost(ost) => Some(ost.0),
        _ => None,
    };
    (0..count).map(place).collect()
}

/// Returns a field of the statistics, for each OST.
fn of_osts(daemon: &Daemon, field: &str) -> Result<Vec<u64>> {
    let stats = daemon.stats()?;
    let osts = stats["osts"].as_array().expect("a list");
    Ok(osts.iter().map(|ost| ost[field].as_u64().expect("a number")).collect())
}

/// Waits until nothing lies on any OST. The kernel may report late that a file was closed.
fn become_empty(daemon: &Daemon) -> Result<()> {
    let until = Instant::now() + Duration::from_secs(20);
    while of_osts(daemon, "files")?.iter().any(|&count| count > 0) {
        assert!(Instant::now() < until, "files are left: {:?}", of_osts(daemon, "files"));
        std::thread::yield_now();
    }
    Ok(())
}

fn errno<T>(result: std::io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

#[test]
fn counters_show_the_osts_that_the_layout_says() {
    on_a_mount(&["--osts", "8"], |daemon| {
        let path = daemon.path("f");
        let file = create_delayed(&path)?;
        assert_eq!(layout(&path), Err(Errno::NODATA));
        wish(&file, &Lov::wish_on(1 << 20, &[OstId(5), OstId(0), OstId(3)]))?;
        assert_eq!(places(&path, 4), [Some(5), Some(0), Some(3), Some(5)]);
        file.write_all_at(&vec![1; 4 * MIB + 1], 0)?;
        file.sync_all()?;
        let (mib, used) = (MIB as u64, of_osts(daemon, "used_bytes")?);
        assert_eq!(of_osts(daemon, "written_bytes")?, [mib + 1, 0, 0, mib, 0, 2 * mib, 0, 0]);
        assert_eq!(used, [mib + 4096, 0, 0, mib, 0, 2 * mib, 0, 0]);
        let direct = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&path)?;
        let mut buffer = lads_sys::Arena::new(1, MIB)?.take();
        direct.read_exact_at(&mut buffer, mib)?;
        assert_eq!(of_osts(daemon, "read_bytes")?, [mib, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(of_osts(daemon, "files")?, [1, 0, 0, 1, 0, 1, 0, 0]);
        Ok(())
    });
}

#[test]
fn an_fsync_takes_as_long_as_the_slowest_ost_of_the_file_needs_to_answer() {
    on_a_mount(&["--osts", "3"], |daemon| {
        let file = create_delayed(&daemon.path("f"))?;
        wish(&file, &Lov::wish_on(1 << 20, &[OstId(2), OstId(0)]))?;
        file.write_all_at(b"x", 0)?;
        file.sync_all()?;
        let took = |ost: u32, latency: Duration| -> Result<Duration> {
            daemon.order(&format!("latency {ost} {}", latency.as_micros()))?;
            let start = Instant::now();
            file.sync_all()?;
            daemon.order("latency all 0")?;
            Ok(start.elapsed())
        };
        let latency = Duration::from_millis(300);
        assert!(took(0, latency)? >= latency, "one of its OSTs, of which nothing is written");
        assert!(took(2, latency)? >= latency, "another");
        // So long that a busy machine cannot be the cause.
        let hour = Duration::from_secs(3600);
        assert!(took(1, hour)? < hour, "none of its OSTs");
        Ok(())
    });
}

#[test]
fn new_files_go_round_the_osts_and_follow_their_directory() {
    on_a_mount(&["--osts", "4"], |daemon| {
        let names = ["a", "b", "c"].map(|name| daemon.path(name));
        for name in &names {
            fs::write(name, "x")?;
        }
        assert_eq!(names.each_ref().map(|name| places(name, 1)[0]), [Some(0), Some(1), Some(2)]);
        let wide = daemon.path("wide");
        fs::create_dir(&wide)?;
        set_default(&wide, &Lov::wish(2 << 20, 2))?;
        fs::create_dir(wide.join("below"))?;
        let file = wide.join("below/f");
        fs::write(&file, "x")?;
        assert_eq!(places(&file, 4), [Some(3), Some(3), Some(0), Some(0)]);
        assert_eq!(layout(&wide)?, Lov::wish(2 << 20, 2));
        rustix::fs::removexattr(&wide, lov::ATTRIBUTE)?;
        assert_eq!(layout(&wide)?, layout(daemon.mount())?);
        Ok(())
    });
}

#[test]
fn the_parts_of_a_composite_layout_come_to_be_when_they_are_written() {
    on_a_mount(&["--osts", "8"], |daemon| {
        let mib = MIB as u64;
        let parts = [(mib, Lov::wish(0, 1)), (4 * mib, Lov::wish(1 << 20, 2))];
        let default = Lov::wish_composite(parts.into_iter().chain([(u64::MAX, Lov::wish(0, 4))]));
        let directory = daemon.path("d");
        fs::create_dir(&directory)?;
        set_default(&directory, &default)?;
        let path = directory.join("f");
        let file = File::create_new(&path)?;
        assert_eq!(places(&path, 3), [Some(0), None, None]);
        file.write_all_at(&[1], mib)?;
        // Stripes are counted from the beginning of the file.
        assert_eq!(places(&path, 5), [Some(0), Some(2), Some(1), Some(2), None]);
        file.write_all_at(&[1], 10 * mib)?;
        assert_eq!(places(&path, 5)[4], Some(3));
        assert_eq!(of_osts(daemon, "files")?, [1, 1, 1, 1, 1, 1, 1, 0]);
        drop(file);
        fs::remove_file(&path)?;
        become_empty(daemon)?;
        assert_eq!(of_osts(daemon, "used_bytes")?, [0; 8]);
        Ok(())
    });
}

#[test]
fn a_layout_stays_once_a_file_has_one() {
    on_a_mount(&["--osts", "4"], |daemon| {
        let path = daemon.path("f");
        let file = File::create_new(&path)?;
        wish(&file, &Lov::wish_on(1 << 20, &[OstId(3)]))?;
        assert_eq!(places(&path, 1), [Some(0)]);
        let nonsense = rustix::fs::fsetxattr(&file, lov::ATTRIBUTE, b"what", XattrFlags::empty());
        assert_eq!(nonsense, Err(Errno::INVAL));
        let unknown = create_delayed(&daemon.path("g"))?;
        assert_eq!(wish(&unknown, &Lov::wish_on(1 << 20, &[OstId(4)])), Err(Errno::INVAL));
        Ok(())
    });
}

#[test]
fn a_layout_can_be_worded_as_ceph_does() {
    on_a_mount(&["--osts", "4", "--layout-style", "ceph"], |daemon| {
        let path = daemon.path("f");
        let file = File::create_new(&path)?;
        let set = |value: &str| {
            rustix::fs::fsetxattr(&file, "ceph.file.layout", value.as_bytes(), XattrFlags::empty())
        };
        let read = |name: &str| {
            let mut value = vec![0; 1000];
            let length = rustix::fs::getxattr(&path, name, &mut value[..])?;
            Ok::<_, Errno>(String::from_utf8_lossy(&value[..length]).into_owned())
        };
        assert_eq!(read("ceph.file.layout.stripe_count")?, "1");
        let wide = "stripe_unit=65536 stripe_count=3 object_size=4194304 pool=data";
        set(wide)?;
        assert_eq!(read("ceph.file.layout")?, wide);
        assert_eq!(read(lov::ATTRIBUTE), Err(Errno::NODATA));
        file.write_all_at(&[1; 200_000], 0)?;
        assert_eq!(of_osts(daemon, "files")?.iter().sum::<u64>(), 3);
        assert_eq!(set(wide), Err(Errno::NOTEMPTY));
        Ok(())
    });
}

#[test]
fn layouts_can_be_hidden() {
    on_a_mount(&["--osts", "4", "--layout-style", "none"], |daemon| {
        let path = daemon.path("f");
        fs::write(&path, vec![1; MIB])?;
        for name in [lov::ATTRIBUTE, "ceph.file.layout"] {
            assert_eq!(rustix::fs::getxattr(&path, name, &mut [0; 100][..]), Err(Errno::NODATA));
        }
        assert_eq!(of_osts(daemon, "files")?.iter().sum::<u64>(), 1);
        Ok(())
    });
}

#[test]
fn states_say_who_gets_new_files_and_what_fails() {
    on_a_mount(&["--osts", "4"], |daemon| {
        let path = daemon.path("f");
        fs::write(&path, vec![1; MIB])?;
        daemon.order("state 0 down")?;
        daemon.order("state 1 no-create")?;
        daemon.order("state 2 degraded")?;
        let wide = daemon.path("wide");
        wish(&create_delayed(&wide)?, &Lov::wish(1 << 20, 4))?;
        assert_eq!(places(&wide, 3), [Some(3), Some(2), Some(3)]);
        let direct = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&path)?;
        let mut buffer = lads_sys::Arena::new(1, MIB)?.take();
        assert_eq!(errno(direct.read_exact_at(&mut buffer, 0)), Some(libc::EIO));
        daemon.order("state all up")?;
        direct.read_exact_at(&mut buffer, 0)?;
        daemon.order("state all full")?;
        assert_eq!(errno(File::create_new(daemon.path("g"))), Some(libc::ENOSPC));
        assert!(!daemon.path("g").exists());
        Ok(())
    });
}

#[test]
fn an_ost_that_goes_down_fails_what_waits_for_it() {
    on_a_mount(&["--osts", "2", "--rate", "0"], |daemon| {
        let file = File::create_new(daemon.path("f"))?;
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| errno((&file).write_all(b"x")));
            while daemon.stats()?["osts"][0]["in_flight_max"] != 1 {
                std::thread::yield_now();
            }
            daemon.order("state 0 down")?;
            assert_eq!(writer.join().unwrap(), Some(libc::EIO));
            Ok(())
        })
    });
}

#[test]
fn each_ost_holds_so_much_and_no_more() {
    on_a_mount(&["--osts", "2", "--capacity", "4M"], |daemon| {
        let files = [OstId(0), OstId(1)].map(|ost| {
            let file = create_delayed(&daemon.path(format!("{ost}"))).unwrap();
            wish(&file, &Lov::wish_on(1 << 20, &[ost])).unwrap();
            file
        });
        files[0].write_all_at(&vec![1; 4 * MIB], 0)?;
        assert_eq!(errno(files[0].write_all_at(b"x", 4 << 20)), Some(libc::ENOSPC));
        files[1].write_all_at(&vec![1; MIB], 0)?;
        let free = rustix::fs::statvfs(daemon.mount())?;
        assert_eq!(
            (free.f_blocks * free.f_bsize, free.f_bavail * free.f_bsize),
            (8 << 20, 3 << 20)
        );
        files[0].set_len(MIB as u64)?;
        files[0].write_all_at(b"x", 4 << 20)?;
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&files[0], hole, 0, MIB as u64)?;
        assert_eq!(of_osts(daemon, "used_bytes")?, [4096, MIB as u64]);
        assert_eq!(files[0].metadata()?.blocks() * 512, 4096);
        Ok(())
    });
}

#[test]
fn a_null_file_system_holds_a_terabyte_counts_every_byte_and_keeps_none() {
    on_a_mount(&["--null", "--osts", "2", "--stripe-count", "2", "--capacity", "1T"], |daemon| {
        let (mib, tib) = (1 << 20, 1 << 40);
        let direct = OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).clone();
        let file = direct.clone().create_new(true).open(daemon.path("f"))?;
        let mut buffer = lads_sys::Arena::new(1, MIB)?.take();
        buffer.fill(7);
        for place in [0, 1, 2, 5] {
            file.write_all_at(&buffer, place * mib)?;
        }
        assert_eq!(of_osts(daemon, "written_bytes")?, [2 * mib, 2 * mib]);
        assert_eq!(file.metadata()?.len(), 6 * mib);
        let seek = |to| rustix::fs::seek(&file, to);
        assert_eq!(seek(SeekFrom::Hole(mib)), Ok(3 * mib));
        assert_eq!(seek(SeekFrom::Data(3 * mib)), Ok(5 * mib));
        assert_eq!(seek(SeekFrom::Hole(5 * mib)), Ok(6 * mib));
        assert_eq!(seek(SeekFrom::Data(6 * mib)), Err(Errno::NXIO));
        file.read_exact_at(&mut buffer, 2 * mib)?;
        assert!(buffer.iter().all(|byte| *byte == 0));
        assert_eq!(of_osts(daemon, "read_bytes")?, [mib, 0]);
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, tib)?;
        assert_eq!(file.metadata()?.len(), tib);
        assert_eq!(of_osts(daemon, "used_bytes")?, [tib / 2, tib / 2]);
        file.read_exact_at(&mut buffer, tib - mib)?;
        file.set_len(3 * tib)?;
        assert_eq!(file.read_at(&mut buffer, 3 * tib - 4096)?, 4096);
        file.set_len(mib)?;
        assert_eq!(of_osts(daemon, "used_bytes")?, [mib, 0]);
        assert_eq!(places(&daemon.path("f"), 2), [Some(0), Some(1)]);
        let process = daemon.stats()?["process"].as_u64().expect("a number");
        for open in fs::read_dir(format!("/proc/{process}/fd"))? {
            let path = fs::read_link(open?.path())?;
            assert!(!path.to_string_lossy().contains("lads-pfs-"), "{}", path.display());
        }
        Ok(())
    });
}

#[test]
fn orders_are_obeyed_or_refused_with_a_reason() {
    on_a_mount(&["--osts", "4", "--osses", "2"], |daemon| {
        daemon.order("rate 1 10M\nlatency all 5")?;
        assert_eq!(daemon.stats()?["osts"][1]["rate_bytes_per_second"], 10 << 20);
        assert_eq!(errno(daemon.order("rate 9 10M")), Some(libc::EINVAL));
        assert_eq!(fs::read_to_string(daemon.path(".pfs/last-error"))?, "there is no OST 9\n");
        daemon.order("congest fixed OSTS=2 RATE=5")?;
        daemon.order("congest off")?;
        let series = fs::read_to_string(daemon.path(".pfs/series"))?;
        let last = series.lines().map(|line| serde_json::from_str(line).unwrap());
        let rates: Vec<serde_json::Value> = last.collect();
        assert_eq!(rates.len(), 4 + 2 + 3);
        assert_eq!(rates[7]["rate_bytes_per_second"], 5);
        assert!(rates[8]["rate_bytes_per_second"].is_null());
        assert_eq!(
            fs::read_to_string(daemon.path(".pfs/osts"))?.lines().nth(3),
            Some("3 1 up 10737418240 0")
        );
        let names: Vec<_> = fs::read_dir(daemon.mount())?.collect();
        assert!(names.is_empty(), "{names:?}");
        Ok(())
    });
}

#[test]
fn the_command_line_asks_and_orders() {
    on_a_mount(&["--osts", "2"], |daemon| {
        let ctl = |words: &[&str]| {
            let program = env!("CARGO_BIN_EXE_lads-testbed");
            Command::new(program).arg("ctl").arg(daemon.mount()).args(words).output()
        };
        assert!(ctl(&["rate", "all", "7MB"])?.status.success());
        let stats = String::from_utf8(ctl(&["stats"])?.stdout)?;
        assert!(stats.contains("7.0 MB/s"), "{stats}");
        let refused = ctl(&["rate", "2", "7MB"])?;
        assert!(!refused.status.success());
        assert!(String::from_utf8(refused.stderr)?.contains("there is no OST 2"));
        assert!(String::from_utf8(ctl(&["osts", "--json"])?.stdout)?.contains("\"oss\":1"));
        Ok(())
    });
}

#[test]
fn competition_says_what_it_got_and_leaves_nothing_behind() {
    on_a_mount(&["--osts", "4"], |daemon| {
        let program = env!("CARGO_BIN_EXE_lads-testbed");
        let mut command = Command::new(program);
        command.arg("load").arg(daemon.mount()).args(["--osts", "1,3", "--threads", "2"]);
        let output = command.args(["--mode", "write", "--seconds", "0.3"]).output()?;
        let text = String::from_utf8(output.stdout)?;
        let summary: serde_json::Value = serde_json::from_str(text.lines().last().unwrap())?;
        assert_eq!(summary["event"], "summary");
        assert!(summary["bytes"].as_u64().unwrap() > 0);
        let written = of_osts(daemon, "written_bytes")?;
        assert_eq!((written[0], written[2]), (0, 0));
        assert!(written[1] > 0 && written[3] > 0);
        become_empty(daemon)?;
        assert_eq!(of_osts(daemon, "used_bytes")?, [0; 4]);
        Ok(())
    });
}

#[test]
fn an_open_file_outlives_its_name() {
    on_a_mount(&[], |daemon| {
        let path = daemon.path("f");
        let mut file = OpenOptions::new().create_new(true).read(true).write(true).open(&path)?;
        file.write_all(b"first")?;
        fs::hard_link(&path, daemon.path("g"))?;
        assert_eq!(file.metadata()?.nlink(), 2);
        fs::remove_file(&path)?;
        fs::remove_file(daemon.path("g"))?;
        file.write_all(b" second")?;
        let mut text = vec![0; 12];
        file.read_exact_at(&mut text, 0)?;
        assert_eq!(text, b"first second");
        assert_eq!(of_osts(daemon, "used_bytes")?[0], 4096);
        drop(file);
        // The kernel reports the close some time after it.
        while of_osts(daemon, "used_bytes")?[0] != 0 {
            std::thread::yield_now();
        }
        Ok(())
    });
}

#[test]
fn names_change_places_or_stay() {
    on_a_mount(&[], |daemon| {
        let (a, b) = (daemon.path("a"), daemon.path("b"));
        fs::create_dir(&a)?;
        fs::write(a.join("inside"), "a")?;
        fs::write(&b, "b")?;
        let rename =
            |flags| rustix::fs::renameat_with(rustix::fs::CWD, &a, rustix::fs::CWD, &b, flags);
        assert_eq!(rename(RenameFlags::NOREPLACE), Err(Errno::EXIST));
        rename(RenameFlags::EXCHANGE)?;
        assert_eq!(fs::read(b.join("inside"))?, b"a");
        assert_eq!(fs::read(&a)?, b"b");
        assert_eq!(errno(fs::rename(&b, b.join("below"))), Some(libc::EINVAL));
        Ok(())
    });
}

#[test]
fn what_is_written_past_the_page_cache_is_seen_through_it() {
    for settings in [&[][..], &["--writeback"]] {
        on_a_mount(settings, |daemon| {
            let path = daemon.path("f");
            fs::write(&path, vec![1; 2 * MIB])?;
            assert_eq!(fs::read(&path)?[MIB], 1);
            let direct = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(&path)?;
            let mut buffer = lads_sys::Arena::new(1, MIB)?.take();
            buffer.fill(2);
            direct.write_all_at(&buffer, MIB as u64)?;
            assert_eq!(fs::read(&path)?[MIB..], buffer[..]);
            Ok(())
        });
    }
}

#[test]
fn rights_to_run_as_somebody_else_go_with_the_owner() {
    on_a_mount(&[], |daemon| {
        let path = daemon.path("f");
        fs::write(&path, "x")?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o4755))?;
        std::os::unix::fs::chown(&path, Some(1), Some(1))?;
        assert_eq!(fs::metadata(&path)?.mode() & 0o7777, 0o755);
        Ok(())
    });
}

#[test]
fn access_lists_are_refused_as_on_a_mount_without_them() {
    on_a_mount(&[], |daemon| {
        let path = daemon.path("d");
        fs::create_dir(&path)?;
        for list in ["system.posix_acl_access", "system.posix_acl_default"] {
            // An access control list with a version and no entries.
            let set = rustix::fs::setxattr(&path, list, &2u32.to_le_bytes(), XattrFlags::empty());
            assert_eq!(set, Err(Errno::OPNOTSUPP));
            assert_eq!(rustix::fs::getxattr(&path, list, &mut [0; 100]), Err(Errno::OPNOTSUPP));
            assert_eq!(rustix::fs::removexattr(&path, list), Err(Errno::OPNOTSUPP));
        }
        Ok(())
    });
}

#[test]
fn rsync_makes_an_identical_copy() {
    if !lads_tried::has("rsync") {
        return;
    }
    let source = tempfile::tempdir().unwrap();
    make_tree(source.path()).unwrap();
    on_a_mount(&["--osts", "4", "--stripe-count", "2"], |daemon| {
        let mut from = source.path().as_os_str().to_owned();
        from.push("/");
        let rsync = |more: &[&str]| {
            Command::new("rsync")
                .arg("-aHAX")
                .args(more)
                .arg(&from)
                .arg(daemon.path("copy"))
                .output()
        };
        let output = rsync(&[])?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let again = rsync(&["--checksum", "--itemize-changes", "--dry-run"])?;
        assert_eq!(String::from_utf8(again.stdout)?, "");
        Ok(())
    });
}

/// Makes a few entries of every kind.
fn make_tree(root: &Path) -> Result<()> {
    fs::create_dir_all(root.join("a/b"))?;
    fs::create_dir(root.join("empty"))?;
    let large: Vec<u8> =
        (0..3 * MIB + 17).map(|index| u8::try_from(index % 251).unwrap()).collect();
    fs::write(root.join("a/large"), large)?;
    fs::write(root.join("a/nothing"), "")?;
    for index in 0..50 {
        fs::write(root.join(format!("a/b/{index}")), vec![7; index * 100])?;
    }
    fs::hard_link(root.join("a/large"), root.join("a/b/same"))?;
    std::os::unix::fs::symlink("../a/large", root.join("empty/link"))?;
    let fifo = root.join("a/fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        Mode::from_raw_mode(0o600),
        0,
    )?;
    fs::set_permissions(root.join("a/b/3"), fs::Permissions::from_mode(0o2751))?;
    // Some file systems store none; then there is nothing to copy.
    let _ = rustix::fs::setxattr(root.join("a/b/4"), "user.note", b"kept", XattrFlags::empty());
    Ok(())
}

#[test]
fn what_takes_long_holds_up_nobody_and_ends_with_the_mount() {
    if let Some(obstacle) = obstacle() {
        lads_tried::not_tried(obstacle);
        return;
    }
    let backing = tempfile::tempdir().unwrap();
    let settings = ["--backing", backing.path().to_str().unwrap()];
    let program = Path::new(env!("CARGO_BIN_EXE_lads-testbed"));
    let daemon = Daemon::start(program, settings).unwrap();
    fs::write(daemon.path("f"), [7; 4096]).unwrap();
    let direct = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).clone();
    let file = direct.open(daemon.path("f")).unwrap();
    daemon.order("metadata-latency 3600000000").unwrap();
    let before = daemon.stats().unwrap()["metadata_operations"].as_u64();
    let path = daemon.path("d");
    let slow = std::thread::spawn(move || fs::create_dir(path));
    while daemon.stats().unwrap()["metadata_operations"].as_u64() == before {
        std::thread::yield_now();
    }
    let mut buffer = lads_sys::Arena::new(1, 4096).unwrap().take();
    file.read_exact_at(&mut buffer, 0).unwrap();
    daemon.stop().unwrap();
    assert!(slow.join().unwrap().is_err());
    assert_eq!(fs::read_dir(backing.path()).unwrap().count(), 0);
}

#[test]
fn a_second_mount_waits_until_the_first_is_gone() {
    on_a_mount(&[], |daemon| {
        let program = env!("CARGO_BIN_EXE_lads-testbed");
        let mut second = Command::new(program);
        second.arg("pfs").arg(daemon.mount()).stdout(std::process::Stdio::piped());
        let mut second = second.spawn()?;
        fs::write(daemon.path("f"), "of the first")?;
        rustix::mount::unmount(daemon.mount(), rustix::mount::UnmountFlags::DETACH)?;
        let mut line = [0; 6];
        second.stdout.take().unwrap().read_exact(&mut line)?;
        assert_eq!(&line, b"ready\n");
        assert!(!daemon.path("f").exists());
        rustix::mount::unmount(daemon.mount(), rustix::mount::UnmountFlags::DETACH)?;
        assert!(second.wait()?.success());
        Ok(())
    });
}
