//! Hints that a user gives in one text, for programs that give none.

/// Keys and values of `key=value;key=value`; what has no `=` is left out.
pub fn pairs(told: &str) -> impl Iterator<Item = (&str, &str)> {
    let pairs = told.split(';').filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.trim(), value.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_taken_apart() {
        let told = "rfs_ssh=ssh -o A=b ; rfs_timeout = 5;nothing;";
        let expected = [("rfs_ssh", "ssh -o A=b"), ("rfs_timeout", "5")];
        assert_eq!(pairs(told).collect::<Vec<_>>(), expected);
        assert_eq!(pairs("").count(), 0);
    }
}
