use super::*;
use crate::layout::contract::Check;
use rustix::fs::{CWD, XattrFlags, fgetxattr, fsetxattr};

/// Any file system can keep this one: pattern, chunk size and targets of a file, as numbers.
const FAKE_ATTRIBUTE: &str = "user.lads.beegfs";

/// A directory that passes for BeeGFS, with targets 101, 201, 301 and so on.
#[derive(Debug)]
struct Fake {
    target_count: u16,
    /// How many targets a directory wants for each file.
    targets_each: usize,
}

/// Has a provider over a client that is faked keep the contract.
pub(super) fn keep_the_contract(check: Check) {
    let directory = tempfile::tempdir().unwrap();
    let Some(layouts) = faked(directory.path(), 4) else { return };
    check(&layouts, directory.path());
}

/// A provider over one; `None`, and a line that says so, where there are no attributes.
fn faked(directory: &Path, target_count: u16) -> Option<Beegfs> {
    let handle = File::open(directory).unwrap();
    if fsetxattr(&handle, FAKE_ATTRIBUTE, b"", XattrFlags::empty()).is_err() {
        lads_tried::not_tried("the file system of temporary files has no extended attributes");
        return None;
    }
    Beegfs::over(Box::new(Fake { target_count, targets_each: 2 }))
}

fn words(file: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    let mut bytes = [0; 1024];
    let length = fgetxattr(file, FAKE_ATTRIBUTE, bytes.as_mut_slice())?;
    let word = |bytes: &[u8]| u32::from_ne_bytes(bytes.try_into().unwrap());
    Ok(bytes[..length].chunks_exact(4).map(word).collect())
}

fn put_words(file: &OwnedFd, words: &[u32]) {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    fsetxattr(file, FAKE_ATTRIBUTE, &bytes, XattrFlags::empty()).unwrap();
}

impl Fake {
    fn id(index: u16) -> u32 {
        u32::from(index) * 100 + 101
    }

    fn make(&self, directory: BorrowedFd<'_>, name: &CString, words: &[u32]) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        put_words(&openat(directory, name, flags, Mode::RUSR | Mode::WUSR)?, words);
        assert!(words.len() <= usize::from(self.target_count) + 2);
        Ok(())
    }
}

impl Client for Fake {
    fn targets(&self) -> String {
        let line = |index| {
            format!(
                "[Target ID: {}] @ st{} [ID: {index}]: Online / Good \n",
                Self::id(index),
                index / 2
            )
        };
        (0..self.target_count).rev().map(line).collect()
    }

    fn striping(&self, file: BorrowedFd<'_>) -> io::Result<[u8; 12]> {
        let mut words = words(file)?;
        // A directory has the attribute, and nothing in it.
        let count = words.len().checked_sub(2).ok_or(io::ErrorKind::InvalidData)?;
        let count = u32::try_from(count).unwrap();
        words.resize(2, 0);
        words.push(count);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        Ok(bytes.try_into().unwrap())
    }

    fn stripe(&self, file: BorrowedFd<'_>, index: u32) -> io::Result<[u8; 536]> {
        let words = words(file)?;
        let target = words[2 + index as usize];
        let mut bytes = [index, target, 0, 0, 1, 0].map(u32::to_ne_bytes).concat();
        bytes.resize(536, 0);
        Ok(bytes.try_into().unwrap())
    }

    fn entry(&self, _directory: BorrowedFd<'_>) -> io::Result<[u8; 68]> {
        let mut bytes = [0; 68];
        bytes[31..35].copy_from_slice(b"root");
        Ok(bytes)
    }

    fn make_on(&self, directory: BorrowedFd<'_>, file: &client::NewFile<'_>) -> io::Result<()> {
        assert_eq!((file.directory_id, file.parent_id), (c"root", c""));
        let mut targets: Vec<u32> = file.targets.iter().copied().map(u32::from).collect();
        let others = (0..self.target_count).map(Self::id);
        let others: Vec<u32> = others.filter(|id| !targets.contains(id)).collect();
        targets.extend(others);
        targets.truncate(self.targets_each);
        self.make(directory, &file.name.to_owned(), &[&[1, 512 << 10], &targets[..]].concat())
    }

    fn make_striped(
        &self,
        directory: BorrowedFd<'_>,
        name: &CString,
        target_count: u32,
        chunk_bytes: u32,
    ) -> io::Result<()> {
        let targets: Vec<u32> = (0..self.target_count).map(Self::id).collect();
        let targets = &targets[..(target_count as usize).min(targets.len())];
        self.make(directory, name, &[&[1, chunk_bytes], targets].concat())
    }
}

fn with_stripes(directory: &Path, name: &str, words: &[u32]) {
    let file = OwnedFd::from(File::create(directory.join(name)).unwrap());
    put_words(&file, words);
}

fn layout(beegfs: &Beegfs, directory: &Path, name: &str) -> Layout {
    let directory = OwnedFd::from(File::open(directory).unwrap());
    let name = name.as_bytes();
    beegfs.of_file(&FileAt { directory: &directory, name, device: 0, inode: 0, size: 0 }).layout
}

fn place(beegfs: &Beegfs, directory: &Path, wish: &Wish) -> Placed {
    let handle = openat(CWD, directory, OFlags::RDONLY, Mode::empty()).unwrap();
    let (directory, name) = (&handle, "new");
    let file = NewFile::new(directory, name, 10, wish);
    beegfs.of_new_file(&file).unwrap()
}

#[test]
fn targets_are_numbered_in_the_order_of_their_own_numbers() {
    let directory = tempfile::tempdir().unwrap();
    let Some(beegfs) = faked(directory.path(), 3) else { return };
    let names: Vec<_> = beegfs.osts().into_iter().map(|spec| spec.name).collect();
    assert_eq!(names, ["target 101", "target 201", "target 301", "elsewhere"]);
    assert_eq!(beegfs.targets()[2].server, "st1 [ID: 2]");
}

#[test]
fn a_file_lies_where_its_client_says() {
    let directory = tempfile::tempdir().unwrap();
    let Some(beegfs) = faked(directory.path(), 4) else { return };
    with_stripes(directory.path(), "a", &[1, 512 << 10, 301, 101, 999]);
    let places = [0, 512 << 10, 1 << 20, 3 << 19]
        .map(|at| layout(&beegfs, directory.path(), "a").ost_at(at).0);
    assert_eq!(places, [2, 0, 4, 2], "a target that is not listed is elsewhere");
    let handle = OwnedFd::from(File::open(directory.path()).unwrap());
    let raw = |name| beegfs.raw(&FileAt { directory: &handle, name, device: 0, inode: 0, size: 0 });
    assert_eq!(raw(b"a").unwrap().len(), 12 + 3 * 536, "as it was said");
    assert_eq!(raw(b".").unwrap().len(), 68, "of a directory, what it is called");
}

#[test]
fn a_pattern_that_is_not_known_and_a_file_that_is_gone_are_elsewhere() {
    let directory = tempfile::tempdir().unwrap();
    let Some(beegfs) = faked(directory.path(), 4) else { return };
    with_stripes(directory.path(), "odd", &[9, 512 << 10, 301]);
    std::fs::write(directory.path().join("none"), b"").unwrap();
    for name in ["odd", "none", "missing"] {
        assert_eq!(layout(&beegfs, directory.path(), name), Layout::on(OstId(4)));
    }
}

#[test]
fn a_wish_that_is_heeded_has_no_difference_in_whatever_order() {
    let directory = tempfile::tempdir().unwrap();
    let Some(beegfs) = faked(directory.path(), 4) else { return };
    let wish = Wish::On { stripe_size: 1 << 20, osts: vec![OstId(3), OstId(1)] };
    let placed = place(&beegfs, directory.path(), &wish);
    assert_eq!((placed.is_made, placed.difference), (true, None));
    let striped = Wish::Striped { stripe_size: 1 << 20, stripe_count: 4 };
    let placed = place(&beegfs, directory.path(), &striped);
    assert_eq!((placed.layout.osts().len(), placed.difference), (4, None));
}

#[test]
fn targets_that_the_server_adds_are_told_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let Some(beegfs) = faked(directory.path(), 4) else { return };
    let wish = Wish::On { stripe_size: 1 << 20, osts: vec![OstId(2)] };
    let placed = place(&beegfs, directory.path(), &wish);
    let told = "requested target 301, got target 301, target 101";
    assert_eq!(placed.difference.as_deref(), Some(told));
}
