//! Compiles the shim with the compiler of an MPI, and sees whether the result can be loaded.

use crate::messages::messages;
use crate::mpi::Mpi;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The sources, in the checkout.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../lads-mpiio/shim");

/// What tells one `mpi.h` from another. The last line of what the preprocessor gives is the answer.
///
/// The standard ABI comes last: an MPI with an interface of its own may know that version, too.
const QUESTION: &str = "\
#include <mpi.h>
#if defined OMPI_MAJOR_VERSION
lads_openmpi
#elif defined MPICH_VERSION || defined MPICH_NAME || defined I_MPI_VERSION
lads_mpich
#elif defined MPI_ABI_VERSION
lads_mpiabi
#endif
";

/// The headers with the functions of MPI: Open MPI has some in a header of its own.
const HEADERS: &str = "\
#include <mpi.h>
#if defined OMPI_MAJOR_VERSION && __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif
";

/// Which MPI a compiler compiles for, by the header that it finds.
///
/// # Errors
/// If it finds none, or one that is not known. The text says what is wrong.
pub fn mpi_of(compiler: &str) -> Result<Mpi, String> {
    let mut command = Command::new(compiler);
    command.args(["-E", "-P", "-x", "c", "-"]).stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let started = command.spawn();
    let mut child = started.map_err(|error| {
        format!("cannot start {compiler}: {error}; load the module of its MPI, or give its path")
    })?;
    let written = child.stdin.take().map(|mut stdin| stdin.write_all(QUESTION.as_bytes()));
    let output = child.wait_with_output().map_err(|error| format!("{compiler}: {error}"))?;
    // A compiler that does not read its input says itself why.
    if !output.status.success() || !matches!(written, Some(Ok(()))) {
        return Err(format!("{compiler} finds no mpi.h:\n{}", told(&output)));
    }
    let answer = String::from_utf8_lossy(&output.stdout);
    let last = answer.lines().rev().find_map(|line| line.trim().strip_prefix("lads_"));
    last.and_then(Mpi::named).ok_or_else(|| {
        format!(
            "{compiler} has the mpi.h of an unsupported MPI: MPICH, Open MPI and the ABI of MPI 5 \
             are supported"
        )
    })
}

/// Compiles the shim and puts it into a directory, under the name that it has for its MPI. The
/// static library is the rest of it, `lads-mpiio`. `options` are more options for the compiler.
///
/// A library that is there is replaced at once: programs that have it loaded keep the old one.
///
/// # Errors
/// If it cannot be compiled, loaded or written. The text says what is wrong.
pub fn build(
    mpi: Mpi,
    compiler: &str,
    static_library: &Path,
    directory: &Path,
    options: &[&str],
) -> Result<PathBuf, String> {
    let cannot_write = |error| format!("cannot write to {}: {error}", directory.display());
    std::fs::create_dir_all(directory).map_err(cannot_write)?;
    // The loader wants whole paths.
    let directory = directory.canonicalize().map_err(cannot_write)?;
    let (whole, part) = (
        directory.join(mpi.library()),
        directory.join(format!(".{}.{}.part", mpi.library(), std::process::id())),
    );
    let outcome = compile(mpi, compiler, static_library, &part, options)
        .and_then(|()| check_that_it_loads(&part))
        .and_then(|()| std::fs::rename(&part, &whole).map_err(cannot_write));
    if outcome.is_err() {
        // There may be none.
        let _ = std::fs::remove_file(&part);
    }
    outcome.map(|()| whole)
}

/// The newest static library `lads-mpiio` in a directory: older ones, built with other options, may
/// lie beside it.
///
/// # Errors
/// If there is none.
pub fn newest_static_library(directory: &Path) -> Result<PathBuf, String> {
    let is_one = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("liblads_mpiio") && name.ends_with(".a")
    };
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let libraries = entries.map(|entry| entry.path()).filter(is_one);
    let changed = |path: &PathBuf| path.metadata().and_then(|it| it.modified()).ok();
    libraries
        .max_by_key(changed)
        .ok_or_else(|| format!("there is no liblads_mpiio.a in {}", directory.display()))
}

/// Compiles the shim into a file. The parameters are those of [`build()`].
///
/// # Errors
/// If it cannot be compiled. The text contains the messages of the compiler.
pub fn compile(
    mpi: Mpi,
    compiler: &str,
    static_library: &Path,
    to: &Path,
    options: &[&str],
) -> Result<(), String> {
    // Other builds have directories of their own.
    let mut own = to.as_os_str().to_owned();
    own.push(".d");
    let own = PathBuf::from(own);
    let cannot_write = |error| format!("cannot write to {}: {error}", own.display());
    std::fs::create_dir_all(&own).map_err(cannot_write)?;
    let outcome = write_messages(compiler, &own, options)
        .and_then(|()| compile_with(mpi, compiler, static_library, to, options, &own));
    std::fs::remove_dir_all(&own).map_err(cannot_write).and(outcome)
}

/// Writes the list of the functions that may carry information to another process.
fn write_messages(compiler: &str, directory: &Path, options: &[&str]) -> Result<(), String> {
    let (headers, list) = (directory.join("headers.c"), directory.join("messages.inc"));
    let cannot_write = |error| format!("cannot write to {}: {error}", directory.display());
    std::fs::write(&headers, HEADERS).map_err(cannot_write)?;
    let mut command = Command::new(compiler);
    command.args(["-E", "-P", "-w", "-std=gnu11"]).args(options).arg(headers);
    let header = output_of(&mut command, "find the functions of mpi.h")?;
    std::fs::write(list, HEADERS.to_owned() + &messages(&header)).map_err(cannot_write)
}

fn compile_with(
    mpi: Mpi,
    compiler: &str,
    static_library: &Path,
    to: &Path,
    options: &[&str],
    own: &Path,
) -> Result<(), String> {
    let sources = sources().map_err(|error| format!("cannot read {SOURCES}: {error}"))?;
    let mut command = Command::new(compiler);
    command.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-fPIC", "-shared"]).args(options);
    command.arg("-I").arg(own);
    command.arg(concat!("-DLADS_VERSION=\"", env!("CARGO_PKG_VERSION"), "\""));
    command.args(sources).arg(static_library);
    command.arg(format!("-Wl,--version-script={SOURCES}/exports.map"));
    command.arg(format!("-Wl,-soname,{}", mpi.library()));
    command.arg("-o").arg(to).args(["-ldl", "-lpthread", "-lm", "-lgcc_s"]);
    output_of(&mut command, "compile the shim").map(drop)
}

/// Returns the output of a compiler, which is to do this.
fn output_of(command: &mut Command, task: &str) -> Result<String, String> {
    let compiler = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("cannot start {compiler}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{compiler} cannot {task}:\n{}", told(&output)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn sources() -> std::io::Result<Vec<PathBuf>> {
    let mut sources = Vec::new();
    for entry in std::fs::read_dir(SOURCES)? {
        let path = entry?.path();
        if path.extension().is_some_and(|it| it == "c") {
            sources.push(path);
        }
    }
    sources.sort();
    Ok(sources)
}

/// Loads it into a program that does nothing, with all functions that it uses. The loader complains
/// and goes on if it cannot load it.
fn check_that_it_loads(library: &Path) -> Result<(), String> {
    let mut command = Command::new("true");
    command.env("LD_PRELOAD", library).env("LD_BIND_NOW", "1");
    let output = command.output().map_err(|error| format!("cannot start true: {error}"))?;
    if output.status.success() && output.stderr.is_empty() {
        return Ok(());
    }
    Err(format!("the library was built, but cannot be loaded:\n{}", told(&output)))
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim_end().to_owned()
}
