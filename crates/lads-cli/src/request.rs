//! Turns the command line into a job for the engine.

use crate::args::{
    self, CopyArgs, EndSettings, LabSettings, OrderArg, Schedule, SinkSettings, SourceSettings,
};
use crate::lists::{self, Separator};
use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::ArgMatches;
use lads_core::filter::{Rule, Verdict};
use lads_core::issue::Side;
use lads_core::placement::Place;
use lads_core::retry::RetryConfig;
use lads_core::schedule::Policy;
use lads_engine::{
    BUFFERS_BYTES, IoMode, Job, Listing, Location, Options, RemoteShell, Stderr, Tunnel,
};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The shortest and the longest block, and the unit that its length is a multiple of, in bytes.
const BLOCK_SIZES: (u64, u64, u64) = (64 << 10, 64 << 20, 4096);

/// Fewer buffers than this cannot keep reading, sending and writing busy at the same time.
const BLOCKS_IN_BUFFERS_MIN: u64 = 4;

/// Returns the job, or what is wrong with the command line.
pub(crate) fn job(args: &CopyArgs, matches: &ArgMatches) -> Result<Job> {
    let (sources, target) = locations(&args.paths)?;
    check_stdio(args, &sources, &target)?;
    ensure!(
        args.files_from.is_none() || sources.len() == 1,
        "--files-from needs exactly one SRC, which the paths in it are relative to"
    );
    ensure!(
        args.files_from.is_none() || args.choice.deletion().is_none(),
        "--delete needs whole directories as SRC: with --files-from, it is unknown which entries \
         belong at the sink"
    );
    if args.choice.deletion().is_some() || args.choice.force {
        check_is_not_deleted(&sources, &target)?;
    }
    let remote = RemoteShell {
        command: RemoteShell::words(&args.rsh).map_err(|error| anyhow!("--rsh {error}"))?,
        lads: args.remote_lads.clone(),
        deploys: !args.no_deploy,
        tunnel: match (args.tunnel, args.no_tunnel) {
            (true, _) => Tunnel::Always,
            (false, true) => Tunnel::Never,
            (false, false) => Tunnel::IfBlocked,
        },
        data_address: args.data_address.clone(),
        ports: args.ports,
        connects: args.connect.map(Into::into),
        connect_timeout_seconds: args.connect_timeout,
    };
    let mut options = options(args, matches)?;
    fit_to_ends(&mut options, args, &sources, &target);
    // The program that runs now, even if its file has been replaced since it started.
    let program = PathBuf::from("/proc/self/exe");
    let retry = RetryConfig {
        attempts_max: args.retries,
        outage_max: args.retry_for,
        // The lost end notices that this end is gone no later than this, and then needs some time.
        lost_end_max: Duration::from_secs(options.timeout_seconds.into()) * 2,
    };
    let job = Job { sources, target, options, remote, program, stderr: Stderr::PassedOn, retry };
    ensure!(
        !job.is_once() || retry.attempts_max.is_none() && retry.outage_max.is_none(),
        "--retries and --retry-for cannot restart a transfer with a pipe or a device"
    );
    Ok(job)
}

/// Whether a place is standard input or output.
fn is_stdio(place: &Location) -> bool {
    place.host.is_none() && place.path == b"-"
}

/// Checks that standard input and output serve one purpose each.
fn check_stdio(args: &CopyArgs, sources: &[Location], target: &Location) -> Result<()> {
    let reads = sources.iter().any(is_stdio);
    let lists = args.files_from.iter().chain(&args.exclude_from).chain(&args.include_from);
    ensure!(
        !reads || lists.into_iter().all(|list| list.as_os_str() != "-"),
        "standard input cannot be both SRC and a list"
    );
    if is_stdio(target) {
        ensure!(!reads, "SRC and DST cannot both be -");
        ensure!(!args.json, "--json writes to standard output, which is DST here");
        ensure!(args.verbose == 0, "-v writes to standard output, which is DST here");
    }
    ensure!(
        args.ends.follow.is_none() || !reads,
        "--follow needs a file that grows as SRC; a pipe is always read to its end"
    );
    Ok(())
}

/// Makes the options fit to ends that are pipes.
fn fit_to_ends(options: &mut Options, args: &CopyArgs, sources: &[Location], target: &Location) {
    options.write_devices |= is_stdio(target);
    let waits_for_others = sources.iter().any(is_stdio)
        || options.write_devices
        || options.copy_devices
        || options.follow_seconds > 0;
    // Nobody knows how long the program at the other end of a pipe takes.
    if waits_for_others && args.stall_timeout.is_none() {
        options.stall_timeout_seconds = 0;
    }
}

/// Settings of both ends and for experiments.
struct AllSettings {
    source: SourceSettings,
    sink: SinkSettings,
    lab: LabSettings,
}

impl AllSettings {
    fn parse(args: &CopyArgs) -> Result<Self> {
        Ok(Self {
            source: args::parse("source", &args.source)?,
            sink: args::parse("sink", &args.sink)?,
            lab: args::parse("lab", &args.lab)?,
        })
    }

    /// Returns the settings of the source and of the sink.
    fn ends(&self) -> [&EndSettings; 2] {
        [&self.source.end, &self.sink.end]
    }
}

fn options(args: &CopyArgs, matches: &ArgMatches) -> Result<Options> {
    let filters = filters(args, matches)?;
    let settings = AllSettings::parse(args)?;
    let [source, sink] = settings.ends();
    let lab = &settings.lab;
    let schedule = schedule(args, lab)?;
    let stage = stage(&settings)?;
    let io = |end: &EndSettings| end.io.map_or(IoMode::Auto, IoMode::from);
    let layout = |end: &EndSettings| end.layout.clone().unwrap_or_else(|| "auto".to_owned());
    Ok(Options {
        block_size: block_size(args, &settings)?,
        source_buffers_bytes: buffers_bytes(source, args),
        sink_buffers_bytes: sink.buffers.or(args.buffers).unwrap_or(0),
        streams: args.streams,
        source_threads: source.threads.unwrap_or(0),
        sink_threads: sink.threads.unwrap_or(0),
        schedule,
        threshold: lab.threshold,
        source_layout: layout(source),
        sink_layout: layout(sink),
        place: settings.sink.place.map_or(Place::Aware, Place::from),
        place_extents: lab.place_extents,
        restore: args.restore,
        source_io: io(source),
        sink_io: io(sink),
        preallocate: settings.sink.preallocate.unwrap_or(true),
        journal: lab.journal,
        verify: args.verify.into(),
        dry_run: args.dry_run,
        listing: listing(args),
        devices: args.devices || args.devices_and_specials,
        specials: args.specials || args.devices_and_specials,
        permissions: !args.no_perms,
        times: !args.no_times,
        owners: !args.no_owner,
        xattrs: !args.no_xattrs,
        privileges: args.privileges,
        hard_links: !args.no_hard_links,
        ignores_times: args.ignore_times,
        passing: args.choice.passing(),
        deletion: args.choice.deletion(),
        force: args.choice.force,
        removes_sources: args.choice.remove_source_files,
        one_file_system: args.choice.one_file_system,
        copy_links: args.choice.copy_links,
        makes_parents: args.choice.mkpath,
        checksum: args.checksum,
        check: false,
        // As in rsync, zero means no timeout; 136 years are long enough.
        data: args.data.into(),
        timeout_seconds: if args.timeout == 0 { u32::MAX } else { args.timeout },
        stall_timeout_seconds: stall_timeout_seconds(args),
        bytes_per_second: args.bwlimit.unwrap_or(0),
        max_cpu: args.processors.max_cpu,
        source_pin: source.pin.clone().unwrap_or_default(),
        sink_pin: sink.pin.clone().unwrap_or_default(),
        stage_at: stage.at,
        stage_bytes: stage.bytes,
        stage: stage.directory,
        filters,
        files_from: args.files_from.as_deref().map(|list| files_from(args, list)).transpose()?,
        in_order: lab.order == OrderArg::Loose,
        copy_devices: args.ends.copy_devices,
        write_devices: args.ends.write_devices,
        follow_seconds: args.ends.follow.unwrap_or(0),
    })
}

/// Turns a move into a comparison: nothing is moved, made or set, and files are read past the page
/// cache, because the comparison is about what storage holds.
pub(crate) fn compare(options: &mut Options, metadata: bool) {
    let past_the_cache = |mode: &mut IoMode| {
        if *mode == IoMode::Auto {
            *mode = IoMode::Direct;
        }
    };
    past_the_cache(&mut options.source_io);
    past_the_cache(&mut options.sink_io);
    (options.check, options.dry_run, options.checksum) = (true, true, true);
    (options.devices, options.specials, options.hard_links) = (true, true, false);
    (options.permissions, options.times, options.owners) = (metadata, metadata, metadata);
    (options.xattrs, options.privileges) = (metadata, metadata);
    options.place = Place::Inherit;
    options.listing = Listing::None;
}

/// Returns the paths that are listed: dry runs and `-v` list changes, `-vv` also skipped files.
fn listing(args: &CopyArgs) -> Listing {
    match (args.verbose, args.dry_run) {
        (2.., _) => Listing::All,
        (1, _) | (0, true) => Listing::Changes,
        (0, false) => Listing::None,
    }
}

/// Bringing a file back from tape takes hours in which no data moves.
fn stall_timeout_seconds(args: &CopyArgs) -> u32 {
    match args.stall_timeout {
        Some(seconds) => seconds,
        None if args.restore => 0,
        None => Options::default().stall_timeout_seconds,
    }
}

/// Returns the memory of one end, as far as it follows from the arguments.
fn buffers_bytes(end: &EndSettings, args: &CopyArgs) -> u64 {
    end.buffers.or(args.buffers).unwrap_or(BUFFERS_BYTES)
}

fn block_size(args: &CopyArgs, settings: &AllSettings) -> Result<u32> {
    let (min, max, multiple) = BLOCK_SIZES;
    let size = settings.lab.block_size;
    let is_fit = (min..=max).contains(&size) && size.is_multiple_of(multiple);
    ensure!(is_fit, "--lab block-size must be a multiple of 4K from 64K to 64M");
    let buffers_min = settings.ends().into_iter().map(|end| buffers_bytes(end, args)).min();
    ensure!(
        buffers_min.is_some_and(|bytes| bytes / size >= BLOCKS_IN_BUFFERS_MIN),
        "--buffers must hold at least {BLOCKS_IN_BUFFERS_MIN} blocks of {} KiB",
        size >> 10
    );
    u32::try_from(size).context("the longest block is shorter")
}

fn schedule(args: &CopyArgs, lab: &LabSettings) -> Result<Policy> {
    if lab.order == OrderArg::Serial {
        ensure!(
            matches!(lab.schedule, Schedule::Adaptive | Schedule::File) && !args.polite,
            "--lab order=serial needs schedule=file, in which each thread reads a separate file"
        );
        return Ok(Policy::File);
    }
    if !args.polite {
        return Ok(lab.schedule.into());
    }
    ensure!(
        lab.schedule == Schedule::Adaptive,
        "--polite needs schedule=adaptive, which detects other users of an OST"
    );
    Ok(Policy::Polite)
}

/// Stage of a transfer.
struct Stage {
    directory: Option<Vec<u8>>,
    bytes: u64,
    at: Side,
}

fn stage(settings: &AllSettings) -> Result<Stage> {
    let none = Options::default();
    let mut stage = Stage { directory: None, bytes: none.stage_bytes, at: none.stage_at };
    for (end, side) in settings.ends().into_iter().zip([Side::Source, Side::Sink]) {
        let Some(directory) = &end.stage else {
            ensure!(end.stage_size.is_none(), "--{} stage-size needs stage=DIR there", side.word());
            continue;
        };
        ensure!(stage.directory.is_none(), "only one end can have a stage");
        stage.directory = Some(directory.as_os_str().as_bytes().to_vec());
        stage.at = side;
        stage.bytes = end.stage_size.unwrap_or(none.stage_bytes);
    }
    let lab = &settings.lab;
    let is_by_file = lab.schedule == Schedule::File || lab.order == OrderArg::Serial;
    ensure!(
        stage.directory.is_none() || !is_by_file || stage.at == Side::Sink,
        "a stage at the source needs another schedule: by file, nothing is read before it can be \
         sent"
    );
    ensure!(stage.bytes >= lab.block_size, "stage-size must hold at least one block");
    Ok(stage)
}

/// Returns the sources, which are all on one host, and the target.
fn locations(paths: &[OsString]) -> Result<(Vec<Location>, Location)> {
    let [sources @ .., target] = paths else { bail!("SRC and DST are missing") };
    let target = location(target)?;
    ensure!(!sources.is_empty(), "DST is missing: lads cp SRC... DST");
    let sources: Vec<Location> =
        sources.iter().map(|path| location(path)).collect::<Result<_>>()?;
    let host = &sources[0].host;
    if let Some(other) = sources.iter().find(|source| source.host != *host) {
        let name = |host: &Option<String>| host.clone().unwrap_or_else(|| "here".to_owned());
        bail!(
            "all sources must be on the same host, but one is on {} and one on {}: run lads once \
             for each",
            name(host),
            name(&other.host)
        );
    }
    if let (Some(source), Some(sink)) = (host, &target.host) {
        // Of `lads cp`, another function does this.
        bail!(
            "one side must be on this host, but both are on other hosts: log in to one of them, \
             for example `ssh {source} lads check ... {sink}:...`"
        );
    }
    Ok((sources, target))
}

/// Refuses a source that lies below its target: `--delete` would remove it, because it does not
/// contain itself.
fn check_is_not_deleted(sources: &[Location], target: &Location) -> Result<()> {
    let real = |place: &Location| match place.host {
        None => std::fs::canonicalize(place.os_path()).ok(),
        Some(_) => None,
    };
    let Some(target) = real(target) else { return Ok(()) };
    let emptied = |source: &Location, path: &Path| match source.path.ends_with(b"/") {
        true => Some(target.clone()),
        false => Some(target.join(path.file_name()?)),
    };
    for source in sources {
        let Some(path) = real(source) else { continue };
        let is_below = sources
            .iter()
            .filter_map(|it| emptied(it, &real(it)?))
            .any(|emptied| path != emptied && path.starts_with(emptied));
        ensure!(
            !is_below,
            "with --delete, {} would be deleted itself: it is below DST, and not in SRC",
            path.display()
        );
    }
    Ok(())
}

fn location(argument: &OsStr) -> Result<Location> {
    let shown = argument.to_string_lossy();
    ensure!(!argument.is_empty(), "a path is empty; write . for the current directory");
    let scheme = shown.split_once("://").map(|(scheme, _)| scheme);
    let wrong = match scheme {
        Some("lads") => "a daemon is lads://host/path or lads://host:port/path".to_owned(),
        Some(scheme) if scheme.chars().all(char::is_alphanumeric) => {
            bail!("lads does not support {scheme}:// addresses: write [user@]host:path")
        }
        _ => format!("the host in `{}` is not text", shown.escape_debug()),
    };
    let location = Location::parse(argument).context(wrong)?;
    if location.host.is_some() && location.path.starts_with(b":") {
        bail!("lads does not support rsync daemons (host::module): write [user@]host:path");
    }
    // ssh would take such a host for an option, and options of ssh can run commands here.
    let is_option = |host: &String| host.starts_with('-');
    ensure!(!location.host.as_ref().is_some_and(is_option), "a host cannot begin with a dash");
    Ok(location)
}

/// A pattern, or a file of patterns, from the command line.
enum RuleArg<'a> {
    Pattern(&'a OsString),
    File(&'a PathBuf),
}

/// Returns the rules of all four options, in the order of the command line.
fn filters(args: &CopyArgs, matches: &ArgMatches) -> Result<Vec<Rule>> {
    use Verdict::{Exclude, Include};
    let at = |id: &str| matches.indices_of(id).into_iter().flatten().collect::<Vec<_>>();
    let mut given: Vec<(usize, Verdict, RuleArg<'_>)> = Vec::new();
    for (id, verdict, patterns) in
        [("exclude", Exclude, &args.exclude), ("include", Include, &args.include)]
    {
        let patterns = patterns.iter().map(RuleArg::Pattern);
        given.extend(at(id).into_iter().zip(patterns).map(|(at, it)| (at, verdict, it)));
    }
    for (id, verdict, files) in [
        ("exclude_from", Exclude, &args.exclude_from),
        ("include_from", Include, &args.include_from),
    ] {
        let files = files.iter().map(RuleArg::File);
        given.extend(at(id).into_iter().zip(files).map(|(at, it)| (at, verdict, it)));
    }
    given.sort_by_key(|&(at, ..)| at);
    let mut rules = Vec::new();
    for (_, verdict, argument) in given {
        match argument {
            RuleArg::Pattern(pattern) => {
                lists::push_pattern(&mut rules, verdict, pattern.as_bytes());
            }
            RuleArg::File(path) => {
                for pattern in lists::read(path, separator(args))? {
                    lists::push_pattern(&mut rules, verdict, &pattern);
                }
            }
        }
    }
    Ok(rules)
}

fn files_from(args: &CopyArgs, list: &Path) -> Result<Vec<Vec<u8>>> {
    let paths = lists::read(list, separator(args))?;
    paths.iter().map(|path| lists::relative_path(path)).collect()
}

fn separator(args: &CopyArgs) -> Separator {
    if args.from0 { Separator::Zero } else { Separator::Line }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args;
    use clap::FromArgMatches;

    fn parse(arguments: &[&str]) -> Result<Job> {
        let words = ["lads", "cp"].iter().chain(arguments);
        let matches = args::command().try_get_matches_from(words)?;
        let matches = matches.subcommand_matches("cp").expect("it is given");
        job(&CopyArgs::from_arg_matches(matches)?, matches)
    }

    fn refusal(arguments: &[&str]) -> String {
        parse(arguments).expect_err("it should be refused").to_string()
    }

    #[test]
    fn the_defaults_are_those_of_the_engine() {
        let job = parse(&["a", "host:b"]).unwrap();
        assert_eq!(job.options, Options::default());
        assert_eq!(job.remote, RemoteShell::default());
        assert_eq!(job.target, Location { host: Some("host".to_owned()), path: b"b".to_vec() });
    }

    #[test]
    fn rules_keep_the_order_of_the_command_line() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("rules");
        std::fs::write(&file, "from1\n+ from2\n").unwrap();
        let from = format!("--exclude-from={}", file.display());
        let job =
            parse(&["--include", "a", "--exclude=b", &from, "x", "--include=c", "y"]).unwrap();
        let rules = job.options.filters.iter();
        let shown: Vec<String> = rules
            .map(|rule| format!("{:?} {}", rule.verdict, String::from_utf8_lossy(&rule.pattern)))
            .collect();
        assert_eq!(
            shown,
            ["Include a", "Exclude b", "Exclude from1", "Include from2", "Include c"]
        );
    }

    #[test]
    fn one_value_for_both_ends_gives_way_to_one_for_an_end() {
        let job = parse(&["--buffers=64M", "--sink=buffers=32M,layout=x", "a", "b"]).unwrap();
        let options = job.options;
        assert_eq!(
            (options.source_buffers_bytes, options.sink_buffers_bytes),
            (64 << 20, 32 << 20)
        );
        assert_eq!((options.source_layout.as_str(), options.sink_layout.as_str()), ("auto", "x"));
    }

    #[test]
    fn a_tape_may_take_as_long_as_it_likes_unless_it_is_said_how_long() {
        let seconds = |arguments: &[&str]| parse(arguments).unwrap().options.stall_timeout_seconds;
        assert_eq!(seconds(&["a", "b"]), 600);
        assert_eq!(seconds(&["--restore", "a", "b"]), 0);
        assert_eq!(seconds(&["--restore", "--stall-timeout=7", "a", "b"]), 7);
        assert_eq!(seconds(&["--stall-timeout=0", "a", "b"]), 0);
    }

    #[test]
    fn the_last_of_two_opposites_wins() {
        assert!(parse(&["--no-perms", "-p", "a", "b"]).unwrap().options.permissions);
        assert!(!parse(&["-p", "--no-perms", "a", "b"]).unwrap().options.permissions);
        assert!(!parse(&["-D", "--no-D", "a", "b"]).unwrap().options.devices);
        assert!(parse(&["--no-D", "-aD", "a", "b"]).unwrap().options.specials);
    }

    #[test]
    fn privileges_are_kept_only_if_they_are_named() {
        assert!(!parse(&["-aHAXSD", "a", "b"]).unwrap().options.privileges);
        assert!(parse(&["--privileges", "a", "b"]).unwrap().options.privileges);
    }

    #[test]
    fn refuses_places_it_cannot_serve() {
        for (arguments, expected) in [
            (&["a"][..], "DST is missing"),
            (&["h1:a", "h2:b"], "ssh h1 lads check"),
            (&["h1:a", "h2:b", "c"], "one is on h1 and one on h2"),
            (&["a", "h:b", "c"], "one is on here and one on h"),
            (&["rsync://h/a", "b"], "does not support rsync:// addresses"),
            (&["h::a", "b"], "does not support rsync daemons"),
            (&["", "b"], "a path is empty"),
            (&["--files-from=/dev/null", "a", "b", "c"], "exactly one SRC"),
            (&["--files-from=/nowhere", "a", "c"], "cannot read the list /nowhere"),
            (&["--lab=block-size=100K", "--buffers=100K", "a", "b"], "--buffers must hold"),
            (&["--lab=block-size=65K", "a", "b"], "a multiple of 4K"),
            (&["--", "-oProxyCommand=x:a", "b"], "a host cannot begin with a dash"),
            (&["-e", "'ssh", "a", "b"], "never closed"),
            (&["--polite", "--lab=schedule=file", "a", "b"], "--polite needs schedule=adaptive"),
            (&["--source=stage=/a", "--sink=stage=/b", "a", "b"], "only one end can have a stage"),
            (&["--source=stage-size=1G", "a", "b"], "--source stage-size needs stage=DIR"),
            (&["--source=stage=/a", "--lab=order=serial", "a", "b"], "needs another schedule"),
            (&["--sink=stage=/a,stage-size=4K", "a", "b"], "stage-size must hold"),
            (&["--source=place=same", "a", "b"], "`place` is not KEY=VALUE"),
            (&["-e", " ", "a", "b"], "--rsh is empty"),
        ] {
            let message = refusal(arguments);
            assert!(message.contains(expected), "{arguments:?}: {message}");
        }
    }
}
