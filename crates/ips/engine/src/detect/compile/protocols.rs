//! The protocols to which headers, options and buffers of rules apply.

use millrace_ips_rules::Reason;
use millrace_ips_rules::buffers::Buffer;
use millrace_ips_rules::frames;
use millrace_ips_rules::header::Protocol;
use millrace_ips_rules::options::number::NumberField;
use millrace_ips_rules::options::words::TextField;

use super::super::program::{AppTest, ProtocolTest, Rule};
use crate::app::{AppProtocol, Asks};
use crate::flow::Direction;

const ICMP: u8 = 1;
const IGMP: u8 = 2;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
const GRE: u8 = 47;
const ESP: u8 = 50;
const AH: u8 = 51;
const EIGRP: u8 = 88;
const OSPF: u8 = 89;
const PIM: u8 = 103;
const VRRP: u8 = 112;
const SCTP: u8 = 132;

/// Protocols that carry files.
const FILES: &[AppProtocol] = &[
    AppProtocol::Http,
    AppProtocol::Http2,
    AppProtocol::Smtp,
    AppProtocol::FtpData,
    AppProtocol::Smb,
    AppProtocol::Imap,
    AppProtocol::Pop3,
    AppProtocol::Nfs,
];

/// The versions of HTTP, which have the same buffers.
const HTTP: &[AppProtocol] = &[AppProtocol::Http, AppProtocol::Http2];

/// The protocols of the transactions of a flow that carries DNS over HTTP/2.
pub(super) const DOH2: &[AppProtocol] = &[AppProtocol::Http2, AppProtocol::Dns];

/// Compiles the protocol of a header.
pub(super) fn header(protocol: Protocol) -> ProtocolTest {
    let ip = |ip: &[u8]| ProtocolTest {
        ip: ip.to_vec(),
        ..ProtocolTest::default()
    };
    let app = |app: AppProtocol| ProtocolTest {
        app: vec![app],
        ..ProtocolTest::default()
    };
    match protocol {
        Protocol::Ip => ProtocolTest::default(),
        Protocol::Ipv4 => ProtocolTest {
            version: Some(4),
            ..ProtocolTest::default()
        },
        Protocol::Ipv6 => ProtocolTest {
            version: Some(6),
            ..ProtocolTest::default()
        },
        Protocol::Tcp | Protocol::TcpPacket | Protocol::TcpStream => ip(&[TCP]),
        Protocol::Udp => ip(&[UDP]),
        Protocol::Icmp => ip(&[ICMP, ICMPV6]),
        Protocol::Icmpv4 => ip(&[ICMP]),
        Protocol::Icmpv6 => ip(&[ICMPV6]),
        Protocol::Igmp => ip(&[IGMP]),
        Protocol::Sctp => ip(&[SCTP]),
        Protocol::Esp => ip(&[ESP]),
        Protocol::Ah => ip(&[AH]),
        Protocol::Gre => ip(&[GRE]),
        Protocol::Ospf => ip(&[OSPF]),
        Protocol::Pim => ip(&[PIM]),
        Protocol::Vrrp => ip(&[VRRP]),
        Protocol::Eigrp => ip(&[EIGRP]),
        Protocol::Http => ProtocolTest {
            app: HTTP.to_vec(),
            ..ProtocolTest::default()
        },
        Protocol::Dns => app(AppProtocol::Dns),
        Protocol::Doh2 => ProtocolTest {
            app: DOH2.to_vec(),
            carries_dns: true,
            ..ProtocolTest::default()
        },
        Protocol::Tls => app(AppProtocol::Tls),
        Protocol::Smtp => app(AppProtocol::Smtp),
        Protocol::Ftp => app(AppProtocol::Ftp),
        Protocol::FtpData => app(AppProtocol::FtpData),
        Protocol::Ssh => app(AppProtocol::Ssh),
        Protocol::Smb => app(AppProtocol::Smb),
        Protocol::Dcerpc => ProtocolTest {
            app: vec![AppProtocol::Dcerpc, AppProtocol::Smb],
            ..ProtocolTest::default()
        },
        Protocol::Imap => app(AppProtocol::Imap),
        Protocol::Pop3 => app(AppProtocol::Pop3),
        Protocol::Sip => app(AppProtocol::Sip),
        Protocol::Modbus => app(AppProtocol::Modbus),
        Protocol::Dnp3 => app(AppProtocol::Dnp3),
        Protocol::Mqtt
        | Protocol::Krb5
        | Protocol::Snmp
        | Protocol::Rfb
        | Protocol::Tftp
        | Protocol::Dhcp
        | Protocol::Ike
        | Protocol::Ntp
        | Protocol::Quic
        | Protocol::Ldap
        | Protocol::Nfs
        | Protocol::Http2
        | Protocol::Rdp
        | Protocol::Telnet
        | Protocol::WebSocket
        | Protocol::Pgsql
        | Protocol::BittorrentDht
        | Protocol::Mdns
        | Protocol::Enip => ProtocolTest {
            app: AppProtocol::by_name(protocol.word()).into_iter().collect(),
            ..ProtocolTest::default()
        },
        Protocol::File => ProtocolTest {
            app: FILES.to_vec(),
            ..ProtocolTest::default()
        },
    }
}

/// Returns the protocols that a name of `app-layer-protocol` stands for: unless it is exact, `dcerpc` stands for SMB, too, which
/// may carry it.
pub(super) fn by_name(name: &str, is_exact: bool) -> Result<Vec<AppProtocol>, Reason> {
    match name {
        "file" => return Ok(FILES.to_vec()),
        "http" => return Ok(HTTP.to_vec()),
        "dcerpc" if !is_exact => return Ok(vec![AppProtocol::Dcerpc, AppProtocol::Smb]),
        _ => {}
    }
    let name = match name {
        "https" => "tls",
        "netbios-ssn" => "smb",
        name => name,
    };
    match AppProtocol::by_name(name) {
        Some(app) => Ok(vec![app]),
        None => Err(Reason::Unsupported {
            why: "the engine has no parser for this protocol",
        }),
    }
}

/// Returns the protocols that carry files.
pub(super) fn files() -> Vec<AppProtocol> {
    FILES.to_vec()
}

/// Returns true if a buffer is a part of a packet and not of a transaction.
pub(super) fn is_of_packet(buffer: Buffer) -> bool {
    matches!(
        buffer,
        Buffer::Ipv4Header
            | Buffer::Ipv6Header
            | Buffer::TcpHeader
            | Buffer::UdpHeader
            | Buffer::Icmpv4Header
            | Buffer::Icmpv6Header
            | Buffer::IgmpHeader
            | Buffer::IpSource
            | Buffer::IpDestination
    )
}

/// Returns the protocol with which a keyword begins, as `mqtt` in `mqtt.type`.
fn of_keyword(keyword: &str) -> Option<&'static [AppProtocol]> {
    let name = keyword.split(['.', '_']).next().unwrap_or_default();
    let name = match name {
        "ja3" | "ja3s" | "ja4" => "tls",
        "email" => "smtp",
        "sdp" => "sip",
        "cip" => "enip",
        name => name,
    };
    let at = AppProtocol::ALL.iter().position(|app| app.name() == name)?;
    AppProtocol::ALL.get(at..=at)
}

/// Returns the protocol that has a frame.
fn of_frame(buffer: Buffer) -> &'static [AppProtocol] {
    let app = frames::name(buffer).and_then(|(app, _)| AppProtocol::by_name(app));
    let at = app.and_then(|app| AppProtocol::ALL.iter().position(|known| *known == app));
    at.and_then(|at| AppProtocol::ALL.get(at..=at))
        .unwrap_or_default()
}

/// Returns the protocols that have a buffer.
pub(super) fn of_buffer(buffer: Buffer) -> &'static [AppProtocol] {
    match buffer {
        Buffer::FileData | Buffer::FileName | Buffer::FileMagic => FILES,
        buffer if buffer.is_frame() => of_frame(buffer),
        buffer if is_of_packet(buffer) => &[],
        Buffer::PktData | Buffer::RawData | Buffer::Base64Data => &[],
        Buffer::DceStubData => &[AppProtocol::Dcerpc, AppProtocol::Smb],
        Buffer::SipHeader | Buffer::SipBody => &[AppProtocol::Sip],
        Buffer::ModbusData => &[AppProtocol::Modbus],
        Buffer::Dnp3Data => &[AppProtocol::Dnp3],
        buffer => {
            let names = buffer.names().suricata;
            match names.first().and_then(|name| of_keyword(name)) {
                None | Some([AppProtocol::Http]) => HTTP,
                Some(found) => found,
            }
        }
    }
}

/// Returns the protocols whose parsers provide a value.
pub(super) fn of_field(field: TextField, value: &str) -> Vec<AppProtocol> {
    match field {
        TextField::TlsVersion | TextField::SslVersion | TextField::SslState => vec![AppProtocol::Tls],
        TextField::SshProtoVersion => vec![AppProtocol::Ssh],
        TextField::CertExpired | TextField::CertValid => vec![AppProtocol::Tls],
        TextField::FtpBounce => vec![AppProtocol::Ftp],
        TextField::FileMagicText | TextField::FileStore => FILES.to_vec(),
        TextField::IkeChosenSaAttribute => vec![AppProtocol::Ike],
        TextField::Krb5TicketEncryption => vec![AppProtocol::Krb5],
        TextField::DceIface | TextField::DceOpnum => vec![AppProtocol::Dcerpc, AppProtocol::Smb],
        TextField::SipMethodList | TextField::SipStatCode => vec![AppProtocol::Sip],
        TextField::Modbus | TextField::ModbusFunc | TextField::ModbusUnit => vec![AppProtocol::Modbus],
        TextField::Dnp3Func | TextField::Dnp3Ind | TextField::Dnp3Obj => vec![AppProtocol::Dnp3],
        // The name of an event begins with the protocol.
        TextField::AppLayerEvent => {
            let name = value.split('.').next().unwrap_or(value);
            AppProtocol::by_name(name).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

/// Returns what parsers look at for these rules.
pub(super) fn asks(rules: &[Rule]) -> Asks {
    let mut asks = Asks::default();
    for rule in rules {
        for test in &rule.buffers {
            match test.buffer {
                Buffer::EmailUrl | Buffer::EmailBodyMd5 => asks.mail_bodies = true,
                Buffer::Http2Header => asks.http2_headers = true,
                Buffer::FileData | Buffer::FileMagic => asks.ranges = true,
                buffer => asks.sdp |= (Buffer::SdpOrigin..=Buffer::SdpMediaEncryptionKey).contains(&buffer),
            }
        }
        for test in &rule.app {
            match test {
                AppTest::Number(NumberField::SmbVersion, ..) => asks.smb_versions = true,
                AppTest::Number(NumberField::FileSize, ..) => asks.ranges = true,
                AppTest::Number(field, ..) => {
                    asks.http2_frames |=
                        (NumberField::Http2FrameType..=NumberField::Http2Setting).contains(field);
                }
                AppTest::Digest { .. } => asks.ranges = true,
                AppTest::Field(field, _) => {
                    asks.ranges |= matches!(field, TextField::FileStore | TextField::FileMagicText);
                }
                _ => {}
            }
        }
        asks.ranges |= rule.store.is_some();
    }
    asks
}

/// Returns the protocols whose transactions have a number.
pub(super) fn of_number(field: NumberField) -> Vec<AppProtocol> {
    match field {
        NumberField::FileSize => FILES.to_vec(),
        NumberField::FtpDataCommand => vec![AppProtocol::FtpData],
        field => of_keyword(field.keyword()).unwrap_or_default().to_vec(),
    }
}

/// Returns the directions in which a buffer exists, by [`Direction::index`].
pub(crate) fn buffer_directions(buffer: Buffer) -> [bool; 2] {
    match buffer {
        Buffer::HttpUri
        | Buffer::HttpUriRaw
        | Buffer::HttpMethod
        | Buffer::HttpUserAgent
        | Buffer::HttpHost
        | Buffer::HttpHostRaw
        | Buffer::HttpRequestBody
        | Buffer::HttpRequestLine
        | Buffer::HttpAccept
        | Buffer::HttpAcceptEnc
        | Buffer::HttpAcceptLang
        | Buffer::HttpReferer
        | Buffer::DnsQuery
        | Buffer::HttpRequestHeader
        | Buffer::FtpCommand
        | Buffer::FtpCommandData
        | Buffer::SshHassh
        | Buffer::SshHasshString
        | Buffer::PgsqlQuery
        | Buffer::LdapRequestDn
        | Buffer::LdapRequestAttribute
        | Buffer::IkeInitSpi
        | Buffer::MqttSubscribeTopic
        | Buffer::MqttUnsubscribeTopic
        | Buffer::QuicSni
        | Buffer::TlsSni
        | Buffer::Ja3Hash
        | Buffer::Ja3String
        | Buffer::Ja4Hash => [true, false],
        Buffer::HttpResponseBody
        | Buffer::HttpStatCode
        | Buffer::HttpStatMsg
        | Buffer::HttpResponseLine
        | Buffer::HttpLocation
        | Buffer::HttpResponseHeader
        | Buffer::FtpReply
        | Buffer::FtpCompletionCode
        | Buffer::SshHasshServer
        | Buffer::SshHasshServerString
        | Buffer::IkeRespSpi
        | Buffer::LdapResponsesDn
        | Buffer::LdapResponsesMessage
        | Buffer::LdapResponsesAttribute
        | Buffer::DnsResponseName
        | Buffer::HttpServer
        | Buffer::Ja3sHash
        | Buffer::Ja3sString => [false, true],
        _ => [true, true],
    }
}

/// Returns the only direction in which all buffers exist; none if they exist in both.
///
/// # Errors
/// Returns the reason if they exist in no common direction.
pub(super) fn common_direction(buffers: impl Iterator<Item = Buffer>) -> Result<Option<Direction>, Reason> {
    let mut common = [true; 2];
    for buffer in buffers {
        let directions = buffer_directions(buffer);
        common = [common[0] && directions[0], common[1] && directions[1]];
    }
    match common {
        [true, true] => Ok(None),
        [true, false] => Ok(Some(Direction::ToServer)),
        [false, true] => Ok(Some(Direction::ToClient)),
        [false, false] => Err(Reason::Invalid {
            problem: "buffers of both directions in one rule".to_owned(),
            expected: "buffers of requests, or buffers of responses",
        }),
    }
}
