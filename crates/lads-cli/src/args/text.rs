//! The longer texts of the help and of the manual pages.

use std::sync::LazyLock;

/// `lads --help`.
pub(super) const ABOUT: &str = "\
Moves large data sets between parallel file systems, over a LAN or a long-distance network. lads \
looks where every piece of every file lies, and keeps all storage targets (OSTs) that are free \
busy; a slow one does not hold up the others.";

/// `lads cp --help`.
pub(super) const COPY_ABOUT: &str = "\
Moves files and directories, to here or to and from another host, through ssh. Directories are \
moved with all that is in them, and everything that can be kept is kept: links, holes, \
permissions, times, owners, ACLs, extended attributes. What is at the sink already, the same in \
size and time of change, is skipped, and not read (-c compares its contents instead); an \
interrupted transfer is resumed by the same command. Exit status 0 means that everything is at the \
sink: what was moved is durable, and every block of it was verified; the summary reports how many \
files were skipped unread.";

/// `lads check --help`.
pub(super) const CHECK_ABOUT: &str = "\
Compares source and sink, and changes nothing. Files of the same size are read at both ends at the \
same time, bypassing the page cache if the file system supports that, and the checksums of their \
blocks are compared. Each difference is printed on a line. SRC and DST have the same meaning as \
for lads cp: without a slash at its end, the directory run7 is compared with DST/run7. Entries \
that only DST has are reported, too, except next to a named SRC, and with --files-from. Each name \
of a file with several names is compared as a separate file.";

/// Examples for `lads check`.
pub(super) const CHECK_EXAMPLES: &str = "\
Examples:
  lads check run7 dtn2:/scratch/         compares run7 with /scratch/run7 on the host dtn2
  lads check run7/ dtn2:/scratch/run7    the same: a slash stands for the contents
  lads check --metadata a/ b/            permissions, owners, times and attributes, too
  lads check --json a/ b/ | jq .         for another program

";

/// What `lads check --help` ends with.
pub(super) const CHECK_NOTES: &str = "\
Differences:
  only at the source  a directory stands for its contents, too
  only at the sink    a directory stands for its contents, too
  other kind          such as a link at one end and a file at the other
  other size          of a file
  other contents      of a file of the same size
  other target        of a link, or the number of a device
  other metadata      with --metadata

Exit status:
    0  everything was compared, and there is no difference
   11  everything was compared, and there are differences
  Other codes have the same meaning as for lads cp: the comparison is incomplete.";

/// Examples for `lads cp -h`.
pub(super) const COPY_EXAMPLES_SHORT: &str = "\
Examples:
  lads cp run7 dtn2:/scratch/        makes /scratch/run7
  lads cp run7/ dtn2:/scratch/run7   the same: a slash means what is in it
  lads cp dtn2:/scratch/run7 .       the other way
  lads cp -n run7 dtn2:/scratch/     says what would be done

";

/// Examples for `lads cp --help` and the manual page: what to type, and what it does.
pub(crate) const COPY_EXAMPLES: &[(&str, &str)] = &[
    ("lads cp run7 dtn2:/scratch/", "makes /scratch/run7 on the host dtn2"),
    ("lads cp run7/ dtn2:/scratch/run7", "the same: a slash at the end means what is in it"),
    ("lads cp me@dtn2:/scratch/run7 .", "the other way, as another user"),
    ("lads cp -n run7 dtn2:/scratch/", "says what would be done, and does nothing"),
    ("lads cp --exclude '*.tmp' run7 dtn2:/scratch/", "leaves out temporary files"),
    (
        "find . -newer stamp -print0 | lads cp -0 --files-from - . dtn2:/scratch/run7",
        "moves the files that find lists",
    ),
    ("lads cp --tunnel run7 dtn2:/scratch/", "data goes through ssh: encrypted, no open port"),
    ("lads cp --ports 5000-5009 run7 dtn2:/scratch/", "only these ports are open in the firewall"),
    ("lads cp -c run7 dtn2:/scratch/", "compares contents instead of times of change"),
    ("lads cp --verify media run7 dtn2:/scratch/", "reads back from storage what was written"),
    ("lads cp --retry-for 1h run7 dtn2:/scratch/", "goes on by itself after an outage"),
    ("lads cp --bwlimit 500M run7 dtn2:/scratch/", "leaves some of the network to others"),
    ("lads cp --json run7 dtn2:/scratch/ | jq .event", "tells another program what happens"),
    ("tar c run7 | lads cp - dtn2:/scratch/run7.tar", "moves what another program writes"),
    ("lads cp dtn2:/scratch/run7.tar - | tar x", "the other way: - as DST is standard output"),
    ("lads cp --follow detector.raw dtn2:/scratch/", "moves a file while it grows, to its end"),
    ("lads cp --stop-after 8h run7 dtn2:/scratch/", "stops in the morning; the same goes on"),
    ("lads cp run7 null:", "reads at full speed and keeps nothing: what reading costs"),
    ("lads cp zero:10G dtn2:/scratch/", "writes 10 GiB of zeros: what network and writing cost"),
];

/// The examples as `lads cp --help` shows them.
pub(super) fn examples_help() -> String {
    let lines = COPY_EXAMPLES.iter().map(|(what, why)| format!("  {what}\n      {why}\n"));
    format!("Examples:\n{}\n", lines.collect::<String>())
}

/// What `lads cp --help` ends with.
pub(crate) const COPY_NOTES: &str = "\
Ends without storage:
  null:SIZE and zero:SIZE are sources whose bytes lie on no storage (blocks of null: are not even
  filled), and null: is a sink that keeps nothing; also on another host (host:null:). They show what
  one part of a transfer costs without the others. null:20000x4K is a directory of so many files.
  `lads bench SRC DST` does all that at once. A file of such a name is written ./null:.

Pipes and devices:
  The SRC - is standard input, the DST - is standard output; a file of that name is written ./-. A
  FIFO or a device is read and written as a file with --copy-devices and --write-devices. What comes
  from a pipe has no length before its end: it is written under a temporary name until then, and
  gets its own name only if all of it came. It cannot be read a second time: an interrupted transfer
  begins anew, and ends if a data connection is lost.

Security:
  Metadata and control go through ssh, which decides who may do what. Without --tunnel, data goes
  over TCP connections of its own. Each connection is authenticated when it opens, by a token that
  was sent through ssh and is good for a single use. The data is neither encrypted nor protected on
  its way: who controls the network between the hosts can read it and change it, checksums included.
  With --tunnel, data goes through ssh, too.

Coming from rsync:
  The same letters mean the same. What lads does anyway is accepted: -r -a -l -p -t -o -g -H -A -X
  -S -W -s --numeric-ids --partial. What it cannot do (--inplace, --append, ...) is refused
  with what to do instead; -z is taken, and data is not compressed, which is told. Not kept unless
  asked for: devices and specials (-D); set-user-id and set-group-id bits of files, capabilities,
  trusted.* attributes (--privileges).

Signals:
  SIGINT, SIGTERM, SIGHUP and SIGUSR1 stop the transfer within 5 seconds, in a state from which the
  same command resumes. If storage does not answer at either end it is not waited for, and lads
  says which call it is. A second SIGINT ends lads at once. SIGTSTP (Ctrl-Z) stops lads until it is
  continued (fg). If another host has given up meanwhile (--timeout), the transfer starts over by
  itself; a pipe cannot be read again, and fails.

Environment:
  LADS_OPTION  a default for --option, such as LADS_RETRY_FOR; files may have them, too:
               see `lads config --help`
  LADS_CACHE   where copies of lads go that are sent here
  NO_COLOR     if set, no colours

Exit status:
    0  everything is at the sink; what was moved is durable and verified
    1  anything else
    2  the command line is wrong, or the version at the other end does not fit
    3  something at the source is missing or cannot be read; the rest was moved
    4  the other host did not let us in
    5  the other host cannot be reached, or was lost
    6  the sink is full, over quota, read-only, or does not permit it
    7  data at the sink is not what was sent
    8  something kept changing while it was read
    9  stopped by a signal or by --stop-after; the same command resumes
   10  as many were deleted as --max-delete allows, and there are more
   11  lads check has found differences
   12  the same transfer is running already
   13  all data is at the sink, durable and verified; some metadata could not be kept there
  130  ended at once by a second SIGINT";

/// `lads bench --help`.
pub(super) const BENCH_ABOUT: &str = "\
Measures how fast storage is read and written: over the size of requests and the number of \
threads, past the page cache and through it. It ends with the best mode for each direction, which \
is the one with the fewest threads and the smallest requests among those within 5 % of the \
fastest, and with what the order of requests does to it.

With SRC and DST, as for lads cp, it measures each part of a transfer alone (reading, the network, \
writing) and then all together, and says which part limits and by how much.";

/// Examples for `lads bench`.
pub(super) const BENCH_EXAMPLES: &str = "\
Examples:
  lads bench /scratch                  a minute, with a file of at most 1 GiB
  lads bench --time 10m --size 50G --html modes.html /scratch
                                       more certain, and beyond the caches of servers
  lads bench --threads 1,8,64 --requests 1M,4M --json /scratch | jq .best_read
                                       for another program
  ssh dtn2 lads bench /scratch         on another host
  lads bench run7 dtn2:/scratch        each part of this transfer, alone and together
  lads bench run7 dtn2:/scratch -- --streams 8 --tunnel
                                       the same with options of lads cp

";

/// What `lads bench --help` ends with.
pub(super) const BENCH_NOTES: &str = "\
How it is measured:
  Each mode is measured three times, in another order each time, and the median counts. The first
  request of each thread does not count. Writing ends when the bytes are durable. Before reading
  through the page cache, the cache is emptied of the file. The bytes do not compress, and no page
  is like another one. Servers may have caches of their own: a file that is larger than those
  (--size) takes longer to write, so give it more --time.

How the parts are measured:
  Each part is a transfer, three times, and the median counts. Reading: SRC to null:, on the host of
  SRC. Network: from null: to null:, between the hosts. Writing: from null: to DST, on its host, as
  many bytes in files of the mean size of those of SRC. Each transfer stops after a twelfth of the
  time. Bytes count when they are done, which means durable at the sink; what comes before data
  moves does not count. SRC is read past the page cache.

Orders of requests, as in XDD:
  none    each thread has its own requests, and waits for no other thread
  loose   a request is issued as soon as the one before it in the file has been issued
  serial  a request is issued when the one before it in the file has ended

Safety:
  lads bench writes into a file of its own, which loses its name as soon as it is open: whatever
  ends lads, nothing is left. The file takes at most a quarter of the free space.
  With SRC and DST, it writes into a directory of its own in DST, .lads-bench-..., and removes it;
  kill -9 may leave it behind. A transfer moves at most a quarter of the free space. SRC is only
  read.

Exit status:
    0  measured
    6  the file cannot be made or written there, or there is too little space
   ..  with SRC and DST: as a transfer of lads cp that failed
    9  stopped by a signal
  130  ended at once by a second SIGINT";

/// `lads clean --help`.
pub(super) const CLEAN_ABOUT: &str = "\
Removes what transfers that were killed left in a directory and below it: unfinished files \
(.lads-….part) and journals (.lads-….journal). Whoever wants such a transfer to go on runs its \
command again instead, which sends only what is missing and removes them itself. What a transfer \
that runs may own is left, and so is all that only has such a name: what belongs to somebody else, \
has several names, or is no regular file.";

/// Examples for `lads clean`.
pub(super) const CLEAN_EXAMPLES: &str = "\
Examples:
  lads clean -n /scratch/run7      says what would be removed
  lads clean /scratch/run7         removes it
  ssh dtn2 lads clean /scratch/    on another host

";

/// `lads imbalance --help`.
pub(super) const IMBALANCE_ABOUT: &str = "\
Looks back at a series of bandwidth per storage target: how the least, the mean and the greatest \
of all targets are distributed, how far they deviate from each other at a moment (the instant \
standard deviation), how long such imbalance lasts, how long it is from one period to the next, \
and how it depends on bandwidth.";

/// Examples for `lads imbalance`.
pub(super) const IMBALANCE_EXAMPLES: &str = "\
Examples:
  lads cp --json run7 dtn2:/scratch/ > run7.ndjson; lads imbalance run7.ndjson
                                              what a transfer saw of both ends
  lads imbalance --unit MB --html page.html controllers.csv
                                              a site's collector, with plots
  lads imbalance --join --sums --every 2 day-*.csv
                                              counters, a file a day, a line for each target
  collector | lads imbalance --json -         for another program

";

/// What `lads imbalance --help` ends with.
pub(super) const IMBALANCE_NOTES: &str = "\
What a file may be:
  CSV, wide:   time,OST0000,OST0001,...   a column for each target
  CSV, long:   time,target,value          a line for each target; several values are summed up
  NDJSON:      the same, as objects with such keys
  events of `lads cp --json`, and `.pfs/series` of `lads-testbed pfs`
  Columns are parted by comma, semicolon or tab, and line 1 names them. Time is in seconds, or a
  date like 2012-01-01 00:00:02. A value that is not known is left empty, or is -.";

/// `--layout` in `lads cp --help`.
pub(super) fn layout_help() -> String {
    let names = lads_engine::layout::names();
    let (last, others) = names.split_last().expect("there is one for this host");
    format!(
        "Where both ends get layouts: auto asks the file system\n\n{} and {last} select one of \
         these. synthetic:osts=8,stripe_size=1M,stripe_count=1,latency_ms=5 simulates a parallel \
         file system, for tests.",
        others.join(", ")
    )
}

/// What `lads deploy` does.
pub(super) const DEPLOY_ABOUT: &str = "\
Sends lads to hosts that do not have it, or removes it there.

`lads cp` does this by itself when it starts lads on another host. A host has lads if it is in PATH,
~/.local/bin, ~/bin or ~/.cargo/bin, or among the copies that were sent earlier, and if its version
is the same as here. Copies are sent to the first of these directories that has room and in which
programs may be started: $LADS_CACHE, ~/.cache/lads, /var/tmp/lads-UID, $XDG_RUNTIME_DIR/lads. For a
host of another architecture, lads-ARCHITECTURE (as `uname -m` prints it) must lie next to lads, or
in PREFIX/lib/lads if lads is PREFIX/bin/lads.";

/// Examples of it.
pub(super) const DEPLOY_EXAMPLES: &str = "\
Examples:
  lads deploy dtn2 dtn3             # lads is there from now on
  lads deploy --remove dtn2         # and no longer

";

/// `lads config --help`.
pub(super) const CONFIG_ABOUT: &str = "\
Shows the default of each option that a file or a variable defines, and the place that defines it.

If an option is not given, its value is taken from the first of these places that defines it: a \
variable of the environment ($LADS_RETRY_FOR for --retry-for), the user's file \
~/.config/lads/config.toml, and the file /etc/lads/config.toml. In a file, a section \
[host.\"dtn*\"] applies to commands with a matching host, and has precedence over the settings \
for all hosts; if two sections match, the later one has precedence. If $LADS_CONFIG is the path \
of a file, only that file is read. Variables of options without a value are 0 or 1. A file that \
other users may write to is rejected.";

/// Examples of it.
pub(super) const CONFIG_EXAMPLES: &str = "\
Examples:
  lads config                 the defaults for all hosts
  lads config dtn2            and those for dtn2

In a file:
  retry-for = \"2h\"
  exclude = [\"*.tmp\", \".snapshot/\"]

  [host.\"dtn*.example.org\"]
  ports = \"5000-5009\"
  tunnel = false

";

/// The version that the command prints: two builds of one version may have different wires.
pub(super) static VERSION: LazyLock<String> = LazyLock::new(|| {
    let line = lads_engine::version();
    line.strip_prefix("lads ").map_or_else(|| line.clone(), str::to_owned)
});
