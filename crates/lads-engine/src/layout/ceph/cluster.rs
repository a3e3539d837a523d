//! What a Ceph cluster says of its OSDs, pools and placement groups.
//!
//! The answers come from Ceph's own tool, `ceph`, as the user of its default or of `CEPH_CONF` and
//! `CEPH_ARGS`. One process gets all questions, because to start it takes longer than to answer. A
//! user who may only use the file system (`mon 'allow r'`) cannot ask the manager for all groups at
//! once, nor for space. Then the monitor is asked for each group.

use crate::thread::spawn;
use lads_core::ceph::Pool;
use lads_core::placement::OstState;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde_json::Value;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Ceph's tool.
const TOOL: &str = "ceph";

/// How long the cluster may take to answer; after that, missing answers are done without.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// The most bytes of answers that are read: a cluster of 10,000 OSDs sends a tenth of this.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// The most groups that are asked for one by one: a thousand take about a second.
const SINGLE_GROUPS_MAX: u32 = 4096;

/// Most OSDs: more than any cluster has.
const OSDS_MAX: usize = 16_000;

/// What is asked first. The monitor answers the first two, the manager the others.
const QUESTIONS: &str = "osd dump\nosd tree\npg dump pgs_brief\nosd df\n";

/// A cluster at the time of its answer; empty if it did not answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cluster {
    /// Which cluster it is.
    pub(super) fsid: String,
    /// By number.
    pub(super) osds: Vec<Osd>,
    /// The OSD that serves a group of a pool.
    pub(super) primaries: HashMap<(i64, u32), i64>,
    pools: Vec<Pool>,
}

/// An OSD.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Osd {
    pub(super) id: i64,
    pub(super) name: String,
    /// Its host, by the map of the cluster, or else its address.
    pub(super) host: String,
    pub(super) state: OstState,
    pub(super) capacity_bytes: u64,
    pub(super) free_bytes: u64,
    pub(super) is_flash: Option<bool>,
}

impl Cluster {
    /// Asks the tool; `None` if the tool is missing or does not answer.
    pub(super) fn ask() -> Option<Self> {
        let answers = answers(QUESTIONS)?;
        let mut cluster = Self::of(&answers)?;
        if cluster.primaries.is_empty() {
            let questions = cluster.single_questions();
            cluster.take_single(&self::answers(&questions)?);
        }
        (!cluster.primaries.is_empty()).then_some(cluster)
    }

    /// The pool with this name, or this number.
    pub(super) fn pool(&self, name: &str) -> Option<&Pool> {
        let by_name = self.pools.iter().find(|pool| pool.name == name);
        by_name.or_else(|| {
            let id: i64 = name.parse().ok()?;
            self.pools.iter().find(|pool| pool.id == id)
        })
    }

    fn of(answers: &[Value]) -> Option<Self> {
        let dump = answers.iter().find(|it| it["pools"].is_array())?;
        let mut cluster = Self {
            fsid: dump["fsid"].as_str()?.to_owned(),
            pools: list(&dump["pools"]).filter_map(pool_of).collect(),
            osds: list(&dump["osds"]).filter_map(osd_of).take(OSDS_MAX).collect(),
            primaries: HashMap::new(),
        };
        cluster.osds.sort_by_key(|osd| osd.id);
        for answer in answers {
            cluster.take_nodes(answer);
            for group in list(&answer["pg_stats"]) {
                cluster.take_group(group, group["acting_primary"].as_i64());
            }
        }
        Some(cluster)
    }

    /// Takes what `osd tree` says of hosts, and `osd df` of space.
    fn take_nodes(&mut self, answer: &Value) {
        for node in list(&answer["nodes"]) {
            let name = node["name"].as_str().unwrap_or_default();
            match node["type"].as_str() {
                Some("host") => {
                    for child in list(&node["children"]).filter_map(Value::as_i64) {
                        self.osd(child, |osd| name.clone_into(&mut osd.host));
                    }
                }
                Some("osd") => self.osd(node["id"].as_i64().unwrap_or(-1), |osd| osd.take(node)),
                _ => {}
            }
        }
    }

    fn osd(&mut self, id: i64, change: impl FnOnce(&mut Osd)) {
        if let Ok(at) = self.osds.binary_search_by_key(&id, |osd| osd.id) {
            change(&mut self.osds[at]);
        }
    }

    /// Takes what is said of one group, `2.1f`: pool, and number in hexadecimal.
    fn take_group(&mut self, group: &Value, primary: Option<i64>) {
        let id = group["pgid"].as_str().and_then(|id| id.split_once('.'));
        let id = id.and_then(|(pool, number)| {
            Some((pool.parse().ok()?, u32::from_str_radix(number, 16).ok()?))
        });
        if let (Some(id), Some(osd)) = (id, primary) {
            self.primaries.insert(id, osd);
        }
    }

    fn single_questions(&self) -> String {
        let groups = self.pools.iter().flat_map(|pool| {
            (0..pool.group_count).map(move |group| format!("pg map {}.{group:x}\n", pool.id))
        });
        groups.take(SINGLE_GROUPS_MAX as usize).collect()
    }

    /// The first OSD of a group serves it.
    fn take_single(&mut self, answers: &[Value]) {
        for answer in answers {
            self.take_group(answer, answer["acting"][0].as_i64());
        }
    }
}

impl Osd {
    fn take(&mut self, node: &Value) {
        self.is_flash = match node["device_class"].as_str() {
            Some("ssd" | "nvme") => Some(true),
            Some("hdd") => Some(false),
            _ => self.is_flash,
        };
        let bytes = |key: &str| node[key].as_u64().map(|kib| kib.saturating_mul(1024));
        if let (Some(capacity), Some(free)) = (bytes("kb"), bytes("kb_avail")) {
            (self.capacity_bytes, self.free_bytes) = (capacity, free);
        }
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// A pool that may hold data of a file system.
fn pool_of(pool: &Value) -> Option<Pool> {
    // The only hash that has ever been used for pools.
    let is_hashed = pool["object_hash"].as_u64() == Some(2);
    let uses = pool["application_metadata"].as_object();
    let is_of_files = uses.is_none_or(|uses| {
        uses.is_empty() || uses.get("cephfs").is_some_and(|it| it["metadata"].is_null())
    });
    let group_count = u32::try_from(pool["pg_num"].as_u64()?).ok().filter(|&count| count > 0)?;
    let name = pool["pool_name"].as_str()?.to_owned();
    let pool = Pool { id: pool["pool"].as_i64()?, name, group_count };
    (is_hashed && is_of_files).then_some(pool)
}

fn osd_of(osd: &Value) -> Option<Osd> {
    let id = osd["osd"].as_i64()?;
    let states: Vec<&str> = list(&osd["state"]).filter_map(Value::as_str).collect();
    let has = |state: &str| states.contains(&state);
    let state = if osd["up"].as_i64() != Some(1) {
        OstState::Down
    } else if has("full") {
        OstState::Full
    } else if osd["in"].as_i64() != Some(1) {
        OstState::NoCreate
    } else {
        OstState::Up
    };
    // `10.0.0.5:6800/1234`, or `[fd00::5]:6800/1234`.
    let address = osd["public_addr"].as_str().unwrap_or_default();
    let host = address.rsplit_once(':').map_or("", |(host, _)| host).to_owned();
    Some(Osd { id, name: format!("osd.{id}"), host, state, ..Osd::default() })
}

/// The tool's answers to these questions, one a line; `None` if there is no answer.
fn answers(questions: &str) -> Option<Vec<Value>> {
    let mut tool = Command::new(TOOL)
        .args(["--connect-timeout", "5", "--format", "json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let text = exchange(&mut tool, questions);
    // It has ended, or never will.
    let _ = tool.kill();
    let _ = tool.wait();
    Some(read(&text?))
}

/// Reads answers until one is not valid JSON; an answer may have several lines.
fn read(text: &[u8]) -> Vec<Value> {
    serde_json::Deserializer::from_slice(text).into_iter().map_while(Result::ok).collect()
}

fn exchange(tool: &mut Child, questions: &str) -> Option<Vec<u8>> {
    let (mut stdin, stdout) = (tool.stdin.take()?, tool.stdout.take()?);
    let questions = questions.to_owned();
    // The tool reads questions only as fast as it answers them, and there may be more than a pipe
    // holds.
    let ask = move || drop(stdin.write_all(questions.as_bytes()));
    let asking = spawn("lads-ceph-ask", ask).ok()?;
    let text = read_until(stdout, Instant::now() + ANSWER_MAX);
    let _ = tool.kill();
    // It ends with the tool, if not before.
    let _ = asking.join();
    text
}

/// Reads until the end, or until the deadline.
fn read_until(mut from: ChildStdout, deadline: Instant) -> Option<Vec<u8>> {
    let (mut text, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    while text.len() < ANSWER_BYTES_MAX {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).ok()?;
        let count = match poll(&mut [PollFd::new(&from, PollFlags::IN)], Some(&left)) {
            Err(Errno::INTR) => continue,
            Ok(0) => 0,
            _ => from.read(&mut buffer).ok()?,
        };
        if count == 0 {
            break;
        }
        text.extend_from_slice(&buffer[..count]);
    }
    Some(text)
}

#[cfg(test)]
pub(super) mod tests;
