//! What is wrong, and what a person can do about it.

/// A problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    /// What is wrong, where.
    pub(super) what: String,
    /// What to do.
    pub(super) todo: String,
}

impl Problem {
    pub(super) fn new(what: impl Into<String>, todo: impl Into<String>) -> Self {
        Self { what: what.into(), todo: todo.into() }
    }
}

/// For a command that cannot go on.
impl From<Problem> for anyhow::Error {
    fn from(problem: Problem) -> Self {
        Self::msg(format!("{}\n{}", problem.what, problem.todo))
    }
}

/// A word of a shell, quoted if need be.
pub(super) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:=,@%".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_back_what_was_quoted() {
        for word in ["plain/word.so", "two words", "it's", "$HOME `x`", ""] {
            let script = format!("printf %s {}", quoted(word));
            let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), word);
        }
    }
}
