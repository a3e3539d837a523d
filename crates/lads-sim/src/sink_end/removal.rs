//! What the sink removes when everything else has ended: a thread asks the source which names it
//! has, some at a time, and removes those that it has not.

use super::{Job, SinkEnd};
use crate::disk::{Lasting, Name};
use crate::findings::Checked;
use crate::options::Options;
use crate::rng::Rng;
use crate::tree::{Node, join};
use crate::world::{Happening, World};
use lads_core::issue::Side;
use lads_core::message::{Presence, Question};
use lads_core::sink::{Event, Permission, RemovalConfig};
use std::collections::BTreeMap;

/// Names in one question.
const NAMES_MAX: usize = 3;

/// What a thread of the sink removes, and how far it has come.
#[derive(Debug, Default)]
pub(crate) struct Removal {
    /// Directories and names in them that nobody has asked about.
    to_ask: Vec<(String, Vec<String>)>,
    asked: BTreeMap<u64, (String, Vec<String>)>,
}

impl Options {
    /// Whether anything is removed, in one world of four.
    pub(crate) fn draw_removal(&mut self, rng: &mut Rng) {
        self.sink.removal = rng.hits(250).then(|| RemovalConfig {
            after_errors: rng.hits(300),
            count_max: rng.hits(300).then(|| rng.below(6)),
        });
        self.source.may_be_asked = self.sink.removal.is_some();
    }
}

impl World {
    /// Puts at the sink what the source does not have.
    pub(crate) fn plant(&mut self, rng: &mut Rng) {
        let is_directory = |node: &Node| *node == Node::Directory;
        let directories = self.tree.nodes.iter().filter(|(_, node)| is_directory(node));
        let mut directories: Vec<String> = directories.map(|(path, _)| path.clone()).collect();
        // Those above one that is there are there, too.
        directories.retain(|path| !path.contains('/') && rng.hits(500));
        let lasting = |what| Lasting { what, is_durable: true };
        for path in directories.iter().map(String::as_str).chain([""]) {
            if !path.is_empty() {
                self.disk.names.insert(path.to_owned(), lasting(Name::Directory));
            }
            for index in 0..rng.below(6) {
                let what = Name::Symlink(b"nowhere".to_vec());
                self.disk.names.insert(join(path, &format!("x{index}")), lasting(what));
            }
            let extra = join(path, "extra");
            for name in ["", "a", "b"] {
                let what =
                    if name.is_empty() { Name::Directory } else { Name::Symlink(b"x".to_vec()) };
                let path = if name.is_empty() { extra.clone() } else { join(&extra, name) };
                self.disk.names.insert(path, lasting(what));
            }
        }
    }

    /// What the source has under names.
    pub(crate) fn look_up(&self, question: &Question) -> Vec<Presence> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let directory = text(&question.directory);
        let presence = |name: &Vec<u8>| match self.tree.nodes.get(&join(&directory, &text(name))) {
            None => Presence::Absent,
            Some(Node::Directory) => Presence::Directory,
            Some(_) => Presence::Other,
        };
        question.names.iter().map(presence).collect()
    }

    /// What is at the sink and not at the source.
    pub(crate) fn extra(&self) -> Vec<&String> {
        self.disk.names.keys().filter(|path| !self.tree.nodes.contains_key(*path)).collect()
    }
}

impl Removal {
    /// What there is to ask of a directory.
    fn push_names(&mut self, world: &World, directory: &str) {
        let below = world.disk.names.keys().filter_map(|path| match directory {
            "" => Some(path.as_str()),
            _ => path.strip_prefix(directory)?.strip_prefix('/'),
        });
        let names: Vec<String> =
            below.filter(|name| !name.contains('/')).map(str::to_owned).collect();
        let questions = names.chunks(NAMES_MAX).map(|it| (directory.to_owned(), it.to_vec()));
        self.to_ask.extend(questions);
    }
}

impl SinkEnd {
    pub(crate) fn begin_removal(&self, world: &World, is_permitted: bool) -> Job {
        let mut removal = Removal::default();
        if is_permitted {
            removal.push_names(world, "");
        }
        Job::Remove(removal)
    }

    /// Goes on as far as answers have come; looks again later.
    pub(crate) fn go_on_removing(
        &mut self,
        world: &mut World,
        worker: usize,
        mut removal: Removal,
    ) -> Checked {
        let mut is_over = self.session.permission() == Permission::Stopped;
        while let Some((number, answers)) = self.session.take_answer() {
            is_over |= self.act_on(world, &mut removal, number, &answers)?;
        }
        if is_over || (removal.to_ask.is_empty() && removal.asked.is_empty()) {
            return self.tell(world, Event::RemovalOver);
        }
        while self.session.may_ask()
            && let Some((directory, names)) = removal.to_ask.pop()
        {
            let bytes = |text: &String| text.as_bytes().to_vec();
            let number = self.session.ask(bytes(&directory), names.iter().map(bytes).collect());
            removal.asked.insert(number, (directory, names));
        }
        self.workers[worker] = Some(Job::Remove(removal));
        let wait = world.rng.micros(10, 5000);
        world.after(wait, Happening::Worker(Side::Sink, worker));
        Ok(())
    }

    /// Whether nothing more is to be done.
    fn act_on(
        &mut self,
        world: &mut World,
        removal: &mut Removal,
        number: u64,
        answers: &[Presence],
    ) -> Checked<bool> {
        let asked = removal.asked.remove(&number);
        let (directory, names) = asked.ok_or("an answer to no question")?;
        for (name, presence) in names.iter().zip(answers) {
            let path = join(&directory, name);
            match presence {
                Presence::Absent if self.remove_all(world, &path)? => return Ok(true),
                Presence::Directory => removal.push_names(world, &path),
                _ => {}
            }
        }
        Ok(false)
    }

    /// Removes a name and all below it; whether that has to end before it is done.
    fn remove_all(&mut self, world: &mut World, path: &str) -> Checked<bool> {
        let below = format!("{path}/");
        let paths = world.disk.names.keys().rev();
        let paths = paths.filter(|it| *it == path || it.starts_with(&below));
        for path in paths.cloned().collect::<Vec<_>>() {
            if self.session.permission() != Permission::Granted {
                return Ok(true);
            }
            if world.tree.nodes.contains_key(&path) {
                return Err(format!("{path} is removed, and is at the source"));
            }
            world.log(|| format!("{path} is removed"));
            world.disk.names.remove(&path);
            self.session.on_removed();
        }
        Ok(false)
    }
}
