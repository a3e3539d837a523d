use super::*;
use crate::layout::contract::Check;
use rustix::fs::{XattrFlags, fsetxattr};
use std::fs::File;

/// Any file system can keep these.
const FAKES: [&str; 2] = ["user.lads.md", "user.lads.dh"];

const CONFIG: &str = "<Aliases>\nAlias io1 tcp://io1:3334\nAlias io2 tcp://io2:3334\n</Aliases>\n\
    <Filesystem>\nName scratch\n<DataHandleRanges>\nRange io1 100-199\nRange io2 200-299\n\
    </DataHandleRanges>\n</Filesystem>\n";

/// Has a directory that passes for OrangeFS keep the contract.
pub(super) fn keep_the_contract(check: Check) {
    let directory = tempfile::tempdir().unwrap();
    let Some(layouts) = faked(directory.path()) else { return };
    check(&layouts, directory.path());
}

/// A directory that passes for OrangeFS: whatever is written to the attributes of a file is its
/// layout. `None`, and a line that says so, where there are no attributes.
fn faked(directory: &Path) -> Option<Orangefs> {
    let handle = File::open(directory).unwrap();
    if fsetxattr(&handle, FAKES[0], b"", XattrFlags::empty()).is_err() {
        lads_tried::not_tried("the file system of temporary files has no extended attributes");
        return None;
    }
    Orangefs::over(CONFIG, "scratch", FAKES)
}

/// `simple_stripe` in strips of 64 KiB.
const RULE: &[u8; 32] = b"\x0d\0\0\0simple_stripe\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0";

fn layout(orangefs: &Orangefs, directory: &Path, rule: &[u8], handles: &[u64]) -> Layout {
    let file = File::create(directory.join("a")).unwrap();
    let handles: Vec<u8> = handles.iter().flat_map(|handle| handle.to_ne_bytes()).collect();
    for (attribute, value) in FAKES.iter().zip([rule, &handles]) {
        fsetxattr(&file, *attribute, value, XattrFlags::empty()).unwrap();
    }
    let directory = OwnedFd::from(File::open(directory).unwrap());
    let file = FileAt { directory: &directory, name: b"a", device: 0, inode: 0, size: 0 };
    orangefs.of_file(&file).layout
}

#[test]
fn a_file_lies_on_the_servers_that_have_its_handles() {
    let directory = tempfile::tempdir().unwrap();
    let Some(orangefs) = faked(directory.path()) else { return };
    let expected = Layout::striped(64 << 10, [1, 0, 2].map(OstId).to_vec());
    let found = layout(&orangefs, directory.path(), RULE, &[250, 100, 7]);
    assert_eq!(Some(found), expected, "a handle that nobody has is elsewhere");
}

#[test]
fn a_file_of_another_rule_or_without_attributes_is_elsewhere() {
    let directory = tempfile::tempdir().unwrap();
    let Some(orangefs) = faked(directory.path()) else { return };
    for rule in [&b"\x0d\0\0\0varstrip_dist\0\0\0\0\0\0\0"[..], b"nonsense", b""] {
        assert_eq!(layout(&orangefs, directory.path(), rule, &[250]), Layout::on(OstId(2)));
    }
}

#[test]
fn servers_have_their_names_and_hosts() {
    let directory = tempfile::tempdir().unwrap();
    let Some(orangefs) = faked(directory.path()) else { return };
    let names: Vec<_> = orangefs.osts().into_iter().map(|spec| spec.name).collect();
    assert_eq!(names, ["io1", "io2", "elsewhere"]);
    assert_eq!(orangefs.targets()[1].server, "io2");
}

#[test]
fn the_file_system_is_named_in_what_was_mounted() {
    let source = "tcp://io1:3334/scratch".into();
    assert_eq!(name_of(&Mount { source, ..Mount::unknown(Path::new("/")) }), "scratch");
}
