use super::*;
use std::process::{Command, Stdio};

fn builds(directory: &Path) -> Builds {
    let own = directory.join("lads");
    fs::write(&own, "own").unwrap();
    Builds::beside(&own, true)
}

/// The words of a command pass a shell of another user: `tcsh` replaces exclamation marks, and
/// `fish` knows backslashes, between single quotes.
#[test]
fn every_login_shell_passes_the_script_on_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let script = builds(directory.path()).script(123);
    assert!(script.contains("count=123 "), "{script}");
    for script in [script, in_one_line(REMOVAL)] {
        for strange in ['!', '\'', '\\', '\n', '@'] {
            assert!(!script.replace("$@", "").contains(strange), "{strange:?} in {script}");
        }
        let checked = Command::new("sh").args(["-nc", &script]).stdin(Stdio::null()).status();
        assert!(checked.unwrap().success(), "{script}");
    }
}

#[test]
fn a_build_of_another_machine_lies_next_to_the_program() {
    let directory = tempfile::tempdir().unwrap();
    let other = MACHINES.into_iter().find(|it| *it != std::env::consts::ARCH).unwrap();
    let parcel =
        |system: &str, machine: &str| builds(directory.path()).parcel("dtn2", system, machine);
    let refusal = parcel("Linux", other).unwrap_err().text;
    assert!(refusal.contains(&format!("put lads-{other} of that version next to")), "{refusal}");
    fs::write(directory.path().join(format!("lads-{other}")), "other").unwrap();
    let (own, its) = (parcel("Linux", std::env::consts::ARCH).unwrap(), parcel("Linux", other));
    assert_ne!(own, its.unwrap());
    let refusal = parcel("Darwin", std::env::consts::ARCH).unwrap_err().text;
    assert!(refusal.contains("no build for Darwin"), "{refusal}");
}

#[test]
fn an_installed_package_has_its_builds_in_lib() {
    let directory = tempfile::tempdir().unwrap();
    let prefix = |name: &str| directory.path().join(name);
    fs::create_dir_all(prefix("lib/lads")).unwrap();
    fs::create_dir(prefix("bin")).unwrap();
    for machine in MACHINES {
        fs::write(prefix("lib/lads").join(format!("lads-{machine}")), machine).unwrap();
    }
    let found: Vec<u64> = builds(&prefix("bin")).found.iter().map(|it| it.bytes).collect();
    assert_eq!(found, MACHINES.map(|it| it.len() as u64));
}

#[test]
fn a_parcel_begins_with_its_length_and_digest_and_is_a_gzip_file() {
    let directory = tempfile::tempdir().unwrap();
    let parcel = builds(directory.path()).parcel("dtn2", "Linux", std::env::consts::ARCH).unwrap();
    let end = parcel.iter().position(|byte| *byte == b'\n').unwrap();
    let (head, packed) = (str::from_utf8(&parcel[..end]).unwrap(), &parcel[end + 1..]);
    let (count, digest) = head.split_once(' ').unwrap();
    assert_eq!(count.parse(), Ok(packed.len()));
    assert_eq!(digest, "5b3975651c3cab92d044c096dc30a1c2d9525497457472de48c51ecb363d1f4a");
    let mut unpacked = Vec::new();
    io::copy(&mut flate2::read::MultiGzDecoder::new(packed), &mut unpacked).unwrap();
    assert_eq!(unpacked, b"own");
    let all = (0..200_000_u32).flat_map(u32::to_le_bytes).collect::<Vec<_>>();
    let mut back = Vec::new();
    let packed = compressed(&all).unwrap();
    io::copy(&mut flate2::read::MultiGzDecoder::new(&*packed), &mut back).unwrap();
    assert!(back == all);
}

#[test]
fn a_line_of_the_script_is_understood_and_another_is_not() {
    let need = Line::Need { system: "Linux".to_owned(), machine: "x86_64".to_owned() };
    assert_eq!(Line::parse("LADS-NEED Linux x86_64"), Some(need));
    assert_eq!(Line::parse("LADS-READY"), Some(Line::Ready));
    let fail = Line::parse("LADS-FAIL no room in /a b");
    assert_eq!(fail, Some(Line::Fail("no room in /a b".to_owned())));
    for other in ["LADS-NEED", "LADS-NEED Linux", "Last login: yesterday", ""] {
        assert_eq!(Line::parse(other), None, "{other}");
    }
}
