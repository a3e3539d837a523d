//! What must hold when an attempt has ended everything.

use crate::disk::Name;
use crate::findings::Checked;
use crate::session::Session;
use crate::sink_end::{Item as SinkItem, State};
use crate::source_end::Item;
use crate::tree::{Node, Version};
use crate::world::World;
use lads_core::issue::Side;
use lads_core::message::Verb;
use lads_core::source::Outcome;
use lads_core::units::EntryId;
use std::collections::BTreeMap;

impl Session {
    /// Everything has ended: each entry well, or with a reason; and nothing is left over.
    pub(crate) fn check_finished(&self, world: &World) -> Checked {
        for (entry, item) in &self.source.items {
            match self.source.outcomes.get(entry) {
                None => return Err(format!("nothing was said of {item:?}")),
                Some(Outcome::Failed(_)) if world.is_excused(&item.path) => {}
                Some(Outcome::Failed(f)) => return Err(format!("{} failed: {f:?}", item.path)),
                Some(Outcome::Replaced) => {}
                Some(Outcome::Passed) => return Err(format!("{} is passed over", item.path)),
                Some(Outcome::There) => self.check_done(world, item, Verb::Directory)?,
                Some(Outcome::Done(verb, _)) => self.check_done(world, item, *verb)?,
            }
        }
        if let Some(entry) = self.source.outcomes.keys().find(|&e| !self.knows(*e)) {
            return Err(format!("entry {entry} ended, and never was"));
        }
        self.check_left_over(world)?;
        self.check_removal()?;
        self.check_books(world)?;
        self.check_counters(world)
    }

    /// Nothing is removed after a failure, unless that was asked for.
    fn check_removal(&self) -> Checked {
        let has_failed =
            self.source.outcomes.values().any(|outcome| matches!(outcome, Outcome::Failed(_)));
        let removed = self.sink.session.counters().entries_removed;
        let is_kept = has_failed && self.sink.config.removal.is_none_or(|it| !it.after_errors);
        if is_kept && removed > 0 {
            return Err(format!("something failed, and {removed} entries were removed"));
        }
        match self.source.session.counters().entries_removed == removed {
            true => Ok(()),
            false => Err("the source was told of other removals".to_owned()),
        }
    }

    fn knows(&self, entry: EntryId) -> bool {
        self.source.items.contains_key(&entry)
    }

    /// What is said to be done is at the sink, durable.
    fn check_done(&self, world: &World, item: &Item, verb: Verb) -> Checked {
        let is_gone = !world.tree.nodes.contains_key(&item.path);
        if is_gone && world.options.sink.removal.is_some() {
            // It was removed at the source when it had been moved, and so at the sink.
            return Ok(());
        }
        if !world.disk.names.contains_key(&item.path) {
            return Err(format!("{} is done, and is not at the sink", item.path));
        }
        if world.disk.may_lose_name(&item.path) {
            return Err(format!("the name {} is done, and not durable", item.path));
        }
        let Some((file, identity)) = item.file else { return Ok(()) };
        // A further name stands for the first, whichever version that one was moved in.
        let versions = &world.tree.files[file].versions;
        let is_the_one = |version: &&Version| holds(world, &item.path, version).is_ok();
        let may_be_link = matches!(verb, Verb::HardLink | Verb::Skip);
        if may_be_link && versions.iter().any(|version| is_the_one(&version)) {
            return Ok(());
        }
        let version = world.tree.version_of(&identity).ok_or("nobody announced this")?;
        holds(world, &item.path, version)
    }

    /// No unfinished file of this attempt is there but what is kept for another.
    fn check_left_over(&self, world: &World) -> Checked {
        let mut last = BTreeMap::new();
        for item in self.sink.items.values() {
            if matches!(item.state, State::Announced | State::Wanted) {
                return Err(format!("the sink has not ended {}", item.path));
            }
            last.insert(&item.path, item);
        }
        let ended = |item: &&&SinkItem| matches!(item.state, State::Committed | State::Dropped);
        for item in last.values().filter(ended) {
            if world.disk.unfinished.contains_key(&item.path) && !item.is_kept {
                return Err(format!("something unfinished is left of {}", item.path));
            }
        }
        Ok(())
    }

    /// No buffer and no grant has been lost.
    fn check_books(&self, world: &World) -> Checked {
        // A thread that hangs keeps its buffer: what it writes is of a file that was dropped.
        if world.hung.iter().any(|(side, _)| *side == Side::Sink) {
            return Ok(());
        }
        // Blocks of a file that failed may still be on their way.
        if !self.source.is_quiet(&self.sink) || self.source.books.had_stream_losses() {
            return Ok(());
        }
        if self.sink.buffers.iter().any(Option::is_some) {
            return Err("a buffer is not free".to_owned());
        }
        let (room, granted) = (self.source.books.room(), &self.sink.outstanding);
        if room != granted {
            return Err(format!("the sink granted {granted:?}, the source has {room:?}"));
        }
        Ok(())
    }

    fn check_counters(&self, world: &World) -> Checked {
        let counters = self.source.session.counters();
        let ended = counters.files_moved + counters.files_skipped;
        if world.excused.is_empty() {
            let is_all = ended == counters.files_found
                && counters.files_failed == 0
                && counters.bytes_done == counters.bytes_found;
            if !is_all {
                return Err(format!("all is done, and the counters say {counters:?}"));
            }
            let written = self.sink.session.counters().bytes_done;
            if counters.bytes_skipped + written != counters.bytes_done {
                return Err(format!(
                    "the sink has written {written}, and the source: {counters:?}"
                ));
            }
        }
        Ok(())
    }
}

/// Whether the sink has exactly this version under a path, durable.
fn holds(world: &World, path: &str, version: &Version) -> Checked {
    let body = world.disk.file(path).ok_or_else(|| format!("{path} is no file at the sink"))?;
    let data = version.data_set();
    for range in data.iter() {
        let found = body.durable.single(range.clone());
        if found != Some(version.content) {
            return Err(format!("{path} {range:?} is {found:?}, not {:?}", version.content));
        }
    }
    if let Some(range) = body.durable.stranger(version.content, &data) {
        return Err(format!("{path} has {range:?} where the source has a hole"));
    }
    let identity = version.identity;
    if (body.size, body.mtime) != (identity.size, identity.mtime) {
        return Err(format!("{path} has the size or time of another version"));
    }
    Ok(())
}

/// What the source does not have is gone from the sink, if that was asked for without a limit.
pub(crate) fn check_extra(world: &World) -> Checked {
    let is_limited = world.options.sink.removal.is_none_or(|it| it.count_max.is_some());
    let extra = world.extra();
    if is_limited || extra.is_empty() {
        return Ok(());
    }
    Err(format!("{extra:?} are at the sink, and not at the source"))
}

/// The sink's tree is the source's.
pub(crate) fn check_same(world: &World) -> Checked {
    for (path, node) in &world.tree.nodes {
        let there = world.disk.names.get(path).map(|name| &name.what);
        match (node, there) {
            (Node::Directory, Some(Name::Directory)) => {}
            (Node::Symlink(target), Some(Name::Symlink(found))) if target == found => {}
            (Node::File(file), Some(Name::File(body))) => {
                holds(world, path, world.tree.current(*file))?;
                let first = &world.tree.names_of(*file)[0];
                if world.disk.names[first].what != Name::File(*body) {
                    return Err(format!("{path} and {first} are one file at the source only"));
                }
            }
            _ => return Err(format!("{path} is {node:?} at the source, {there:?} at the sink")),
        }
    }
    Ok(())
}
