//! A session and an owner that tells it the truth, with a peer that says anything: random inputs
//! of the targets that libFuzzer looks for inputs of.

use lads_fuzz::{sink_session, source_session};
use proptest::prelude::*;

/// Some seconds' worth. An input that fails is printed in full, and belongs to `fuzz/regressions`.
fn config() -> ProptestConfig {
    ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_sink_survives_any_source(choices in prop::collection::vec(any::<u8>(), 0..400)) {
        sink_session::run(&choices);
    }

    #[test]
    fn a_source_survives_any_sink(choices in prop::collection::vec(any::<u8>(), 0..400)) {
        source_session::run(&choices);
    }

    /// No choice is nonsense: what storage does, in any order.
    #[test]
    fn a_sink_keeps_its_promises(choices in prop::collection::vec(0u8..13, 0..400)) {
        let reached = sink_session::play(&choices);
        prop_assert!(!reached.is_refused);
    }

    #[test]
    fn a_source_keeps_its_promises(choices in prop::collection::vec(0u8..13, 0..400)) {
        let reached = source_session::play(&choices);
        prop_assert!(!reached.is_refused);
    }
}
