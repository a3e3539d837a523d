//! A server of remote files, with a client that says anything: random inputs of the target that
//! libFuzzer looks for inputs of.

use lads_fuzz::remote_server;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 4000, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn a_server_of_remote_files_survives_any_client(
        choices in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        remote_server::run(&choices);
    }
}
