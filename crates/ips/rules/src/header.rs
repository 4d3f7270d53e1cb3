//! The header of a rule: action, protocol, endpoints and direction.

use std::fmt;

use crate::Syntax;
use crate::address::{AddressSpec, PortSpec};
use crate::refusal::Reason;
use crate::text::{quote, words};

words! {
    /// The action of a rule.
    Action "alert, drop, reject, rejectsrc, rejectdst, rejectboth, pass, config, log or sdrop" {
        /// Report, and let the packet pass.
        Alert "alert";
        /// Report, and drop.
        Drop "drop";
        /// Report, drop, and send a reset or an ICMP error to the sender; in Snort 3 to both ends.
        Reject "reject" | "rejectsrc";
        /// Report, drop, and send a reset or an ICMP error to the receiver.
        RejectDst "rejectdst";
        /// Report, drop, and send a reset or an ICMP error to both ends.
        RejectBoth "rejectboth";
        /// Let the packet pass without further rules.
        Pass "pass";
        /// Write a record without an alert (Snort).
        Log "log";
        /// Drop without a report (Snort 2.9).
        Sdrop "sdrop";
        /// Change the logging or the tracking, without an alert (`config`).
        Config "config";
    }
}

words! {
    /// The protocol of a header: a network, transport or application protocol.
    Protocol "a protocol such as tcp, udp, icmp, ip, http, dns, tls, smtp, ftp, ssh, smb" {
        /// Any IP packet.
        Ip "ip" | "pkthdr";
        /// IPv4.
        Ipv4 "ipv4" | "ip4";
        /// IPv6.
        Ipv6 "ipv6" | "ip6";
        /// TCP: packets and streams.
        Tcp "tcp" | "tcp4" | "tcp6";
        /// TCP: packets only.
        TcpPacket "tcp-pkt";
        /// TCP: the reassembled stream only.
        TcpStream "tcp-stream";
        Udp "udp" | "udp4" | "udp6";
        /// ICMP over IPv4 and IPv6.
        Icmp "icmp";
        /// ICMP over IPv4.
        Icmpv4 "icmpv4" | "icmp4";
        /// ICMP over IPv6.
        Icmpv6 "icmpv6" | "icmp6";
        Igmp "igmp";
        Sctp "sctp";
        /// The payload of IPsec, encrypted.
        Esp "esp";
        /// IPsec, authenticated.
        Ah "ah";
        Gre "gre";
        Ospf "ospf";
        Pim "pim";
        Vrrp "vrrp";
        Eigrp "eigrp";
        Http "http" | "http1";
        Dns "dns";
        Tls "tls" | "ssl";
        Smtp "smtp";
        /// DNS by multicast.
        Mdns "mdns";
        /// FTP, the control connection.
        Ftp "ftp";
        /// FTP, the data connection.
        FtpData "ftp-data";
        Ssh "ssh";
        Smb "smb" | "netbios-ssn";
        /// DCE/RPC.
        Dcerpc "dcerpc";
        Imap "imap";
        /// POP3.
        Pop3 "pop3";
        Sip "sip";
        Modbus "modbus";
        /// DNP3.
        Dnp3 "dnp3";
        Mqtt "mqtt";
        /// Kerberos 5.
        Krb5 "krb5";
        Snmp "snmp";
        /// RFB (VNC).
        Rfb "rfb";
        Tftp "tftp";
        Dhcp "dhcp";
        Ike "ike" | "ikev2";
        Ntp "ntp";
        Quic "quic";
        Ldap "ldap";
        Nfs "nfs";
        /// HTTP/2.
        Http2 "http2";
        /// DNS over HTTP/2 (RFC 8484).
        Doh2 "doh2";
        Rdp "rdp";
        Telnet "telnet";
        /// WebSocket (RFC 6455).
        WebSocket "websocket";
        /// PostgreSQL.
        Pgsql "pgsql";
        /// The distributed hash table of BitTorrent.
        BittorrentDht "bittorrent-dht";
        /// EtherNet/IP.
        Enip "enip";
        /// A file in any protocol (Snort 3).
        File "file";
    }
}

words! {
    /// The point of inspection at which a rule is evaluated, as in `http1:request_headers`.
    Hook "all, pre_stream, pre_flow or flow_start with a transport protocol, request_ or response_ and started, line, headers, body, trailer or complete with an application protocol, or a state of TLS or SSH" {
        /// Every packet.
        All "all";
        /// Before the stream is reassembled.
        PreStream "pre_stream";
        /// Before the packet has a flow.
        PreFlow "pre_flow";
        /// The first packet of a flow.
        FlowStart "flow_start";
        RequestStarted "request_started";
        RequestLine "request_line";
        RequestHeaders "request_headers";
        RequestBody "request_body";
        RequestTrailer "request_trailer";
        RequestComplete "request_complete";
        ResponseStarted "response_started";
        ResponseLine "response_line";
        ResponseHeaders "response_headers";
        ResponseBody "response_body";
        ResponseTrailer "response_trailer";
        ResponseComplete "response_complete";
        /// The states of a client of TLS.
        ClientInProgress "client_in_progress";
        ClientHelloDone "client_hello_done";
        ClientCertDone "client_cert_done";
        ClientHandshakeDone "client_handshake_done";
        ClientFinished "client_finished";
        /// The states of a server of TLS.
        ServerInProgress "server_in_progress";
        ServerHello "server_hello";
        ServerCertDone "server_cert_done";
        ServerHelloDone "server_hello_done";
        ServerHandshakeDone "server_handshake_done";
        ServerFinished "server_finished";
        /// The states of a client of SSH.
        RequestInProgress "request_in_progress";
        RequestBannerWaitEol "request_banner_wait_eol";
        RequestBannerDone "request_banner_done";
        RequestFinished "request_finished";
        /// The states of a server of SSH.
        ResponseInProgress "response_in_progress";
        ResponseBannerWaitEol "response_banner_wait_eol";
        ResponseBannerDone "response_banner_done";
        ResponseFinished "response_finished";
    }
}

impl Protocol {
    /// Returns true for a protocol of the network or the transport layer, and not of an application.
    pub fn is_of_packets(self) -> bool {
        matches!(
            self,
            Protocol::Ip
                | Protocol::Ipv4
                | Protocol::Ipv6
                | Protocol::Tcp
                | Protocol::TcpPacket
                | Protocol::TcpStream
                | Protocol::Udp
                | Protocol::Icmp
                | Protocol::Icmpv4
                | Protocol::Icmpv6
                | Protocol::Igmp
                | Protocol::Sctp
                | Protocol::Esp
                | Protocol::Ah
                | Protocol::Gre
                | Protocol::Ospf
                | Protocol::Pim
                | Protocol::Vrrp
                | Protocol::Eigrp
        )
    }
}

impl Hook {
    /// Returns true for a point in the handling of packets, and not in that of the transactions of an application.
    pub fn is_of_packets(self) -> bool {
        matches!(
            self,
            Hook::All | Hook::PreStream | Hook::PreFlow | Hook::FlowStart
        )
    }

    /// Returns the only protocol that has the point; `None` if others have it, too.
    fn only_of(self) -> Option<Protocol> {
        use Hook::*;
        match self {
            ClientInProgress | ClientHelloDone | ClientCertDone | ClientHandshakeDone | ClientFinished
            | ServerInProgress | ServerHello | ServerCertDone | ServerHelloDone | ServerHandshakeDone
            | ServerFinished => Some(Protocol::Tls),
            RequestInProgress
            | RequestBannerWaitEol
            | RequestBannerDone
            | RequestFinished
            | ResponseInProgress
            | ResponseBannerWaitEol
            | ResponseBannerDone
            | ResponseFinished => Some(Protocol::Ssh),
            _ => None,
        }
    }
}

words! {
    /// The direction of a header.
    Direction "->, <> or =>" {
        /// From the first endpoint to the second.
        Forward "->";
        /// Between both endpoints.
        Both "<>";
        /// A request from the first endpoint to the second, and its response.
        Transaction "=>";
    }
}

/// The endpoints of a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoints {
    /// Addresses of the sender.
    pub source: AddressSpec,
    /// Ports of the sender.
    pub source_ports: PortSpec,
    pub direction: Direction,
    /// Addresses of the receiver.
    pub destination: AddressSpec,
    /// Ports of the receiver.
    pub destination_ports: PortSpec,
}

/// The header of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    pub action: Action,
    pub protocol: Protocol,
    /// The point of inspection, if the header names one.
    pub hook: Option<Hook>,
    /// The endpoints; `None` in Snort 3 rules that name only a service.
    pub endpoints: Option<Endpoints>,
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.action, self.protocol)?;
        if let Some(hook) = self.hook {
            write!(f, ":{hook}")?;
        }
        match &self.endpoints {
            None => Ok(()),
            Some(ends) => write!(
                f,
                " {} {} {} {} {}",
                ends.source, ends.source_ports, ends.direction, ends.destination, ends.destination_ports
            ),
        }
    }
}

/// Returns the words of a header with their offsets. A list in brackets is one word, and may contain blanks.
fn split(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut depth = 0usize;
    let mut start = None;
    for (at, c) in text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        match (start, c.is_whitespace() && depth == 0) {
            (None, false) => start = Some(at),
            (Some(from), true) => {
                found.push((from, &text[from..at]));
                start = None;
            }
            _ => {}
        }
    }
    if let Some(from) = start {
        found.push((from, &text[from..]));
    }
    found
}

/// Parses a header.
///
/// # Errors
/// Returns the offset and the name of the wrong part, and the reason.
pub(crate) fn parse(syntax: Syntax, text: &str) -> Result<Header, (usize, &'static str, Reason)> {
    let parts = split(text);
    let part = |at: usize, name: &'static str| {
        let missing = || (text.len(), name, Reason::invalid("it is missing", FORM));
        parts.get(at).copied().ok_or_else(missing)
    };
    const FORM: &str = "ACTION PROTOCOL ADDRESSES PORTS -> ADDRESSES PORTS (OPTIONS)";
    let (at, word) = part(0, "action")?;
    let action = action(syntax, word).map_err(|reason| (at, "action", reason))?;
    let (at, word) = part(1, "protocol")?;
    let (protocol, hook) = protocol(syntax, word).map_err(|reason| (at, "protocol", reason))?;
    if parts.len() == 2 && syntax == Syntax::Snort3 {
        return Ok(Header {
            action,
            protocol,
            hook,
            endpoints: None,
        });
    }
    let addresses = |index, name| {
        let (at, word) = part(index, name)?;
        AddressSpec::parse(word).map_err(|reason| (at, name, reason))
    };
    let ports = |index, name| {
        let (at, word) = part(index, name)?;
        PortSpec::parse(word).map_err(|reason| (at, name, reason))
    };
    let endpoints = Endpoints {
        source: addresses(2, "source addresses")?,
        source_ports: ports(3, "source ports")?,
        direction: {
            let (at, word) = part(4, "direction")?;
            Direction::from_word(word).map_err(|reason| (at, "direction", reason))?
        },
        destination: addresses(5, "destination addresses")?,
        destination_ports: ports(6, "destination ports")?,
    };
    if let Some((at, word)) = parts.get(7) {
        return Err((
            *at,
            "header",
            Reason::invalid(format!("{} follows the header", quote(word)), FORM),
        ));
    }
    Ok(Header {
        action,
        protocol,
        hook,
        endpoints: Some(endpoints),
    })
}

fn action(syntax: Syntax, word: &str) -> Result<Action, Reason> {
    let unsupported = |why| Err(Reason::Unsupported { why });
    match word {
        "block" | "rewrite" | "react" if syntax == Syntax::Snort3 => unsupported(
            "the actions block, rewrite and react need responses that the engine does not send (drop and reject are there)",
        ),
        "activate" | "dynamic" => unsupported("activate and dynamic rules were replaced by tag and flowbits"),
        _ if word.starts_with("accept") => unsupported(
            "the rules of Suricata's firewall mode are not there; see rules with pass and drop ip any any",
        ),
        _ => Action::from_word(word),
    }
}

/// Protocols of the rule language for which the engine has no parser.
const OTHER_PROTOCOLS: &[&str] = &["arp", "ether", "user", "template", "llmnr", "pop2"];

fn protocol(syntax: Syntax, word: &str) -> Result<(Protocol, Option<Hook>), Reason> {
    let lower = word.to_ascii_lowercase();
    let word = if syntax == Syntax::Suricata { &lower } else { word };
    if syntax == Syntax::Suricata
        && let Some((word, hook)) = word.split_once(':')
    {
        let (protocol, _) = self::protocol(syntax, word)?;
        let hook = Hook::from_word(hook)?;
        if protocol.is_of_packets() != hook.is_of_packets() {
            return Err(Reason::invalid(
                format!("the hook {} in rules of {protocol}", quote(hook.word())),
                "a hook of packets with a transport protocol, or one of messages with an application protocol",
            ));
        }
        if hook.only_of().is_some_and(|only| only != protocol) {
            return Err(Reason::invalid(
                format!("the hook {} in rules of {protocol}", quote(hook.word())),
                "a state of TLS with tls, one of SSH with ssh",
            ));
        }
        return Ok((protocol, Some(hook)));
    }
    if OTHER_PROTOCOLS.contains(&word) {
        return Err(Reason::Unsupported {
            why: "the engine has no parser for this protocol",
        });
    }
    Protocol::from_word(word).map(|protocol| (protocol, None))
}
