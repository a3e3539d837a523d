//! How a chore runs other programs.

use anyhow::{Context, Result, bail};
pub(crate) use lads_tried::find;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The root directory of the workspace.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
}

/// A command that starts in the root directory of the workspace and has no stdin to ask questions.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root()).stdin(Stdio::null());
    command
}

/// The cargo that runs this chore.
pub(crate) fn cargo() -> Command {
    command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs a command, shows its output, and fails if the command fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    println!("$ {}", line_of(command));
    let status = command.status().with_context(|| format!("cannot start {}", line_of(command)))?;
    if !status.success() {
        bail!("{status}: {}", line_of(command));
    }
    Ok(())
}

/// Runs a command without showing its output. If it fails, the error contains its stderr.
pub(crate) fn run_quietly(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot start {}", line_of(command)))?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        bail!("{}: {}", line_of(command), complaint.trim());
    }
    Ok(())
}

/// Runs a command and returns what it prints on stdout.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    command.stderr(Stdio::inherit());
    let output = command.output().with_context(|| format!("cannot start {}", line_of(command)))?;
    if !output.status.success() {
        bail!("{}: {}", output.status, line_of(command));
    }
    String::from_utf8(output.stdout).with_context(|| format!("not text: {}", line_of(command)))
}

/// Builds LADS in release mode. Returns the path of the command.
pub(crate) fn build_lads() -> Result<PathBuf> {
    run(cargo().args(["build", "--release", "--quiet", "--package", "lads-cli"]))?;
    Ok(target_dir()?.join("release/lads"))
}

/// Builds `lads-testbed`, the machine room. Returns the path of the command.
pub(crate) fn build_testbed() -> Result<PathBuf> {
    run(cargo().args(["build", "--release", "--quiet", "--package", "lads-testbed"]))?;
    Ok(target_dir()?.join("release/lads-testbed"))
}

/// Builds a package and shows progress, for a user who waits for it. Returns the path of the
/// command `name`. After `cargo build --release`, nothing is left to compile.
pub(crate) fn build_quickly(package: &str, name: &str) -> Result<PathBuf> {
    let target = target_dir()?;
    let released = target.join("release").join(name);
    if released.exists() {
        // The same command as the user's: a part of the workspace has other features.
        run(cargo().args(["build", "--release"]))?;
        return Ok(released);
    }
    run(cargo().args(["build", "--profile", "quick", "--package", package, "--bin", name]))?;
    Ok(target.join("quick").join(name))
}

/// The directory in which cargo puts what it builds.
pub(crate) fn target_dir() -> Result<PathBuf> {
    let metadata = metadata(&["--no-deps"])?;
    let directory = metadata["target_directory"].as_str().context("cargo metadata")?;
    Ok(directory.into())
}

/// What cargo knows about the workspace.
pub(crate) fn metadata(arguments: &[&str]) -> Result<serde_json::Value> {
    let text = output(cargo().args(["metadata", "--format-version", "1"]).args(arguments))?;
    serde_json::from_str(&text).context("cargo metadata")
}

fn line_of(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}
