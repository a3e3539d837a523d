//! Shows where an entry is, as `side:host:path`. An entry has a path below the source that the user
//! named.

use lads_core::issue::Side;
use lads_core::text::escape;
use lads_engine::{Job, Location, shown_before_path, shown_host};

/// The sources and the target of a transfer.
#[derive(Debug)]
pub(crate) struct Places {
    pub(super) sources: Vec<Location>,
    pub(super) target: Location,
    /// Whether an end can be read or written only once.
    pub(super) is_once: bool,
    /// Whether the target is a new name for the only source, a file, and no directory. The sink
    /// finds this out; until then, it is false.
    pub(super) is_renamed: bool,
}

impl Places {
    /// Takes the places from a job.
    pub(crate) fn new(job: &Job) -> Self {
        let (sources, target) = (job.sources.clone(), job.target.clone());
        Self { sources, target, is_once: job.is_once(), is_renamed: false }
    }

    /// Returns the directory into which entries go as text: `dtn2:/scratch/`.
    pub(super) fn directory_text(&self) -> String {
        let host = self.target.host.as_deref().map_or_else(String::new, shown_before_path);
        let target = self.target.path.as_slice();
        let name = if self.is_renamed { last_component(target) } else { b"" };
        let directory = match &target[..trimmed(target).len() - name.len()] {
            b"" if self.is_renamed => b"./",
            _ if !self.is_renamed => target,
            directory => directory,
        };
        let slash = if directory.ends_with(b"/") { "" } else { "/" };
        format!("{}{}{slash}", escape(host.as_bytes()), escape(directory))
    }

    /// Returns the path that an entry has below that directory.
    pub(super) fn below_target(&self, path: Vec<u8>) -> Vec<u8> {
        if self.is_renamed { last_component(&self.target.path).to_vec() } else { path }
    }

    /// Returns whether the line of `lads check` with this path is about a directory that the user
    /// named without a slash at its end.
    pub(super) fn is_named_directory(&self, path: &[u8]) -> bool {
        let named = self.sources.iter().filter(|source| !is_contents_only(&source.path));
        let mut names = named.map(|source| last_component(&source.path));
        path.strip_suffix(b"/").is_some_and(|path| names.any(|name| name == path))
    }

    /// Returns the notice that such a directory does not exist at the sink: the user may have meant
    /// to compare its contents with those of the target.
    pub(super) fn not_compared(&self, path: &[u8]) -> String {
        let target = self.directory_text();
        let name = escape(trimmed(path));
        format!(
            "{name} was compared with {target}{name}, which does not exist; to compare its \
             contents with those of {target}, add a slash to the source: {name}/"
        )
    }

    /// Returns the host of a side as text, if it is another host.
    pub(super) fn host_text(&self, side: Side) -> Option<String> {
        self.host(side).map(|host| escape(shown_host(host).as_bytes()))
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

    /// Returns the whole path of an entry on its side.
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
            _ if self.is_renamed => self.target.path.clone(),
            _ => join(&self.target.path, path),
        }
    }

    /// Returns `sink:dtn2:/scratch/run7/a`, or `sink:/scratch/run7/a` if the side is on this host.
    pub(super) fn describe(&self, side: Side, path: &[u8]) -> String {
        let host = self.host(side).map_or_else(String::new, shown_before_path);
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
        Places { sources, target: parse(target), is_once: false, is_renamed: false }
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
    fn a_file_under_a_new_name_has_the_path_of_the_target() {
        for (target, directory, name) in [
            ("h:/x/b", "h:/x/", "b"),
            ("/b", "/", "b"),
            ("b", "./", "b"),
            ("h:b", "h:./", "b"),
            ("../x/b", "../x/", "b"),
        ] {
            let renamed = Places { is_renamed: true, ..places(&["/data/a"], target) };
            assert_eq!(renamed.describe(Side::Sink, b"a"), format!("sink:{target}"));
            assert_eq!(renamed.describe(Side::Source, b"a"), "source:/data/a");
            assert_eq!(renamed.directory_text(), directory);
            assert_eq!(renamed.below_target(b"a".to_vec()), name.as_bytes());
        }
    }

    #[test]
    fn a_directory_that_was_named_is_told_apart_from_one_that_was_found() {
        let named = places(&["/data/run7", "x/"], "h:/y");
        assert!(named.is_named_directory(b"run7/"));
        for other in ["run7", "run7/run7/", "x/", "y/"] {
            assert!(!named.is_named_directory(other.as_bytes()), "{other}");
        }
        let expected = "run7 was compared with h:/y/run7, which does not exist; to compare its \
                        contents with those of h:/y/, add a slash to the source: run7/";
        assert_eq!(named.not_compared(b"run7/"), expected);
    }

    #[test]
    fn the_directory_of_a_tree_is_the_target() {
        for (target, directory) in [("h:/x", "h:/x/"), ("/x/", "/x/"), (".", "./"), ("/", "/")] {
            let places = places(&["/data/x"], target);
            assert_eq!(places.directory_text(), directory);
            assert_eq!(places.below_target(b"x".to_vec()), b"x");
        }
        let same_name = places(&["/data/x"], "/y/x");
        assert_eq!(same_name.describe(Side::Sink, b"x"), "sink:/y/x/x", "a directory of that name");
    }
}
