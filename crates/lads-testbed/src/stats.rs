//! The contents of `.pfs/stats` of a mounted file system, for programs that read them.

use anyhow::{Context, Result};
use serde::Deserialize;
use std::fs;
use std::path::Path;

/// The part of `.pfs/stats` that readers need.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Stats {
    /// The time of these figures, on `CLOCK_MONOTONIC`.
    #[serde(default)]
    pub now_seconds: f64,
    /// All OSTs, by index.
    pub osts: Vec<OstStats>,
    /// All OSSes, by index.
    pub osses: Vec<OssStats>,
    /// The number of operations on names since the counters began.
    #[serde(default)]
    pub metadata_operations: u64,
    /// The settings with which it was mounted.
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
    /// Its present rate; `None` means unlimited.
    pub rate_bytes_per_second: Option<f64>,
    /// The number of bytes that it can hold.
    pub capacity_bytes: u64,
    /// The number of bytes on it.
    pub used_bytes: u64,
    /// The number of files that have a part on it.
    pub files: u64,
    /// The number of bytes read from it since the counters began.
    pub read_bytes: u64,
    /// The number of bytes written to it since the counters began.
    pub written_bytes: u64,
    /// The time that it was busy since the counters began.
    pub busy_seconds: f64,
    /// The number of requests that wait for it now.
    pub queued: u64,
    /// The most requests that waited at the same time since the counters began.
    pub queued_max: u64,
}

/// One OSS.
#[derive(Clone, Debug, Deserialize)]
pub struct OssStats {
    /// Its index.
    pub oss: usize,
    /// Its present cap; `None` means unlimited.
    pub rate_bytes_per_second: Option<f64>,
    /// The number of bytes read from and written to its OSTs since the counters began.
    #[serde(default)]
    pub bytes: u64,
}

impl Stats {
    /// Reads the statistics from a mounted file system, or from a copy of its file.
    ///
    /// # Errors
    /// If there is no such file, or if it has other contents.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        serde_json::from_str(&text).with_context(|| path.display().to_string())
    }
}
