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
];

/// Keywords that are refused, by reason.
const REFUSED: &[(&str, &[&str])] = &[
    (
        "rules with programs are not run",
        &["lua", "luajit", "luaxform", "so", "soid"],
    ),
    ("there is no database of countries", &["geoip"]),
    (
        "there is no list of public suffixes, which changes every week",
        &["domain", "tld"],
    ),
    (
        "the engine has no ASN.1 decoder",
        &["asn1", "ber_data", "ber_skip"],
    ),
    (
        "the engine does not compare the argument of PORT with the address of the client",
        &["ftpbounce"],
    ),
    (
        "the engine does not write sessions",
        &["logto", "session", "activates", "activated_by", "count"],
    ),
    ("the engine does not rewrite payload", &["replace"]),
    (
        "responses of a rule are its action",
        &["resp", "react", "bypass", "config"],
    ),
    (
        "the engine has no events of detection for rules; its counters show what was lost",
        &["detect-event"],
    ),
    (
        "the position of frames in the stream is not recorded; buffers of the protocol are there",
        &["frame", "ssl2.pdu"],
    ),
    (
        "this option of the IP or TCP header is not there",
        &[
            "rpc",
            "ip_option",
            "l3_proto",
            "ip.proto",
            "igmp.type",
            "igmp.hdr",
            "arp.opcode",
        ],
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
        "of HTTP/2 the headers and the data are conditions, and no other frames",
        &[
            "http2.settings",
            "http2.window",
            "http2.frametype",
            "http2.errorcode",
            "http2.priority",
            "http2.size_update",
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
            "mdns.queries.rrname",
            "mdns.answers.rrname",
            "mdns.authorities.rrname",
            "mdns.additionals.rrname",
            "mdns.response.rrname",
        ],
    ),
    (
        "the application identifier is not there",
        &["appids", "app-layer-state", "appid", "ndpi-protocol", "ndpi-risk"],
    ),
    (
        "this condition on the flow is not there",
        &[
            "flow.elephant",
            "flowvar",
            "pktvar",
            "stream_reassemble",
            "fragoff",
            "entropy",
        ],
    ),
    (
        "this buffer of the parser is not there",
        &[
            "cip_attribute",
            "cip_class",
            "ja4s.hash",
            "email.body_md5",
            "email.cc",
            "email.url",
            "email.received",
            "email.x_mailer",
            "smb.ntlmssp_user",
            "smb.ntlmssp_domain",
            "smb.version",
            "ftp.mode",
            "ftpdata_command",
        ],
    ),
    (
        "the bodies of SIP are inspected as they are: use sip_body",
        &[
            "sdp.session_name",
            "sdp.session_info",
            "sdp.origin",
            "sdp.uri",
            "sdp.email",
            "sdp.phone_number",
            "sdp.connection_data",
            "sdp.bandwidth",
            "sdp.time",
            "sdp.repeat_time",
            "sdp.timezone",
            "sdp.encryption_key",
            "sdp.attribute",
            "sdp.media.media",
            "sdp.media.media_info",
            "sdp.media.bandwidth",
            "sdp.media.connection_data",
            "sdp.media.encryption_key",
        ],
    ),
    (
        "the kind of a file is a condition, not a buffer: use filemagic",
        &["file.magic"],
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
        all.extend(every.filter(|name| !name.is_empty()).map(accepted));
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
