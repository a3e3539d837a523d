//! `lads probe`: what LADS can know of a file system, and do with it.
//!
//! Meant to be sent to whoever is asked why a file system is not served as it could be: it shows
//! what was found out and the bytes that it was read from.

use crate::args::ProbeArgs;
use crate::display::escape_text;
use crate::osts::write_table;
use crate::sizes;
use crate::subject::Subject;
use anyhow::Result;
use lads_core::ceph::FileLayout;
use lads_core::layout::Layout;
use lads_core::lov::Lov;
use lads_core::placement::Wish;
use lads_core::units::OstId;
use lads_engine::layout::{Heeds, NewFile};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, fstatfs, openat, statx, unlinkat};
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;

/// `STATX_DIOALIGN`: since Linux 6.1.
const DIRECT_ALIGNMENT: StatxFlags = StatxFlags::from_bits_retain(0x2000);

/// Bytes of an attribute in a line.
const HEX_COLUMNS: usize = 32;
/// More bytes of an attribute than this are not shown.
const HEX_BYTES_MAX: usize = 4096;

/// What Lustre shows only to root, and what it would be good for.
const PRIVILEGED: [(&str, &str); 2] = [
    ("/sys/kernel/debug/lustre", "service times of other programs"),
    ("/sys/fs/lustre", "servers of targets"),
];

/// Shows all of it.
pub(crate) fn run(args: &ProbeArgs) -> Result<()> {
    let subject = Subject::open(&args.path, "auto")?;
    let mut out = io::stdout().lock();
    write_file_system(&subject, &mut out)?;
    write_attribute(&subject, &mut out)?;
    write_targets(&subject, &mut out)?;
    write_direct_io(&subject, &mut out)?;
    match args.read_only {
        true => writeln!(out, "\nNew files: not tried (--read-only)")?,
        false => try_new_files(&subject, &mut out)?,
    }
    if subject.layouts.kind() == "lustre" {
        write_privileges(&mut out)?;
    }
    Ok(())
}

fn write_file_system(subject: &Subject, out: &mut dyn Write) -> io::Result<()> {
    let kind = fstatfs(&subject.directory).map(|it| format!("{:#010x}", it.f_type));
    let kind = kind.unwrap_or_else(|errno| format!("not told: {errno}"));
    writeln!(out, "Path: {}", escape_text(&subject.path.to_string_lossy()))?;
    writeln!(out, "File system: type {kind}, served as {}", subject.layouts.kind())?;
    for remark in subject.layouts.remarks() {
        writeln!(out, "  {}", escape_text(&remark))?;
    }
    Ok(())
}

/// The layout as the file system says it, byte by byte, and as it is understood.
fn write_attribute(subject: &Subject, out: &mut dyn Write) -> io::Result<()> {
    match subject.raw() {
        None => writeln!(out, "\nLayout: the file system says nothing of it")?,
        Some(bytes) => {
            writeln!(
                out,
                "\nLayout: the file system says it in {}",
                sizes::bytes_exactly(bytes.len() as u64)
            )?;
            for line in bytes[..bytes.len().min(HEX_BYTES_MAX)].chunks(HEX_COLUMNS) {
                let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
                writeln!(out, "  {}", hex.join(" "))?;
            }
            if let Some(text) = understood(subject, &bytes) {
                writeln!(out, "  {}", escape_text(&text))?;
            }
        }
    }
    if !subject.is_directory() {
        writeln!(out, "  in short: {}", named(subject, &subject.located().layout))?;
    }
    Ok(())
}

/// What the bytes of a layout say, if they are of a kind that is known here.
fn understood(subject: &Subject, bytes: &[u8]) -> Option<String> {
    let text = match subject.layouts.kind() {
        "ceph" => FileLayout::parse(bytes).map(|it| it.to_string()).map_err(|it| it.to_string()),
        "lustre" => Lov::parse(bytes).map(|it| format!("{it:?}")).map_err(|it| it.to_string()),
        _ => return None,
    };
    Some(text.unwrap_or_else(|error| format!("not understood: {error}")))
}

/// The first OSTs of a layout, by name.
fn named(subject: &Subject, layout: &Layout) -> String {
    let targets = subject.targets();
    let name =
        |ost: OstId| targets.get(ost.index()).map_or_else(|| ost.to_string(), |it| it.name.clone());
    let names: Vec<String> = layout.osts().take(8).map(name).collect();
    let more = layout.osts().len().saturating_sub(names.len());
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

/// Whether reads and writes may go past the page cache, and what they must be multiples of.
fn write_direct_io(subject: &Subject, out: &mut dyn Write) -> io::Result<()> {
    if subject.is_directory() {
        return Ok(());
    }
    let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
    let opened = openat(CWD, &subject.path, flags, Mode::empty());
    let alignment = statx(CWD, &subject.path, AtFlags::empty(), DIRECT_ALIGNMENT)
        .ok()
        .filter(|it| it.stx_mask & DIRECT_ALIGNMENT.bits() != 0);
    let opened = match opened {
        Ok(_) => "files open with it".to_owned(),
        Err(errno) => format!("files do not open with it: {errno}"),
    };
    let alignment = alignment.map_or_else(
        || "the kernel does not say what it must be aligned to".to_owned(),
        |it| {
            let (memory, offset) = (it.stx_dio_mem_align, it.stx_dio_offset_align);
            format!("aligned to {memory} bytes in memory, {offset} in the file")
        },
    );
    writeln!(out, "\nDirect I/O: {opened}; {alignment}")
}

/// Makes files on chosen OSTs, and sees where they came to be.
fn try_new_files(subject: &Subject, out: &mut dyn Write) -> io::Result<()> {
    if !subject.is_directory() {
        return writeln!(out, "\nNew files: not tried, for the path is not a directory");
    }
    let targets = subject.layouts.targets();
    let takes_files = |index: &u32| targets[*index as usize].state.takes_files();
    let count = u32::try_from(targets.len()).unwrap_or(u32::MAX);
    let osts: Vec<OstId> = (0..count).filter(takes_files).map(OstId).collect();
    let pair: Vec<OstId> = osts.iter().rev().take(2).copied().collect();
    let stripe_size = 1 << 20;
    match subject.layouts.heeds() {
        Heeds::Nothing => writeln!(out, "\nNew files: their place cannot be chosen here"),
        Heeds::Striping => {
            writeln!(out, "\nNew files: only how they are striped can be chosen here")?;
            let wish = Wish::Striped { stripe_size, stripe_count: pair.len().max(1) };
            let wished = format!("{} stripes of {}", pair.len().max(1), sizes::bytes(stripe_size));
            try_new_file(subject, &wish, &wished, out)
        }
        Heeds::Place => {
            writeln!(out, "\nNew files:")?;
            for osts in [pair[..pair.len().min(1)].to_vec(), pair] {
                let Some(layout) = Layout::striped(stripe_size, osts.clone()) else {
                    return writeln!(out, "  no target takes files");
                };
                let wished = named(subject, &layout);
                try_new_file(subject, &Wish::On { stripe_size, osts }, &wished, out)?;
            }
            Ok(())
        }
    }
}

fn try_new_file(
    subject: &Subject,
    wish: &Wish,
    wished: &str,
    out: &mut dyn Write,
) -> io::Result<()> {
    let name = format!(".lads-probe-{}", std::process::id());
    let (directory, is_there) = (&subject.directory, false);
    let file = NewFile { directory, name: &name, number: 0, size: 0, wish, is_there };
    let placed = subject.layouts.of_new_file(&file);
    let placed = match placed {
        Ok(placed) => placed,
        Err(errno) => return writeln!(out, "  wished for {wished}: cannot make a file: {errno}"),
    };
    // First of all: nobody may read on.
    unlinkat(directory, name.as_str(), AtFlags::empty())?;
    match placed.difference {
        None => writeln!(out, "  wished for {wished}: came so"),
        Some(difference) => writeln!(out, "  {}", escape_text(&difference)),
    }
}

/// What would be known with more rights.
fn write_privileges(out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\nNot needed, but good to have:")?;
    for (path, use_of_it) in PRIVILEGED {
        let is_readable = Path::new(path).read_dir().is_ok();
        let found = if is_readable { "readable" } else { "not readable for this user" };
        writeln!(out, "  {path} ({use_of_it}): {found}")?;
    }
    Ok(())
}
