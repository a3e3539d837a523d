//! The output for people: each part is printed as soon as it is known.

use super::{Choice, DirectIo, FileSystem, LayoutFound, NewFiles, NotTried, Outcome};
use super::{Privilege, Trial};
use crate::display::escape_text;
use crate::osts::write_table;
use crate::subject::Subject;
use lads_core::sizes;
use lads_core::units::OstId;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::io::{self, Write};

/// The number of attribute bytes in a line.
const HEX_COLUMNS: usize = 32;
/// The most bytes of an attribute that are shown: 128 lines.
const HEX_BYTES_MAX: usize = 4096;
/// If a layout has more OSTs than this, they are counted, not named.
const NAMES_MAX: usize = 8;

/// Examines the file system, and writes each part when it is known.
pub(super) fn write(subject: &Subject, is_read_only: bool, out: &mut dyn Write) -> io::Result<()> {
    write_file_system(subject, out)?;
    write_attribute(subject, out)?;
    write_targets(subject, out)?;
    if let Some(direct_io) = DirectIo::of(subject) {
        write_direct_io(&direct_io, out)?;
    }
    write_new_files(subject, &NewFiles::tried(subject, is_read_only)?, out)?;
    write_privileges(&Privilege::all(subject), out)
}

fn write_file_system(subject: &Subject, out: &mut dyn Write) -> io::Result<()> {
    let found = FileSystem::of(subject);
    let number = match (found.statfs_type, found.errno) {
        (Some(number), _) => format!("{number:#010x}"),
        (None, errno) => {
            format!("unknown: {}", errno.map(|it| it.to_string()).unwrap_or_default())
        }
    };
    writeln!(out, "Path: {}", escape_text(&subject.path.to_string_lossy()))?;
    writeln!(out, "File system: type {number}, treated as {}", found.kind)?;
    for remark in found.remarks {
        writeln!(out, "  {}", escape_text(&remark))?;
    }
    Ok(())
}

fn write_attribute(subject: &Subject, out: &mut dyn Write) -> io::Result<()> {
    let found = LayoutFound::of(subject);
    match found.attribute {
        None => writeln!(out, "\nLayout: not reported by the file system")?,
        Some(bytes) => {
            let length = sizes::bytes_exactly(bytes.len() as u64);
            writeln!(out, "\nLayout: reported by the file system in {length}")?;
            for line in bytes[..bytes.len().min(HEX_BYTES_MAX)].chunks(HEX_COLUMNS) {
                let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
                writeln!(out, "  {}", hex.join(" "))?;
            }
        }
    }
    if let Some(text) = found.understood {
        writeln!(out, "  {}", escape_text(&text))?;
    }
    match found.osts {
        Some(osts) => writeln!(out, "  in short: {}", named(subject, &osts)),
        None => Ok(()),
    }
}

/// Returns the names of the first OSTs of a layout.
fn named(subject: &Subject, osts: &[u32]) -> String {
    let targets = subject.targets();
    let name = |&ost: &u32| {
        targets.get(ost as usize).map_or_else(|| OstId(ost).to_string(), |it| it.name.clone())
    };
    let names: Vec<String> = osts.iter().take(NAMES_MAX).map(name).collect();
    let more = osts.len().saturating_sub(names.len());
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    escape_text(&format!("{}{more}", names.join(", ")))
}

fn write_targets(subject: &Subject, out: &mut dyn Write) -> io::Result<()> {
    let targets = subject.layouts.targets();
    let servers = targets.iter().map(|it| it.server.as_str()).filter(|it| !it.is_empty());
    let servers: BTreeSet<&str> = servers.collect();
    let osts = sizes::counted(targets.len() as u64, "target");
    let servers = match servers.len() as u64 {
        0 => "servers not known".to_owned(),
        count => format!("on {}", sizes::counted(count, "server")),
    };
    writeln!(out, "\nTargets: {osts}, {servers}")?;
    write_table(&targets, out)
}

fn write_direct_io(found: &DirectIo, out: &mut dyn Write) -> io::Result<()> {
    let opened = match found.error.errno {
        None => "files can be opened with it".to_owned(),
        Some(errno) => {
            format!("files cannot be opened with it: {}", Errno::from_raw_os_error(errno))
        }
    };
    let alignment = match (found.memory_alignment_bytes, found.offset_alignment_bytes) {
        (Some(memory), Some(offset)) => {
            format!("aligned to {memory} bytes in memory, {offset} in the file")
        }
        _ => "the kernel does not report the required alignment".to_owned(),
    };
    writeln!(out, "\nDirect I/O: {opened}; {alignment}")
}

fn write_new_files(subject: &Subject, found: &NewFiles, out: &mut dyn Write) -> io::Result<()> {
    let told = match (found.not_tried, found.choice) {
        (Some(NotTried::ReadOnly), _) => " not tried (--read-only)",
        (Some(NotTried::NotADirectory), _) => "not tried, because the path is not a directory",
        (Some(NotTried::NothingToChoose), _) => "their OSTs cannot be chosen here",
        (Some(NotTried::NoTarget), _) => "no target accepts files",
        (None, Choice::Striping) => "only their striping can be chosen here",
        (None, _) => "",
    };
    writeln!(out, "\nNew files:{told}")?;
    for trial in &found.trials {
        write_trial(subject, trial, out)?;
    }
    Ok(())
}

fn write_trial(subject: &Subject, trial: &Trial, out: &mut dyn Write) -> io::Result<()> {
    let wished = match &trial.osts {
        Some(osts) => named(subject, osts),
        None => format!("{} stripes of {}", trial.stripe_count, sizes::bytes(trial.stripe_bytes)),
    };
    match (trial.outcome, trial.error.errno) {
        (Outcome::AsWished, _) => writeln!(out, "  requested {wished}: got it"),
        (Outcome::Failed, errno) => {
            let errno = errno.map(|it| Errno::from_raw_os_error(it).to_string());
            let errno = errno.unwrap_or_default();
            writeln!(out, "  requested {wished}: cannot create a file: {errno}")
        }
        (Outcome::Otherwise, _) => {
            writeln!(out, "  {}", escape_text(trial.difference.as_deref().unwrap_or_default()))
        }
    }
}

fn write_privileges(found: &[Privilege], out: &mut dyn Write) -> io::Result<()> {
    if !found.is_empty() {
        writeln!(out, "\nOptional:")?;
    }
    for Privilege { path, gives, is_readable } in found {
        let found = if *is_readable { "readable" } else { "not readable for this user" };
        writeln!(out, "  {path} ({gives}): {found}")?;
    }
    Ok(())
}
