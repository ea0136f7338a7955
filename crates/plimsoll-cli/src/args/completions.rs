//! Arguments of what is generated from the arguments themselves.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use clap_complete::Shell;

/// Completions for a shell.
#[derive(Debug, ClapArgs)]
pub struct Completions {
    /// The shell.
    pub shell: Shell,
}

/// Manual pages.
#[derive(Debug, ClapArgs)]
pub struct Manual {
    /// The folder of the pages, which is created if it does not exist, like ~/.local/share/man/man1.
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Replace pages of commands that exist.
    #[arg(long)]
    pub overwrite: bool,
}
