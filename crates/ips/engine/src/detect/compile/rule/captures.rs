//! The groups of an expression that records show: the variables behind its flags, and groups whose names begin with a scope.
//!
//! ```text
//!  pcre:"/(a+)(b+)/, flow:NAME, alert:NAME";      the first group, the second group
//!  pcre:"/(a+)=(b+)/, pkt:key, pkt:value";        the name, and the value
//!  pcre:"/(?P<flow_NAME>a+)/";
//! ```

use std::ffi::CString;

use millrace_ips_pcre::{GROUPS, Regex};
use millrace_ips_rules::options::content::Pcre;

use crate::detect::program::{Capture, CaptureName, CaptureScope};

/// The scopes by the words of rules.
const SCOPES: [(&str, CaptureScope); 3] = [
    ("flow", CaptureScope::Flow),
    ("pkt", CaptureScope::Packet),
    ("alert", CaptureScope::Alert),
];

/// Returns the groups of an expression that records show.
pub(super) fn captures(pcre: &Pcre, regex: &Regex) -> Box<[Capture]> {
    if pcre.is_negated {
        return Box::default();
    }
    let most = regex.groups().min(GROUPS);
    let listed = pcre
        .variables
        .iter()
        .zip(1..=most)
        .filter_map(|(variable, group)| {
            let (word, name) = variable.split_once(':')?;
            Some(Capture {
                group,
                scope: scope(word)?,
                name: match (word, name) {
                    ("pkt", "key") => CaptureName::Key,
                    ("pkt", "value") => CaptureName::Value,
                    _ => CaptureName::Name(name.into()),
                },
            })
        });
    let mut all: Vec<Capture> = listed.collect();
    for name in names(&pcre.pattern) {
        let group = CString::new(name).ok().and_then(|name| regex.group_of(&name));
        if let Some((word, variable)) = name.split_once('_')
            && let (Some(scope), Some(group)) = (scope(word), group)
            && group <= most
            && !variable.is_empty()
        {
            all.push(Capture {
                group,
                scope,
                name: CaptureName::Name(variable.into()),
            });
        }
    }
    all.into()
}

fn scope(word: &str) -> Option<CaptureScope> {
    SCOPES
        .iter()
        .find(|(known, _)| *known == word)
        .map(|(_, scope)| *scope)
}

/// Returns what looks like the names of groups in an expression.
fn names(pattern: &str) -> impl Iterator<Item = &str> {
    let parts = pattern.split("(?").skip(1);
    parts.filter_map(|part| {
        let part = part.strip_prefix('P').unwrap_or(part);
        part.strip_prefix('<')?.split_once('>').map(|(name, _)| name)
    })
}
