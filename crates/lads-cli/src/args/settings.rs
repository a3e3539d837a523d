//! Options that hold several settings: `--source`, `--sink` and `--lab`, each `KEY=VALUE,…`.
//!
//! The settings are declared like options of a command, so that names, values and errors have the
//! same rules as on the command line.

use super::{Io, OrderArg, PlaceArg, Schedule, threshold};
use anyhow::{Result, anyhow, bail};
use clap::builder::BoolishValueParser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, Args, Command, FromArgMatches, value_parser};
use lads_core::congestion::Threshold;
use lads_core::cpu_list::Pin;
use lads_core::sizes;
use lads_engine::PLACE_EXTENTS;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// Identifiers of the options that hold settings.
pub(crate) const HOLDS_SETTINGS: [&str; 3] = ["source", "sink", "lab"];

/// Settings of either end.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct EndSettings {
    /// I/O threads [default: by the number of OSTs, or measured]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<u16>,

    /// Memory for data, if not as --buffers
    #[arg(long, value_name = "SIZE", value_parser = sizes::parse_bytes)]
    pub(crate) buffers: Option<u64>,

    /// Access to files: auto, direct, buffered or uncached
    #[arg(long, value_name = "MODE")]
    pub(crate) io: Option<Io>,

    /// Source of layouts: auto asks the file system
    #[arg(long, value_name = "SPEC")]
    pub(crate) layout: Option<String>,

    /// Processors: a list like 0-3,8, or node:0 for those of a NUMA node
    #[arg(long, value_name = "CPUS", value_parser = checked_pin)]
    pub(crate) pin: Option<String>,

    /// Directory on flash for blocks that wait for congested OSTs
    #[arg(long, value_name = "DIR")]
    pub(crate) stage: Option<PathBuf>,

    /// Maximum size of the stage [default: 8G]
    #[arg(long, value_name = "SIZE", value_parser = sizes::parse_bytes)]
    pub(crate) stage_size: Option<u64>,
}

/// Settings of the source.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct SourceSettings {
    #[command(flatten)]
    pub(crate) end: EndSettings,
}

/// Settings of the sink.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct SinkSettings {
    #[command(flatten)]
    pub(crate) end: EndSettings,

    /// OSTs of new files: aware, inherit, same or spread [default: aware]
    #[arg(long, value_name = "RULE")]
    pub(crate) place: Option<PlaceArg>,

    /// Reserve space before a file is written [default: yes]
    #[arg(long, value_name = "BOOL", value_parser = BoolishValueParser::new())]
    pub(crate) preallocate: Option<bool>,
}

/// Settings for experiments and comparisons.
#[derive(Args, Clone, Debug)]
pub(crate) struct LabSettings {
    /// Choice of blocks: adaptive, layout, threshold or file
    #[arg(long, value_name = "RULE", default_value = "adaptive")]
    pub(crate) schedule: Schedule,

    /// Order of reading the blocks of a file: none, loose, serial
    #[arg(long, value_name = "ORDER", default_value = "none")]
    pub(crate) order: OrderArg,

    /// For schedule=threshold: window=40,limit_ms=50,skips=16
    #[arg(long, value_name = "SPEC", default_value = "", value_parser = threshold::parse)]
    pub(crate) threshold: Threshold,

    /// Maximum block size: a multiple of 4K from 64K to 64M
    #[arg(long, value_name = "SIZE", default_value = "1M", value_parser = sizes::parse_bytes)]
    pub(crate) block_size: u64,

    /// Extents to which a new file may grow (Lustre); 0: never
    #[arg(long, value_name = "N", default_value_t = PLACE_EXTENTS)]
    #[arg(value_parser = value_parser!(u32).range(0..=32))]
    pub(crate) place_extents: u32,

    /// Record finished blocks; if not, interrupted files start over
    #[arg(long, value_name = "BOOL", default_value = "yes", action = ArgAction::Set)]
    #[arg(value_parser = BoolishValueParser::new())]
    pub(crate) journal: bool,
}

/// Checks the form; only the end itself has the list of its processors.
fn checked_pin(text: &str) -> Result<String, String> {
    Pin::parse(text).map(|_| text.to_owned())
}

/// Parses all values of an option; a later setting replaces an earlier one of the same key.
///
/// A comma starts a new setting only if a known key and `=` follow it: values may contain commas.
///
/// # Errors
/// Unknown keys and invalid values, with the option.
pub(crate) fn parse<S: Args + FromArgMatches>(option: &str, texts: &[OsString]) -> Result<S> {
    let command = table::<S>();
    let keys: Vec<&str> = command.get_arguments().filter_map(Arg::get_long).collect();
    let mut words = Vec::new();
    for text in texts {
        words.extend(split(option, text, &keys)?);
    }
    let matches = command.clone().try_get_matches_from(words);
    let matches = matches.map_err(|error| explain(option, &command, &error))?;
    S::from_arg_matches(&matches).map_err(|error| explain(option, &command, &error))
}

/// Returns the settings as options of a command.
fn table<S: Args>() -> Command {
    S::augment_args(Command::new("settings"))
        .no_binary_name(true)
        .args_override_self(true)
        .disable_help_flag(true)
}

/// Returns `--KEY=VALUE` for each setting.
fn split(option: &str, text: &OsStr, keys: &[&str]) -> Result<Vec<OsString>> {
    let is_start = |part: &[u8]| {
        let key = part.split(|&letter| letter == b'=').next().unwrap_or_default();
        key.len() < part.len() && keys.iter().any(|known| known.as_bytes() == key)
    };
    let mut words: Vec<Vec<u8>> = Vec::new();
    for part in text.as_bytes().split(|&letter| letter == b',') {
        match words.last_mut() {
            _ if is_start(part) => words.push([b"--", part].concat()),
            Some(word) => word.extend([b",", part].concat()),
            None => {
                let shown = String::from_utf8_lossy(part);
                let shown = shown.split('=').next().unwrap_or_default().escape_debug();
                bail!("--{option}: `{shown}` is not KEY=VALUE; the keys are {}", keys.join(", "))
            }
        }
    }
    Ok(words.into_iter().map(OsString::from_vec).collect())
}

/// Returns the keys in a value of `--source`, `--sink` or `--lab`, also unknown ones.
pub(super) fn keys(text: &OsString) -> Vec<String> {
    let tables = [table::<SinkSettings>(), table::<LabSettings>()];
    let known: Vec<&str> =
        tables.iter().flat_map(Command::get_arguments).filter_map(Arg::get_long).collect();
    let words = split("", text, &known).unwrap_or_default();
    let key = |word: &OsString| {
        let word = word.to_string_lossy();
        word.trim_start_matches('-').split('=').next().unwrap_or_default().to_owned()
    };
    words.iter().map(key).collect()
}

/// Returns an error in terms of the settings.
fn explain(option: &str, command: &Command, error: &clap::Error) -> anyhow::Error {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.join(", "),
        _ => String::new(),
    };
    let key = text(ContextKind::InvalidArg);
    let key = key.trim_start_matches('-').split([' ', '=']).next().unwrap_or_default();
    let value = text(ContextKind::InvalidValue);
    let reason = match (error.kind(), std::error::Error::source(error)) {
        (ErrorKind::InvalidValue, _) if value.is_empty() => "the value is missing".to_owned(),
        (ErrorKind::InvalidValue, _) => {
            format!("possible values are {}", text(ContextKind::ValidValue))
        }
        (_, Some(source)) => source.to_string(),
        (..) => error.to_string(),
    };
    let keys: Vec<_> = command.get_arguments().filter_map(Arg::get_long).collect();
    let is_list = value.contains(',') && value.contains('=');
    let advice = match is_list {
        true => format!(" (the keys are {})", keys.join(", ")),
        false => String::new(),
    };
    anyhow!("--{option} {key}={}: {reason}{advice}", value.escape_debug())
}

/// Returns the help of an option: a summary, and one line per setting except those `without`.
fn help<S: Args>(summary: &str, without: &[&str], notes: &str) -> String {
    let mut help = format!("{summary}\n\n");
    for argument in table::<S>().get_arguments() {
        let key = argument.get_long().unwrap_or_default();
        if without.contains(&key) {
            continue;
        }
        let value = argument.get_value_names().and_then(|names| names.first());
        let value = value.map_or("", |name| name.as_str());
        let text = argument.get_help().map(ToString::to_string).unwrap_or_default();
        let _ = writeln!(help, "{:20} {text}", format!("{key}={value}"));
    }
    if !notes.is_empty() {
        let _ = write!(help, "\n{notes}");
    }
    help.trim_end().to_owned()
}

/// Returns the long help of `--source`.
pub(super) fn source_help() -> String {
    help::<SourceSettings>(super::SOURCE_HELP, &[], super::text::SOURCE_NOTES)
}

/// Returns the long help of `--sink`.
pub(super) fn sink_help() -> String {
    let shared = table::<SourceSettings>();
    let shared: Vec<&str> = shared.get_arguments().filter_map(Arg::get_long).collect();
    help::<SinkSettings>(super::SINK_HELP, &shared, &super::text::sink_notes())
}

/// Returns the long help of `--lab`.
pub(super) fn lab_help() -> String {
    help::<LabSettings>(super::LAB_HELP, &[], "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sink(texts: &[&str]) -> Result<SinkSettings> {
        parse("sink", &texts.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn a_comma_belongs_to_the_value_unless_a_key_follows() {
        let text = "layout=synthetic:osts=4,stripe_count=2,threads=3,pin=0-3,8,stage=/a,b=c";
        let settings = sink(&[text]).unwrap().end;
        assert_eq!(settings.layout.as_deref(), Some("synthetic:osts=4,stripe_count=2"));
        assert_eq!(settings.threads, Some(3));
        assert_eq!(settings.pin.as_deref(), Some("0-3,8"));
        assert_eq!(settings.stage, Some(PathBuf::from("/a,b=c")));
    }

    #[test]
    fn later_settings_replace_earlier_ones_and_other_keys_stay() {
        let settings = sink(&["threads=3,io=direct", "threads=4", "preallocate=no"]).unwrap();
        assert_eq!(settings.end.threads, Some(4));
        assert_eq!(settings.end.io, Some(Io::Direct));
        assert_eq!(settings.preallocate, Some(false));
    }

    #[test]
    fn without_values_everything_has_its_default() {
        let lab: LabSettings = parse("lab", &[]).unwrap();
        assert_eq!(
            (lab.block_size, lab.place_extents, lab.journal),
            (1 << 20, PLACE_EXTENTS, true)
        );
        assert_eq!(lab.threshold, Threshold::default());
        assert!(sink(&[]).unwrap().end.threads.is_none());
        let lab: LabSettings = parse("lab", &["journal=no".into()]).unwrap();
        assert!(!lab.journal);
    }

    #[test]
    fn errors_name_the_option_the_key_and_the_reason() {
        for (text, expected) in [
            ("threads", "--sink: `threads` is not KEY=VALUE; the keys are threads, buffers"),
            ("bufers=3", "--sink: `bufers` is not KEY=VALUE; the keys are threads, buffers"),
            ("", "--sink: `` is not KEY=VALUE"),
            ("threads=x", "--sink threads=x: invalid digit"),
            ("threads=4,bufers=3", "(the keys are threads, buffers"),
            ("io=fast", "--sink io=fast: possible values are auto, direct, buffered, uncached"),
            ("buffers=many", "--sink buffers=many: `many` is not a size"),
            ("pin=x", "--sink pin=x: "),
            ("preallocate=perhaps", "--sink preallocate=perhaps: "),
        ] {
            let message = sink(&[text]).expect_err(text).to_string();
            assert!(message.contains(expected), "{text}: {message}");
        }
    }
}
