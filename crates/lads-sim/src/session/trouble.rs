//! Ends that fall silent, and calls that never return: what nobody is told of.

use super::{Ended, Session};
use crate::findings::Checked;
use crate::world::{Happening, Mishap, Silent, World};
use lads_core::issue::Side;
use std::time::Duration;

/// When a silent end is taken for dead: a thousand times what a message takes, at most a tenth of
/// what a world lasts.
const PATIENCE: Duration = Duration::from_secs(2);
/// No end is silent for longer than this and goes on, in microseconds: some are given up before.
const SILENCE_MICROS_MAX: u64 = 8_000_000;

/// What happens to an end that is silent is kept until it goes on; what a thread has done that
/// hangs is never heard of.
pub(crate) fn heard(world: &mut World, happening: Happening) -> Option<Happening> {
    if let Happening::Worker(side, worker) = happening
        && world.hung.contains(&(side, worker))
    {
        return None;
    }
    let Some(silent) = world.silent.as_ref().map(|silent| silent.side) else {
        return Some(happening);
    };
    let is_held = match &happening {
        Happening::Walk | Happening::StreamKnownLost(_) => silent == Side::Source,
        Happening::Arrival(..) | Happening::Receiver(_) => silent == Side::Sink,
        Happening::Worker(side, _) | Happening::Message(side) | Happening::Talk(side) => {
            silent == *side
        }
        Happening::Mishap(Mishap::StopSource) => silent == Side::Source,
        Happening::Mishap(Mishap::StopSink) => silent == Side::Sink,
        // Both ends take part in it.
        Happening::Mishap(Mishap::StreamLoss) => true,
        _ => false,
    };
    if !is_held {
        return Some(happening);
    }
    world.silent.as_mut().expect("seen above").held.push(happening);
    None
}

/// An end is stopped for a while, or for good; no message tells the other.
pub(crate) fn fall_silent(world: &mut World) {
    let side = if world.rng.hits(500) { Side::Source } else { Side::Sink };
    let lasts = Duration::from_micros(world.rng.of_any_size(1000, SILENCE_MICROS_MAX));
    begin(world, side, lasts);
}

/// The host of the source loses its power: it never says another word.
pub(crate) fn die(world: &mut World) {
    begin(world, Side::Source, Duration::MAX);
}

fn begin(world: &mut World, side: Side, lasts: Duration) {
    if world.silent.is_some() {
        return;
    }
    world.log(|| format!("(trouble) {side:?} is silent for {lasts:?}"));
    world.stats.silences += 1;
    world.silent = Some(Silent { side, held: Vec::new() });
    match lasts < PATIENCE {
        true => world.after(lasts, Happening::Thaw),
        false => world.after(PATIENCE, Happening::GiveUp),
    }
}

impl Session {
    /// The end goes on with all that has come meanwhile.
    pub(crate) fn thaw(&mut self, world: &mut World) -> Checked<Option<Ended>> {
        let Some(silent) = world.silent.take() else { return Ok(None) };
        world.log(|| format!("(trouble) {:?} goes on", silent.side));
        world.stats.thaws += 1;
        for happening in silent.held {
            if let Some(ended) = self.step(world, happening)? {
                return Ok(Some(ended));
            }
        }
        Ok(None)
    }

    /// The other end takes the silent one for dead. A source leaves the sink as it is; a sink comes
    /// to the end of what it does.
    pub(crate) fn give_up_peer(&mut self, world: &mut World) -> Checked<Ended> {
        let silent = world.silent.take().ok_or("nobody is silent, and is given up")?;
        match silent.side {
            Side::Source => self.drain(world)?,
            Side::Sink => self.sink.crash(world)?,
        }
        Ok(Ended::Broken)
    }

    /// A thread that is in a call stays in it.
    pub(crate) fn hang(&self, world: &mut World) {
        let side = if world.rng.hits(500) { Side::Source } else { Side::Sink };
        let busy = match side {
            Side::Source => self.source.busy_workers(),
            Side::Sink => self.sink.busy_workers(),
        };
        if busy.is_empty() {
            return;
        }
        let worker = *world.rng.pick(&busy);
        world.log(|| format!("(trouble) a call of {side:?} worker {worker} never returns"));
        world.stats.hangs += 1;
        world.hung.insert((side, worker));
    }
}
