//! The contract of layout providers: these tests run against each of them.

use super::{FileAt, Layouts, NewFile, PROVIDERS, open};
use lads_core::layout::Layout;
use lads_core::placement::Wish;
use lads_core::units::OstId;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// [`check`], for a provider that makes itself and its directory.
pub(super) type Check = fn(&dyn Layouts, &Path);

/// Runs the contract against a provider for a directory; the files in the directory are its own.
fn check(layouts: &dyn Layouts, directory: &Path) {
    let osts = layouts.osts();
    assert!(!osts.is_empty(), "there is at least one OST");
    assert!(osts.iter().all(|ost| ost.in_flight_max > 0 && !ost.name.is_empty()));
    assert!(layouts.targets().len() <= osts.len(), "targets are OSTs");
    let is_known = |layout: &Layout| layout.osts().all(|ost| ost.index() < osts.len());
    let handle = OwnedFd::from(File::open(directory).unwrap());
    for number in 0..20 {
        let name = format!("file-{number}");
        let wish = match number % 3 {
            0 => Wish::Default,
            1 => Wish::Striped { stripe_size: 1 << 20, stripe_count: 2 },
            _ => Wish::On { stripe_size: 1 << 20, osts: vec![OstId(0)] },
        };
        let (size, name) = (5 << 20, name.as_str());
        let new = NewFile { number, ..NewFile::new(&handle, name, size, &wish) };
        let placed = layouts.of_new_file(&new).unwrap();
        assert!(is_known(&placed.layout), "{:?}", placed.layout);
        let path = directory.join(name);
        assert_eq!(path.exists(), placed.is_made, "says whether it made the file");
        if placed.is_made {
            let again = layouts.of_new_file(&NewFile { is_there: true, ..new }).unwrap();
            assert_eq!(again.layout, placed.layout, "a file that is there stays where it is");
            assert!(!again.is_made);
        } else {
            File::create(&path).unwrap();
        }
        let metadata = path.metadata().unwrap();
        let (device, inode, size) = (metadata.dev(), metadata.ino(), metadata.len());
        let file = FileAt { directory: &handle, name: name.as_bytes(), device, inode, size };
        let located = layouts.of_file(&file);
        assert!(is_known(&located.layout), "{located:?}");
        assert_eq!(located, layouts.of_file(&file), "answers agree");
    }
    let missing = FileAt { directory: &handle, name: b"missing", device: 0, inode: 0, size: 1 };
    assert!(is_known(&layouts.of_file(&missing).layout), "a file that is gone has a layout");
}

#[test]
fn local_keeps_the_contract() {
    let directory = tempfile::tempdir().unwrap();
    check(open("local", directory.path()).unwrap().as_ref(), directory.path());
}

#[test]
fn synthetic_keeps_the_contract() {
    let directory = tempfile::tempdir().unwrap();
    let layouts = open("synthetic:osts=5,stripe_count=3", directory.path()).unwrap();
    check(layouts.as_ref(), directory.path());
}

/// Each in a thread of the name that its test would have, for that is what a failure tells, and
/// what is not tried.
#[test]
fn every_other_provider_keeps_the_contract() {
    for provider in PROVIDERS {
        let thread = std::thread::Builder::new();
        let thread = thread.name(format!("layout::contract::{}_keeps_the_contract", provider.name));
        let thread = thread.spawn(move || (provider.put_to_test)(check)).unwrap();
        thread.join().unwrap_or_else(|_| panic!("{} breaks the contract", provider.name));
    }
}

#[test]
fn every_provider_has_a_name_of_its_own_and_a_chapter() {
    let names = super::names();
    let unlike: std::collections::BTreeSet<_> = names.iter().collect();
    assert_eq!(unlike.len(), names.len(), "{names:?}");
    let page = include_str!("../../../../docs/layouts.md").to_lowercase();
    for provider in PROVIDERS {
        let name = provider.name;
        assert!(page.lines().any(|line| line.starts_with("## ") && line.contains(name)), "{name}");
    }
}

#[test]
fn an_unknown_provider_is_refused_by_name() {
    assert!(open("lustr", Path::new("/")).err().unwrap().contains("lustr"));
    assert!(open("lustre", Path::new("/proc")).err().unwrap().contains("/proc"));
}
