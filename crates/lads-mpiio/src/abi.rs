//! The functions of `include/rfs.h`. Raw pointers become references here, and nowhere else.
//!
//! Every function relies on what `rfs.h` says: pointers are valid, names end with a zero, a file is
//! one that `rfs_open` returned and that was not closed.
#![allow(unsafe_code, reason = "the C interface is made of raw pointers")]
#![allow(clippy::missing_safety_doc, reason = "rfs.h says what callers must observe")]

use crate::error::{Class, Error, class_and_text, last_text};
use crate::file::{self, Group, RemoteFile};
use crate::hints::{Hints, begin};
use lads_core::remote::name;
use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Bytes in the memory of the program: `rfs_piece`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Piece {
    bytes: *mut u8,
    length: usize,
}

/// A hint: `rfs_hint`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Hint {
    key: *const c_char,
    value: *const c_char,
}

/// An open file: `rfs_file`.
#[derive(Debug)]
pub struct File(RemoteFile);

/// The class of the outcome. A panic must not go through C.
fn answer(act: impl FnOnce() -> Result<(), Error>) -> c_int {
    let outcome = catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|_| {
        Err(Error::new(Class::Other, "a bug in LADS: a thread panicked; please report it"))
    });
    class_and_text(outcome)
}

/// Puts a number where the caller wants it.
unsafe fn give<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: the caller gave a place for it.
        unsafe { place.write(value) };
    }
}

/// The answer to a question: a size or a position, which fit into an `MPI_Offset`.
fn tell(number: u64, place: *mut u64) -> Result<(), Error> {
    if i64::try_from(number).is_err() {
        let text = format!("the server returned {number}, which is beyond the largest file");
        return Err(Error::new(Class::Io, text));
    }
    // SAFETY: the caller gave a place for it.
    unsafe { give(place, number) };
    Ok(())
}

unsafe fn text<'a>(text: *const c_char) -> &'a [u8] {
    // SAFETY: names and hints end with a zero.
    if text.is_null() { b"" } else { unsafe { CStr::from_ptr(text) }.to_bytes() }
}

unsafe fn list<'a, T>(first: *const T, count: usize) -> &'a [T] {
    match first.is_null() || count == 0 {
        true => &[],
        // SAFETY: the caller has as many.
        false => unsafe { std::slice::from_raw_parts(first, count) },
    }
}

unsafe fn hints<'a>(first: *const Hint, count: usize) -> Vec<(&'a str, &'a str)> {
    // SAFETY: the caller has as many hints, each of two texts.
    let hints =
        unsafe { list(first, count) }.iter().map(|it| unsafe { (text(it.key), text(it.value)) });
    let is_text =
        |(key, value)| Some((std::str::from_utf8(key).ok()?, std::str::from_utf8(value).ok()?));
    hints.filter_map(is_text).collect()
}

/// `rfs_begin`
#[unsafe(no_mangle)]
pub extern "C" fn rfs_begin() {
    begin();
}

/// `rfs_is_remote`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rfs_is_remote(name: *const c_char) -> c_int {
    // SAFETY: see the head of this file; so for all functions below.
    c_int::from(name::is_remote(unsafe { text(name) }))
}

/// `rfs_digest`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rfs_digest(name: *const c_char) -> u64 {
    // SAFETY: as above.
    name::digest(unsafe { text(name) })
}

/// `rfs_open`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rfs_open(
    name: *const c_char,
    flags: c_int,
    group: *const Group,
    first_hint: *const Hint,
    hint_count: usize,
    opened: *mut *mut File,
) -> c_int {
    answer(|| {
        let mut in_force = Hints::default();
        // SAFETY: as above.
        let asked_for = unsafe { hints(first_hint, hint_count) };
        asked_for.into_iter().for_each(|(key, value)| in_force.set(key, value));
        // SAFETY: as above.
        let group = unsafe { list(group, 1) }.first().copied().unwrap_or_default();
        // SAFETY: as above.
        let file = RemoteFile::open(unsafe { text(name) }, flags, group, in_force)?;
        // SAFETY: as above.
        unsafe { give(opened, Box::into_raw(Box::new(File(file)))) };
        Ok(())
    })
}

/// `rfs_name`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rfs_name(file: *const File) -> *const c_char {
    // SAFETY: as above.
    unsafe { &(*file).0 }.name().as_ptr()
}

/// `rfs_shares`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rfs_shares(file: *const File) -> c_int {
    // SAFETY: as above.
    c_int::from(unsafe { &(*file).0 }.shares())
}

/// `rfs_close`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rfs_close(file: *mut File) -> c_int {
    // SAFETY: it was made by `rfs_open`, and nobody uses it any more.
    answer(|| unsafe { Box::from_raw(file) }.0.close())
}

/// `rfs_delete`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rfs_delete(name: *const c_char) -> c_int {
    // SAFETY: as above.
    answer(|| file::delete(unsafe { text(name) }))
}

/// `rfs_set_view`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rfs_set_view(
    file: *mut File,
    displacement: u64,
    filetype: *const u8,
    filetype_bytes: usize,
) -> c_int {
    answer(|| {
        // SAFETY: as above.
        let (file, filetype) = unsafe { (&(*file).0, list(filetype, filetype_bytes)) };
        file.handle().set_view(displacement, filetype).map_err(Error::of_view)
    })
}

/// `rfs_write`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rfs_write(
    file: *mut File,
    position: u64,
    pieces: *const Piece,
    count: usize,
) -> c_int {
    answer(|| {
        // SAFETY: as above; the program does not write to the pieces meanwhile.
        let pieces = unsafe { list(pieces, count) }.iter();
        // SAFETY: as above.
        let bytes = |it: &Piece| unsafe { list(it.bytes.cast_const(), it.length) };
        let pieces: Vec<&[u8]> = pieces.map(bytes).collect();
        // SAFETY: as above.
        unsafe { &(*file).0 }.write(position, &pieces)
    })
}

/// `rfs_read`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rfs_read(
    file: *mut File,
    position: u64,
    pieces: *const Piece,
    count: usize,
    got: *mut u64,
) -> c_int {
    answer(|| {
        // SAFETY: as above; nobody else uses the pieces meanwhile, and they do not overlap.
        let pieces = unsafe { list(pieces, count) }.iter().filter(|it| it.length > 0);
        // SAFETY: as above.
        let memory = |it: &Piece| unsafe { std::slice::from_raw_parts_mut(it.bytes, it.length) };
        let mut pieces: Vec<&mut [u8]> = pieces.map(memory).collect();
        // SAFETY: as above.
        let count = unsafe { &(*file).0 }.read(position, &mut pieces)?;
        // SAFETY: as above.
        unsafe { give(got, count) };
        Ok(())
    })
}

/// `rfs_sync`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rfs_sync(file: *mut File) -> c_int {
    // SAFETY: as above.
    answer(|| Ok(unsafe { &(*file).0 }.handle().sync()?))
}

/// `rfs_flush`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rfs_flush(file: *mut File) -> c_int {
    // SAFETY: as above.
    answer(|| Ok(unsafe { &(*file).0 }.handle().flush()?))
}

/// `rfs_needs_fence`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rfs_needs_fence(file: *const File) -> c_int {
    // SAFETY: as above.
    c_int::from(unsafe { &(*file).0 }.needs_fence())
}

/// `rfs_fence`
#[unsafe(no_mangle)]
pub extern "C" fn rfs_fence() {
    // After a panic, the next call on a file of the connection fails.
    let _ = catch_unwind(file::fence);
}

/// `rfs_get_size`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rfs_get_size(file: *mut File, size: *mut u64) -> c_int {
    // SAFETY: as above.
    answer(|| tell(unsafe { &(*file).0 }.handle().size()?, size))
}

/// `rfs_set_size`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rfs_set_size(file: *mut File, size: u64) -> c_int {
    // SAFETY: as above.
    answer(|| Ok(unsafe { &(*file).0 }.handle().set_size(size)?))
}

/// `rfs_preallocate`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rfs_preallocate(file: *mut File, size: u64) -> c_int {
    // SAFETY: as above.
    answer(|| Ok(unsafe { &(*file).0 }.handle().preallocate(size)?))
}

/// `rfs_get_end`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rfs_get_end(file: *mut File, position: *mut u64) -> c_int {
    // SAFETY: as above.
    answer(|| tell(unsafe { &(*file).0 }.handle().end()?, position))
}

/// `rfs_get_offset`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rfs_get_offset(file: *mut File, position: u64, offset: *mut u64) -> c_int {
    // SAFETY: as above.
    answer(|| tell(unsafe { &(*file).0 }.handle().offset_of(position)?, offset))
}

/// `rfs_add_shared`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rfs_add_shared(file: *mut File, bytes: i64, before: *mut u64) -> c_int {
    // SAFETY: as above.
    answer(|| tell(unsafe { &(*file).0 }.share(|it| it.add_shared(bytes))?, before))
}

/// `rfs_set_shared`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rfs_set_shared(file: *mut File, position: u64) -> c_int {
    // SAFETY: as above.
    answer(|| unsafe { &(*file).0 }.share(|it| it.set_shared(position)))
}

/// `rfs_set_atomic`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rfs_set_atomic(file: *mut File, is_atomic: c_int) -> c_int {
    // SAFETY: as above.
    answer(|| unsafe { &(*file).0 }.set_atomic(is_atomic != 0))
}

/// `rfs_set_hints`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rfs_set_hints(file: *mut File, first: *const Hint, count: usize) -> c_int {
    answer(|| {
        // SAFETY: as above.
        let (file, hints) = unsafe { (&(*file).0, hints(first, count)) };
        file.set_hints(hints.into_iter());
        Ok(())
    })
}

/// `rfs_get_hint`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rfs_get_hint(
    file: *const File,
    index: usize,
    key: *mut c_char,
    value: *mut c_char,
) -> c_int {
    // SAFETY: as above.
    let Some((found, text)) = (unsafe { &(*file).0 }).hint(index) else { return 0 };
    let put = |text: &str, to: *mut c_char, room: usize| {
        let bytes = &text.as_bytes()[..text.len().min(room - 1)];
        // SAFETY: the caller has room for as many, and a zero.
        unsafe {
            to.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            to.add(bytes.len()).write(0);
        }
    };
    put(found, key, 64);
    put(&text, value, 256);
    1
}

/// `rfs_get_staged`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rfs_get_staged(foreground: *mut u64, background: *mut u64) {
    let staged = catch_unwind(file::staged).unwrap_or_default();
    // SAFETY: as above.
    unsafe {
        give(foreground, staged.in_foreground);
        give(background, staged.in_background);
    }
}

/// `rfs_finish`
#[unsafe(no_mangle)]
pub extern "C" fn rfs_finish() -> c_int {
    answer(file::finish)
}

/// `rfs_message`
#[unsafe(no_mangle)]
pub extern "C" fn rfs_message() -> *const c_char {
    last_text()
}
