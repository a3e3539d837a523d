//! Extended attributes. Those that show and set the layout of a file: `lustre.lov`, or those of
//! CephFS. All others are just stored.

use super::ceph;
use super::file::FileBody;
use super::placement;
use super::settings::LayoutStyle;
use super::system::System;
use super::tree::{Inode, Kind};
use lads_core::lov::{self, Body, Form, Lov};
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The same attribute under the name that needs a privilege.
const PRIVILEGED: &str = "trusted.lov";

/// Access control lists are refused, because nothing here would enforce them.
const LISTS: &str = "system.posix_acl_";

/// An attribute that is about a layout.
enum LayoutName<'a> {
    /// The whole layout, in Lustre's form.
    Lustre,
    /// Components to be added to the layout, in Lustre's form.
    LustreAdd,
    /// A field of the layout, in Ceph's form.
    Ceph(&'a str),
}

impl<'a> LayoutName<'a> {
    /// Returns what an attribute name means for an inode of this kind.
    fn of(name: &'a OsStr, kind: &Kind, style: LayoutStyle) -> Option<Self> {
        let is_directory = matches!(kind, Kind::Directory(_));
        match style {
            LayoutStyle::Lustre if name == lov::ATTRIBUTE_ADD => Some(Self::LustreAdd),
            LayoutStyle::Lustre => {
                (name == lov::ATTRIBUTE || name == PRIVILEGED).then_some(Self::Lustre)
            }
            LayoutStyle::Ceph => ceph::field(name.to_str()?, is_directory).map(Self::Ceph),
            LayoutStyle::None => None,
        }
    }
}

/// Returns whether an attribute of this name is a layout, or extends one.
pub(super) fn is_layout(name: &OsStr) -> bool {
    [lov::ATTRIBUTE, lov::ATTRIBUTE_ADD, PRIVILEGED].iter().any(|layout| name == *layout)
}

/// Returns the value of an attribute.
///
/// # Errors
/// `ENODATA` if there is none, `EOPNOTSUPP` for access control lists.
pub(super) fn get(system: &System, number: u64, name: &OsStr) -> Result<Vec<u8>, Errno> {
    let tree = system.tree();
    let inode = tree.inode(number)?;
    let Some(layout) = LayoutName::of(name, &inode.kind, system.settings.layout_style) else {
        check_supported(name)?;
        return inode.attributes.get(name).cloned().ok_or(Errno::NODATA);
    };
    let lov = match &inode.kind {
        Kind::File(file) => file.lov(),
        Kind::Directory(directory) => Some(Lov::clone(&directory.template)),
        _ => None,
    };
    let lov = lov.ok_or(Errno::NODATA)?;
    match layout {
        LayoutName::Lustre => Ok(lov.encode()),
        LayoutName::LustreAdd => Err(Errno::NODATA),
        LayoutName::Ceph(field) => ceph::tell(&lov, field).map(String::into_bytes),
    }
}

/// Sets an attribute.
///
/// # Errors
/// For layouts, those of Lustre, see [`placement`]; otherwise `EEXIST` and `ENODATA`, as the flags
/// demand.
pub(super) fn set(
    system: &System,
    number: u64,
    name: &OsStr,
    value: &[u8],
    flags: i32,
) -> Result<(), Errno> {
    let mut tree = system.tree();
    let inode = tree.inode_mut(number)?;
    match LayoutName::of(name, &inode.kind, system.settings.layout_style) {
        Some(LayoutName::Lustre) => return set_layout(system, inode, value),
        Some(LayoutName::LustreAdd) => return add_components(system, inode, value),
        Some(LayoutName::Ceph(field)) => return set_ceph_layout(system, inode, field, value),
        None => check_supported(name)?,
    }
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

/// Returns the names of all attributes, each followed by a zero byte. The layout is not listed, so
/// that programs that copy all attributes leave it alone. They must do so on Lustre, too, where it
/// is listed and copying it makes all files begin on the same OST.
///
/// # Errors
/// `ESTALE` if there is no such inode.
pub(super) fn list(system: &System, number: u64) -> Result<Vec<u8>, Errno> {
    let tree = system.tree();
    let names = tree.inode(number)?.attributes.keys();
    Ok(names.flat_map(|name| [name.as_encoded_bytes(), b"\0"].concat()).collect())
}

/// Removes an attribute. If it is a directory's layout, the directory gets the default layout back.
///
/// # Errors
/// `ENODATA` if there is none.
pub(super) fn remove(system: &System, number: u64, name: &OsStr) -> Result<(), Errno> {
    let mut tree = system.tree();
    let inode = tree.inode_mut(number)?;
    if LayoutName::of(name, &inode.kind, system.settings.layout_style).is_some() {
        return set_template(inode, system.settings.default_layout());
    }
    check_supported(name)?;
    inode.metadata.changed = std::time::SystemTime::now();
    inode.attributes.remove(name).map(|_| ()).ok_or(Errno::NODATA)
}

fn check_supported(name: &OsStr) -> Result<(), Errno> {
    let is_list = name.as_encoded_bytes().starts_with(LISTS.as_bytes());
    if is_list { Err(Errno::OPNOTSUPP) } else { Ok(()) }
}

fn set_layout(system: &System, inode: &mut Inode, value: &[u8]) -> Result<(), Errno> {
    let wish = Lov::parse(value).map_err(|_| Errno::INVAL)?;
    match &inode.kind {
        Kind::File(file) => wish_for(file, wish),
        _ if placement::is_deletion(&wish) => set_template(inode, system.settings.default_layout()),
        _ => {
            placement::check(&wish, system.settings.osts)?;
            set_template(inode, wish)
        }
    }
}

fn add_components(system: &System, inode: &Inode, value: &[u8]) -> Result<(), Errno> {
    if !system.lets_grow.load(Ordering::Relaxed) {
        return Err(Errno::OPNOTSUPP);
    }
    let Kind::File(file) = &inode.kind else { return Err(Errno::INVAL) };
    file.add_components(&Lov::parse(value).map_err(|_| Errno::INVAL)?)
}

fn set_ceph_layout(
    system: &System,
    inode: &mut Inode,
    field: &str,
    value: &[u8],
) -> Result<(), Errno> {
    let usual = system.settings.default_layout();
    let wish = match &inode.kind {
        Kind::Directory(directory) => ceph::wish(&directory.template, field, value)?,
        Kind::File(file) => ceph::wish(&file.lov().unwrap_or(usual), field, value)?,
        _ => return Err(Errno::OPNOTSUPP),
    };
    placement::check(&wish, system.settings.osts)?;
    match &inode.kind {
        Kind::File(file) => file.place_anew(&wish),
        _ => set_template(inode, wish),
    }
}

/// Gives a file a layout. If it has one already, it keeps that without an error, as on Lustre.
fn wish_for(file: &Arc<FileBody>, mut wish: Lov) -> Result<(), Errno> {
    for component in &mut wish.components {
        let Body::Stripes(stripes) = &mut component.body else { return Err(Errno::OPNOTSUPP) };
        // This is a copy of another file's layout, which does not say where this file should begin
        // (`ll_adjust_lum`).
        let is_copied = stripes.form != Form::Specific
            && stripes.objects.first().is_some_and(|object| object.id != 0);
        if is_copied {
            stripes.first_ost = lov::ANY_OST;
        }
    }
    file.place(&wish).map(|_| ())
}

fn set_template(inode: &mut Inode, template: Lov) -> Result<(), Errno> {
    match &mut inode.kind {
        Kind::Directory(directory) => {
            directory.template = Arc::new(template);
            Ok(())
        }
        _ => Err(Errno::OPNOTSUPP),
    }
}
