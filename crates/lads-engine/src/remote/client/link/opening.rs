//! Files and views, as many as the server takes.

use super::{Inner, Link};
use crate::remote::client::RemoteError;
use lads_core::limits::CLIENT_FILES_MAX;
use lads_core::remote::message::{Call, FileNumber, ViewNumber};
use rustix::io::Errno;
use std::sync::{MutexGuard, PoisonError};

impl Link {
    /// Asks for a file to be opened, if the server takes one more. It waits for those whose close
    /// was deferred. Returns the number of the request.
    pub(in crate::remote::client) fn ask_to_open(
        &self,
        (file, call): (FileNumber, Call),
        what: &str,
        defers: bool,
    ) -> Result<u64, RemoteError> {
        let is_closing =
            |inner: &Inner| inner.held.iter().any(|held| matches!(held.call, Call::Close { .. }));
        let inner =
            self.wait_while_awaited(|inner| !inner.taken.has_room_for_file() && is_closing(inner));
        if !inner.taken.has_room_for_file() && inner.lost.is_some() {
            return self.outlived(inner);
        }
        if !inner.taken.has_room_for_file() {
            let text = format!(
                "cannot open {what}: this process has {CLIENT_FILES_MAX} files open there, which \
                 is the maximum (EMFILE); close some of them"
            );
            return Err(RemoteError { errno: Errno::MFILE.raw_os_error(), text });
        }
        Ok(self.request_with(inner, false, call, defers.then_some(file)))
    }

    /// A file could not be opened. The server keeps its number until it is closed; what it answers
    /// to that, nobody needs to know.
    pub(in crate::remote::client) fn close_unopened(&self, file: FileNumber) {
        let number = self.request(false, Call::Close { file }, None);
        self.lock().waiting.remove(&number);
    }

    /// Asks for a view to be set, as soon as the server takes one more: others are forgotten when
    /// their frames are sent.
    pub(in crate::remote::client) fn defer_view(&self, file: FileNumber, call: Call) {
        let inner = self.wait_while_awaited(|inner| !inner.taken.has_room_for_view());
        self.request_with(inner, false, call, Some(file));
    }

    /// Reserves a view of a file, so that [`Self::set_reserved_view`] need not wait. `None` if the
    /// server takes few more.
    pub(in crate::remote::client) fn reserve_view(&self, file: FileNumber) -> Option<ViewNumber> {
        let mut inner = self.lock();
        if !inner.taken.has_room_for_extra_view() {
            return None;
        }
        inner.numbers += 1;
        let view = ViewNumber(inner.numbers);
        inner.taken.reserve(view, file);
        Some(view)
    }

    /// Asks for a reserved view to be set.
    pub(in crate::remote::client) fn set_reserved_view(&self, file: FileNumber, call: Call) {
        self.request(false, call, Some(file));
    }

    /// Waits until frames are sent that something comes after.
    pub(super) fn wait_while_awaited(
        &self,
        is_open: impl Fn(&Inner) -> bool,
    ) -> MutexGuard<'_, Inner> {
        let mut inner = self.lock();
        if inner.lost.is_none() && is_open(&inner) {
            inner.awaited += 1;
            self.changed.notify_all();
            let is_open = |inner: &mut Inner| inner.lost.is_none() && is_open(inner);
            let waited = self.changed.wait_while(inner, is_open);
            inner = waited.unwrap_or_else(PoisonError::into_inner);
            inner.awaited -= 1;
        }
        inner
    }
}
