use super::*;

const TUNING: Tuning = Tuning::DEFAULT;

const MIB: u64 = 1 << 20;

/// A judge whose OSTs have each served a few requests, in 10 ms.
fn judge(rule: Rule) -> (Box<dyn Judge>, Instant) {
    let mut judge = rule.judge(&TUNING, [4; 8].into_iter());
    let mut now = Instant::START;
    for _ in 0..10 {
        for ost in 0..8 {
            serve(judge.as_mut(), &mut now, ost, 10);
        }
    }
    (judge, now)
}

/// One request at a time.
fn serve(judge: &mut dyn Judge, now: &mut Instant, ost: u32, millis: u64) {
    let service = Duration::from_millis(millis);
    judge.on_start(OstId(ost), *now, MIB);
    *now = *now + service;
    judge.on_finish(OstId(ost), *now, MIB, service);
}

#[test]
fn two_slow_answers_make_an_ost_congested_and_two_good_ones_clear_it() {
    let (mut judge, mut now) = judge(Rule::Adaptive);
    serve(judge.as_mut(), &mut now, 3, 50);
    assert_eq!(judge.verdict(OstId(3), now), Verdict::Clear, "one may be chance");
    serve(judge.as_mut(), &mut now, 3, 50);
    assert_eq!(judge.verdict(OstId(3), now), Verdict::Congested);
    assert_eq!(judge.verdict(OstId(4), now), Verdict::Clear);
    now = now + TUNING.probe_interval;
    assert_eq!(judge.verdict(OstId(3), now), Verdict::Probe);
    serve(judge.as_mut(), &mut now, 3, 10);
    assert_eq!(judge.verdict(OstId(3), now), Verdict::Probe, "a good answer is followed up");
    serve(judge.as_mut(), &mut now, 3, 10);
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
    (0..20).for_each(|_| serve(judge.as_mut(), &mut now, 3, 50));
    let beyond_usual = |after| judge.slowness_expected(OstId(3), now + after) - 1.0;
    let heard = judge.slowness(OstId(3)) - 1.0;
    assert!(heard > 1.0, "{heard}");
    assert!((beyond_usual(Duration::ZERO) - heard).abs() < 1e-6);
    assert!((beyond_usual(TUNING.forgotten_after) - heard / 2.0).abs() < 1e-6);
    assert!(beyond_usual(TUNING.forgotten_after * 8) < heard / 200.0);
}

#[test]
fn an_ost_is_slow_since_the_first_slow_request_began() {
    let (mut judge, mut now) = judge(Rule::Adaptive);
    assert_eq!(judge.slow_for(OstId(3), now), Duration::ZERO);
    let began = now;
    serve(judge.as_mut(), &mut now, 3, 100);
    assert_eq!(judge.slow_for(OstId(3), now), Duration::ZERO);
    serve(judge.as_mut(), &mut now, 3, 100);
    assert_eq!(judge.slow_for(OstId(3), now), now.since(began));
    for _ in 0..2 {
        serve(judge.as_mut(), &mut now, 3, 10);
    }
    assert_eq!(judge.slow_for(OstId(3), now), Duration::ZERO);
}

#[test]
fn if_all_are_slow_none_is_congested_for_long() {
    let (mut judge, mut now) = judge(Rule::Adaptive);
    for _ in 0..60 {
        for ost in 0..8 {
            serve(judge.as_mut(), &mut now, ost, 50);
        }
    }
    assert!((0..8).all(|ost| judge.verdict(OstId(ost), now) != Verdict::Congested));
}

#[test]
fn an_ost_that_was_always_slow_is_taken_as_it_is() {
    let (mut judge, mut now) = judge(Rule::Adaptive);
    let since = now;
    while now.since(since) < Duration::from_secs(120) {
        serve(judge.as_mut(), &mut now, 3, 50);
        for ost in [0, 1, 2, 4, 5, 6, 7] {
            serve(judge.as_mut(), &mut now, ost, 10);
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
    (0..2).for_each(|_| serve(judge.as_mut(), &mut now, 3, 50));
    assert_eq!(judge.window(OstId(3)), 2);
    (0..20).for_each(|_| serve(judge.as_mut(), &mut now, 3, 10));
    assert_eq!(judge.window(OstId(3)), 4);
}

#[test]
fn by_the_papers_rule_a_slow_mean_makes_so_many_threads_skip() {
    let threshold = Threshold { window: 10, limit_micros: 20_000, skips: 2 };
    let (mut judge, mut now) = judge(Rule::Threshold(threshold));
    (0..9).for_each(|_| serve(judge.as_mut(), &mut now, 3, 50));
    assert_eq!(judge.verdict(OstId(3), now), Verdict::Clear, "the window is not full");
    serve(judge.as_mut(), &mut now, 3, 50);
    let verdicts: Vec<_> = (0..3).map(|_| judge.verdict(OstId(3), now)).collect();
    assert_eq!(verdicts, [Verdict::Congested, Verdict::Congested, Verdict::Clear]);
}

#[test]
fn two_osts_have_nowhere_else_to_go() {
    let mut judge = Rule::Adaptive.judge(&TUNING, [4; 2].into_iter());
    let mut now = Instant::START;
    (0..20).for_each(|_| serve(judge.as_mut(), &mut now, 0, 10));
    (0..20).for_each(|_| serve(judge.as_mut(), &mut now, 1, 100));
    assert_eq!(judge.verdict(OstId(1), now), Verdict::Clear);
}

#[test]
fn it_is_calm_when_nothing_was_congested_for_a_while() {
    let (mut judge, mut now) = judge(Rule::Adaptive);
    assert!(judge.is_calm(now));
    assert_eq!(
        judge.verdict(OstId(3), now + TUNING.stale_after),
        Verdict::Clear,
        "nobody need look"
    );
    serve(judge.as_mut(), &mut now, 3, 50);
    serve(judge.as_mut(), &mut now, 3, 50);
    assert_eq!(judge.verdict(OstId(3), now), Verdict::Congested);
    assert!(!judge.is_calm(now));
    now = now + TUNING.stale_after;
    assert_eq!(judge.verdict(OstId(4), now), Verdict::Probe, "it may be the next to be slow");
    assert!(judge.is_calm(now + TUNING.calm_after));
}

/// Four requests at a time, served one after the other, each after `others` of somebody else's.
fn serve_four(judge: &mut dyn Judge, now: &mut Instant, ost: u32, others: u64) {
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
        (0..20).for_each(|round| serve_four(judge.as_mut(), &mut now, round % 8, 0));
        for _ in 0..10 {
            serve_four(judge.as_mut(), &mut now, 3, 1);
            serve_four(judge.as_mut(), &mut now, 4, 0);
        }
        assert_eq!(judge.is_congested(OstId(3)), rule == Rule::Polite);
        assert_eq!(judge.window(OstId(3)), window);
        assert!(!judge.is_congested(OstId(4)));
        let verdict = judge.verdict(OstId(3), now);
        assert_eq!(verdict, Verdict::Clear, "taking turns is no reason to stay away");
        // One of ours and one of theirs at a time: it goes on so.
        (0..200).for_each(|_| serve(judge.as_mut(), &mut now, 3, 20));
        assert_eq!(judge.window(OstId(3)) == 1, rule == Rule::Polite);
        // They have gone.
        (0..100).for_each(|_| serve(judge.as_mut(), &mut now, 3, 10));
        assert!(!judge.is_congested(OstId(3)));
        assert_eq!(judge.window(OstId(3)), 4);
    }
}

#[test]
fn a_polite_program_on_its_own_two_osts_notices_others_too() {
    let mut judge = Rule::Polite.judge(&TUNING, [4; 2].into_iter());
    let mut now = Instant::START;
    for _ in 0..20 {
        (0..2).for_each(|ost| serve(judge.as_mut(), &mut now, ost, 10));
    }
    for _ in 0..5 {
        (0..2).for_each(|ost| serve(judge.as_mut(), &mut now, ost, 20));
    }
    assert!((0..2).all(|ost| judge.window(OstId(ost)) == 1));
}

/// An OST that serves requests of 1 MiB one after the other, each in `service_millis`, while as
/// many of them are in flight as the window has it; besides, each is on its way for `way_millis`.
fn serve_in_window(judge: &mut dyn Judge, now: &mut Instant, service_millis: u64, way_millis: u64) {
    let ost = OstId(0);
    let (service, way) = (Duration::from_millis(service_millis), Duration::from_millis(way_millis));
    let mut ends: Vec<(Instant, Instant)> = Vec::new();
    for _ in 0..1000 {
        while ends.len() < judge.window(ost) as usize {
            let free = ends.last().map_or(*now, |(_, end)| *end).max(*now + way);
            judge.on_start(ost, *now, MIB);
            ends.push((*now, free + service));
        }
        let (begun, end) = ends.remove(0);
        *now = end;
        judge.on_finish(ost, *now, MIB, end.since(begun));
    }
}

#[test]
fn an_ost_has_as_few_requests_as_keep_it_busy() {
    for (service_millis, way_millis, expected) in [(80, 1, 1), (40, 40, 2), (10, 25, 4)] {
        let mut judge = Comparison::adaptive(&TUNING, &[8; 8]);
        judge.spare();
        let mut now = Instant::START;
        serve_in_window(&mut judge, &mut now, service_millis, way_millis);
        let window = judge.window(OstId(0));
        let is_expected = window == expected || window == expected + 1;
        assert!(is_expected, "{service_millis} ms, {way_millis} ms: {window}, not {expected}");
        let count = judge.enough.as_ref().unwrap().count;
        assert_eq!(count, expected, "{service_millis} ms, {way_millis} ms");
    }
}

#[test]
fn osts_that_turn_slow_or_quick_do_not_make_more_requests_enough() {
    let mut judge = Comparison::adaptive(&TUNING, &[8; 8]);
    judge.spare();
    let mut now = Instant::START;
    serve_in_window(&mut judge, &mut now, 80, 1);
    // A few that were under way when an OST turned slow, and some that are a little slow.
    for millis in [400, 150, 120, 400, 130, 400] {
        serve(&mut judge, &mut now, 1, millis);
        assert_eq!(judge.enough.as_ref().unwrap().count, 1, "after {millis} ms");
    }
    // One that had two and turned quick: they come back soon after each other.
    for _ in 0..20 {
        judge.on_start(OstId(2), now, MIB);
        judge.on_start(OstId(2), now, MIB);
        now = now + Duration::from_millis(80);
        judge.on_finish(OstId(2), now, MIB, Duration::from_millis(80));
        now = now + Duration::from_millis(20);
        judge.on_finish(OstId(2), now, MIB, Duration::from_millis(100));
    }
    serve_in_window(&mut judge, &mut now, 80, 1);
    assert_eq!(judge.enough.as_ref().unwrap().count, 1);
}

/// Whatever asks a judge relies on these.
#[test]
fn every_rule_has_sound_answers_about_quick_and_slow_osts() {
    let threshold = Threshold { window: 2, limit_micros: 50_000, skips: 3 };
    for rule in [Rule::Never, Rule::Threshold(threshold), Rule::Adaptive, Rule::Polite] {
        let (mut judge, mut now) = judge(rule);
        judge.spare();
        (0..3).for_each(|_| serve(judge.as_mut(), &mut now, 3, 200));
        for ost in (0..8).map(OstId) {
            assert!((1..=4).contains(&judge.window(ost)), "{rule:?}");
            assert!(judge.slowness_expected(ost, now) >= 1.0, "{rule:?}");
            if !judge.is_congested(ost) {
                assert_eq!(judge.slow_for(ost, now), Duration::ZERO, "{rule:?}");
            }
        }
        assert!(!judge.is_congested(OstId(4)), "{rule:?}");
        assert_eq!(judge.is_congested(OstId(3)), rule != Rule::Never);
        let is_told = judge.slowness(OstId(3)) > 2.0;
        assert_eq!(is_told, matches!(rule, Rule::Adaptive | Rule::Polite), "{rule:?}");
    }
}

#[test]
fn the_first_requests_to_an_ost_come_one_at_a_time() {
    let mut judge = Rule::Adaptive.judge(&TUNING, [4; 3].into_iter());
    for _ in 0..TUNING.first_count {
        assert_eq!(judge.window(OstId(0)), 1);
        judge.on_start(OstId(0), Instant::START, MIB);
    }
    assert_eq!((judge.window(OstId(0)), judge.window(OstId(1))), (4, 1));
}
