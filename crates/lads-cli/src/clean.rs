//! `lads clean`: removes what killed transfers left in a directory, and prints each thing removed.

use crate::args::CleanArgs;
use crate::display::escape;
use anyhow::{Context, Result, ensure};
use lads_core::sizes;
use lads_engine::{Kept, Remains, clean};
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;

/// What was removed, and what was left, with the reasons.
#[derive(Default)]
struct Count {
    removed: u64,
    removed_bytes: u64,
    in_use: u64,
    failed: u64,
}

/// Cleans a directory.
pub(crate) fn run(args: &CleanArgs) -> Result<()> {
    let directory = args.directory.as_os_str().as_bytes();
    let mut out = BufWriter::new(io::stdout().lock());
    let (mut count, mut unwritten) = (Count::default(), Ok(()));
    let mut tell = |remains: Remains| {
        count.take(&remains);
        if unwritten.is_ok() {
            unwritten = writeln!(out, "{}", line(&remains, args.dry_run));
        }
    };
    clean(directory, args.dry_run, &mut tell)
        .with_context(|| format!("cannot clean {}", args.directory.display()))?;
    unwritten?;
    writeln!(out, "{}", count.sentence(args.dry_run))?;
    out.flush()?;
    ensure!(count.failed == 0, "some files could not be examined or removed: see above");
    Ok(())
}

/// `removed  run7/.lads-….part (1.2 MiB)`, or why it was left.
fn line(remains: &Remains, is_dry_run: bool) -> String {
    let path = match remains.path.as_slice() {
        b"" => ".".to_owned(),
        path => escape(path),
    };
    let size = sizes::bytes(remains.bytes);
    match &remains.outcome {
        Ok(()) if is_dry_run => format!("would remove {path} ({size})"),
        Ok(()) => format!("removed {path} ({size})"),
        Err(Kept::InUse) => format!("kept    {path}: a running transfer may own it"),
        Err(Kept::NotOurs(why)) => format!("kept    {path}: {why}, so lads did not create it"),
        Err(Kept::Failed(why)) => format!("kept    {path}: {why}"),
    }
}

impl Count {
    fn take(&mut self, remains: &Remains) {
        match remains.outcome {
            Ok(()) => {
                self.removed += 1;
                self.removed_bytes += remains.bytes;
            }
            Err(Kept::InUse) => self.in_use += 1,
            Err(Kept::NotOurs(_)) => {}
            Err(Kept::Failed(_)) => self.failed += 1,
        }
    }

    fn sentence(&self, is_dry_run: bool) -> String {
        let files = sizes::counted(self.removed, "file");
        let verb = if is_dry_run { "would be removed" } else { "removed" };
        let removed = format!("{files} of {} {verb}", sizes::bytes(self.removed_bytes));
        match self.in_use {
            0 => removed,
            _ => format!(
                "{removed}; a transfer is running, and files that may be its own were kept: run \
                 the same command again when it has ended"
            ),
        }
    }
}
