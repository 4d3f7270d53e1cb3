//! `millrace ips import`: the rule files and variables of a suricata.yaml, as a hop of a chain and as a command.

use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use millrace_ips_rules::suricata_yaml::SuricataYaml;
use serde::Serialize;

use crate::output::Session;

/// The largest suricata.yaml, in bytes.
const SIZE_MAX: u64 = 16 << 20;

/// The settings of a suricata.yaml.
#[derive(Debug, Serialize)]
struct Imported {
    rule_files: Vec<String>,
    classification_file: Option<String>,
    reference_file: Option<String>,
    threshold_file: Option<String>,
    /// Names and values, in the order of the file.
    variables: Vec<(String, String)>,
    /// Lines with values of these settings that are not understood, as `LINE: TEXT`.
    ignored: Vec<String>,
}

pub(super) fn run(session: &Session, file: &Path) -> Result<()> {
    let name = file.display().to_string();
    let mut bytes = Vec::new();
    File::open(file)
        .and_then(|file| file.take(SIZE_MAX + 1).read_to_end(&mut bytes))
        .with_context(|| format!("cannot read {name}"))?;
    if bytes.len() as u64 > SIZE_MAX {
        bail!(
            "{name}: more than {} MiB; expected a suricata.yaml",
            SIZE_MAX >> 20
        );
    }
    let text = String::from_utf8(bytes).ok();
    let yaml =
        SuricataYaml::parse(&text.with_context(|| format!("{name} is not UTF-8; expected a suricata.yaml"))?);
    if yaml.rule_files.is_empty() && yaml.variables.is_empty() {
        bail!("{name} has neither rule-files nor vars; expected a suricata.yaml");
    }
    session.print(&Imported::new(yaml), |imported| imported.toml(&name))
}

impl Imported {
    fn new(yaml: SuricataYaml) -> Imported {
        let folder = PathBuf::from(yaml.rule_path.unwrap_or_default());
        // If `file` is absolute, `join` ignores the folder.
        let path = |file: &String| folder.join(file).display().to_string();
        Imported {
            rule_files: yaml.rule_files.iter().map(path).collect(),
            classification_file: yaml.classification_file,
            reference_file: yaml.reference_file,
            threshold_file: yaml.threshold_file,
            variables: yaml.variables,
            ignored: yaml.ignored,
        }
    }

    /// Returns the paths of all files. Tables, such as classifications, precede the rules that use them.
    fn files(&self) -> Vec<&str> {
        let tables = [
            &self.classification_file,
            &self.reference_file,
            &self.threshold_file,
        ];
        let tables = tables.into_iter().flatten();
        tables.chain(&self.rule_files).map(String::as_str).collect()
    }

    /// Returns a comment with the command that checks the rules, and a hop with the settings, in TOML.
    fn toml(&self, name: &str) -> String {
        // A JSON string is also a basic string of TOML.
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let shell = |text: &str| format!("'{}'", text.replace('\'', r"'\''"));
        let mut text = format!("# Rules and variables of {name}. To check them:\n# millrace ips check");
        // Writing to a string does not fail.
        for file in self.files() {
            let _ = write!(text, " {}", shell(file));
        }
        for (variable, value) in &self.variables {
            let _ = write!(text, " --set {}", shell(&format!("{variable}={value}")));
        }
        text.push('\n');
        for line in &self.ignored {
            let _ = writeln!(text, "# not understood: line {line}");
        }
        text += "\n[[bridge.chain.hop]]\nname = \"ips\"\nfunction = \"ips\"\nsettings = [\n";
        for file in self.files() {
            let _ = writeln!(text, "  {},", quoted(&format!("rules={file}")));
        }
        for (variable, value) in &self.variables {
            let setting = match variable.as_str() {
                "HOME_NET" => format!("home_net={value}"),
                _ => format!("variable={variable}={value}"),
            };
            let _ = writeln!(text, "  {},", quoted(&setting));
        }
        text + "]\n"
    }
}
