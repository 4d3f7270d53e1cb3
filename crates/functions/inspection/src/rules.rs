//! The shared value of a hop: a compiled rule set with the texts of its rules.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_ips_engine::detect::{CompileSettings, Ruleset, compile};
use millrace_ips_eve::RuleTables;
use millrace_ips_rules::{RuleSet, Variables, files};
use millrace_nf::{Compiled, SharedKind, SharedValue};

use crate::bundle::{self, Bundle};

/// Refusals that the summary names.
const NAMED: usize = 3;

/// The settings from which rules are compiled.
pub(crate) const SETTINGS: &[(&str, &str)] = &[
    (
        "rules",
        "a file of rules, classifications, references, thresholds or reputations; may be given several times",
    ),
    (
        "syntax",
        "syntax of the files: suricata, snort2 or snort3 (suricata)",
    ),
    (
        "home_net",
        "addresses of the own network, the variable HOME_NET (any)",
    ),
    (
        "variable",
        "another variable of addresses or ports, NAME=VALUE; may be given several times",
    ),
    (
        "fewer_rules",
        "accept: files that have lost more than half of their rules are loaded; refuse: the rules in use stay (refuse)",
    ),
];

/// The functions that read and compile the rules of a hop.
pub(crate) const SHARED: SharedKind = SharedKind {
    settings: &["rules", "syntax", "home_net", "variable", "fewer_rules", "data"],
    read: bundle::read,
    compile: |bytes, previous| {
        let bundle = Bundle::parse(bytes).ok_or("the source is damaged")?;
        let previous = previous.and_then(SharedValue::get::<Rules>);
        let (rules, summary) = Rules::compile(&bundle, previous.as_deref())?;
        Ok(Compiled {
            value: SharedValue::new(rules),
            summary,
        })
    },
    // Expressions are compiled to machine code by PCRE2.
    generates_code: true,
};

/// The rules of a hop.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    pub(crate) ruleset: Ruleset,
    pub(crate) tables: Arc<RuleTables>,
    /// The names of the files.
    files: Vec<String>,
}

impl Rules {
    /// Compiles the rules of a bundle, and returns them with a line about them. `previous` is the set that they replace.
    pub(crate) fn compile(bundle: &Bundle, previous: Option<&Rules>) -> Result<(Rules, String), String> {
        let mut variables = Variables::usual();
        let mut set = RuleSet::default();
        let (mut classes, mut thresholds) = (BTreeMap::new(), Vec::new());
        let apply = |variables: &mut Variables| {
            bundle.variables.iter().try_for_each(|(name, value)| {
                let set = variables.set(name, value);
                set.map_err(|reason| format!("the variable {name}={value}: {reason}"))
            })
        };
        apply(&mut variables)?;
        for (name, text) in &bundle.files {
            let mut file = files::parse(bundle.syntax, name, text);
            for (variable, value) in &file.variables {
                let set = variables.set(variable, value);
                set.map_err(|reason| format!("{name}: the variable {variable}: {reason}"))?;
            }
            apply(&mut variables)?;
            classes.append(&mut file.classes);
            thresholds.append(&mut file.thresholds);
            set.add(name, file, &variables);
        }
        let settings = CompileSettings {
            variables,
            classes: classes.clone(),
            thresholds,
            data: bundle
                .data
                .iter()
                .map(|(file, name, text)| ((file.clone(), name.clone()), text.clone()))
                .collect(),
            previous: previous.map(|rules| rules.ruleset.numbers.clone()),
            ..CompileSettings::default()
        };
        let (ruleset, refusals) = compile(&set, &settings);
        let refused = set.refusals().len() + refusals.len();
        if ruleset.rules.is_empty() && refused > 0 {
            let first = set.refusals().iter().chain(&refusals).take(NAMED);
            let first: Vec<String> = first.map(ToString::to_string).collect();
            return Err(format!(
                "none of {refused} rules can be loaded: {}; `millrace ips check` names all reasons",
                first.join("; ")
            ));
        }
        let (len, from) = (ruleset.rules.len(), counted(bundle.files.len(), "file"));
        if len == 0 {
            return Err(format!(
                "no rules in {from}: expected at least one; `suricata-update` writes an empty file if it reaches no source"
            ));
        }
        let files: Vec<String> = bundle.files.iter().map(|(name, _)| name.clone()).collect();
        // Other files are another choice of the operator; the same files with fewer rules are an update that went wrong.
        if let Some(previous) = previous.filter(|previous| !bundle.accepts_fewer && previous.files == files) {
            let before = previous.ruleset.rules.len();
            if 2 * len < before {
                return Err(format!(
                    "{} from {from}, of {before} in use: expected at least half as many; the setting fewer_rules=accept loads them",
                    counted(len, "rule")
                ));
            }
        }
        let mut summary = format!(
            "{} from {}",
            counted(ruleset.rules.len(), "rule"),
            counted(bundle.files.len(), "file")
        );
        if refused > 0 {
            summary += &format!(", {refused} refused (`millrace ips check` names the reasons)");
        }
        let tables = Arc::new(RuleTables::new(&set, &classes).with_bits(&ruleset.names));
        let rules = Rules {
            ruleset,
            tables,
            files,
        };
        Ok((rules, summary))
    }
}

/// Returns a number of things in words: `1 rule`, `2 rules`.
fn counted(len: usize, thing: &str) -> String {
    let plural = if len == 1 { "" } else { "s" };
    format!("{len} {thing}{plural}")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use millrace_ips_rules::Syntax;

    use super::*;

    fn bundle(text: &str) -> Bundle {
        Bundle {
            syntax: Syntax::Suricata,
            accepts_fewer: false,
            variables: vec![("HOME_NET".to_owned(), "10.0.0.0/8".to_owned())],
            data: Vec::new(),
            files: vec![("a.rules".to_owned(), text.as_bytes().to_vec())],
        }
    }

    #[test]
    fn refused_rules_are_counted_and_a_set_of_none_is_an_error_with_reasons() {
        let good = "alert tcp any any -> $HOME_NET any (msg:\"x\"; content:\"abc\"; sid:1;)\n";
        let bad = "alert tcp any any -> any any (msg:\"x\"; nonsense:1; sid:2;)\n";
        let (rules, summary) = Rules::compile(&bundle(&format!("{good}{bad}")), None).unwrap();
        assert_eq!(rules.ruleset.rules.len(), 1);
        assert!(summary.starts_with("1 rule from 1 file, 1 refused"), "{summary}");
        let error = Rules::compile(&bundle(bad), None).unwrap_err();
        assert!(
            error.contains("a.rules:1") && error.contains("nonsense"),
            "{error}"
        );
    }

    #[test]
    fn no_rules_and_less_than_half_of_the_rules_in_use_are_refused_unless_told_otherwise() {
        let rule = |sid: u32| format!("alert tcp any any -> any any (content:\"abc\"; sid:{sid};)\n");
        let set = |len: u32| -> String { (1..=len).map(rule).collect() };
        for empty in ["", "# nothing\n", "\n\n"] {
            let error = Rules::compile(&bundle(empty), None).unwrap_err();
            assert!(error.starts_with("no rules in 1 file"), "{error}");
        }
        let (ten, _) = Rules::compile(&bundle(&set(10)), None).unwrap();
        assert!(Rules::compile(&bundle(&set(5)), Some(&ten)).is_ok());
        let error = Rules::compile(&bundle(&set(4)), Some(&ten)).unwrap_err();
        assert!(error.contains("4 rules from 1 file, of 10 in use"), "{error}");
        let accepting = Bundle {
            accepts_fewer: true,
            ..bundle(&set(4))
        };
        assert!(Rules::compile(&accepting, Some(&ten)).is_ok());
        // No rules are never accepted: they would be a chain that forwards everything.
        let nothing = Bundle {
            accepts_fewer: true,
            ..bundle("")
        };
        assert!(Rules::compile(&nothing, Some(&ten)).is_err());
        let mut other = bundle(&set(4));
        other.files[0].0 = "b.rules".to_owned();
        assert!(
            Rules::compile(&other, Some(&ten)).is_ok(),
            "other files are another choice"
        );
    }

    #[test]
    fn numbers_of_bits_stay_when_rules_are_replaced() {
        let set = |bit: &str, sid: u32| {
            format!("alert tcp any any -> any any (content:\"abc\"; flowbits:set,{bit}; sid:{sid};)\n")
        };
        let (first, _) = Rules::compile(&bundle(&(set("a", 1) + &set("b", 2))), None).unwrap();
        let (second, _) = Rules::compile(&bundle(&(set("c", 3) + &set("b", 2))), Some(&first)).unwrap();
        let number = |rules: &Rules, bit: &str| {
            let mut bits = rules.ruleset.numbers.bits.iter();
            bits.find(|(name, _)| name.ends_with(bit))
                .map(|(_, number)| *number)
        };
        assert!(number(&first, "b").is_some());
        assert_eq!(number(&first, "b"), number(&second, "b"));
        assert_ne!(number(&first, "a"), number(&second, "c"));
        assert_eq!(
            second.ruleset.numbers.generation,
            first.ruleset.numbers.generation + 1
        );
    }
}
