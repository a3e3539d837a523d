//! `lads probe`: shows what LADS can find out about a file system, and what it can do with it.
//!
//! Its output is meant to be sent with a question or a bug report: it shows what LADS found out
//! about a file system, and the bytes from which it did. This finds it out, and tells programs;
//! [`text`] tells people.

mod text;

use crate::args::ProbeArgs;
use crate::display::PathText;
use crate::osts;
use crate::subject::Subject;
use anyhow::Result;
use lads_core::ceph::FileLayout;
use lads_core::lov::Lov;
use lads_core::placement::Wish;
use lads_core::units::OstId;
use lads_engine::layout::{Heeds, NewFile};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, fstatfs, openat, statx, unlinkat};
use rustix::io::Errno;
use serde::Serialize;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// `STATX_DIOALIGN`: since Linux 6.1.
const DIRECT_ALIGNMENT: StatxFlags = StatxFlags::from_bits_retain(0x2000);

/// The stripe length of a trial file: Lustre's default. A file system may use a longer one (BeeGFS
/// takes that of its directory); the trial is meant to show this.
const TRIAL_STRIPE_BYTES: u64 = 1 << 20;

/// The attributes that Lustre shows only to root, and what LADS could use them for.
const PRIVILEGED: [(&str, &str); 2] = [
    ("/sys/kernel/debug/lustre", "service times of other programs"),
    ("/sys/fs/lustre", "servers of targets"),
];

/// Examines the file system and shows the results.
pub(crate) fn run(args: &ProbeArgs) -> Result<()> {
    let subject = Subject::open(&args.path, "auto")?;
    let mut out = io::stdout().lock();
    if args.json {
        let found = serde_json::to_string(&Found::all(&subject, args.read_only)?)?;
        writeln!(out, "{found}")?;
    } else {
        text::write(&subject, args.read_only, &mut out)?;
    }
    Ok(())
}

/// The output for another program; `docs/json.md` explains the names.
#[derive(Serialize)]
struct Found {
    #[serde(flatten)]
    path: PathText,
    is_directory: bool,
    #[serde(flatten)]
    file_system: FileSystem,
    layout: LayoutFound,
    targets: Vec<serde_json::Value>,
    direct_io: Option<DirectIo>,
    new_files: NewFiles,
    privileges: Vec<Privilege>,
}

impl Found {
    fn all(subject: &Subject, is_read_only: bool) -> io::Result<Self> {
        let targets = subject.layouts.targets();
        let targets = targets.iter().enumerate();
        Ok(Self {
            path: PathText::new(subject.path.as_os_str().as_bytes()),
            is_directory: subject.is_directory(),
            file_system: FileSystem::of(subject),
            layout: LayoutFound::of(subject),
            targets: targets.map(|(index, target)| osts::json(index, target)).collect(),
            direct_io: DirectIo::of(subject),
            new_files: NewFiles::tried(subject, is_read_only)?,
            privileges: Privilege::all(subject),
        })
    }
}

/// The kind of file system that was recognised.
#[derive(Serialize)]
struct FileSystem {
    /// The number that `statfs` returns for this type.
    statfs_type: Option<i64>,
    kind: &'static str,
    remarks: Vec<String>,
    /// The error if there is no number.
    #[serde(skip)]
    errno: Option<Errno>,
}

impl FileSystem {
    fn of(subject: &Subject) -> Self {
        // This field has another type on other processors.
        #[expect(clippy::useless_conversion, reason = "it is useless only on this processor")]
        let number = fstatfs(&subject.directory).map(|it| i64::from(it.f_type));
        let (kind, remarks) = (subject.layouts.kind(), subject.layouts.remarks());
        Self { statfs_type: number.ok(), kind, remarks, errno: number.err() }
    }
}

/// The layout in the file system's bytes, and as LADS understands it.
#[derive(Serialize)]
struct LayoutFound {
    #[serde(serialize_with = "as_hex", rename = "attribute_hex")]
    attribute: Option<Vec<u8>>,
    understood: Option<String>,
    /// The OST of each stripe or object; `None` if it is not the layout of a file.
    osts: Option<Vec<u32>>,
}

fn as_hex<S: serde::Serializer>(bytes: &Option<Vec<u8>>, to: S) -> Result<S::Ok, S::Error> {
    let hex = bytes.as_ref().map(|bytes| {
        bytes.iter().fold(String::new(), |mut hex, byte| {
            write!(hex, "{byte:02x}").expect("a String takes everything");
            hex
        })
    });
    hex.serialize(to)
}

impl LayoutFound {
    fn of(subject: &Subject) -> Self {
        let attribute = subject.raw();
        let understood = attribute.as_ref().and_then(|bytes| understood(subject, bytes));
        let is_file = !subject.is_directory();
        let osts = is_file.then(|| subject.located().layout.osts().map(|ost| ost.0).collect());
        Self { attribute, understood, osts }
    }
}

/// Describes what the bytes of a layout mean, if their format is known here.
fn understood(subject: &Subject, bytes: &[u8]) -> Option<String> {
    let text = match subject.layouts.kind() {
        "ceph" => FileLayout::parse(bytes).map(|it| it.to_string()).map_err(|it| it.to_string()),
        "lustre" => Lov::parse(bytes).map(|it| format!("{it:?}")).map_err(|it| it.to_string()),
        _ => return None,
    };
    Some(text.unwrap_or_else(|error| format!("not understood: {error}")))
}

/// Whether reads and writes may go past the page cache, and their required alignment.
#[derive(Serialize)]
struct DirectIo {
    is_possible: bool,
    #[serde(flatten)]
    error: ErrorFound,
    memory_alignment_bytes: Option<u32>,
    offset_alignment_bytes: Option<u32>,
}

impl DirectIo {
    /// Returns `None` for a directory.
    fn of(subject: &Subject) -> Option<Self> {
        if subject.is_directory() {
            return None;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
        let opened = openat(CWD, &subject.path, flags, Mode::empty());
        let alignment = statx(CWD, &subject.path, AtFlags::empty(), DIRECT_ALIGNMENT)
            .ok()
            .filter(|it| it.stx_mask & DIRECT_ALIGNMENT.bits() != 0);
        Some(Self {
            is_possible: opened.is_ok(),
            error: ErrorFound::new(opened.err()),
            memory_alignment_bytes: alignment.as_ref().map(|it| it.stx_dio_mem_align),
            offset_alignment_bytes: alignment.as_ref().map(|it| it.stx_dio_offset_align),
        })
    }
}

/// The number and name of a system error, if something failed.
#[derive(Serialize)]
struct ErrorFound {
    errno: Option<i32>,
    errno_name: Option<&'static str>,
}

impl ErrorFound {
    fn new(errno: Option<Errno>) -> Self {
        let errno = errno.map(Errno::raw_os_error);
        Self { errno, errno_name: errno.and_then(lads_core::errno::name) }
    }
}

/// What happens to wishes about the place of new files.
#[derive(Serialize)]
struct NewFiles {
    choice: Choice,
    /// The reason why no file was made.
    not_tried: Option<NotTried>,
    trials: Vec<Trial>,
}

/// What LADS can choose for a new file.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Choice {
    Nothing,
    Striping,
    Place,
}

#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "kebab-case")]
enum NotTried {
    ReadOnly,
    NotADirectory,
    NothingToChoose,
    NoTarget,
}

/// A trial file, which has been removed again.
#[derive(Serialize)]
struct Trial {
    stripe_bytes: u64,
    stripe_count: usize,
    /// The OSTs wished for; `None` if only the striping can be chosen.
    osts: Option<Vec<u32>>,
    outcome: Outcome,
    difference: Option<String>,
    #[serde(flatten)]
    error: ErrorFound,
}

#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Outcome {
    AsWished,
    Otherwise,
    Failed,
}

impl NewFiles {
    /// Makes files on chosen OSTs, checks where they were placed, and removes them.
    ///
    /// # Errors
    /// If one cannot be removed.
    fn tried(subject: &Subject, is_read_only: bool) -> io::Result<Self> {
        let choice = match subject.layouts.heeds() {
            Heeds::Nothing => Choice::Nothing,
            Heeds::Striping => Choice::Striping,
            Heeds::Place => Choice::Place,
        };
        let none = |why| Ok(Self { choice, not_tried: Some(why), trials: Vec::new() });
        if is_read_only {
            return none(NotTried::ReadOnly);
        }
        if !subject.is_directory() {
            return none(NotTried::NotADirectory);
        }
        let pair = last_two(subject);
        let (stripe_size, stripe_count) = (TRIAL_STRIPE_BYTES, pair.len().max(1));
        let trials = match choice {
            Choice::Nothing => return none(NotTried::NothingToChoose),
            Choice::Striping => {
                vec![Trial::made(subject, &Wish::Striped { stripe_size, stripe_count })?]
            }
            Choice::Place if pair.is_empty() => return none(NotTried::NoTarget),
            Choice::Place => [pair[..1].to_vec(), pair]
                .into_iter()
                .map(|osts| Trial::made(subject, &Wish::On { stripe_size, osts }))
                .collect::<io::Result<_>>()?,
        };
        Ok(Self { choice, not_tried: None, trials })
    }
}

/// Returns the last two OSTs that take files, the last one first. The file system would seldom
/// choose these by itself.
fn last_two(subject: &Subject) -> Vec<OstId> {
    let targets = subject.layouts.targets();
    let takes_files = |index: &u32| targets[*index as usize].state.takes_files();
    let count = u32::try_from(targets.len()).unwrap_or(u32::MAX);
    (0..count).rev().filter(takes_files).map(OstId).take(2).collect()
}

impl Trial {
    fn made(subject: &Subject, wish: &Wish) -> io::Result<Self> {
        let (stripe_bytes, stripe_count, osts) = match wish {
            Wish::Default => (0, 0, None),
            Wish::Striped { stripe_size, stripe_count } => (*stripe_size, *stripe_count, None),
            Wish::On { stripe_size, osts } => {
                (*stripe_size, osts.len(), Some(osts.iter().map(|ost| ost.0).collect()))
            }
        };
        let name = format!(".lads-probe-{}", std::process::id());
        let (directory, is_there) = (&subject.directory, false);
        let file = NewFile { is_there, ..NewFile::new(directory, &name, 0, wish) };
        let placed = subject.layouts.of_new_file(&file);
        if placed.is_ok() {
            // Remove the file first, because a later write to stdout may end the command.
            unlinkat(directory, name.as_str(), AtFlags::empty())?;
        }
        let (outcome, difference, errno) = match placed {
            Ok(placed) if placed.difference.is_none() => (Outcome::AsWished, None, None),
            Ok(placed) => (Outcome::Otherwise, placed.difference, None),
            Err(errno) => (Outcome::Failed, None, Some(errno)),
        };
        let error = ErrorFound::new(errno);
        Ok(Self { stripe_bytes, stripe_count, osts, outcome, difference, error })
    }
}

/// What LADS could find out with more privileges.
#[derive(Serialize)]
struct Privilege {
    path: &'static str,
    gives: &'static str,
    is_readable: bool,
}

impl Privilege {
    fn all(subject: &Subject) -> Vec<Self> {
        if subject.layouts.kind() != "lustre" {
            return Vec::new();
        }
        let found = |(path, gives)| {
            let is_readable = Path::new(path).read_dir().is_ok();
            Self { path, gives, is_readable }
        };
        PRIVILEGED.map(found).into()
    }
}
