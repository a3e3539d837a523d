use super::*;

const MB: u64 = 1_000_000;

/// OSTs on one OSS, each of which moves a megabyte in 100 ms.
fn queues(ost_count: usize) -> Queues {
    let mut queues = Queues::new(&vec![0; ost_count], 1, Duration::ZERO);
    for ost in 0..ost_count {
        queues.set_rate(ost, Some(10 * MB));
    }
    queues
}

fn read(ticket: Ticket) -> Piece {
    read_at(ticket, ticket, 0)
}

fn read_at(ticket: Ticket, file: u64, offset: u64) -> Piece {
    let start = Start { file, offset };
    Piece { ticket, bytes: MB, direction: Direction::Read, start }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Lets time pass step by step; returns when each piece ended, in rounded milliseconds.
fn run(queues: &mut Queues, until: Duration) -> Vec<(u64, Ticket)> {
    let mut ends = Vec::new();
    while let Some(at) = queues.next_timeout().filter(|at| *at <= until + ms(1)) {
        let mut ended = Vec::new();
        queues.advance(at, &mut ended);
        let rounded = u64::try_from((at + Duration::from_micros(500)).as_millis()).unwrap();
        ends.extend(ended.into_iter().map(|ticket| (rounded, ticket)));
    }
    queues.advance(until, &mut Vec::new());
    ends
}

#[test]
fn serves_one_at_a_time_first_come_first_served() {
    let mut queues = queues(2);
    for (ost, ticket) in [(0, 1), (0, 2), (1, 3), (0, 4)] {
        assert!(queues.submit(ost, read(ticket)));
    }
    assert_eq!(run(&mut queues, ms(1000)), [(100, 1), (100, 3), (200, 2), (300, 4)]);
}

#[test]
fn serves_at_the_rate_in_force_while_it_serves() {
    let mut queues = queues(1);
    queues.submit(0, read(1));
    queues.submit(0, read(2));
    run(&mut queues, ms(50));
    queues.set_rate(0, Some(MB));
    run(&mut queues, ms(150));
    queues.set_rate(0, Some(10 * MB));
    // Half was done after 50 ms, another tenth in the 100 ms of congestion, and the rest at full
    // rate. The piece that waited meanwhile moves at full rate as well.
    assert_eq!(run(&mut queues, ms(1000)), [(190, 1), (290, 2)]);
}

#[test]
fn does_not_drift_however_late_it_is_asked() {
    let mut queues = queues(1);
    for ticket in 0..100 {
        queues.submit(0, read(ticket));
    }
    let mut ended = Vec::new();
    queues.advance(ms(7_077), &mut ended);
    assert_eq!(ended.len(), 70);
    queues.advance(ms(10_001), &mut ended);
    assert_eq!(ended.len(), 100);
}

#[test]
fn osts_of_one_oss_share_its_rate_while_they_are_busy() {
    let mut queues = queues(2);
    queues.set_oss_rate(0, Some(10 * MB));
    queues.submit(0, read(1));
    queues.submit(1, read(2));
    queues.submit(1, read(3));
    assert_eq!(run(&mut queues, ms(1000)), [(200, 1), (200, 2), (300, 3)]);
}

#[test]
fn latency_takes_none_of_the_servers_rate() {
    let mut queues = queues(2);
    queues.set_oss_rate(0, Some(10 * MB));
    queues.set_latency(1, ms(100));
    queues.submit(0, read(1));
    queues.submit(1, read(2));
    assert_eq!(run(&mut queues, ms(1000)), [(100, 1), (200, 2)]);
}

#[test]
fn jitter_follows_from_the_seed() {
    let ends = |seed| {
        let mut queues = Queues::new(&[0], seed, Duration::ZERO);
        queues.set_jitter(0, ms(100));
        for ticket in 0..20 {
            queues.submit(0, read(ticket));
        }
        run(&mut queues, ms(5000))
    };
    assert_eq!(ends(1), ends(1));
    assert_ne!(ends(1), ends(2));
    assert!(ends(1).last().unwrap().0 <= 2000);
}

#[test]
fn what_has_no_limit_waits_for_nothing() {
    let mut queues = Queues::new(&[0], 1, Duration::ZERO);
    assert!(!queues.submit(0, read(1)));
    assert_eq!(queues.next_timeout(), None);
    assert_eq!(queues.tally(0).read_bytes, MB);
}

#[test]
fn lifting_a_limit_frees_what_waits_at_once() {
    let mut queues = queues(1);
    queues.submit(0, read(1));
    queues.submit(0, read(2));
    run(&mut queues, ms(10));
    queues.set_rate(0, None);
    assert_eq!(run(&mut queues, ms(20)), [(10, 1), (10, 2)]);
}

#[test]
fn a_rate_of_zero_stands_still_until_it_changes() {
    let mut queues = queues(1);
    queues.submit(0, read(1));
    run(&mut queues, ms(50));
    queues.set_rate(0, Some(0));
    assert_eq!(queues.next_timeout(), None);
    run(&mut queues, ms(500));
    queues.set_rate(0, Some(10 * MB));
    assert_eq!(run(&mut queues, ms(1000)), [(550, 1)]);
}

#[test]
fn counts_bytes_requests_busy_time_and_queues() {
    let mut queues = queues(1);
    for ticket in 0..3 {
        queues.submit(0, read(ticket));
    }
    run(&mut queues, ms(50));
    assert_eq!((queues.tally(0).busy, queues.queued(0)), (ms(50), 2));
    run(&mut queues, ms(1000));
    let tally = queues.tally(0);
    assert_eq!((tally.read_bytes, tally.reads, tally.written_bytes), (3 * MB, 3, 0));
    assert_eq!((tally.in_flight_max, tally.queued_max), (3, 2));
    assert!(tally.busy >= ms(300) && tally.busy < ms(301), "{:?}", tally.busy);
}

#[test]
fn an_ost_that_goes_down_gives_back_what_it_had_to_do() {
    let mut queues = queues(2);
    for ticket in 0..3 {
        queues.submit(0, read(ticket));
    }
    queues.submit(1, read(7));
    assert_eq!(queues.abandon(0), [0, 1, 2]);
    assert_eq!(run(&mut queues, ms(1000)), [(100, 7)]);
}

#[test]
fn the_arm_moves_unless_a_request_begins_where_the_last_one_has_ended() {
    let mut queues = queues(1);
    queues.set_seek(0, ms(8));
    queues.submit(0, read_at(1, 7, 0));
    queues.submit(0, read_at(2, 7, MB));
    queues.submit(0, read_at(3, 7, 3 * MB));
    queues.submit(0, read_at(4, 8, 4 * MB));
    assert_eq!(run(&mut queues, ms(1000)), [(108, 1), (208, 2), (316, 3), (424, 4)]);
}
