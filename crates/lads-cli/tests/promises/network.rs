//! A network that damages and breaks what it carries.

use crate::proxy::{Harm, Proxy, Towards, free_port};
use crate::tree::assert_nothing_left_over;
use crate::world::{
    Ended, RUN_HERE, Rng, World, assert_identical, for_seeds, has, run, sends_nothing_again, there,
};
use std::time::Duration;

const TOTAL_BYTES: u64 = 12 << 20;

/// A transfer through a proxy that does harm, and the world that it happened in.
struct Harmed {
    world: World,
    ended: Ended,
    shell: String,
    towards: Towards,
}

impl Harmed {
    fn new(rng: &mut Rng, harm: Harm, options: &[&str]) -> Self {
        // The seed decides between a push and a pull.
        let towards = if rng.is_one_in(2) { Towards::Listener } else { Towards::Connecter };
        Self::with(World::with_files(rng), towards, harm, options)
    }

    fn with(world: World, towards: Towards, harm: Harm, options: &[&str]) -> Self {
        let shell = world.fake_shell(RUN_HERE);
        let port = free_port();
        let proxy = Proxy::start(port, harm, towards);
        let (ports, address) = (format!("{port}-{port}"), format!("127.0.0.1:{}", proxy.port));
        let mut command = Self::command(&world, &shell, towards);
        // The last of two addresses counts: the proxy's.
        command.args(["--ports", &ports, "--data-address", &address]).args(options);
        let ended = run(command);
        assert!(
            proxy.has_harmed(),
            "no harm was done on {} connections: {ended:?}",
            proxy.connection_count()
        );
        Self { world, ended, shell, towards }
    }

    fn command(world: &World, shell: &str, towards: Towards) -> std::process::Command {
        let mut command = there(shell);
        // The proxy finds the frames of data in clear; `protected.rs` damages records.
        command.env("LADS_DATA", "plain").args(["--lab", "block-size=256K"]);
        let (source, target) = (world.source_contents(), world.target().display().to_string());
        match towards {
            Towards::Listener => command.arg(source).arg(format!("there:{target}")),
            Towards::Connecter => command.arg(format!("there:{source}")).arg(target),
        };
        command
    }

    fn is_identical(&self) {
        assert_identical(&self.world.source(), &self.world.target());
        assert_nothing_left_over(&self.world.target());
    }
}

#[test]
fn a_flipped_bit_is_found_and_only_that_block_is_sent_again() {
    if !has("rsync") {
        return;
    }
    for_seeds(5, 100, |seed| {
        let mut rng = Rng::new(seed);
        let harm = Harm::FlipInPayload(rng.next() % TOTAL_BYTES);
        let harmed = Harmed::new(&mut rng, harm, &[]);
        assert_eq!(harmed.ended.code, Some(0), "{:?}", harmed.ended);
        assert_eq!(harmed.ended.count("blocks_resent"), 1, "{:?}", harmed.ended);
        harmed.is_identical();
    });
}

#[test]
fn a_flipped_bit_in_a_header_costs_one_stream() {
    if !has("rsync") {
        return;
    }
    for_seeds(3, 60, |seed| {
        let mut rng = Rng::new(seed);
        let harm = Harm::FlipInHeader(rng.next() % TOTAL_BYTES);
        let harmed = Harmed::new(&mut rng, harm, &["--streams", "3"]);
        assert_eq!(harmed.ended.code, Some(0), "{:?}", harmed.ended);
        harmed.is_identical();
    });
}

#[test]
fn a_stream_that_is_reset_does_not_end_the_transfer() {
    if !has("rsync") {
        return;
    }
    for_seeds(3, 60, |seed| {
        let mut rng = Rng::new(seed);
        let harm = Harm::ResetOne(rng.next() % TOTAL_BYTES);
        let harmed = Harmed::new(&mut rng, harm, &["--streams", "3"]);
        assert_eq!(harmed.ended.code, Some(0), "{:?}", harmed.ended);
        harmed.is_identical();
    });
}

#[test]
fn when_all_streams_are_reset_the_same_command_resumes() {
    if !has("rsync") {
        return;
    }
    for_seeds(3, 60, |seed| {
        let mut rng = Rng::new(seed);
        let harm = Harm::ResetAll(rng.next() % (TOTAL_BYTES / 2), 3);
        let harmed = Harmed::new(&mut rng, harm, &["--streams", "3", "--bwlimit", "40M"]);
        assert_eq!(harmed.ended.code, Some(5), "{:?}", harmed.ended);
        harmed.ended.was_within(Duration::from_secs(5));
        let ended = run(Harmed::command(&harmed.world, &harmed.shell, harmed.towards)).expect(0);
        sends_nothing_again(&harmed.ended, &ended);
        harmed.is_identical();
    });
}

/// The sink ended at once, and had put nothing on record: that is done once a second.
#[test]
fn what_had_come_from_a_source_that_gives_up_is_not_sent_again() {
    if !has("rsync") {
        return;
    }
    for towards in [Towards::Listener, Towards::Connecter] {
        let world = World::new();
        world.write("src/file", &Rng::new(1).bytes(12 << 20));
        let harm = Harm::ResetAll(7 << 20, 3);
        let harmed = Harmed::with(world, towards, harm, &["--streams", "3", "--bwlimit", "40M"]);
        assert_eq!(harmed.ended.code, Some(5), "{:?}", harmed.ended);
        let ended = run(Harmed::command(&harmed.world, &harmed.shell, harmed.towards)).expect(0);
        let skipped_bytes = ended.count("bytes_skipped");
        assert!(skipped_bytes > 3 << 20, "{:?}\nand then {ended:?}", harmed.ended);
        harmed.is_identical();
    }
}

#[test]
fn a_pull_through_the_same_network_is_no_different() {
    if !has("rsync") {
        return;
    }
    let world = World::new();
    world.write("src/a", &Rng::new(1).bytes(3 << 20));
    world.write("src/b/c", &Rng::new(2).bytes(1000));
    let shell = world.fake_shell(RUN_HERE);
    let mut command = there(&shell);
    command.arg(format!("there:{}", world.source_contents())).arg(world.target());
    run(command).expect(0);
    assert_identical(&world.source(), &world.target());
}
