//! What a client has at its server: what it asks for again if the server was started again.

use super::tail::Target;
use crate::remote::message::{Call, FileNumber, Request, ViewNumber};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Requests that were answered and not undone. A file that could not be opened has its number all
/// the same, and so has a view of it: other requests may be about them.
#[derive(Debug, Default)]
pub(super) struct Standing {
    /// Files that were opened, and locks, by the numbers of the requests.
    requests: BTreeMap<u64, Call>,
    /// Of these requests and those for views, the ones that failed.
    failed: BTreeSet<u64>,
    views: HashMap<ViewNumber, Seen>,
}

/// A view that was asked for.
#[derive(Debug)]
struct Seen {
    /// The number of the request, if it was answered.
    number: Option<u64>,
    target: Arc<Target>,
    /// The request that forgot it, if frames need it still.
    forgotten: Option<Request>,
}

impl Standing {
    /// A view is asked for.
    pub(super) fn on_view(&mut self, target: &Arc<Target>) {
        let seen = Seen { number: None, target: Arc::clone(target), forgotten: None };
        self.views.insert(target.view, seen);
    }

    /// A request is answered: it is done, or failed. `is_needed` tells whether frames of a view are
    /// not written.
    pub(super) fn on_answered(
        &mut self,
        request: Request,
        is_done: bool,
        is_needed: impl Fn(ViewNumber) -> bool,
    ) {
        let number = request.number;
        match request.call {
            Call::Lock { .. } if !is_done => {}
            Call::Open { .. } | Call::Lock { .. } => {
                self.requests.insert(number, request.call);
                self.failed.extend((!is_done).then_some(number));
            }
            Call::View { view, .. } => {
                self.failed.extend((!is_done).then_some(number));
                if let Some(seen) = self.views.get_mut(&view) {
                    seen.number = Some(number);
                }
            }
            Call::Forget { view } => {
                if let Some(seen) = self.views.get_mut(&view) {
                    seen.forgotten = Some(request);
                }
                if !is_needed(view) {
                    self.views.remove(&view);
                }
            }
            Call::Unlock { file } => {
                let is_lock = |it: &Call| matches!(it, Call::Lock { file: of, .. } if *of == file);
                self.requests.retain(|_, it| !is_lock(it));
            }
            Call::Close { file } => {
                self.requests.retain(|_, it| file_of(it) != Some(file));
                self.views.retain(|_, seen| seen.target.file != file);
                self.forget_failed();
            }
            _ => {}
        }
    }

    fn forget_failed(&mut self) {
        let Self { requests, failed, views } = self;
        let is_view = |number| views.values().any(|seen| seen.number == Some(number));
        failed.retain(|number| requests.contains_key(number) || is_view(*number));
    }

    /// The last frame of a view is written.
    pub(super) fn on_not_needed(&mut self, view: ViewNumber) {
        if self.views.get(&view).is_some_and(|seen| seen.forgotten.is_some()) {
            self.views.remove(&view);
        }
    }

    /// The file of a request that was done, if it is made again.
    pub(super) fn file_of(&self, number: u64) -> Option<FileNumber> {
        if self.failed.contains(&number) {
            return None;
        }
        let of_view = |seen: &&Seen| seen.number == Some(number);
        let of_view = || self.views.values().find(of_view).map(|seen| seen.target.file);
        self.requests.get(&number).and_then(file_of).or_else(of_view)
    }

    /// Files, views and locks that are asked for again, in the order of their requests.
    pub(super) fn calls(&self) -> BTreeMap<u64, Call> {
        let views = self.views.values();
        let views = views.filter_map(|seen| Some((seen.number?, seen.target.call())));
        self.requests.clone().into_iter().chain(views).collect()
    }

    /// The requests that forgot a view which frames need still.
    pub(super) fn forgotten(&self) -> impl Iterator<Item = &Request> {
        self.views.values().filter_map(|seen| seen.forgotten.as_ref())
    }
}

fn file_of(call: &Call) -> Option<FileNumber> {
    match call {
        Call::Open { file, .. } | Call::Lock { file, .. } => Some(*file),
        _ => None,
    }
}
