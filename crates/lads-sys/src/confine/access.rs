//! Reading, or reading and writing.

/// Access of a confined process to the files of its tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileAccess {
    /// Read files and list directories.
    Read,
    /// Also write, create, remove, rename, link and truncate, and change metadata.
    ReadAndWrite,
}
