//! Layouts of BeeGFS, by calls to its client; no library of its maker is needed.
//!
//! The stripes of a file are asked for when it is open. The client lists targets, servers and
//! states below `/proc/fs/beegfs`; it does not report free space. Targets have numbers of their
//! own, from 1 to 65535. Here they are numbered from zero in that order, and the last number stands
//! for bytes on no known target.
//!
//! A new file is made with preferred targets. The server takes these unless they are short of
//! space, and adds others until there are as many as the directory asks for. So the provider asks
//! afterwards where the file is.

use super::mount::nearest_existing;
use super::new_file::{Order, difference, make, make_anew};
use super::{FileAt, Heeds, Layouts, Located, NewFile, Placed, Provider, Target};
use lads_core::beegfs::{Entry, Stripe, Striping, chunk_size, parse_targets};
use lads_core::layout::Layout;
use lads_core::placement::{OstState, Wish};
use lads_core::schedule::OstSpec;
use lads_core::units::OstId;
use lads_sys::beegfs as client;
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Where the client lists what it is connected to, each mount in a directory of its own.
const MOUNTS: &str = "/proc/fs/beegfs";

/// Requests that a target should have at a time: one that is served, one that is next, and two that
/// are on their way there or back.
const IN_FLIGHT_MAX: u32 = 4;

/// The mode of new files until they are whole.
const MODE: u32 = 0o600;

/// A remark that holds wherever this provider is used.
const REMARK: &str = "implemented from the published client of BeeGFS (releases 7 and 8) and \
                      tested on golden bytes; not tried on a real BeeGFS. A server may ignore \
                      preferred targets; the directory determines the number of targets per file, \
                      and free space is not reported";

/// The row in the table of providers.
pub(super) const PROVIDER: Provider = Provider {
    name: "beegfs",
    at: |path| Some(Box::new(Beegfs::at(path)?)),
    refusal: "is not on BeeGFS",
    #[cfg(test)]
    put_to_test: tests::keep_the_contract,
};

/// A file system of BeeGFS.
#[derive(Debug)]
struct Beegfs {
    client: Box<dyn Client>,
    /// The client's numbers of the targets, sorted. The index in here is our number.
    ids: Vec<u16>,
    /// What is known of each target from the start; the last is the one that stands for none.
    specs: Vec<OstSpec>,
}

/// The calls to the client, behind a trait so that a stand-in can answer them.
trait Client: std::fmt::Debug + Send + Sync {
    fn targets(&self) -> String;
    fn striping(&self, file: BorrowedFd<'_>) -> io::Result<[u8; 12]>;
    fn stripe(&self, file: BorrowedFd<'_>, index: u32) -> io::Result<[u8; 536]>;
    fn entry(&self, directory: BorrowedFd<'_>) -> io::Result<[u8; 68]>;
    fn make_on(&self, directory: BorrowedFd<'_>, file: &client::NewFile<'_>) -> io::Result<()>;
    fn make_striped(
        &self,
        directory: BorrowedFd<'_>,
        name: &CString,
        target_count: u32,
        chunk_bytes: u32,
    ) -> io::Result<()>;
}

/// The kernel's client.
#[derive(Debug)]
struct Kernel {
    list: PathBuf,
}

impl Beegfs {
    /// The BeeGFS that `path` is on; `None` if it is not on BeeGFS, or if the client does not list
    /// its targets.
    fn at(path: &Path) -> Option<Self> {
        let here = nearest_existing(path);
        let directory = if here.is_dir() { here.as_path() } else { here.parent()? };
        let directory = File::open(directory).ok()?;
        if !client::is_beegfs(&directory) {
            return None;
        }
        let mount = client::mount_id(&directory).ok().filter(|id| !id.contains('/'))?;
        let list = Path::new(MOUNTS).join(mount).join("storage_target_state");
        Self::over(Box::new(Kernel { list }))
    }

    fn over(client: Box<dyn Client>) -> Option<Self> {
        let ids: Vec<u16> = parse_targets(&client.targets()).iter().map(|it| it.id).collect();
        let names = ids.iter().map(|id| format!("target {id}")).chain(["elsewhere".to_owned()]);
        let specs = names.map(|name| OstSpec::new(name, IN_FLIGHT_MAX)).collect();
        (!ids.is_empty()).then_some(Self { client, ids, specs })
    }

    fn elsewhere(&self) -> OstId {
        number(self.ids.len())
    }

    /// Our number for a target.
    fn ost(&self, target: u32) -> OstId {
        let index = u16::try_from(target).ok().and_then(|id| self.ids.binary_search(&id).ok());
        number(index.unwrap_or(self.ids.len()))
    }

    /// Where an open file lies.
    fn layout(&self, file: BorrowedFd<'_>) -> Layout {
        let told = || {
            let striping = Striping::parse(&self.client.striping(file).ok()?)?;
            let stripes = (0..striping.target_count).map(|index| {
                let stripe = Stripe::parse(&self.client.stripe(file, index.into()).ok()?)?;
                Some(self.ost(stripe.target))
            });
            striping.layout(stripes.collect::<Option<_>>()?)
        };
        told().unwrap_or_else(|| Layout::on(self.elsewhere()))
    }

    fn layout_at(&self, directory: &OwnedFd, name: &[u8]) -> Layout {
        match open(directory, name) {
            Ok(file) => self.layout(file.as_fd()),
            Err(_) => Layout::on(self.elsewhere()),
        }
    }

    /// Makes a file with the wished targets. If that fails, makes it without them and returns the
    /// error.
    fn make(&self, file: &NewFile<'_>) -> Result<Option<Errno>, Errno> {
        let wished = match file.wish {
            Wish::Default => Err(None),
            wish => make_anew(file, || self.make_as_wished(file, wish)).map_err(Some),
        };
        wished.map(|()| None).or_else(|refusal| make(file, OFlags::empty()).map(|_| refusal))
    }

    fn make_as_wished(&self, file: &NewFile<'_>, wish: &Wish) -> Result<(), Errno> {
        let directory = file.directory.as_fd();
        let name = CString::new(file.name).map_err(|_| Errno::INVAL)?;
        match wish {
            Wish::Default => Ok(()),
            Wish::Striped { stripe_size, stripe_count } => {
                let count = u32::try_from(*stripe_count).unwrap_or(u32::MAX);
                let chunk_bytes = chunk_size(*stripe_size);
                self.client.make_striped(directory, &name, count, chunk_bytes).map_err(errno_of)
            }
            Wish::On { osts, .. } => {
                let entry = self.client.entry(directory).map_err(errno_of)?;
                let entry = Entry::parse(&entry).ok_or(Errno::INVAL)?;
                let id = |bytes| CString::new(bytes).expect("it ends before the first zero");
                let targets: Vec<u16> =
                    osts.iter().filter_map(|ost| self.ids.get(ost.index()).copied()).collect();
                let file = client::NewFile {
                    name: &name,
                    mode: MODE,
                    owner: entry.owner,
                    is_mirrored: entry.is_mirrored,
                    directory_id: &id(entry.id),
                    parent_id: &id(entry.parent_id),
                    targets: &targets,
                };
                self.client.make_on(directory, &file).map_err(errno_of)
            }
        }
    }
}

impl Layouts for Beegfs {
    fn kind(&self) -> &'static str {
        PROVIDER.name
    }

    fn remarks(&self) -> Vec<String> {
        vec![REMARK.to_owned()]
    }

    fn osts(&self) -> Vec<OstSpec> {
        self.specs.clone()
    }

    fn targets(&self) -> Vec<Target> {
        let now = parse_targets(&self.client.targets());
        let target = |(id, spec): (&u16, &OstSpec)| {
            let (name, down) = (spec.name.clone(), OstState::Down);
            match now.iter().find(|it| it.id == *id) {
                Some(it) => {
                    let (server, state) = (it.server.clone(), it.state);
                    Target { name, server, state, ..Target::default() }
                }
                None => Target { name, state: down, ..Target::default() },
            }
        };
        self.ids.iter().zip(&self.specs).map(target).collect()
    }

    fn of_file(&self, file: &FileAt<'_>) -> Located {
        Located::at(self.layout_at(file.directory, file.name))
    }

    fn of_new_file(&self, file: &NewFile<'_>) -> Result<Placed, Errno> {
        let name = file.name.as_bytes();
        if file.is_there {
            return Ok(Placed::at(self.layout_at(file.directory, name)));
        }
        let refusal = self.make(file)?;
        let layout = self.layout_at(file.directory, name);
        let difference = difference(file.wish, &layout, Order::Any, refusal, &self.specs);
        Ok(Placed { is_made: true, difference, ..Placed::at(layout) })
    }

    /// The client's answers about the stripes, one after the other; for a directory, its name.
    fn raw(&self, file: &FileAt<'_>) -> Option<Vec<u8>> {
        let file = open(file.directory, file.name).ok()?;
        let Ok(striping) = self.client.striping(file.as_fd()) else {
            return self.client.entry(file.as_fd()).ok().map(Vec::from);
        };
        let count = Striping::parse(&striping).map_or(0, |striping| striping.target_count);
        let stripe = |index: u16| self.client.stripe(file.as_fd(), index.into()).ok();
        let stripes = (0..count).map_while(stripe).flatten();
        Some(striping.into_iter().chain(stripes).collect())
    }

    fn heeds(&self) -> Heeds {
        Heeds::Place
    }
}

impl Client for Kernel {
    fn targets(&self) -> String {
        std::fs::read_to_string(&self.list).unwrap_or_default()
    }

    fn striping(&self, file: BorrowedFd<'_>) -> io::Result<[u8; 12]> {
        client::striping(file)
    }

    fn stripe(&self, file: BorrowedFd<'_>, index: u32) -> io::Result<[u8; 536]> {
        client::stripe(file, index)
    }

    fn entry(&self, directory: BorrowedFd<'_>) -> io::Result<[u8; 68]> {
        client::entry(directory)
    }

    fn make_on(&self, directory: BorrowedFd<'_>, file: &client::NewFile<'_>) -> io::Result<()> {
        client::make_on(directory, file)
    }

    fn make_striped(
        &self,
        directory: BorrowedFd<'_>,
        name: &CString,
        target_count: u32,
        chunk_bytes: u32,
    ) -> io::Result<()> {
        client::make_striped(directory, name, MODE, target_count, chunk_bytes)
    }
}

fn number(index: usize) -> OstId {
    OstId(u32::try_from(index).expect("the client's numbers have 16 bits"))
}

/// Opens the file that is asked about: the client knows the stripes of open files only.
fn open(directory: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    openat(directory, name, flags, Mode::empty())
}

#[expect(clippy::needless_pass_by_value, reason = "it is what `map_err` gives")]
fn errno_of(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests;
