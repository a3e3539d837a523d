//! Packages for Debian and for Red Hat, and an image for containers.

use super::dynamic::GLIBC;
use super::machine::Machine;
use super::{TIME, files};
use crate::scratch::Scratch;
use crate::{setup, shell};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

const VERSION: &str = env!("CARGO_PKG_VERSION");
const SUMMARY: &str = "Layout-aware bulk data mover between parallel file systems";
const DESCRIPTION: &str = "Moves large data sets between parallel file systems, over a LAN or a \
                           long-distance network.";

/// A package, for both kinds.
#[derive(Debug)]
pub(super) struct Package {
    name: &'static str,
    summary: &'static str,
    description: &'static str,
    /// More fields of the control file of Debian.
    debian: String,
    /// More tags of the spec of Red Hat.
    red_hat: String,
}

impl Package {
    /// The package with the program.
    pub(super) fn of_lads() -> Self {
        Self {
            name: "lads",
            summary: SUMMARY,
            description: DESCRIPTION,
            debian: format!("Depends: libc6 (>= {GLIBC})\nRecommends: openssh-client\n"),
            red_hat: format!("Requires: {}\nRecommends: openssh-clients\n", needed_by_rpm()),
        }
    }

    /// The package with the shims.
    pub(super) fn of_shims() -> Self {
        Self {
            name: "lads-mpi",
            summary: "Remote files for MPI programs",
            description: "Libraries that MPI programs preload to use remote files of lads, for \
                          MPICH 4, Open MPI 4 and the standard ABI of MPI 5, and newer ones.",
            debian: format!(
                "Depends: lads (= {VERSION}), libc6 (>= {GLIBC})\nSuggests: libmpich12, \
                 libopenmpi3\n"
            ),
            red_hat: format!("Requires: lads = {VERSION}, {}\n", needed_by_rpm()),
        }
    }
}

/// Returns the capability of the oldest glibc, which is that of 64 bits on both machines.
fn needed_by_rpm() -> String {
    format!("libc.so.6(GLIBC_{GLIBC})(64bit)")
}

/// Programs that create packages, and their Debian packages.
const NEEDED: [(&str, &str); 2] = [("dpkg-deb", "dpkg"), ("rpmbuild", "rpm")];

/// Installs the programs that create packages.
pub(super) fn prepare() -> Result<()> {
    setup::install(&setup::missing(&NEEDED))
}

/// Creates a package for Debian from an installed tree.
pub(super) fn deb(
    package: &Package,
    machine: &Machine,
    tree: &Path,
    out: &Path,
) -> Result<PathBuf> {
    let Package { name, summary, description, debian, .. } = package;
    let control = format!(
        "Package: {name}\nVersion: {VERSION}\nArchitecture: {}\nMaintainer: LADS developers\n\
         Section: net\nPriority: optional\n{debian}Description: {summary}\n {description}\n",
        machine.debian
    );
    fs::create_dir_all(tree.join("DEBIAN"))?;
    fs::write(tree.join("DEBIAN/control"), control)?;
    let package = out.join(format!("{name}_{VERSION}_{}.deb", machine.debian));
    let mut pack = shell::command("dpkg-deb");
    // Older versions of Debian do not read zstd.
    pack.env("SOURCE_DATE_EPOCH", TIME).args(["--root-owner-group", "-Zxz", "--build"]);
    shell::run_quietly(pack.arg(tree).arg(&package))?;
    fs::remove_dir_all(tree.join("DEBIAN"))?;
    Ok(package)
}

/// Creates a package for Red Hat from an installed tree.
pub(super) fn rpm(
    package: &Package,
    machine: &Machine,
    tree: &Path,
    out: &Path,
) -> Result<PathBuf> {
    let Package { name, summary, description, red_hat, .. } = package;
    let scratch = Scratch::new(out, "rpm")?;
    let spec = scratch.join("lads.spec");
    // The directories of its own are those that have its name; the files are all others.
    let mut find = shell::command("find");
    find.current_dir(tree).args(["usr", "-type", "f", "-printf", "/%p\\n"]);
    let mut files: Vec<_> = shell::output(&mut find)?.lines().map(str::to_owned).collect();
    files.sort();
    let text = format!(
        "Name: {name}\nVersion: {VERSION}\nRelease: 1\nSummary: {summary}\n\
         License: Apache-2.0 OR MIT\n{red_hat}AutoReqProv: no\n\n\
         %description\n{description}\n\n\
         %install\ncp -a {}/usr %{{buildroot}}/\n\n\
         %files\n%dir /usr/lib/lads\n%dir /usr/share/doc/{name}\n{}\n",
        tree.display(),
        files.join("\n")
    );
    fs::write(&spec, text)?;
    let mut build = shell::command("rpmbuild");
    build.env("SOURCE_DATE_EPOCH", TIME).args(["-bb", "--target", machine.name]);
    let top = format!("_topdir {}", scratch.join("top").display());
    for definition in [
        top.as_str(),
        "_buildhost lads",
        "use_source_date_epoch_as_buildtime 1",
        "clamp_mtime_to_source_date_epoch 1",
        "_build_id_links none",
        "_binary_payload w9.xzdio",
        // The program is stripped already, and may be for another machine.
        "__os_install_post %{nil}",
        "debug_package %{nil}",
        "_unpackaged_files_terminate_build 1",
    ] {
        build.args(["--define", definition]);
    }
    shell::run_quietly(build.arg(&spec))?;
    let name = format!("{name}-{VERSION}-1.{}.rpm", machine.name);
    let built = scratch.join("top/RPMS").join(machine.name).join(&name);
    let package = out.join(name);
    fs::copy(&built, &package).with_context(|| built.display().to_string())?;
    Ok(package)
}

/// Creates an image in the format of OCI, as an archive (`podman load`, `skopeo copy
/// oci-archive:`). It contains only the program.
pub(super) fn image(machine: &Machine, program: &Path, out: &Path) -> Result<PathBuf> {
    let scratch = Scratch::new(out, "image")?;
    let root = scratch.join("root");
    fs::create_dir_all(root.join("usr/bin"))?;
    fs::create_dir_all(root.join("tmp"))?;
    fs::copy(program, root.join("usr/bin/lads"))?;
    let layout = scratch.join("layout");
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs)?;
    let layer = scratch.join("layer.tar");
    files::tar(&root, Path::new("."), &layer)?;
    let contents = digest(&layer)?;
    shell::run_quietly(shell::command("gzip").args(["-9", "-n"]).arg(&layer))?;
    let layer = blob(&layer.with_added_extension("gz"), &blobs)?;
    let add = |value: &Value| -> Result<(String, u64)> {
        let path = scratch.join("blob");
        fs::write(&path, value.to_string())?;
        blob(&path, &blobs)
    };
    let config = add(&json!({
        "architecture": machine.oci,
        "os": "linux",
        "created": "2023-11-14T22:13:20Z",
        "config": { "Entrypoint": ["/usr/bin/lads"], "Env": ["PATH=/usr/bin"] },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{contents}")] },
    }))?;
    let described = |kind: &str, (digest, size): &(String, u64)| {
        let kind = format!("application/vnd.oci.image.{kind}");
        json!({ "mediaType": kind, "digest": format!("sha256:{digest}"), "size": size })
    };
    let manifest = add(&json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": described("config.v1+json", &config),
        "layers": [described("layer.v1.tar+gzip", &layer)],
    }))?;
    let mut entry = described("manifest.v1+json", &manifest);
    entry["annotations"] = json!({ "org.opencontainers.image.ref.name": VERSION });
    let index = json!({ "schemaVersion": 2, "manifests": [entry] });
    fs::write(layout.join("index.json"), index.to_string())?;
    fs::write(layout.join("oci-layout"), json!({ "imageLayoutVersion": "1.0.0" }).to_string())?;
    let image = out.join(format!("{}.oci.tar", files::name(machine)));
    files::tar(&layout, Path::new("."), &image)?;
    Ok(image)
}

/// Moves a file to the blobs. Returns its digest and its size in bytes.
fn blob(path: &Path, blobs: &Path) -> Result<(String, u64)> {
    let (digest, size) = (digest(path)?, fs::metadata(path)?.len());
    fs::rename(path, blobs.join(&digest))?;
    Ok((digest, size))
}

/// Returns the SHA-256 digest of a file, in hexadecimal digits.
pub(super) fn digest(path: &Path) -> Result<String> {
    let line = shell::output(shell::command("sha256sum").arg(path))?;
    Ok(line.split_whitespace().next().context("sha256sum prints nothing")?.to_owned())
}
