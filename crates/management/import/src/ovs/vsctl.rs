//! The command line of ovs-vsctl(8): global options, and commands with `--` between them.

/// A command of ovs-vsctl.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Subcommand {
    /// `--may-exist`, `--id=@port`.
    pub(super) options: Vec<String>,
    pub(super) name: String,
    pub(super) arguments: Vec<String>,
}

impl Subcommand {
    pub(super) fn has(&self, option: &str) -> bool {
        self.options.iter().any(|given| given == option)
    }

    /// Returns the name that `--id` gives.
    pub(super) fn id(&self) -> Option<&str> {
        self.options
            .iter()
            .find_map(|option| option.strip_prefix("--id="))
    }
}

/// Global options that take a value as a word of its own, unless it follows `=`.
const WITH_VALUE: [&str; 10] = [
    "--db",
    "--timeout",
    "-t",
    "--format",
    "-f",
    "--data",
    "-d",
    "--private-key",
    "--certificate",
    "--ca-cert",
];

/// Global options without a value.
const GLOBAL: [&str; 16] = [
    "--no-wait",
    "--no-syslog",
    "--oneline",
    "--retry",
    "--dry-run",
    "--no-headings",
    "--pretty",
    "--bare",
    "--verbose",
    "-v",
    "-V",
    "--version",
    "-h",
    "--help",
    "--syslog-method",
    "--log-file",
];

/// Returns the commands of a call, without the name of the program, and true if the call changes nothing (`--dry-run`, `--help`).
pub(super) fn subcommands(words: &[String]) -> (Vec<Subcommand>, bool) {
    let mut rest = words;
    let mut is_without_effect = false;
    while let [word, more @ ..] = rest {
        let name = word.split('=').next().unwrap_or(word);
        let is_verbosity = word.starts_with("-v") || word.starts_with("--verbose");
        if WITH_VALUE.contains(&name) && word.starts_with('-') {
            rest = if word.contains('=') {
                more
            } else {
                more.get(1..).unwrap_or_default()
            };
        } else if GLOBAL.contains(&name) || is_verbosity {
            is_without_effect |= matches!(name, "--dry-run" | "--help" | "-h" | "-V" | "--version");
            rest = more;
        } else {
            break;
        }
    }
    let parts = rest.split(|word| word == "--").filter(|part| !part.is_empty());
    let subcommands = parts.map(|part| {
        let options = part.iter().take_while(|word| word.starts_with("--")).count();
        let (options, rest) = part.split_at(options);
        let (name, arguments) = match rest {
            [name, arguments @ ..] => (name.clone(), arguments.to_vec()),
            [] => (String::new(), Vec::new()),
        };
        Subcommand {
            options: options.to_vec(),
            name,
            arguments,
        }
    });
    (subcommands.collect(), is_without_effect)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn global_options_and_those_of_commands_are_told_apart() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let (found, _) = subcommands(&words(
            "--db unix:/s -t 5 --no-wait --may-exist add-br br0 -- --id=@p get Port p1 -- set Bridge br0 mirrors=@m",
        ));
        let names: Vec<_> = found.iter().map(|command| command.name.as_str()).collect();
        assert_eq!(names, ["add-br", "get", "set"]);
        assert!(found[0].has("--may-exist"));
        assert_eq!(found[1].id(), Some("@p"));
        assert!(subcommands(&words("--dry-run del-br br0")).1);
    }
}
