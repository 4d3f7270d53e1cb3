//! Variables and file names from a `suricata.yaml`.
//!
//! Only a part of YAML is read, which is enough for these settings: mappings and lists by indentation, plain
//! and quoted scalars.

use crate::limits;

/// The settings of a `suricata.yaml` that rules need.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SuricataYaml {
    /// `vars.address-groups` and `vars.port-groups`.
    pub variables: Vec<(String, String)>,
    /// `default-rule-path`.
    pub rule_path: Option<String>,
    /// `rule-files`.
    pub rule_files: Vec<String>,
    /// `classification-file`.
    pub classification_file: Option<String>,
    /// `reference-config-file`.
    pub reference_file: Option<String>,
    /// `threshold-file`.
    pub threshold_file: Option<String>,
    /// Lines of these settings that were not understood, as LINE: TEXT.
    pub ignored: Vec<String>,
}

/// Returns a scalar without its quotes and without a comment after it.
fn scalar(text: &str) -> &str {
    let text = text.trim();
    for quote in ['"', '\''] {
        if let Some(rest) = text.strip_prefix(quote) {
            return rest.split(quote).next().unwrap_or_default();
        }
    }
    text.split(" #").next().unwrap_or_default().trim_end()
}

impl SuricataYaml {
    /// Reads the file.
    pub fn parse(text: &str) -> SuricataYaml {
        let mut found = SuricataYaml::default();
        // The keys above the current line, each with its indentation.
        let mut path: Vec<(usize, &str)> = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let inner = line.trim_start();
            if inner.is_empty() || inner.starts_with(['#', '%']) || inner.starts_with("---") {
                continue;
            }
            let indent = line.len() - inner.len();
            if inner.starts_with("- ") && matches!(path[..], [(_, "include")]) {
                found.ignored.push(format!("{}: include: {inner}", number + 1));
                continue;
            }
            if let Some(item) = inner.strip_prefix("- ") {
                // The items of a list may have the same indentation as their key.
                while path.last().is_some_and(|(before, _)| *before > indent) {
                    path.pop();
                }
                if matches!(path[..], [(_, "rule-files")]) && found.rule_files.len() < limits::LIST_LEN {
                    found.rule_files.push(scalar(item).to_owned());
                }
                continue;
            }
            while path.last().is_some_and(|(before, _)| *before >= indent) {
                path.pop();
            }
            let Some((key, value)) = inner.split_once(':') else {
                if matches!(path.first(), Some((_, "vars" | "rule-files"))) {
                    found.ignored.push(format!("{}: {inner}", number + 1));
                }
                continue;
            };
            let (key, value) = (key.trim().trim_matches('"'), scalar(value));
            if path.len() < limits::NESTING {
                path.push((indent, key));
            }
            found.setting(&path, value, number + 1);
        }
        found
    }

    fn setting(&mut self, path: &[(usize, &str)], value: &str, line: usize) {
        let own = || Some(value.to_owned());
        match path {
            [(_, "vars"), (_, "address-groups" | "port-groups"), (_, name)] => {
                if value.is_empty() || value.starts_with(['|', '>', '&', '*']) {
                    self.ignored.push(format!("{line}: {name}: {value}"));
                } else {
                    self.variables.push(((*name).to_owned(), value.to_owned()));
                }
            }
            [(_, "default-rule-path")] => self.rule_path = own(),
            [(_, "classification-file")] => self.classification_file = own(),
            [(_, "reference-config-file")] => self.reference_file = own(),
            [(_, "threshold-file")] => self.threshold_file = own(),
            [(_, "include")] => self.ignored.push(format!("{line}: include: {value}")),
            _ => {}
        }
    }
}
