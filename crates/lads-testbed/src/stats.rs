//! What a mounted file system says of itself in `.pfs/stats`, for those who look from outside.

use anyhow::{Context, Result};
use serde::Deserialize;
use std::fs;
use std::path::Path;

/// As much of `.pfs/stats` as the bound and the live picture have to know.
#[derive(Clone, Debug, Deserialize)]
pub struct Stats {
    /// When this was said, on `CLOCK_MONOTONIC`.
    #[serde(default)]
    pub now_seconds: f64,
    /// All OSTs, by index.
    pub osts: Vec<OstStats>,
    /// All OSSes, by index.
    pub osses: Vec<OssStats>,
}

/// One OST.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct OstStats {
    /// Its index.
    pub ost: usize,
    /// The OSS that holds it.
    pub oss: usize,
    /// Its rate now; `None` is unlimited.
    pub rate_bytes_per_second: Option<f64>,
    /// What lies on it.
    pub used_bytes: u64,
    /// Read from it since the counters began.
    pub read_bytes: u64,
    /// Written to it since the counters began.
    pub written_bytes: u64,
    /// Requests that wait for it now.
    pub queued: u64,
}

/// One OSS.
#[derive(Clone, Debug, Deserialize)]
pub struct OssStats {
    /// Its index.
    pub oss: usize,
    /// Its cap now; `None` is unlimited.
    pub rate_bytes_per_second: Option<f64>,
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
