//! Settings of the compilation.

use std::collections::BTreeMap;

use millrace_ips_rules::Variables;
use millrace_ips_rules::files::{Class, Threshold};
use millrace_ips_scan::Backend;

use crate::detect::numbers::Numbers;

/// Settings of the compilation.
#[derive(Debug, Clone)]
pub struct CompileSettings {
    /// The variables of addresses and ports.
    pub variables: Variables,
    /// Classes by name, which give rules their priority.
    pub classes: BTreeMap<String, Class>,
    /// Rows of the threshold table.
    pub thresholds: Vec<Threshold>,
    /// The files that options of rules name ([`RuleSet::data_files`](millrace_ips_rules::RuleSet::data_files)): the contents by the name of the rule file and the name
    /// in the rule.
    pub data: BTreeMap<(String, String), Vec<u8>>,
    /// The numbers of the previous rule set. They are kept, so that the state of flows stays valid.
    pub previous: Option<Numbers>,
    /// The back end of the prefilter. Without one every rule is evaluated, which is slow and gives the same
    /// alerts.
    pub prefilter: Option<Backend>,
}

impl Default for CompileSettings {
    fn default() -> CompileSettings {
        CompileSettings {
            variables: Variables::usual(),
            classes: BTreeMap::new(),
            thresholds: Vec::new(),
            data: BTreeMap::new(),
            previous: None,
            prefilter: Some(Backend::default()),
        }
    }
}
