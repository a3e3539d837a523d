//! The manual pages, made from the same table as the command line.

use crate::args::{self, COPY_EXAMPLES, COPY_NOTES, ManArgs};
use anyhow::{Context, Result};
use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use std::io::{self, Write};

/// Writes `lads.1` and a page for every subcommand into a directory.
pub(crate) fn write_pages(args: &ManArgs) -> Result<()> {
    let directory = &args.directory;
    let write = || -> io::Result<()> {
        std::fs::create_dir_all(directory)?;
        for (name, page) in pages()? {
            std::fs::write(directory.join(name), page)?;
        }
        Ok(())
    };
    write().with_context(|| format!("cannot write manual pages into {}", directory.display()))
}

/// File name and content of every page.
fn pages() -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut command = args::command();
    command.build();
    let mut pages = vec![page(&command)?];
    add_pages_below(&command, &mut pages)?;
    Ok(pages)
}

fn add_pages_below(command: &Command, pages: &mut Vec<(String, Vec<u8>)>) -> io::Result<()> {
    for subcommand in command.get_subcommands().filter(|it| !it.is_hide_set()) {
        pages.push(page(subcommand)?);
        add_pages_below(subcommand, pages)?;
    }
    Ok(())
}

fn page(command: &Command) -> io::Result<(String, Vec<u8>)> {
    // A page has the name that man(1) looks for, `lads-cp`.
    let display_name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let is_copy = command.get_name() == "cp";
    let version = env!("CARGO_PKG_VERSION");
    let man = Man::new(command.clone()).source(format!("lads {version}")).manual("LADS");
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    if is_copy {
        // This synopsis is more exact than one made from the options.
        write_synopsis(&mut text)?;
    } else {
        man.render_synopsis_section(&mut text)?;
    }
    man.render_description_section(&mut text)?;
    if is_copy {
        write_examples(&mut text)?;
    }
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut text)?;
    }
    if command.has_subcommands() {
        man.render_subcommands_section(&mut text)?;
    }
    if is_copy {
        write_notes(&mut text)?;
    }
    Ok((format!("{display_name}.1"), text))
}

fn write_synopsis(to: &mut dyn Write) -> io::Result<()> {
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    roff.text([bold("lads cp"), roman(" [OPTIONS] SRC... DST")]);
    roff.to_writer(to)
}

fn write_examples(to: &mut dyn Write) -> io::Result<()> {
    let mut roff = Roff::new();
    roff.control("SH", ["EXAMPLES"]);
    for (what, why) in COPY_EXAMPLES {
        roff.control("TP", []);
        roff.text([bold(*what)]);
        roff.text([roman(*why)]);
    }
    roff.to_writer(to)
}

/// Writes the notes of `lads cp --help`: each heading is a section, and lines stay as they are.
fn write_notes(to: &mut dyn Write) -> io::Result<()> {
    let mut roff = Roff::new();
    for line in COPY_NOTES.lines() {
        match line.strip_suffix(':').filter(|heading| !heading.starts_with(' ')) {
            Some(heading) => {
                roff.control("SH", [heading.to_uppercase().as_str()]);
                roff.control("nf", []);
            }
            None if line.is_empty() => {
                roff.control("fi", []);
            }
            None => {
                roff.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
            }
        }
    }
    roff.control("fi", []);
    roff.to_writer(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_page_for_every_command_that_people_type() {
        let names: Vec<String> = pages().unwrap().into_iter().map(|(name, _)| name).collect();
        let commands = [
            "cp",
            "check",
            "ls",
            "layout",
            "osts",
            "probe",
            "bench",
            "clean",
            "deploy",
            "doctor",
            "config",
            "imbalance",
            "serve",
            "key",
            "rfs",
            "rfs-serve",
            "rfs-replay",
            "mpi",
            "mpi-env",
            "mpi-doctor",
            "man",
            "completions",
        ];
        let mut expected = vec!["lads.1".to_owned()];
        expected.extend(commands.map(|command| format!("lads-{command}.1")));
        assert_eq!(names, expected);
    }

    #[test]
    fn the_page_of_cp_has_examples_and_every_option_that_is_not_hidden() {
        let pages = pages().unwrap();
        let page = String::from_utf8(pages[1].1.clone()).unwrap();
        assert!(page.contains(".SH EXAMPLES"));
        assert!(page.contains(".SH \"EXIT STATUS\"") || page.contains(".SH EXIT STATUS"));
        let command = args::command();
        let copy = command.find_subcommand("cp").unwrap();
        for option in copy.get_opts().filter(|option| !option.is_hide_set()) {
            let name = match (option.get_long(), option.get_short()) {
                (Some(long), _) => format!("--{long}"),
                (None, short) => format!("-{}", short.expect("it has one or the other")),
            };
            assert!(page.contains(&name.replace('-', "\\-")), "{name} is missing");
        }
        assert!(!page.contains("compress\\-level"));
    }
}
