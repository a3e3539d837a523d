//! Configuration file with defaults of options.

use super::{Setting, Source, Value};
use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::io::Errno;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Maximum size of a file, in bytes. A line for each option takes about 4 KiB.
const BYTES_MAX: u64 = 1 << 20;

/// Key of the table with a table per host pattern.
const HOST: &str = "host";

/// Reads the settings of a file in order of precedence: the sections of hosts from the last to the
/// first, then the settings for all hosts. Returns `None` if the file does not exist.
///
/// # Errors
///
/// If the file cannot be read, if other users may write to it, or if its contents are invalid.
pub(super) fn read(path: &Path) -> Result<Option<Vec<Setting>>> {
    let shown = path.display();
    let Some(text) = text_of(path).with_context(|| format!("cannot use {shown}"))? else {
        return Ok(None);
    };
    let table = DeTable::parse(&text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_at(&text, &span));
        anyhow!("{shown}:{line}: {}", error.message())
    })?;
    let mut settings = Reader { path, text: &text, settings: Vec::new() };
    settings.add_table(table.get_ref(), None)?;
    let mut settings = settings.settings;
    settings.sort_by_key(|setting| match &setting.source {
        Source::File { line, host, .. } => (host.is_none(), std::cmp::Reverse(*line)),
        Source::Variable(_) => unreachable!("these are from a file"),
    });
    Ok(Some(settings))
}

/// Returns the text of a file that other users may not write to.
pub(crate) fn text_of(path: &Path) -> Result<Option<String>> {
    // Opening a FIFO must not block.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match open(path, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(errno) => return Err(std::io::Error::from(errno).into()),
    };
    let stat = fstat(&file)?;
    ensure!(FileType::from_raw_mode(stat.st_mode).is_file(), "it is not a regular file");
    let is_ours = stat.st_uid == 0 || stat.st_uid == rustix::process::geteuid().as_raw();
    ensure!(
        is_ours && stat.st_mode & 0o022 == 0,
        "other users may write to it, and options can start programs: it must belong to you or to \
         root, and only its owner may write to it (`chmod go-w`); LADS_CONFIG=/dev/null uses no \
         file"
    );
    let mut text = String::new();
    File::from(file).take(BYTES_MAX + 1).read_to_string(&mut text)?;
    ensure!(text.len() as u64 <= BYTES_MAX, "it is larger than {BYTES_MAX} bytes");
    Ok(Some(text))
}

/// Returns the number of the line where a part of the text begins.
pub(crate) fn line_at(text: &str, span: &Range<usize>) -> usize {
    let before = text.get(..span.start).unwrap_or(text);
    1 + before.bytes().filter(|&byte| byte == b'\n').count()
}

struct Reader<'a> {
    path: &'a Path,
    text: &'a str,
    settings: Vec<Setting>,
}

impl Reader<'_> {
    /// Adds the options of a table. Only the top-level table contains tables of hosts.
    fn add_table(&mut self, table: &DeTable<'_>, host: Option<&str>) -> Result<()> {
        for (key, value) in table {
            let (name, line) = (key.get_ref().as_ref(), line_at(self.text, &key.span()));
            match value.get_ref() {
                DeValue::Table(hosts) if name == HOST && host.is_none() => {
                    for (pattern, section) in hosts {
                        let pattern = pattern.get_ref().as_ref();
                        let section = section.get_ref().as_table().with_context(|| {
                            let shown = self.path.display();
                            format!("{shown}:{line}: write a section: [host.\"{pattern}\"]")
                        })?;
                        self.add_table(section, Some(pattern))?;
                    }
                }
                DeValue::Table(_) => {
                    let shown = self.path.display();
                    bail!(
                        "{shown}:{line}: unknown section [{name}]; only [host.\"PATTERN\"] exists"
                    )
                }
                _ => {
                    let value = self.value_of(value, line)?;
                    let source = Source::File {
                        path: PathBuf::from(self.path),
                        line,
                        host: host.map(str::to_owned),
                    };
                    self.settings.push(Setting { option: name.to_owned(), value, source });
                }
            }
        }
        Ok(())
    }

    fn value_of(&self, value: &Spanned<DeValue<'_>>, line: usize) -> Result<Value> {
        let word = |value: &DeValue<'_>| match value {
            DeValue::String(text) => Some(text.to_string().into()),
            DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().into()),
            DeValue::Float(number) => Some(number.as_str().into()),
            _ => None,
        };
        let words = match value.get_ref() {
            DeValue::Boolean(is_set) => return Ok(Value::Flag(*is_set)),
            DeValue::Array(values) => {
                values.iter().map(|value| word(value.get_ref())).collect::<Option<Vec<_>>>()
            }
            value => word(value).map(|word| vec![word]),
        };
        let shown = self.path.display();
        let words =
            words.with_context(|| format!("{shown}:{line}: not a possible value of an option"))?;
        Ok(Value::Words(words))
    }
}
