//! How much of anything there may be: what both ends keep to, and hold each other to.

/// Directories one below the other, at most: the depth of a directory below the root, in levels.
///
/// A tree that people made is a few dozen levels deep; one that a program made by mistake is
/// thousands. Each level takes a handle or two and an entry of the window as long as anything in
/// it is under way, so there must be an end to it. Half of it would do for all trees met so far;
/// with double of it the directories that wait for what is below them would no longer fit into
/// the window of 16,384 directories, and the walk would stand still.
pub const DEPTH_MAX: u32 = 10_000;
