//! `lads osts`: shows the storage targets of a file system and their states.

use crate::args::OstsArgs;
use crate::display::escape_text;
use crate::subject::Subject;
use anyhow::Result;
use lads_core::placement::OstState;
use lads_core::sizes;
use lads_engine::layout::Target;
use std::io::{self, Write};

/// Shows the table.
pub(crate) fn run(args: &OstsArgs) -> Result<()> {
    let subject = Subject::open(&args.path, &args.layout)?;
    let targets = subject.layouts.targets();
    let mut out = io::stdout().lock();
    if args.json {
        for (index, target) in targets.iter().enumerate() {
            writeln!(out, "{}", json(index, target))?;
        }
    } else {
        write_table(&targets, &mut out)?;
    }
    Ok(())
}

/// Returns the description of a target for another program.
pub(crate) fn json(index: usize, target: &Target) -> serde_json::Value {
    let is_space_known = target.capacity_bytes > 0;
    serde_json::json!({
        "ost": index,
        "name": target.name,
        "server": (!target.server.is_empty()).then_some(&target.server),
        "state": state_name(target.state),
        "capacity_bytes": is_space_known.then_some(target.capacity_bytes),
        "free_bytes": is_space_known.then_some(target.free_bytes),
        "is_flash": target.is_flash,
    })
}

/// Returns the name of a state, as used everywhere.
pub(crate) fn state_name(state: OstState) -> &'static str {
    match state {
        OstState::Up => "up",
        OstState::Degraded => "degraded",
        OstState::Full => "full",
        OstState::NoCreate => "no-create",
        OstState::Down => "down",
        OstState::Absent => "absent",
    }
}

/// Writes the table for people; it leaves out numbers that have no OST.
pub(crate) fn write_table(targets: &[Target], out: &mut dyn Write) -> io::Result<()> {
    let present = || targets.iter().filter(|target| target.state != OstState::Absent);
    let width = |of: fn(&Target) -> &str, title: &str| {
        let widths = present().map(|target| escape_text(of(target)).chars().count());
        widths.chain([title.len()]).max().unwrap_or(0)
    };
    let name = width(|target| &target.name, "OST");
    let server = width(|target| &target.server, "server");
    let head = format!(
        "{:name$}  {:server$}  {:9}  {:>9}  {:>9}  {:>4}  kind",
        "OST", "server", "state", "size", "free", "used"
    );
    writeln!(out, "{}", head.trim_end())?;
    for target in present() {
        let [size, free, used] = space(target);
        let kind = match target.is_flash {
            Some(true) => "flash",
            Some(false) => "disk",
            None => "",
        };
        let line = format!(
            "{:name$}  {:server$}  {:9}  {size:>9}  {free:>9}  {used:>4}  {kind}",
            escape_text(&target.name),
            escape_text(&target.server),
            state_name(target.state),
        );
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

fn space(target: &Target) -> [String; 3] {
    if target.capacity_bytes == 0 {
        return Default::default();
    }
    let used_bytes = target.capacity_bytes.saturating_sub(target.free_bytes);
    let percent = u128::from(used_bytes) * 100 / u128::from(target.capacity_bytes);
    [sizes::bytes(target.capacity_bytes), sizes::bytes(target.free_bytes), format!("{percent}%")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn a_table_leaves_out_what_is_not_known_and_numbers_without_an_ost() {
        let target = |name: &str, state, capacity_bytes| Target {
            name: name.to_owned(),
            server: "10.0.0.5@o2ib".to_owned(),
            state,
            capacity_bytes,
            free_bytes: 3 << 40,
            is_flash: Some(true),
        };
        let targets = [
            target("fs-OST0000", OstState::Up, 8 << 40),
            target("fs-OST0001", OstState::Absent, 0),
            Target { name: "fs-OST0002".to_owned(), ..Target::default() },
            target("fs-OST000a", OstState::NoCreate, 4 << 40),
        ];
        let mut out = Vec::new();
        write_table(&targets, &mut out).unwrap();
        expect![[r"
            OST         server         state           size       free  used  kind
            fs-OST0000  10.0.0.5@o2ib  up           8.0 TiB    3.0 TiB   62%  flash
            fs-OST0002                 up
            fs-OST000a  10.0.0.5@o2ib  no-create    4.0 TiB    3.0 TiB   25%  flash
        "]]
        .assert_eq(&String::from_utf8(out).unwrap());
    }
}
