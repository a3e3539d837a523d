//! How an input is played to a session: step by step, then to the end.

use crate::choices::Choices;

/// What an input led to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    /// Whether all entries have ended, and the sink has said FINISHED.
    pub is_finished: bool,
    /// Files that got their names.
    pub files_moved: u64,
    /// Whether the session refused its peer.
    pub is_refused: bool,
}

/// A session, its owner and its peer.
pub(crate) trait Play {
    /// What the input still chooses.
    fn choices(&self) -> &Choices<'_>;
    /// What it has led to so far.
    fn reached(&self) -> Reached;
    /// One thing happens, as the input chooses.
    fn step(&mut self);
    /// Everything that is to be done is done.
    fn come_to_an_end(&mut self);
}

/// Steps of an input that are taken; beyond that it only costs time.
pub(crate) const STEPS_MAX: u32 = 4000;

/// Rounds after which a session that still has something to do never ends: far more than files and
/// blocks that [`STEPS_MAX`] steps can make.
pub(crate) const ROUNDS_MAX: u32 = 100_000;

/// Takes steps until the input chooses no more or the peer is refused, then goes to the end.
pub(crate) fn play(mut end: impl Play) -> Reached {
    for _ in 0..STEPS_MAX {
        if end.choices().is_empty() || end.reached().is_refused {
            break;
        }
        end.step();
    }
    end.come_to_an_end();
    end.reached()
}
