//! The rules: which fault is done to which call.
//!
//! One command per line:
//!
//! ```text
//! fail KINDS ERRNO [WHEN…]       refuse the call with this error (EIO, ENOSPC, … or a number)
//! short KINDS [WHEN…]            read or write less than asked for, at least one byte
//! delay KINDS MILLISECONDS [WHEN…]
//! hang KINDS [WHEN…]             hold the call up until `release` or `clear`
//! cut KINDS [tear=SEED] [WHEN…]  cut the power before the call is done
//! release                        let go what hangs; nothing hangs any more
//! clear                          forget all rules, let go what hangs
//! settle                         everything so far is durable
//! power-cut [tear=SEED]          lose what is not durable (or some of it); no power from now on
//! power-on                       there is power again; what was open before is of no use
//! flip PATH OFFSET [BIT]         flip a bit of a file at rest
//! flip PATH seed=SEED            flip any bit of it
//! ```
//!
//! KINDS is one kind of call, several with commas, or `any`. Without WHEN, a rule holds for all
//! calls of these kinds. WHEN is one or more of: `path=PATTERN` (as in `lads cp --exclude`, without
//! blanks; for a rename, the old or the new name); and at most one of `nth=N` (only the N-th call
//! that matches, from 1), `from=N` (the N-th and all later), `every=K`, `percent=P` (in this share
//! of cases, drawn with `seed=S`). If several rules match, delays add up, then hangs hold, then the
//! first of the others is done.

use clap::ValueEnum;
use lads_core::filter::{self, Verdict};
use std::time::Duration;
use twox_hash::XxHash3_64;

/// A kind of call: the system call of this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Kind {
    Lookup,
    Getattr,
    Setattr,
    Truncate,
    Readlink,
    Mknod,
    Mkdir,
    Unlink,
    Rmdir,
    Symlink,
    Rename,
    Link,
    Open,
    Create,
    Read,
    Write,
    Flush,
    Fsync,
    Fdatasync,
    Opendir,
    Readdir,
    Fsyncdir,
    Statfs,
    Setxattr,
    Getxattr,
    Listxattr,
    Removexattr,
    Fallocate,
    Lseek,
}

impl Kind {
    /// The number of kinds.
    pub(super) const COUNT: usize = Self::Lseek as usize + 1;

    /// Its name in commands, in the log and in the counts.
    pub(super) fn name(self) -> String {
        let value = self.to_possible_value().expect("none is hidden");
        value.get_name().to_owned()
    }
}

/// What is done to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The call is refused with this error number.
    Fail(i32),
    /// The call is done for fewer bytes, drawn with this number.
    Short(u64),
    /// The call is done later.
    Delay(Duration),
    /// The call is done when it is released.
    Hang,
    /// The power is cut before the call is done; the cut is torn if a seed is given.
    Cut { tear: Option<u64> },
}

impl Fault {
    /// Its name in commands and in the log.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Fail(_) => "fail",
            Self::Short(_) => "short",
            Self::Delay(_) => "delay",
            Self::Hang => "hang",
            Self::Cut { .. } => "cut",
        }
    }
}

/// A line written into the control file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// Adds a rule: harm calls from now on.
    Add(Rule),
    /// Releases the calls that hang.
    Release,
    /// Forgets all rules and releases the calls that hang.
    Clear,
    /// Makes everything durable.
    Settle,
    /// Loses what is not durable.
    PowerCut { tear: Option<u64> },
    /// Gives power again.
    PowerOn,
    /// Flips a bit of a file.
    Flip { path: String, bit: FlippedBit },
}

/// Which bit of a file is flipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlippedBit {
    /// This bit of the byte at this offset.
    At { offset: u64, bit: u8 },
    /// A bit that is drawn with this seed.
    Drawn(u64),
}

/// A rule: which calls it matches, and what is done to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    /// The kinds that match; all kinds if this is empty.
    kinds: Vec<Kind>,
    fault: Fault,
    /// Matches a path by excluding it.
    pattern: Option<filter::Rule>,
    turn: Turn,
    /// How many calls have matched.
    seen: u64,
}

/// Which of the matching calls are harmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Nth(u64),
    From(u64),
    Every(u64),
    Percent { percent: u64, seed: u64 },
}

impl Turn {
    fn is_now(self, number: u64) -> bool {
        match self {
            Self::Nth(nth) => number == nth,
            Self::From(nth) => number >= nth,
            Self::Every(every) => number.is_multiple_of(every),
            Self::Percent { percent, seed } => chance(seed, number) % 100 < percent,
        }
    }
}

impl Rule {
    fn is_about(&self, kind: Kind, paths: &[Vec<u8>]) -> bool {
        let is_kind = self.kinds.is_empty() || self.kinds.contains(&kind);
        is_kind
            && self.pattern.as_ref().is_none_or(|pattern| {
                let pattern = std::slice::from_ref(pattern);
                paths.iter().any(|path| !filter::is_included(pattern, path, false))
            })
    }
}

/// The rules in force.
#[derive(Debug, Default)]
pub(super) struct Rules {
    rules: Vec<Rule>,
}

impl Rules {
    /// Adds a rule.
    pub(super) fn add(&mut self, rule: Rule) {
        self.rules.push(rule);
    }

    /// Forgets all rules.
    pub(super) fn clear(&mut self) {
        self.rules.clear();
    }

    /// Forgets the rules that make calls hang.
    pub(super) fn release(&mut self) {
        self.rules.retain(|rule| rule.fault != Fault::Hang);
    }

    /// Returns what is done to this call, in order. Calls `paths` only if there are rules.
    pub(super) fn judge(
        &mut self,
        kind: Kind,
        paths: impl FnOnce() -> Vec<Vec<u8>>,
    ) -> (Vec<Fault>, Vec<Vec<u8>>) {
        if self.rules.is_empty() {
            return (Vec::new(), Vec::new());
        }
        let paths = paths();
        let mut faults = Vec::new();
        for rule in self.rules.iter_mut().filter(|rule| rule.is_about(kind, &paths)) {
            rule.seen += 1;
            if rule.turn.is_now(rule.seen) {
                faults.push(match rule.fault {
                    Fault::Short(seed) => Fault::Short(chance(seed, rule.seen)),
                    ref fault => fault.clone(),
                });
            }
        }
        faults.sort_by_key(|fault| match fault {
            Fault::Delay(_) => 0,
            Fault::Hang => 1,
            _ => 2,
        });
        (faults, paths)
    }
}

/// Returns a number that looks random, but is the same each time for the same arguments.
pub(super) fn chance(seed: u64, number: u64) -> u64 {
    XxHash3_64::oneshot_with_seed(seed, &number.to_le_bytes())
}

/// Parses one line.
///
/// # Errors
/// The reason why the line is not understood.
pub(super) fn parse(line: &str) -> Result<Command, String> {
    let mut words = Words::of(line);
    let command = match words.next("a command")? {
        "fail" => {
            let kinds = words.kinds()?;
            let fault = Fault::Fail(errno(words.next("an error")?)?);
            words.rule(kinds, fault)?
        }
        "short" => {
            let kinds = words.kinds()?;
            let seed = words.option("seed")?.unwrap_or(0);
            words.rule(kinds, Fault::Short(seed))?
        }
        "delay" => {
            let kinds = words.kinds()?;
            let milliseconds = number(words.next("milliseconds")?)?;
            words.rule(kinds, Fault::Delay(Duration::from_millis(milliseconds)))?
        }
        "hang" => {
            let kinds = words.kinds()?;
            words.rule(kinds, Fault::Hang)?
        }
        "cut" => {
            let kinds = words.kinds()?;
            let tear = words.option("tear")?;
            words.rule(kinds, Fault::Cut { tear })?
        }
        "release" => Command::Release,
        "clear" => Command::Clear,
        "settle" => Command::Settle,
        "power-cut" => Command::PowerCut { tear: words.option("tear")? },
        "power-on" => Command::PowerOn,
        "flip" => words.flip()?,
        other => return Err(format!("no such command: {other}")),
    };
    words.end()?;
    Ok(command)
}

/// The words of a line, taken from the left. The options may stand anywhere in the line.
struct Words<'a> {
    words: std::vec::IntoIter<&'a str>,
    options: Vec<(&'a str, &'a str)>,
    known_options: Vec<&'static str>,
}

impl<'a> Words<'a> {
    fn of(line: &'a str) -> Self {
        let (options, words): (Vec<&str>, Vec<&str>) =
            line.split_whitespace().partition(|word| word.contains('='));
        let options = options.into_iter().filter_map(|word| word.split_once('=')).collect();
        Self { words: words.into_iter(), options, known_options: Vec::new() }
    }

    fn next(&mut self, what: &str) -> Result<&'a str, String> {
        self.words.next().ok_or_else(|| format!("{what} is missing"))
    }

    fn kinds(&mut self) -> Result<Vec<Kind>, String> {
        let words = self.next("a kind of call")?;
        if words == "any" {
            return Ok(Vec::new());
        }
        let kind = |word| Kind::from_str(word, false).map_err(|_| format!("no such call: {word}"));
        words.split(',').map(kind).collect()
    }

    fn text(&mut self, name: &'static str) -> Option<&'a str> {
        self.known_options.push(name);
        self.options.iter().find(|(option, _)| *option == name).map(|(_, value)| *value)
    }

    fn option(&mut self, name: &'static str) -> Result<Option<u64>, String> {
        self.text(name).map(number).transpose()
    }

    fn rule(&mut self, kinds: Vec<Kind>, fault: Fault) -> Result<Command, String> {
        let pattern = self.text("path").map(|pattern| filter::Rule {
            verdict: Verdict::Exclude,
            pattern: pattern.as_bytes().to_vec(),
        });
        let seed = self.option("seed")?.unwrap_or(0);
        let turns = [
            self.option("nth")?.map(Turn::Nth),
            self.option("from")?.map(Turn::From),
            self.option("every")?.map(|every| Turn::Every(every.max(1))),
            self.option("percent")?.map(|percent| Turn::Percent { percent, seed }),
        ];
        let mut turns = turns.into_iter().flatten();
        let turn = turns.next().unwrap_or(Turn::From(1));
        if turns.next().is_some() {
            return Err("give one of nth, from, every and percent".to_owned());
        }
        Ok(Command::Add(Rule { kinds, fault, pattern, turn, seen: 0 }))
    }

    fn flip(&mut self) -> Result<Command, String> {
        let path = self.next("a path")?.to_owned();
        let bit = match self.option("seed")? {
            Some(seed) => FlippedBit::Drawn(seed),
            None => {
                let offset = number(self.next("an offset")?)?;
                let bit = self.next("a bit").ok().map_or(Ok(0), number)?;
                let bit = u8::try_from(bit).ok().filter(|&bit| bit < 8);
                FlippedBit::At { offset, bit: bit.ok_or("a byte has bits 0 to 7")? }
            }
        };
        Ok(Command::Flip { path, bit })
    }

    fn end(mut self) -> Result<(), String> {
        let unknown = self.options.iter().find(|(name, _)| !self.known_options.contains(name));
        match self.words.next().or_else(|| unknown.map(|(name, _)| *name)) {
            None => Ok(()),
            Some(word) => Err(format!("not understood: {word}")),
        }
    }
}

fn number(word: &str) -> Result<u64, String> {
    word.parse().map_err(|_| format!("not a number: {word}"))
}

fn errno(word: &str) -> Result<i32, String> {
    if let Some(errno) = lads_core::errno::number(word) {
        return Ok(errno);
    }
    // The range of numbers that the kernel takes as errors in an answer.
    let errno = word.parse().ok().filter(|errno| (1..=1000).contains(errno));
    errno.ok_or_else(|| format!("no such error: {word}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns which of ten writes to `path` are harmed by the rule in this line.
    fn harmed(line: &str, path: &str) -> Vec<u64> {
        let Command::Add(rule) = parse(line).unwrap() else { panic!("{line}") };
        let mut rules = Rules::default();
        rules.add(rule);
        let mut judge = || rules.judge(Kind::Write, || vec![path.into()]).0;
        (1..=10).filter(|_| !judge().is_empty()).collect()
    }

    #[test]
    fn a_rule_is_for_its_kinds_paths_and_turns() {
        assert_eq!(harmed("fail write EIO nth=3", "a"), [3]);
        assert_eq!(harmed("fail read,write EIO from=8", "a"), [8, 9, 10]);
        assert_eq!(harmed("delay any 5 every=4", "a"), [4, 8]);
        assert_eq!(harmed("fail read EIO", "a"), [0; 0]);
        assert_eq!(harmed("short write path=*.part nth=1", "d/x.part"), [1]);
        assert_eq!(harmed("short write path=/x nth=1", "d/x"), [0; 0]);
        let drawn = harmed("cut write percent=50 seed=7", "a");
        assert!((1..10).contains(&drawn.len()), "{drawn:?}");
        assert_eq!(harmed("cut write percent=50 seed=7", "a"), drawn);
    }

    #[test]
    fn delays_come_before_what_ends_the_call() {
        let mut rules = Rules::default();
        for line in ["fail any 5", "hang any", "delay any 1"] {
            let Command::Add(rule) = parse(line).unwrap() else { panic!("{line}") };
            rules.add(rule);
        }
        let (faults, _) = rules.judge(Kind::Open, Vec::new);
        let names: Vec<_> = faults.iter().map(Fault::name).collect();
        assert_eq!(names, ["delay", "hang", "fail"]);
        rules.release();
        assert_eq!(rules.judge(Kind::Open, Vec::new).0.len(), 2);
    }

    #[test]
    fn what_is_not_understood_is_said() {
        for (line, why) in [
            ("", "a command is missing"),
            ("explode", "no such command: explode"),
            ("fail writ EIO", "no such call: writ"),
            ("fail write", "an error is missing"),
            ("fail write EWHAT", "no such error: EWHAT"),
            ("fail write EIO nth=x", "not a number: x"),
            ("fail write EIO nth=1 every=2", "give one of nth, from, every and percent"),
            ("power-cut now", "not understood: now"),
            ("flip a 5 8", "a byte has bits 0 to 7"),
        ] {
            assert_eq!(parse(line), Err(why.to_owned()), "{line}");
        }
    }

    #[test]
    fn other_commands_are_understood() {
        assert_eq!(parse("power-cut"), Ok(Command::PowerCut { tear: None }));
        assert_eq!(parse("power-cut tear=5"), Ok(Command::PowerCut { tear: Some(5) }));
        let bit = FlippedBit::At { offset: 9, bit: 3 };
        assert_eq!(parse("flip d/a 9 3"), Ok(Command::Flip { path: "d/a".to_owned(), bit }));
        let bit = FlippedBit::Drawn(4);
        assert_eq!(parse("flip a seed=4"), Ok(Command::Flip { path: "a".to_owned(), bit }));
    }
}
