//! Random inputs of the targets of the server and of the client of remote files.

use lads_fuzz::{remote_client, remote_server};
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
    #[test]
    fn a_client_of_remote_files_survives_any_server(
        choices in prop::collection::vec(any::<u8>(), 0..1200),
    ) {
        remote_client::run(&choices);
    }
}
