//! How errors and kinds of files are said to the kernel: `rustix` reads them, `fuser` answers.

/// An error.
pub(crate) fn code(error: rustix::io::Errno) -> fuser::Errno {
    fuser::Errno::from_i32(error.raw_os_error())
}

/// A kind of file.
pub(crate) fn kind(file_type: rustix::fs::FileType) -> fuser::FileType {
    match file_type {
        rustix::fs::FileType::Directory => fuser::FileType::Directory,
        rustix::fs::FileType::Symlink => fuser::FileType::Symlink,
        rustix::fs::FileType::Fifo => fuser::FileType::NamedPipe,
        rustix::fs::FileType::Socket => fuser::FileType::Socket,
        rustix::fs::FileType::CharacterDevice => fuser::FileType::CharDevice,
        rustix::fs::FileType::BlockDevice => fuser::FileType::BlockDevice,
        _ => fuser::FileType::RegularFile,
    }
}
