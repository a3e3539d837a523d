use super::*;
use crate::layout::contract::Check;
use lads_core::lov::{Component, Composite, Object, Stripes, flag, pattern};
use std::fs::File;

/// Any file system can keep this one.
const FAKE_ATTRIBUTE: &str = "user.lustre.lov";

/// Has a directory that passes for Lustre keep the contract.
pub(super) fn keep_the_contract(check: Check) {
    let directory = tempfile::tempdir().unwrap();
    let Some(layouts) = faked(directory.path(), 4) else { return };
    check(&layouts, directory.path());
}

/// A directory that passes for Lustre: whatever is written to the attribute of a file is its
/// layout. `None`, and a line that says so, where there are no attributes.
fn faked(directory: &Path, ost_count: u32) -> Option<Lustre> {
    std::fs::create_dir(directory.join(".pfs")).unwrap();
    let lines = (0..ost_count).map(|ost| format!("{ost} oss{} up 1000000 0\n", ost / 2));
    std::fs::write(directory.join(".pfs/osts"), lines.collect::<String>()).unwrap();
    let handle = File::open(directory).unwrap();
    let template = Lov::wish(2 << 20, 1).encode();
    if fsetxattr(&handle, FAKE_ATTRIBUTE, &template, XattrFlags::empty()).is_err() {
        lads_tried::not_tried("the file system of temporary files has no extended attributes");
        return None;
    }
    Lustre::over(FAKE_ATTRIBUTE, Table::of_emulator(directory)?, directory)
}

fn with_layout(directory: &Path, name: &str, bytes: &[u8]) {
    let file = File::create(directory.join(name)).unwrap();
    fsetxattr(&file, FAKE_ATTRIBUTE, bytes, XattrFlags::empty()).unwrap();
}

fn located(lustre: &Lustre, directory: &Path, name: &str) -> Located {
    let directory = OwnedFd::from(File::open(directory).unwrap());
    let name = name.as_bytes();
    lustre.of_file(&FileAt { directory: &directory, name, device: 0, inode: 0, size: 0 })
}

fn stripes(osts: &[u32]) -> Stripes {
    let Lov { mut components, .. } = Lov::wish(1 << 20, u16::try_from(osts.len()).unwrap());
    let Body::Stripes(mut stripes) = components.remove(0).body else { panic!("no stripes") };
    let object = |&ost| Object { ost: OstId(ost), ..Object::default() };
    stripes.objects = osts.iter().map(object).collect();
    stripes
}

fn place(lustre: &Lustre, directory: &Path, wish: &Wish) -> Placed {
    let handle = OwnedFd::from(File::open(directory).unwrap());
    let (directory, name) = (&handle, "new");
    let file = NewFile::new(directory, name, 10, wish);
    lustre.of_new_file(&file).unwrap()
}

#[test]
fn the_osts_have_their_servers_and_there_are_two_more_numbers() {
    let directory = tempfile::tempdir().unwrap();
    let Some(lustre) = faked(directory.path(), 4) else { return };
    let names: Vec<_> = lustre.osts().into_iter().map(|spec| spec.name).collect();
    assert_eq!(names, ["OST0000", "OST0001", "OST0002", "OST0003", "MDT", "elsewhere"]);
    let servers: Vec<_> = lustre.targets().into_iter().map(|it| it.server).collect();
    assert_eq!(servers, ["oss0", "oss0", "oss1", "oss1"]);
    assert_eq!(lustre.stripe_size(), 2 << 20);
}

#[test]
fn a_file_lies_where_its_attribute_says() {
    let directory = tempfile::tempdir().unwrap();
    let Some(lustre) = faked(directory.path(), 4) else { return };
    with_layout(directory.path(), "a", &Lov::plain(stripes(&[3, 1])).encode());
    let expected = Layout::striped(1 << 20, vec![OstId(3), OstId(1)]).unwrap();
    assert_eq!(located(&lustre, directory.path(), "a"), Located::at(expected));
}

#[test]
fn what_is_on_the_mdt_or_nowhere_has_a_number_too() {
    let directory = tempfile::tempdir().unwrap();
    let Some(lustre) = faked(directory.path(), 4) else { return };
    let on_mdt = Stripes { pattern: pattern::MDT, ..stripes(&[]) };
    let component =
        |flags, extent, stripes| Component { id: 0, flags, extent, body: Body::Stripes(stripes) };
    let components = vec![
        component(flag::INSTANTIATED, 0..1 << 20, on_mdt),
        component(flag::INSTANTIATED, 1 << 20..4 << 20, stripes(&[2])),
        component(0, 4 << 20..u64::MAX, stripes(&[])),
    ];
    let lov = Lov { composite: Some(Composite::default()), components };
    with_layout(directory.path(), "a", &lov.encode());
    let layout = located(&lustre, directory.path(), "a").layout;
    assert_eq!([0, 1 << 20, 4 << 20].map(|at| layout.ost_at(at).0), [4, 2, 5]);
}

#[test]
fn an_ost_that_came_later_and_bytes_that_are_no_layout_are_elsewhere() {
    let directory = tempfile::tempdir().unwrap();
    let Some(lustre) = faked(directory.path(), 4) else { return };
    with_layout(directory.path(), "later", &Lov::plain(stripes(&[0, 900])).encode());
    with_layout(directory.path(), "nonsense", b"nonsense");
    let layout = located(&lustre, directory.path(), "later").layout;
    assert_eq!([0, 1 << 20].map(|at| layout.ost_at(at).0), [0, 5]);
    for name in ["nonsense", "missing"] {
        assert_eq!(located(&lustre, directory.path(), name), Located::at(Layout::on(OstId(5))));
    }
}

#[test]
fn a_file_in_an_archive_is_told_from_others() {
    let directory = tempfile::tempdir().unwrap();
    let Some(lustre) = faked(directory.path(), 4) else { return };
    let released = Stripes { pattern: pattern::RAID0 | pattern::RELEASED, ..stripes(&[]) };
    with_layout(directory.path(), "a", &Lov::plain(released).encode());
    assert!(located(&lustre, directory.path(), "a").is_archived);
}

#[test]
fn a_wish_that_is_heeded_is_found_again() {
    let directory = tempfile::tempdir().unwrap();
    let Some(lustre) = faked(directory.path(), 4) else { return };
    let osts = vec![OstId(2), OstId(0)];
    let wish = Wish::On { stripe_size: 1 << 20, osts: osts.clone() };
    let layout = Layout::striped(1 << 20, osts).unwrap();
    let placed = place(&lustre, directory.path(), &wish);
    assert_eq!((placed.layout, placed.is_made, placed.difference), (layout, true, None));
}

#[test]
fn a_wish_that_is_not_heeded_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let Some(lustre) = faked(directory.path(), 4) else { return };
    // The fake keeps what it is told, which for a number of stripes is no OST.
    let wish = Wish::Striped { stripe_size: 1 << 20, stripe_count: 2 };
    let placed = place(&lustre, directory.path(), &wish);
    let difference = placed.difference.unwrap();
    assert!(difference.contains("2 stripes of 1048576 bytes"), "{difference}");
    assert_eq!(placed.layout, Layout::on(OstId(5)));
}

#[test]
fn what_is_in_the_way_of_a_new_file_goes() {
    let directory = tempfile::tempdir().unwrap();
    let Some(lustre) = faked(directory.path(), 4) else { return };
    std::fs::write(directory.path().join("new"), b"old").unwrap();
    assert!(place(&lustre, directory.path(), &Wish::Default).is_made);
    assert_eq!(std::fs::read(directory.path().join("new")).unwrap(), b"");
}
