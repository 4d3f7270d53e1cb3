//! The table of known keywords: keywords that the engine supports, and keywords that it refuses, with the
//! reason.

use crate::Syntax;
use crate::buffers::BUFFERS;
use crate::options::{number, words};
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
    "dotprefix",
    "to_lowercase",
    "to_uppercase",
    "compress_whitespace",
    "strip_whitespace",
    "url_decode",
];

/// Keywords that are refused, by reason.
const REFUSED: &[(&str, &[&str])] = &[
    (
        "rules with programs are not run",
        &["lua", "luajit", "so", "soid"],
    ),
    (
        "sets of data from files are not there",
        &[
            "dataset",
            "datarep",
            "iprep",
            "geoip",
            "filemd5",
            "filesha1",
            "filesha256",
        ],
    ),
    (
        "the engine has no ASN.1 decoder",
        &["asn1", "ber_data", "ber_skip"],
    ),
    (
        "the engine does not follow the FTP data connection for it",
        &["ftpbounce", "ftpdata_command"],
    ),
    (
        "the engine does not write files or sessions",
        &[
            "filestore",
            "logto",
            "session",
            "activates",
            "activated_by",
            "count",
        ],
    ),
    ("the engine does not rewrite payload", &["replace"]),
    ("responses of a rule are its action", &["resp", "react", "bypass"]),
    (
        "the engine has no events of the packet decoder for rules",
        &["decode-event", "engine-event", "stream-event", "decoder-event"],
    ),
    (
        "the engine has no buffer for headers of packets",
        &[
            "ipv4.hdr",
            "ipv6.hdr",
            "tcp.hdr",
            "udp.hdr",
            "icmpv4.hdr",
            "icmpv6.hdr",
        ],
    ),
    (
        "this transformation is not there",
        &[
            "to_md5",
            "to_sha1",
            "to_sha256",
            "pcrexform",
            "xor",
            "header_lowercase",
            "strip_pseudo_headers",
            "from_base64",
            "domain",
            "tld",
        ],
    ),
    (
        "this option of the IP or TCP header is not there",
        &[
            "ipopts",
            "rpc",
            "ip_option",
            "tcp.wscale",
            "icmpv6.mtu",
            "l3_proto",
            "ip.proto",
        ],
    ),
    (
        "file magic is not there",
        &[
            "filemagic",
            "file.magic",
            "filename",
            "fileext",
            "file_type",
            "file_meta",
        ],
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
            "http.request_header",
            "http.response_header",
            "http2.settings",
            "http2.window",
            "http2.frametype",
            "http2.errorcode",
            "http2.priority",
            "http2.size_update",
            "http2.header_name",
            "js_data",
            "vba_data",
        ],
    ),
    (
        "there is no parser for this protocol",
        &[
            "krb5_msg_type",
            "krb5_cname",
            "krb5_sname",
            "krb5_err_code",
            "krb5.ticket_encryption",
            "nfs_procedure",
            "nfs_version",
            "snmp.version",
            "snmp.community",
            "snmp.usm",
            "snmp.pdu_type",
            "rfb.name",
            "rfb.secresult",
            "rfb.sectype",
            "mqtt.type",
            "mqtt.flags",
            "mqtt.protocol_version",
            "mqtt.connect.clientid",
            "mqtt.connect.username",
            "mqtt.connect.password",
            "mqtt.publish.topic",
            "mqtt.publish.message",
            "quic.version",
            "quic.sni",
            "quic.ua",
            "quic.cyu.hash",
            "quic.cyu.string",
            "ike.init_spi",
            "ike.resp_spi",
            "ike.exchtype",
            "enip_command",
            "cip_service",
            "gtp_info",
            "gtp_type",
            "gtp_version",
            "cvs",
            "dhcp.leasetime",
            "s7commplus_content",
            "s7commplus_func",
            "s7commplus_opcode",
            "iec104_apci_type",
            "iec104_asdu_func",
            "mms_data",
            "mms_func",
            "websocket.payload",
            "websocket.opcode",
        ],
    ),
    (
        "the application identifier is not there",
        &["appids", "app-layer-state", "appid"],
    ),
    (
        "this condition on the flow is not there",
        &[
            "flow.age",
            "flow.pkts",
            "flow.bytes",
            "flow.pkts_toclient",
            "flow.pkts_toserver",
            "flow.bytes_toclient",
            "flow.bytes_toserver",
            "prefilter",
            "frame",
            "requires",
            "stream_reassemble",
            "fragoff",
            "absent",
            "entropy",
            "vlan.id",
        ],
    ),
    (
        "this buffer of the parser is not there",
        &[
            "ssh.hassh",
            "ssh.hassh.string",
            "ssh.hassh.server",
            "ssh.hassh.server.string",
            "ssh.protoversion",
            "ssh.softwareversion",
            "tls.random",
            "tls.random_time",
            "tls.random_bytes",
            "tls.cert_valid",
            "tls.cert_expired",
            "tls_cert_notbefore",
            "tls_cert_notafter",
            "tls.store",
            "tls.alpn",
            "tls.subjectaltname",
            "smb.ntlmssp_user",
            "smb.ntlmssp_domain",
            "smb.version",
            "dcerpc.iface",
            "dcerpc.opnum",
            "ftp.command",
            "ftp.command_data",
            "ftp.reply",
            "ftp.completion_code",
            "smtp.helo",
            "smtp.mail_from",
            "smtp.rcpt_to",
            "email.from",
            "email.subject",
            "email.to",
            "email.url",
            "dns.rrtype",
            "dns.rcode",
            "dns.response",
            "cip_attribute",
            "cip_class",
        ],
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
