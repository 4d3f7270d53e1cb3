//! Options that compare one number: lengths, header fields, ICMP types.

use std::fmt;

use super::enumerations::{self, Values};
use crate::Syntax;
use crate::refusal::Reason;
use crate::text::{integer, negation};

macro_rules! fields {
    ($($variant:ident $word:literal $name:literal $($alias:literal)*;)*) => {
        /// A number that a rule compares.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum NumberField { $(#[doc = $word] $variant,)* }

        impl NumberField {
            /// Every field.
            pub const ALL: &[NumberField] = &[$(NumberField::$variant),*];

            /// Returns the keyword.
            pub fn keyword(self) -> &'static str {
                match self { $(NumberField::$variant => $name,)* }
            }

            /// Returns the field in plain words.
            pub fn words(self) -> &'static str {
                match self { $(NumberField::$variant => $word,)* }
            }

            /// Returns the field of a keyword.
            pub(crate) fn from_keyword(name: &str) -> Option<NumberField> {
                match name { $($name $(| $alias)* => Some(NumberField::$variant),)* _ => None }
            }
        }

        pub(crate) const KEYWORDS: &[&str] = &[$($name, $($alias,)*)*];
    };
}

fields! {
    Dsize "the size of the payload" "dsize";
    Bsize "the size of the buffer" "bsize" "bufferlen";
    Urilen "the size of the URI" "urilen";
    Ttl "the time to live" "ttl";
    Tos "the type of service" "tos";
    IpId "the IP identification" "id";
    IcmpType "the ICMP type" "itype";
    IcmpCode "the ICMP code" "icode";
    IcmpId "the ICMP identifier" "icmp_id";
    IcmpSeq "the ICMP sequence number" "icmp_seq";
    TcpSeq "the TCP sequence number" "seq" "tcp.seq";
    TcpAck "the TCP acknowledgement number" "ack" "tcp.ack";
    TcpWindow "the TCP window" "window" "tcp.window";
    TcpMss "the TCP maximum segment size" "tcp.mss";
    FragOffset "the fragment offset" "fragoffset";
    FileSize "the size of the file" "filesize";
    CertChainLen "the number of TLS certificates" "tls.cert_chain_len";
    DnsOpcode "the DNS opcode" "dns.opcode";
    DnsRcode "the DNS response code" "dns.rcode";
    DnsRrtype "the type of a DNS question or record" "dns.rrtype";
    TcpWindowScale "the TCP window scale" "tcp.wscale";
    Icmpv6Mtu "the MTU of ICMPv6" "icmpv6.mtu";
    IgmpType "the IGMP type" "igmp.type";
    FlowAge "the age of the flow in seconds" "flow.age";
    FlowPackets "the number of packets of the flow" "flow.pkts";
    FlowPacketsToClient "the number of packets to the client" "flow.pkts_toclient";
    FlowPacketsToServer "the number of packets to the server" "flow.pkts_toserver";
    FlowBytes "the number of bytes of the flow" "flow.bytes";
    FlowBytesToClient "the number of bytes to the client" "flow.bytes_toclient";
    FlowBytesToServer "the number of bytes to the server" "flow.bytes_toserver";
    VlanId "the VLAN identifier" "vlan.id";
    VlanLayers "the number of VLAN tags" "vlan.layers";
    CertNotBefore "the start of the validity of the TLS certificate" "tls_cert_notbefore" "tls.cert_notbefore";
    CertNotAfter "the end of the validity of the TLS certificate" "tls_cert_notafter" "tls.cert_notafter";
    FtpDynamicPort "the port of the FTP data connection" "ftp.dynamic_port";
    FtpReplyReceived "the FTP command has a reply" "ftp.reply_received";
    MqttProtocolVersion "the MQTT version" "mqtt.protocol_version";
    MqttType "the MQTT message type" "mqtt.type";
    MqttFlags "the MQTT flags" "mqtt.flags";
    MqttQos "the MQTT quality of service" "mqtt.qos";
    MqttReasonCode "the MQTT reason code" "mqtt.reason_code" "mqtt.connack.return_code";
    MqttSessionPresent "the MQTT session is present" "mqtt.connack.session_present";
    MqttConnectFlags "the flags of MQTT CONNECT" "mqtt.connect.flags";
    Krb5MsgType "the Kerberos message type" "krb5_msg_type" "krb5.msg_type";
    Krb5ErrCode "the Kerberos error code" "krb5_err_code" "krb5.err_code";
    SnmpVersion "the SNMP version" "snmp.version";
    SnmpPduType "the SNMP PDU type" "snmp.pdu_type";
    RfbSecType "the RFB security type" "rfb.sectype";
    RfbSecResult "the RFB security result" "rfb.secresult";
    IkeExchType "the IKE exchange type" "ike.exchtype";
    IkeKeyExchangeLength "the size of the IKE key exchange data" "ike.key_exchange_payload_length";
    IkeNonceLength "the size of the IKE nonce" "ike.nonce_payload_length";
    DhcpLeaseTime "the DHCP lease time" "dhcp.leasetime";
    DhcpRebindingTime "the DHCP rebinding time" "dhcp.rebinding_time";
    DhcpRenewalTime "the DHCP renewal time" "dhcp.renewal_time";
    NfsProcedure "the NFS procedure" "nfs_procedure" "nfs.procedure";
    NfsVersion "the NFS version" "nfs.version" "nfs_version";
    WebSocketFlags "the WebSocket flags" "websocket.flags";
    WebSocketMask "the WebSocket mask" "websocket.mask";
    WebSocketOpcode "the WebSocket opcode" "websocket.opcode";
    LdapRequestOperation "the LDAP request operation" "ldap.request.operation";
    LdapResponsesOperation "the LDAP response operation" "ldap.responses.operation";
    LdapResponsesCount "the number of LDAP responses" "ldap.responses.count";
    LdapResponsesResultCode "the LDAP result code" "ldap.responses.result_code";
    EnipCommand "the EtherNet/IP command" "enip_command" "enip.command";
    EnipStatus "the EtherNet/IP status" "enip.status";
    EnipProtocolVersion "the EtherNet/IP protocol version" "enip.protocol_version";
    EnipCipAttribute "the CIP attribute" "enip.cip_attribute";
    EnipCipInstance "the CIP instance" "enip.cip_instance";
    EnipCipClass "the CIP class" "enip.cip_class";
    EnipCipExtendedStatus "the CIP extended status" "enip.cip_extendedstatus";
    EnipCipService "the CIP service, and its class and attribute," "cip_service";
    EnipCipStatus "the CIP status" "enip.cip_status";
    EnipRevision "the revision of the EtherNet/IP identity" "enip.revision";
    EnipIdentityStatus "the status of the EtherNet/IP identity" "enip.identity_status";
    EnipState "the state of the EtherNet/IP identity" "enip.state";
    EnipSerial "the serial number of the EtherNet/IP identity" "enip.serial";
    EnipProductCode "the product code of the EtherNet/IP identity" "enip.product_code";
    EnipDeviceType "the device type of the EtherNet/IP identity" "enip.device_type";
    EnipVendorId "the vendor of the EtherNet/IP identity" "enip.vendor_id";
    EnipCapabilities "the capabilities of the EtherNet/IP service" "enip.capabilities";
    Http2FrameType "the type of an HTTP/2 frame" "http2.frametype";
    Http2ErrorCode "the error code of HTTP/2" "http2.errorcode";
    Http2Priority "the priority of an HTTP/2 stream" "http2.priority";
    Http2Window "the increment of an HTTP/2 window" "http2.window";
    Http2SizeUpdate "the size of the HTTP/2 header table" "http2.size_update";
    Http2Setting "an HTTP/2 setting and its value" "http2.settings";
    SmbVersion "the version of SMB" "smb.version";
    FtpMode "the mode of the FTP data connection" "ftp.mode";
    FtpDataCommand "the command of the FTP data connection" "ftpdata_command";
}

impl NumberField {
    /// Returns true if the value begins with a side of the flow: `toclient`, `toserver`, `either` or `both`.
    pub(crate) fn has_side(self) -> bool {
        matches!(self, NumberField::FlowPackets | NumberField::FlowBytes)
    }

    /// Returns true if the field has several values in a packet or a transaction, and rules may say which.
    pub fn has_index(self) -> bool {
        self == NumberField::VlanId
            || (NumberField::MqttProtocolVersion..).contains(&self)
            || self == NumberField::DnsRrtype
    }

    /// Returns the names of values, or of bits, that rules may write instead of numbers.
    pub fn values(self) -> Values {
        enumerations::values(self)
    }

    /// Returns the number of a name, whatever its case; `None` if the field has no such name.
    pub fn number_of(self, name: &str) -> Option<u64> {
        let Values::Names(names, _) = self.values() else {
            return None;
        };
        let is_it = |(known, _): &&(&str, u64)| known.eq_ignore_ascii_case(name);
        names.iter().find(is_it).map(|(_, number)| *number)
    }

    /// Returns the name of a number; `None` if the field has no name for it.
    pub fn name_of(self, number: u64) -> Option<&'static str> {
        let Values::Names(names, _) = self.values() else {
            return None;
        };
        let found = names.iter().find(|(_, known)| *known == number);
        found.map(|(name, _)| *name)
    }

    /// Returns a comparison as rules write it. The numbers of procedures of NFS that stand for names are printed as names.
    pub fn print(self, comparison: Comparison) -> String {
        let name = |number| match self {
            NumberField::NfsProcedure => self.name_of(number),
            _ => None,
        };
        let named = match comparison {
            Comparison::Equal(number) => name(number).map(str::to_owned),
            Comparison::NotEqual(number) => name(number).map(|name| format!("!{name}")),
            _ => None,
        };
        named.unwrap_or_else(|| comparison.to_string())
    }
}

/// A comparison with a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    Equal(u64),
    NotEqual(u64),
    Less(u64),
    /// Less or equal.
    LessOrEqual(u64),
    Greater(u64),
    /// Greater or equal.
    GreaterOrEqual(u64),
    /// Between the two, both excluded.
    Between(u64, u64),
    /// Between the two, both included.
    Within(u64, u64),
    /// The first or less, or the second or more.
    Outside(u64, u64),
    /// The bits of the mask have the value.
    Mask {
        mask: u64,
        value: u64,
        /// True if the bits must not have the value.
        is_negated: bool,
    },
}

const FORM: &str = "N, !N, <N, >N, <=N, >=N, A<>B (without A and B) or A-B (with them)";
const FORM_OF_SURICATA: &str =
    "N, !N, <N, >N, <=N, >=N, A-B or A<>B (both without A and B), !A-B, &MASK=N or &MASK!=N";

const FORM_INCLUSIVE: &str = "N, !N, <N, >N, <=N, >=N, A-B or A<>B (both with A and B), &MASK=N or &MASK!=N";

impl Comparison {
    /// Reads a comparison. The ends of `A-B` are excluded in the syntax of Suricata, and included in the others.
    pub(crate) fn parse(syntax: Syntax, text: &str) -> Result<Comparison, Reason> {
        let form = if syntax == Syntax::Suricata {
            FORM_OF_SURICATA
        } else {
            FORM
        };
        Comparison::parse_with(syntax, text, form, &|text| integer(text, form))
    }

    /// Reads a comparison with a number of a field, whose values or bits may have names.
    pub(crate) fn parse_field(syntax: Syntax, field: NumberField, text: &str) -> Result<Comparison, Reason> {
        let text = text.trim();
        // Numbers of the type of service may have a leading `x`.
        if field == NumberField::Tos
            && let (is_negated, Some(digits)) = (
                text.starts_with('!'),
                text.trim_start_matches('!').strip_prefix('x'),
            )
        {
            let sign = if is_negated { "!" } else { "" };
            return Comparison::parse(syntax, &format!("{sign}0x{digits}"));
        }
        match field.values() {
            // Suricata documents that ranges of NFS include their ends.
            Values::Numbers if field == NumberField::NfsVersion => {
                Comparison::parse_inclusive(syntax, text, FORM_INCLUSIVE)
            }
            Values::Numbers => Comparison::parse(syntax, text),
            Values::Names(_, form) if field == NumberField::NfsProcedure => {
                // The names are in no order that ranges could follow.
                let (is_negated, name) = negation(text);
                match (field.number_of(name), is_negated) {
                    (Some(number), true) => Ok(Comparison::NotEqual(number)),
                    (Some(number), false) => Ok(Comparison::Equal(number)),
                    (None, _) => Comparison::parse_inclusive(syntax, text, form),
                }
            }
            Values::Names(names, form) => Comparison::parse_with(syntax, text, form, &|text| {
                let is_it = |(name, _): &&(&str, u64)| name.eq_ignore_ascii_case(text.trim());
                match names.iter().find(is_it) {
                    Some((_, number)) => Ok(*number),
                    None => integer(text, form),
                }
            }),
            Values::Bits(names, form) => match Comparison::parse(syntax, text) {
                Ok(comparison) => Ok(comparison),
                Err(_) => bits(names, form, text),
            },
            Values::Dates => Comparison::parse_dates(text),
        }
    }

    /// Reads a comparison of a field whose ranges include their ends, whatever the syntax.
    fn parse_inclusive(syntax: Syntax, text: &str, form: &'static str) -> Result<Comparison, Reason> {
        let n = |text: &str| integer(text, form);
        let ends = ["<=>", "<>", "-"]
            .iter()
            .find_map(|separator| text.split_once(separator));
        match ends.filter(|(low, _)| !low.trim().is_empty() && !low.starts_with('!')) {
            Some((low, high)) => {
                let (low, high) = (n(low)?, n(high)?);
                if low >= high {
                    return Err(Reason::invalid(format!("{low} is not less than {high}"), form));
                }
                Ok(Comparison::Within(low, high))
            }
            None => Comparison::parse_with(syntax, text, form, &n),
        }
    }

    /// Reads a comparison with a time, in seconds since the year 0. A day contains hyphens, so a range has the separator `<>`.
    fn parse_dates(text: &str) -> Result<Comparison, Reason> {
        const FORM: &str = "YYYY-MM-DD HH:MM:SS or its beginning, <TIME, >TIME, or A<>B";
        let time = |text: &str| {
            enumerations::seconds(text).ok_or_else(|| Reason::invalid(format!("the time \"{text}\""), FORM))
        };
        if let Some((low, high)) = text.split_once("<>") {
            let (low, high) = (time(low)?, time(high)?);
            if low >= high {
                return Err(Reason::invalid("the first time is not before the second", FORM));
            }
            return Ok(Comparison::Between(low, high));
        }
        if let Some(rest) = text.strip_prefix('<') {
            return time(rest).map(Comparison::Less);
        }
        if let Some(rest) = text.strip_prefix('>') {
            return time(rest).map(Comparison::Greater);
        }
        time(text).map(Comparison::Equal)
    }

    fn parse_with(
        syntax: Syntax,
        text: &str,
        form: &'static str,
        n: &dyn Fn(&str) -> Result<u64, Reason>,
    ) -> Result<Comparison, Reason> {
        let is_suricata = syntax == Syntax::Suricata;
        let text = text.trim();
        if is_suricata && let Some(rest) = text.strip_prefix('&') {
            let parts = rest.split_once("!=").map(|parts| (parts, true));
            let parts = parts.or_else(|| rest.split_once('=').map(|parts| (parts, false)));
            let ((mask, value), is_negated) =
                parts.ok_or_else(|| Reason::invalid("the mask has no value", form))?;
            let (mask, value) = (n(mask)?, n(value)?);
            if value & !mask != 0 {
                return Err(Reason::invalid(
                    format!("{value:#x} has bits outside of the mask {mask:#x}"),
                    form,
                ));
            }
            return Ok(Comparison::Mask {
                mask,
                value,
                is_negated,
            });
        }
        let range = |separator: &str| -> Option<Result<(u64, u64), Reason>> {
            let (low, high) = text
                .split_once(separator)
                .filter(|(low, _)| !low.trim().is_empty())?;
            let both = n(low).and_then(|low| n(high).map(|high| (low, high)));
            Some(both.and_then(|(low, high)| {
                let problem = match high.checked_sub(low) {
                    None | Some(0) => format!("{low} is not less than {high}"),
                    Some(1) if is_suricata => format!("no number lies between {low} and {high}"),
                    Some(_) => return Ok((low, high)),
                };
                Err(Reason::invalid(problem, form))
            }))
        };
        if is_suricata && let Some((low, high)) = text.strip_prefix('!').and_then(|rest| rest.split_once('-'))
        {
            let (low, high) = (n(low)?, n(high)?);
            if low >= high {
                return Err(Reason::invalid(format!("{low} is not less than {high}"), form));
            }
            return Ok(Comparison::Outside(low, high));
        }
        let within = |(low, high)| Comparison::Within(low, high);
        let between = |(low, high)| Comparison::Between(low, high);
        if let Some(both) = range("<=>").filter(|_| !is_suricata) {
            return both.map(within);
        }
        if let Some(both) = range("<>") {
            return both.map(between);
        }
        if let Some(both) = range("-") {
            return if is_suricata {
                both.map(between)
            } else {
                both.map(within)
            };
        }
        type Operator = (&'static str, fn(u64) -> Comparison);
        let operators: [Operator; 8] = [
            ("<=", Comparison::LessOrEqual),
            (">=", Comparison::GreaterOrEqual),
            ("!=", Comparison::NotEqual),
            ("!>", Comparison::LessOrEqual),
            ("!<", Comparison::GreaterOrEqual),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
            ("!", Comparison::NotEqual),
        ];
        for (sign, make) in operators {
            if let Some(rest) = text.strip_prefix(sign) {
                return n(rest).map(make);
            }
        }
        n(text.strip_prefix('=').unwrap_or(text)).map(Comparison::Equal)
    }

    /// Returns the largest number that satisfies the comparison; `None` if there is none, or if it depends on bits.
    pub fn largest(self) -> Option<u64> {
        match self {
            Comparison::Equal(n) | Comparison::LessOrEqual(n) | Comparison::Within(_, n) => Some(n),
            Comparison::Less(n) | Comparison::Between(_, n) => Some(n.saturating_sub(1)),
            Comparison::NotEqual(_)
            | Comparison::Greater(_)
            | Comparison::GreaterOrEqual(_)
            | Comparison::Outside(..)
            | Comparison::Mask { .. } => None,
        }
    }

    /// Returns the comparison in plain words.
    pub fn words(self) -> String {
        match self {
            Comparison::Equal(n) => format!("is {n}"),
            Comparison::NotEqual(n) => format!("is not {n}"),
            Comparison::Less(n) => format!("is less than {n}"),
            Comparison::LessOrEqual(n) => format!("is at most {n}"),
            Comparison::Greater(n) => format!("is greater than {n}"),
            Comparison::GreaterOrEqual(n) => format!("is at least {n}"),
            Comparison::Between(a, b) => format!("is greater than {a} and less than {b}"),
            Comparison::Within(a, b) => format!("is from {a} to {b}"),
            Comparison::Outside(a, b) => format!("is at most {a} or at least {b}"),
            Comparison::Mask {
                mask,
                value,
                is_negated,
            } => {
                let not = if is_negated { "not " } else { "" };
                format!("has {not}the bits {value:#x} of {mask:#x}")
            }
        }
    }
}

/// Reads a list of names of bits, each with a `!` if it must not be set.
fn bits(names: &[(&str, u64)], form: &'static str, text: &str) -> Result<Comparison, Reason> {
    let (mut mask, mut value) = (0, 0);
    let modifier = text
        .chars()
        .next()
        .filter(|first| matches!(first, '+' | '*' | '-' | '='));
    for part in text.trim_start_matches(['+', '*', '-', '=']).split(',') {
        let (is_negated, name) = negation(part.trim());
        let found = names.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        let (_, bit) = found.ok_or_else(|| Reason::invalid(format!("the name \"{name}\""), form))?;
        mask |= bit;
        value |= if is_negated { 0 } else { *bit };
    }
    Ok(match modifier {
        // All of the bits, and only them.
        Some('=') => Comparison::Equal(value),
        // Any of the bits: they are not all 0, or not all 1 if they are negated.
        Some('*') => Comparison::Mask {
            mask,
            value: !value & mask,
            is_negated: true,
        },
        // Not all of the bits.
        Some('-') => Comparison::Mask {
            mask,
            value,
            is_negated: true,
        },
        _ => Comparison::Mask {
            mask,
            value,
            is_negated: false,
        },
    })
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Comparison::Equal(n) => write!(f, "{n}"),
            Comparison::NotEqual(n) => write!(f, "!{n}"),
            Comparison::Less(n) => write!(f, "<{n}"),
            Comparison::LessOrEqual(n) => write!(f, "<={n}"),
            Comparison::Greater(n) => write!(f, ">{n}"),
            Comparison::GreaterOrEqual(n) => write!(f, ">={n}"),
            Comparison::Between(a, b) => write!(f, "{a}<>{b}"),
            Comparison::Within(a, b) => write!(f, "{a}-{b}"),
            Comparison::Outside(a, b) => write!(f, "!{a}-{b}"),
            Comparison::Mask {
                mask,
                value,
                is_negated,
            } => {
                let sign = if *is_negated { "!=" } else { "=" };
                write!(f, "&{mask:#x}{sign}{value:#x}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_a_range_are_excluded_in_the_syntax_of_suricata() {
        let parse = |syntax, text| Comparison::parse(syntax, text).ok();
        for (text, suricata, snort) in [
            (
                "4-6",
                Some(Comparison::Between(4, 6)),
                Some(Comparison::Within(4, 6)),
            ),
            (
                "4<>6",
                Some(Comparison::Between(4, 6)),
                Some(Comparison::Between(4, 6)),
            ),
            ("4<=>6", None, Some(Comparison::Within(4, 6))),
            ("4-5", None, Some(Comparison::Within(4, 5))),
            ("6-4", None, None),
        ] {
            assert_eq!(parse(Syntax::Suricata, text), suricata, "{text}");
            for syntax in [Syntax::Snort2, Syntax::Snort3] {
                assert_eq!(parse(syntax, text), snort, "{text}");
            }
        }
    }
}
