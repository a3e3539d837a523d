//! Walking the source's tree: several threads do it, but the resulting order is always the same.

use crate::faultfs::{Daemon, testbed};
use crate::world::{Stopwatch, World, run};
use serde_json::Value;
use std::fs;
use std::process::Command;
use std::time::Duration;

/// The latency of the metadata server: long in comparison with the machine's own work.
const LATENCY: Duration = Duration::from_millis(5);

/// A single thread would wait for every answer before it asks the next question.
#[test]
fn a_slow_metadata_server_is_asked_many_questions_at_once() {
    let world = World::new();
    fs::create_dir(world.source()).unwrap();
    let mut command = Command::new(testbed());
    command.args(["pfs", "--osts=2"]).arg(world.source());
    let Some(_daemon) = Daemon::start(command) else { return };
    for number in 0..300 {
        world.write(format!("src/wide/{number}"), b"");
        world.write(format!("src/many/{}/{number}", number / 5), b"");
    }
    let control = world.source().join(".pfs/control");
    let order = format!("reset-stats\nmetadata-latency {}\n", LATENCY.as_micros());
    fs::write(&control, order).unwrap();
    let watch = Stopwatch::start();
    let ended = run(world.cp(&["-n"])).expect(0);
    let elapsed = watch.elapsed();
    fs::write(&control, "metadata-latency 0\n").unwrap();
    assert_eq!(ended.events_of("line").iter().filter(|it| it["verb"] == "send").count(), 600);
    let stats = fs::read(world.source().join(".pfs/stats")).unwrap();
    let stats: Value = serde_json::from_slice(&stats).unwrap();
    let question_count = stats["metadata_operations"].as_u64().unwrap();
    let one_by_one = LATENCY * u32::try_from(question_count).unwrap();
    assert!(question_count > 600, "{question_count}");
    assert!(elapsed < one_by_one / 2, "{elapsed:?}, one by one {one_by_one:?}");
}

/// The order decides which name of a file with several names is sent and which become links. What
/// another attempt can go on with depends on it, too.
#[test]
fn a_tree_is_told_in_the_same_order_each_time() {
    let world = World::new();
    for number in 0..400 {
        let first = format!("src/first/{}/{number}", number % 7);
        world.write(&first, b"one file");
        let second = world.path(format!("src/second/{}", number % 5));
        fs::create_dir_all(&second).unwrap();
        fs::hard_link(world.path(&first), second.join(number.to_string())).unwrap();
    }
    let sent = || {
        let ended = run(world.cp(&["-n"])).expect(0);
        let lines = ended.events_of("line");
        let sent = lines.into_iter().filter(|it| it["verb"] == "send");
        let mut sent: Vec<String> = sent.map(|it| it["path"].to_string()).collect();
        sent.sort();
        sent
    };
    let first = sent();
    assert_eq!(first.len(), 400);
    for _ in 0..5 {
        assert_eq!(sent(), first);
    }
}
