//! Defaults of options: from the environment, the user's file and the system's file.
//!
//! The command line is parsed first. Then each option that is not given is added from the first
//! place that defines it: the variable `LADS_OPTION`; in the user's file, the sections of hosts and
//! then the rest; the same in the system's file. The command line is then parsed again, as if the
//! user had typed these options.

mod file;
mod show;

use crate::args;
use anyhow::{Context, Result, anyhow, ensure};
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use lads_core::filter::{Rule, Verdict};
use lads_engine::Location;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;

pub(crate) use file::{line_at, text_of};
pub(crate) use show::run as show;

/// Environment variable with the path of the only configuration file to read.
const FILE_VARIABLE: &str = "LADS_CONFIG";

/// Path of the system-wide configuration file.
const SYSTEM_FILE: &str = "/etc/lads/config.toml";

/// Commands without defaults. The other end of a transfer receives all options from this end.
const WITHOUT: [&str; 10] = [
    "serve",
    "key",
    "dial",
    "complete",
    "doctor-end",
    "help",
    "version",
    "man",
    "completions",
    "config",
];

/// Default of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Setting {
    /// Long name of the option, without dashes.
    option: String,
    value: Value,
    source: Source,
}

/// Value of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    /// State of an option without a value.
    Flag(bool),
    /// Values of an option, as on a command line.
    Words(Vec<OsString>),
}

/// Place that defines a default.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    /// Environment variable.
    Variable(String),
    /// Line of a file; `host` is the pattern of its section, `None` outside of sections.
    File { path: PathBuf, line: usize, host: Option<String> },
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name) => write!(f, "${name}"),
            Self::File { path, line, host: None } => write!(f, "{}:{line}", path.display()),
            Self::File { path, line, host: Some(host) } => {
                write!(f, "{}:{line}, [host.\"{host}\"]", path.display())
            }
        }
    }
}

impl Setting {
    /// Reports whether the setting applies to one of these hosts, or to all hosts.
    fn is_for(&self, hosts: &[String]) -> bool {
        let Source::File { host: Some(pattern), .. } = &self.source else { return true };
        let rule = Rule { verdict: Verdict::Include, pattern: pattern.as_bytes().to_vec() };
        hosts.iter().any(|host| rule.matches(host.as_bytes(), false))
    }

    /// Returns the equivalent words of a command line; none if the option is off.
    fn words(&self, argument: &Arg) -> Result<Vec<OsString>> {
        let name = &self.option;
        let alone = || OsString::from(format!("--{name}"));
        let with = |value: &OsString| {
            let mut word = OsString::from(format!("--{name}="));
            word.push(value);
            word
        };
        let values_min = argument.get_num_args().map_or(1, |it| it.min_values());
        let takes_value = argument.get_action().takes_values();
        let refused = |what: &str| anyhow!("{}: {name} {what}", self.source);
        match (&self.value, argument.get_action()) {
            (Value::Flag(false), _) => Ok(Vec::new()),
            (Value::Flag(true), _) if !takes_value || values_min == 0 => Ok(vec![alone()]),
            (Value::Flag(true), _) => Err(refused("needs a value")),
            (Value::Words(values), ArgAction::Count) => {
                let count = match &values[..] {
                    [value] => value.to_str().and_then(|it| it.parse::<usize>().ok()),
                    _ => None,
                };
                let count = count.filter(|&count| count < 10);
                let count = count.ok_or_else(|| refused("must be a number below 10"))?;
                Ok(vec![alone(); count])
            }
            (Value::Words(values), _) if takes_value => {
                let is_list = matches!(argument.get_action(), ArgAction::Append);
                ensure!(is_list || values.len() == 1, refused("takes one value"));
                Ok(values.iter().map(with).collect())
            }
            (Value::Words(_), _) => Err(refused("must be true or false")),
        }
    }
}

/// Configuration files.
struct Files {
    /// Paths of the files, and whether each one exists.
    paths: Vec<(PathBuf, bool)>,
    /// Settings of all files, in order of precedence.
    settings: Vec<Setting>,
}

impl Files {
    fn read(command: &Command) -> Result<Self> {
        let mut files = Self { paths: Vec::new(), settings: Vec::new() };
        for path in paths() {
            let read = file::read(&path)?;
            let is_named = variable(FILE_VARIABLE).is_some();
            ensure!(!is_named || read.is_some(), "${FILE_VARIABLE}: no file {}", path.display());
            files.paths.push((path, read.is_some()));
            files.settings.extend(read.unwrap_or_default());
        }
        let known = known_options(command);
        for setting in &files.settings {
            let name = setting.option.as_str();
            ensure!(known.contains(name), "{}: {}", setting.source, unknown(name, &known));
        }
        Ok(files)
    }
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Returns the paths of the files, in order of precedence.
fn paths() -> Vec<PathBuf> {
    if let Some(path) = variable(FILE_VARIABLE) {
        return if path == "/dev/null" { Vec::new() } else { vec![path.into()] };
    }
    let directory = variable("XDG_CONFIG_HOME").map(PathBuf::from).filter(|it| it.is_absolute());
    let directory =
        directory.or_else(|| variable("HOME").map(|home| PathBuf::from(home).join(".config")));
    let user = directory.map(|directory| directory.join("lads/config.toml"));
    user.into_iter().chain([PathBuf::from(SYSTEM_FILE)]).collect()
}

/// Returns the names of all options that can have defaults.
fn known_options(command: &Command) -> BTreeSet<String> {
    leaves(command).into_iter().flat_map(options).filter_map(name_of).collect()
}

/// Returns the commands without subcommands that can have defaults.
fn leaves(command: &Command) -> Vec<&Command> {
    if !command.has_subcommands() {
        return vec![command];
    }
    let below = command.get_subcommands().filter(|it| !WITHOUT.contains(&it.get_name()));
    below.flat_map(leaves).collect()
}

/// Returns the options of a command that can have defaults.
fn options(command: &Command) -> impl Iterator<Item = &Arg> {
    let is_said_alone = |argument: &Arg| {
        let action = argument.get_action();
        matches!(action, ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong)
            || matches!(action, ArgAction::Version)
    };
    command.get_arguments().filter(move |it| !it.is_hide_set() && !is_said_alone(it))
}

fn name_of(argument: &Arg) -> Option<String> {
    argument.get_long().map(str::to_owned)
}

/// Returns the error for an unknown option, with the nearest name.
fn unknown(name: &str, known: &BTreeSet<String>) -> String {
    let likeness = |other: &&String| strsim::jaro_winkler(name, other);
    let nearest = known.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    let nearest = nearest.filter(|it| likeness(it) > 0.8);
    let advice = nearest.map_or_else(String::new, |name| format!("; did you mean {name}?"));
    format!("there is no option {name}{advice}")
}

/// Returns the setting of an option in the environment.
fn of_environment(argument: &Arg) -> Result<Option<Setting>> {
    let Some(option) = name_of(argument) else { return Ok(None) };
    let name = format!("LADS_{}", option.to_uppercase().replace('-', "_"));
    let Some(value) = variable(&name) else { return Ok(None) };
    let is_flag = match value.to_str() {
        Some("1" | "true" | "yes") => Some(true),
        Some("0" | "false" | "no") => Some(false),
        _ => None,
    };
    let value = match argument.get_action() {
        ArgAction::SetTrue | ArgAction::SetFalse => {
            Value::Flag(is_flag.ok_or_else(|| anyhow!("${name} must be 0 or 1"))?)
        }
        _ => Value::Words(vec![value]),
    };
    Ok(Some(Setting { option, value, source: Source::Variable(name) }))
}

/// Parses a command line together with the defaults. Exits if either has an error.
pub(crate) fn matches(words: Vec<OsString>) -> ArgMatches {
    let mut command = args::command();
    let typed = command.try_get_matches_from_mut(&words).unwrap_or_else(|error| error.exit());
    match with_defaults(&command, words, &typed) {
        Ok(None) => typed,
        Ok(Some(matches)) => matches,
        Err(error) => {
            let message = format!("{error:#}");
            crate::complain(&message);
            let leaf = leaf_of(&typed);
            let has_json = leaf.try_get_one::<bool>("json").ok().flatten() == Some(&true);
            if has_json && typed.subcommand_name().is_some_and(|it| ["cp", "check"].contains(&it)) {
                let code = lads_engine::ExitCode::Usage;
                crate::display::tell_refusal(&mut std::io::stdout(), code, &message);
            }
            std::process::exit(lads_engine::ExitCode::Usage as i32)
        }
    }
}

fn leaf_of(matches: &ArgMatches) -> &ArgMatches {
    matches.subcommand().map_or(matches, |(_, below)| leaf_of(below))
}

/// Parses the command line again, with the defaults; `None` if no default applies.
fn with_defaults(
    command: &Command,
    words: Vec<OsString>,
    typed: &ArgMatches,
) -> Result<Option<ArgMatches>> {
    let (mut leaf, mut matches, mut depth) = (command, typed, 1);
    while let Some((name, below)) = matches.subcommand() {
        if WITHOUT.contains(&name) {
            return Ok(None);
        }
        leaf = leaf.find_subcommand(name).context("a command without a name")?;
        (matches, depth) = (below, depth + 1);
    }
    let hosts = hosts(leaf, matches);
    let is_open = |argument: &Arg| {
        let id = argument.get_id().as_str();
        let given = matches.value_source(id);
        // Typed settings are added to those of the default, and replace those with the same key.
        args::HOLDS_SETTINGS.contains(&id)
            || !matches!(given, Some(ValueSource::CommandLine | ValueSource::EnvVariable))
    };
    let mut settings = Vec::new();
    for argument in options(leaf) {
        settings.extend(of_environment(argument)?);
    }
    settings.extend(Files::read(command)?.settings);
    let mut line = Line { command, depth, words, added: Vec::new() };
    for argument in options(leaf).filter(|argument| is_open(argument)) {
        let name = argument.get_long();
        let is_it = |it: &&Setting| Some(it.option.as_str()) == name && it.is_for(&hosts);
        if let Some(setting) = settings.iter().find(is_it) {
            line.add(setting, &setting.words(argument)?)?;
        }
    }
    if line.added.is_empty() {
        return Ok(None);
    }
    line.read(&line.added).map(Some).map_err(|error| anyhow!("{error}"))
}

/// Command line with defaults.
struct Line<'a> {
    command: &'a Command,
    /// Number of words before the options: the program and the command.
    depth: usize,
    /// Words that the user typed.
    words: Vec<OsString>,
    /// Options that were added.
    added: Vec<OsString>,
}

impl Line<'_> {
    fn read(&self, added: &[OsString]) -> Result<ArgMatches, clap::Error> {
        let (front, rest) = self.words.split_at(self.depth);
        let words = front.iter().chain(added).chain(rest);
        self.command.clone().try_get_matches_from(words)
    }

    /// Adds an option unless a typed option conflicts with it.
    fn add(&mut self, setting: &Setting, words: &[OsString]) -> Result<()> {
        if words.is_empty() {
            return Ok(());
        }
        let together = [&self.added, words].concat();
        let Err(error) = self.read(&together) else {
            self.added = together;
            return Ok(());
        };
        let is_conflict = |error: &clap::Error| error.kind() == ErrorKind::ArgumentConflict;
        if is_conflict(&error) && self.read(words).is_err_and(|error| is_conflict(&error)) {
            return Ok(());
        }
        let text = error.to_string();
        let message = text.lines().next().unwrap_or_default();
        Err(anyhow!("{}: {}", setting.source, message.strip_prefix("error: ").unwrap_or(message)))
    }
}

/// Returns the default of an option with a value, for commands without that option.
pub(crate) fn default_of(command: &Command, option: &str, host: &str) -> Result<Option<String>> {
    let all = leaves(command).into_iter().flat_map(options);
    let argument = all.into_iter().find(|it| it.get_long() == Some(option));
    let hosts: Vec<String> = host_of(host.as_ref(), true).into_iter().collect();
    let setting = match argument.map(of_environment).transpose()?.flatten() {
        Some(setting) => Some(setting),
        None => Files::read(command)?
            .settings
            .into_iter()
            .find(|setting| setting.option == option && setting.is_for(&hosts)),
    };
    Ok(setting.and_then(|setting| match setting.value {
        Value::Words(words) => words.into_iter().next()?.into_string().ok(),
        Value::Flag(_) => None,
    }))
}

/// Returns the hosts in a command line, without users.
fn hosts(leaf: &Command, matches: &ArgMatches) -> Vec<String> {
    let ids = leaf.get_positionals().map(|argument| argument.get_id().as_str());
    let words = ids.filter_map(|id| matches.get_raw(id)).flatten();
    // The operands of `lads deploy` are hosts, not paths.
    let are_hosts = leaf.get_name() == "deploy";
    words.filter_map(|word| host_of(word, are_hosts)).collect()
}

fn host_of(word: &OsStr, is_host: bool) -> Option<String> {
    let host = match is_host {
        true => word.to_str()?.to_owned(),
        false => Location::parse(word)?.host?,
    };
    Some(host.rsplit_once('@').map_or(host.as_str(), |(_, host)| host).to_owned())
}
