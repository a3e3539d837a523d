//! One attempt: both ends from their beginning until it is over, or something breaks it off.

mod trouble;

use crate::findings::Checked;
use crate::options::Faults;
use crate::sink_end::SinkEnd;
use crate::source_end::SourceEnd;
use crate::watch::LOOK_INTERVAL;
use crate::world::{Arrival, Happening, Mishap, World};
use lads_core::issue::Side;
use lads_core::sink::Event;
use std::time::Duration;

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Everything was ended.
    Finished,
    /// Someone stopped it.
    Stopped,
    /// A crash, or the network was lost.
    Broken,
}

/// More steps than any world needs: it goes round in circles.
const STEPS_MAX: u64 = 400_000;

/// Both ends.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) source: SourceEnd,
    pub(crate) sink: SinkEnd,
}

impl Session {
    /// Runs an attempt in which so much goes wrong.
    pub(crate) fn run(world: &mut World, faults: Faults) -> Checked<(Self, Ended)> {
        world.begin_session(faults);
        let mut session = Self { source: SourceEnd::new(world), sink: SinkEnd::new(world)? };
        schedule_mishaps(world);
        if world.watch.is_some() {
            world.after(Duration::ZERO, Happening::Look);
        }
        let steps_max = world.stats.steps + STEPS_MAX;
        let ended = loop {
            let Some(happening) = world.next_happening() else {
                if world.hung.is_empty() {
                    return Err(session.dump("nothing will happen any more"));
                }
                // All waits for a call that never returns, until somebody kills it.
                session.sink.crash(world)?;
                break Ended::Broken;
            };
            let Some(happening) = trouble::heard(world, happening) else { continue };
            if world.stats.steps > steps_max {
                if !world.hung.is_empty() {
                    // A thread looks again and again for the answer of one that never returns.
                    session.sink.crash(world)?;
                    break Ended::Broken;
                }
                return Err(session.dump("it does not end"));
            }
            if let Some(ended) = session.step(world, happening)? {
                break ended;
            }
            session.poll(world)?;
            session.record(world);
            if session.is_over(world) {
                session.drain(world)?;
                break session.ending();
            }
        };
        let counters = session.source.session.counters();
        world.stats.blocks_resent += counters.blocks_resent;
        world.stats.failures += counters.files_failed;
        world.stats.crashes += u64::from(ended == Ended::Broken);
        world.stats.stops += u64::from(ended == Ended::Stopped);
        world.log(|| format!("{ended:?}: {counters:?}"));
        Ok((session, ended))
    }

    /// Records the counters of both ends, if it is time.
    fn record(&self, world: &mut World) {
        let now = world.now;
        if let Some(recorder) = &mut world.recorder {
            recorder.on_step(now, self.source.session.counters(), self.sink.session.counters());
        }
    }

    /// The ends that are not silent go on.
    fn poll(&mut self, world: &mut World) -> Checked {
        if !world.is_silent(Side::Source) {
            self.source.poll(world)?;
        }
        if !world.is_silent(Side::Sink) {
            self.sink.poll(world)?;
        }
        Ok(())
    }

    /// Says how the attempt ended, if it did.
    pub(crate) fn step(
        &mut self,
        world: &mut World,
        happening: Happening,
    ) -> Checked<Option<Ended>> {
        match happening {
            Happening::Walk => self.source.on_walk(world)?,
            Happening::Worker(Side::Source, worker) => self.source.on_worker(world, worker)?,
            Happening::Worker(Side::Sink, worker) => self.sink.on_worker(world, worker)?,
            Happening::Arrival(stream, arrival) => {
                let is_given_up = self.sink.on_arrival(world, stream, arrival)?;
                self.give_up(world, stream, is_given_up);
            }
            Happening::Receiver(stream) => {
                let is_given_up = self.sink.on_receiver(world, stream)?;
                self.give_up(world, stream, is_given_up);
            }
            Happening::StreamKnownLost(stream) => {
                if self.source.on_stream_known_lost(world, stream) {
                    world.log(|| "all streams are lost".to_owned());
                    self.drain(world)?;
                    return Ok(Some(Ended::Broken));
                }
            }
            Happening::Message(Side::Source) => self.source.on_message(world)?,
            Happening::Message(Side::Sink) => self.sink.on_message(world)?,
            Happening::Talk(Side::Source) => self.source.on_talk(world)?,
            Happening::Talk(Side::Sink) => self.sink.on_talk(world)?,
            Happening::Wake => {}
            Happening::Look => self.look(world)?,
            Happening::Thaw => return self.thaw(world),
            Happening::GiveUp => return self.give_up_peer(world).map(Some),
            Happening::Mishap(mishap) => return self.on_mishap(world, mishap),
        }
        Ok(None)
    }

    /// Looks whether an OST was passed over, and will look again.
    fn look(&self, world: &mut World) -> Checked {
        let now = world.now;
        if let Some(watch) = &mut world.watch {
            watch.look(now, self.source.books.neglected().into_iter(), self.sink.neglected())?;
        }
        // If nothing else will ever happen, that is an end, too.
        if world.has_happenings() {
            world.after(LOOK_INTERVAL, Happening::Look);
        }
        Ok(())
    }

    fn give_up(&mut self, world: &mut World, stream: usize, is_given_up: bool) {
        if is_given_up {
            self.source.lose_stream(world, stream);
        }
    }

    fn on_mishap(&mut self, world: &mut World, mishap: Mishap) -> Checked<Option<Ended>> {
        world.log(|| format!("(mishap) {mishap:?}"));
        match mishap {
            Mishap::ChangeAtSource => {
                let World { rng, tree, options, .. } = world;
                if let Some((paths, text)) = tree.change(rng, options) {
                    world.excused.extend(paths);
                    world.log(|| format!("(mishap) {text}"));
                }
            }
            Mishap::StreamLoss => {
                let stream = world.rng.index(self.sink.receivers.len());
                self.source.lose_stream(world, stream);
                self.sink.on_arrival(world, stream, Arrival::Cut)?;
            }
            Mishap::StopSource => self.source.stop(world)?,
            Mishap::StopSink => self.sink.tell(world, Event::Stop)?,
            Mishap::Silence => trouble::fall_silent(world),
            Mishap::SourceDeath => trouble::die(world),
            Mishap::Hang => self.hang(world),
            Mishap::NetworkLoss | Mishap::SourceCrash => {
                self.drain(world)?;
                return Ok(Some(Ended::Broken));
            }
            Mishap::SinkCrash => {
                self.sink.crash(world)?;
                return Ok(Some(Ended::Broken));
            }
            Mishap::PowerCut => {
                self.sink.crash(world)?;
                let World { rng, disk, stats, .. } = world;
                disk.cut_power(rng, stats);
                return Ok(Some(Ended::Broken));
            }
        }
        Ok(None)
    }

    /// The sink's threads come to the end of what they do, and are given nothing more.
    pub(crate) fn drain(&mut self, world: &mut World) -> Checked {
        self.sink.is_cut_off = true;
        if world.is_silent(Side::Sink) {
            // It will not go on before it is killed.
            return self.sink.crash(world);
        }
        while !self.sink.is_idle() {
            let Some(happening) = world.next_happening() else {
                // The process is killed at last.
                let is_hung = world.hung.iter().any(|(side, _)| *side == Side::Sink);
                return if is_hung { self.sink.crash(world) } else { Err("a thread never ends")? };
            };
            match happening {
                Happening::Worker(side, worker) if world.hung.contains(&(side, worker)) => {}
                Happening::Worker(Side::Sink, worker) => self.sink.on_worker(world, worker)?,
                Happening::Receiver(stream) => {
                    let receiver = &mut self.sink.receivers[stream];
                    let (write, started) = receiver.writing.take().expect("it was writing");
                    self.sink.finish_write(world, write, started)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn is_over(&self, world: &World) -> bool {
        let is_heard = !world.has_messages(Side::Source);
        self.source.session.is_over() && self.sink.session.is_over() && is_heard
    }

    fn ending(&self) -> Ended {
        match self.source.session.is_finished() {
            true => Ended::Finished,
            false => Ended::Stopped,
        }
    }

    fn dump(&self, text: &str) -> String {
        format!("{text}\n{self:#?}")
    }
}

fn schedule_mishaps(world: &mut World) {
    let faults = world.faults.clone();
    let stops = if world.rng.hits(500) { Mishap::StopSource } else { Mishap::StopSink };
    let counts = [
        (Mishap::ChangeAtSource, faults.changes),
        (Mishap::StreamLoss, faults.stream_losses),
        (Mishap::NetworkLoss, faults.network_losses),
        (Mishap::SourceCrash, faults.source_crashes),
        (Mishap::SinkCrash, faults.sink_crashes),
        (Mishap::PowerCut, faults.power_cuts),
        (stops, faults.stops),
        (Mishap::Silence, faults.silences),
        (Mishap::SourceDeath, faults.source_deaths),
        (Mishap::Hang, faults.hangs),
    ];
    for (mishap, count) in counts {
        for _ in 0..count {
            let micros = world.rng.of_any_size(100, 3_000_000);
            world.after(Duration::from_micros(micros), Happening::Mishap(mishap));
        }
    }
}
