//! Options with a text value of few forms, and the transforms of buffers.

use super::entropy::Entropy;
use super::protocols::ProtocolCondition;
use crate::refusal::Reason;
use crate::text::{list, negation, number32, quote, required};

macro_rules! fields {
    ($($variant:ident $name:literal $(| $alias:literal)* $words:literal $form:literal;)*) => {
        /// A condition or annotation with a text value.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum TextField { $(#[doc = $words] $variant,)* }

        impl TextField {
            /// Every field.
            pub const ALL: &[TextField] = &[$(TextField::$variant),*];

            /// Returns the keyword.
            pub fn keyword(self) -> &'static str {
                match self { $(TextField::$variant => $name,)* }
            }

            /// Returns the option in plain words, before its value.
            pub fn words(self) -> &'static str {
                match self { $(TextField::$variant => $words,)* }
            }

            /// Returns the expected form of the value.
            pub fn form(self) -> &'static str {
                match self { $(TextField::$variant => $form,)* }
            }

            /// Returns the field of a keyword.
            pub(crate) fn from_keyword(name: &str) -> Option<TextField> {
                match name {
                    $($name $(| $alias)* => Some(TextField::$variant),)*
                    _ => None,
                }
            }
        }

        pub(crate) const KEYWORDS: &[&str] = &[$($name, $($alias,)*)*];
    };
}

fields! {
    Target "target" "the attacked end is" "src_ip or dest_ip";
    AppLayerProtocol "app-layer-protocol" "the protocol of the flow is" "[!]PROTOCOL[|PROTOCOL…][,direction|to_server|to_client|either|final|original][,exact]";
    AppLayerEvent "app-layer-event" "a parser raises" "PROTOCOL.EVENT";
    TcpFlags "flags" | "tcp.flags" "the TCP flags are" "[*+!]FLAGS[,IGNORED] with F S R P A U C E 1 2 0";
    FragBits "fragbits" "the fragment bits are" "[*+!] and letters of M, D and R";
    IpProtocol "ip_proto" "the protocol number of IP is" "[!<>]PROTOCOL as a number or a name";
    StreamSize "stream_size" "the size of the stream, by side, is" "client|server|both|either,OPERATOR,BYTES";
    SslVersion "ssl_version" "the TLS version is one of" "versions of sslv2, sslv3, tls1.0, tls1.1, tls1.2, tls1.3 with commas between them";
    SslState "ssl_state" "the TLS handshake is at" "states of client_hello, server_hello, client_keyx, server_keyx, unknown";
    TlsVersion "tls.version" "the TLS version is" "1.0, 1.1, 1.2 or 1.3";
    TlsSubject "tls.subject" "the subject of the certificate contains" "[!]\"TEXT\"";
    TlsIssuer "tls.issuerdn" "the issuer of the certificate contains" "[!]\"TEXT\"";
    TlsFingerprint "tls.fingerprint" "the fingerprint of the certificate is" "[!]\"HEX:HEX:…\"";
    DceIface "dce_iface" | "dcerpc.iface" "the DCE/RPC interface is" "UUID, and <, >, = or ! with a version, and any_frag, with commas between them";
    DceOpnum "dce_opnum" | "dcerpc.opnum" "the DCE/RPC operation is one of" "numbers to 65535 and ranges with commas between them, or <, >, ! or = and a number";
    Tag "tag" "the engine does not record packets after the alert:" "session|host,COUNT,packets|seconds|bytes[,src|dst]";
    Modbus "modbus" "the Modbus request has" "unit RANGE, function [!]NUMBER|CATEGORY, subfunction NUMBER, access read|write [TABLE], address RANGE, value RANGE, with commas between them";
    ModbusFunc "modbus_func" "the Modbus function is" "a number to 255, or a name such as read_coils";
    ModbusUnit "modbus_unit" "the Modbus unit is" "a number to 255";
    Dnp3Func "dnp3_func" "the DNP3 function is" "numbers to 255 or names such as direct_operate, with commas between them";
    Dnp3Ind "dnp3_ind" "the DNP3 indications contain" "names of indications such as device_restart, with commas between them";
    Dnp3Obj "dnp3_obj" "the DNP3 object is" "GROUP,VARIATION, both to 255";
    SipMethodList "sip_method" "the SIP method is" "[!]METHOD with commas between them";
    SipStatCode "sip_stat_code" "the SIP status is" "numbers of codes, or first digits of them, with commas between them";
    StreamEvent "stream-event" "the TCP engine raises" "the name of an event of the TCP engine, such as pkt_invalid_ack";
    DecodeEvent "decode-event" | "engine-event" | "decoder-event" "the packet decoder raises" "the name of an event of the packet decoder, such as ipv4.pkt_too_small";
    IpOptions "ipopts" "the IPv4 header has the option" "rr, eol, nop, ts, sec, esec, lsrr, ssrr, satid or any";
    Ipv4Checksum "ipv4-csum" "the checksum of the IPv4 header is" "valid or invalid";
    Tcpv4Checksum "tcpv4-csum" "the checksum of TCP over IPv4 is" "valid or invalid";
    Tcpv6Checksum "tcpv6-csum" "the checksum of TCP over IPv6 is" "valid or invalid";
    Udpv4Checksum "udpv4-csum" "the checksum of UDP over IPv4 is" "valid or invalid";
    Udpv6Checksum "udpv6-csum" "the checksum of UDP over IPv6 is" "valid or invalid";
    Icmpv4Checksum "icmpv4-csum" "the checksum of ICMP is" "valid or invalid";
    Icmpv6Checksum "icmpv6-csum" "the checksum of ICMPv6 is" "valid or invalid";
    FileNameText "filename" "the name of the file contains, in any case," "[!]\"TEXT\"";
    FileExtension "fileext" "the file has the extension, in any case," "[!]\"EXTENSION\"";
    FileMagicText "filemagic" "the kind of the file contains, in any case," "[!]\"TEXT\"";
    FileStore "filestore" "the file is stored, if there is a directory for files:" "nothing, or request|response|both|to_server|to_client, and file|tx|ssn|flow";
    FileMd5 "filemd5" "the MD5 of the file is in the list" "[!]FILE";
    FileSha1 "filesha1" "the SHA-1 of the file is in the list" "[!]FILE";
    FileSha256 "filesha256" "the SHA-256 of the file is in the list" "[!]FILE";
    IkeChosenSaAttribute "ike.chosen_sa_attribute" "the chosen security association of IKE has" "ATTRIBUTE=NUMBER, as in alg_hash=2";
    IkeVendor "ike.vendor" "the vendor identifier of IKE contains" "hexadecimal digits";
    Krb5TicketEncryption "krb5.ticket_encryption" "the encryption type of the Kerberos ticket is one of" "weak, or [!] names or numbers of encryption types with commas between them";
    SshProtoVersion "ssh.protoversion" "the SSH version is" "DIGIT.DIGIT or 2_compat";
    SshSoftwareVersion "ssh.softwareversion" "the software of the SSH banner contains" "[!]\"TEXT\"";
    CertExpired "tls_cert_expired" | "tls.cert_expired" "the validity of the TLS certificate has ended" "nothing";
    CertValid "tls_cert_valid" | "tls.cert_valid" "the validity of the TLS certificate has not ended" "nothing";
    TlsStore "tls.store" | "tls_store" "certificates are not stored" "nothing";
    Prefilter "prefilter" "the prefilter chooses its pattern by itself" "nothing";
    AlertToo "alert" "a match raises an alert, too" "nothing";
    Absent "absent" "the buffer is not there" "nothing, or or_else";
    AddressReputation "iprep" "the reputation of the address is" "src|dst|any|both,CATEGORY,<|>|=|<=|>=|!=,SCORE to 127, or src|dst|any|both,CATEGORY,isset|isnotset";
    Country "geoip" "the country of the address is" "[src|dst|both|any,] and codes of up to 64 countries of two letters with commas between them, all or none with a !";
    Entropy "entropy" "the entropy of the buffer is" "[bytes N][, offset N], value COMPARISON, in bits for a byte, as in value >= 4.037";
    Rpc "rpc" "the payload is an RPC call of" "PROGRAM[,VERSION|*[,PROCEDURE|*]]";
    FtpBounce "ftpbounce" "the FTP command PORT names another host than the client" "nothing";
    Bypass "bypass" "after a match, the flow is not inspected any more" "nothing";
    Config "config" "a match disables" "logging disable, type tx, scope tx; or tracking disable, type flow, scope packet";
    Requires "requires" "the rule needs" "version, feature and keyword, each with its value, with commas between them";
}

/// The most countries of `geoip`, as in Suricata.
const COUNTRIES: usize = 64;

/// The values of `config`.
const CONFIGS: [&[&str]; 2] = [
    &["logging", "disable", "type", "tx", "scope", "tx"],
    &["tracking", "disable", "type", "flow", "scope", "packet"],
];

/// Returns true if the text is in quotes, with or without a `!` before it.
fn is_quoted(text: &str) -> bool {
    let (_, text) = negation(text);
    text.len() >= 2 && text.starts_with('"') && text.ends_with('"')
}

impl TextField {
    /// Returns true if the option needs no value.
    fn may_be_empty(self) -> bool {
        matches!(
            self,
            TextField::CertExpired
                | TextField::CertValid
                | TextField::TlsStore
                | TextField::Prefilter
                | TextField::AlertToo
                | TextField::FtpBounce
                | TextField::Bypass
                | TextField::Absent
                | TextField::FileStore
        )
    }

    /// Returns the value without unnecessary blanks, if it has the form of the option.
    pub(crate) fn check(self, value: Option<&str>) -> Result<String, Reason> {
        let form = self.form();
        let text = match self.may_be_empty() {
            true => value.unwrap_or_default(),
            false => required(value, form)?,
        };
        let wrong = || Reason::invalid(format!("the value {}", quote(text)), form);
        let parts: Vec<&str> = list(text).collect();
        let all = |is_valid: &dyn Fn(&str) -> bool| parts.iter().all(|part| is_valid(negation(part).1));
        let is_number = |text: &str| number32(text, form).is_ok();
        let is_word = |text: &str| {
            !text.is_empty()
                && text
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
        };
        let is_valid = match self {
            TextField::Target => matches!(text, "src_ip" | "dest_ip"),
            TextField::AppLayerProtocol => {
                ProtocolCondition::parse(text)?;
                true
            }
            TextField::AppLayerEvent => all(&is_word),
            TextField::TcpFlags => {
                let is_flags = |part: &str| {
                    let part = part.trim_matches(['*', '+', '!']);
                    !part.is_empty() && part.chars().all(|c| "FSRPAUCE120fsrpauce".contains(c))
                };
                parts.len() <= 2 && parts.iter().all(|part| is_flags(part))
            }
            TextField::FragBits => {
                let bits = text.trim_matches(['*', '+', '!']);
                !bits.is_empty() && bits.chars().all(|c| "MDR".contains(c))
            }
            TextField::IpProtocol => is_word(text.strip_prefix(['!', '<', '>']).unwrap_or(text).trim()),
            TextField::StreamSize => match parts[..] {
                [side, operator, size] => {
                    matches!(side, "client" | "server" | "both" | "either")
                        && matches!(operator, "<" | ">" | "=" | "!=" | "<=" | ">=")
                        && is_number(size)
                }
                _ => false,
            },
            TextField::SslVersion => all(&|part| {
                matches!(
                    part,
                    "sslv2" | "sslv3" | "tls1.0" | "tls1.1" | "tls1.2" | "tls1.3"
                )
            }),
            TextField::SslState => text
                .split([',', '|'])
                .map(|part| negation(part.trim()).1)
                .all(|part| {
                    matches!(
                        part,
                        "client_hello" | "server_hello" | "client_keyx" | "server_keyx" | "unknown"
                    )
                }),
            TextField::TlsVersion => {
                matches!(negation(text).1.trim_matches('"'), "1.0" | "1.1" | "1.2" | "1.3")
                    || negation(text).1.trim_matches('"').starts_with("0x")
                        && is_number(negation(text).1.trim_matches('"'))
            }
            TextField::TlsSubject | TextField::TlsIssuer | TextField::TlsFingerprint => is_quoted(text),
            TextField::DceIface => is_uuid(parts.first().copied().unwrap_or_default()),
            TextField::DceOpnum => parts.iter().all(|part| {
                let part = part.strip_prefix(['<', '>', '!', '=']).unwrap_or(part);
                let (first, last) = part.split_once('-').unwrap_or((part, part));
                is_number(first) && is_number(last)
            }),
            TextField::Tag => {
                matches!(parts.first(), Some(&("session" | "host")))
                    && parts[1..].chunks(2).all(|pair| match pair {
                        [count, unit] => is_number(count) && matches!(*unit, "packets" | "seconds" | "bytes"),
                        [side] => matches!(*side, "src" | "dst"),
                        _ => false,
                    })
            }
            TextField::CertExpired
            | TextField::CertValid
            | TextField::TlsStore
            | TextField::Prefilter
            | TextField::FtpBounce
            | TextField::Bypass
            | TextField::AlertToo => text.is_empty(),
            TextField::Entropy => Entropy::parse(text).is_some(),
            TextField::Rpc => {
                let is_part = |part: &&str| *part == "*" || is_number(part);
                parts.len() <= 3 && is_number(parts[0]) && parts.iter().all(is_part)
            }
            TextField::Absent => matches!(text, "" | "or_else"),
            TextField::FileStore => parts.iter().all(|part| {
                matches!(
                    *part,
                    "" | "request"
                        | "response"
                        | "both"
                        | "to_server"
                        | "to_client"
                        | "file"
                        | "tx"
                        | "ssn"
                        | "flow"
                )
            }),
            TextField::StreamEvent | TextField::DecodeEvent => is_word(text),
            TextField::IpOptions => matches!(
                text,
                "rr" | "eol" | "nop" | "ts" | "sec" | "esec" | "lsrr" | "ssrr" | "satid" | "any"
            ),
            TextField::Ipv4Checksum
            | TextField::Tcpv4Checksum
            | TextField::Tcpv6Checksum
            | TextField::Udpv4Checksum
            | TextField::Udpv6Checksum
            | TextField::Icmpv4Checksum
            | TextField::Icmpv6Checksum => matches!(
                text.trim_matches('"').to_ascii_lowercase().as_str(),
                "valid" | "invalid"
            ),
            TextField::FileNameText
            | TextField::FileExtension
            | TextField::FileMagicText
            | TextField::SshSoftwareVersion => is_quoted(text) || is_word(negation(text).1),
            TextField::FileMd5 | TextField::FileSha1 | TextField::FileSha256 => !negation(text).1.is_empty(),
            TextField::IkeChosenSaAttribute => text
                .split_once('=')
                .is_some_and(|(name, number)| is_word(name.trim()) && is_number(number)),
            TextField::IkeVendor => text.bytes().all(|byte| byte.is_ascii_hexdigit()),
            TextField::Krb5TicketEncryption => all(&is_word),
            TextField::SshProtoVersion => {
                text == "2_compat" || text.split('.').count() <= 2 && text.split('.').all(&is_number)
            }
            TextField::Requires => true,
            TextField::Config => {
                let words: Vec<&str> = text.split([',', ' ']).filter(|word| !word.is_empty()).collect();
                CONFIGS.iter().any(|known| **known == words[..])
            }
            TextField::AddressReputation => match parts[..] {
                [side, category, ref test @ ..] if is_word(category) => {
                    let is_test = match *test {
                        ["isset" | "isnotset"] => true,
                        ["<" | ">" | "=" | "<=" | ">=" | "!=", score] => {
                            score.parse::<u8>().is_ok_and(|score| score <= 127)
                        }
                        _ => false,
                    };
                    matches!(side, "src" | "dst" | "any" | "both") && is_test
                }
                _ => false,
            },
            TextField::Country => {
                let has_side = matches!(parts[0], "src" | "dst" | "both" | "any");
                let codes = &parts[usize::from(has_side)..];
                let negated = codes.iter().filter(|code| negation(code).0).count();
                let is_code = |code: &&str| {
                    let (_, code) = negation(code);
                    code.len() == 2 && code.bytes().all(|byte| byte.is_ascii_alphabetic())
                };
                !codes.is_empty()
                    && codes.len() <= COUNTRIES
                    && codes.iter().all(is_code)
                    && (negated == 0 || negated == codes.len())
            }
            TextField::Dnp3Obj => parts.len() == 2 && parts.iter().all(|part| is_number(part)),
            TextField::Modbus => parts.iter().all(|part| is_modbus(part)),
            TextField::ModbusUnit => is_number(text),
            TextField::ModbusFunc | TextField::Dnp3Func | TextField::Dnp3Ind => all(&is_word),
            TextField::SipMethodList | TextField::SipStatCode => all(&is_word),
        };
        // Blanks after commas have no meaning, but blanks in quotes do.
        let normal = || {
            if text.contains('"') {
                text.to_owned()
            } else {
                parts.join(",")
            }
        };
        is_valid.then(normal).ok_or_else(wrong)
    }
}

/// Returns true if the text is a condition of the keyword `modbus`.
fn is_modbus(text: &str) -> bool {
    let is_number = |text: &str| text.parse::<u16>().is_ok();
    let is_range = |text: &str| match text.split_once("<>") {
        Some((low, high)) => is_number(low) && is_number(high),
        None => is_number(text.trim_start_matches(['<', '>'])),
    };
    const CATEGORIES: &[&str] = &["all", "assigned", "unassigned", "public", "user", "reserved"];
    const TABLES: &[&str] = &["coils", "discretes", "holding", "input"];
    match text.split_whitespace().collect::<Vec<_>>()[..] {
        ["unit" | "address" | "value", range] => is_range(range),
        ["function", function] => {
            let (_, function) = negation(function);
            CATEGORIES.contains(&function) || function.parse::<u8>().is_ok()
        }
        ["subfunction", number] => is_number(number),
        ["access", "read" | "write"] => true,
        ["access", "read", table] => TABLES.contains(&table),
        ["access", "write", table] => matches!(table, "coils" | "holding"),
        _ => false,
    }
}

/// Returns true if the text is a UUID in the form of RFC 9562, section 4.
fn is_uuid(text: &str) -> bool {
    let groups: Vec<usize> = text.split('-').map(str::len).collect();
    groups == [8, 4, 4, 4, 12] && text.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
}
