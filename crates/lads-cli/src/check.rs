//! Runs `lads check`, which works much like `lads cp --checksum --dry-run`.

use crate::args::{CheckArgs, CopyArgs, only_for_copy};
use crate::{copy, front, parsed, request};
use clap::ArgMatches;
use std::process::ExitCode;

/// Compares what the command line names.
pub(crate) fn run(matches: &ArgMatches) -> ExitCode {
    let args: CopyArgs = parsed(matches);
    if args.paths.is_empty() {
        return copy::print_short_help("check");
    }
    let refused: Vec<String> = only_for_copy(matches)
        .iter()
        .map(|option| format!("{option}: lads check moves nothing and has no such option"))
        .collect();
    if !refused.is_empty() {
        return copy::refuse(&args, &refused);
    }
    match copy::prepare(&args, matches) {
        Ok((mut job, log)) => {
            let CheckArgs { metadata } = parsed(matches);
            request::compare(&mut job.options, metadata);
            front::run(|stop| copy::transfer(&args, &job, log, &[], stop))
        }
        Err(error) => copy::refuse(&args, &[format!("{error:#}")]),
    }
}
