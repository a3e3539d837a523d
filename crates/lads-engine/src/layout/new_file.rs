//! How a provider makes a file with a wished layout, and checks the layout that the file has.

use super::NewFile;
use crate::paths::remove_left_over;
use lads_core::layout::Layout;
use lads_core::placement::Wish;
use lads_core::schedule::OstSpec;
use lads_core::units::OstId;
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// The most OSTs that a sentence names.
const NAMES_MAX: usize = 8;

/// Makes a new file and opens it, unless a file of somebody else has its name.
pub(super) fn make(file: &NewFile<'_>, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags =
        flags | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::CREATE | OFlags::EXCL;
    make_anew(file, || openat(file.directory, file.name, flags, Mode::RUSR | Mode::WUSR))
}

/// Calls `make`; if a file of ours has the name already, removes that file and calls
/// `make` again.
pub(super) fn make_anew<T>(
    file: &NewFile<'_>,
    make: impl Fn() -> Result<T, Errno>,
) -> Result<T, Errno> {
    match make() {
        Err(Errno::EXIST) => {
            let uid = rustix::process::geteuid().as_raw();
            remove_left_over(file.directory, file.name, uid)?;
            make()
        }
        result => result,
    }
}

/// Whether the order of OSTs is part of the wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Yes, stripe by stripe.
    Kept,
    /// No: the file system has its own order.
    Any,
}

/// How a layout differs from the wish, in words; `refusal` is the file system's error, if there was
/// one.
pub(super) fn difference(
    wish: &Wish,
    layout: &Layout,
    order: Order,
    refusal: Option<Errno>,
    specs: &[OstSpec],
) -> Option<String> {
    if is_as_wished(wish, layout, order) {
        return None;
    }
    let list = |osts: &mut dyn Iterator<Item = OstId>| {
        let name = |ost: OstId| specs.get(ost.index()).map_or_else(|| ost.to_string(), named);
        osts.take(NAMES_MAX).map(name).collect::<Vec<_>>().join(", ")
    };
    let wished = match wish {
        Wish::Default => "nothing".to_owned(),
        Wish::Striped { stripe_size, stripe_count } => {
            format!("{stripe_count} stripes of {stripe_size} bytes")
        }
        Wish::On { osts, .. } => list(&mut osts.iter().copied()),
    };
    let found = list(&mut layout.osts());
    let because = refusal.map_or_else(String::new, |errno| format!(" ({errno})"));
    Some(format!("requested {wished}, got {found}{because}"))
}

fn named(spec: &OstSpec) -> String {
    spec.name.clone()
}

fn is_as_wished(wish: &Wish, layout: &Layout, order: Order) -> bool {
    match wish {
        Wish::Default => true,
        Wish::Striped { stripe_size, stripe_count } => {
            matches!(layout.parts().as_slice(), [part] if part.osts.len() == *stripe_count
                && (*stripe_count == 1 || part.stripe_size == *stripe_size))
        }
        Wish::On { stripe_size, osts } if order == Order::Kept => {
            Layout::striped(*stripe_size, osts.clone()).as_ref() == Some(layout)
        }
        Wish::On { osts, .. } => {
            let sorted = |mut osts: Vec<OstId>| {
                osts.sort_unstable();
                osts
            };
            sorted(osts.clone()) == sorted(layout.osts().collect())
        }
    }
}
