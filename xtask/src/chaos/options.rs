//! The options of the command: every option of `lads cp`, and how chaos uses it.
//!
//! A test compares the table with `lads cp --help`, so that no new option is forgotten.

use lads_trees::Rng;
use std::collections::BTreeMap;

/// How chaos uses an option.
#[derive(Clone, Copy, Debug)]
pub(super) enum Use {
    /// Given in one of this number of runs on average, with one of these values. An empty value
    /// means that the option has none.
    Drawn(usize, &'static [&'static str]),
    /// Given by another part of chaos, if the round needs it.
    ByRound,
    /// Never given.
    Never,
}

use Use::{ByRound, Drawn, Never};

/// These values stand for a directory and a file of the round.
pub(super) const STAGE: &str = "{stage}";
pub(super) const LOG: &str = "{log}";

const FLAG: &[&str] = &[""];
const SIZES: &[&str] = &["2M", "4M", "16M", "64M"];
const LAYOUTS: &[&str] = &[
    "auto",
    "local",
    "synthetic:osts=4,stripe_size=256K",
    "synthetic:osts=8,stripe_size=64K,stripe_count=3",
    "synthetic:osts=3,stripe_size=1M,latency_ms=2",
    "synthetic:osts=6,stripe_size=128K,stripe_count=2,copies=2",
];
const THREADS: &[&str] = &["1", "2", "5"];
const IO_MODES: &[&str] = &["auto", "direct", "buffered", "uncached"];

/// All options, in the order of `lads cp --help`. `--sink place` is the setting `place` of
/// `--sink`.
pub(super) const OPTIONS: &[(&str, Use)] = &[
    // Help does not move anything.
    ("--help", Never),
    ("--dry-run", ByRound),
    ("--exclude", ByRound),
    ("--include", ByRound),
    ("--exclude-from", ByRound),
    ("--include-from", ByRound),
    ("--files-from", ByRound),
    ("--from0", ByRound),
    ("--copy-links", Drawn(10, FLAG)),
    ("--remove-source-files", Drawn(10, FLAG)),
    ("--force", Drawn(6, FLAG)),
    ("--ignore-times", Drawn(8, FLAG)),
    ("--update", Drawn(16, FLAG)),
    ("--ignore-existing", Drawn(16, FLAG)),
    ("--existing", Drawn(24, FLAG)),
    ("--max-size", Drawn(16, &["4K", "200K", "1M"])),
    ("--min-size", Drawn(16, &["1", "4K"])),
    ("--one-file-system", Drawn(12, FLAG)),
    ("--mkpath", Drawn(8, FLAG)),
    ("--delete", Drawn(6, FLAG)),
    ("--delete-excluded", Drawn(24, FLAG)),
    // Reaching the limit would be one more way to end.
    ("--max-delete", Drawn(24, &["1000000"])),
    ("--ignore-errors", Drawn(16, FLAG)),
    // Chaos moves trees, and these are for single files.
    ("--copy-devices", Never),
    ("--write-devices", Never),
    ("--follow", Never),
    ("--checksum", Drawn(4, FLAG)),
    ("-D", Drawn(6, FLAG)),
    ("--devices", Drawn(12, FLAG)),
    ("--specials", Drawn(12, FLAG)),
    // rsync, which judges what has arrived, keeps all of these.
    ("--privileges", Drawn(1, FLAG)),
    ("--archive", Drawn(6, FLAG)),
    ("--no-perms", Drawn(16, FLAG)),
    ("--no-times", Drawn(16, FLAG)),
    ("--no-owner", Drawn(16, FLAG)),
    ("--no-xattrs", Drawn(16, FLAG)),
    ("--no-hard-links", Drawn(16, FLAG)),
    ("--restore", Drawn(12, FLAG)),
    ("--verbose", Drawn(4, FLAG)),
    ("--quiet", Drawn(12, FLAG)),
    ("--progress", Drawn(6, &["", "1"])),
    ("--no-progress", Drawn(6, FLAG)),
    ("--stats", Drawn(6, FLAG)),
    ("--json", ByRound),
    ("--log", Drawn(6, &[LOG])),
    ("--verify", Drawn(3, &["wire", "media"])),
    ("--lab journal", Drawn(8, &["no"])),
    ("--timeout", Drawn(1, &["5", "8", "12"])),
    ("--retries", Drawn(6, &["1", "2"])),
    ("--retry-for", Drawn(12, &["5s"])),
    // A round needs a transfer that comes to its end.
    ("--stop-after", Drawn(12, &["1h"])),
    ("--stall-timeout", Drawn(4, &["0", "40", "600"])),
    ("--connect-timeout", Drawn(8, &["20", "60"])),
    ("--rsh", ByRound),
    ("--remote-lads", ByRound),
    ("--no-deploy", Never),
    ("--tunnel", ByRound),
    // It would undo --tunnel.
    ("--no-tunnel", Never),
    ("--data", Drawn(3, &["encrypted", "authenticated", "plain"])),
    ("--connect", Drawn(3, &["source", "sink"])),
    ("--data-address", ByRound),
    ("--ports", ByRound),
    ("--bwlimit", Drawn(1, &["3M", "6M", "12M", "24M", "48M"])),
    ("--streams", Drawn(2, &["0", "1", "2", "3", "7"])),
    ("--buffers", Drawn(2, SIZES)),
    ("--source buffers", Drawn(5, SIZES)),
    ("--sink buffers", Drawn(5, SIZES)),
    ("--source stage", Drawn(10, &[STAGE])),
    ("--source stage-size", Drawn(3, &["4M", "64M"])),
    ("--sink stage", Drawn(12, &[STAGE])),
    ("--sink stage-size", Drawn(3, &["4M", "64M"])),
    ("--lab block-size", Drawn(2, &["64K", "68K", "128K", "256K", "1M", "4M"])),
    ("--source threads", Drawn(3, THREADS)),
    ("--sink threads", Drawn(3, THREADS)),
    ("--lab schedule", Drawn(2, &["file", "layout", "threshold", "adaptive"])),
    // `serial` is `schedule=file`.
    ("--lab order", Drawn(6, &["none", "loose"])),
    ("--polite", Drawn(8, FLAG)),
    ("--lab threshold", Drawn(8, &["window=4,limit_ms=1,skips=3"])),
    ("--source layout", Drawn(2, LAYOUTS)),
    ("--sink layout", Drawn(2, LAYOUTS)),
    ("--sink place", Drawn(3, &["inherit", "same", "spread", "aware"])),
    ("--lab place-extents", Drawn(3, &["0", "2", "8"])),
    ("--source io", Drawn(3, IO_MODES)),
    ("--sink io", Drawn(3, IO_MODES)),
    ("--sink preallocate", Drawn(5, &["no", "yes"])),
    ("--max-cpu", Drawn(6, &["5%", "0.3", "100%"])),
    ("--source pin", Drawn(8, &["0", "node:0"])),
    ("--sink pin", Drawn(8, &["0", "node:0"])),
];

/// Options that leave entries out. rsync needs them, too, when it judges.
const PASSING: [&str; 5] =
    ["--update", "--ignore-existing", "--existing", "--max-size", "--min-size"];

/// Options that remove something at the target.
const DELETION: [&str; 2] = ["--delete", "--delete-excluded"];

/// The number of blocks that the buffers must have room for. A stage with `--verify media` needs
/// three for each OST and one more, and the emulated parallel file system has eight OSTs and two
/// numbers that stand for no OST.
const BLOCKS_IN_BUFFERS: u64 = 31;
/// The default size of the data buffers of an end, in bytes.
const BUFFERS_BYTES: u64 = 256 << 20;
const BLOCK_BYTES: u64 = 1 << 20;

/// The options of one run and their values. An empty value means that the option has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Choice(BTreeMap<&'static str, &'static str>);

impl Choice {
    /// Draws options that can be used together.
    pub(super) fn draw(rng: &mut Rng) -> Self {
        let mut chosen = BTreeMap::new();
        for &(name, how) in OPTIONS {
            if let Drawn(one_in, values) = how {
                // Both are always drawn, so that later draws do not depend on the result.
                let (is_given, value) = (rng.is_one_in(one_in), values[rng.below(values.len())]);
                if is_given {
                    chosen.insert(name, value);
                }
            }
        }
        let mut choice = Self(chosen);
        choice.make_fit();
        choice
    }

    /// Removes options that `lads cp` refuses in combination with the others.
    fn make_fit(&mut self) {
        if self.value("--lab schedule") == Some("file") || self.has("--sink stage") {
            self.leave_out("--source stage");
        }
        for (stage, size) in
            [("--source stage", "--source stage-size"), ("--sink stage", "--sink stage-size")]
        {
            if !self.has(stage) {
                self.leave_out(size);
            }
        }
        if self.value("--lab schedule").is_some_and(|rule| rule != "adaptive") {
            self.leave_out("--polite");
        }
        // If a file has several names, rsync may use another one of them to decide.
        if ["--update", "--ignore-existing", "--existing"].iter().any(|name| self.has(name)) {
            self.give("--no-hard-links", "");
        }
        if self.buffers_bytes_min()
            < BLOCKS_IN_BUFFERS * self.bytes("--lab block-size", BLOCK_BYTES)
        {
            self.leave_out("--lab block-size");
        }
        if self.buffers_bytes_min() < BLOCKS_IN_BUFFERS * BLOCK_BYTES
            && !self.has("--lab block-size")
        {
            self.0.insert("--lab block-size", "64K");
        }
    }

    /// Whether this option is given.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The value of an option that is given.
    pub(super) fn value(&self, name: &str) -> Option<&'static str> {
        self.0.get(name).copied()
    }

    /// Removes this option.
    pub(super) fn leave_out(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Sets an option to this value, whether or not it was given before.
    pub(super) fn give(&mut self, name: &'static str, value: &'static str) {
        self.0.insert(name, value);
    }

    /// The limits of the size of the files that are moved: the largest and the smallest.
    pub(super) fn sizes(&self) -> [Option<&'static str>; 2] {
        ["--max-size", "--min-size"].map(|name| self.value(name))
    }

    /// Whether the command removes entries that the source does not have.
    pub(super) fn deletes(&self) -> bool {
        DELETION.iter().any(|name| self.has(name))
    }

    /// Whether the command replaces directories that are not empty by entries of other kinds.
    pub(super) fn forces(&self) -> bool {
        self.has("--force") || self.deletes()
    }

    /// Whether the command copies what links lead to.
    pub(super) fn follows_links(&self) -> bool {
        self.has("--copy-links")
    }

    /// Whether the command removes entries at the source.
    pub(super) fn moves(&self) -> bool {
        self.has("--remove-source-files")
    }

    /// Removes the options that remove something.
    pub(super) fn leave_out_deletion(&mut self) {
        DELETION.iter().chain(&["--force"]).for_each(|name| self.leave_out(name));
    }

    /// The options that leave entries out or remove something at the target, in rsync's form.
    pub(super) fn passing(&self) -> Vec<String> {
        let names = PASSING.into_iter().chain(DELETION).chain(["--force"]);
        let given = names.filter_map(|name| Some((name, self.value(name)?)));
        let word = |(name, value): (&str, &str)| match value {
            "" => name.to_owned(),
            value => format!("{name}={value}"),
        };
        given.map(word).collect()
    }

    /// Whether the options may leave out entries of the source.
    pub(super) fn passes_over(&self) -> bool {
        PASSING.iter().any(|name| self.has(name))
    }

    /// The options as words of a command line.
    pub(super) fn words(&self, stage: &str, log: &str) -> Vec<String> {
        let word = |(name, value): (&&str, &&str)| {
            let name = name.replace(' ', "=");
            match *value {
                "" => name,
                STAGE => format!("{name}={stage}"),
                LOG => format!("{name}={log}"),
                value => format!("{name}={value}"),
            }
        };
        self.0.iter().map(word).collect()
    }

    /// The size of the data buffers, in bytes, at the end that has more.
    pub(super) fn buffers_bytes_max(&self) -> u64 {
        self.buffers_bytes().into_iter().max().unwrap_or(BUFFERS_BYTES)
    }

    fn buffers_bytes_min(&self) -> u64 {
        self.buffers_bytes().into_iter().min().unwrap_or(BUFFERS_BYTES)
    }

    fn buffers_bytes(&self) -> [u64; 2] {
        let both = self.bytes("--buffers", BUFFERS_BYTES);
        ["--source buffers", "--sink buffers"].map(|name| self.bytes(name, both))
    }

    /// The value of an option such as `64K` in bytes, or `otherwise` if the option is not given.
    fn bytes(&self, name: &str, otherwise: u64) -> u64 {
        let Some(value) = self.value(name) else { return otherwise };
        let (number, unit) = value.split_at(value.len() - 1);
        let unit = if unit == "K" { 1 << 10 } else { 1 << 20 };
        number.parse::<u64>().expect("sizes of the table end with K or M") * unit
    }

    /// The options with which rsync compares the same things as `lads cp` does with this choice.
    pub(super) fn comparison(&self) -> Vec<&'static str> {
        let mut options = vec!["-anci", "--no-D"];
        options.extend(self.kinds());
        if !self.has("--no-xattrs") {
            options.push("-X");
            // For rsync, ACLs are part of the permissions.
            options.extend((!self.has("--no-perms")).then_some("-A"));
        }
        options.extend(self.has("--no-perms").then_some("--no-perms"));
        options.extend(self.has("--no-times").then_some("--no-times"));
        if self.has("--no-owner") {
            options.extend(["--no-owner", "--no-group"]);
        }
        options
    }

    /// The options with which rsync copies entries of the same kinds as `lads cp` with this choice,
    /// and compares their times as it does.
    pub(super) fn kinds(&self) -> Vec<&'static str> {
        // Times are compared to the nanosecond, except for --update: there, rsync treats changes
        // within the same second as equally old.
        let window = if self.has("--update") { "--modify-window=1" } else { "--modify-window=-1" };
        let mut options = vec![window];
        let has_all = self.has("-D");
        options.extend((has_all || self.has("--devices")).then_some("--devices"));
        options.extend((has_all || self.has("--specials")).then_some("--specials"));
        options.extend((!self.has("--no-hard-links")).then_some("-H"));
        options.extend(self.follows_links().then_some("-L"));
        // A link to a directory on another file system becomes an empty directory.
        options.extend((self.follows_links() && self.has("--one-file-system")).then_some("-x"));
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Options of `lads cp` for which the help has no entry of their own.
    const IN_ANOTHER_ENTRY: [&str; 10] = [
        "--no-tunnel",
        "--retries",
        "--devices",
        "--specials",
        "--no-times",
        "--no-owner",
        "--no-xattrs",
        "--no-hard-links",
        "--no-progress",
        "--stats",
    ];

    /// Returns the long name of every option in `lads cp --help`, or the short name if it has no
    /// long one, and every setting.
    fn in_help() -> BTreeSet<String> {
        let help = crate::shell::root().join("crates/lads-cli/src/args/golden/cp-help.txt");
        let help = std::fs::read_to_string(help).unwrap();
        let options = help.split_once("Arguments:").unwrap().1;
        let options = options.split_once("\nSecurity:").unwrap().0;
        let mut names = BTreeSet::new();
        let mut option = String::new();
        for line in options.lines() {
            let text = line.trim_start();
            let first = text.split(' ').next().unwrap_or_default();
            // Deeper lines belong to the description of the option above.
            if text.starts_with('-') && line.len() - text.len() <= 6 {
                let words: Vec<&str> = text.split_whitespace().collect();
                let long = words.iter().find(|word| word.starts_with("--")).unwrap_or(&words[0]);
                let end = long.find(['[', '.', '=']).unwrap_or(long.len());
                option = long[..end].trim_end_matches(',').to_owned();
                if !["--source", "--sink", "--lab"].contains(&option.as_str()) {
                    names.insert(option.clone());
                }
            } else if ["--source", "--sink", "--lab"].contains(&option.as_str())
                && let Some((key, value)) = first.split_once('=')
                && !value.is_empty()
                && value.chars().all(char::is_uppercase)
            {
                names.insert(format!("{option} {key}"));
            }
        }
        // The settings of --source are also settings of --sink.
        let shared: Vec<_> = names.iter().filter_map(|it| it.strip_prefix("--source ")).collect();
        let shared: Vec<_> = shared.iter().map(|key| format!("--sink {key}")).collect();
        names.extend(shared);
        assert!(names.len() > 60, "{names:?}");
        names
    }

    #[test]
    fn chaos_knows_every_option_of_lads_cp() {
        let known: BTreeSet<String> = OPTIONS.iter().map(|(name, _)| (*name).to_owned()).collect();
        let others = IN_ANOTHER_ENTRY.map(str::to_owned);
        let all: BTreeSet<String> = in_help().into_iter().chain(others).collect();
        assert_eq!(known, all, "an option of `lads cp` has no row in OPTIONS, or is gone");
    }

    #[test]
    fn the_same_seed_gives_the_same_options() {
        let draw = |seed| Choice::draw(&mut Rng::new(seed));
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn every_drawn_option_is_given_sooner_or_later() {
        let mut rng = Rng::new(1);
        let given: BTreeSet<&str> =
            (0..500).flat_map(|_| Choice::draw(&mut rng).0.into_keys()).collect();
        let drawn = OPTIONS.iter().filter(|(_, how)| matches!(how, Drawn(..)));
        for (name, _) in drawn {
            assert!(given.contains(name), "{name} is never given");
        }
    }
}
