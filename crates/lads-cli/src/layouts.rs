//! `lads layout`: which storage target holds which part of a file.

use crate::args::LayoutArgs;
use crate::complain;
use crate::display::{PathText, escape, escape_text};
use crate::subject::Subject;
use anyhow::{Result, ensure};
use lads_core::ceph::FileLayout;
use lads_core::layout::{Layout, Part};
use lads_core::lov::{Body, Component, Lov, Stripes, WIDE_STRIPE_COUNT_MIN, flag, pattern};
use lads_core::sizes;
use lads_core::units::OstId;
use lads_engine::layout::{Located, Target};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

/// The number of columns in the picture of a file.
const PICTURE_COLUMNS: u64 = 48;
/// If there are more OSTs than this, they are counted, not drawn.
const PICTURE_ROWS_MAX: usize = 32;
/// If there are more OSTs than this, they are counted, not named.
const NAMES_MAX: usize = 12;

/// The data that is shown of a file.
struct View<'a> {
    path: Vec<u8>,
    kind: &'a str,
    size: u64,
    located: Located,
    targets: Vec<Target>,
    lov: Option<Lov>,
    ceph: Option<FileLayout>,
}

/// Shows every path. If a path cannot be examined, this is reported, and the others are shown.
pub(crate) fn run(args: &LayoutArgs) -> Result<()> {
    let mut out = io::stdout().lock();
    let mut failed_count = 0u64;
    let mut before: Option<Subject> = None;
    for path in &args.paths {
        match Subject::open_beside(path, &args.layout, before.as_ref()) {
            Ok(subject) => {
                show(&subject, args.json, &mut out)?;
                before = Some(subject);
            }
            Err(error) => {
                failed_count += 1;
                complain(&format!("{error:#}"));
            }
        }
    }
    ensure!(failed_count == 0, "{} not shown", sizes::counted(failed_count, "path"));
    Ok(())
}

fn show(subject: &Subject, is_json: bool, out: &mut dyn Write) -> io::Result<()> {
    let path = subject.path.as_os_str().as_bytes().to_vec();
    let (kind, lov, ceph) = (subject.layouts.kind(), subject.lov(), subject.ceph());
    if !subject.is_directory() {
        let (size, located, targets) = (subject.size(), subject.located(), subject.targets());
        let view = View { path, kind, size, located, targets, lov, ceph };
        return if is_json { writeln!(out, "{}", view.json()) } else { view.write(out) };
    }
    if is_json {
        let template =
            ceph.as_ref().map(objects_json).or_else(|| lov.as_ref().map(components_json));
        return writeln!(out, "{}", with_path(&path, json!({"kind": kind, "template": template})));
    }
    match &ceph {
        Some(ceph) => {
            let path = escape(&path);
            writeln!(out, "{path}: a directory ({kind}); new files get\n  {}", cut(ceph))
        }
        None => write_template(&escape(&path), kind, lov.as_ref(), out),
    }
}

/// Adds the path to an object.
fn with_path(path: &[u8], mut object: Value) -> Value {
    let path = serde_json::to_value(PathText::new(path)).expect("its keys are strings");
    for (key, value) in path.as_object().into_iter().flatten() {
        object[key] = value.clone();
    }
    object
}

/// Describes the stripes that a directory gives to new files, in one line.
pub(crate) fn template(lov: &Lov) -> String {
    let components: Vec<_> = lov.components.iter().map(described).collect();
    components.join(", then ")
}

/// Writes the layout that a directory gives to new files.
fn write_template(
    path: &str,
    kind: &str,
    lov: Option<&Lov>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let Some(lov) = lov else {
        return writeln!(out, "{path}: a directory ({kind}) without a layout for new files");
    };
    writeln!(out, "{path}: a directory ({kind}); new files get")?;
    for component in &lov.components {
        let extent = extent(component.extent.start, component.extent.end);
        writeln!(out, "  {extent}  {}", described(component))?;
    }
    Ok(())
}

fn described(component: &Component) -> String {
    let Body::Stripes(stripes) = &component.body else { return "a foreign layout".to_owned() };
    if stripes.pattern & pattern::MDT != 0 {
        return "the MDT".to_owned();
    }
    let size = match stripes.stripe_size {
        0 => "the default size".to_owned(),
        size => sizes::bytes(size.into()),
    };
    let stripes_of = match stripes.stripe_count {
        0 => format!("the default number of stripes of {size}"),
        WIDE_STRIPE_COUNT_MIN.. => format!("stripes of {size} on all OSTs"),
        count => format!("{} of {size}", sizes::counted(count.into(), "stripe")),
    };
    match String::from_utf8_lossy(&stripes.pool) {
        pool if pool.is_empty() => stripes_of,
        pool => format!("{stripes_of}, pool {}", escape_text(&pool)),
    }
}

/// Describes how Ceph divides a file into stripes and objects.
fn cut(layout: &FileLayout) -> String {
    let striping = layout.striping;
    let objects = format!("objects of {}", sizes::bytes(striping.object_size().into()));
    let objects = match striping.count() {
        1 => objects,
        count => {
            format!(
                "{objects}, {count} at a time in stripes of {}",
                sizes::bytes(striping.unit().into())
            )
        }
    };
    let pool = escape_text(&layout.pool);
    match layout.namespace.as_str() {
        "" => format!("{objects}, pool {pool}"),
        namespace => format!("{objects}, pool {pool}, namespace {}", escape_text(namespace)),
    }
}

/// Returns `1.0 MiB to 16 MiB`, in two columns.
fn extent(start: u64, end: u64) -> String {
    let end = if end == u64::MAX { "the end".to_owned() } else { sizes::bytes(end) };
    format!("{:>9} to {end:<9}", sizes::bytes(start))
}

impl View<'_> {
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let bytes = self.located.layout.bytes_per_ost(0..self.size);
        let osts = sizes::counted(bytes.len() as u64, "OST");
        let path = escape(&self.path);
        writeln!(out, "{path}: {} on {osts} ({})", sizes::bytes(self.size), self.kind)?;
        if self.located.is_archived {
            writeln!(out, "  its data is in an archive; reading the file would restore it")?;
        }
        if let Some(mirrors) = self.lov.as_ref().and_then(mirror_count) {
            writeln!(out, "  {mirrors} copies; this is the one that is usually read")?;
        }
        if let Some(ceph) = &self.ceph {
            writeln!(out, "  {}", cut(ceph))?;
            return self.draw(out);
        }
        let mut start = 0;
        for part in self.located.layout.parts() {
            writeln!(out, "  {}  {}", extent(start, part.end), self.stripes(&part))?;
            start = part.end;
        }
        self.draw(out)
    }

    fn stripes(&self, part: &Part) -> String {
        let shown = part.osts.iter().take(NAMES_MAX).map(|&ost| self.name(ost));
        let mut names: Vec<String> = shown.collect();
        if part.osts.len() > NAMES_MAX {
            names.push(format!("and {} more", part.osts.len() - NAMES_MAX));
        }
        let names = names.join(" ");
        match part.osts.len() {
            1 => names,
            count => format!("{count} stripes of {}: {names}", sizes::bytes(part.stripe_size)),
        }
    }

    fn name(&self, ost: OstId) -> String {
        self.targets.get(ost.index()).map_or_else(|| ost.to_string(), |it| escape_text(&it.name))
    }

    /// Draws a row for each OST, with a column for each equal part of the file.
    fn draw(&self, out: &mut dyn Write) -> io::Result<()> {
        let layout = &self.located.layout;
        let bytes = layout.bytes_per_ost(0..self.size);
        let columns = PICTURE_COLUMNS.min(self.size);
        let border = |column: u64| {
            let offset = u128::from(self.size) * u128::from(column) / u128::from(columns);
            u64::try_from(offset).expect("no larger than the file")
        };
        let cells: Vec<_> = (0..columns).map(|at| border(at)..border(at + 1)).collect();
        let per_cell: Vec<_> = cells.iter().map(|it| layout.bytes_per_ost(it.clone())).collect();
        let width = bytes.keys().map(|&ost| self.name(ost).chars().count()).max().unwrap_or(0);
        for (ost, bytes) in bytes.iter().take(PICTURE_ROWS_MAX) {
            let share = |at: usize| {
                let here = per_cell[at].get(ost).copied().unwrap_or(0);
                shade(here, cells[at].end - cells[at].start)
            };
            let picture: String = (0..cells.len()).map(share).collect();
            let server = self.targets.get(ost.index()).map_or("", |it| it.server.as_str());
            let (name, bytes) = (self.name(*ost), sizes::bytes(*bytes));
            let line = format!("  {name:width$} {bytes:>9} |{picture}| {}", escape_text(server));
            writeln!(out, "{}", line.trim_end())?;
        }
        match bytes.len().saturating_sub(PICTURE_ROWS_MAX) {
            0 => Ok(()),
            more => writeln!(out, "  and {} more", sizes::counted(more as u64, "OST")),
        }
    }

    fn json(&self) -> Value {
        let layout: &Layout = &self.located.layout;
        let mut start = 0;
        let parts = layout.parts().into_iter().map(|part| {
            let from = std::mem::replace(&mut start, part.end);
            json!({
                "start_bytes": from,
                "end_bytes": (part.end != u64::MAX).then_some(part.end),
                "stripe_size_bytes": (part.osts.len() > 1).then_some(part.stripe_size),
                "osts": part.osts.iter().map(|ost| ost.0).collect::<Vec<_>>(),
            })
        });
        let parts: Vec<Value> = parts.collect();
        let bytes = layout.bytes_per_ost(0..self.size);
        let osts = bytes.iter().map(|(ost, bytes)| {
            let server = self.targets.get(ost.index()).map(|target| &target.server);
            let server = server.filter(|server| !server.is_empty());
            json!({"ost": ost.0, "name": self.name(*ost), "server": server, "bytes": bytes})
        });
        let value = json!({
            "kind": self.kind,
            "size_bytes": self.size,
            "is_archived": self.located.is_archived,
            "parts": parts,
            "osts": osts.collect::<Vec<_>>(),
            "components": self.lov.as_ref().map(components_json),
            "objects": self.ceph.as_ref().map(objects_json),
        });
        with_path(&self.path, value)
    }
}

/// Returns the number of copies, if there are several.
fn mirror_count(lov: &Lov) -> Option<u32> {
    lov.composite.map(|it| u32::from(it.extra_mirrors) + 1).filter(|&count| count > 1)
}

/// Returns the character of a cell, by how much of it is filled.
fn shade(bytes: u64, of: u64) -> char {
    match u128::from(bytes) * 8 / u128::from(of.max(1)) {
        _ if bytes == 0 => ' ',
        0 | 1 => '░',
        2 | 3 => '▒',
        4..=6 => '▓',
        _ => '█',
    }
}

/// Returns the layout in Lustre's own words.
fn components_json(lov: &Lov) -> Value {
    lov.components.iter().map(component_json).collect()
}

/// Returns the layout in Ceph's own words.
fn objects_json(layout: &FileLayout) -> Value {
    json!({
        "object_size_bytes": layout.striping.object_size(),
        "stripe_unit_bytes": layout.striping.unit(),
        "stripe_count": layout.striping.count(),
        "pool": layout.pool,
        "pool_namespace": layout.namespace,
    })
}

fn component_json(component: &Component) -> Value {
    let has = |bits: u32| component.flags & bits != 0;
    let mut value = json!({
        "id": component.id,
        "mirror": component.mirror(),
        "start_bytes": component.extent.start,
        "end_bytes": (component.extent.end != u64::MAX).then_some(component.extent.end),
        "is_instantiated": has(flag::INSTANTIATED),
        "is_stale": has(flag::STALE),
        "is_preferred": has(flag::PREFERRED_FOR_READS),
        "is_extension": has(flag::EXTENSION),
    });
    if let Body::Stripes(Stripes { pattern, stripe_size, stripe_count, pool, objects, .. }) =
        &component.body
    {
        value["pattern"] = (*pattern).into();
        value["stripe_size_bytes"] = (*stripe_size).into();
        value["stripe_count"] = (*stripe_count).into();
        value["pool"] = String::from_utf8_lossy(pool).into();
        value["osts"] = objects.iter().map(|object| object.ost.0).collect();
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    const MIB: u64 = 1 << 20;

    fn view(layout: Layout, size: u64) -> View<'static> {
        let target = |ost: u32| Target {
            name: OstId(ost).to_string(),
            server: format!("oss{}", ost / 2),
            ..Target::default()
        };
        let mut targets: Vec<Target> = (0..4).map(target).collect();
        targets.push(Target { name: "MDT".to_owned(), ..Target::default() });
        let (path, kind) = (b"run7/ckpt".to_vec(), "lustre");
        View { path, kind, size, located: Located::at(layout), targets, lov: None, ceph: None }
    }

    fn composite() -> Layout {
        let osts = |osts: &[u32]| osts.iter().map(|&ost| OstId(ost)).collect();
        let parts = [
            Part { end: MIB, stripe_size: MIB, osts: osts(&[4]) },
            Part { end: 16 * MIB, stripe_size: MIB, osts: osts(&[1]) },
            Part { end: u64::MAX, stripe_size: 4 * MIB, osts: osts(&[3, 0, 2]) },
        ];
        Layout::composite(parts).unwrap()
    }

    #[test]
    fn a_file_is_shown_as_parts_and_as_a_picture() {
        let mut out = Vec::new();
        view(composite(), 40 * MIB).write(&mut out).unwrap();
        expect![[r#"
            run7/ckpt: 40.0 MiB on 5 OSTs (lustre)
                    0 B to 1.0 MiB    MDT
                1.0 MiB to 16.0 MiB   OST0001
               16.0 MiB to the end    3 stripes of 4.0 MiB: OST0003 OST0000 OST0002
              OST0000   8.0 MiB |                   ▓████         ▒████▒         | oss0
              OST0001  15.0 MiB | ▓█████████████████░                            | oss0
              OST0002   8.0 MiB |                        ████▓         ▓████░    | oss1
              OST0003   8.0 MiB |                            ░████▓         ▓████| oss1
              MDT       1.0 MiB |█░                                              |
        "#]]
        .assert_eq(&String::from_utf8(out).unwrap());
    }

    #[test]
    fn an_empty_file_has_no_picture() {
        let mut out = Vec::new();
        view(Layout::on(OstId(1)), 0).write(&mut out).unwrap();
        expect![[r#"
            run7/ckpt: 0 B on 0 OSTs (lustre)
                    0 B to the end    OST0001
        "#]]
        .assert_eq(&String::from_utf8(out).unwrap());
    }

    #[test]
    fn a_program_gets_numbers() {
        let value = view(composite(), 40 * MIB).json();
        assert_eq!(value["parts"][2]["osts"], json!([3, 0, 2]));
        assert_eq!(value["parts"][2]["end_bytes"], Value::Null);
        assert_eq!(
            value["osts"][4],
            json!({
                "ost": 4, "name": "MDT", "server": null, "bytes": MIB
            })
        );
    }

    #[test]
    fn a_file_in_objects_is_shown_by_how_it_is_cut() {
        let ceph = "stripe_unit=1048576 stripe_count=2 object_size=4194304 pool=data";
        let ceph: FileLayout = ceph.parse().unwrap();
        let osts = [3, 0, 0, 1].map(OstId);
        let layout = Layout::in_objects(ceph.striping, &osts).unwrap();
        let view = View { kind: "ceph", ceph: Some(ceph), ..view(layout, 14 * MIB) };
        let mut out = Vec::new();
        view.write(&mut out).unwrap();
        expect![[r#"
            run7/ckpt: 14.0 MiB on 3 OSTs (ceph)
              objects of 4.0 MiB, 2 at a time in stripes of 1.0 MiB, pool data
              OST0000   7.0 MiB |   ▓██▓   ▓██▓   ▓██▓   ██████▓   ▓██▓   ▓██▓   | oss0
              OST0001   3.0 MiB |                              ░███▒  ▒███░  ▒███| oss0
              OST0003   4.0 MiB |███▒  ░███▒  ▒███░  ▒███                        | oss1
        "#]]
        .assert_eq(&String::from_utf8(out).unwrap());
        assert_eq!(view.json()["objects"]["stripe_unit_bytes"], json!(MIB));
        assert_eq!(view.json()["parts"][1]["osts"], json!([0, 1]));
    }

    #[test]
    fn a_directory_says_what_new_files_get() {
        let lov = Lov::wish_composite([
            (MIB, Lov::wish(1 << 20, 1)),
            (u64::MAX, Lov::wish(4 << 20, lads_core::lov::ALL_OSTS)),
        ]);
        let mut out = Vec::new();
        write_template("run7", "lustre", Some(&lov), &mut out).unwrap();
        write_template("here", "local", None, &mut out).unwrap();
        expect![[r#"
            run7: a directory (lustre); new files get
                    0 B to 1.0 MiB    1 stripe of 1.0 MiB
                1.0 MiB to the end    stripes of 4.0 MiB on all OSTs
            here: a directory (local) without a layout for new files
        "#]]
        .assert_eq(&String::from_utf8(out).unwrap());
    }
}
