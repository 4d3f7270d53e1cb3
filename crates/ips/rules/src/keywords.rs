//! The table of known keywords: keywords that the engine supports, and keywords that it refuses, with the
//! reason.

use crate::Syntax;
use crate::buffers::BUFFERS;
use crate::options::{number, transform, words};
use crate::refusal::Reason;

/// Keywords of the syntax tree that are not in the tables of buffers, numbers and texts.
const SYNTAX_TREE_KEYWORDS: &[&str] = &[
    "msg",
    "sid",
    "rev",
    "gid",
    "priority",
    "classtype",
    "reference",
    "metadata",
    "service",
    "rem",
    "content",
    "uricontent",
    "nocase",
    "depth",
    "offset",
    "distance",
    "within",
    "startswith",
    "endswith",
    "rawbytes",
    "fast_pattern",
    "pcre",
    "byte_test",
    "byte_jump",
    "byte_extract",
    "byte_math",
    "isdataat",
    "base64_decode",
    "flow",
    "flowbits",
    "xbits",
    "hostbits",
    "flowint",
    "threshold",
    "detection_filter",
    "noalert",
    "sameip",
    "dataset",
    "datarep",
    "frame",
];

/// Keywords that are refused, by reason.
const REFUSED: &[(&str, &[&str])] = &[
    (
        "rules with programs are not run",
        &["lua", "luajit", "luaxform", "so", "soid"],
    ),
    (
        "the engine has no ASN.1 decoder",
        &["asn1", "ber_data", "ber_skip"],
    ),
    (
        "the engine does not write sessions",
        &["logto", "session", "activates", "activated_by", "count"],
    ),
    ("the engine does not rewrite payload", &["replace"]),
    ("responses of a rule are its action", &["resp", "react"]),
    (
        "the engine has no events of detection for rules; its counters show what was lost",
        &["detect-event"],
    ),
    (
        "this keyword belongs to another version of Suricata, or to Snort",
        &[
            "ip_option",
            "l3_proto",
            "ip.proto",
            "imap.request",
            "imap.response",
            "imap.email.direction",
            "imap.email.body",
            "imap.email.header",
            "imap.email.header.name",
            "imap.email.header.value",
            "ntp.mode",
            "ntp.reference_id",
            "ntp.stratum",
            "ntp.version",
            "sctp.hdr",
            "sctp.chunk_data",
            "sctp.vtag",
            "sctp.chunk_type",
            "sctp.chunk_cnt",
            "llmnr.queries.rrname",
            "llmnr.answers.rrname",
            "llmnr.authorities.rrname",
            "llmnr.additionals.rrname",
            "llmnr.response.rrname",
            "mysql.command",
            "mysql.rows",
            "snmp.trap_type",
            "snmp.trap_oid",
            "snmp.trap_address",
            "dnp3.ind",
            "dcerpc.ctxid",
            "dcerpc.flags",
            "dcerpc.hdr",
            "dcerpc.is_fragmented",
            "dcerpc.ptype",
            "igmp-csum",
            "ldap.bind_request.authentication",
            "ldap.bind_request.sasl.credentials",
            "ldap.bind_request.sasl.mechanism",
            "ldap.bind_request.version",
            "windows_pe",
        ],
    ),
    (
        "frames without IP are forwarded without rules",
        &["arp.opcode", "ether.hdr"],
    ),
    (
        "the file types of Snort are not there; filemagic is",
        &["file_type", "file_meta"],
    ),
    (
        "regular expressions are written as pcre",
        &["regex", "sd_pattern"],
    ),
    (
        "this buffer of HTTP is not there",
        &[
            "http_encode",
            "http_param",
            "http_true_ip",
            "http_trailer",
            "http_raw_trailer",
            "http_header_test",
            "http_trailer_test",
            "http_num_headers",
            "http_num_trailers",
            "http_num_cookies",
            "http_version_match",
            "http_max_header_line",
            "http_max_trailer_line",
            "js_data",
            "vba_data",
        ],
    ),
    (
        "there is no parser for this protocol",
        &[
            "gtp_info",
            "gtp_type",
            "gtp_version",
            "cvs",
            "s7commplus_content",
            "s7commplus_func",
            "s7commplus_opcode",
            "iec104_apci_type",
            "iec104_asdu_func",
            "mms_data",
            "mms_func",
        ],
    ),
    (
        "the application identifier is not there",
        &["appids", "app-layer-state", "appid", "ndpi-protocol", "ndpi-risk"],
    ),
    (
        "what an expression captures is for records, and no condition",
        &["flowvar", "pktvar"],
    ),
    (
        "the engine has no measure of large flows for rules; flow.bytes is there",
        &["flow.elephant", "flow.rate"],
    ),
    (
        "this keyword of Snort has no counterpart",
        &["stream_reassemble", "fragoff"],
    ),
    (
        "this keyword belongs to another version of Suricata, or to Snort: enip.cip_class and enip.cip_attribute are there",
        &["cip_attribute", "cip_class", "ja4s.hash"],
    ),
];

/// A row of the table of keywords.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keyword {
    /// The keyword.
    pub name: &'static str,
    /// The reason why the engine refuses the keyword; `None` if the syntax tree has it.
    pub refused: Option<&'static str>,
}

/// Returns every known keyword.
pub fn keywords() -> Vec<Keyword> {
    let accepted = |name| Keyword { name, refused: None };
    let mut all: Vec<Keyword> = SYNTAX_TREE_KEYWORDS.iter().copied().map(accepted).collect();
    all.extend(number::KEYWORDS.iter().copied().map(accepted));
    all.extend(words::KEYWORDS.iter().copied().map(accepted));
    all.extend(transform::KEYWORDS.iter().copied().map(accepted));
    for names in BUFFERS {
        let others = [names.modifier, names.snort2, names.snort3];
        let every = names.suricata.iter().copied().chain(others);
        all.extend(
            every
                .filter(|name| !name.is_empty() && !name.contains(':'))
                .map(accepted),
        );
    }
    for (why, names) in REFUSED {
        all.extend(names.iter().map(|name| Keyword {
            name,
            refused: Some(why),
        }));
    }
    all.sort_by_key(|keyword| keyword.name);
    all.dedup_by_key(|keyword| keyword.name);
    all
}

/// Returns the reason why a keyword is not read.
pub(crate) fn refusal(name: &str) -> Reason {
    for (why, names) in REFUSED {
        if names.contains(&name) {
            return Reason::Unsupported { why };
        }
    }
    const LONGEST: usize = 40;
    let all = keywords();
    if all.iter().any(|keyword| keyword.name == name) {
        return Reason::invalid(
            "the keyword belongs to another syntax, or to a content before it",
            "a keyword of this syntax, and modifiers after their content",
        );
    }
    if name.len() > LONGEST {
        return Reason::UnknownKeyword { near: None };
    }
    let near = all
        .iter()
        .map(|keyword| (strsim::damerau_levenshtein(keyword.name, name), keyword.name))
        .min()
        .filter(|(distance, _)| *distance <= 2);
    Reason::UnknownKeyword {
        near: near.map(|(_, name)| name.to_owned()),
    }
}

/// Returns the keyword in the form that the tables have. Suricata does not distinguish upper and lower case.
pub(crate) fn normal(syntax: Syntax, name: &str) -> std::borrow::Cow<'_, str> {
    let is_folded = syntax == Syntax::Suricata && name.bytes().any(|byte| byte.is_ascii_uppercase());
    if is_folded {
        name.to_ascii_lowercase().into()
    } else {
        name.into()
    }
}
