//! How the other end is started and reached.

use lads_core::issue::Side;
use std::path::Path;

/// How the other end is started and reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteShell {
    /// The command that runs a command on another host, `ssh` by default. The host and the command
    /// are appended.
    pub command: Vec<String>,
    /// The name or path of the `lads` program there. `None`: it is looked for, and is sent if it
    /// is not there and [`Self::deploys`].
    pub lads: Option<String>,
    /// Whether LADS is sent to a host that does not have it.
    pub deploys: bool,
    /// Use of the remote shell for data, too, instead of separate connections.
    pub tunnel: Tunnel,
    /// The address to which data streams connect, instead of the addresses of the host; `host:port`
    /// if another port is forwarded to the one there. If the other end connects, the default is the
    /// address from which the remote shell came.
    pub data_address: Option<String>,
    /// The TCP ports on which an end may listen for data, first and last; any by default.
    pub ports: Option<(u16, u16)>,
    /// The end that connects the data streams; `None`: the one that this process is.
    pub connects: Option<Side>,
    /// How long the command may be silent at first, in seconds. `None`: with ssh 300, the time to
    /// connect and to ask a user for a password; with any other command as long as any peer may
    /// be silent ([`super::Options::timeout_seconds`]).
    pub connect_timeout_seconds: Option<u32>,
}

/// Use of the remote shell for data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tunnel {
    /// If no separate connection can be opened.
    #[default]
    IfBlocked,
    /// Always.
    Always,
    /// Never: a transfer without separate connections fails.
    Never,
}

impl Default for RemoteShell {
    fn default() -> Self {
        Self {
            command: vec!["ssh".to_owned()],
            lads: None,
            deploys: true,
            tunnel: Tunnel::IfBlocked,
            data_address: None,
            ports: None,
            connects: None,
            connect_timeout_seconds: None,
        }
    }
}

impl RemoteShell {
    /// The same for a host that is reached through its daemon, which `program`, which is LADS,
    /// connects to. LADS is there, and no shell.
    #[must_use]
    pub fn dialing(self, program: &Path) -> Self {
        let command = vec![program.to_string_lossy().into_owned(), "dial".to_owned()];
        Self { command, lads: None, deploys: false, ..self }
    }

    /// Splits a command into words at blanks, as a shell does: quotes keep blanks in a word, and a
    /// backslash keeps the next character.
    ///
    /// # Errors
    /// If a quote is never closed, or there is no word; the text goes on from the name of what was
    /// given.
    pub fn words(command: &str) -> Result<Vec<String>, String> {
        let mut words = Vec::new();
        let mut word: Option<String> = None;
        let mut letters = command.chars();
        while let Some(letter) = letters.next() {
            match letter {
                ' ' | '\t' | '\n' => words.extend(word.take()),
                '\'' | '"' => {
                    let word = word.get_or_insert_default();
                    loop {
                        match letters.next() {
                            Some(end) if end == letter => break,
                            Some(letter) => word.push(letter),
                            None => return Err(format!("has a {letter} that is never closed")),
                        }
                    }
                }
                '\\' => word.get_or_insert_default().extend(letters.next()),
                _ => word.get_or_insert_default().push(letter),
            }
        }
        words.extend(word);
        if words.is_empty() { Err("is empty".to_owned()) } else { Ok(words) }
    }
}
