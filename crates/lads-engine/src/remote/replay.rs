//! Sends the data that a program has left on its local disk.

use super::client::{LeftOver, Unusable};
use super::error::RemoteError;
use super::{Client, FileHandle};
use lads_core::remote::kept::{Damage, Kept, List, ListError};
use lads_core::remote::message::{FRAME_BYTES, OpenMode, ViewNumber};
use lads_core::remote::name::Server;
use lads_core::sizes;
use lads_sys::Arena;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Data that was not sent.
#[derive(Debug)]
pub struct Replay {
    path: PathBuf,
    left: LeftOver,
}

/// The reason why data was not sent.
#[derive(Debug, Error)]
pub enum ReplayError {
    /// The list, or the file with the bytes, cannot be used.
    #[error("cannot use {path}: {error}")]
    List {
        /// The list.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// The list, or a part of the data, cannot be read. Both files were kept.
    #[error("{path} is damaged: {text}")]
    Damaged {
        /// The list.
        path: PathBuf,
        /// The extent of the damage, and what was done.
        text: String,
    },
    /// An error of the server.
    #[error(transparent)]
    Server(#[from] RemoteError),
}

impl Replay {
    /// Opens the list that an error of the program named.
    ///
    /// # Errors
    /// If the file is no such list, is damaged so that nothing can be sent, or its program still
    /// runs.
    pub fn open(path: &Path) -> Result<Self, ReplayError> {
        let path = path.to_owned();
        match LeftOver::open(&path) {
            Ok(left) => Ok(Self { path, left }),
            Err(Unusable::List(error @ ListError::Damaged)) => {
                let text = format!("{error}; nothing was sent, and nothing was removed");
                Err(ReplayError::Damaged { path, text })
            }
            Err(Unusable::List(error)) => {
                Err(ReplayError::List { path, error: io::Error::other(error) })
            }
            Err(Unusable::System(error)) => Err(ReplayError::List { path, error }),
        }
    }

    /// Returns the damage to the list, if it is not whole. Then data that the server has already
    /// may count as unsent: if it is sent again, it may replace newer data.
    #[must_use]
    pub fn damage(&self) -> Option<&Damage> {
        self.left.list.damage.as_ref()
    }

    /// Returns the server to which the program wrote.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.left.list.server
    }

    /// Returns the path of one of the files there; empty if nothing is left.
    #[must_use]
    pub fn path_there(&self) -> &[u8] {
        let List { frames, views, .. } = &self.left.list;
        frames.first().map_or(&[], |frame| &views[&frame.view].path)
    }

    /// Returns the number of bytes that are left to be sent.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.left.list.frames.iter().map(|frame| u64::from(frame.length)).sum()
    }

    /// Sends everything to a server, in the order in which the program wrote it, makes it durable
    /// there, and removes the list and the bytes. Frames that cannot be read are skipped. If there
    /// are any, or the list is damaged, both files are kept.
    ///
    /// # Errors
    /// If something cannot be read here, or written there. Then nothing is removed, and everything
    /// can be sent again.
    pub fn send(self, client: &Client, mut on_sent: impl FnMut(u64)) -> Result<(), ReplayError> {
        let failed = |error| ReplayError::List { path: self.path.clone(), error };
        let mut buffer = Arena::new(1, FRAME_BYTES as usize).map_err(failed)?.take();
        let mut files: HashMap<&[u8], (FileHandle, ViewNumber)> = HashMap::new();
        let mut unread = Unread::default();
        for (frame, number) in self.left.list.frames.iter().zip(1..) {
            if let Err(error) = self.left.read(frame, &mut buffer) {
                unread.add(frame, error);
                continue;
            }
            let view = &self.left.list.views[&frame.view];
            if !files.contains_key(view.path.as_slice()) {
                files.insert(&view.path, self.opened(client, frame, number)?);
            }
            let (file, current) = files.get_mut(view.path.as_slice()).expect("it was put there");
            if *current != frame.view {
                file.set_view(view.displacement, &view.filetype)?;
                *current = frame.view;
            }
            file.write(frame.position, &[&buffer[..frame.length as usize]])?;
            on_sent(frame.length.into());
        }
        for (file, _) in files.into_values() {
            file.close(false)?;
        }
        if let Some(text) = self.left_unsent(unread) {
            return Err(ReplayError::Damaged { path: self.path, text });
        }
        let Self { path, left } = self;
        left.remove().map_err(|error| ReplayError::List { path, error })
    }

    /// Describes the data that was not sent, if there is any or its amount is unknown.
    fn left_unsent(&self, unread: Unread) -> Option<String> {
        let all = sizes::bytes(self.bytes());
        let mut parts: Vec<_> = self.damage().map(ToString::to_string).into_iter().collect();
        if let Some(error) = unread.first {
            let unread = sizes::bytes(unread.bytes);
            parts.push(format!("{unread} of {all} of data cannot be read: {error}"));
        }
        let what = parts.join("; ");
        (!parts.is_empty()).then(|| format!("{what}. The rest was sent, and nothing was removed"))
    }

    /// Opens the file of a frame, with the view of the frame.
    fn opened(
        &self,
        client: &Client,
        frame: &Kept,
        number: u128,
    ) -> Result<(FileHandle, ViewNumber), ReplayError> {
        let view = &self.left.list.views[&frame.view];
        // The program may not have waited until it was made.
        let mode = OpenMode { reads: false, writes: true, creates: true, is_new: false };
        let file = client.open(&view.path, mode, number.to_le_bytes(), false)?;
        file.set_view(view.displacement, &view.filetype)?;
        Ok((file, frame.view))
    }
}

/// Frames that cannot be read.
#[derive(Default)]
struct Unread {
    bytes: u64,
    /// The first error.
    first: Option<io::Error>,
}

impl Unread {
    fn add(&mut self, frame: &Kept, error: io::Error) {
        self.bytes += u64::from(frame.length);
        self.first.get_or_insert(error);
    }
}
