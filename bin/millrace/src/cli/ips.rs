//! `millrace ips`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use millrace_ips_rules::Syntax;

/// Intrusion prevention.
#[derive(Debug, Subcommand)]
pub(crate) enum Ips {
    /// Check rule files: count the rules that load, and name each that is refused, with the reason
    #[command(
        after_help = "The variables that rule sets usually name have values: `any` for networks, the registered port for \
        services. Examples:\n  \
        millrace ips check emerging-all.rules --set HOME_NET=10.0.0.0/8 --set 'EXTERNAL_NET=!$HOME_NET'\n  \
        millrace ips check snort.rules --syntax snort2 --strict\n  \
        millrace ips check suricata.rules threshold.config --json"
    )]
    Check {
        #[command(flatten)]
        rules: RuleArgs,
        /// Files of rules, classifications, references or thresholds
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Fail if a rule is refused
        #[arg(long)]
        strict: bool,
        /// Print at most so many refusals
        #[arg(long, value_name = "COUNT", default_value_t = 20)]
        most: usize,
    },
    /// Explain a rule in plain words, option by option
    Explain {
        /// The number of the rule
        sid: u32,
        #[command(flatten)]
        rules: RuleArgs,
        /// File with the rule
        #[arg(long = "rules", required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Print the variables and rule files of a suricata.yaml as TOML
    Import {
        /// The suricata.yaml
        file: PathBuf,
    },
}

/// Options about the reading of rules.
#[derive(Debug, Args)]
pub(crate) struct RuleArgs {
    /// Syntax of the files: suricata, snort2 or snort3
    #[arg(long, default_value = "suricata")]
    pub(crate) syntax: Syntax,
    /// Set a variable of addresses or ports
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub(crate) variables: Vec<String>,
}
