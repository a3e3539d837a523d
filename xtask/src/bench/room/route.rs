//! What lies between source and sink: loopback, or a long line between two network namespaces.
//!
//! A mover is a command at the source and, for most, a server at the sink. A route says what is
//! put before the command of each end, and how the sink is called.

use crate::shell;
use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// How far apart source and sink are: the loops of the XDD paper, table I.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum Distance {
    /// 0.28 ms there and back.
    Ornl,
    /// 26.8 ms.
    Chicago,
    /// 128 ms.
    Seattle,
    /// 163 ms.
    Sunnyvale,
}

impl Distance {
    /// All, the nearest first.
    pub(super) const ALL: [Self; 4] = [Self::Ornl, Self::Chicago, Self::Seattle, Self::Sunnyvale];

    /// As people say it.
    pub(super) fn said(self) -> &'static str {
        match self {
            Self::Ornl => "0.28 ms",
            Self::Chicago => "26.8 ms",
            Self::Seattle => "128 ms",
            Self::Sunnyvale => "163 ms",
        }
    }

    fn preset(self) -> &'static str {
        match self {
            Self::Ornl => "ornl",
            Self::Chicago => "chicago",
            Self::Seattle => "seattle",
            Self::Sunnyvale => "sunnyvale",
        }
    }
}

/// What the long line carries: less than the papers' 9.6 Gbit/s, for two cores have to carry it and
/// serve two file systems besides.
const LINE_RATE: &str = "4Gbit";

/// A line between two network namespaces; taken down when this is dropped.
#[derive(Debug)]
pub(super) struct Line {
    child: Child,
    /// How to go along it.
    pub(super) route: Route,
}

impl Line {
    /// Lays a line.
    pub(super) fn lay(testbed: &Path, distance: Distance) -> Result<Self> {
        let mut child = shell::command(testbed)
            .args(["wan", "--preset", distance.preset(), "--rate", LINE_RATE])
            .args(["up", "lads-bench"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot lay the line")?;
        let mut said = String::new();
        BufReader::new(child.stdout.take().expect("piped above")).read_line(&mut said)?;
        // From here on it is taken down whatever happens.
        let mut line = Self { child, route: Route::loopback() };
        let said = serde_json::from_str(&said).context("the line was not laid")?;
        line.route = route_of(&said, distance)?;
        Ok(line)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // It waits until its stdin is closed, and tidies up then.
        drop(self.child.stdin.take());
        if let Err(error) = self.child.wait() {
            println!("the line does not go: {error}");
        }
    }
}

fn route_of(said: &Value, distance: Distance) -> Result<Route> {
    let prefix = |end: &str| -> Result<Vec<String>> {
        Ok(["ip", "netns", "exec", &text(said, end, "namespace")?].map(str::to_owned).to_vec())
    };
    Ok(Route {
        name: format!("{} there and back, {LINE_RATE}/s", distance.said()),
        source_address: text(said, "source", "address")?,
        sink_address: text(said, "sink", "address")?,
        source_prefix: prefix("source")?,
        sink_prefix: prefix("sink")?,
        bytes_per_second: said["rate_bytes_per_second"].as_u64(),
    })
}

fn text(said: &Value, end: &str, key: &str) -> Result<String> {
    let text = said[end][key].as_str().map(str::to_owned);
    text.with_context(|| format!("no {key} of the {end}"))
}

/// How programs at the two ends are started, and reach each other.
#[derive(Clone, Debug)]
pub(super) struct Route {
    /// What it is called in results.
    pub(super) name: String,
    /// The address of the source.
    pub(super) source_address: String,
    /// The address of the sink.
    pub(super) sink_address: String,
    /// Put before each command at the source.
    pub(super) source_prefix: Vec<String>,
    /// Put before each command at the sink.
    pub(super) sink_prefix: Vec<String>,
    /// What the line carries, if that is limited.
    pub(super) bytes_per_second: Option<u64>,
}

impl Route {
    /// No network but the loopback one.
    pub(super) fn loopback() -> Self {
        Self {
            name: "loopback".to_owned(),
            source_address: "127.0.0.1".to_owned(),
            sink_address: "127.0.0.1".to_owned(),
            source_prefix: Vec::new(),
            sink_prefix: Vec::new(),
            bytes_per_second: None,
        }
    }

    /// Whether both ends share a file system tree and a network.
    pub(super) fn is_local(&self) -> bool {
        self.sink_prefix.is_empty()
    }

    /// A command that runs at the source.
    pub(super) fn at_source(&self, program: &str) -> Command {
        command(&self.source_prefix, program)
    }

    /// A command that runs at the sink.
    pub(super) fn at_sink(&self, program: &str) -> Command {
        command(&self.sink_prefix, program)
    }

    /// A port at the sink that nobody listened on a moment ago.
    pub(super) fn free_port(&self) -> Result<u16> {
        // A namespace of our own is as empty as ports go.
        if self.is_local() { crate::sshd::free_port() } else { Ok(45_000) }
    }
}

fn command(prefix: &[String], program: &str) -> Command {
    match prefix.split_first() {
        None => shell::command(program),
        Some((first, rest)) => {
            let mut command = shell::command(first);
            command.args(rest).arg(program);
            command
        }
    }
}
