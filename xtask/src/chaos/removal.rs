//! Checks that a step removes nothing that it must keep: at the target, entries that no option
//! removes, and at the source, everything that `--remove-source-files` does not remove after it has
//! arrived. rsync, with copies of both trees, shows which entries of the source are removed.

use super::history::History;
use super::moves::{Content, may_be_replaced};
use super::plan::Step;
use super::room::{Room, Storage};
use super::rsync;
use super::selection::Selection;
use super::tree::is_bad_link;
use super::view::{Kinds, blocked, kinds};
use crate::shell;
use anyhow::{Result, ensure};
use lads_trees::{Seen, describe, is_own_name, visit};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, FileType};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The commands of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Company {
    /// One command.
    Alone,
    /// The same command twice.
    Twin,
    /// Also one that copies another source into the same target.
    Rival,
}

/// What both trees were before a step.
pub(super) struct Before {
    source: BTreeMap<PathBuf, Seen>,
    source_kinds: Kinds,
    target_kinds: Kinds,
    rival_kinds: Kinds,
    /// Whether a link of the source is bad ([`is_bad_link`]).
    has_bad_links: bool,
    /// Whether a link of the source leads to something in the source.
    has_inner_links: bool,
    moving: Option<Moving>,
}

/// What a step with `--remove-source-files` needs in addition.
struct Moving {
    /// A copy of the source.
    copy: PathBuf,
    /// The paths that rsync leaves in the source, if it can tell.
    kept: Option<BTreeSet<PathBuf>>,
}

impl Before {
    /// Looks at both trees before a step.
    pub(super) fn look(step: &Step, room: &Room) -> Result<Self> {
        let (source, target) = (room.source_beneath(), room.target_beneath());
        let root = source.canonicalize()?;
        let (mut has_bad_links, mut has_inner_links) = (false, false);
        visit(&source, &mut |path, metadata| {
            if metadata.is_symlink() {
                has_bad_links |= is_bad_link(path);
                has_inner_links |= path.canonicalize().is_ok_and(|it| it.starts_with(&root));
            }
        });
        Ok(Self {
            source: describe(&source),
            source_kinds: kinds(&source, step.choice.follows_links()),
            target_kinds: kinds(&target, false),
            rival_kinds: kinds(&room.path("home/rival"), false),
            has_bad_links,
            has_inner_links,
            moving: if step.moves() { Some(Moving::prepare(step, room)?) } else { None },
        })
    }

    /// The tree that must be at the target after a step that is complete.
    pub(super) fn expected<'a>(&'a self, source: &'a Path) -> &'a Path {
        self.moving.as_ref().map_or(source, |moving| &moving.copy)
    }

    /// The exit codes besides 0 that the trees explain.
    pub(super) fn exit_codes(&self, step: &Step, company: Company) -> Vec<i32> {
        let mut codes = Vec::new();
        if step.choice.follows_links() && self.has_bad_links {
            codes.push(3);
        }
        // A file that has two paths may be removed before it is read at the other one, and one
        // command may remove files that the other one has listed.
        let has_two_paths = step.choice.follows_links() && self.has_inner_links;
        if step.moves() && (has_two_paths || company != Company::Alone) {
            codes.extend([3, 8]);
        }
        let is_blocked = match company {
            Company::Rival => self.collides_with_rival(),
            Company::Alone | Company::Twin => self.may_stay_blocked(step),
        };
        codes.extend(is_blocked.then_some(6));
        codes
    }

    /// Whether a directory of the target may stay in the place of an entry of another kind.
    fn may_stay_blocked(&self, step: &Step) -> bool {
        // Excluded entries stay, and so do unfinished files of other transfers.
        let may_keep = |directory: &Path| {
            let below = self.target_kinds.range(directory.to_owned()..);
            let mut below = below.take_while(|(path, _)| path.starts_with(directory));
            step.selection != Selection::All || below.any(|(path, _)| is_own_name(path))
        };
        let blocked = blocked(&self.source_kinds, &self.target_kinds);
        blocked.into_iter().any(|directory| !step.choice.forces() || may_keep(directory))
    }

    /// Whether the target has directories with entries in the place of other entries of the source
    /// or of the source of a rival, or these two have entries of different kinds in the same place:
    /// one command may make a directory after the other one looked at its place.
    fn collides_with_rival(&self) -> bool {
        let Self { source_kinds: source, target_kinds: target, rival_kinds: rival, .. } = self;
        let is_blocked = |one| !blocked(one, target).is_empty();
        let differs = |(below, kind): (&PathBuf, &FileType)| {
            rival.get(below).is_some_and(|other| other.is_dir() != kind.is_dir())
        };
        is_blocked(source) || is_blocked(rival) || source.iter().any(differs)
    }

    /// Checks what a step has removed. `is_complete`: it has copied everything, and nothing has
    /// changed meanwhile.
    pub(super) fn check(
        &self,
        step: &Step,
        company: Company,
        is_complete: bool,
        room: &Room,
        history: &mut History,
    ) -> Result<()> {
        if company != Company::Rival {
            let removed = self.wrongly_removed(step, room, history);
            ensure!(removed.is_empty(), "removed at the target: {removed:?}");
        }
        match &self.moving {
            None if !history.has_changed() => {
                ensure!(describe(&room.source_beneath()) == self.source, "the source was changed");
            }
            None => {}
            Some(moving) => {
                self.check_source(room, history)?;
                if company != Company::Rival && !history.has_changed() {
                    // With --update, rsync ignores fractions of seconds.
                    let is_all = is_complete && !step.choice.has("--update");
                    self.check_as_rsync(moving, is_all, room)?;
                }
            }
        }
        self.check_moved(step, company, room, history)
    }

    /// The entries that were at the target before the step, and are gone although nothing allows
    /// to remove them.
    fn wrongly_removed(&self, step: &Step, room: &Room, history: &History) -> Vec<PathBuf> {
        let now = kinds(&room.target_beneath(), false);
        let is_directory = |kinds: &Kinds, path: &Path| kinds.get(path).map(FileType::is_dir);
        let is_replaced = |below: &Path| {
            below.ancestors().any(|above| {
                is_directory(&self.target_kinds, above) == Some(true)
                    && is_directory(&self.source_kinds, above) == Some(false)
                    && (above == below || step.choice.forces())
            })
        };
        let deletes_excluded =
            step.choice.has("--delete-excluded") && step.selection != Selection::All;
        let may_go = |(below, kind): &(&PathBuf, &FileType)| {
            let at_source = is_directory(&self.source_kinds, below);
            // A file has to make room before a directory is created.
            let is_widened = at_source == Some(true) && !kind.is_dir();
            let may_be_other = history.has_changed() || deletes_excluded;
            let is_deleted = step.choice.deletes() && (at_source.is_none() || may_be_other);
            now.contains_key(*below) || is_replaced(below) || is_widened || is_deleted
        };
        let is_own = |below: &Path| below.ancestors().any(is_own_name);
        let gone = self.target_kinds.iter().filter(|entry| !may_go(entry));
        gone.map(|(below, _)| below.clone()).filter(|below| !is_own(below)).collect()
    }

    /// Checks what a step with `--remove-source-files` has left at the source.
    fn check_source(&self, room: &Room, history: &History) -> Result<()> {
        if history.has_changed() {
            return Ok(());
        }
        let now = describe(&room.source_beneath());
        for (below, before) in &self.source {
            let kind = self.source[below].kind;
            match now.get(below) {
                // Removing its entries changes the time of a directory.
                Some(now) if kind.is_dir() => ensure!(now.kind.is_dir(), "{below:?} was replaced"),
                Some(now) => {
                    ensure!(now.what == before.what, "{below:?} was changed at the source");
                }
                None => ensure!(!kind.is_dir(), "the directory {below:?} was removed"),
            }
        }
        let new: Vec<_> = now.keys().filter(|below| !self.source.contains_key(*below)).collect();
        ensure!(new.is_empty(), "new at the source: {new:?}");
        Ok(())
    }

    /// Checks that a step has removed no other entries of the source than rsync and, if `is_all`,
    /// all of these.
    fn check_as_rsync(&self, moving: &Moving, is_all: bool, room: &Room) -> Result<()> {
        let Some(kept) = &moving.kept else { return Ok(()) };
        let left = kinds(&room.source_beneath(), false);
        let gone: Vec<_> = kept.iter().filter(|below| !left.contains_key(*below)).collect();
        ensure!(gone.is_empty(), "removed at the source, unlike rsync: {gone:?}");
        let more: Vec<_> = left.keys().filter(|below| !kept.contains(*below)).collect();
        ensure!(!is_all || more.is_empty(), "left at the source, unlike rsync: {more:?}");
        Ok(())
    }

    /// Checks that everything that was removed at the source, now or by earlier steps, is at the
    /// target.
    fn check_moved(
        &self,
        step: &Step,
        company: Company,
        room: &Room,
        history: &mut History,
    ) -> Result<()> {
        let moved = history.moves.take_moved(&room.source_beneath());
        if company == Company::Rival {
            history.moves.on_rival(&self.rival_kinds);
        }
        let target = room.target_beneath();
        let is_there = |below: &Path, content: &Content| {
            let has_other_path = || {
                step.choice.follows_links()
                    && history.names_of(below).any(|name| content.is_at(&target.join(name)))
            };
            content.is_at(&target.join(below)) || has_other_path()
        };
        let missing = moved.iter().filter(|(below, content)| !is_there(below, content));
        let missing: Vec<&PathBuf> = missing.map(|(below, _)| below).collect();
        let is_other = |below: &Path| {
            let is_of_rival = company == Company::Rival
                && may_be_replaced(below, &self.rival_kinds)
                && !self.rival_kinds.get(below).is_some_and(FileType::is_file);
            let may_be_version = self.may_differ(step, company, below, history);
            is_of_rival || (may_be_version && history.has_version_at(&target, below))
        };
        let lost: Vec<_> = missing.iter().filter(|below| !is_other(below)).collect();
        ensure!(lost.is_empty(), "removed at the source, and not at the target: {lost:?}");
        history.moves.forget_moved(&missing);
        Ok(())
    }

    /// Whether the target may have another version of a file that was removed at the source: if a
    /// rival may have replaced it, or if it had the size and the time of the version at the target
    /// when the command looked at it.
    fn may_differ(&self, step: &Step, company: Company, below: &Path, history: &History) -> bool {
        let is_compared = ["--checksum", "--ignore-times"].iter().any(|it| step.choice.has(it));
        let was_there = company == Company::Twin || self.target_kinds.contains_key(below);
        let is_unseen = history.stealthy.contains(below) && was_there && !is_compared;
        company == Company::Rival || is_unseen
    }
}

impl Moving {
    fn prepare(step: &Step, room: &Room) -> Result<Self> {
        let copy = room.path("before");
        let source = room.source_beneath();
        // Through links, rsync would also remove what they lead to. For rsync, a time that the
        // target cannot represent is another time.
        let is_told = !(step.choice.follows_links()
            || room.storage == Storage::PlainSink && step.choice.has("--update"));
        let kept = if is_told { Self::kept_by_rsync(step, room)? } else { None };
        copy_tree(&source, &copy)?;
        Ok(Self { copy, kept })
    }

    /// Lets rsync move a copy of the source into a copy of the target. Returns the paths that it
    /// leaves at the source, if it can tell.
    fn kept_by_rsync(step: &Step, room: &Room) -> Result<Option<BTreeSet<PathBuf>>> {
        let [source, target] = ["their-source", "their-target"].map(|name| room.path(name));
        copy_tree(&room.source_beneath(), &source)?;
        match room.target_beneath().exists() {
            true => copy_tree(&room.target_beneath(), &target)?,
            false => fs::create_dir(&target)?,
        }
        let mut command = Command::new("rsync");
        command.args(["-rlt", "--no-D", "--remove-source-files"]).args(step.choice.kinds());
        // Within a window, --update also passes over files that are equally old.
        command.args(step.choice.has("--update").then_some("--modify-window=0"));
        command.args(step.choice.passing()).args(step.selection.words(&room.path("home")));
        command.arg(format!("{}/", source.display())).arg(&target);
        let output = rsync::run(&command)?;
        let left = kinds(&source, false).into_keys().collect();
        fs::remove_dir_all(source)?;
        fs::remove_dir_all(target)?;
        let Some(output) = output else { return Ok(None) };
        let is_done = matches!(output.status.code(), Some(0 | rsync::PARTIAL));
        ensure!(is_done, "rsync: {}", String::from_utf8_lossy(&output.stderr));
        Ok(Some(left))
    }
}

impl Drop for Moving {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.copy);
    }
}

/// Copies a tree with all metadata.
fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    shell::run_quietly(Command::new("cp").arg("-a").arg(from).arg(to))
}
