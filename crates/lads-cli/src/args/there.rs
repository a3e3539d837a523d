//! Commands that LADS runs on the host of their operands, and the hidden option for that.

use clap::{Arg, ArgAction, Command};

/// Names of the commands about storage, and of their operands.
pub(crate) const COMMANDS: [(&str, &str); 6] = [
    ("ls", "paths"),
    ("layout", "paths"),
    ("osts", "path"),
    ("probe", "path"),
    ("clean", "directory"),
    ("bench", "paths"),
];

/// Hidden option of commands that run on the host of their paths: patterns and `~` in paths are
/// expanded, and colons are parts of names.
pub(crate) const EXPAND: &str = "expand-paths";

/// Reports whether a command has the hidden option.
pub(crate) fn can_expand(name: &str) -> bool {
    name == "cp" || COMMANDS.iter().any(|(command, _)| *command == name)
}

/// Adds the hidden option to all commands that can have it.
pub(super) fn with_expansion(command: Command) -> Command {
    command.mut_subcommands(|it| match can_expand(it.get_name()) {
        true => it.arg(Arg::new(EXPAND).long(EXPAND).action(ArgAction::SetTrue).hide(true)),
        false => it,
    })
}
