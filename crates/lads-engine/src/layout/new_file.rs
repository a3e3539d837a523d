//! How a provider makes a file that is to be placed, and sees whether it is as wished.

use super::NewFile;
use crate::paths::remove_left_over;
use lads_core::layout::Layout;
use lads_core::placement::Wish;
use lads_core::schedule::OstSpec;
use lads_core::units::OstId;
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// More OSTs than this are not named in a sentence.
const NAMES_MAX: usize = 8;

/// Makes a file anew and opens it, if nothing of others is under its name.
pub(super) fn make(file: &NewFile<'_>, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags =
        flags | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::CREATE | OFlags::EXCL;
    make_anew(file, || openat(file.directory, file.name, flags, Mode::RUSR | Mode::WUSR))
}

/// Does what makes a file, twice if something of ours is under its name.
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

/// Whether the order of OSTs was wished for, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Stripe by stripe.
    Kept,
    /// The file system has its own.
    Any,
}

/// In what a layout is not as wished, in words; `refusal` says why, if the file system did.
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
    Some(format!("wished for {wished}, is on {found}{because}"))
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
