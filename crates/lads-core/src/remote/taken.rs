//! Whether a server has room for one more file or view of this client.
//!
//! A server cuts a client off that has more than [`CLIENT_FILES_MAX`] files or [`CLIENT_VIEWS_MAX`]
//! views. So the client counts what the server will have when it has done all that it was asked
//! for: requests are done in their order.

use super::message::{Call, FileNumber, ViewNumber};
use crate::limits::{CLIENT_FILES_MAX, CLIENT_VIEWS_MAX};
use std::collections::{HashMap, HashSet};

/// What a client has at its server.
#[derive(Debug, Default)]
pub struct Taken {
    files: HashSet<FileNumber>,
    views: HashMap<ViewNumber, FileNumber>,
}

impl Taken {
    /// Reports whether one more file may be opened.
    #[must_use]
    pub fn has_room_for_file(&self) -> bool {
        self.files.len() < CLIENT_FILES_MAX
    }

    /// Reports whether one more view may be set.
    #[must_use]
    pub fn has_room_for_view(&self) -> bool {
        self.views.len() < CLIENT_VIEWS_MAX
    }

    /// Reports whether a view may be set that a client can do without: half of the places are for
    /// the others, one for each file.
    #[must_use]
    pub fn has_room_for_extra_view(&self) -> bool {
        self.views.len() < CLIENT_VIEWS_MAX / 2
    }

    /// Counts a view that will be set later.
    pub fn reserve(&mut self, view: ViewNumber, file: FileNumber) {
        self.views.insert(view, file);
    }

    /// The server is asked for something. A file that cannot be opened is there all the same, until
    /// it is closed: other requests for it may be in flight.
    pub fn on_call(&mut self, call: &Call) {
        match call {
            Call::Open { file, .. } => drop(self.files.insert(*file)),
            Call::Close { file } => {
                self.files.remove(file);
                self.views.retain(|_, of| of != file);
            }
            Call::View { view, file, .. } => drop(self.views.insert(*view, *file)),
            Call::Forget { view } => drop(self.views.remove(view)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::OpenMode;
    use super::super::order::Order;
    use super::*;
    use crate::view::View;

    const FILE: FileNumber = FileNumber(0);

    fn open(file: FileNumber) -> Call {
        let mode = OpenMode { reads: true, writes: true, creates: false, is_new: false };
        Call::Open { file, path: Vec::new(), mode, group: [0; 16] }
    }

    fn view(view: ViewNumber) -> Call {
        Call::View { view, file: FILE, displacement: 0, filetype: Vec::new() }
    }

    /// A server and a client that believes to know what is there.
    #[derive(Default)]
    struct Both {
        server: Order,
        taken: Taken,
    }

    impl Both {
        /// Whether the server goes on after this.
        fn asks(&mut self, call: &Call) -> bool {
            self.taken.on_call(call);
            match call {
                Call::Open { file, .. } => self.server.open(*file, None).is_ok(),
                Call::View { view, file, .. } => {
                    self.server.set_view(*view, *file, 0, Ok(View::whole())).is_ok()
                }
                Call::Forget { view } => {
                    self.server.forget(*view);
                    true
                }
                Call::Close { file } => {
                    self.server.close(*file);
                    true
                }
                _ => unreachable!("not asked for here"),
            }
        }
    }

    #[test]
    fn there_is_room_for_as_many_files_as_the_server_takes() {
        let mut both = Both::default();
        let mut numbers = (0..).map(FileNumber);
        while both.taken.has_room_for_file() {
            assert!(both.asks(&open(numbers.next().unwrap())));
        }
        both.asks(&Call::Close { file: FileNumber(5) });
        assert!(both.taken.has_room_for_file());
        assert!(both.asks(&open(numbers.next().unwrap())));
        assert!(!both.taken.has_room_for_file());
        assert!(!both.asks(&open(numbers.next().unwrap())), "it was right");
    }

    #[test]
    fn there_is_room_for_as_many_views_as_the_server_takes() {
        let mut both = Both::default();
        both.asks(&open(FILE));
        let mut numbers = (0..).map(ViewNumber);
        for gone in [Call::Forget { view: ViewNumber(7) }, Call::Close { file: FILE }] {
            while both.taken.has_room_for_view() {
                assert!(both.asks(&view(numbers.next().unwrap())));
            }
            both.asks(&gone);
            assert!(both.taken.has_room_for_view());
        }
        both.asks(&open(FILE));
        while both.taken.has_room_for_view() {
            assert!(both.asks(&view(numbers.next().unwrap())));
        }
        assert!(!both.asks(&view(numbers.next().unwrap())), "it was right");
    }

    #[test]
    fn a_reserved_view_takes_the_place_of_one_that_is_set() {
        let mut taken = Taken::default();
        let count = u32::try_from(CLIENT_VIEWS_MAX).unwrap();
        for number in 0..count {
            assert!(taken.has_room_for_view());
            assert_eq!(taken.has_room_for_extra_view(), number < count / 2);
            taken.reserve(ViewNumber(number), FILE);
        }
        assert!(!taken.has_room_for_view());
    }
}
