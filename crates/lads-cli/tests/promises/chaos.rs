//! A network with every kind of fault: what arrives is right, or an error is reported and the same
//! command goes on.

use crate::faultfs::testbed;
use crate::proxy::free_port;
use crate::tree::assert_nothing_left_over;
use crate::world::{
    Ended, RUN_HERE, Rng, World, assert_identical, blocks_on_record, byte_count, for_seeds, has,
    run, there,
};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// The proxy of the machine room, running as a separate program.
struct Chaos {
    process: Child,
    port: u64,
    log: PathBuf,
}

impl Chaos {
    fn start(world: &World, to_port: u16, seed: u64, rules: &[&str]) -> Self {
        let log = world.path("chaos.log");
        let mut command = Command::new(testbed());
        command.args(["proxy", "--to", &format!("127.0.0.1:{to_port}")]);
        command.args(["--seed", &seed.to_string()]);
        command.args(rules.iter().flat_map(|rule| ["--fault", rule]));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(&log).unwrap());
        let mut process = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap();
        Self { process, port: said["port"].as_u64().unwrap(), log }
    }

    /// Returns the proxy's log, line by line.
    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    fn has_done(&self, event: &str) -> bool {
        self.log().contains(&format!("\"event\":\"{event}\""))
    }
}

impl Drop for Chaos {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A push or a pull of a tree through the proxy.
struct Transfer {
    world: World,
    shell: String,
    is_push: bool,
}

impl Transfer {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let world = World::with_files(&mut rng);
        let shell = world.fake_shell(RUN_HERE);
        Self { world, shell, is_push: rng.is_one_in(2) }
    }

    /// Returns the direction in which the proxy sees the data go.
    fn way(&self) -> &'static str {
        if self.is_push { "way=out" } else { "way=back" }
    }

    fn command(&self) -> Command {
        let mut command = there(&self.shell);
        command.args(["--lab", "block-size=256K", "--streams", "3"]);
        let (source, target) =
            (self.world.source_contents(), self.world.target().display().to_string());
        match self.is_push {
            true => command.arg(source).arg(format!("there:{target}")),
            false => command.arg(format!("there:{source}")).arg(target),
        };
        command
    }

    /// Runs the transfer through a proxy with these rules, in which `DATA` stands for the direction
    /// of the data. Returns how it ended, and the proxy.
    fn through(&self, seed: u64, rules: &[&str], options: &[&str]) -> (Ended, Chaos) {
        let port = free_port();
        let rules: Vec<String> =
            rules.iter().map(|rule| rule.replace("DATA", self.way())).collect();
        let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
        let chaos = Chaos::start(&self.world, port, seed, &rules);
        let (ports, address) = (format!("{port}-{port}"), format!("127.0.0.1:{}", chaos.port));
        let mut command = self.command();
        command.args(["--ports", &ports, "--data-address", &address]).args(options);
        let ended = run(command);
        assert!(chaos.has_done("connected"), "not through the proxy: {ended:?}\n{}", chaos.log());
        (ended, chaos)
    }

    fn is_identical(&self) {
        assert_identical(&self.world.source(), &self.world.target());
        assert_nothing_left_over(&self.world.target());
    }

    /// Checks that files under their own names are whole, no matter how the transfer ended.
    /// The bytes that the next attempt need not send: of files that have their names, and of blocks
    /// that are on record. The last blocks of a file that only waits for its name are not on record
    /// (`Sink::settle`), although the source was told that they are done.
    fn kept_bytes(&self) -> u64 {
        let names = (0..4).map(|number| format!("large{number}"));
        let names = names.chain((0..40).map(|number| format!("small/{number}")));
        let kept = names.map(|name| match fs::metadata(self.world.target().join(&name)) {
            Ok(there) => there.len(),
            Err(_) => byte_count(&blocks_on_record(&self.world.target(), &name)),
        });
        kept.sum()
    }

    fn has_no_wrong_byte(&self) {
        let names = (0..4).map(|number| format!("large{number}"));
        for name in names.chain((0..40).map(|number| format!("small/{number}"))) {
            if let Ok(arrived) = fs::read(self.world.target().join(&name)) {
                let own = fs::read(self.world.source().join(&name)).unwrap();
                assert!(arrived == own, "{name} is wrong");
            }
        }
    }
}

/// The most attempts. A fault waits for a number of bytes on one stream. If another stream carries
/// nearly all of the data, the fault does not happen, and the test tries again.
const ATTEMPTS_MAX: usize = 20;

/// Runs transfers through a network with these faults, and calls `look` on each in which one
/// happened.
fn through_faults(rules: &[&str], options: &[&str], look: impl Fn(&Transfer, Ended)) {
    if !has("rsync") {
        return;
    }
    for_seeds(2, 30, |seed| {
        for _ in 0..ATTEMPTS_MAX {
            let transfer = Transfer::new(seed);
            let (ended, chaos) = transfer.through(seed, rules, options);
            let has_happened = rules.is_empty() || chaos.has_done("fault");
            drop(chaos);
            if has_happened {
                return look(&transfer, ended);
            }
            assert_eq!(ended.code, Some(0), "{ended:?}");
            transfer.is_identical();
        }
        panic!("{rules:?} never happened");
    });
}

/// Runs transfers through a network with these faults; each must arrive.
fn arrives(rules: &[&str], options: &[&str]) {
    through_faults(rules, options, |transfer, ended| {
        assert_eq!(ended.code, Some(0), "{ended:?}");
        transfer.is_identical();
    });
}

/// Runs transfers through a network with these faults. Each must arrive, or end with the exit code
/// of a lost network; in that case the same command without these faults must bring the rest.
fn arrives_or_goes_on(rules: &[&str], options: &[&str]) {
    through_faults(rules, options, |transfer, ended| {
        transfer.has_no_wrong_byte();
        if ended.code != Some(0) {
            assert_eq!(ended.code, Some(5), "{ended:?}");
            assert!(!ended.summary()["message"].as_str().unwrap().is_empty(), "{ended:?}");
            let kept_bytes = transfer.kept_bytes();
            let again = run(transfer.command()).expect(0);
            let missing_bytes = again.count("bytes_found") - kept_bytes;
            assert!(again.count("bytes_sent") <= missing_bytes, "{ended:?}\nand then {again:?}");
        }
        transfer.is_identical();
    });
}

#[test]
fn a_network_that_is_slow_and_cuts_bytes_anywhere_changes_nothing() {
    arrives(&["delay=20", "rate=20000000", "recut=1500"], &[]);
    arrives(&["recut=1..64 after=0..100000"], &[]);
}

#[test]
fn connections_that_arrive_in_another_order_change_nothing() {
    if !has("rsync") {
        return;
    }
    for_seeds(3, 30, |seed| {
        let transfer = Transfer::new(seed);
        let (ended, chaos) = transfer.through(seed, &["reorder=3"], &[]);
        assert_eq!(ended.code, Some(0), "{ended:?}\n{}", chaos.log());
        transfer.is_identical();
    });
}

#[test]
fn a_flipped_bit_anywhere_in_a_stream_changes_no_file() {
    arrives_or_goes_on(&["flip DATA of=all after=126..10000000"], &[]);
}

#[test]
fn many_flipped_bits_change_no_file() {
    let rules =
        ["flip DATA after=42..90000", "flip DATA after=90000..900000", "flip DATA after=9..42"];
    arrives_or_goes_on(&rules[..2], &[]);
    arrives_or_goes_on(&rules, &[]);
}

#[test]
fn a_reset_at_any_byte_of_one_stream_is_survived() {
    arrives_or_goes_on(&["reset connection=1..4 after=0..2000000"], &[]);
}

#[test]
fn when_all_connections_are_reset_at_any_byte_the_same_command_goes_on() {
    arrives_or_goes_on(&["reset-all of=all after=100..10000000"], &[]);
}

#[test]
fn a_stream_that_is_closed_one_way_is_survived() {
    arrives_or_goes_on(&["close DATA connection=1..4 after=0..2000000"], &["--timeout", "5"]);
}

#[test]
fn one_stream_whose_opening_is_never_answered_is_noticed() {
    arrives_or_goes_on(&["stop connection=1..4"], &["--timeout", "3"]);
}

#[test]
fn a_network_that_swallows_everything_from_the_start_is_noticed() {
    arrives_or_goes_on(&["black-hole"], &["--timeout", "3"]);
}

#[test]
fn a_stream_that_something_in_between_swallows_is_noticed_and_sent_again() {
    arrives(&["stop connection=1..4 after=10000..900000"], &["--timeout", "2"]);
}

#[test]
fn a_network_that_begins_to_swallow_everything_is_noticed() {
    arrives_or_goes_on(&["black-hole after=10000..900000"], &["--timeout", "2"]);
}
