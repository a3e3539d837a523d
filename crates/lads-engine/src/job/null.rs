//! Ends without storage: `null:SIZE` and `zero:SIZE` as a source, `null:` as a sink.
//!
//! `null:COUNTxSIZE,...` is a directory of files without storage: what files cost, and not bytes.
//!
//! With them a user measures one part of a transfer without the others: what reading costs
//! (`lads cp SRC null:`), what writing costs (`lads cp zero:10G DST`), and what LADS itself and the
//! network cost (`lads cp null:10G host:null:`). XDD calls this the null transfer (figures 26 and
//! 27 of its paper on long-distance transfers).

use super::{Options, Verify};
use crate::event::ExitCode;
use crate::fatal::Fatal;
use crate::stat::now;
use lads_core::entry::{Identity, Metadata, Timestamp};
use lads_core::sizes::parse_bytes;
use rustix::process::{getegid, geteuid};

/// The path of a sink that keeps nothing.
const NULL_SINK: &[u8] = b"null:";

/// A path on a file system in memory: an end without storage is scheduled as if it lay there.
pub(crate) const PLACE: &[u8] = b"/dev";

/// Whether a path stands for an end without storage, and not for a file. `./null:` is a file.
pub(crate) fn is_without_storage(path: &[u8]) -> bool {
    is_null_sink(path) || NullSource::parse(path).is_some()
}

/// Whether a path stands for the sink that keeps nothing.
pub(crate) fn is_null_sink(path: &[u8]) -> bool {
    path == NULL_SINK
}

/// Checks that options have a meaning for a sink that keeps nothing.
///
/// # Errors
/// The option that has none.
pub(crate) fn check_null_sink(options: &Options) -> Result<(), Fatal> {
    let option = match () {
        () if options.check => "lads check",
        () if options.deletion.is_some() => "--delete",
        () if options.removes_sources => "--remove-source-files",
        () if options.verify == Verify::Media => "--verify media",
        () => return Ok(()),
    };
    Err(refused(&format!("{option} needs a sink that stores data; null: discards it")))
}

/// A source of bytes that lie on no storage: one file, or a directory of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NullSource {
    /// Whether every block is filled with zeros, which costs about as much as a copy from the page
    /// cache. Otherwise nothing touches a block before it is sent.
    is_filled: bool,
    shape: Shape,
    /// Two transfers never take their sources for the same file, even if the sizes are the same.
    made_at: Timestamp,
}

/// Which files a source without storage has.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Shape {
    /// One file of this many bytes.
    File(u64),
    /// A directory with so many files of so many bytes each.
    Directory(Vec<(u64, u64)>),
}

impl Shape {
    /// `SIZE`, or `COUNTxSIZE` several times with commas between.
    fn parse(text: &str) -> Option<Self> {
        if let Ok(size) = parse_bytes(text) {
            return Some(Self::File(size));
        }
        let files = |text: &str| {
            let (count, size) = text.split_once('x')?;
            Some((count.parse().ok()?, parse_bytes(size).ok()?))
        };
        text.split(',').map(files).collect::<Option<_>>().map(Self::Directory)
    }

    /// All bytes; `None` if no file system could hold so many.
    fn bytes(&self) -> Option<i64> {
        let sum = match self {
            Self::File(size) => *size,
            Self::Directory(files) => files.iter().try_fold(0_u64, |sum, &(count, size)| {
                sum.checked_add(count.checked_mul(size.max(1))?)
            })?,
        };
        i64::try_from(sum).ok()
    }
}

impl NullSource {
    /// The source that the paths stand for; `None` if all of them are files.
    ///
    /// # Errors
    /// If there are others beside it, or an option has no meaning for it.
    pub(crate) fn of(paths: &[Vec<u8>], options: &Options) -> Result<Option<Self>, Fatal> {
        let Some(source) = paths.iter().find_map(|path| Self::parse(path)) else {
            let is_sink = paths.iter().any(|path| is_null_sink(path));
            let text = "null: as a source needs a size: null:10G; write ./null: for that file name";
            return if is_sink { Err(refused(text)) } else { Ok(None) };
        };
        let text = match () {
            () if paths.len() > 1 => "null:SIZE or zero:SIZE must be the only source",
            () if options.check => "lads check needs files at both ends",
            () if options.deletion.is_some() => "--delete needs whole directories as SRC",
            () if options.removes_sources => "--remove-source-files needs files as SRC",
            () if options.files_from.is_some() => "--files-from needs a directory as SRC",
            () if source.shape.bytes().is_none() => "no file can have that size",
            () => return Ok(Some(source)),
        };
        Err(refused(text))
    }

    /// `null:SHAPE` or `zero:SHAPE`; anything else is a path.
    fn parse(path: &[u8]) -> Option<Self> {
        let (word, shape) = std::str::from_utf8(path).ok()?.split_once(':')?;
        let is_filled = match word {
            "zero" => true,
            "null" => false,
            _ => return None,
        };
        Some(Self { is_filled, shape: Shape::parse(shape)?, made_at: now() })
    }

    /// Whether it is a directory of files.
    pub(crate) fn is_directory(&self) -> bool {
        matches!(self.shape, Shape::Directory(_))
    }

    /// The size of each file of the directory, from this one on; of the only file otherwise.
    pub(crate) fn sizes_from(&self, first: u64) -> impl Iterator<Item = u64> {
        let files = match &self.shape {
            Shape::File(size) => vec![(1, *size)],
            Shape::Directory(files) => files.clone(),
        };
        let mut passed = first;
        files.into_iter().flat_map(move |(count, size)| {
            let here = passed.min(count);
            passed -= here;
            (here..count).map(move |_| size)
        })
    }

    /// The name that the file or directory gets in a directory at the sink.
    pub(crate) fn name(&self) -> &'static [u8] {
        if self.is_filled { b"zero" } else { b"null" }
    }

    /// What a file of this size stays while it is read.
    pub(crate) fn identity(&self, size: u64) -> Identity {
        Identity { size, mtime: self.made_at, ctime: self.made_at, inode: 0 }
    }

    /// The metadata of a file or of the directory.
    pub(crate) fn metadata(&self, is_directory: bool) -> Metadata {
        Metadata {
            mode: if is_directory { 0o755 } else { 0o644 },
            uid: geteuid().as_raw(),
            gid: getegid().as_raw(),
            mtime: self.made_at,
            xattrs: Vec::new(),
        }
    }

    /// Reads a block. Memory for blocks is zero at first, and nothing else is ever read into it.
    pub(crate) fn fill(&self, block: &mut [u8]) {
        if self.is_filled {
            block.fill(0);
        }
    }
}

fn refused(text: &str) -> Fatal {
    Fatal::new(ExitCode::Usage, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Location;
    use std::ffi::OsStr;

    fn source(paths: &[&str], options: &Options) -> Result<Option<NullSource>, Fatal> {
        let paths: Vec<Vec<u8>> = paths.iter().map(|path| path.as_bytes().to_vec()).collect();
        NullSource::of(&paths, options)
    }

    #[test]
    fn a_size_makes_a_source_and_anything_else_is_a_path() {
        let of = |path| source(&[path], &Options::default()).unwrap();
        let size = |path| of(path).and_then(|it| it.sizes_from(0).next());
        assert_eq!([size("null:10"), size("zero:1.5K")], [Some(10), Some(1536)]);
        assert_eq!(
            [of("null:1").unwrap().name(), of("zero:1").unwrap().name()],
            [b"null", b"zero"]
        );
        let others = ["null:x", "./null:1", "/null:1", "nul:1", "null", "zero:", "zero:-1", "a"];
        for path in others.into_iter().chain(["null:x4K", "null:4x", "null:1x1,", "null:-1x1"]) {
            assert!(of(path).is_none(), "{path}");
        }
    }

    #[test]
    fn counts_and_sizes_make_a_directory() {
        let source = source(&["null:3x4K,0x9,2x1M"], &Options::default()).unwrap().unwrap();
        assert!(source.is_directory());
        let sizes = |first| source.sizes_from(first).collect::<Vec<_>>();
        assert_eq!(sizes(0), [4096, 4096, 4096, 1 << 20, 1 << 20]);
        assert_eq!((sizes(2), sizes(4)), (vec![4096, 1 << 20, 1 << 20], vec![1 << 20]));
        assert_eq!((sizes(5), sizes(99)), (vec![], vec![]));
    }

    #[test]
    fn what_has_no_meaning_is_refused() {
        let options = Options::default();
        let text = |result: Result<Option<NullSource>, Fatal>| result.unwrap_err().text;
        assert!(text(source(&["null:1", "a"], &options)).contains("must be the only source"));
        assert!(text(source(&["null:"], &options)).contains("needs a size"));
        for path in ["zero:15E", "null:16x1E", "null:18446744073709551615x0"] {
            assert!(text(source(&[path], &options)).contains("that size"), "{path}");
        }
        let checks = Options { check: true, ..Options::default() };
        assert!(text(source(&["null:1"], &checks)).contains("lads check"));
        assert!(check_null_sink(&checks).unwrap_err().text.contains("discards it"));
        check_null_sink(&options).unwrap();
    }

    #[test]
    fn hosts_named_null_and_zero_can_still_be_written() {
        let parse = |text: &str| {
            let location = Location::parse(OsStr::new(text)).unwrap();
            (location.host, location.path)
        };
        let host = |text: &str| Some(text.to_owned());
        assert_eq!(parse("null:"), (None, b"null:".to_vec()));
        assert_eq!(parse("zero:4K"), (None, b"zero:4K".to_vec()));
        assert_eq!(parse("dtn:null:"), (host("dtn"), b"null:".to_vec()));
        assert_eq!(parse("null:./4K"), (host("null"), b"./4K".to_vec()));
        assert_eq!(parse("zero:"), (host("zero"), b".".to_vec()));
        let real = [Location::here("null:"), Location::here("zero:4K"), Location::here("a:b")];
        assert_eq!(real.map(|it| it.path), [&b"./null:"[..], b"./zero:4K", b"a:b"]);
    }
}
