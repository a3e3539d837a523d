//! The longer texts of the help and of the manual pages.

use std::sync::LazyLock;

/// `lads --help`.
pub(super) const ABOUT: &str = "\
Copies large data sets between parallel file systems, over a LAN or a long-distance network. lads \
determines the storage target (OST) of every piece of every file and keeps all OSTs busy; a slow \
OST does not delay the others.";

/// `lads cp --help`.
pub(super) const COPY_ABOUT: &str = "\
Copies files and directories, also to, from and between other hosts, through ssh. Directories are \
copied recursively, with links, holes, permissions, times, owners, ACLs and extended attributes. \
Files that the sink has with the same size and time of change are skipped without being read (-c \
compares contents instead). The same command resumes an interrupted transfer. Exit status 0 means \
that all data is at the sink, durable, and every sent block was verified; the summary reports the \
number of files that were skipped unread.";

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
  lads cp run7 dtn2:/scratch/        creates /scratch/run7
  lads cp run7/ dtn2:/scratch/run7   the same: a slash means the contents
  lads cp dtn2:/scratch/run7 .       the other direction
  lads cp -n run7 dtn2:/scratch/     lists the changes, makes none

";

/// Examples for `lads cp --help` and the manual page: what to type, and what it does.
pub(crate) const COPY_EXAMPLES: &[(&str, &str)] = &[
    ("lads cp run7 dtn2:/scratch/", "creates /scratch/run7 on the host dtn2"),
    ("lads cp run7/ dtn2:/scratch/run7", "the same: a slash at the end means the contents"),
    ("lads cp me@dtn2:/scratch/run7 .", "the other direction, as another user"),
    ("lads cp dtn1:/scratch/run7 dtn2:/scratch/", "straight from one host to another"),
    ("lads cp -n run7 dtn2:/scratch/", "lists the changes, makes none"),
    ("lads cp --exclude '*.tmp' run7 dtn2:/scratch/", "excludes temporary files"),
    (
        "find . -newer stamp -print0 | lads cp -0 --files-from - . dtn2:/scratch/run7",
        "copies the files that find lists",
    ),
    ("lads cp --tunnel run7 dtn2:/scratch/", "data goes through ssh: no open port"),
    ("lads cp --ports 5000-5009 run7 dtn2:/scratch/", "only these ports are open in the firewall"),
    ("lads cp -c run7 dtn2:/scratch/", "compares contents instead of times of change"),
    ("lads cp --verify media run7 dtn2:/scratch/", "reads written data back from storage"),
    ("lads cp --retry-for 1h run7 dtn2:/scratch/", "retries after outages"),
    ("lads cp --bwlimit 500M run7 dtn2:/scratch/", "limits the rate"),
    ("lads cp --json run7 dtn2:/scratch/ | jq .event", "reports events to another program"),
    ("tar c run7 | lads cp - dtn2:/scratch/run7.tar", "copies the output of a program"),
    ("lads cp dtn2:/scratch/run7.tar - | tar x", "the other direction: - is standard output"),
    ("lads cp --follow detector.raw dtn2:/scratch/", "copies a growing file until it is complete"),
    (
        "lads cp --stop-after 8h run7 dtn2:/scratch/",
        "stops in the morning; the same command resumes",
    ),
    ("lads cp run7 null:", "only reads, at full speed"),
    ("lads cp zero:10G dtn2:/scratch/", "only sends and writes 10 GiB of zeros"),
];

/// The examples as `lads cp --help` shows them.
pub(super) fn examples_help() -> String {
    let lines = COPY_EXAMPLES.iter().map(|(what, why)| format!("  {what}\n      {why}\n"));
    format!("Examples:\n{}\n", lines.collect::<String>())
}

/// What `lads cp --help` ends with.
pub(crate) const COPY_NOTES: &str = "\
Ends without storage:
  null:SIZE and zero:SIZE are sources without storage (blocks of null: are not even filled), and
  null: is a sink that discards data; also on another host (host:null:). They measure one part of a
  transfer without the others; `lads bench SRC DST` measures all parts. null:20000x4K is a directory
  of 20,000 files. A file with such a name is written ./null:.

Pipes and devices:
  The SRC - is standard input, the DST - is standard output; a file with that name is written ./-. A
  FIFO or a device is read and written like a file with --copy-devices and --write-devices. The
  length of a pipe is unknown before its end: its data has a temporary name until then, and gets the
  target's name only when it is complete. It cannot be read again: an interrupted transfer starts
  over, and the loss of a data connection ends it.

Security:
  Metadata and control go through ssh, which authenticates the user. Data goes over separate TCP
  connections, each encrypted with keys that were sent through ssh; the hosts can agree on less
  (--data). With --tunnel, data goes through ssh, too.

Coming from rsync:
  The same letters have the same meaning. Options for the default behaviour of lads are accepted: -r
  -a -l -p -t -o -g -H -A -X -S -W -s --numeric-ids --partial. Options for features that lads does
  not have (--inplace, --append, ...) are rejected with an alternative; -z is accepted with a notice
  that data is not compressed. Only kept with an option: devices and specials (-D); set-user-id and
  set-group-id bits of files, capabilities, trusted.* attributes (--privileges).

Signals:
  SIGINT, SIGTERM, SIGHUP and SIGUSR1 stop the transfer within 5 seconds, in a state from which the
  same command resumes. lads does not wait for storage that does not answer, and reports the pending
  call. A second SIGINT ends lads at once. SIGTSTP (Ctrl-Z) stops lads until it is continued (fg).
  If the other end has timed out meanwhile (--timeout), the transfer is retried; a pipe cannot be
  read again, and fails.

Environment:
  LADS_OPTION  default of --option, such as LADS_RETRY_FOR; also in files: see `lads config --help`
  LADS_CACHE   directory for copies of lads that are sent to this host
  NO_COLOR     if set, no colours

Exit status:
    0  all data is at the sink; sent data is durable and verified
    1  any other error
    2  the command line is wrong, or the version at the other end does not fit
    3  some entries of the source are missing or unreadable; the others were copied
    4  the other host rejected the login
    5  the other host cannot be reached, or was lost
    6  the sink is full, over quota, read-only, or permission was denied
    7  data at the sink differs from the sent data
    8  a file kept changing while it was read
    9  stopped by a signal or by --stop-after; the same command resumes
   10  --max-delete was reached, and more entries remain
   11  lads check found differences
   12  the same transfer is already running
   13  all data is at the sink, durable and verified; some metadata could not be kept there
  130  ended at once by a second SIGINT";

/// `lads bench --help`.
pub(super) const BENCH_ABOUT: &str = "\
Measures the rate of storage, reading and writing: against request size and number of threads, \
through the page cache and bypassing it. The result is the best mode for each direction (the \
fewest threads and smallest requests among those within 5 % of the fastest) and the effect of the \
order of requests.

With SRC and DST, as for lads cp, it measures each part of a transfer alone (reading, the network, \
writing) and then all together, and reports the bottleneck.";

/// Examples for `lads bench`.
pub(super) const BENCH_EXAMPLES: &str = "\
Examples:
  lads bench /scratch                  a minute, with a file of at most 1 GiB
  lads bench --time 10m --size 50G --html modes.html /scratch
                                       more reliable, and beyond the caches of servers
  lads bench --threads 1,8,64 --requests 1M,4M --json /scratch | jq .best_read
                                       for another program
  lads bench dtn2:/scratch             on another host
  lads bench run7 dtn2:/scratch        each part of this transfer, alone and together
  lads bench run7 dtn2:/scratch -- --streams 8 --tunnel
                                       the same with options of lads cp

";

/// What `lads bench --help` ends with.
pub(super) const BENCH_NOTES: &str = "\
How it is measured:
  The result is the median of three measurements of each mode, in a different order each time. The
  first request of each thread does not count. Writing ends when the bytes are durable. Before
  reading through the page cache, the file is dropped from it. The bytes do not compress, and all
  pages differ. Servers may have caches: use a larger file (--size) and more --time.

How the parts are measured:
  Each part is the median of three transfers. Reading: SRC to null:, on the host of SRC. Network:
  from null: to null:, between the hosts. Writing: from null: to DST, on its host, with the same
  number of bytes in files of the mean size of those of SRC. Each transfer stops after a twelfth of
  the time. Bytes count when they are durable at the sink; the start does not count. SRC is read
  bypassing the page cache.

Orders of requests, as in XDD:
  none    each thread has its own requests, independent of other threads
  loose   a request is issued after the previous one in the file was issued
  serial  a request is issued after the previous one in the file was completed

Safety:
  lads bench writes into a file without a name, which disappears when lads ends. The file takes at
  most a quarter of the free space. With SRC and DST, it writes into a new directory in DST,
  .lads-bench-..., and removes it; it remains after kill -9. A transfer moves at most a quarter of
  the free space. SRC is only read.

Exit status:
    0  measured
    6  the file cannot be created or written, or space is too short
   ..  with SRC and DST: as a transfer of lads cp that failed
    9  stopped by a signal
  130  ended at once by a second SIGINT";

/// `lads clean --help`.
pub(super) const CLEAN_ABOUT: &str = "\
Removes unfinished files (.lads-….part) and journals (.lads-….journal) of killed transfers from a \
directory and its subdirectories. To resume such a transfer, run its command again instead: it \
sends only missing blocks and removes these files itself. Files of running transfers stay, and so \
do files that only have such a name: those of other users, with several names, or not regular.";

/// Examples for `lads clean`.
pub(super) const CLEAN_EXAMPLES: &str = "\
Examples:
  lads clean -n /scratch/run7      lists what would be removed
  lads clean /scratch/run7         removes it
  lads clean dtn2:/scratch/        on another host

";

/// Examples for `lads ls`.
pub(super) const LS_EXAMPLES: &str = "\
Examples:
  lads ls -l dtn2:/scratch/run7        the entries of a directory on the host dtn2
  lads ls dtn2:'run*/out.h5'           all entries that match
  lads ls --json dtn2: | jq .bytes     for another program

";

/// `lads imbalance --help`.
pub(super) const IMBALANCE_ABOUT: &str = "\
Analyses a time series of bandwidth per storage target: the distributions of minimum, mean and \
maximum over all targets, the deviation between targets at each moment (the instant standard \
deviation), the duration of imbalance, the time between such periods, and the dependence on \
bandwidth.";

/// Examples for `lads imbalance`.
pub(super) const IMBALANCE_EXAMPLES: &str = "\
Examples:
  lads cp --json run7 dtn2:/scratch/ > run7.ndjson; lads imbalance run7.ndjson
                                              both ends of a transfer
  lads imbalance --unit MB --html page.html controllers.csv
                                              the collector of a site, with plots
  lads imbalance --join --sums --every 2 day-*.csv
                                              counters, one file per day, one line per target
  collector | lads imbalance --json -         for another program

";

/// What `lads imbalance --help` ends with.
pub(super) const IMBALANCE_NOTES: &str = "\
Formats of files:
  CSV, wide:   time,OST0000,OST0001,...   a column per target
  CSV, long:   time,target,value          a line per target; several values are added
  NDJSON:      objects with these keys
  events of `lads cp --json`, and `.pfs/series` of `lads-testbed pfs`
  Separators are comma, semicolon or tab; line 1 has the names of the columns. Time is in seconds,
  or a date like 2012-01-01 00:00:02. An unknown value is empty or -.";

/// Notes below the settings of `--source` in `lads cp --help`.
pub(super) const SOURCE_NOTES: &str = "\
A stage holds blocks for congested OSTs of the sink: while the sink has no grant for them, the \
source reads on into a file there. It pays if congestion comes and goes, and the source is slower \
than the sink without it. The file has no name, is removed when LADS ends, and is checked when it \
is read back. If its disk fails or is full, a notice is printed and the transfer continues without \
it. Only one end can have a stage.";

/// Notes below the settings of `--sink` in `lads cp --help`.
pub(super) fn sink_notes() -> String {
    let names = lads_engine::layout::names();
    let (last, others) = names.split_last().expect("there is one for this host");
    format!(
        "place: aware chooses OSTs with little work and enough space, and several for large files; \
         inherit leaves the choice to the file system; same repeats the stripes of the source; \
         spread uses one OST per file, servers in turn.\n\
         layout: {} or {last} selects one provider; synthetic:osts=8,stripe_size=1M,stripe_count=1,\
         latency_ms=5 simulates a parallel file system, for tests.",
        others.join(", ")
    )
}

/// `lads deploy --help`.
pub(super) const DEPLOY_ABOUT: &str = "\
Sends lads to hosts that do not have it, or removes it there.

`lads cp` does the same when it starts lads on another host. lads is searched in PATH, ~/.local/bin,
~/bin and ~/.cargo/bin, and among the copies that were sent earlier; its version must be the same as
here. Copies are sent to the first of these directories that has space and permits execution:
$LADS_CACHE, ~/.cache/lads, /var/tmp/lads-UID, $XDG_RUNTIME_DIR/lads. For a host of another
architecture, lads-ARCHITECTURE (as `uname -m` prints it) must be next to lads, or in
PREFIX/lib/lads if lads is PREFIX/bin/lads.";

/// Examples of it.
pub(super) const DEPLOY_EXAMPLES: &str = "\
Examples:
  lads deploy dtn2 dtn3             sends lads to two hosts
  lads deploy --remove dtn2         removes it

";

/// `lads doctor --help`.
pub(super) const DOCTOR_ABOUT: &str = "\
Checks the way to another host, and both ends of it: ssh, the version and deployment of lads, the \
data port in both directions, round trip, path MTU, TCP windows against bandwidth times delay, \
clocks, protection of data, storage and free space of both directories, and limits of both hosts. \
Each check has one line; a problem also has a line with its remedy. Nothing is written to storage, \
except lads itself if the other host does not have it.

The exit status is 0 if there is no problem, 1 if there is one, and otherwise as for lads cp.";

/// Examples of it.
pub(super) const DOCTOR_EXAMPLES: &str = "\
Examples:
  lads doctor dtn2                              the way to dtn2
  lads doctor --ports 5000-5009 dtn2:/scratch   and that directory, with these ports
  lads doctor dtn2:/scratch /data               and a directory here
  lads doctor --json dtn2 | jq '.checks[] | select(.is_ok | not)'

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
