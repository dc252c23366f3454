//! `onceway completion` and `onceway man`: made from the commands' own definitions.

use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;
use serde_json::json;

use super::process::{Failure, print, tell};

/// Print a shell's completions of all commands and options.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  onceway completion bash > /etc/bash_completion.d/onceway
  onceway completion zsh > ~/.zfunc/_onceway                      a folder of fpath
  onceway completion fish > ~/.config/fish/completions/onceway.fish

Exit codes: 0 printed; 2 wrong arguments.")]
pub struct Completion {
    /// The shell.
    #[arg(value_name = "SHELL", value_parser = ["bash", "zsh", "fish"])]
    shell: String,
}

/// Print the manual page, or write one page for each command.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  onceway man | man -l -
  onceway man /usr/local/share/man/man1        onceway.1, onceway-region-drain.1 and so on

Exit codes: 0 printed or written; 1 a page could not be written; 2 wrong arguments.")]
pub struct Man {
    /// The folder to write all pages into; made if it does not exist.
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Print JSON: dir and pages.
    #[arg(long, requires = "dir")]
    json: bool,
}

impl Completion {
    /// Prints the completions of `cli`, the definition of all commands.
    pub fn run(&self, mut cli: Command) -> Result<(), Failure> {
        let shell = match self.shell.as_str() {
            "zsh" => Shell::Zsh,
            "fish" => Shell::Fish,
            _bash => Shell::Bash,
        };
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut cli, "onceway", &mut script);
        print(&String::from_utf8(script)?)
    }
}

impl Man {
    /// Prints or writes the pages of `cli`, the definition of all commands.
    pub fn run(&self, mut cli: Command) -> Result<(), Failure> {
        cli.build();
        let Some(dir) = &self.dir else {
            return print(&page(&cli)?);
        };
        let failed =
            |error: std::io::Error| Failure::Failed(format!("cannot write {}: {error}", dir.display()));
        std::fs::create_dir_all(dir).map_err(failed)?;
        let mut pages = Vec::new();
        each(&cli, &mut |command| {
            let name = format!("{}.1", command.get_display_name().unwrap_or_else(|| command.get_name()));
            std::fs::write(dir.join(&name), page(command)?).map_err(failed)?;
            pages.push(name);
            Ok(())
        })?;
        let text = format!("{}: {} pages\n", dir.display(), pages.len());
        tell(self.json, &json!({ "dir": dir, "pages": pages }), &text)
    }
}

/// Calls `what` for the command and all shown commands below it.
fn each(command: &Command, what: &mut impl FnMut(&Command) -> Result<(), Failure>) -> Result<(), Failure> {
    what(command)?;
    let shown = command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help");
    for below in shown {
        each(below, what)?;
    }
    Ok(())
}

fn page(command: &Command) -> Result<String, Failure> {
    let mut roff = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut roff)?;
    Ok(String::from_utf8(roff)?)
}
