//! The local disk of a client: slots with frames, and the list of them.

use super::bytes::{Stamp, WriteBuffer};
use super::disk::offsets;
use crate::findings::Checked;
use lads_core::remote::client::About;
use lads_core::remote::kept::{self, Kept, Record};
use lads_core::remote::message::ViewNumber;
use lads_core::remote::name::Server;
use lads_core::remote::outbox::Staging;
use lads_core::staging::Slot;
use lads_core::view::{Datatype, View};
use std::collections::{HashMap, HashSet};

/// The disk.
#[derive(Debug)]
pub(super) struct ClientDisk {
    list: Vec<u8>,
    views: HashSet<ViewNumber>,
    /// The frame in each slot.
    slots: HashMap<Slot, (u64, Vec<Stamp>)>,
    /// Frames on the list that are not written at the server.
    kept: HashSet<u64>,
    pub(super) is_full: bool,
    slots_max: usize,
}

/// The disk is full, or has failed.
#[derive(Debug)]
pub(super) struct DiskFull;

/// A frame of a list, to be sent by another program.
#[derive(Clone, Debug)]
pub(super) struct LeftFrame {
    pub(super) displacement: u64,
    pub(super) filetype: Vec<u8>,
    pub(super) path: Vec<u8>,
    pub(super) position: u64,
    pub(super) stamps: Vec<Stamp>,
}

impl LeftFrame {
    /// Returns the offsets in the file, and the bytes there.
    pub(super) fn bytes(&self) -> Checked<Vec<(u64, Stamp)>> {
        let datatype = Datatype::take(&self.filetype).map_err(|error| error.to_string())?;
        let view = View::new(self.displacement, &datatype).map_err(|error| error.to_string())?;
        let positions = self.position..self.position + self.stamps.len() as u64;
        Ok(offsets(&view, positions).into_iter().zip(self.stamps.iter().copied()).collect())
    }
}

impl ClientDisk {
    pub(super) fn new(slot_bytes: u32, slots_max: usize) -> Self {
        let mut list = Vec::new();
        kept::encode(&kept::begin(Server::Here, slot_bytes), &mut list);
        Self {
            list,
            views: HashSet::new(),
            slots: HashMap::new(),
            kept: HashSet::new(),
            is_full: false,
            slots_max,
        }
    }

    /// Reports whether another frame could be put there.
    pub(super) fn has_room(&self) -> bool {
        !self.is_full && self.kept.len() < self.slots_max
    }

    /// Puts frames into their slots, and on the list: all of them, or none.
    pub(super) fn put(
        &mut self,
        frames: &[Staging<WriteBuffer, About>],
    ) -> Checked<Result<(), DiskFull>> {
        if self.is_full {
            return Ok(Err(DiskFull));
        }
        for Staging { id, about, buffer, slot } in frames {
            if let Some((other, _)) = self.slots.get(slot)
                && self.kept.contains(other)
            {
                return Err(format!("frame {id} is put into slot {} over {other}", slot.0));
            }
            let (target, length) = (&about.target, about.length as usize);
            self.slots.insert(*slot, (*id, buffer.content[..length].to_vec()));
            if self.views.insert(target.view) {
                let view = Record::View {
                    view: target.view,
                    file: target.file,
                    path: target.path.clone(),
                    displacement: target.displacement,
                    filetype: target.filetype.clone(),
                };
                kept::encode(&view, &mut self.list);
            }
            let (position, length) = (about.position, about.length);
            let (id, slot, view) = (*id, *slot, target.view);
            let frame = Kept { id, view, position, length, slot, checksum: 0 };
            kept::encode(&Record::Kept(frame), &mut self.list);
            self.kept.insert(id);
        }
        Ok(Ok(()))
    }

    /// Returns the bytes of a slot, which a client sends.
    pub(super) fn take(&self, slot: Slot, length: u32) -> Checked<Vec<Stamp>> {
        let (_, stamps) = self.slots.get(&slot).ok_or("an empty slot is sent")?;
        match stamps.len() == length as usize {
            true => Ok(stamps.clone()),
            false => Err(format!("slot {} has another frame than is sent", slot.0)),
        }
    }

    /// Frames are written at the server.
    pub(super) fn on_gone(&mut self, ids: &[u64]) -> Checked {
        for id in ids {
            if !self.kept.remove(id) {
                return Err(format!("frame {id} is gone, and was not on the list"));
            }
            kept::encode(&Record::Gone { id: *id }, &mut self.list);
        }
        Ok(())
    }

    /// Returns the frames on the list, in the order in which they were written.
    pub(super) fn left(&self) -> Checked<Vec<LeftFrame>> {
        let mut list = self.list.clone();
        kept::encode(&Record::End, &mut list);
        let list = kept::read(&list).map_err(|error| error.to_string())?;
        let frame = |kept: &Kept| {
            let view = list.views.get(&kept.view).ok_or("a frame of an unknown view")?;
            let (_, stamps) = self.slots.get(&kept.slot).ok_or("a frame without bytes")?;
            Ok(LeftFrame {
                displacement: view.displacement,
                filetype: view.filetype.clone(),
                path: view.path.clone(),
                position: kept.position,
                stamps: stamps.clone(),
            })
        };
        list.frames.iter().map(frame).collect()
    }
}
