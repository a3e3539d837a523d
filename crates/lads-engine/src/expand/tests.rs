use super::*;
use proptest::prelude::*;
use std::process::Command;

fn expanded(path: &str, side: Side) -> Result<Vec<String>, String> {
    let paths = expand(vec![path.as_bytes().to_vec()], side).map_err(|fatal| fatal.text)?;
    Ok(paths.into_iter().map(|path| String::from_utf8(path).unwrap()).collect())
}

/// The same by bash. It keeps a pattern that matches nothing, as we do.
fn by_bash(pattern: &[u8]) -> Vec<Vec<u8>> {
    let script = [b"IFS=; printf '%s\\0' ".as_slice(), pattern].concat();
    let mut bash = Command::new("bash");
    bash.arg("-c").arg(OsStr::from_bytes(&script)).env("LC_ALL", "C");
    let output = bash.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let words = output.stdout.split(|&byte| byte == 0).map(<[u8]>::to_vec);
    words.filter(|word| !word.is_empty()).collect()
}

#[test]
fn home_directories_are_those_that_a_shell_knows() {
    let own = String::from_utf8(own_home().unwrap()).unwrap();
    let root = String::from_utf8(by_bash(b"~root").remove(0)).unwrap();
    for side in [Side::Source, Side::Sink] {
        assert_eq!(expanded("~", side), Ok(vec![own.clone()]));
        assert_eq!(expanded("~/x/", side), Ok(vec![format!("{own}/x/")]));
        assert_eq!(expanded("~root/x", side), Ok(vec![format!("{root}/x")]));
        for path in ["./~", "./~root", "x/~", "", "/"] {
            assert_eq!(expanded(path, side), Ok(vec![path.to_owned()]));
        }
        for user in ["~no-such-user", "~-s/x", "~--help"] {
            assert!(expanded(user, side).unwrap_err().contains("has no home directory"), "{user}");
        }
    }
}

#[test]
fn a_sink_is_no_pattern() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("a"), "").unwrap();
    let pattern = place.path().join("*").to_str().unwrap().to_owned();
    assert_eq!(expanded(&pattern, Side::Sink), Ok(vec![pattern.clone()]));
    assert_eq!(expanded(&pattern, Side::Source), Ok(vec![pattern.replace('*', "a")]));
}

#[test]
fn an_entry_with_such_a_name_is_no_pattern() {
    let place = tempfile::tempdir().unwrap();
    for name in ["a[1]", "a1"] {
        fs::write(place.path().join(name), "").unwrap();
    }
    let path = |name| place.path().join(name).to_str().unwrap().to_owned();
    assert_eq!(expanded(&path("a[1]"), Side::Source), Ok(vec![path("a[1]")]));
    assert_eq!(expanded(&path("a[1-9]"), Side::Source), Ok(vec![path("a1")]));
}

/// What may be in a pattern. Nothing of it means anything else to bash.
const PIECES: &[&str] =
    &["a", "b", ".", "/", "*", "?", "[ab]", "[!a]", "[a-c]", "**", "[[:alpha:]]", "*/"];

/// Names of entries, some below others.
fn name() -> impl Strategy<Value = String> {
    "(\\.?[abc]{1,2}/){0,2}\\.?[abc]{1,2}"
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn patterns_match_what_they_match_in_a_shell(
        names in prop::collection::vec(name(), 0..12),
        pieces in prop::collection::vec(prop::sample::select(PIECES), 1..5),
    ) {
        let place = tempfile::tempdir().unwrap();
        for name in names {
            let path = place.path().join(name);
            // Some names are taken already, by entries of the other kind.
            let _ = fs::create_dir_all(path.parent().unwrap());
            let _ = fs::File::create_new(path);
        }
        let pattern = format!("{}/{}", place.path().display(), pieces.concat());
        let ours = expand(vec![pattern.clone().into_bytes()], Side::Source);
        let ours: Vec<_> = ours.map_err(|fatal| fatal.text).unwrap();
        let alike = |paths: Vec<Vec<u8>>| -> Vec<String> {
            // Slashes in a row mean one.
            let path = |path| String::from_utf8(path).unwrap();
            let mut paths: Vec<_> = paths.into_iter().map(path).collect();
            for path in &mut paths {
                while path.contains("//") {
                    *path = path.replace("//", "/");
                }
            }
            paths.sort();
            paths
        };
        prop_assert_eq!(alike(ours), alike(by_bash(pattern.as_bytes())), "{}", pattern);
    }
}
