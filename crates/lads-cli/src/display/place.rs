//! Shows where an entry is, as `side:host:path`. An entry has a path below the source that the user
//! named.

use lads_core::issue::Side;
use lads_core::text::escape;
use lads_engine::{Job, Location, shown_host};

/// The sources and the target of a transfer.
#[derive(Debug)]
pub(crate) struct Places {
    pub(super) sources: Vec<Location>,
    pub(super) target: Location,
    /// Whether an end can be read or written only once.
    pub(super) is_once: bool,
}

impl Places {
    /// Takes the places from a job.
    pub(crate) fn new(job: &Job) -> Self {
        let (sources, target) = (job.sources.clone(), job.target.clone());
        Self { sources, target, is_once: job.is_once() }
    }

    /// Returns the target as text: `dtn2:/scratch/`.
    pub(super) fn target_text(&self) -> String {
        let host = self.target.host.as_ref().map_or_else(String::new, |it| shown_host(it) + ":");
        format!("{}{}", escape(host.as_bytes()), escape(&self.target.path))
    }

    /// Returns whether one side is on another host.
    pub(super) fn has_remote(&self) -> bool {
        self.target.host.is_some() || self.sources.iter().any(|source| source.host.is_some())
    }

    /// Returns the host of a side; `None` means this host.
    pub(super) fn host(&self, side: Side) -> Option<&str> {
        let location = match side {
            Side::Source => self.sources.first()?,
            Side::Sink => &self.target,
        };
        location.host.as_deref()
    }

    /// Returns the whole path of an entry on its side. For the sink this is only the likely path by
    /// the command line: only the sink knows whether a single file got another name.
    pub(super) fn path(&self, side: Side, path: &[u8]) -> Vec<u8> {
        if side == Side::Source && self.sources.iter().any(|source| source.path == path) {
            // A source that does not exist is shown as the user named it.
            return path.to_vec();
        }
        let first = path.split(|&byte| byte == b'/').next().unwrap_or_default();
        let named = self.sources.iter().find(|source| {
            !is_contents_only(&source.path) && last_component(&source.path) == first
        });
        match (side, named.or_else(|| self.sources.first())) {
            (Side::Source, Some(source)) if named.is_some() => {
                join(&source.path, path.get(first.len() + 1..).unwrap_or_default())
            }
            (Side::Source, Some(source)) => join(&source.path, path),
            _ if last_component(&self.target.path) == path => self.target.path.clone(),
            _ => join(&self.target.path, path),
        }
    }

    /// Returns `sink:dtn2:/scratch/run7/a`, or `sink:/scratch/run7/a` if the side is on this host.
    pub(super) fn describe(&self, side: Side, path: &[u8]) -> String {
        let host = self.host(side).map_or_else(String::new, |host| shown_host(host) + ":");
        format!("{}:{}{}", side.word(), escape(host.as_bytes()), escape(&self.path(side, path)))
    }
}

fn trimmed(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
    &path[..end]
}

fn last_component(path: &[u8]) -> &[u8] {
    trimmed(path).rsplit(|&byte| byte == b'/').next().unwrap_or_default()
}

/// Returns whether the path means the contents of a directory, not the directory itself.
fn is_contents_only(path: &[u8]) -> bool {
    path.ends_with(b"/") || matches!(last_component(path), b"." | b"..")
}

fn join(base: &[u8], below: &[u8]) -> Vec<u8> {
    match (trimmed(base), below) {
        (base, b"") if !base.is_empty() => base.to_vec(),
        (base, below) => [base, b"/", below].concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(sources: &[&str], target: &str) -> Places {
        let parse = |text: &str| Location::parse(text.as_ref()).expect("it is text");
        let sources = sources.iter().map(|text| parse(text)).collect();
        Places { sources, target: parse(target), is_once: false }
    }

    fn check(sources: &[&str], target: &str, path: &str, source: &str, sink: &str) {
        let places = places(sources, target);
        assert_eq!(places.describe(Side::Source, path.as_bytes()), source);
        assert_eq!(places.describe(Side::Sink, path.as_bytes()), sink);
    }

    #[test]
    fn an_entry_has_a_whole_path_on_both_sides() {
        let (source, sink) = ("source:/data/run7/a/b", "sink:h:/scratch/run7/a/b");
        check(&["/data/run7"], "h:/scratch/", "run7/a/b", source, sink);
        check(&["/data/run7"], "h:/scratch", "run7/a/b", source, sink);
    }

    #[test]
    fn a_slash_at_the_end_leaves_out_a_level_at_the_sink() {
        check(&["/data/run7/"], "/scratch", "a", "source:/data/run7/a", "sink:/scratch/a");
        let (source, sink) = ("source:/data/run7/run7/a", "sink:/scratch/run7/a");
        check(&["/data/run7/"], "/scratch", "run7/a", source, sink);
        check(&["."], "/scratch", "a", "source:./a", "sink:/scratch/a");
        check(&["/"], "/scratch", "a", "source:/a", "sink:/scratch/a");
    }

    #[test]
    fn a_source_is_found_by_its_name() {
        let sources = ["h:one", "h:two/three"];
        check(&sources, "/x", "three/a", "source:h:two/three/a", "sink:/x/three/a");
    }

    #[test]
    fn a_source_that_was_named_is_told_as_it_was_named() {
        let places = places(&["/data/run7", "dir/", "../x"], "/y");
        for named in ["/data/run7", "dir/", "../x"] {
            let told = places.describe(Side::Source, named.as_bytes());
            assert_eq!(told, format!("source:{named}"));
        }
    }

    #[test]
    fn an_address_with_colons_is_told_in_brackets() {
        check(&["me@[::1]:/a/b"], "/x", "b", "source:me@[::1]:/a/b", "sink:/x/b");
    }

    #[test]
    fn a_single_file_may_have_the_target_for_its_name() {
        check(&["/data/a"], "h:/x/a", "a", "source:/data/a", "sink:h:/x/a");
    }
}
