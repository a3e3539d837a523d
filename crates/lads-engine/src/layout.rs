//! Where files lie: one provider for each kind of file system.

mod local;
mod synthetic;

use lads_core::layout::Layout;
use lads_core::schedule::OstSpec;
use lads_core::units::OstId;
use std::path::Path;

/// Answers where a file lies, or will lie.
pub trait Layouts: Send + Sync {
    /// The OSTs there are, numbered from zero; at least one.
    fn osts(&self) -> Vec<OstSpec>;

    /// Where a file that is there lies, by the numbers of its file system and inode.
    fn of_file(&self, device: u64, inode: u64) -> Layout;

    /// Where a new file will lie, the `number`-th of this transfer.
    fn of_new_file(&self, number: u64) -> Layout;

    /// Whether large files are best written past the page cache. They are on a block device: the
    /// data is durable when the write is, so putting blocks on record does not stall the writers.
    fn prefers_direct_writes(&self) -> bool {
        false
    }

    /// Takes as long as the OST pretends to need for one request before it serves it.
    fn pretend(&self, _ost: OstId) {}
}

/// The provider that `choice` names (`auto` or `synthetic:…`), for data below `root`.
///
/// # Errors
/// If there is no such provider, or its parameters make no sense; the text says which.
pub fn open(choice: &str, root: &Path) -> Result<Box<dyn Layouts>, String> {
    if let Some(parameters) = choice.strip_prefix("synthetic:") {
        return synthetic::Synthetic::parse(parameters).map(|it| Box::new(it) as Box<dyn Layouts>);
    }
    match choice {
        "auto" | "local" => Ok(Box::new(local::Local::of(root))),
        other => Err(format!(
            "no layout provider is called {other:?}: use auto or synthetic:osts=8,stripe_size=1M"
        )),
    }
}

#[cfg(test)]
mod contract;
