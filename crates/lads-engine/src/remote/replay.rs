//! Sends what a program that has ended left on its local disk.

use super::client::LeftOver;
use super::{Client, FileHandle, RemoteError};
use lads_core::remote::kept::{Kept, List};
use lads_core::remote::message::{FRAME_BYTES, OpenMode, ViewNumber};
use lads_core::remote::name::Server;
use lads_sys::Arena;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// What is left to be sent.
#[derive(Debug)]
pub struct Replay {
    path: PathBuf,
    left: LeftOver,
}

/// Why it cannot be sent.
#[derive(Debug, Error)]
pub enum ReplayError {
    /// The list, or the bytes, cannot be used.
    #[error("cannot use {path}: {error}")]
    List {
        /// The list.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The server.
    #[error(transparent)]
    Server(#[from] RemoteError),
}

impl Replay {
    /// Opens the list that an error of the program named.
    ///
    /// # Errors
    /// If it is no such list, or its program still runs.
    pub fn open(path: &Path) -> Result<Self, ReplayError> {
        let left = LeftOver::open(path);
        let left = left.map_err(|error| ReplayError::List { path: path.to_owned(), error })?;
        Ok(Self { path: path.to_owned(), left })
    }

    /// The server to which the program wrote.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.left.list.server
    }

    /// The path of one of the files there; empty if nothing is left.
    #[must_use]
    pub fn path_there(&self) -> &[u8] {
        let List { frames, views, .. } = &self.left.list;
        frames.first().map_or(&[], |frame| &views[&frame.view].path)
    }

    /// How many bytes are left to be sent.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.left.list.frames.iter().map(|frame| u64::from(frame.length)).sum()
    }

    /// Sends everything to a server, in the order in which the program wrote it, makes it durable
    /// there, and removes the list and the bytes.
    ///
    /// # Errors
    /// If something cannot be read here, or written there. Then nothing is removed, and it can be
    /// done again.
    pub fn send(self, client: &Client, mut on_sent: impl FnMut(u64)) -> Result<(), ReplayError> {
        let failed = |error| ReplayError::List { path: self.path.clone(), error };
        let mut buffer = Arena::new(1, FRAME_BYTES as usize).map_err(failed)?.take();
        let mut files: HashMap<&[u8], (FileHandle, ViewNumber)> = HashMap::new();
        for (frame, number) in self.left.list.frames.iter().zip(1..) {
            let view = &self.left.list.views[&frame.view];
            if !files.contains_key(view.path.as_slice()) {
                files.insert(&view.path, self.opened(client, frame, number)?);
            }
            let (file, current) = files.get_mut(view.path.as_slice()).expect("it was put there");
            if *current != frame.view {
                file.set_view(view.displacement, &view.filetype)?;
                *current = frame.view;
            }
            self.left.read(frame, &mut buffer).map_err(failed)?;
            file.write(frame.position, &[&buffer[..frame.length as usize]])?;
            on_sent(frame.length.into());
        }
        for (file, _) in files.into_values() {
            file.close(false)?;
        }
        let Self { path, left } = self;
        left.remove().map_err(|error| ReplayError::List { path, error })
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
