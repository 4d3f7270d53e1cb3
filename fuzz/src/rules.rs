//! Rules of intrusion prevention, in three syntaxes.

use millrace_ips_rules::suricata_yaml::SuricataYaml;
use millrace_ips_rules::{Rule, RuleSet, Syntax, Variables, files};

/// Reads the bytes as a rule file in each syntax, and as a suricata.yaml.
///
/// Properties: a refusal is a message that names the file; what is accepted is printed so that it is read as the same rule.
pub(crate) fn text(bytes: &[u8]) {
    for syntax in [Syntax::Suricata, Syntax::Snort2, Syntax::Snort3] {
        let file = files::parse(syntax, "f", bytes);
        for parsed in file.rules.iter().chain(&file.disabled) {
            let printed = parsed.rule.to_string();
            let again = Rule::parse(syntax, "printed", &printed)
                .unwrap_or_else(|refusal| panic!("printed, and refused: {refusal}\n{printed}"));
            assert_eq!(again, parsed.rule, "{printed}");
            assert!(!millrace_ips_rules::explain::explain(&parsed.rule).is_empty());
        }
        let mut variables = Variables::usual();
        for (name, value) in &file.variables {
            // A wrong value is refused, and the variable keeps the one before.
            let _ = variables.set(name, value);
        }
        let mut set = RuleSet::default();
        set.add("f", file, &variables);
        for refusal in set.refusals() {
            assert!(refusal.to_string().starts_with("f:"));
        }
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = SuricataYaml::parse(text);
    }
}
