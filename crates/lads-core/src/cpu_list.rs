//! Processors on which an end runs, if the user chooses them (`pin`).

/// Value of the setting `pin`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pin {
    /// These processors, by the numbers that the kernel gives them; in order, each once.
    Cpus(Vec<u32>),
    /// The processors of this NUMA node.
    Node(u32),
}

/// No host has more processors than this: a longer list is a mistake, and would take memory.
const CPUS_MAX: u32 = 1 << 16;

impl Pin {
    /// Reads `0-3,8` or `node:1`.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let pin = match text.strip_prefix("node:") {
            Some(node) => number(node).map(Self::Node),
            None => cpus(text).filter(|cpus| !cpus.is_empty()).map(Self::Cpus),
        };
        pin.ok_or_else(|| "write processors like 0-3,8, or node:0 for those of a NUMA node".into())
    }
}

/// The processors in a list, as the kernel writes it: `0-3,8`. In order, each once.
#[must_use]
pub fn cpus(list: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in list.trim().split(',').filter(|_| !list.trim().is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return None;
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Some(cpus)
}

/// Only digits: the standard library also takes a plus.
fn number(text: &str) -> Option<u32> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|&number| is_number && number < CPUS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_named_by_number_range_or_node() {
        assert_eq!(Pin::parse("8,0-3,2"), Ok(Pin::Cpus(vec![0, 1, 2, 3, 8])));
        assert_eq!(Pin::parse("5"), Ok(Pin::Cpus(vec![5])));
        assert_eq!(Pin::parse("node:1"), Ok(Pin::Node(1)));
        assert_eq!(cpus("0-1\n"), Some(vec![0, 1]));
        assert_eq!(cpus("\n"), Some(vec![]), "a node that has memory only");
    }

    #[test]
    fn nonsense_is_refused() {
        for text in
            ["", ",", "0,", "3-1", "a", "-1", "1-", "0-99999999", "+1", "node:", "node:x", "0 1"]
        {
            assert!(Pin::parse(text).is_err(), "{text}");
        }
    }
}
