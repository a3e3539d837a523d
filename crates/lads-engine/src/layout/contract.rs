//! What every layout provider must hold: run against each of them.

use super::{Layouts, open};
use std::path::Path;

fn check(layouts: &dyn Layouts) {
    let osts = layouts.osts();
    assert!(!osts.is_empty(), "there is at least one OST");
    assert!(osts.iter().all(|ost| ost.in_flight_max > 0 && !ost.name.is_empty()));
    for number in 0..50 {
        for layout in [layouts.of_file(1, number), layouts.of_new_file(number)] {
            assert!(layout.osts().all(|ost| ost.index() < osts.len()), "{layout:?}");
        }
        assert_eq!(layouts.of_file(1, number), layouts.of_file(1, number), "answers agree");
    }
}

#[test]
fn local_keeps_the_contract() {
    check(open("auto", Path::new("/")).unwrap().as_ref());
}

#[test]
fn synthetic_keeps_the_contract() {
    check(open("synthetic:osts=5,stripe_count=3", Path::new("/")).unwrap().as_ref());
}

#[test]
fn an_unknown_provider_is_refused_by_name() {
    assert!(open("lustr", Path::new("/")).err().unwrap().contains("lustr"));
}
