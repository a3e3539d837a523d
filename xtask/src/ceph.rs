//! A small private Ceph cluster: on loopback, in memory, mounted.
//!
//! It has one monitor, one manager, four OSDs, one metadata server and a mount by `ceph-fuse`. This
//! module starts all of them and touches no other process: it kills only processes that a pid file
//! in the directory names and that were started with the configuration in that directory. The OSDs
//! keep data in memory. Two pools hold data: `data` with 32 groups and `more` with 24, which is not
//! a power of two. There is no authentication, so the cluster must never listen anywhere but on
//! loopback.

mod daemons;

use crate::{setup, shell, sshd};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The programs that the cluster needs, and the Debian packages that contain them.
pub(crate) const NEEDED: [(&str, &str); 6] = [
    ("ceph-mon", "ceph-mon"),
    ("ceph-mgr", "ceph-mgr"),
    ("ceph-osd", "ceph-osd"),
    ("ceph-mds", "ceph-mds"),
    ("ceph-fuse", "ceph-fuse"),
    ("ceph", "ceph-common"),
];

/// A file with this name marks a directory that was made here and may be removed.
const MARK: &str = ".lads-ceph";

const OSD_COUNT: usize = 4;

/// The size that an OSD claims to have, in bytes.
const OSD_BYTES: u64 = 4 << 30;

/// The pools: the name and the number of placement groups of each.
const POOLS: [(&str, usize); 3] = [("meta", 8), ("data", 32), ("more", 24)];

/// The longest time to wait for any step of the start: ten times what it takes on a quiet machine.
const START_MAX: Duration = Duration::from_secs(150);
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// The longest path of the directory. With a longer one, paths of sockets in it would be too long.
const PATH_BYTES_MAX: usize = 80;

/// A cluster in a directory.
#[derive(Debug)]
pub(crate) struct Cluster {
    directory: PathBuf,
}

/// Brings a cluster up, unless it is up already, and prints where it is mounted.
pub(crate) fn up(directory: Option<&Path>) -> Result<()> {
    setup::install(&setup::missing(&NEEDED))?;
    let cluster = Cluster::in_directory(directory)?;
    cluster.up()?;
    println!("\nexport CEPH_CONF={}", cluster.configuration().display());
    println!("export {MOUNT_VARIABLE}={}", cluster.mount().display());
    Ok(())
}

/// Stops the cluster, if it is running.
pub(crate) fn down(directory: Option<&Path>) -> Result<()> {
    Cluster::in_directory(directory)?.down()
}

/// The environment variable that tells tests which directory is on CephFS.
const MOUNT_VARIABLE: &str = "LADS_TEST_CEPH";

/// A cluster that runs as long as the tests do.
#[derive(Debug)]
pub(crate) struct ForTests(Cluster);

/// Brings a cluster up. Where that is impossible, prints the reason and returns `None`.
pub(crate) fn for_tests() -> Result<Option<ForTests>> {
    let mut missing = setup::missing(&NEEDED);
    missing.extend((!setup::is_root()).then_some("root"));
    missing.extend((!Path::new("/dev/fuse").exists()).then_some("/dev/fuse"));
    if !missing.is_empty() {
        println!("ceph: NOT TRIED: tests on CephFS are skipped; missing: {}", missing.join(" "));
        return Ok(None);
    }
    let name = format!("lads-ceph-{}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    let cluster = Cluster::in_directory(Some(&directory))?;
    if let Err(error) = cluster.up() {
        println!("ceph: retrying after: {error:#}");
        cluster.up()?;
    }
    Ok(Some(ForTests(cluster)))
}

impl ForTests {
    /// The environment variables that the tests need.
    pub(crate) fn variables(&self) -> [(&'static str, PathBuf); 2] {
        [(MOUNT_VARIABLE, self.0.mount()), ("CEPH_CONF", self.0.configuration())]
    }

    /// Stops the cluster, and returns an error if that fails.
    pub(crate) fn down(self) -> Result<()> {
        self.0.down()
    }
}

impl Drop for ForTests {
    fn drop(&mut self) {
        if let Err(error) = self.0.down() {
            println!("ceph: {error:#}");
        }
    }
}

impl Cluster {
    /// The cluster in this directory, or in the default directory.
    pub(crate) fn in_directory(directory: Option<&Path>) -> Result<Self> {
        let usual = || std::env::temp_dir().join("lads-ceph");
        let directory = std::path::absolute(directory.map_or_else(usual, Path::to_owned))?;
        let shown = directory.display();
        ensure!(directory.as_os_str().len() <= PATH_BYTES_MAX, "{shown}: the path is too long");
        Ok(Self { directory })
    }

    /// Brings the cluster up, unless it is up already. If that fails, leaves nothing behind.
    pub(crate) fn up(&self) -> Result<()> {
        if self.is_up() {
            println!("ceph: is up");
            return Ok(());
        }
        self.down()?;
        let shown = self.directory.display();
        fs::create_dir(&self.directory).with_context(|| format!("cannot create {shown}"))?;
        fs::write(self.path(MARK), "")?;
        let start = Instant::now();
        if let Err(error) = self.start() {
            let log = self.last_words();
            self.down()?;
            return Err(error.context(log));
        }
        println!("ceph: up after {:.1} s", start.elapsed().as_secs_f64());
        Ok(())
    }

    /// Unmounts the file system, ends the daemons and removes the directory.
    pub(crate) fn down(&self) -> Result<()> {
        if !self.path(MARK).exists() {
            return Ok(());
        }
        if self.is_mounted() {
            let unmount = || shell::output(shell::command("umount").arg(self.mount()));
            if unmount().is_err() {
                shell::output(shell::command("umount").arg("-l").arg(self.mount()))?;
            }
        }
        daemons::end_all(&self.path("run"), &self.configuration())?;
        ensure!(!self.is_mounted(), "{} is still mounted", self.mount().display());
        fs::remove_dir_all(&self.directory)
            .with_context(|| format!("cannot remove {}", self.directory.display()))
    }

    /// The directory on which the file system is mounted.
    pub(crate) fn mount(&self) -> PathBuf {
        self.path("mnt")
    }

    /// The configuration file, which Ceph's programs find through `CEPH_CONF`.
    pub(crate) fn configuration(&self) -> PathBuf {
        self.path("ceph.conf")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn is_up(&self) -> bool {
        self.is_mounted() && self.ask(&["pg stat"]).is_ok_and(|it| it.iter().any(are_all_clean))
    }

    fn is_mounted(&self) -> bool {
        let device = |path: &Path| fs::metadata(path).map(|it| it.dev()).ok();
        // If the daemon of a mount has died, its device cannot be read: the error is ENOTCONN
        // (107).
        self.mount().exists() && device(&self.mount()) != device(&self.directory)
            || fs::metadata(self.mount()).is_err_and(|it| it.raw_os_error() == Some(107))
    }

    fn start(&self) -> Result<()> {
        for name in ["run", "log", "mon", "mgr", "mds", "mnt"] {
            fs::create_dir_all(self.path(name))?;
        }
        let monitor = format!("[v2:127.0.0.1:{}]", sshd::free_port()?);
        let fsid = uuid()?;
        fs::write(self.configuration(), self.text(&fsid, &monitor))?;
        let map = self.path("monmap");
        let make_map = ["--create", "--fsid", &fsid, "--addv", "a", &monitor];
        shell::output(shell::command("monmaptool").args(make_map).arg(&map))?;
        let make_monitor = ["-i", "a", "--mkfs", "--monmap"];
        shell::output(self.command("ceph-mon").args(make_monitor).arg(&map))?;
        shell::output(self.command("ceph-mon").args(["-i", "a"]))?;
        let mut starting = self.start_osds()?;
        starting.push(self.command("ceph-mgr").args(["-i", "x"]).spawn()?);
        starting.push(self.command("ceph-mds").args(["-i", "m"]).spawn()?);
        for mut daemon in starting {
            // A daemon moves itself to the background: the process that we started ends.
            ensure!(daemon.wait()?.success(), "a daemon did not start");
        }
        self.wait_until("the OSDs are up", "osd stat", |answer| {
            answer["num_up_osds"].as_u64() == Some(OSD_COUNT as u64)
        })?;
        let pools = POOLS.map(|(name, groups)| format!("osd pool create {name} {groups}"));
        let mut commands: Vec<&str> = pools.iter().map(String::as_str).collect();
        commands.extend(["fs new fs meta data --force", "fs add_data_pool fs more"]);
        self.ask(&commands)?;
        self.wait_until("the groups are clean", "pg stat", are_all_clean)?;
        shell::output(self.command("ceph-fuse").arg(self.mount()))?;
        ensure!(self.is_mounted(), "{} is not mounted", self.mount().display());
        Ok(())
    }

    fn start_osds(&self) -> Result<Vec<std::process::Child>> {
        let uuids = (0..OSD_COUNT).map(|_| uuid()).collect::<Result<Vec<_>>>()?;
        let commands: Vec<String> = uuids.iter().map(|uuid| format!("osd new {uuid}")).collect();
        self.ask(&commands.iter().map(String::as_str).collect::<Vec<_>>())?;
        let mut making = Vec::new();
        for (number, uuid) in uuids.iter().enumerate() {
            fs::create_dir(self.path(&format!("osd{number}")))?;
            let make = ["-i", &number.to_string(), "--mkfs", "--osd-uuid", uuid];
            making.push(self.command("ceph-osd").args(make).spawn()?);
        }
        for mut osd in making {
            ensure!(osd.wait()?.success(), "an OSD cannot be created");
        }
        let start =
            |number: usize| self.command("ceph-osd").args(["-i", &number.to_string()]).spawn();
        Ok((0..OSD_COUNT).map(start).collect::<std::io::Result<_>>()?)
    }

    /// A command that runs a program of Ceph with the configuration of this cluster. Its output
    /// goes to a file.
    fn command(&self, program: &str) -> Command {
        let said = fs::File::options().create(true).append(true).open(self.path("log/said"));
        let program = shell::find(program).unwrap_or_else(|| program.into());
        let mut command = shell::command(program);
        command.arg("-c").arg(self.configuration());
        if let Ok(said) = said {
            let again = said.try_clone().map_or_else(|_| Stdio::null(), Stdio::from);
            command.stdout(again).stderr(said);
        }
        command
    }

    /// Runs these commands and returns the answers of the cluster. A command that fails has no
    /// answer.
    fn ask(&self, commands: &[&str]) -> Result<Vec<Value>> {
        let mut tool = self.command("ceph");
        tool.args(["--connect-timeout", "10", "--format", "json"]);
        let mut tool = tool.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut stdin = tool.stdin.take().expect("piped above");
        let _ = stdin.write_all(format!("{}\n", commands.join("\n")).as_bytes());
        drop(stdin);
        let output = tool.wait_with_output()?;
        let answers = serde_json::Deserializer::from_slice(&output.stdout).into_iter();
        Ok(answers.map_while(Result::ok).collect())
    }

    fn wait_until(&self, what: &str, ask: &str, is_so: impl Fn(&Value) -> bool) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < START_MAX {
            if self.ask(&[ask])?.iter().any(&is_so) {
                return Ok(());
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        bail!("timeout of {} s before {what}", START_MAX.as_secs());
    }

    fn text(&self, fsid: &str, monitor: &str) -> String {
        let directory = self.directory.display();
        format!(
            "[global]\nfsid = {fsid}\nmon_host = {monitor}\npublic_addr = 127.0.0.1\n\
             cluster_addr = 127.0.0.1\nauth_cluster_required = none\n\
             auth_service_required = none\nauth_client_required = none\n\
             osd_pool_default_size = 1\nosd_pool_default_min_size = 1\n\
             osd_pool_default_pg_autoscale_mode = off\nmon_max_pg_per_osd = 1000\n\
             mon_allow_pool_size_one = true\nosd_crush_chooseleaf_type = 0\n\
             mon_data_avail_warn = 2\nmon_data_avail_crit = 1\n\
             log_file = {directory}/log/$name.log\nrun_dir = {directory}/run\n\
             mon_cluster_log_file = {directory}/log/cluster.log\ncrash_dir = {directory}/log\n\
             pid_file = {directory}/run/$name.pid\n\
             mon_data = {directory}/mon\nmgr_data = {directory}/mgr\n\
             mds_data = {directory}/mds\nosd_data = {directory}/osd$id\n\
             osd_objectstore = memstore\nmemstore_device_bytes = {OSD_BYTES}\n\
             client_mount_timeout = {}\nadmin_socket =\n",
            START_MAX.as_secs(),
        )
    }

    /// The last lines that the programs printed.
    fn last_words(&self) -> String {
        let said = fs::read_to_string(self.path("log/said")).unwrap_or_default();
        let lines: Vec<&str> = said.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

/// Whether all groups are active and clean. The manager may have added groups of its own.
fn are_all_clean(answer: &Value) -> bool {
    let summary = &answer["pg_summary"];
    let states = summary["num_pg_by_state"].as_array();
    let clean = states.into_iter().flatten().find(|it| it["name"] == "active+clean");
    let clean = clean.and_then(|it| it["num"].as_u64()).unwrap_or(0);
    let groups: usize = POOLS.iter().map(|(_, groups)| groups).sum();
    clean >= groups as u64 && summary["num_pgs"].as_u64() == Some(clean)
}

fn uuid() -> Result<String> {
    let uuid = fs::read_to_string("/proc/sys/kernel/random/uuid").context("no random numbers")?;
    Ok(uuid.trim().to_owned())
}
