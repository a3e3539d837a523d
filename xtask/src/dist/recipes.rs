//! The source archive, and recipes of Spack, EasyBuild and conda-forge that build it.
//!
//! The archive contains `contrib`, so a recipe in `contrib` cannot contain its checksum. The
//! recipes that users download are copies with the checksum.

use super::packages;
use crate::shell;
use anyhow::{Context, Result, ensure};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Recipes, below `contrib`.
const RECIPES: [&str; 3] =
    ["spack/package.py", "easybuild/LADS-0.1.0-GCCcore-14.3.0.eb", "conda-forge/meta.yaml"];
const CHECKSUM: &str = "@SHA256@";
const CRATES: &str = "    # @CRATES@\n";
const CRATE_CHECKSUMS: &str = "    # @CRATE_CHECKSUMS@\n";

/// Packs the sources of the current commit, which must be all that was built.
pub(super) fn sources(out: &Path) -> Result<PathBuf> {
    let changed = shell::output(shell::command("git").args(["status", "--porcelain"]))?;
    if !changed.is_empty() {
        println!("the source archive would lack these uncommitted changes:\n{changed}");
    }
    let name = format!("lads-{}", env!("CARGO_PKG_VERSION"));
    let tar = out.join(format!("{name}.tar"));
    let mut archive = shell::command("git");
    archive.args(["archive", "--format=tar", &format!("--prefix={name}/"), "HEAD", "-o"]);
    shell::run_quietly(archive.arg(&tar))?;
    shell::run_quietly(shell::command("gzip").args(["-9", "-n", "-f"]).arg(&tar))?;
    Ok(tar.with_added_extension("gz"))
}

/// Writes the recipes for a source archive.
pub(super) fn write(archive: &Path, out: &Path) -> Result<Vec<PathBuf>> {
    let checksum = packages::digest(archive)?;
    let lock = fs::read_to_string(shell::root().join("Cargo.lock"))?;
    let (crates, checksums) = crates(&lock)?;
    let mut written = Vec::new();
    for name in RECIPES {
        let text = fs::read_to_string(shell::root().join("contrib").join(name))
            .with_context(|| format!("contrib/{name}"))?;
        let text = text.replace(CHECKSUM, &checksum).replace(CRATES, &crates);
        let text = text.replace(CRATE_CHECKSUMS, &checksums);
        let is_complete = ["@SHA256@", "@CRATES@", "@CRATE_CHECKSUMS@"];
        let is_complete = !is_complete.iter().any(|mark| text.contains(mark));
        ensure!(text.contains(&checksum) && is_complete, "contrib/{name} is incomplete");
        let path = out.join("contrib").join(name);
        fs::create_dir_all(path.parent().context("a recipe has a directory")?)?;
        fs::write(&path, text)?;
        if path.extension().is_some_and(|it| it != "yaml") {
            let parse = "import ast, sys; ast.parse(open(sys.argv[1]).read())";
            shell::run_quietly(shell::command("python3").args(["-c", parse]).arg(&path))?;
        }
        written.push(path);
    }
    Ok(written)
}

/// Returns the crates of a lock file, and their checksums, in the words of EasyBuild.
fn crates(lock: &str) -> Result<(String, String)> {
    let (mut crates, mut checksums) = (String::new(), String::new());
    for package in lock.split("[[package]]").skip(1) {
        let value = |key: &str| {
            let line = package.lines().find_map(|line| line.strip_prefix(key));
            line.map(|line| line.trim_start_matches(" = ").trim_matches('"').to_owned())
        };
        let (name, version) = (value("name"), value("version"));
        let name = name.context("a package has no name")?;
        let version = version.with_context(|| format!("{name} has no version"))?;
        // Packages of the workspace have none.
        if let Some(checksum) = value("checksum") {
            writeln!(crates, "    ('{name}', '{version}'),")?;
            writeln!(checksums, "    {{'{name}-{version}.tar.gz': '{checksum}'}},")?;
        }
    }
    Ok((crates, checksums))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipes_have_the_version_of_the_workspace_and_no_checksum() {
        let version = env!("CARGO_PKG_VERSION");
        let lines = [
            format!("    version(\"{version}\", sha256=\"{CHECKSUM}\")\n"),
            format!("\nversion = '{version}'\n"),
            format!("{{% set version = \"{version}\" %}}\n"),
        ];
        for (name, line) in RECIPES.into_iter().zip(lines) {
            let text = fs::read_to_string(shell::root().join("contrib").join(name)).unwrap();
            assert!(text.contains(&line), "{name} does not contain {line}");
            assert!(text.contains(CHECKSUM), "{name} contains another checksum");
            let named = [format!("lads-{version}.tar.gz"), "lads-{{ version }}.tar.gz".to_owned()];
            let named: usize = named.iter().map(|it| text.matches(it).count()).sum();
            assert_eq!(text.matches(".tar.gz").count(), named, "{name} names another archive");
        }
        assert!(RECIPES[1].contains(&format!("LADS-{version}-")), "{}", RECIPES[1]);
    }

    #[test]
    fn crates_of_the_lock_file_have_checksums() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.2.3\"\nsource = \"x\"\n\
                    checksum = \"0a\"\n\n[[package]]\nname = \"lads-cli\"\nversion = \"0.1.0\"\n";
        let (crates, checksums) = crates(lock).unwrap();
        assert_eq!(crates, "    ('a', '1.2.3'),\n");
        assert_eq!(checksums, "    {'a-1.2.3.tar.gz': '0a'},\n");
    }
}
