use super::*;
use clap::FromArgMatches;
use expect_test::expect_file;

fn parse(line: &str) -> Result<CopyArgs, clap::Error> {
    let words = ["lads", "cp"].into_iter().chain(line.split_whitespace());
    let matches = command().try_get_matches_from(words)?;
    CopyArgs::from_arg_matches(matches.subcommand_matches("cp").expect("it is given"))
}

fn help(arguments: &[&str]) -> String {
    let command = command().term_width(100);
    let help = command.try_get_matches_from(arguments).expect_err("help is no match");
    // Blanks at line ends are clap's, and no editor keeps them.
    help.to_string().lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

#[test]
fn the_command_line_is_sound() {
    command().debug_assert();
}

#[test]
fn help_says_what_it_should() {
    expect_file!["golden/help.txt"].assert_eq(&help(&["lads", "--help"]));
    expect_file!["golden/check-help.txt"].assert_eq(&help(&["lads", "check", "--help"]));
    expect_file!["golden/cp-help.txt"].assert_eq(&help(&["lads", "cp", "--help"]));
    expect_file!["golden/bench-help.txt"].assert_eq(&help(&["lads", "bench", "--help"]));
    expect_file!["golden/osts-help.txt"].assert_eq(&help(&["lads", "osts", "--help"]));
    expect_file!["golden/probe-help.txt"].assert_eq(&help(&["lads", "probe", "--help"]));
    expect_file!["golden/mpi-env-help.txt"].assert_eq(&help(&["lads", "mpi", "env", "--help"]));
    let doctor = &help(&["lads", "mpi", "doctor", "--help"]);
    expect_file!["golden/mpi-doctor-help.txt"].assert_eq(doctor);
    let imbalance = &help(&["lads", "imbalance", "--help"]);
    expect_file!["golden/imbalance-help.txt"].assert_eq(imbalance);
}

#[test]
fn every_exit_code_is_in_the_help() {
    for code in (0..=13).chain([130]) {
        let begins = |line: &str| line.trim_start().starts_with(&format!("{code}  "));
        assert!(COPY_NOTES.lines().any(begins), "{code}");
    }
}

#[test]
fn help_is_only_short_help_without_paths() {
    assert!(parse("-h").unwrap().paths.is_empty());
    assert_eq!(parse("-avhP a b").unwrap().paths.len(), 2);
    assert!(parse("-av").is_err());
}

#[test]
fn letters_mean_what_they_mean_to_rsync() {
    let args = parse("-rlptgoHAXSWvvqnPI0D -e rsh --bwlimit=10 --timeout=5 a b").unwrap();
    assert_eq!(args.verbose, 2);
    assert!(args.quiet && args.dry_run && args.progress == Some(None) && args.ignore_times);
    assert!(args.from0 && args.devices_and_specials);
    assert_eq!((args.rsh.as_str(), args.bwlimit, args.timeout), ("rsh", Some(10 << 10), 5));
    assert_eq!(args.paths, ["a", "b"]);
}

#[test]
fn progress_may_say_how_often() {
    assert_eq!(parse("a b").unwrap().progress, None);
    assert_eq!(parse("--progress a b").unwrap().progress, Some(None));
    assert_eq!(parse("--progress=5 a b").unwrap().progress, Some(Some(5)));
    assert!(!parse("--no-progress --progress a b").unwrap().no_progress);
    assert!(parse("--progress=0 a b").is_err());
}

#[test]
fn ports_are_a_range_that_is_not_empty() {
    assert_eq!(parse_ports("5000-5009"), Ok((5000, 5009)));
    assert_eq!(parse_ports("5000"), Ok((5000, 5000)));
    for text in ["", "5009-5000", "0-1", "1-70000", "a-b", "1-2-3"] {
        assert!(parse_ports(text).is_err(), "{text}");
    }
}

#[test]
fn a_mistyped_command_is_answered_with_the_right_one() {
    let error = command().try_get_matches_from(["lads", "pc"]).expect_err("there is none");
    assert_eq!(error.exit_code(), 2);
    let error = command().try_get_matches_from(["lads", "cpp"]).expect_err("there is none");
    assert!(error.to_string().contains("'cp'"), "{error}");
}

/// `lads cp` shares options with other commands, which move nothing.
#[test]
fn only_the_help_of_cp_is_about_moving() {
    let mut command = command();
    command.build();
    for subcommand in command.get_subcommands_mut().filter(|it| it.get_name() != "cp") {
        let texts = [subcommand.render_help(), subcommand.render_long_help()];
        for text in texts.map(|text| text.to_string().to_lowercase()) {
            let words = text.split(|letter: char| !letter.is_alphabetic());
            let about_moving: Vec<_> =
                words.filter(|word| ["move", "moves", "moved", "moving"].contains(word)).collect();
            let is_bench = subcommand.get_name() == "bench";
            assert!(about_moving.is_empty() || is_bench, "{}:\n{text}", subcommand.get_name());
        }
    }
}

/// The help is for people who read it: see `SHORT_HELP` for the options that nearly all need.
#[test]
fn help_has_no_more_options_than_users_read() {
    let is_option = |line: &&str| {
        let text = line.trim_start();
        text.starts_with('-') && line.len() - text.len() <= 6
    };
    let count = help(&["lads", "cp", "--help"]).lines().filter(is_option).count();
    assert!(count <= 60, "lads cp has {count} options");
    let mut short = command();
    short.build();
    let short = short.find_subcommand_mut("cp").expect("it exists").render_help().to_string();
    let lines = short.lines().count();
    assert!(lines <= 48, "lads cp -h has {lines} lines:\n{short}");
}
