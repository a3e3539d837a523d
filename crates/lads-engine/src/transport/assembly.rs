//! How the bytes of a stream become frames, each directly in the buffer that was granted for it.
//!
//! ```text
//!   header and first row ──► further rows, if it has any ──► buffer_for ──► payload ──► a frame
//!         ▲                                                                               │
//!         └───────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! The code that has the bytes, of a socket or a pipe, asks where the next ones go
//! ([`Assembly::wanted`]), puts them there, and says how many there were ([`Assembly::on_bytes`]).
//! The payload is never copied.

use super::{Arrived, Frame, GrantedBuffers};
use lads_core::frame::{HEADER_BYTES, Header, ROW_BYTES, ROWS_MAX, Row, take_rows};
use std::io;

/// The header and the first row, which every frame has: one read gets both.
const FIRST_BYTES: usize = HEADER_BYTES + ROW_BYTES;

/// The frame of a stream that is arriving.
#[derive(Debug)]
pub(super) struct Assembly {
    head: Vec<u8>,
    /// The number of bytes in the head, as far as is known.
    head_bytes: usize,
    rows: Vec<Row>,
    /// Where the payload goes; set when the head is complete.
    coming: Option<Arrived>,
    /// How many bytes of the head, or of the payload, have come.
    filled: usize,
    /// The number of frames that arrived before.
    frames: u64,
}

impl Assembly {
    pub(super) fn new() -> Self {
        Self {
            head: vec![0; HEADER_BYTES + ROWS_MAX * ROW_BYTES],
            head_bytes: FIRST_BYTES,
            rows: Vec::new(),
            coming: None,
            filled: 0,
            frames: 0,
        }
    }

    /// Where the next bytes go; never empty.
    pub(super) fn wanted(&mut self) -> &mut [u8] {
        match &mut self.coming {
            Some(coming) => {
                let end = coming.header.payload_bytes as usize;
                &mut coming.buffer[self.filled..end]
            }
            None => &mut self.head[self.filled..self.head_bytes],
        }
    }

    /// `count` bytes were put there. Returns whether the frame is complete; `frame` then holds it.
    ///
    /// # Errors
    /// If the bytes are not a frame, or if there is no buffer for it.
    pub(super) fn on_bytes(
        &mut self,
        count: usize,
        buffers: &dyn GrantedBuffers,
        frame: &mut Frame,
    ) -> io::Result<bool> {
        self.filled += count;
        if self.coming.is_none() {
            if self.filled < self.head_bytes {
                return Ok(false);
            }
            let header = Header::take(&self.head[..HEADER_BYTES]).map_err(io::Error::other)?;
            self.head_bytes = HEADER_BYTES + usize::from(header.count) * ROW_BYTES;
            if self.filled < self.head_bytes {
                return Ok(false);
            }
            self.begin(header, buffers)?;
        }
        let Some(coming) = self.coming.take_if(|it| self.filled == payload_bytes(&it.header))
        else {
            return Ok(false);
        };
        frame.arrived = Some(coming);
        std::mem::swap(&mut frame.rows, &mut self.rows);
        (self.filled, self.head_bytes) = (0, FIRST_BYTES);
        self.frames += 1;
        Ok(true)
    }

    /// The head is complete: the payload comes next.
    fn begin(&mut self, header: Header, buffers: &dyn GrantedBuffers) -> io::Result<()> {
        take_rows(&header, &self.head[HEADER_BYTES..self.head_bytes], &mut self.rows)
            .map_err(io::Error::other)?;
        if header.number != self.frames {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let buffer = buffers.buffer_for(&header, &self.rows)?;
        assert!(payload_bytes(&header) <= buffer.len(), "checked before: {header:?}");
        self.coming = Some(Arrived { header, buffer });
        self.filled = 0;
        Ok(())
    }

    /// Whether no byte of the next frame has come.
    pub(super) fn is_between_frames(&self) -> bool {
        self.coming.is_none() && self.filled == 0
    }

    /// Nothing more comes: gives back the buffer of an incomplete frame.
    pub(super) fn abandon(&mut self, buffers: &dyn GrantedBuffers) {
        if let Some(coming) = self.coming.take() {
            drop(coming.buffer);
            buffers.on_frame_lost(coming.header.sink_ost);
        }
    }
}

fn payload_bytes(header: &Header) -> usize {
    header.payload_bytes as usize
}
