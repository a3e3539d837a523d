//! Converts errors and file types from `rustix`, which reads them, to `fuser`, which answers the
//! kernel.

/// Converts an error.
pub(crate) fn code(error: rustix::io::Errno) -> fuser::Errno {
    fuser::Errno::from_i32(error.raw_os_error())
}

/// Converts a file type.
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
