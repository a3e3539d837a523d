//! Prints shell completions. They are generated from the table of the command line, and then taught
//! about other hosts.
//!
//! The generated scripts offer local files for each path. A word with a colon before any slash
//! names a path on another host (`host:path`): paths there are offered, if the host can be reached
//! without a question to the user and has LADS.

use crate::args::{self, CompletionsArgs};
use anyhow::{Context, Result};
use clap_complete::Shell;
use std::io::{self, Write};

/// Commands whose paths may be on another host. The scripts below name the same.
#[cfg(test)]
const WITH_HOSTS: [&str; 9] =
    ["cp", "check", "bench", "ls", "layout", "osts", "probe", "clean", "mpi"];

/// Replaces the completion function. readline breaks words at colons, so the word is taken from
/// the line.
const BASH: &str = r#"
_lads_is_remote() {
    local line=${COMP_LINE:0:COMP_POINT}
    line=${line//\\?/_}
    local word=${line##*[[:space:]]}
    case "${COMP_WORDS[1]}" in
        cp | check | bench | ls | layout | osts | probe | clean | mpi)
            [[ "$word" == [!:/]*:* && "${word%%:*}" != */* ]] ;;
        *) return 1 ;;
    esac
}

_lads_with_hosts() {
    if _lads_is_remote; then
        local line=${COMP_LINE:0:COMP_POINT}
        line=${line//\\ /$'\001'}
        local word=${line##*[[:space:]]}
        word=${word//$'\001'/ }
        local IFS=$'\n'
        COMPREPLY=( $(command lads complete "$word" 2>/dev/null) )
        [[ "$COMP_WORDBREAKS" == *:* ]] && COMPREPLY=( "${COMPREPLY[@]#*:}" )
        compopt +o default +o bashdefault -o filenames -o nospace
    else
        _lads "$@"
    fi
}

if (( BASH_VERSINFO[0] > 4 || (BASH_VERSINFO[0] == 4 && BASH_VERSINFO[1] >= 4) )); then
    complete -F _lads_with_hosts -o nosort -o bashdefault -o default lads
else
    complete -F _lads_with_hosts -o bashdefault -o default lads
fi
"#;

/// Completes paths in place of zsh's own function.
const ZSH: &str = r#"
_lads_paths() {
    if [[ "$words[1]" == (cp|check|bench|ls|layout|osts|probe|clean) ]] &&
        [[ "$PREFIX" == [^:/]*:* && "${PREFIX%%:*}" != */* ]]; then
        local -a found=(${(f)"$(command lads complete "${(Q)PREFIX}" 2>/dev/null)"})
        compadd -S '' -- $found
    else
        _files
    fi
}
"#;

/// Switches files off for such words.
const FISH: &str = r#"
function __fish_lads_is_remote
    __fish_lads_using_subcommand cp check bench ls layout osts probe clean mpi
    and string match -qr '^[^/:]+:' -- (commandline -ct)
end
function __fish_lads_there
    command lads complete (commandline -ct) 2>/dev/null
end
complete -c lads -n __fish_lads_is_remote -f -a '(__fish_lads_there)'
"#;

/// Prints completions for a shell.
pub(crate) fn print(args: &CompletionsArgs) -> Result<()> {
    io::stdout().write_all(script(args.shell)?.as_bytes()).context("cannot write to stdout")
}

fn script(shell: Shell) -> Result<String> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut args::offered_command(), "lads", &mut script);
    let script = String::from_utf8(script).context("a completion script is not text")?;
    Ok(match shell {
        Shell::Bash => script + BASH,
        Shell::Zsh => with_function(&script),
        Shell::Fish => script + FISH,
        _ => script,
    })
}

/// Returns the script for zsh with [`ZSH`] at its beginning, after the line for `compinit`, and its
/// function in use for paths.
fn with_function(script: &str) -> String {
    let (first, rest) = script.split_once('\n').unwrap_or((script, ""));
    let lines = rest.lines().map(|line| match line.starts_with("'*::paths -- ") {
        true => line.replace(":_files'", ":_lads_paths'"),
        false => line.to_owned(),
    });
    format!("{first}\n{ZSH}{}\n", lines.collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `promises/completions.rs` tries the scripts in real shells.
    #[test]
    fn all_scripts_are_adapted_to_the_present_commands() {
        let command = args::command();
        for name in WITH_HOSTS {
            assert!(command.find_subcommand(name).is_some(), "{name}");
        }
        let zsh = script(Shell::Zsh).unwrap();
        assert!(zsh.starts_with("#compdef lads\n\n_lads_paths() {\n"), "{zsh}");
        let (ours, theirs) =
            (zsh.matches(":_lads_paths'").count(), zsh.matches("::paths -- ").count());
        assert!(ours == theirs && ours >= 3, "{ours} of {theirs}");
        for (shell, added) in [(Shell::Bash, BASH), (Shell::Fish, FISH)] {
            assert!(script(shell).unwrap().ends_with(added), "{shell}");
        }
    }
}
