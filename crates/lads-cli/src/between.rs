//! `lads cp a:x b:y`: a transfer between two other hosts. LADS runs on the host of the sources, and
//! the data goes from there to the other host without a way through this one.

use crate::args::{CopyArgs, EXPAND};
use crate::lists::{self, Separator};
use crate::{complain, copy, display, front, parsed, refusals, there};
use anyhow::{Result, anyhow, ensure};
use clap::ArgMatches;
use lads_engine::{ExitCode, Location, RemoteShell, StopFlag, is_daemon};
use std::ffi::OsString;
use std::io::{IsTerminal, stderr, stdout};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Seconds between the lines with progress, which the other host prints without a terminal.
const PROGRESS_SECONDS: &str = "--progress=2";

/// Options whose files are on this host, and the equivalent option for a line of such a file.
const LISTS: [(&str, &str); 2] = [("--exclude-from", "--exclude"), ("--include-from", "--include")];

/// Returns the host of the sources if it is one host, and the target is on another host, too.
fn host_of_sources(args: &CopyArgs) -> Option<String> {
    let (target, sources) = args.paths.split_last()?;
    Location::parse(target)?.host?;
    let host = Location::parse(sources.first()?)?.host?;
    let is_there =
        |it: &OsString| Location::parse(it).is_some_and(|it| it.host.as_ref() == Some(&host));
    sources.iter().all(is_there).then_some(host)
}

/// Runs the transfer if it is one between two other hosts.
pub(crate) fn run(matches: &ArgMatches) -> Option<std::process::ExitCode> {
    let args: CopyArgs = parsed(matches);
    let args = &args;
    let host = host_of_sources(args)?;
    let refused = refusals::given(matches);
    if !refused.is_empty() {
        return Some(copy::refuse(args, &refused));
    }
    let typed: Vec<OsString> = std::env::args_os().skip(2).collect();
    let prepared = || -> Result<(RemoteShell, Vec<Vec<u8>>)> {
        ensure!(!host.starts_with('-'), "a host cannot begin with a dash");
        let is_target = |it: &OsString| Location::parse(it).and_then(|it| it.host);
        let target = args.paths.last().and_then(is_target).unwrap_or_default();
        ensure!(
            !is_daemon(&host) && !is_daemon(&target),
            "with lads://, one side must be on this host: log in to one of the two"
        );
        ensure!(
            args.files_from.is_none() && args.log.is_none(),
            "--files-from and --log need a file on {host}: log in there and run lads cp"
        );
        let command = RemoteShell::words(&args.rsh).map_err(|error| anyhow!("--rsh {error}"))?;
        let (lads, deploys) = (args.remote_lads.clone(), !args.no_deploy);
        let remote = RemoteShell { command, lads, deploys, ..RemoteShell::default() };
        Ok((remote, words(args, &typed, &host)?))
    };
    let (remote, words) = match prepared() {
        Ok(prepared) => prepared,
        Err(error) => return Some(copy::refuse(args, &[format!("{error:#}")])),
    };
    refusals::ignored(matches).iter().for_each(|notice| complain(notice));
    let work = |stop: &StopFlag| match there::on_host(&remote, &host, &words, Some(stop)) {
        Ok(_) if stop.is_set() => ExitCode::Interrupted as u8,
        Ok(code) => code,
        Err((code, error)) => {
            let message = format!("{error:#}");
            complain(&message);
            if args.json {
                display::tell_refusal(&mut stdout(), code, &message);
            }
            code as u8
        }
    };
    Some(front::run(work))
}

/// Returns the words of the command on the host of the sources.
fn words(args: &CopyArgs, typed: &[OsString], host: &str) -> Result<Vec<Vec<u8>>> {
    let mut words = vec![b"cp".to_vec(), format!("--{EXPAND}").into_bytes()];
    words.push(b"--stop-with-stdin".to_vec());
    let has_progress = args.progress.is_some() || args.no_progress || args.quiet || args.json;
    if !has_progress && stderr().is_terminal() {
        words.push(PROGRESS_SECONDS.into());
    }
    let separator = if args.from0 { Separator::Zero } else { Separator::Line };
    let mut typed = typed.iter();
    while let Some(word) = typed.next() {
        let bytes = word.as_bytes();
        let list = LISTS.iter().find_map(|(option, single)| {
            let rest = bytes.strip_prefix(option.as_bytes())?;
            match rest {
                [] => Some((*single, None)),
                [b'=', path @ ..] => Some((*single, Some(path.to_vec()))),
                _ => None,
            }
        });
        let Some((single, path)) = list else {
            words.push(if args.paths.contains(word) {
                path_there(word, host)
            } else {
                bytes.into()
            });
            continue;
        };
        let path = path.or_else(|| typed.next().map(|it| it.clone().into_vec()));
        let path = OsString::from_vec(path.unwrap_or_default());
        for pattern in lists::read(Path::new(&path), separator)? {
            words.push([single.as_bytes(), b"=", &pattern].concat());
        }
    }
    Ok(words)
}

/// Returns an operand as the host of the sources must read it.
fn path_there(operand: &OsString, host: &str) -> Vec<u8> {
    match Location::parse(operand) {
        Some(place) if place.host.as_deref() == Some(host) => there::path_there(operand),
        _ => operand.as_bytes().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args;
    use clap::FromArgMatches;

    fn words_of(typed: &[&str]) -> Option<Vec<String>> {
        let matches = args::command().try_get_matches_from(["lads", "cp"].iter().chain(typed));
        let matches = matches.unwrap();
        let args = CopyArgs::from_arg_matches(matches.subcommand_matches("cp").unwrap()).unwrap();
        let host = host_of_sources(&args)?;
        let typed: Vec<OsString> = typed.iter().map(OsString::from).collect();
        let words = words(&args, &typed, &host).unwrap();
        Some(words.into_iter().map(|it| String::from_utf8(it).unwrap()).skip(3).collect())
    }

    #[test]
    fn only_transfers_between_two_other_hosts_run_there() {
        assert_eq!(words_of(&["a:x", "b:y"]).unwrap(), ["x", "b:y"]);
        assert_eq!(words_of(&["me@a:x", "me@a:y/", "b:z"]).unwrap(), ["x", "y/", "b:z"]);
        assert_eq!(words_of(&["a:x", "a:y"]).unwrap(), ["x", "y"]);
        for local in
            [&["a:x", "y"][..], &["x", "b:y"], &["a:x", "y", "b:z"], &["a:x", "c:y", "b:z"]]
        {
            assert_eq!(words_of(local), None, "{local:?}");
        }
    }

    #[test]
    fn paths_of_the_host_are_neither_options_nor_other_hosts_there() {
        let words = words_of(&["-v", "--", "a:-x", "a:b:c", "a:", "a:~/y", "b:~/z"]).unwrap();
        assert_eq!(words, ["-v", "--", "./-x", "./b:c", ".", "~/y", "b:~/z"]);
    }

    #[test]
    fn lists_of_this_host_are_sent_as_patterns() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "one\n+ two\n").unwrap();
        let path = file.path().to_str().unwrap();
        let inline = format!("--include-from={path}");
        let typed = ["--exclude-from", path, &inline, "--exclude=x", "a:x", "b:y"];
        let expected = ["--exclude=one", "--exclude=+ two", "--include=one", "--include=+ two"];
        let words = words_of(&typed).unwrap();
        assert_eq!(words[..4], expected);
        assert_eq!(words[4..], ["--exclude=x", "x", "b:y"]);
    }
}
