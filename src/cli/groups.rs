//! The commands by purpose, for the first screen of `onceway --help`.
//!
//! A test holds that each command stands here once, and that the screen has 80 columns.

use clap::Command;

/// Groups of commands, each with a few words.
const GROUPS: [(&str, &[(&str, &str)]); 5] = [
    ("Run", &[("serve", "one gateway of one region"), ("witness", "a third voter for two regions")]),
    (
        "Look",
        &[
            ("status", "is this gateway well, and who owns what?"),
            ("top", "all gateways, live"),
            ("doubts", "keys whose effect may or may not have happened"),
            ("jobs", "accepted requests that wait, and dead letters"),
            ("audit", "keys that ran at risk, or twice"),
            ("coverage", "changes of state that no key protects"),
            ("shadow", "what a gateway in shadow mode would have done"),
        ],
    ),
    (
        "Act",
        &[
            ("key", "look at one key; end its doubt by hand"),
            ("region", "drain, resume, rebuild; its standing"),
            ("takeover", "declare a region lost"),
            ("break-glass", "go on without a majority"),
            ("protocol", "end an upgrade"),
            ("approve", "approve what another operator asks for"),
        ],
    ),
    (
        "Prepare",
        &[
            ("new", "write the files of a new deployment"),
            ("check", "list every mistake in them"),
            ("config", "explain a setting"),
            ("certs", "make or revoke the regions' certificates"),
            ("store", "make a region's store, or check it"),
            ("init", "found the deployment, once"),
            ("ring", "look at the ring; change it"),
            ("completion", "completions for a shell"),
            ("man", "manual pages"),
        ],
    ),
    (
        "Rehearse",
        &[
            ("demo", "three regions on this machine, with a tour"),
            ("drill", "break three regions on purpose, and count effects"),
            ("sample-upstream", "a payments service to try with"),
            ("sample-postgres", "a Postgres to try with"),
        ],
    ),
];

/// Shows the commands of `cli` by group in its help.
pub fn shown(cli: Command) -> Command {
    let mut text = String::new();
    for (group, commands) in
        GROUPS.iter().take_while(|(group, _)| cfg!(feature = "lab") || *group != "Rehearse")
    {
        for (number, (name, words)) in commands.iter().enumerate() {
            let group = if number == 0 { group } else { "" };
            text.push_str(&format!("  {group:<9} {name:<16} {words}\n"));
        }
    }
    cli.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\nCommands:\n{text}\nOptions:\n{{options}}{{after-help}}"
    ))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn each_command_stands_in_one_group() {
        let cli = super::super::Cli::command();
        let visible = cli.get_subcommands().filter(|command| !command.is_hide_set());
        let mut commands: Vec<&str> = visible.map(Command::get_name).collect();
        let mut listed: Vec<&str> =
            GROUPS.iter().flat_map(|(_, all)| all.iter().map(|(name, _)| *name)).collect();
        commands.sort_unstable();
        listed.sort_unstable();
        assert_eq!(commands, listed);
        let help = shown(super::super::Cli::command()).render_help().to_string();
        assert!(help.lines().count() <= 40 && help.lines().all(|line| line.chars().count() <= 80), "{help}");
    }
}
