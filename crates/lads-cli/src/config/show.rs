//! `lads config`: the effective defaults, and the place that defines each one.

use super::{Files, Setting, Value, leaves, of_environment, options};
use crate::args::{self, ConfigArgs};
use anyhow::{Context, Result};
use clap::Arg;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write;

/// Prints the defaults for all hosts, or for one host.
pub(crate) fn run(arguments: &ConfigArgs) -> Result<()> {
    let command = args::command();
    let files = Files::read(&command)?;
    let hosts: Vec<String> = arguments.host.iter().cloned().collect();
    let mut known: BTreeMap<&str, &Arg> = BTreeMap::new();
    for argument in leaves(&command).into_iter().flat_map(options) {
        known.extend(argument.get_long().map(|name| (name, argument)));
    }
    let mut shown = Vec::new();
    for (name, argument) in known {
        let of_files = files.settings.iter().find(|it| it.option == name && it.is_for(&hosts));
        let setting = of_environment(argument)?.or_else(|| of_files.cloned());
        if let Some(setting) = setting {
            setting.words(argument)?;
            shown.push((line_of(&setting), setting.source));
        }
    }
    let width = shown.iter().map(|(line, _)| line.chars().count()).max().unwrap_or(0);
    let mut out = std::io::stdout().lock();
    let mut print = || {
        for (path, is_there) in &files.paths {
            let lack = if *is_there { "" } else { "(does not exist)" };
            writeln!(out, "# {}{lack}", path.display())?;
        }
        shown.iter().try_for_each(|(line, source)| writeln!(out, "{line:width$}  # {source}"))
    };
    print().context("cannot write to standard output")
}

/// Returns a setting as a line of a file.
fn line_of(Setting { option, value, .. }: &Setting) -> String {
    let quoted = |word: &OsString| {
        let text = word.to_string_lossy();
        match text.parse::<i64>() {
            Ok(number) => number.to_string(),
            Err(_) => format!("\"{}\"", text.escape_default()),
        }
    };
    match value {
        Value::Flag(is_set) => format!("{option} = {is_set}"),
        Value::Words(words) => match &words[..] {
            [word] => format!("{option} = {}", quoted(word)),
            words => {
                let words: Vec<_> = words.iter().map(quoted).collect();
                format!("{option} = [{}]", words.join(", "))
            }
        },
    }
}
