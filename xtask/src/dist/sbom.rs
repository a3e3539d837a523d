//! List of all components of the program, in the format of CycloneDX 1.5.

use crate::shell;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Writes the list of all packages that are linked into the program.
pub(super) fn write(out: &Path) -> Result<PathBuf> {
    let metadata = shell::metadata(&["--locked", "--filter-platform", "x86_64-unknown-linux-gnu"])?;
    let list = list(&metadata).context("cargo metadata")?;
    let path = out.join(format!("lads-{}.cdx.json", env!("CARGO_PKG_VERSION")));
    fs::write(&path, format!("{list:#}\n"))?;
    Ok(path)
}

fn list(metadata: &Value) -> Option<Value> {
    let packages = metadata["packages"].as_array()?.iter();
    let packages: BTreeMap<&str, &Value> =
        packages.filter_map(|it| Some((it["id"].as_str()?, it))).collect();
    let nodes = metadata["resolve"]["nodes"].as_array()?.iter();
    let nodes: BTreeMap<&str, &Value> =
        nodes.filter_map(|it| Some((it["id"].as_str()?, it))).collect();
    let (root, _) = packages.iter().find(|(_, package)| package["name"] == "lads-cli")?;
    let (mut linked, mut waiting) = (BTreeSet::new(), vec![*root]);
    while let Some(id) = waiting.pop() {
        if linked.insert(id) {
            let below = nodes.get(id)?["deps"].as_array()?.iter().filter(|it| is_linked(it));
            waiting.extend(below.filter_map(|it| it["pkg"].as_str()));
        }
    }
    let component = |id: &&str| {
        let package = packages.get(*id)?;
        let (name, version) = (package["name"].as_str()?, package["version"].as_str()?);
        let is_ours = package["source"].is_null();
        let mut component = json!({
            "type": "library",
            "name": name,
            "version": version,
            "licenses": [{ "expression": package["license"] }],
        });
        if !is_ours {
            component["purl"] = json!(format!("pkg:cargo/{name}@{version}"));
        }
        Some(component)
    };
    let components: Vec<Value> = linked.iter().filter_map(component).collect();
    let version = env!("CARGO_PKG_VERSION");
    Some(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": { "type": "application", "name": "lads", "version": version },
        },
        "components": components,
    }))
}

/// Reports whether a dependency is linked into the program, not only used by its tests or build.
fn is_linked(dependency: &Value) -> bool {
    let kinds = dependency["dep_kinds"].as_array();
    kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_only_for_tests_is_not_in_the_list() {
        let metadata = shell::metadata(&["--locked"]).unwrap();
        let list = list(&metadata).unwrap();
        let names: Vec<_> =
            list["components"].as_array().unwrap().iter().map(|it| it["name"].clone()).collect();
        for name in ["lads-core", "lads-sys", "clap", "rustix", "serde"] {
            assert!(names.contains(&json!(name)), "{name}");
        }
        for name in ["tempfile", "expect-test", "xtask", "proptest", "lads-trees"] {
            assert!(!names.contains(&json!(name)), "{name}");
        }
        assert!(list["components"].as_array().unwrap().iter().all(|it| {
            it["licenses"][0]["expression"].is_string() && it["version"].is_string()
        }));
    }
}
