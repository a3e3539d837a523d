//! `lads mpi doctor`: whether remote files are in force for a program, and what to do if not.

use super::problem::{Problem, quoted};
use super::program::{Program, mpi_of};
use super::shims::Shims;
use super::{preload, run as running, server, token};
use crate::args::DoctorArgs;
use crate::display::escape_text;
use anyhow::{Result, bail};
use lads_core::remote::name::{self, Name, Server};
use lads_engine::remote::Token;
use lads_shims::Mpi;
use serde::Serialize;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A line: what was looked at, and what was found.
#[derive(Debug, Serialize)]
struct Finding {
    check: &'static str,
    is_ok: bool,
    text: String,
    todo: Option<String>,
}

/// What `--json` prints; `docs/json.md` explains the names.
#[derive(Debug, Default, Serialize)]
struct Report {
    is_ok: bool,
    mpi: Option<&'static str>,
    checks: Vec<Finding>,
}

/// Looks at everything and says it. Returns whether all is well.
pub(crate) fn run(args: &DoctorArgs) -> Result<bool> {
    let mut report = Report::default();
    report.look(args)?;
    report.is_ok = report.checks.iter().all(|finding| finding.is_ok);
    let mut out = io::stdout().lock();
    match args.json {
        true => writeln!(out, "{}", serde_json::to_string(&report)?)?,
        false => report.write(&mut out)?,
    }
    Ok(report.is_ok)
}

impl Report {
    fn look(&mut self, args: &DoctorArgs) -> Result<()> {
        let (program, file) = subjects(args);
        let heard = self.look_at_run(args)?.filter(|it| it.judge().is_ok());
        let program = program.or_else(|| of_command(&args.command).filter(|_| heard.is_none()));
        let (opened, mpi) = self.look_at_program(program, args.shim.mpi);
        self.mpi = mpi.map(Mpi::name);
        // A run in which all processes have the shim proves what this would only make likely.
        if heard.is_none() {
            self.look_at_shim(&Shims::of(&args.shim), mpi);
            let todo = how_to_set(program, args.shim.mpi);
            self.add("preload", preload::judge(opened.as_ref(), mpi, &todo));
        }
        self.look_at_servers(args, heard.map_or_else(token::named, |it| it.token), file);
        Ok(())
    }

    fn look_at_run(&mut self, args: &DoctorArgs) -> Result<Option<running::Heard>> {
        let Some(name) = args.command.first() else { return Ok(None) };
        let shown = name.display();
        let (status, heard) = match running::run(&args.command) {
            Ok(outcome) => outcome,
            Err(error) => bail!("cannot run {shown}: {error}"),
        };
        self.add("run", heard.judge());
        if !status.success() {
            let what = format!("{shown} has failed: {status}");
            self.add("command", Err(Problem::new(what, "see its output above")));
        }
        Ok(Some(heard))
    }

    /// The program, if something can be preloaded into it, and its MPI.
    fn look_at_program(
        &mut self,
        name: Option<&Path>,
        told: Option<Mpi>,
    ) -> (Option<Program>, Option<Mpi>) {
        let Some(name) = name else { return (None, told) };
        let program = match Program::open(name) {
            Ok(program) => program,
            Err(problem) => {
                self.add("program", Err(problem));
                return (None, told);
            }
        };
        let found = mpi_of(name, program.as_ref(), told);
        let mpi = found.as_ref().map_or(told, |(mpi, _)| Some(*mpi));
        self.add("program", found.map(|(_, why)| why));
        if let Some(problem) = program.as_ref().and_then(Program::privileges) {
            self.add("privileges", Err(problem));
        }
        (program, mpi)
    }

    fn look_at_shim(&mut self, shims: &Shims, mpi: Option<Mpi>) {
        let directory = shims.directory().display();
        let found = match (mpi, shims.all().as_slice()) {
            (Some(mpi), _) => shims.of_mpi(mpi).map(|path| path.display().to_string()),
            (None, []) => Err(Problem::new(
                format!("there is no shim in {directory}"),
                "install the package lads-mpi; or build them, in a checkout of LADS: cargo xtask \
                 shims; or give their directory: --shims DIR",
            )),
            (None, all) => {
                let names: Vec<_> = all.iter().map(|mpi| mpi.title()).collect();
                Ok(format!("{directory} has shims for {}", names.join(", ")))
            }
        };
        self.add("shim", found);
    }

    fn look_at_servers(&mut self, args: &DoctorArgs, token: Option<PathBuf>, file: Option<&[u8]>) {
        let name = file.map(name::parse).transpose().unwrap_or_else(|text| {
            let todo = "write it like this; the port is that of lads rfs serve";
            self.add("server", Err(Problem::new(text, todo)));
            None
        });
        let is_through_ssh = match &name {
            Some(name) => is_started(name),
            None => args
                .command
                .iter()
                .any(|it| name::parse(it.as_bytes()).is_ok_and(|it| is_started(&it))),
        };
        // ssh lets the user in.
        let token = if is_through_ssh { None } else { self.look_at_token(token) };
        if let (Some(file), Some(name)) = (file, name)
            && (is_through_ssh || token.is_some())
        {
            for it in &name.servers {
                self.add("server", server::ask(file, it, &name.path, token.as_ref()));
            }
        }
    }

    fn look_at_token(&mut self, token: Option<PathBuf>) -> Option<Token> {
        let read =
            token.ok_or_else(token::missing).and_then(|path| Ok((token::read(&path)?, path)));
        self.add(
            "token",
            read.as_ref().map(|(_, it)| it.display().to_string()).map_err(Clone::clone),
        );
        read.ok().map(|(token, _)| token)
    }

    fn add(&mut self, check: &'static str, found: Result<String, Problem>) {
        let is_ok = found.is_ok();
        let (text, todo) = match found {
            Ok(text) => (text, None),
            Err(Problem { what, todo }) => (what, Some(todo)),
        };
        self.checks.push(Finding { check, is_ok, text, todo });
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        for Finding { check, is_ok, text, todo } in &self.checks {
            let verdict = if *is_ok { "OK" } else { "not OK" };
            writeln!(out, "{verdict:6}  {check:10}  {}", escape_text(text))?;
            if let Some(todo) = todo {
                writeln!(out, "{:20}{}", "", escape_text(todo))?;
            }
        }
        Ok(())
    }
}

/// Whether it needs no token.
fn is_started(name: &Name) -> bool {
    matches!(name.servers[0], Server::StartedOn(_) | Server::Here)
}

/// The program and the file that were named, each of which may be missing.
fn subjects(args: &DoctorArgs) -> (Option<&Path>, Option<&[u8]>) {
    let is_file = |it: &&OsString| name::is_remote(it.as_bytes());
    let (files, programs): (Vec<_>, Vec<_>) = args.subjects.iter().partition(is_file);
    if files.len() > 1 || programs.len() > 1 {
        let text = "at most one program and one file rfs:... can be given\n";
        clap::Error::raw(clap::error::ErrorKind::TooManyValues, text).exit();
    }
    let (program, file) = (programs.first().copied(), files.first().copied());
    (program.map(Path::new), file.map(|it| it.as_bytes()))
}

/// The program that a command starts: the first of its words that names one with an MPI.
fn of_command(command: &[OsString]) -> Option<&Path> {
    let has_mpi = |name: &&Path| {
        let program = Program::open(name).ok().flatten();
        program.is_some_and(|it| mpi_of(name, Some(&it), None).is_ok())
    };
    command.iter().map(Path::new).find(has_mpi)
}

/// How to set what this shell lacks.
fn how_to_set(program: Option<&Path>, mpi: Option<Mpi>) -> String {
    let mpi = mpi.map_or_else(String::new, |mpi| format!(" --mpi {}", mpi.name()));
    let program = program.map(|it| format!(" {}", quoted(&it.display().to_string())));
    let program =
        program.unwrap_or_else(|| if mpi.is_empty() { " PROGRAM" } else { "" }.to_owned());
    format!("eval \"$(lads mpi env{mpi}{program})\"")
}
