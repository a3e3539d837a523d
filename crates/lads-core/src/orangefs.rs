//! Where a file lies on OrangeFS (formerly PVFS2), as its attributes and its configuration say.
//!
//! One attribute says by which rule bytes are spread ([`Distribution`]), another which data files
//! hold them, each by a handle ([`parse_handles`]). Which server has which handles is fixed for
//! the life of a file system, in the configuration that its servers share ([`parse_config`]).
//!
//! The rule is written little-endian, as OrangeFS sends it: a length, the name of the rule with a
//! zero, filled up to a multiple of eight, then its parameters (`pint-distribution.h`). By
//! `simple_stripe`, the byte at `x` is in data file `x / strip size % count`
//! (`dist-simple-stripe.c`); by `basic_dist`, all are in the first.

use crate::layout::Layout;
use crate::units::OstId;
use std::ops::RangeInclusive;

/// The attribute that says by which rule a file is spread.
pub const RULE_ATTRIBUTE: &str = "system.pvfs2.md";
/// The attribute that says which data files hold it.
pub const HANDLES_ATTRIBUTE: &str = "system.pvfs2.dh";

/// Bytes that a rule and its name are filled up to a multiple of.
const UNIT: usize = 8;

/// By which rule the bytes of a file are spread over its data files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// All in the first.
    Basic,
    /// In turn, this many bytes at a time.
    Striped(u64),
    /// By another rule, of this name.
    Other(String),
}

/// A server that holds data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// What the configuration calls it.
    pub alias: String,
    /// Where it is reached, as `tcp://io3:3334`; empty if the configuration does not say.
    pub address: String,
    /// The handles of the data files that it holds.
    pub handles: Vec<RangeInclusive<u64>>,
}

impl Distribution {
    /// Reads an attribute; `None` if it makes no sense.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let length = usize::try_from(u32::from_le_bytes(*bytes.first_chunk()?)).ok()?;
        let name_end = length.checked_add(4)?;
        let name = bytes.get(4..name_end)?;
        let parameters = bytes.get(name_end.checked_add(1)?.checked_next_multiple_of(UNIT)?..);
        match name {
            b"basic_dist" => Some(Self::Basic),
            b"simple_stripe" => {
                let size = u64::from_le_bytes(*parameters?.first_chunk()?);
                Some(size).filter(|size| (1..=i64::MAX as u64).contains(size)).map(Self::Striped)
            }
            b"" => None,
            name => Some(Self::Other(String::from_utf8_lossy(name).into_owned())),
        }
    }

    /// Returns where each byte is, if the data files are on these OSTs in turn; `None` if the rule
    /// is not known, or there is no data file.
    #[must_use]
    pub fn layout(&self, osts: Vec<OstId>) -> Option<Layout> {
        match self {
            Self::Basic => osts.first().map(|&ost| Layout::on(ost)),
            Self::Striped(size) => Layout::striped(*size, osts),
            Self::Other(_) => None,
        }
    }
}

/// Reads the handles of data files, numbers in the order of the machine; what is left over at the
/// end is none.
pub fn parse_handles(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    let (handles, _) = bytes.as_chunks();
    handles.iter().map(|&handle| u64::from_ne_bytes(handle))
}

/// Reads from a configuration which servers hold the data of a file system; of the first one in
/// there if it has no name. Servers are in the order in which they stand there.
#[must_use]
pub fn parse_config(text: &str, file_system: &str) -> Vec<Server> {
    let mut aliases: Vec<(&str, &str)> = Vec::new();
    let mut found: Vec<Server> = Vec::new();
    let mut section = Section::default();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        let mut words = line.split([' ', '\t', ',']).filter(|word| !word.is_empty());
        let (Some(first), mut rest) = (words.next(), words) else { continue };
        match first.to_ascii_lowercase().as_str() {
            "<filesystem>" => section = Section::default(),
            "<datahandleranges>" => section.is_of_data = true,
            "</datahandleranges>" => section.is_of_data = false,
            "</filesystem>" => {
                let section = std::mem::take(&mut section);
                let is_it = file_system.is_empty() || section.name == file_system;
                if is_it && found.is_empty() {
                    found = section.servers;
                }
            }
            "alias" => aliases.extend(pair(rest)),
            "name" => section.name = rest.next().unwrap_or_default(),
            "range" if section.is_of_data => section.add(rest),
            _ => {}
        }
    }
    for server in &mut found {
        let address = aliases.iter().find(|(alias, _)| *alias == server.alias);
        server.address = address.map_or_else(String::new, |(_, address)| (*address).to_owned());
    }
    found
}

/// What stands between `<Filesystem>` and its end.
#[derive(Default)]
struct Section<'a> {
    name: &'a str,
    servers: Vec<Server>,
    is_of_data: bool,
}

impl<'a> Section<'a> {
    /// Takes in a server and its ranges of handles, `first-last` each.
    fn add(&mut self, mut words: impl Iterator<Item = &'a str>) {
        let Some(alias) = words.next() else { return };
        let range = |word: &str| {
            let (first, last) = word.split_once('-')?;
            Some(first.parse().ok()?..=last.parse().ok()?)
        };
        let handles: Vec<_> = words.filter_map(range).collect();
        match self.servers.iter_mut().find(|server| server.alias == alias) {
            Some(server) => server.handles.extend(handles),
            None => {
                let (alias, address) = (alias.to_owned(), String::new());
                self.servers.push(Server { alias, address, handles });
            }
        }
    }
}

fn pair<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<(&'a str, &'a str)> {
    Some((words.next()?, words.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `simple_stripe` in strips of 64 KiB.
    const STRIPED: &[u8; 32] = b"\x0d\0\0\0simple_stripe\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0";

    const CONFIG: &str = "
        <Aliases>
            Alias io1 tcp://io1:3334
            Alias io2 tcp://10.0.0.2:3334,ib://10.1.0.2:3335
        </Aliases>
        <Filesystem>
            Name other
            <DataHandleRanges>
                Range io1 1-9
            </DataHandleRanges>
        </Filesystem>
        <Filesystem>
            Name orangefs   # the scratch
            ID 353983657
            <MetaHandleRanges>
                Range io1 3-2305843009213693952
            </MetaHandleRanges>
            <DataHandleRanges>
                Range io2 6917529027641081856-9223372036854775806
                Range io1 4611686018427387905-4611686018427387999, 47-48
            </DataHandleRanges>
        </Filesystem>";

    #[test]
    fn a_rule_is_read_where_orangefs_puts_it() {
        assert_eq!(Distribution::parse(STRIPED), Some(Distribution::Striped(64 << 10)));
        let basic = b"\x0a\0\0\0basic_dist\0\0";
        assert_eq!(Distribution::parse(basic), Some(Distribution::Basic));
        let other = b"\x0b\0\0\0twod_stripe\0";
        assert_eq!(Distribution::parse(other), Some(Distribution::Other("twod_stripe".to_owned())));
        assert_eq!(Distribution::parse(&STRIPED[..24]), None, "its parameter is missing");
        assert_eq!(Distribution::parse(b"\xff\xff\xff\xffsimple_stripe"), None);
    }

    #[test]
    fn strips_go_round_the_data_files() {
        let osts = [5, 2].map(OstId).to_vec();
        let layout = Distribution::Striped(64 << 10).layout(osts.clone()).unwrap();
        let places = [0, 65_535, 65_536, 131_072].map(|at| layout.ost_at(at).0);
        assert_eq!(places, [5, 5, 2, 5]);
        assert_eq!(Distribution::Basic.layout(osts.clone()), Some(Layout::on(OstId(5))));
        assert_eq!(Distribution::Other("varstrip_dist".to_owned()).layout(osts), None);
    }

    #[test]
    fn handles_are_read_one_after_the_other() {
        let bytes = [3u64, u64::MAX, 7].map(u64::to_ne_bytes).concat();
        assert_eq!(parse_handles(&bytes[..23]).collect::<Vec<_>>(), [3, u64::MAX]);
    }

    #[test]
    fn a_configuration_tells_which_server_holds_which_data() {
        let servers = parse_config(CONFIG, "orangefs");
        let names: Vec<_> =
            servers.iter().map(|it| (it.alias.as_str(), it.address.as_str())).collect();
        assert_eq!(names, [("io2", "tcp://10.0.0.2:3334"), ("io1", "tcp://io1:3334")]);
        assert_eq!(servers[0].handles, [6_917_529_027_641_081_856..=9_223_372_036_854_775_806]);
        assert!(servers[1].handles[1].contains(&47));
        assert_eq!(parse_config(CONFIG, "")[0].handles, [1..=9], "the first, if none is named");
        assert_eq!(parse_config(CONFIG, "third"), []);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let osts = vec![OstId(0); 3];
            let _ = Distribution::parse(&bytes).and_then(|it| it.layout(osts));
            prop_assert_eq!(parse_handles(&bytes).count(), bytes.len() / 8);
            let _ = parse_config(&String::from_utf8_lossy(&bytes), "");
        }

        #[test]
        fn any_configuration_is_read(
            lines in prop::collection::vec(
                "(<Filesystem>|</Filesystem>|<DataHandleRanges>|Name|Alias|Range)( [a-z0-9-]{0,9}){0,3}",
                0..20)) {
            let _ = parse_config(&lines.join("\n"), "a");
        }
    }
}
