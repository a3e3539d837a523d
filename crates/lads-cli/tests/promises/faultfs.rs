//! Storage that fails on command: a mount of `lads-testbed faultfs`, for the sink or the source.

use crate::world::{World, not_tried, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

/// A mounted file system with faults; it is unmounted when this is dropped.
pub(crate) struct FaultFs {
    _daemon: Daemon,
    mount: PathBuf,
}

/// A program of the machine room that serves a mount; it is ended when this is dropped.
pub(crate) struct Daemon(Child);

impl FaultFs {
    /// Mounts `NAME` in a world, which passes through to `NAME.below`; returns `None` where
    /// mounting is not possible.
    pub(crate) fn mount(world: &World, name: &str) -> Option<Self> {
        Self::mount_with(world, name, &[])
    }

    /// Like [`Self::mount`], with these options.
    pub(crate) fn mount_with(world: &World, name: &str, options: &[&str]) -> Option<Self> {
        let (below, mount) = (world.path(format!("{name}.below")), world.path(name));
        for directory in [&below, &mount] {
            fs::create_dir_all(directory).unwrap();
        }
        let mut command = Command::new(testbed());
        command.arg("faultfs").args([&below, &mount]).args(options);
        Some(Self { _daemon: Daemon::start(command)?, mount })
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.mount.join(name)
    }

    /// Gives it a command, such as `fail write EIO nth=3`.
    #[track_caller]
    pub(crate) fn command(&self, line: &str) {
        let directory = self.mount.join(".fault");
        if let Err(error) = fs::write(directory.join("control"), line) {
            let why = fs::read_to_string(directory.join("last-error")).unwrap_or_default();
            panic!("{line}: {error}: {why}");
        }
    }

    /// Returns the faults done so far.
    pub(crate) fn log(&self) -> Vec<Value> {
        let log = fs::read_to_string(self.mount.join(".fault/log")).unwrap();
        log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Waits until a fault of this kind happens for the first time; returns its entry in the log.
    pub(crate) fn wait_for_fault(&self, fault: &str) -> Value {
        let is_done = || self.log().into_iter().find(|line| line["fault"] == fault);
        wait_for("harm to be done", is_done)
    }

    /// Cuts the power, which loses what is not durable (with `tear`, only some of it), and switches
    /// it on.
    pub(crate) fn power_cycle(&self, tear: Option<u64>) {
        self.command(&format!("clear\npower-cut {}\npower-on", torn(tear)));
    }
}

/// Returns the option for a torn cut if there is a seed, otherwise nothing.
pub(crate) fn torn(seed: Option<u64>) -> String {
    seed.map_or_else(String::new, |seed| format!("tear={seed}"))
}

impl Daemon {
    /// Starts the program, and waits until it is ready; returns `None` where mounting is not
    /// possible.
    pub(crate) fn start(mut command: Command) -> Option<Self> {
        if fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_err() {
            not_tried("this needs /dev/fuse");
            return None;
        }
        let mut daemon = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = [0; 6];
        if daemon.stdout.as_mut().unwrap().read_exact(&mut said).is_err() {
            let _ = daemon.wait();
            not_tried("mounting with FUSE is not permitted here");
            return None;
        }
        assert_eq!(&said, b"ready\n");
        Some(Self(daemon))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let pid = Pid::from_child(&self.0);
        let _ = kill_process(pid, Signal::TERM);
        // It ends even if the mount is still in use.
        let _ = self.0.wait();
    }
}

/// Returns the program of the machine room. Cargo tells a test only where the programs of its own
/// package are, and builds those of others only if they have tests of the same kind. So this builds
/// it, in the same target directory and profile, which takes no time if it is up to date.
pub(crate) fn testbed() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let lads = Path::new(crate::world::LADS);
        let of_profile = lads.parent().unwrap();
        let profile = match of_profile.file_name().unwrap().to_str().unwrap() {
            "debug" => "dev",
            profile => profile,
        };
        let status = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--package", "lads-testbed", "--bin", "lads-testbed"])
            .args(["--profile", profile, "--target-dir"])
            .arg(of_profile.parent().unwrap())
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status()
            .unwrap();
        assert!(status.success(), "lads-testbed cannot be built");
        of_profile.join("lads-testbed")
    })
}
