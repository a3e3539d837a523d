//! Installed files, and archives of them.

use super::{TIME, machine::Machine};
use crate::shell;
use anyhow::Result;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Pages next to the program.
pub(super) const PAGES: [&str; 4] = ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"];

/// Units of the daemon.
const UNITS: [&str; 2] =
    ["contrib/systemd/lads-serve.service", "contrib/systemd/lads-serve.socket"];

/// Shells, and where each one looks for completions below `/usr/share`.
const SHELLS: [(&str, &str); 3] = [
    ("bash", "bash-completion/completions/lads"),
    ("zsh", "zsh/site-functions/_lads"),
    ("fish", "fish/vendor_completions.d/lads.fish"),
];

/// Creates the directory of an archive, with a program for one machine. `speaker` is the program
/// for this machine; it writes the manual pages.
pub(super) fn unpacked(program: &Path, speaker: &Path, root: &Path) -> Result<()> {
    fs::create_dir_all(root.join("completions"))?;
    place(program, &root.join("lads"), 0o755)?;
    pages(&PAGES, root)?;
    shell::run_quietly(shell::command(speaker).arg("man").arg(root.join("man")))?;
    for (language, _) in SHELLS {
        let text = completions(speaker, language)?;
        fs::write(root.join("completions").join(format!("lads.{language}")), text)?;
    }
    Ok(())
}

/// Creates the tree of an installed package, with the programs that it sends to other hosts.
pub(super) fn installed(
    program: &Path,
    sent: &[PathBuf],
    speaker: &Path,
    root: &Path,
) -> Result<()> {
    place(program, &root.join("usr/bin/lads"), 0o755)?;
    for program in sent {
        let name = program.file_name().unwrap_or_default();
        place(program, &root.join("usr/lib/lads").join(name), 0o755)?;
    }
    pages(&PAGES, &root.join("usr/share/doc/lads"))?;
    // Not enabled: the administrator writes the configuration first.
    pages(&UNITS, &root.join("usr/lib/systemd/system"))?;
    let man = root.join("usr/share/man/man1");
    shell::run_quietly(shell::command(speaker).arg("man").arg(&man))?;
    for entry in fs::read_dir(man)? {
        shell::run_quietly(shell::command("gzip").args(["-9", "-n"]).arg(entry?.path()))?;
    }
    for (language, place) in SHELLS {
        let path = root.join("usr/share").join(place);
        fs::create_dir_all(path.parent().unwrap_or(root))?;
        fs::write(path, completions(speaker, language)?)?;
    }
    Ok(())
}

fn completions(speaker: &Path, language: &str) -> Result<String> {
    shell::output(shell::command(speaker).args(["completions", language]))
}

/// Copies pages of the project to a directory.
pub(super) fn pages(pages: &[&str], to: &Path) -> Result<()> {
    pages.iter().map(Path::new).try_for_each(|page| {
        place(&shell::root().join(page), &to.join(page.file_name().unwrap_or_default()), 0o644)
    })
}

pub(super) fn place(from: &Path, to: &Path, mode: u32) -> Result<()> {
    fs::create_dir_all(to.parent().unwrap_or(to))?;
    fs::copy(from, to)?;
    Ok(fs::set_permissions(to, fs::Permissions::from_mode(mode))?)
}

/// Packs a directory with its name. The same files give the same bytes.
pub(super) fn archive(directory: &Path, to: &Path) -> Result<PathBuf> {
    let (above, name) = (directory.parent().unwrap_or(directory), directory.file_name());
    tar(above, name.unwrap_or_default().as_ref(), to)?;
    // Without the name and the time of the file.
    shell::run_quietly(shell::command("gzip").args(["-9", "-n", "-f"]).arg(to))?;
    Ok(to.with_added_extension("gz"))
}

/// Packs an entry of a directory without compressing it.
pub(super) fn tar(directory: &Path, entry: &Path, to: &Path) -> Result<()> {
    let mut tar = shell::command("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mode=go=rX,u+rw,a-s"]);
    tar.args(["--format=ustar", &format!("--mtime=@{TIME}"), "-cf"]).arg(to);
    shell::run_quietly(tar.arg("-C").arg(directory).arg(entry))
}

/// Returns the name of a file without its suffix.
pub(super) fn name(machine: &Machine) -> String {
    format!("lads-{}-{}-linux", env!("CARGO_PKG_VERSION"), machine.name)
}
