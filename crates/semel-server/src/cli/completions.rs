//! `semel completions`: completions for shells, and manual pages.

use std::path::{Path, PathBuf};

use clap::{CommandFactory as _, ValueEnum};
use clap_complete::Shell;

use super::Cli;
use super::exit::{Done, Exit, Failure};
use super::output::print;

/// Print completions for a shell, or write the manual pages.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  semel completions bash > ~/.local/share/bash-completion/completions/semel
  semel completions zsh > ~/.zfunc/_semel
  semel completions fish > ~/.config/fish/completions/semel.fish
  semel completions man --dir ~/.local/share/man/man1")]
pub(super) struct Completions {
    /// Shell to generate completions for; `man` for manual pages.
    kind: CompletionKind,
    /// Folder of the manual pages; it is created if it does not exist.
    #[arg(long, required_if_eq("kind", "man"), value_name = "FOLDER")]
    dir: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum CompletionKind {
    Bash,
    Elvish,
    Fish,
    #[value(name = "powershell")]
    PowerShell,
    Zsh,
    Man,
}

impl Completions {
    pub(super) fn execute(self) -> Done {
        let shell = match self.kind {
            CompletionKind::Bash => Shell::Bash,
            CompletionKind::Elvish => Shell::Elvish,
            CompletionKind::Fish => Shell::Fish,
            CompletionKind::PowerShell => Shell::PowerShell,
            CompletionKind::Zsh => Shell::Zsh,
            CompletionKind::Man => return manual(&self.dir.unwrap_or_default()),
        };
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut Cli::command(), "semel", &mut text);
        print(String::from_utf8_lossy(&text).trim_end())
    }
}

/// Writes one page per command.
fn manual(folder: &Path) -> Done {
    let written =
        std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(Cli::command(), folder));
    written.map_err(|error| {
        Failure::new(Exit::Failed, format!("cannot write manual pages to {}: {error}", folder.display()))
    })
}
