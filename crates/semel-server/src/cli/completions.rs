//! `semel completions`.

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::Cli;
use super::exit::Done;
use super::output::print;

/// Print completions for a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  semel completions bash > ~/.local/share/bash-completion/completions/semel
  semel completions zsh > ~/.zfunc/_semel
  semel completions fish > ~/.config/fish/completions/semel.fish")]
pub(super) struct Completions {
    /// For which shell.
    shell: Shell,
}

impl Completions {
    pub(super) fn execute(self) -> Done {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "semel", &mut text);
        print(String::from_utf8_lossy(&text).trim_end())
    }
}
