//! How files tell and are told where they lie: the extended attribute `lustre.lov`. And all other
//! extended attributes, which are just kept.

use super::file::FileBody;
use super::placement;
use super::system::System;
use super::tree::{Kind, Tree};
use lads_core::lov::{self, Body, Form, Lov};
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::sync::Arc;

/// The same attribute under the name that needs a privilege.
const PRIVILEGED: &str = "trusted.lov";

/// Access control lists are not kept: nobody here would obey them.
const LISTS: &str = "system.posix_acl_";

/// The value of an attribute.
///
/// # Errors
/// `ENODATA` if there is none, `EOPNOTSUPP` for access control lists.
pub(super) fn get(system: &System, number: u64, name: &OsStr) -> Result<Vec<u8>, Errno> {
    let tree = system.tree();
    let inode = tree.inode(number)?;
    if is_layout(name) {
        let lov = match &inode.kind {
            Kind::File(file) => file.lov(),
            Kind::Directory(directory) => Some(Lov::clone(&directory.template)),
            _ => None,
        };
        return lov.map(|lov| lov.encode()).ok_or(Errno::NODATA);
    }
    check_supported(name)?;
    inode.attributes.get(name).cloned().ok_or(Errno::NODATA)
}

/// Sets an attribute.
///
/// # Errors
/// For layouts as Lustre does, see [`placement`]; else `EEXIST` and `ENODATA` as the flags want.
pub(super) fn set(
    system: &System,
    number: u64,
    name: &OsStr,
    value: &[u8],
    flags: i32,
) -> Result<(), Errno> {
    if is_layout(name) {
        return set_layout(system, number, value);
    }
    check_supported(name)?;
    let mut tree = system.tree();
    let inode = tree.inode_mut(number)?;
    let flags = XattrFlags::from_bits_retain(flags.unsigned_abs());
    match inode.attributes.contains_key(name) {
        true if flags.contains(XattrFlags::CREATE) => return Err(Errno::EXIST),
        false if flags.contains(XattrFlags::REPLACE) => return Err(Errno::NODATA),
        _ => {}
    }
    inode.attributes.insert(name.to_owned(), value.to_owned());
    inode.metadata.changed = std::time::SystemTime::now();
    Ok(())
}

/// Names of all attributes, each with a zero behind it. The layout is not among them, so that
/// programs that copy all attributes leave it alone, as they must on Lustre (where it is listed,
/// and copying it makes all files begin on the same OST).
///
/// # Errors
/// `ESTALE` if there is nothing.
pub(super) fn list(system: &System, number: u64) -> Result<Vec<u8>, Errno> {
    let tree = system.tree();
    let names = tree.inode(number)?.attributes.keys();
    Ok(names.flat_map(|name| [name.as_encoded_bytes(), b"\0"].concat()).collect())
}

/// Removes an attribute; a directory gets the default layout back.
///
/// # Errors
/// `ENODATA` if there is none.
pub(super) fn remove(system: &System, number: u64, name: &OsStr) -> Result<(), Errno> {
    let mut tree = system.tree();
    if is_layout(name) {
        return set_template(&mut tree, number, &default_template(system));
    }
    check_supported(name)?;
    let inode = tree.inode_mut(number)?;
    inode.metadata.changed = std::time::SystemTime::now();
    inode.attributes.remove(name).map(|_| ()).ok_or(Errno::NODATA)
}

/// The layout of new files in a directory that does not say.
pub(super) fn default_template(system: &System) -> Lov {
    let defaults = system.store.defaults;
    Lov::wish(defaults.stripe_size, defaults.stripe_count)
}

fn is_layout(name: &OsStr) -> bool {
    name == lov::ATTRIBUTE || name == PRIVILEGED
}

fn check_supported(name: &OsStr) -> Result<(), Errno> {
    let is_list = name.as_encoded_bytes().starts_with(LISTS.as_bytes());
    if is_list { Err(Errno::OPNOTSUPP) } else { Ok(()) }
}

fn set_layout(system: &System, number: u64, value: &[u8]) -> Result<(), Errno> {
    let wish = Lov::parse(value).map_err(|_| Errno::INVAL)?;
    let mut tree = system.tree();
    match &tree.inode(number)?.kind {
        Kind::Directory(_) if placement::is_deletion(&wish) => {
            set_template(&mut tree, number, &default_template(system))
        }
        Kind::Directory(_) => {
            placement::check(&wish, system.settings.osts)?;
            set_template(&mut tree, number, &wish)
        }
        Kind::File(file) => wish_for(file, wish),
        _ => Err(Errno::OPNOTSUPP),
    }
}

/// Gives a file a layout. If it has one, it stays and nobody is told, as on Lustre.
fn wish_for(file: &Arc<FileBody>, mut wish: Lov) -> Result<(), Errno> {
    for component in &mut wish.components {
        let Body::Stripes(stripes) = &mut component.body else { return Err(Errno::OPNOTSUPP) };
        // The layout of another file, which says nothing of where this one should begin
        // (`ll_adjust_lum`).
        let is_copied = stripes.form != Form::Specific
            && stripes.objects.first().is_some_and(|object| object.id != 0);
        if is_copied {
            stripes.first_ost = lov::ANY_OST;
        }
    }
    file.place(&wish).map(|_| ())
}

fn set_template(tree: &mut Tree, number: u64, template: &Lov) -> Result<(), Errno> {
    match &mut tree.inode_mut(number)?.kind {
        Kind::Directory(directory) => {
            directory.template = Arc::new(template.clone());
            Ok(())
        }
        _ => Err(Errno::OPNOTSUPP),
    }
}
