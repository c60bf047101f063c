//! `esker completions` and `esker man`: what a shell and `man` know of the command line.

use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;

use esker_command::exit::{Failure, Outcome};
use esker_command::output;

const COMPLETIONS: &str = "\
Examples:
  # For this user, from the next shell on
  esker completions bash > ~/.local/share/bash-completion/completions/esker
  esker completions fish > ~/.config/fish/completions/esker.fish";

const MAN: &str = "\
Examples:
  # Then: man esker-log-append
  esker man ~/.local/share/man/man1";

/// Arguments of `esker completions`.
#[derive(Debug, Args)]
#[command(after_help = COMPLETIONS)]
pub struct CompletionsArguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Arguments of `esker man`.
#[derive(Debug, Args)]
#[command(after_help = MAN)]
pub struct ManArguments {
    /// The directory of the pages; created if missing
    dir: PathBuf,
}

/// Prints the completions of all commands for a shell.
pub fn completions(arguments: &CompletionsArguments, mut commands: Command) -> Outcome {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut commands, "esker", &mut text);
    output::print(&String::from_utf8_lossy(&text))
}

/// Writes a page for each command. Pages that are there are replaced.
pub fn man(arguments: &ManArguments, commands: Command) -> Outcome {
    let dir = &arguments.dir;
    let named = |sub: Command| {
        let name = format!("esker log offsets <DIR> {}", sub.get_name());
        sub.bin_name(name)
    };
    // A page has the arguments of its own command, and these come after one of their parent.
    let commands = commands.mut_subcommand("log", |log| {
        log.mut_subcommand("offsets", |offsets| offsets.mut_subcommands(named))
    });
    std::fs::create_dir_all(dir)
        .and_then(|()| clap_mangen::generate_to(commands, dir))
        .map_err(|error| Failure::from_io(format_args!("write {}", dir.display()), &error))
}
