//! Judgement of the facts: one finding per check, with the remedy for each problem.

use super::facts::Facts;
use super::trial::Arrival;
use crate::args::level_of;
use lads_core::issue::Side;
use lads_core::protection::Protection;
use lads_core::shares::stream_count;
use lads_core::sizes;
use lads_core::tuning::Tuning;
use serde::Serialize;
use std::time::Duration;

/// Difference of the clocks from which on it matters: `-u` compares times, and file systems round
/// them to at most 2 s.
const CLOCK_DIFFERENCE_MAX: Duration = Duration::from_secs(2);
/// Number of files that LADS may have open with default options.
const OPEN_FILES_MIN: u64 = 4096;
/// Number of threads of an end with default options and many OSTs.
const THREADS_MIN: u64 = 256;
/// Free space below which a transfer of any size is likely to fail, in bytes, and in files.
const FREE_BYTES_MIN: u64 = 1 << 30;
const FREE_FILES_MIN: u64 = 1000;
/// Number of streams to a host next door.
const STREAMS_NEAR: u16 = 4;

/// Result of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) check: &'static str,
    pub(super) is_ok: bool,
    pub(super) text: String,
    /// Remedy of a problem.
    pub(super) todo: Option<String>,
}

impl Finding {
    pub(super) fn ok(check: &'static str, text: impl Into<String>) -> Self {
        Self { check, is_ok: true, text: text.into(), todo: None }
    }

    pub(super) fn problem(
        check: &'static str,
        text: impl Into<String>,
        todo: impl Into<String>,
    ) -> Self {
        Self { check, is_ok: false, text: text.into(), todo: Some(todo.into()) }
    }
}

/// Result of the trial connection to the other host.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    pub(super) arrival: Arrival,
    pub(super) round_trip: Option<Duration>,
    pub(super) path_mtu: Option<u32>,
}

/// Tells what protects data in transit: the source asks for what its settings want, and the other
/// host refuses less than its own.
pub(super) fn of_protection(here: &Facts, there: &Facts) -> Finding {
    let level = |facts: &Facts| match &facts.data_level {
        Ok(name) => level_of(name),
        Err(error) => Err(error.clone()),
    };
    let todo = |host: &str| format!("write data = \"encrypted\" into the configuration of {host}");
    let (asked, own) = match (level(here), level(there)) {
        (Ok(asked), Ok(own)) => (asked, own),
        (Err(error), _) => return Finding::problem("data", error, todo(&here.host)),
        (_, Err(error)) => return Finding::problem("data", error, todo(&there.host)),
    };
    let has_aes = here.has_aes && there.has_aes;
    match asked.protection(own, has_aes) {
        Some(Protection::Aes128Gcm) => Finding::ok("data", "is encrypted with AES-128-GCM"),
        Some(Protection::ChaCha20Poly1305) => Finding::ok(
            "data",
            "is encrypted with ChaCha20-Poly1305, because a host has no instructions for AES",
        ),
        Some(other) => Finding::problem(
            "data",
            format!("is {}, as the settings of both hosts want it", other.level()),
            format!("{}, or lads cp --data encrypted", todo(&here.host)),
        ),
        None => Finding::problem(
            "data",
            format!("this host asks for {asked} data, and {} wants {own}", there.host),
            format!("{}, or lads cp --data {own}", todo(&here.host)),
        ),
    }
}

/// Judges the connection for data, `there` being the name of the other host.
pub(super) fn of_port(there: &str, port: u16, connection: &Result<Connection, String>) -> Finding {
    let todo = format!(
        "open a range of TCP ports on {there} (--ports FIRST-LAST), let the end there connect (lads \
         cp --connect) if the way back is open, or use --tunnel: without that, lads cp loses 2 s \
         and sends data through ssh, which is slower"
    );
    match connection {
        Ok(Connection { arrival: Arrival::Nothing, .. }) => {
            let text = format!("another program answers at port {port} of {there}");
            Finding::problem("port", text, format!("check --data-address; {todo}"))
        }
        Ok(Connection { arrival: Arrival::ShortPackets, path_mtu, .. }) => {
            let bytes = path_mtu.map_or_else(String::new, |bytes| format!(" of {bytes} bytes"));
            let text = format!("packets{bytes} to {there} are lost, and shorter ones arrive");
            let todo = "reduce the MTU of the interface, or run sysctl -w \
                        net.ipv4.tcp_mtu_probing=1 at both ends";
            Finding::problem("port", text, todo)
        }
        Ok(Connection { arrival: Arrival::All, .. }) => {
            Finding::ok("port", format!("data connections to port {port} of {there} succeed"))
        }
        Err(reason) => {
            let text = format!("data connections to port {port} of {there} fail: {reason}");
            Finding::problem("port", text, todo)
        }
    }
}

/// Describes connections in the other direction, which transfers from there need, and those with
/// `--connect`.
pub(super) fn of_way_back(there: &str, answer: &str) -> Finding {
    let text = match answer {
        "open" => format!("data connections from {there} to this host succeed"),
        reason => format!(
            "data connections from {there} to this host fail ({reason}); only transfers that are \
             started there, or whose end there connects (--connect), need them"
        ),
    };
    Finding::ok("port back", text)
}

/// Judges the path MTU.
pub(super) fn of_mtu(here: &Facts, there: &Facts, connection: &Connection) -> Option<Finding> {
    let path = connection.path_mtu?;
    let links = here.link_mtu.zip(there.link_mtu).map(|(here, there)| here.min(there));
    let text = format!("packets have up to {path} bytes");
    Some(match links.filter(|&link| link > path) {
        Some(link) => Finding::ok("path MTU", format!("{text}; the interfaces allow {link}")),
        None => Finding::ok("path MTU", text),
    })
}

/// Judges the windows of TCP against bandwidth times delay, in both directions.
pub(super) fn of_windows(here: &Facts, there: &Facts, round_trip: Duration) -> Vec<Finding> {
    let links = [here.link_megabits, there.link_megabits];
    let link = links.into_iter().flatten().min().map(|megabits| megabits * 1_000_000 / 8);
    let of = |from: &Facts, to: &Facts| {
        let window = from.tcp.limits().window_bytes(Side::Source);
        let window = window.min(to.tcp.limits().window_bytes(Side::Sink));
        let streams = stream_count(&Tuning::DEFAULT, STREAMS_NEAR, round_trip, window);
        let in_flight = u128::from(streams) * u128::from(window);
        let micros = round_trip.as_micros().max(1);
        let possible = u64::try_from(in_flight * 1_000_000 / micros).unwrap_or(u64::MAX);
        let way = format!("{} to {}", from.host, to.host);
        let text = format!(
            "{way}: {} with windows of {} carry {}/s over {:.1} ms; the link {}",
            sizes::counted(streams.into(), "stream"),
            sizes::bytes(window),
            sizes::bytes(possible),
            round_trip.as_secs_f64() * 1e3,
            link.map_or_else(
                || "has an unknown rate".to_owned(),
                |rate| format!("has {}/s", sizes::bytes(rate))
            )
        );
        let Some(rate) = link.filter(|&rate| possible < rate) else {
            return Finding::ok("TCP windows", text);
        };
        // With so large windows, there are no further streams. Half of the limit is the window.
        let product = u128::from(rate) * micros / 1_000_000;
        let limit = (product / u128::from(STREAMS_NEAR) * 2).next_power_of_two();
        let todo = format!(
            "on {}: sysctl -w net.ipv4.tcp_wmem='4096 65536 {limit}' \
             net.ipv4.tcp_congestion_control=bbr; on {}: sysctl -w \
             net.ipv4.tcp_rmem='4096 131072 {limit}'",
            from.host, to.host
        );
        Finding::problem("TCP windows", text, todo)
    };
    vec![of(here, there), of(there, here)]
}

/// Judges the difference of the clocks. `ahead`: nanoseconds by which the clock there is ahead.
pub(super) fn of_clocks(there: &str, ahead: i128, uncertainty: Duration) -> Finding {
    let nanos = u64::try_from(ahead.unsigned_abs()).unwrap_or(u64::MAX);
    let difference = Duration::from_nanos(nanos);
    let sign = if ahead < 0 { "behind" } else { "ahead" };
    let text = format!("the clock of {there} is {} {sign}", sizes::span(difference));
    match difference > CLOCK_DIFFERENCE_MAX + uncertainty {
        true => {
            let todo = "synchronise both clocks (chronyc tracking): -u compares times of change";
            Finding::problem("clocks", text, todo)
        }
        false => Finding::ok("clocks", "they agree"),
    }
}

/// Judges the limits of the processes of an end.
pub(super) fn of_limits(facts: &Facts) -> Finding {
    let host = &facts.host;
    let of_count = |limit: Option<u64>, min: u64| limit.is_some_and(|limit| limit < min);
    let (mut problems, mut todo) = (Vec::new(), Vec::new());
    if let Some(bytes) = facts.file_bytes_max {
        problems.push(format!("files have at most {} (ulimit -f)", sizes::bytes(bytes)));
        todo.push("ulimit -f unlimited");
    }
    if of_count(facts.open_files_max, OPEN_FILES_MIN) {
        let limit = facts.open_files_max.unwrap_or_default();
        problems.push(format!("at most {limit} open files (ulimit -Hn)"));
        todo.push("ulimit -n 65536, as root or in /etc/security/limits.conf");
    }
    if of_count(facts.threads_max, THREADS_MIN) {
        let limit = facts.threads_max.unwrap_or_default();
        problems.push(format!("at most {limit} threads (ulimit -u)"));
        todo.push("ulimit -u 4096");
    }
    match problems.is_empty() {
        true => Finding::ok("limits", format!("{host}: high enough ({})", facts.system)),
        false => {
            let text = format!("{host}: {}", problems.join(", "));
            Finding::problem("limits", text, format!("on {host}: {}", todo.join("; ")))
        }
    }
}

/// Judges the storage of an end.
pub(super) fn of_storage(facts: &Facts) -> Finding {
    let host = &facts.host;
    let storage = match &facts.storage {
        Ok(storage) => storage,
        Err(reason) => {
            let todo = "name a directory that exists and that you may read";
            return Finding::problem("storage", format!("{host}: {reason}"), todo);
        }
    };
    let text = format!("{host}:{}", storage.described());
    let path = &storage.path;
    match () {
        () if storage.is_read_only => {
            let todo = format!("{host}:{path} can only be a source");
            Finding::problem("storage", format!("{text}, mounted read-only"), todo)
        }
        () if !storage.is_writable => {
            let todo = format!("get permission to write to {host}:{path}, or use it as a source");
            Finding::problem("storage", format!("{text}, no permission to write"), todo)
        }
        () if storage.free_bytes < FREE_BYTES_MIN => {
            Finding::problem("storage", text, format!("free space in {host}:{path}"))
        }
        () if storage.free_files < FREE_FILES_MIN => {
            let text =
                format!("{text}, and inodes for {}", sizes::counted(storage.free_files, "file"));
            Finding::problem("storage", text, format!("free inodes in {host}:{path}"))
        }
        () => Finding::ok("storage", text),
    }
}

#[cfg(test)]
mod tests {
    use super::super::facts::{Storage, Tcp};
    use super::*;

    fn facts(host: &str) -> Facts {
        Facts {
            host: host.to_owned(),
            system: "Linux 6.1 x86_64".to_owned(),
            reached_at: String::new(),
            client: String::new(),
            port: Ok(7),
            file_bytes_max: None,
            threads_max: None,
            link_megabits: None,
            link_mtu: None,
            tcp: Tcp {
                receive_bytes_max: 64 << 20,
                send_bytes_max: 64 << 20,
                congestion: "bbr".to_owned(),
            },
            open_files_max: Some(1 << 20),
            data_level: Ok("encrypted".to_owned()),
            has_aes: true,
            storage: Ok(Storage {
                path: "/scratch".to_owned(),
                kind: "lustre".to_owned(),
                osts: 8,
                stripes: Some("1 stripe of 1.0 MiB".to_owned()),
                free_bytes: 1 << 40,
                total_bytes: 1 << 41,
                free_files: u64::MAX,
                is_read_only: false,
                is_writable: true,
            }),
        }
    }

    fn todo(finding: &Finding) -> &str {
        assert!(!finding.is_ok, "{finding:?}");
        finding.todo.as_deref().unwrap()
    }

    #[test]
    fn windows_are_compared_with_bandwidth_times_delay_in_both_directions() {
        let (here, mut there) = (facts("here"), facts("there"));
        let far = Duration::from_millis(128);
        there.link_megabits = Some(10_000);
        // Four streams carry 4 x 32 MiB in 128 ms, which is less than 10 Gbit/s.
        let found = of_windows(&here, &there, far);
        for (found, hosts) in found.iter().zip(["on here: sysctl", "on there: sysctl"]) {
            let rmem = "net.ipv4.tcp_rmem='4096 131072 134217728'";
            assert!(todo(found).starts_with(hosts) && todo(found).contains(rmem), "{found:?}");
        }
        assert!(of_windows(&here, &there, far / 2).iter().all(|it| it.is_ok));
        there.tcp.receive_bytes_max = 6 << 20;
        let found = of_windows(&here, &there, far / 2);
        assert!(!found[0].is_ok && found[1].is_ok, "{found:?}");
        there.link_megabits = None;
        assert!(of_windows(&here, &there, far)[0].is_ok);
    }

    #[test]
    fn clocks_agree_within_what_can_be_measured() {
        let second = 1_000_000_000;
        assert!(of_clocks("there", second, Duration::ZERO).is_ok);
        assert!(of_clocks("there", -3 * second, Duration::from_secs(1)).is_ok);
        let found = of_clocks("there", -3 * second, Duration::ZERO);
        assert!(todo(&found).contains("chronyc") && found.text.contains("3.0 s behind"));
        assert!(of_clocks("there", 3 * second, Duration::ZERO).text.contains("ahead"));
    }

    #[test]
    fn each_limit_is_named_with_its_remedy() {
        assert!(of_limits(&facts("there")).is_ok);
        let limited = Facts {
            file_bytes_max: Some(1 << 30),
            open_files_max: Some(100),
            threads_max: Some(20),
            ..facts("there")
        };
        let found = of_limits(&limited);
        for text in ["1.0 GiB (ulimit -f)", "100 open files", "20 threads"] {
            assert!(found.text.contains(text), "{found:?}");
        }
        for text in ["ulimit -f unlimited", "ulimit -n", "ulimit -u"] {
            assert!(todo(&found).contains(text), "{found:?}");
        }
    }

    #[test]
    fn storage_is_described_and_each_obstacle_is_a_problem() {
        let found = of_storage(&facts("there"));
        let text = "there:/scratch: lustre, 8 OSTs, new files: 1 stripe of 1.0 MiB, 1.0 TiB of";
        assert!(found.is_ok && found.text.starts_with(text), "{found:?}");
        let changed = |change: &dyn Fn(&mut Storage)| {
            let mut facts = facts("there");
            change(facts.storage.as_mut().unwrap());
            of_storage(&facts)
        };
        assert!(todo(&changed(&|it| it.is_read_only = true)).contains("only be a source"));
        assert!(todo(&changed(&|it| it.is_writable = false)).contains("permission"));
        assert!(todo(&changed(&|it| it.free_bytes = 5)).contains("free space"));
        assert!(todo(&changed(&|it| it.free_files = 5)).contains("free inodes"));
        let missing = Facts { storage: Err("no such".to_owned()), ..facts("there") };
        assert!(todo(&of_storage(&missing)).contains("exists"));
    }

    #[test]
    fn a_port_is_open_blocked_used_by_others_or_behind_a_short_mtu() {
        let connection =
            |arrival| Ok(Connection { arrival, round_trip: None, path_mtu: Some(9000) });
        assert!(of_port("there", 7, &connection(Arrival::All)).is_ok);
        let blocked = of_port("there", 7, &Err("timed out".to_owned()));
        assert!(todo(&blocked).contains("--ports") && blocked.text.contains("timed out"));
        assert!(todo(&of_port("there", 7, &connection(Arrival::Nothing))).contains("--data"));
        let short = of_port("there", 7, &connection(Arrival::ShortPackets));
        assert!(todo(&short).contains("tcp_mtu_probing") && short.text.contains("9000 bytes"));
    }

    #[test]
    fn protection_is_told_and_less_than_it_could_be_is_a_problem() {
        let with = |level: Result<&str, &str>, has_aes| Facts {
            data_level: level.map(str::to_owned).map_err(str::to_owned),
            has_aes,
            ..facts("dtn1")
        };
        let text = |here: &Facts, there: &Facts| {
            let Finding { is_ok, text, .. } = of_protection(here, there);
            (is_ok, text)
        };
        let encrypted = with(Ok("encrypted"), true);
        let told = |is_ok, text: &str| (is_ok, text.to_owned());
        assert_eq!(text(&encrypted, &encrypted), told(true, "is encrypted with AES-128-GCM"));
        let (is_ok, chacha) = text(&encrypted, &with(Ok("plain"), false));
        assert!(is_ok && chacha.contains("ChaCha20"), "{chacha}");
        let plain = with(Ok("plain"), true);
        let wanted = told(false, "is plain, as the settings of both hosts want it");
        assert_eq!(text(&plain, &plain), wanted);
        let wanted = "this host asks for plain data, and dtn1 wants encrypted";
        assert_eq!(text(&plain, &encrypted), told(false, wanted));
        assert_eq!(text(&encrypted, &with(Err("no level"), true)), told(false, "no level"));
    }
}
