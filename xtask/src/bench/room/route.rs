//! The network between source and sink: loopback, or a line with a long delay between two network
//! namespaces.
//!
//! A mover is a command at the source and, for most, a server at the sink. A route has the prefix
//! for the command of each end, and the addresses of both.

use crate::shell;
use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The distance between source and sink: the loops of the XDD paper, table I.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum Distance {
    /// A round trip of 0.28 ms.
    Ornl,
    /// A round trip of 26.8 ms.
    Chicago,
    /// A round trip of 128 ms.
    Seattle,
    /// A round trip of 163 ms.
    Sunnyvale,
}

impl Distance {
    /// All distances, the shortest first.
    pub(super) const ALL: [Self; 4] = [Self::Ornl, Self::Chicago, Self::Seattle, Self::Sunnyvale];

    /// The round-trip time as text.
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

/// The rate of the long line. It is less than the 9.6 Gbit/s in the papers, because two cores have
/// to carry it and also serve two file systems.
const LINE_RATE: &str = "4Gbit";

/// A line between two network namespaces. It is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Line {
    child: Child,
    /// The route along this line.
    pub(super) route: Route,
}

impl Line {
    /// Sets up a line.
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
        // From here on, the line is removed whatever happens.
        let mut line = Self { child, route: Route::loopback() };
        let said = serde_json::from_str(&said).context("the line was not laid")?;
        line.route = route_of(&said, distance)?;
        Ok(line)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // The process waits until its stdin is closed, and then removes the line.
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

/// How to start programs at the two ends, and how these reach each other.
#[derive(Clone, Debug)]
pub(super) struct Route {
    /// The name in the results.
    pub(super) name: String,
    /// The address of the source.
    pub(super) source_address: String,
    /// The address of the sink.
    pub(super) sink_address: String,
    /// The words before each command at the source.
    pub(super) source_prefix: Vec<String>,
    /// The words before each command at the sink.
    pub(super) sink_prefix: Vec<String>,
    /// The rate of the line, if it is limited.
    pub(super) bytes_per_second: Option<u64>,
}

impl Route {
    /// The loopback network only.
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

    /// A port at the sink that is free now. Another program could take it before it is used.
    pub(super) fn free_port(&self) -> Result<u16> {
        // In a network namespace of our own, all ports are free.
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
