//! Reads a file of samples: CSV with a column for each target or a line for each target, NDJSON of
//! the same form, LADS's own events, or the record of an emulated file system.

use super::moment;
use anyhow::{Context, Result, bail, ensure};
use csv::StringRecord;
use lads_core::imbalance::{Refusal, Sampling, Series, Values};
use lads_core::units::OstId;
use serde_json::{Map, Value};
use std::collections::HashSet;
use std::io::{self, BufRead};

/// The usual names of the time column; without such a name, it is the first column.
const TIME_NAMES: [&str; 7] =
    ["time", "t", "timestamp", "date", "datetime", "seconds", "elapsed_seconds"];
/// The usual names of the column with the target of a line.
const TARGET_NAMES: [&str; 6] = ["target", "ost", "name", "controller", "device", "osd"];
/// Texts that stand for an unknown value.
const UNKNOWN: [&str; 5] = ["", "-", "nan", "null", "na"];

/// How to understand values whose format does not say it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) sampling: Sampling,
    /// The number of bytes, or bytes per second, that a value of one means.
    pub(super) unit: f64,
}

/// The series of one system in a file.
#[derive(Debug)]
pub(super) struct Part {
    /// `source` or `sink`, if the file has several systems.
    pub(super) side: Option<String>,
    pub(super) series: Series,
}

/// All series that were read.
#[derive(Debug)]
pub(super) struct Parts {
    reading: Reading,
    parts: Vec<Part>,
}

impl Parts {
    pub(super) fn new(reading: Reading) -> Self {
        Self { reading, parts: Vec::new() }
    }

    /// Reads a file to its end. Its last moment is not joined with what is read later.
    pub(super) fn read(&mut self, mut input: impl BufRead) -> Result<()> {
        let is_json = begins_with_brace(&mut input).context("cannot be read")?;
        if is_json { self.read_json(input) } else { self.read_csv(input) }?;
        self.parts.iter_mut().for_each(|part| part.series.end());
        Ok(())
    }

    pub(super) fn into_parts(self) -> Vec<Part> {
        self.parts
    }

    /// Returns the series of a side; `None` is for a file with one system only.
    fn series(&mut self, side: Option<&str>, values: Values) -> &mut Series {
        let found = self.parts.iter().position(|part| part.side.as_deref() == side);
        let index = found.unwrap_or_else(|| {
            let sampling = Sampling { values, ..self.reading.sampling };
            let series = Series::new(sampling);
            self.parts.push(Part { side: side.map(str::to_owned), series });
            self.parts.len() - 1
        });
        &mut self.parts[index].series
    }

    fn read_csv(&mut self, mut input: impl BufRead) -> Result<()> {
        let mut head = String::new();
        input.read_line(&mut head).context("line 1 is not text")?;
        ensure!(!head.trim().is_empty(), "is empty");
        let delimiter = delimiter(&head);
        let mut reader = csv::ReaderBuilder::new()
            .delimiter(delimiter)
            .comment(Some(b'#'))
            .trim(csv::Trim::All)
            .flexible(true)
            .from_reader(io::Read::chain(head.as_bytes(), input));
        let columns = Columns::of(reader.headers().context("line 1")?)?;
        let mut lines = Lines::default();
        let mut record = StringRecord::new();
        while reader.read_record(&mut record).context("not CSV")? {
            let line = record.position().map_or(0, csv::Position::line);
            let sample = columns.sample(&record).with_context(|| format!("line {line}"))?;
            self.take(&mut lines, sample).with_context(|| format!("line {line}"))?;
        }
        self.flush(&mut lines)
    }

    fn read_json(&mut self, input: impl BufRead) -> Result<()> {
        let mut lines = Lines::default();
        for (index, line) in input.lines().enumerate() {
            let number = index + 1;
            let line = line.with_context(|| format!("line {number} is not text"))?;
            if line.trim().is_empty() {
                continue;
            }
            let object: Map<String, Value> = serde_json::from_str(&line).map_err(|error| {
                anyhow::anyhow!("line {number}, column {}: not a JSON object", error.column())
            })?;
            self.take_object(&mut lines, &object).with_context(|| format!("line {number}"))?;
        }
        self.flush(&mut lines)
    }

    fn take_object(&mut self, lines: &mut Lines, object: &Map<String, Value>) -> Result<()> {
        match object.get("event").and_then(Value::as_str) {
            Some("osts") => self.take_event(object),
            Some("sample") => self.take_record(object),
            Some(_) => Ok(()),
            None => {
                let sample = sample_of_object(object)?;
                self.take(lines, sample)
            }
        }
    }

    /// Takes an event of `lads cp --json`.
    fn take_event(&mut self, object: &Map<String, Value>) -> Result<()> {
        let side = object.get("side").and_then(Value::as_str).context("`side` is missing")?;
        let bytes = object.get("bytes").and_then(Value::as_array).context("`bytes` is missing")?;
        let at = number(object, "elapsed_seconds")?;
        let bytes: Option<Vec<f64>> = bytes.iter().map(Value::as_f64).collect();
        let bytes = bytes.context("`bytes`: not all are numbers")?;
        // An OST without bytes of this transfer is left out: it has no part in it, and is not slow.
        self.take_sums(Some(side), at, numbered(&bytes).filter(|(_, sum)| *sum > 0.0))
    }

    /// Takes a sample of `lads-testbed pfs`: bytes read, bytes written, and queue length of each
    /// OST.
    fn take_record(&mut self, object: &Map<String, Value>) -> Result<()> {
        let osts = object.get("osts").and_then(Value::as_array).context("`osts` is missing")?;
        let at = number(object, "t")?;
        let moved = |ost: &Value| Some(ost.get(0)?.as_f64()? + ost.get(1)?.as_f64()?);
        let bytes: Option<Vec<f64>> = osts.iter().map(moved).collect();
        let bytes = bytes.context("`osts`: not all are [read, written, queued]")?;
        self.take_sums(None, at, numbered(&bytes))
    }

    fn take_sums(
        &mut self,
        side: Option<&str>,
        at: f64,
        sums: impl Iterator<Item = (OstId, f64)>,
    ) -> Result<()> {
        let series = self.series(side, Values::Sums);
        let values: Vec<_> =
            sums.map(|(ost, sum)| (series.target(&ost.to_string()), sum)).collect();
        Ok(series.add(at, &values)?)
    }

    /// Takes a line. Lines about single targets are held until all lines of a moment have come.
    fn take(&mut self, lines: &mut Lines, sample: Sample<'_>) -> Result<()> {
        if let Some(before) = lines.at {
            let at = sample.at;
            ensure!(at >= before, Refusal::Backwards { at, before });
            if at > before {
                self.flush(lines)?;
            }
        }
        let (unit, values) = (self.reading.unit, self.reading.sampling.values);
        let series = self.series(None, values);
        lines.at = Some(sample.at);
        for (name, value) in sample.values {
            let target = series.target(name);
            ensure!(lines.named.insert(target), "`{name}` appears twice at the same time");
            lines.values.push((target, value * unit));
        }
        Ok(())
    }

    fn flush(&mut self, lines: &mut Lines) -> Result<()> {
        let values = self.reading.sampling.values;
        if let Some(at) = lines.at.take() {
            self.series(None, values).add(at, &lines.values)?;
            lines.values.clear();
            lines.named.clear();
        }
        Ok(())
    }
}

/// The lines about the same moment.
#[derive(Debug, Default)]
struct Lines {
    at: Option<f64>,
    values: Vec<(usize, f64)>,
    /// The targets that have a value.
    named: HashSet<usize>,
}

/// The contents of a line.
#[derive(Debug)]
struct Sample<'a> {
    at: f64,
    values: Vec<(&'a str, f64)>,
}

impl<'a> Sample<'a> {
    /// Makes the sample of a line, either about one target or with a value for each of several
    /// targets.
    fn new(at: f64, target: Option<&'a str>, values: Vec<(&'a str, f64)>) -> Self {
        let Some(target) = target else { return Self { at, values } };
        // The bandwidth of a target is the sum of reads, writes, and any other values.
        let sum = values.iter().map(|(_, value)| value).sum();
        let known = (!values.is_empty()).then_some((target, sum));
        Self { at, values: known.into_iter().collect() }
    }
}

/// The meaning of the columns of a table.
#[derive(Debug)]
struct Columns {
    names: Vec<String>,
    time: usize,
    /// The column with the target of a line; without one, each other column is a target.
    target: Option<usize>,
}

impl Columns {
    fn of(header: &StringRecord) -> Result<Self> {
        let names: Vec<String> = header.iter().map(str::to_owned).collect();
        let is_number = |name: &String| name.parse::<f64>().is_ok();
        ensure!(
            !names.iter().all(is_number),
            "line 1 has only numbers; it should name the columns: time and each target, or \
             time,target,value"
        );
        ensure!(names.len() > 1, "line 1 names one column; there should be time and targets");
        let named = |known: &[&str]| {
            names.iter().position(|name| known.contains(&name.to_lowercase().as_str()))
        };
        let (time, target) = (named(&TIME_NAMES).unwrap_or(0), named(&TARGET_NAMES));
        let value_count = names.len() - 1 - usize::from(target.is_some());
        ensure!(value_count > 0 && target != Some(time), "line 1 names no column with bandwidth");
        Ok(Self { names, time, target })
    }

    fn sample<'a>(&'a self, record: &'a StringRecord) -> Result<Sample<'a>> {
        let (count, wanted) = (record.len(), self.names.len());
        ensure!(count == wanted, "{count} columns, but line 1 names {wanted}");
        let at = moment::parse(&record[self.time]).with_context(|| self.place(self.time))?;
        let mut values = Vec::with_capacity(count);
        for (index, text) in record.iter().enumerate() {
            if index != self.time && Some(index) != self.target {
                let value = parse_value(text).with_context(|| self.place(index))?;
                values.extend(value.map(|value| (self.names[index].as_str(), value)));
            }
        }
        Ok(Sample::new(at, self.target.map(|target| &record[target]), values))
    }

    fn place(&self, index: usize) -> String {
        format!("column {} (`{}`)", index + 1, self.names[index])
    }
}

/// Reads a line of NDJSON, which has the same columns, by name.
fn sample_of_object(object: &Map<String, Value>) -> Result<Sample<'_>> {
    let named = |known: &[&str]| {
        object.iter().find(|(name, _)| known.contains(&name.to_lowercase().as_str()))
    };
    let (time, at) = named(&TIME_NAMES)
        .with_context(|| format!("no key has the time (one of {})", TIME_NAMES[..3].join(", ")))?;
    let at = match at {
        Value::String(text) => moment::parse(text),
        at => at.as_f64().context("neither a number nor a date"),
    };
    let at = at.with_context(|| format!("`{time}`"))?;
    let target = named(&TARGET_NAMES);
    let mut values = Vec::new();
    for (name, value) in object {
        if name != time && target.is_none_or(|(target, _)| name != target) {
            let value = match value {
                Value::Null => None,
                Value::String(text) => parse_value(text).with_context(|| format!("`{name}`"))?,
                value => Some(checked(value.as_f64(), &value.to_string(), name)?),
            };
            values.extend(value.map(|value| (name.as_str(), value)));
        }
    }
    let target = target.map(|(_, name)| name.as_str().context("the target's name is not text"));
    Ok(Sample::new(at, target.transpose()?, values))
}

fn checked(value: Option<f64>, text: &str, name: &str) -> Result<f64> {
    let value = value.filter(|value| *value >= 0.0);
    value.with_context(|| format!("`{name}`: {text} is not a bandwidth"))
}

/// Parses a bandwidth; returns `None` if it is not known.
fn parse_value(text: &str) -> Result<Option<f64>> {
    if UNKNOWN.contains(&text.to_lowercase().as_str()) {
        return Ok(None);
    }
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(Some(value)),
        Ok(_) => bail!("{text} is not a bandwidth"),
        Err(_) => bail!("`{text}` is not a number"),
    }
}

fn numbered(sums: &[f64]) -> impl Iterator<Item = (OstId, f64)> + '_ {
    (0..).map(OstId).zip(sums.iter().copied())
}

fn number(object: &Map<String, Value>, key: &str) -> Result<f64> {
    object.get(key).and_then(Value::as_f64).with_context(|| format!("`{key}` is not a number"))
}

/// Returns the usual delimiter that is most frequent in the first line.
fn delimiter(head: &str) -> u8 {
    let count = |delimiter: &u8| head.bytes().filter(|byte| byte == delimiter).count();
    // If several are equally frequent, the last one is taken.
    b"\t;,".iter().copied().max_by_key(count).unwrap_or(b',')
}

/// Returns whether the first character is a brace; blanks before it do not count.
fn begins_with_brace(input: &mut impl BufRead) -> io::Result<bool> {
    loop {
        let buffered = input.fill_buf()?;
        let Some(first) = buffered.first() else { return Ok(false) };
        if !first.is_ascii_whitespace() {
            return Ok(*first == b'{');
        }
        input.consume(1);
    }
}
