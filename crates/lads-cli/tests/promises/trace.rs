//! The system calls of a sink, in the order in which they began and ended, as recorded by `strace`.

use crate::world::{LADS, World, has, not_tried, run, there};
use lads_core::message::{LENGTH_BYTES, Message, decode};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The calls of a sink that are traced.
const CALLS: &str =
    "trace=read,write,pwrite64,fsync,fdatasync,linkat,renameat,renameat2,rename,unlinkat";

/// A call that succeeded. Begin and end are line numbers of the trace. A call that ended on an
/// earlier line than another one began was over before the other.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) name: String,
    /// The paths of its descriptors.
    pub(crate) handles: Vec<PathBuf>,
    /// Its text arguments: written bytes, or names.
    pub(crate) texts: Vec<Vec<u8>>,
    /// The offset in the file, if it is a write.
    pub(crate) offset: Option<u64>,
    pub(crate) begin: usize,
    pub(crate) end: usize,
    /// Its return value.
    result: u64,
}

impl Call {
    /// Returns whether it makes this file or directory durable.
    pub(crate) fn syncs(&self, path: &Path) -> bool {
        matches!(self.name.as_str(), "fsync" | "fdatasync") && self.handles == [path]
    }

    /// Returns whether it writes to this file.
    pub(crate) fn writes(&self, path: &Path) -> bool {
        self.name == "pwrite64" && self.handles == [path]
    }

    /// Returns the old and the new path, if it is a rename, or gives a name to a file that has
    /// none. Until then, strace shows such a file under a name with its number.
    pub(crate) fn renames(&self) -> Option<(PathBuf, PathBuf)> {
        let is_rename = self.name.starts_with("rename") || self.name == "linkat";
        let path = |index: usize| match self.texts[index].as_slice() {
            b"" => self.handles[index].clone(),
            name => self.handles[index].join(OsStr::from_bytes(name)),
        };
        is_rename.then(|| (path(0), path(1)))
    }

    /// Returns the range of bytes that it wrote.
    pub(crate) fn range(&self) -> std::ops::Range<u64> {
        let offset = self.offset.unwrap();
        offset..offset + self.result
    }
}

/// A message between the two ends.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) message: Message,
    /// The line on which the call began that wrote or read its last byte.
    pub(crate) begin: usize,
}

/// The trace of a sink.
pub(crate) struct Trace {
    pub(crate) calls: Vec<Call>,
    /// The messages from the sink to the source.
    pub(crate) told: Vec<Said>,
    /// The messages from the source to the sink.
    pub(crate) heard: Vec<Said>,
}

impl Trace {
    /// Pushes `src` of a world to its `dst` with these options; returns `None` where tracing is not
    /// possible.
    pub(crate) fn of_sink(world: &World, options: &[&str]) -> Option<Self> {
        if !has("strace") {
            return None;
        }
        let path = world.path("trace");
        // Paths, names and bytes appear as hexadecimal numbers, so that no text can be taken for
        // syntax.
        let words = ["-f", "-y", "-xx", "-s", "2000000", "-e", CALLS];
        let mut probe = Command::new("strace");
        probe.args(words).arg("-o").arg(&path).arg("true").stderr(Stdio::null());
        if !probe.status().unwrap().success() {
            not_tried("strace may trace nothing here");
            return None;
        }
        let traced = format!("exec strace {} -o '{}' \"$@\"", words.join(" "), path.display());
        let shell = world.fake_shell(&format!("shift; {traced}"));
        let mut command = there(&shell);
        command.args(options).arg(world.source_contents());
        command.arg(format!("there:{}", world.target().display()));
        run(command).expect(0);
        let calls = parse(&fs::read_to_string(path).unwrap());
        let told = messages(&calls, "write");
        let heard = messages(&calls, "read");
        assert!(!told.is_empty() && !heard.is_empty(), "{LADS} said nothing over a pipe");
        Some(Self { calls, told, heard })
    }

    /// Returns the calls for which this is true.
    pub(crate) fn calls(&self, is_one: impl Fn(&Call) -> bool) -> impl Iterator<Item = &Call> {
        self.calls.iter().filter(move |call| is_one(call))
    }

    /// Returns whether a file or directory was made durable between these lines.
    pub(crate) fn is_synced(&self, path: &Path, after: usize, before: usize) -> bool {
        self.calls(|call| call.syncs(path)).any(|call| call.begin > after && call.end < before)
    }
}

/// Returns the calls that succeeded.
fn parse(trace: &str) -> Vec<Call> {
    let mut calls = Vec::new();
    // The calls that a thread has begun and not ended.
    let mut begun: HashMap<&str, (usize, &str)> = HashMap::new();
    for (number, line) in trace.lines().enumerate() {
        let (thread, what) = line.split_once(' ').unwrap();
        let what = what.trim_start();
        let (begin, beginning, ending) = if let Some(text) = what.strip_prefix("<... ") {
            let Some((begin, beginning)) = begun.remove(thread) else { continue };
            (begin, beginning, text.split_once(" resumed>").map_or("", |(_, rest)| rest))
        } else if let Some(beginning) = what.strip_suffix(" <unfinished ...>") {
            begun.insert(thread, (number, beginning));
            continue;
        } else {
            (number, what, "")
        };
        let whole = format!("{beginning}{ending}");
        calls.extend(call(&whole, begin, number));
    }
    calls
}

/// Parses a call; returns `None` if the text is not a call, or if the call failed.
fn call(text: &str, begin: usize, end: usize) -> Option<Call> {
    let (text, result) = text.rsplit_once(" = ")?;
    let result = result.split_whitespace().next()?.parse().ok()?;
    let (name, arguments) = text.split_once('(')?;
    let handles = between(arguments, '<', '>')
        .into_iter()
        .map(|bytes| PathBuf::from(OsStr::from_bytes(&bytes)));
    let offset = arguments.trim_end().trim_end_matches(')').rsplit(", ").next()?.parse().ok();
    let offset = offset.filter(|_| name == "pwrite64");
    let (handles, texts) = (handles.collect(), between(arguments, '"', '"'));
    Some(Call { name: name.to_owned(), handles, texts, offset, begin, end, result })
}

/// Returns the bytes of the `\xNN` sequences between each pair of these characters.
fn between(text: &str, open: char, close: char) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((_, after)) = rest.split_once(open) {
        let Some((inner, after)) = after.split_once(close) else { break };
        let bytes = inner.split("\\x").skip(1).map(|hex| u8::from_str_radix(hex, 16).unwrap());
        found.push(bytes.collect());
        rest = after;
    }
    found
}

/// Returns the messages on the pipe that carries the most of them.
fn messages(calls: &[Call], name: &str) -> Vec<Said> {
    let mut pipes: HashMap<&Path, Vec<&Call>> = HashMap::new();
    for call in calls.iter().filter(|call| call.name == name) {
        if let [handle] = &call.handles[..]
            && handle.as_os_str().as_bytes().starts_with(b"pipe:")
        {
            pipes.entry(handle).or_default().push(call);
        }
    }
    pipes.into_values().map(|calls| said(&calls)).max_by_key(Vec::len).unwrap_or_default()
}

/// Decodes the messages from the written or read bytes, one call after the other.
fn said(calls: &[&Call]) -> Vec<Said> {
    let mut said = Vec::new();
    let mut bytes: Vec<u8> = Vec::new();
    for call in calls {
        let count = usize::try_from(call.result).unwrap();
        bytes.extend(&call.texts[0][..count.min(call.texts[0].len())]);
        while let Some(length) = bytes.get(..LENGTH_BYTES) {
            let length = u32::from_le_bytes(length.try_into().unwrap()) as usize;
            if bytes.len() < LENGTH_BYTES + length {
                break;
            }
            let message: Vec<u8> = bytes.drain(..LENGTH_BYTES + length).collect();
            if let Ok(message) = decode(&message[LENGTH_BYTES..]) {
                said.push(Said { message, begin: call.begin });
            }
        }
    }
    said
}
