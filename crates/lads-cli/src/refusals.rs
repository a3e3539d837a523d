//! rsync's options that `lads cp` accepts silently, because it always does what they ask for, and
//! those that it refuses with advice on what to do instead.
//!
//! There is a table for each. The options become hidden options of the command, so that they are
//! also found in a cluster such as `-avz`. Options that `lads cp` implements are in
//! [`crate::args`].

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};

const MISSING_ARGS: &str = "if a SRC is missing, lads deletes nothing, and exits with 3";
const INPLACE: &str = "lads writes into a temporary file and renames it when all of it is durable, \
                       so that no program sees an incomplete file";
const PARTIAL: &str = "not needed: finished blocks are always kept next to the target and \
                       recorded; the same command resumes";
const COMPRESS: &str = "data is not compressed: lads has no compression (over slow links, rsync -z \
                        has, or ssh's own: --tunnel -e 'ssh -C')";
const FOLLOW: &str =
    "lads moves symbolic links as links; give the entry that they point to as a SRC";
const NEWER: &str = "lads moves files that differ in size or time of change; choose files with \
                     --files-from to be more selective";
const OTHER_DIRECTORY: &str = "lads compares with DST only; omit this option";
const BACKUP: &str = "lads makes no backups of replaced files; move to a new directory instead";
const OWNERS: &str = "lads keeps owner and group by number, or with --no-owner none; use chown(1) \
                      at the sink afterwards";
const DAEMON: &str = "lads has no daemon: it is started through ssh; give ssh's options with -e, \
                      for example -e 'ssh -p 2222'";
const SSH_FAMILY: &str = "give it to ssh: -e 'ssh -4' or -e 'ssh -6'";
const TIMES: &str = "lads keeps times of change only; omit this option, or use --no-times for none";
const OUTPUT: &str = "use -v for one line per path, or --json for events";
const LOG: &str = "use --log FILE for failed entries, or --json for everything";
const FILTER: &str = "write it with --include and --exclude, or list files with --files-from";
const BATCH: &str = "lads has no batch files; move to each sink in turn";
const STOP: &str = "use --stop-after";
const DELTA: &str = "lads sends whole files (-W); for small changes in large files use rsync";
const MISSING: &str = "lads moves the rest, lists missing entries, and exits with 3";
const INTERNAL: &str = "lads has no such setting; omit it";

/// The refused options, with the names and in the order of rsync's manual page, and what to do
/// instead.
const REFUSED: &[(&str, &str)] = &[
    ("--info=FLAGS", OUTPUT),
    ("--debug=FLAGS", OUTPUT),
    ("--stderr=MODE", INTERNAL),
    ("--no-motd", DAEMON),
    ("--no-recursive", "use --exclude '*/' to skip directories"),
    ("--no-r", "use --exclude '*/' to skip directories"),
    ("-R --relative", "use --files-from with paths relative to SRC"),
    ("--no-implied-dirs", INTERNAL),
    ("-b --backup", BACKUP),
    ("--backup-dir=DIR", BACKUP),
    ("--suffix=SUFFIX", BACKUP),
    ("--inplace", INPLACE),
    ("--append", PARTIAL),
    ("--append-verify", PARTIAL),
    ("-d --dirs", "use --exclude '*/' to skip subdirectories"),
    ("--copy-unsafe-links", FOLLOW),
    ("--safe-links", FOLLOW),
    ("--munge-links", FOLLOW),
    ("-k --copy-dirlinks", FOLLOW),
    (
        "-K --keep-dirlinks",
        "lads does not follow symbolic links at the sink; name the directory itself as DST",
    ),
    ("--no-links", "lads moves symbolic links; skip them with --exclude"),
    ("--no-l", "lads moves symbolic links; skip them with --exclude"),
    ("--no-group", "use --no-owner, which skips owner and group"),
    ("--no-g", "use --no-owner, which skips owner and group"),
    ("--no-acls", "use --no-xattrs, which skips ACLs, too"),
    ("--no-A", "use --no-xattrs, which skips ACLs, too"),
    ("-E --executability", "lads keeps all permissions, or none: --no-perms"),
    ("--chmod=CHMOD", "use chmod(1) at the sink afterwards, or --no-perms"),
    ("-U --atimes", TIMES),
    ("--open-noatime", INTERNAL),
    ("-N --crtimes", TIMES),
    ("-O --omit-dir-times", TIMES),
    ("-J --omit-link-times", TIMES),
    ("--super", "lads keeps all metadata that it is permitted to set; omit this option"),
    ("--fake-super", "lads keeps all metadata that it is permitted to set; omit this option"),
    ("--no-whole-file", DELTA),
    ("--no-W", DELTA),
    ("--checksum-choice=NAME", "blocks are always checked with XXH3; omit this option"),
    ("--cc=NAME", "blocks are always checked with XXH3; omit this option"),
    (
        "-B --block-size=SIZE",
        "lads sends whole files (-W); --lab block-size=SIZE is the size of its requests",
    ),
    ("--rsync-path=PROGRAM", "use --remote-lads PATH"),
    ("--delete-missing-args", MISSING_ARGS),
    ("--ignore-missing-args", MISSING),
    ("--max-alloc=SIZE", "use --buffers SIZE, the memory for data at each end"),
    ("--no-partial", PARTIAL),
    ("--partial-dir=DIR", PARTIAL),
    ("--delay-updates", INPLACE),
    ("-m --prune-empty-dirs", FILTER),
    ("--no-numeric-ids", OWNERS),
    ("--usermap=STRING", OWNERS),
    ("--groupmap=STRING", OWNERS),
    ("--chown=USER", OWNERS),
    (
        "--contimeout=SECONDS",
        "use --connect-timeout SECONDS, which applies until the first reply of the other host",
    ),
    ("--size-only", NEWER),
    ("-@ --modify-window=NUM", NEWER),
    ("-T --temp-dir=DIR", INPLACE),
    ("-y --fuzzy", DELTA),
    ("--compare-dest=DIR", OTHER_DIRECTORY),
    ("--copy-dest=DIR", OTHER_DIRECTORY),
    ("--link-dest=DIR", OTHER_DIRECTORY),
    ("-C --cvs-exclude", FILTER),
    ("-f --filter=RULE", FILTER),
    ("-F", FILTER),
    ("--copy-as=USER", OWNERS),
    ("--address=ADDRESS", "use --data-address and --ports for the data connections"),
    ("--port=PORT", DAEMON),
    ("--sockopts=OPTIONS", INTERNAL),
    ("--blocking-io", INTERNAL),
    ("--outbuf=MODE", INTERNAL),
    ("-8 --8-bit-output", "use --json for unescaped names"),
    ("-i --itemize-changes", OUTPUT),
    ("-M --remote-option=OPTION", INTERNAL),
    ("--out-format=FORMAT", OUTPUT),
    ("--log-file=FILE", LOG),
    ("--log-file-format=FILE", LOG),
    ("--password-file=FILE", DAEMON),
    ("--early-input=FILE", DAEMON),
    ("--daemon", DAEMON),
    ("--config=FILE", DAEMON),
    ("--list-only", "use --dry-run, or ls(1) through ssh"),
    ("--stop-at=TIME", STOP),
    ("--write-batch=FILE", BATCH),
    ("--only-write-batch=FILE", BATCH),
    ("--read-batch=FILE", BATCH),
    ("--protocol=NUM", INTERNAL),
    ("--iconv=STRING", "names are moved byte for byte; use convmv(1) at the sink"),
    ("--checksum-seed=NUM", INTERNAL),
    ("-4 --ipv4", SSH_FAMILY),
    ("-6 --ipv6", SSH_FAMILY),
];

/// Options of version 0.1, and their replacements.
const REPLACED: &[(&str, &str)] = &[
    ("--threads=N", "use --source threads=N and --sink threads=N"),
    ("--layout=SPEC", "use --source layout=SPEC and --sink layout=SPEC"),
    ("--pin=CPUS", "use --source pin=CPUS and --sink pin=CPUS"),
    ("--schedule=RULE", "use --lab schedule=RULE"),
    ("--place=RULE", "use --sink place=RULE"),
    ("--stage=DIR", "use --source stage=DIR or --sink stage=DIR"),
    ("--no-journal", "use --lab journal=no"),
    ("--no-preallocate", "use --sink preallocate=no"),
];

/// Options that are accepted and have no effect; the user is told this once.
const IGNORED: &[(&str, &str)] = &[
    ("-z --compress", COMPRESS),
    ("--compress-choice=NAME", COMPRESS),
    ("--zc=NAME", COMPRESS),
    ("--compress-level=NUM", COMPRESS),
    ("--zl=NUM", COMPRESS),
    ("--skip-compress=LIST", COMPRESS),
];

/// Options for what `lads cp` always does. The second field is an option that this one undoes if it
/// comes later on the command line.
const ACCEPTED: &[(&str, Option<&str>)] = &[
    ("-r --recursive", None),
    ("-l --links", None),
    ("-p --perms", Some("no_perms")),
    ("-t --times", Some("no_times")),
    ("-o --owner", Some("no_owner")),
    ("-g --group", None),
    ("-H --hard-links", Some("no_hard_links")),
    ("-A --acls", None),
    ("-X --xattrs", Some("no_xattrs")),
    ("-S --sparse", None),
    ("-W --whole-file", None),
    ("-s --protect-args", None),
    ("--secluded-args", None),
    ("--numeric-ids", None),
    ("--partial", None),
    ("--fsync", None),
    ("--preallocate", None),
    ("--human-readable", None),
    ("--inc-recursive", None),
];

/// Adds all tables to the command as hidden options.
pub(crate) fn add_to(command: Command) -> Command {
    let accepted = ACCEPTED
        .iter()
        .map(|&(names, undoes)| undoes.into_iter().fold(hidden_option(names), Arg::overrides_with));
    let others = REFUSED.iter().chain(REPLACED).chain(IGNORED);
    let others = others.map(|&(names, _)| hidden_option(names));
    command.args(accepted).args(others)
}

/// Makes an option from its names in rsync's manual page: `-T --temp-dir=DIR`, `--delete`, `-F`.
fn hidden_option(names: &'static str) -> Arg {
    let (names_only, value) = names.split_once('=').map_or((names, None), |(n, v)| (n, Some(v)));
    let mut option = Arg::new(names).hide(true).overrides_with(names);
    for name in names_only.split(' ') {
        option = match name.strip_prefix("--") {
            Some(long) => option.long(long),
            None => option.short(name.chars().nth(1).expect("a letter follows the dash")),
        };
    }
    match value {
        Some(value) => option.value_name(value).num_args(1).allow_hyphen_values(true),
        None => option.action(ArgAction::SetTrue),
    }
}

/// Returns one line for every refused option that was given, in the order given.
pub(crate) fn given(matches: &ArgMatches) -> Vec<String> {
    let is_given = |names: &str| matches.value_source(names) == Some(ValueSource::CommandLine);
    let mut found: Vec<(usize, String)> = REFUSED
        .iter()
        .chain(REPLACED)
        .filter(|(names, _)| is_given(names))
        .map(|(names, hint)| {
            let message = format!("{} is not possible: {hint}", names.replace(' ', ", "));
            (matches.index_of(names).unwrap_or(usize::MAX), message)
        })
        .collect();
    found.sort();
    found.into_iter().map(|(_, message)| message).collect()
}

/// Returns the notes on accepted options that were given and have no effect, each note once.
pub(crate) fn ignored(matches: &ArgMatches) -> Vec<&'static str> {
    let is_given = |names: &str| matches.value_source(names) == Some(ValueSource::CommandLine);
    let mut said: Vec<_> =
        IGNORED.iter().filter(|(names, _)| is_given(names)).map(|(_, what)| *what).collect();
    said.dedup();
    said
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args;

    fn parse(arguments: &[String]) -> Vec<String> {
        let words = ["lads", "cp"].into_iter().map(str::to_owned).chain(arguments.iter().cloned());
        let matches = args::command().try_get_matches_from(words).expect("it is known");
        given(matches.subcommand_matches("cp").expect("it is given"))
    }

    /// Returns the option as a user types it, once for each name, with a value if it takes one.
    fn typed(names: &str) -> Vec<Vec<String>> {
        let (names, value) = names.split_once('=').map_or((names, None), |(n, v)| (n, Some(v)));
        let with_paths = |name: &str| {
            let words = [Some(name), value, Some("a"), Some("b")];
            words.into_iter().flatten().map(str::to_owned).collect()
        };
        names.split(' ').map(with_paths).collect()
    }

    #[test]
    fn every_refused_option_is_refused_with_a_hint() {
        for (names, hint) in REFUSED.iter().chain(REPLACED) {
            for arguments in typed(names) {
                let messages = parse(&arguments);
                assert_eq!(messages.len(), 1, "{arguments:?}");
                assert!(messages[0].contains(hint) && !messages[0].contains('\n'), "{messages:?}");
            }
        }
    }

    #[test]
    fn what_is_ignored_is_told_once_and_not_refused() {
        for (names, _) in IGNORED {
            for arguments in typed(names) {
                assert_eq!(parse(&arguments), [""; 0], "{arguments:?}");
            }
        }
        let words = ["lads", "cp", "-az", "--zl=3", "--compress", "a", "b"];
        let matches = args::command().try_get_matches_from(words).expect("it is known");
        let said = ignored(matches.subcommand_matches("cp").expect("it is given"));
        assert!(said.len() == 1 && said[0].starts_with("data is not compressed"), "{said:?}");
    }

    #[test]
    fn every_accepted_option_is_taken_without_a_word() {
        for (names, _) in ACCEPTED {
            for arguments in typed(names) {
                assert_eq!(parse(&arguments), [""; 0], "{arguments:?}");
            }
        }
    }

    #[test]
    fn a_cluster_is_refused_for_each_letter_in_the_order_given() {
        let arguments = ["-avkR", "--inplace", "a", "b"].map(str::to_owned);
        let messages = parse(&arguments);
        let begins: Vec<&str> =
            messages.iter().map(|message| message.split(' ').next().unwrap()).collect();
        assert_eq!(begins, ["-k,", "-R,", "--inplace"]);
    }

    #[test]
    fn most_used_options_of_rsync_are_all_known() {
        let options = "\
            -r -a -n -v -q -P -e=ssh -H -A -X -l -p -t -o -g -D -S -W -h -I -0 -z -u -c -i -L -k \
            -K -b -x -R -E -O -J -U -N -B=1 -T=x -y -C -f=x -F -m -M=x -d -s -4 -6 -8 -@=1 \
            --devices --specials --exclude=x --include=x --bwlimit=1 --numeric-ids --progress \
            --stats --partial --timeout=1 --no-perms --no-times --no-owner --no-group --inplace \
            --append --link-dest=x --partial-dir=x";
        for option in options.split_whitespace() {
            for arguments in typed(option) {
                parse(&arguments);
            }
        }
    }
}
