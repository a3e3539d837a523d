//! Chooses the OSTs of a new file: by its wish, its directory's default, or the next in turn.
//!
//! The rules and errors are those of Lustre's MDS (`lod_qos.c`, `lod_lov.c`), as far as they apply
//! here: there are no pools, mirrors, erasure codes or self-extending components.

use super::space::Space;
use lads_core::lov::{self, Body, Component, Composite, Form, Lov, Object, Stripes, flag, pattern};
use lads_core::units::OstId;
use rustix::io::Errno;
use std::collections::HashSet;

/// The values that replace zeros and blanks in a wish.
#[derive(Clone, Copy, Debug)]
pub(super) struct Defaults {
    /// The number of bytes in a stripe.
    pub(super) stripe_size: u32,
    /// The number of stripes; [`lov::ALL_OSTS`] for all OSTs.
    pub(super) stripe_count: u16,
}

/// The sequence number of all objects, as on a Lustre with one MDT.
const OBJECT_SEQUENCE: u64 = 0x1_0000_0000;

/// Checks whether a wish, or a directory's default, is valid.
///
/// # Errors
/// `EINVAL` if it is invalid, `EOPNOTSUPP` for features of Lustre that are not emulated.
pub(super) fn check(wish: &Lov, ost_count: usize) -> Result<(), Errno> {
    let end = check_from(0, wish, ost_count)?;
    // A composite file may end before the largest offset; nothing can be written beyond its end
    // until components are added.
    let is_complete = end == u64::MAX || wish.composite.is_some();
    match (is_complete, wish.composite.map_or(0, |it| it.extra_mirrors)) {
        (true, 0) => Ok(()),
        (false, 0) => Err(Errno::INVAL),
        _ => Err(Errno::OPNOTSUPP),
    }
}

/// Checks that the components follow each other from `start` on; returns where the last one ends.
fn check_from(mut start: u64, wish: &Lov, ost_count: usize) -> Result<u64, Errno> {
    for component in &wish.components {
        let end = component.extent.end;
        let is_aligned = end == u64::MAX || end.is_multiple_of(lov::STRIPE_SIZE_UNIT.into());
        if component.extent.start != start || end <= start || !is_aligned {
            return Err(Errno::INVAL);
        }
        start = end;
        check_component(component, wish.composite.is_some(), ost_count)?;
    }
    Ok(start)
}

/// Adds components after the last one of a composite file. They get their objects when something is
/// written there (`lod_declare_layout_add`).
///
/// `EINVAL` if the file or the addition is not composite, if the file has no open end, or if the
/// addition does not begin there; and those of [`check`]. On an error, the layout does not change.
pub(super) fn add(lov: &mut Lov, addition: &Lov, ost_count: usize) -> Result<(), Errno> {
    let (Some(composite), Some(_)) = (&mut lov.composite, addition.composite) else {
        return Err(Errno::INVAL);
    };
    let open_from = lov.components.last().map_or(0, |last| last.extent.end);
    if open_from == u64::MAX || addition.components.is_empty() {
        return Err(Errno::INVAL);
    }
    check_from(open_from, addition, ost_count)?;
    let mut id = lov.components.iter().map(|it| it.id).max().unwrap_or(0);
    for component in &addition.components {
        let mut component = component.clone();
        id += 1;
        (component.id, component.flags) = (id, 0);
        if let Body::Stripes(stripes) = &mut component.body {
            // A list of OSTs is ignored here.
            stripes.objects.clear();
            stripes.form = if stripes.pool.is_empty() { Form::V1 } else { Form::V3 };
        }
        lov.components.push(component);
    }
    composite.generation += 1;
    Ok(())
}

/// Returns whether the components reach to the end of a range; true for an empty range.
pub(super) fn is_covered(lov: &Lov, range: &std::ops::Range<u64>) -> bool {
    let end = lov.components.last().map_or(0, |last| last.extent.end);
    range.is_empty() || range.end <= end
}

fn check_component(component: &Component, is_part: bool, ost_count: usize) -> Result<(), Errno> {
    let Body::Stripes(stripes) = &component.body else { return Err(Errno::OPNOTSUPP) };
    if component.flags & (flag::EXTENSION | flag::PARITY) != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    if !stripes.stripe_size.is_multiple_of(lov::STRIPE_SIZE_UNIT) {
        return Err(Errno::INVAL);
    }
    match stripes.pattern & !pattern::OVERSTRIPED {
        0 | pattern::RAID0 => {}
        // Data on the MDT is possible only at the beginning of a file.
        pattern::MDT if is_part && component.extent.start == 0 => return Ok(()),
        _ => return Err(Errno::INVAL),
    }
    check_osts(stripes, ost_count)
}

/// Checks that the OSTs named in a wish for stripes are valid.
fn check_osts(stripes: &Stripes, ost_count: usize) -> Result<(), Errno> {
    let first = stripes.first_ost;
    if stripes.form != Form::Specific {
        let is_known = first == lov::ANY_OST || usize::from(first) < ost_count;
        return if is_known { Ok(()) } else { Err(Errno::INVAL) };
    }
    let osts: Vec<OstId> = stripes.objects.iter().map(|object| object.ost).collect();
    let distinct: HashSet<OstId> = osts.iter().copied().collect();
    let may_repeat = stripes.pattern & pattern::OVERSTRIPED != 0;
    let is_first_listed = first == lov::ANY_OST || distinct.contains(&OstId(first.into()));
    let is_sound = !osts.is_empty()
        && osts.len() == usize::from(stripes.stripe_count)
        && osts.iter().all(|ost| ost.index() < ost_count)
        && (may_repeat || distinct.len() == osts.len())
        && is_first_listed;
    if is_sound { Ok(()) } else { Err(Errno::INVAL) }
}

/// Returns whether this wish deletes a directory's default.
pub(super) fn is_deletion(wish: &Lov) -> bool {
    match &wish.components[..] {
        [Component { body: Body::Stripes(it), .. }] if wish.composite.is_none() => {
            (it.stripe_size, it.stripe_count, it.first_ost) == (0, 0, lov::ANY_OST)
                && it.form != Form::Specific
        }
        _ => false,
    }
}

/// Returns the layout of a new file, with all its objects. If the file is composite, only the first
/// component has objects; the others get theirs when something is written there ([`instantiate`]).
///
/// # Errors
/// Those of [`check`], of [`Space::check_takes_files`], and `ENOSPC` if no OST takes new files.
pub(super) fn place(wish: &Lov, defaults: Defaults, space: &mut Space) -> Result<Lov, Errno> {
    check(wish, space.targets().len())?;
    let mut lov = wish.clone();
    if let Some(composite) = &mut lov.composite {
        *composite = Composite { generation: 1, ..Composite::default() };
    }
    for (index, component) in (1..).zip(&mut lov.components) {
        component.id = if lov.composite.is_some() { index } else { 0 };
        component.flags = 0;
    }
    instantiate(&mut lov, 0..1, defaults, space)?;
    Ok(lov)
}

/// Makes the objects of the components that lie in, or reach into, a range of the file and have
/// none yet. Returns whether there were any.
///
/// # Errors
/// Those of [`Space::check_takes_files`], and `ENOSPC`; on an error, the layout does not change.
pub(super) fn instantiate(
    lov: &mut Lov,
    range: std::ops::Range<u64>,
    defaults: Defaults,
    space: &mut Space,
) -> Result<bool, Errno> {
    let mut placed = lov.components.clone();
    let is_touched = |it: &&mut Component| {
        it.flags & flag::INSTANTIATED == 0
            && it.extent.start < range.end
            && range.start < it.extent.end
    };
    let mut has_changed = false;
    for component in placed.iter_mut().filter(is_touched) {
        if let Body::Stripes(stripes) = &mut component.body {
            *stripes = place_stripes(stripes, defaults, space)?;
        }
        component.flags |= flag::INSTANTIATED;
        has_changed = true;
    }
    for (component, before) in placed.iter_mut().zip(&lov.components) {
        if component.flags != before.flags {
            make_objects(component, space);
        }
    }
    lov.components = placed;
    if let (true, Some(composite)) = (has_changed, &mut lov.composite) {
        composite.generation += 1;
    }
    Ok(has_changed)
}

/// Returns the stripes with their OSTs; the objects have no numbers yet.
fn place_stripes(wish: &Stripes, defaults: Defaults, space: &mut Space) -> Result<Stripes, Errno> {
    let mut stripes = wish.clone();
    if stripes.stripe_size == 0 {
        stripes.stripe_size = defaults.stripe_size;
    }
    stripes.form = if stripes.pool.is_empty() { Form::V1 } else { Form::V3 };
    stripes.first_ost = lov::ANY_OST;
    if stripes.pattern & pattern::MDT != 0 {
        stripes.stripe_count = 0;
        return Ok(stripes);
    }
    stripes.pattern |= pattern::RAID0;
    let osts = choose(wish, defaults, space)?;
    stripes.stripe_count = u16::try_from(osts.len()).expect("at most 2000 OSTs");
    stripes.objects = osts
        .into_iter()
        .map(|ost| Object { ost: ost_id(ost), sequence: OBJECT_SEQUENCE, ..Object::default() })
        .collect();
    Ok(stripes)
}

fn choose(wish: &Stripes, defaults: Defaults, space: &mut Space) -> Result<Vec<usize>, Errno> {
    if wish.form == Form::Specific {
        return listed(wish, space);
    }
    let wide = |count: u16| match count {
        lov::WIDE_STRIPE_COUNT_MIN.. => usize::MAX,
        _ => usize::from(count),
    };
    let count = if wish.stripe_count == 0 { defaults.stripe_count } else { wish.stripe_count };
    let first = (wish.first_ost != lov::ANY_OST).then_some(usize::from(wish.first_ost));
    if let Some(first) = first {
        space.check_takes_files(first)?;
    }
    let mut osts = space.next_usable(wide(count), first);
    // Degraded OSTs come last, except the one that was asked for.
    if let Some(first) = first
        && osts.first() != Some(&first)
    {
        osts.retain(|ost| *ost != first);
        osts.insert(0, first);
        osts.truncate(wide(count));
    }
    if osts.is_empty() { Err(Errno::NOSPC) } else { Ok(osts) }
}

/// Returns exactly the listed OSTs, beginning with the first one.
fn listed(wish: &Stripes, space: &Space) -> Result<Vec<usize>, Errno> {
    let mut osts: Vec<usize> = wish.objects.iter().map(|object| object.ost.index()).collect();
    for ost in &osts {
        space.check_takes_files(*ost)?;
    }
    let first = osts.iter().position(|ost| *ost == usize::from(wish.first_ost));
    osts.rotate_left(first.unwrap_or(0));
    Ok(osts)
}

fn make_objects(component: &mut Component, space: &mut Space) {
    if let Body::Stripes(stripes) = &mut component.body {
        for object in &mut stripes.objects {
            object.id = space.make_object(object.ost.index());
        }
    }
}

/// Returns the layout as it is reported to programs: components without objects show what was
/// wished for them, without OSTs.
pub(super) fn told(lov: &Lov) -> Lov {
    let mut lov = lov.clone();
    for component in lov.components.iter_mut().filter(|it| it.flags & flag::INSTANTIATED == 0) {
        if let Body::Stripes(stripes) = &mut component.body {
            stripes.objects.clear();
            stripes.form = if stripes.pool.is_empty() { Form::V1 } else { Form::V3 };
            stripes.first_ost = lov::ANY_OST;
        }
    }
    lov
}

/// Removes all objects of a file.
pub(super) fn remove_objects(lov: &Lov, space: &mut Space) {
    for component in lov.components.iter().filter(|it| it.flags & flag::INSTANTIATED != 0) {
        if let Body::Stripes(stripes) = &component.body {
            for object in &stripes.objects {
                space.remove_object(object.ost.index());
            }
        }
    }
}

fn ost_id(ost: usize) -> OstId {
    OstId(u32::try_from(ost).expect("at most 2000 OSTs"))
}

#[cfg(test)]
mod tests;
