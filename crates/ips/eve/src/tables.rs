//! Texts of rules that alerts show: message, class, metadata.

use std::collections::{BTreeMap, HashMap};

use millrace_ips_engine::detect::Names;
use millrace_ips_rules::RuleSet;
use millrace_ips_rules::files::Class;
use millrace_ips_rules::options::RuleOption;
use millrace_ips_rules::options::words::TextField;

/// The end of a packet that is attacked.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target {
    Source,
    Destination,
}

/// The texts of a rule that its alerts show.
#[derive(Debug, Clone, Default)]
pub(crate) struct RuleTexts {
    pub(crate) message: String,
    pub(crate) category: String,
    pub(crate) severity: u32,
    /// The end that is attacked.
    pub(crate) target: Option<Target>,
    /// Values by key.
    pub(crate) metadata: BTreeMap<String, Vec<String>>,
    /// Addresses and identifiers of pages about the rule's subject.
    pub(crate) references: Vec<String>,
    /// The rule itself; empty unless it was added.
    pub(crate) rule: String,
}

/// The texts of the rules of a set, by generator and number.
#[derive(Debug, Clone, Default)]
pub struct RuleTables {
    texts: HashMap<(u32, u32), RuleTexts>,
    /// Names of flow bits and of counters of flows.
    bits: Names,
}

/// The priority of a rule without class and priority.
const PRIORITY: u32 = 3;

impl RuleTables {
    /// Returns the texts of a rule set. `classes` gives a rule with a known class its description and
    /// priority.
    pub fn new(set: &RuleSet, classes: &BTreeMap<String, Class>) -> RuleTables {
        let texts = set.rules().iter().map(|loaded| {
            let rule = &loaded.parsed.rule;
            let mut texts = RuleTexts {
                message: rule.msg().unwrap_or_default().to_owned(),
                severity: PRIORITY,
                ..RuleTexts::default()
            };
            let mut priority = None;
            for option in &rule.options {
                match option {
                    RuleOption::Classtype(name) => match classes.get(name) {
                        Some(class) => {
                            texts.category.clone_from(&class.description);
                            texts.severity = class.priority;
                        }
                        None => texts.category.clone_from(name),
                    },
                    RuleOption::Text(TextField::Target, end) => {
                        texts.target = Some(match end.as_str() {
                            "src_ip" => Target::Source,
                            _ => Target::Destination,
                        });
                    }
                    RuleOption::Priority(number) => priority = Some(*number),
                    RuleOption::Metadata(pairs) => add_metadata(&mut texts.metadata, pairs),
                    _ => {}
                }
            }
            texts.severity = priority.unwrap_or(texts.severity);
            ((rule.gid(), rule.sid().unwrap_or_default()), texts)
        });
        RuleTables {
            texts: texts.collect(),
            bits: Names::default(),
        }
    }

    /// Adds the texts of the rules themselves and their references, which alerts with details show. `prefixes` has the beginnings of
    /// the addresses of reference systems.
    #[must_use]
    pub fn with_rules(mut self, set: &RuleSet, prefixes: &BTreeMap<String, String>) -> RuleTables {
        for loaded in set.rules() {
            let rule = &loaded.parsed.rule;
            let Some(texts) = self.texts.get_mut(&(rule.gid(), rule.sid().unwrap_or_default())) else {
                continue;
            };
            texts.rule = rule.to_string();
            let references = rule
                .options
                .iter()
                .filter_map(|option| reference(option, prefixes));
            texts.references = references.collect();
        }
        self
    }

    /// Adds the names of the flow bits and the counters of the compiled rules.
    #[must_use]
    pub fn with_bits(mut self, names: &Names) -> RuleTables {
        self.bits = names.clone();
        self
    }

    /// Returns the name of a flow bit; `None` for a number without one.
    pub(crate) fn bit(&self, bit: u32) -> Option<&str> {
        self.bits.bit(bit).strip_prefix("flow ")
    }

    /// Returns the name of a counter of flows; `None` for a number without one.
    pub(crate) fn counter(&self, counter: u32) -> Option<&str> {
        Some(self.bits.counter(counter)).filter(|name| !name.is_empty())
    }

    pub(crate) fn find(&self, gid: u32, sid: u32) -> Option<&RuleTexts> {
        self.texts.get(&(gid, sid))
    }
}

/// Returns the reference of an option: the address of a page, or `system,identifier` if the system has none.
fn reference(option: &RuleOption, prefixes: &BTreeMap<String, String>) -> Option<String> {
    let RuleOption::Reference { system, id } = option else {
        return None;
    };
    let known = prefixes
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(system))
        .map(|(_, prefix)| prefix.as_str());
    let prefix = known.or_else(|| system.eq_ignore_ascii_case("url").then_some("http://"));
    Some(match prefix {
        Some(_) if id.contains("://") => id.clone(),
        Some(prefix) => format!("{prefix}{id}"),
        None => format!("{system},{id}"),
    })
}

/// Adds pairs of key and value. A blank separates key and value.
fn add_metadata(metadata: &mut BTreeMap<String, Vec<String>>, pairs: &[String]) {
    for pair in pairs {
        let (key, value) = pair.split_once(' ').unwrap_or((pair, ""));
        let values = metadata.entry(key.trim().to_owned()).or_default();
        let value = value.trim().to_owned();
        if !values.contains(&value) {
            values.push(value);
        }
    }
}
