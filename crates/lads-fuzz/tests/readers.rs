//! Patterns made of what means something in a pattern, which random bytes hardly ever are.

use lads_fuzz::filter;
use proptest::prelude::*;

/// Whether the path is that of a directory, a short path, and one or two patterns.
const INPUT: &str = "[\u{0}\u{1}][ab/]{0,8}(\n[ab/*?\\\\!^\\-\\[\\]]{1,8}){1,2}";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn patterns_match_what_a_plain_search_finds(input in INPUT) {
        filter::run(input.as_bytes());
    }
}
