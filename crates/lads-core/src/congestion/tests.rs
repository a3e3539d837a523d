use super::*;

const MIB: u64 = 1 << 20;

/// A judge whose OSTs have each served a few requests, in 10 ms.
fn judge(rule: Rule) -> (Judge, Instant) {
    let mut judge = Judge::new(rule, [4; 8].into_iter());
    let mut now = Instant::START;
    for _ in 0..10 {
        for ost in 0..8 {
            serve(&mut judge, &mut now, ost, 10);
        }
    }
    (judge, now)
}

/// One request at a time.
fn serve(judge: &mut Judge, now: &mut Instant, ost: u32, millis: u64) {
    let service = Duration::from_millis(millis);
    judge.on_start(OstId(ost), *now, MIB);
    *now = *now + service;
    judge.on_finish(OstId(ost), *now, MIB, service);
}

#[test]
fn two_slow_answers_make_an_ost_congested_and_two_good_ones_clear_it() {
    let (mut judge, mut now) = judge(Rule::Adaptive);
    serve(&mut judge, &mut now, 3, 50);
    assert_eq!(judge.verdict(OstId(3), now), Verdict::Clear, "one may be chance");
    serve(&mut judge, &mut now, 3, 50);
    assert_eq!(judge.verdict(OstId(3), now), Verdict::Congested);
    assert_eq!(judge.verdict(OstId(4), now), Verdict::Clear);
    now = now + PROBE_INTERVAL;
    assert_eq!(judge.verdict(OstId(3), now), Verdict::Probe);
    serve(&mut judge, &mut now, 3, 10);
    assert_eq!(judge.verdict(OstId(3), now), Verdict::Probe, "a good answer is followed up");
    serve(&mut judge, &mut now, 3, 10);
    assert_eq!(judge.verdict(OstId(3), now), Verdict::Clear);
}

#[test]
fn an_answer_that_does_not_come_tells_by_itself() {
    let (mut judge, mut now) = judge(Rule::Adaptive);
    judge.on_start(OstId(3), now, MIB);
    now = now + Duration::from_millis(20);
    assert_eq!(judge.verdict(OstId(3), now), Verdict::Clear);
    now = now + Duration::from_millis(20);
    assert_eq!(judge.verdict(OstId(3), now), Verdict::Congested);
}

#[test]
fn what_was_slow_and_has_nothing_to_do_is_given_another_chance() {
    let (mut judge, mut now) = judge(Rule::Adaptive);
    (0..20).for_each(|_| serve(&mut judge, &mut now, 3, 50));
    let beyond_usual = |after| judge.slowness_expected(OstId(3), now + after) - 1.0;
    let heard = judge.slowness(OstId(3)) - 1.0;
    assert!(heard > 1.0, "{heard}");
    assert!((beyond_usual(Duration::ZERO) - heard).abs() < 1e-6);
    assert!((beyond_usual(FORGOTTEN_AFTER) - heard / 2.0).abs() < 1e-6);
    assert!(beyond_usual(FORGOTTEN_AFTER * 8) < heard / 200.0);
}

#[test]
fn an_ost_is_slow_since_the_first_slow_request_began() {
    let (mut judge, mut now) = judge(Rule::Adaptive);
    assert_eq!(judge.slow_for(OstId(3), now), Duration::ZERO);
    let began = now;
    serve(&mut judge, &mut now, 3, 100);
    assert_eq!(judge.slow_for(OstId(3), now), Duration::ZERO);
    serve(&mut judge, &mut now, 3, 100);
    assert_eq!(judge.slow_for(OstId(3), now), now.since(began));
    for _ in 0..2 {
        serve(&mut judge, &mut now, 3, 10);
    }
    assert_eq!(judge.slow_for(OstId(3), now), Duration::ZERO);
}

#[test]
fn if_all_are_slow_none_is_congested_for_long() {
    let (mut judge, mut now) = judge(Rule::Adaptive);
    for _ in 0..60 {
        for ost in 0..8 {
            serve(&mut judge, &mut now, ost, 50);
        }
    }
    assert!((0..8).all(|ost| judge.verdict(OstId(ost), now) != Verdict::Congested));
}

#[test]
fn an_ost_that_was_always_slow_is_taken_as_it_is() {
    let (mut judge, mut now) = judge(Rule::Adaptive);
    let since = now;
    while now.since(since) < Duration::from_secs(120) {
        serve(&mut judge, &mut now, 3, 50);
        for ost in [0, 1, 2, 4, 5, 6, 7] {
            serve(&mut judge, &mut now, ost, 10);
        }
    }
    assert_eq!(judge.verdict(OstId(3), now), Verdict::Clear);
}

#[test]
fn our_own_queue_does_not_look_like_congestion() {
    let (mut judge, mut now) = judge(Rule::Adaptive);
    // Four at a time, served one after the other: the last takes four times as long.
    for round in 0..20 {
        for ost in 0..8 {
            (0..4).for_each(|_| judge.on_start(OstId(ost), now, MIB));
            for nth in 1..=4 {
                let service = Duration::from_millis(10 * nth);
                judge.on_finish(OstId(ost), now + service, MIB, service);
            }
            now = now + Duration::from_millis(40);
            assert!(!judge.is_congested(OstId(ost)), "round {round}");
        }
    }
}

#[test]
fn the_window_shrinks_by_half_and_grows_by_one() {
    let (mut judge, mut now) = judge(Rule::Adaptive);
    assert_eq!(judge.window(OstId(3)), 4);
    (0..2).for_each(|_| serve(&mut judge, &mut now, 3, 50));
    assert_eq!(judge.window(OstId(3)), 2);
    (0..20).for_each(|_| serve(&mut judge, &mut now, 3, 10));
    assert_eq!(judge.window(OstId(3)), 4);
}

#[test]
fn by_the_papers_rule_a_slow_mean_makes_so_many_threads_skip() {
    let threshold = Threshold { window: 10, limit_micros: 20_000, skips: 2 };
    let (mut judge, mut now) = judge(Rule::Threshold(threshold));
    (0..9).for_each(|_| serve(&mut judge, &mut now, 3, 50));
    assert_eq!(judge.verdict(OstId(3), now), Verdict::Clear, "the window is not full");
    serve(&mut judge, &mut now, 3, 50);
    let verdicts: Vec<_> = (0..3).map(|_| judge.verdict(OstId(3), now)).collect();
    assert_eq!(verdicts, [Verdict::Congested, Verdict::Congested, Verdict::Clear]);
}

#[test]
fn two_osts_have_nowhere_else_to_go() {
    let mut judge = Judge::new(Rule::Adaptive, [4; 2].into_iter());
    let mut now = Instant::START;
    (0..20).for_each(|_| serve(&mut judge, &mut now, 0, 10));
    (0..20).for_each(|_| serve(&mut judge, &mut now, 1, 100));
    assert_eq!(judge.verdict(OstId(1), now), Verdict::Clear);
}

#[test]
fn it_is_calm_when_nothing_was_congested_for_a_while() {
    let (mut judge, mut now) = judge(Rule::Adaptive);
    assert!(judge.is_calm(now));
    assert_eq!(judge.verdict(OstId(3), now + STALE), Verdict::Clear, "nobody need look");
    serve(&mut judge, &mut now, 3, 50);
    serve(&mut judge, &mut now, 3, 50);
    assert_eq!(judge.verdict(OstId(3), now), Verdict::Congested);
    assert!(!judge.is_calm(now));
    now = now + STALE;
    assert_eq!(judge.verdict(OstId(4), now), Verdict::Probe, "it may be the next to be slow");
    assert!(judge.is_calm(now + CALM_AFTER));
}

/// Four requests at a time, served one after the other, each after `others` of somebody else's.
fn serve_four(judge: &mut Judge, now: &mut Instant, ost: u32, others: u64) {
    (0..4).for_each(|_| judge.on_start(OstId(ost), *now, MIB));
    for nth in 1..=4 {
        let service = Duration::from_millis(10 * (nth + others));
        judge.on_finish(OstId(ost), *now + service, MIB, service);
    }
    *now = *now + Duration::from_millis(10 * (4 + others));
}

#[test]
fn the_polite_rule_notices_one_program_besides_ours() {
    for (rule, window) in [(Rule::Adaptive, 4), (Rule::Polite, 1)] {
        let (mut judge, mut now) = judge(rule);
        (0..20).for_each(|round| serve_four(&mut judge, &mut now, round % 8, 0));
        for _ in 0..10 {
            serve_four(&mut judge, &mut now, 3, 1);
            serve_four(&mut judge, &mut now, 4, 0);
        }
        assert_eq!(judge.is_congested(OstId(3)), rule == Rule::Polite);
        assert_eq!(judge.window(OstId(3)), window);
        assert!(!judge.is_congested(OstId(4)));
        let verdict = judge.verdict(OstId(3), now);
        assert_eq!(verdict, Verdict::Clear, "taking turns is no reason to stay away");
        // One of ours and one of theirs at a time: it goes on so.
        (0..200).for_each(|_| serve(&mut judge, &mut now, 3, 20));
        assert_eq!(judge.window(OstId(3)) == 1, rule == Rule::Polite);
        // They have gone.
        (0..100).for_each(|_| serve(&mut judge, &mut now, 3, 10));
        assert!(!judge.is_congested(OstId(3)));
        assert_eq!(judge.window(OstId(3)), 4);
    }
}

#[test]
fn a_polite_program_on_its_own_two_osts_notices_others_too() {
    let mut judge = Judge::new(Rule::Polite, [4; 2].into_iter());
    let mut now = Instant::START;
    for _ in 0..20 {
        (0..2).for_each(|ost| serve(&mut judge, &mut now, ost, 10));
    }
    for _ in 0..5 {
        (0..2).for_each(|ost| serve(&mut judge, &mut now, ost, 20));
    }
    assert!((0..2).all(|ost| judge.window(OstId(ost)) == 1));
}
