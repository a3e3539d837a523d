//! What a mounted file system says of itself in `.pfs/stats`, for those who look from outside.

use anyhow::{Context, Result};
use serde::Deserialize;
use std::fs;
use std::path::Path;

/// As much of `.pfs/stats` as those who look have to know.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Stats {
    /// When this was said, on `CLOCK_MONOTONIC`.
    #[serde(default)]
    pub now_seconds: f64,
    /// All OSTs, by index.
    pub osts: Vec<OstStats>,
    /// All OSSes, by index.
    pub osses: Vec<OssStats>,
    /// Operations on names since the counters began.
    #[serde(default)]
    pub metadata_operations: u64,
    /// How it was mounted.
    #[serde(default)]
    pub settings: serde_json::Map<String, serde_json::Value>,
}

/// One OST.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct OstStats {
    /// Its index.
    pub ost: usize,
    /// The OSS that holds it.
    pub oss: usize,
    /// What it can be used for.
    pub state: String,
    /// Its rate now; `None` is unlimited.
    pub rate_bytes_per_second: Option<f64>,
    /// What it can hold.
    pub capacity_bytes: u64,
    /// What lies on it.
    pub used_bytes: u64,
    /// Files that have a part on it.
    pub files: u64,
    /// Read from it since the counters began.
    pub read_bytes: u64,
    /// Written to it since the counters began.
    pub written_bytes: u64,
    /// How long it served since the counters began.
    pub busy_seconds: f64,
    /// Requests that wait for it now.
    pub queued: u64,
    /// The most that waited at a time since the counters began.
    pub queued_max: u64,
}

/// One OSS.
#[derive(Clone, Debug, Deserialize)]
pub struct OssStats {
    /// Its index.
    pub oss: usize,
    /// Its cap now; `None` is unlimited.
    pub rate_bytes_per_second: Option<f64>,
    /// Read from and written to its OSTs since the counters began.
    #[serde(default)]
    pub bytes: u64,
}

impl Stats {
    /// Reads what a mounted file system, or a copy of its words, says.
    ///
    /// # Errors
    /// If there is no such file, or it says something else.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        serde_json::from_str(&text).with_context(|| path.display().to_string())
    }
}
