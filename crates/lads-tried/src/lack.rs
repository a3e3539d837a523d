//! What is missing, and that it is said.

use std::fmt;
use std::io::Write as _;
use std::path::PathBuf;

/// The environment variable that names the file in which everything is listed that was not tried.
pub const LIST_VARIABLE: &str = "LADS_NOT_TRIED";

/// Where daemons lie, which often is outside a user's `PATH`.
const DAEMONS: [&str; 3] = ["/usr/sbin", "/usr/local/sbin", "/sbin"];

/// Why something was not tried.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lack {
    /// A program of this name is not installed.
    Program(String),
    /// The machine cannot do it, or its owner does not permit it; in words.
    Machine(String),
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program(name) => write!(f, "{name} is not installed"),
            Self::Machine(why) => f.write_str(why),
        }
    }
}

/// A test that did not try all that it is there for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotTried {
    /// Its name.
    pub test: String,
    /// What it misses.
    pub lack: Lack,
}

impl NotTried {
    /// The line that stands for it in the list; [`Self::parse`] reads it.
    fn line(&self) -> String {
        let (kind, what) = match &self.lack {
            Lack::Program(name) => ("program", name),
            Lack::Machine(why) => ("machine", why),
        };
        let what = what.replace(['\n', '\t'], " ");
        format!("{kind}\t{what}\t{}\n", self.test)
    }

    /// What a line of the list says; `None` if it is not one.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split('\t');
        let (kind, what) = (fields.next()?, fields.next()?.to_owned());
        let test = fields.next()?.to_owned();
        let lack = match kind {
            "program" => Lack::Program(what),
            "machine" => Lack::Machine(what),
            _ => return None,
        };
        Some(Self { test, lack })
    }
}

/// Where a program is, if it is installed.
#[must_use]
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(DAEMONS.map(PathBuf::from))
        .map(|directory| directory.join(program))
        .find(|place| place.is_file())
}

/// Whether a program is installed; if not, that is said.
#[must_use]
pub fn has(program: &str) -> bool {
    let is_there = find(program).is_some();
    if !is_there {
        tell(Lack::Program(program.to_owned()));
    }
    is_there
}

/// Whether we are root; if not, that is said.
#[must_use]
pub fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        not_tried("this needs root");
    }
    is_root
}

/// Says that the machine does not allow to try something, and why.
pub fn not_tried(why: &str) {
    tell(Lack::Machine(why.to_owned()));
}

fn tell(lack: Lack) {
    // The test runner calls the thread of a test by its name.
    let test = std::thread::current().name().unwrap_or("?").to_owned();
    let not_tried = NotTried { test, lack };
    let NotTried { test, lack } = &not_tried;
    // Neither can be told anywhere if it fails.
    let _ = writeln!(std::io::stderr(), "NOT TRIED: {test}: {lack}");
    if let Some(list) = std::env::var_os(LIST_VARIABLE) {
        // One write at the end of the file: tests of several processes do not mix their lines.
        let file = std::fs::OpenOptions::new().append(true).create(true).open(list);
        let _ = file.and_then(|mut file| file.write_all(not_tried.line().as_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_into_the_list_is_what_is_read_from_it() {
        for lack in [Lack::Program("rsync".to_owned()), Lack::Machine("no root".to_owned())] {
            let not_tried = NotTried { test: "a_test".to_owned(), lack };
            assert_eq!(NotTried::parse(not_tried.line().trim_end()), Some(not_tried));
        }
        let odd = NotTried { test: "t".to_owned(), lack: Lack::Machine("a\nb\tc".to_owned()) };
        let read = NotTried::parse(odd.line().trim_end()).map(|it| it.lack);
        assert_eq!(read, Some(Lack::Machine("a b c".to_owned())));
        assert_eq!(NotTried::parse("something else"), None);
    }

    #[test]
    fn a_program_is_found_if_it_is_there() {
        assert!(has("sh"));
        assert!(find("no-program-has-this-name").is_none());
    }
}
