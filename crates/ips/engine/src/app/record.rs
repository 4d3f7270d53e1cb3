//! Fields of transactions for EVE records, and for conditions of rules that compare a value instead of a buffer.

mod fields;

use crate::app::heap::{Heap, heap};
pub use crate::app::interfaces::Interfaces;
pub use fields::{FIELD_LIST, FIELD_SIZE, Fields, Value};

/// The fields of a transaction, by protocol.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Record {
    /// No field yet.
    #[default]
    None,
    Http(Box<HttpRecord>),
    Dns(Box<DnsRecord>),
    Tls(Box<TlsRecord>),
    Smtp(Box<SmtpRecord>),
    Ftp(Box<FtpRecord>),
    Ssh(Box<SshRecord>),
    /// SMB and DCE/RPC over it.
    Smb(Box<SmbRecord>),
    Sip(Box<SipRecord>),
    Modbus(Box<ModbusRecord>),
    /// DNP3.
    Dnp3(Box<Dnp3Record>),
    /// A protocol whose fields EVE writes as they are.
    Fields(Box<Fields>),
}

impl Heap for Record {
    fn heap(&self) -> usize {
        match self {
            Record::None => 0,
            Record::Http(record) => record.heap(),
            Record::Dns(record) => record.heap(),
            Record::Tls(record) => record.heap(),
            Record::Smtp(record) => record.heap(),
            Record::Ftp(record) => record.heap(),
            Record::Ssh(record) => record.heap(),
            Record::Fields(fields) => fields.heap(),
            Record::Smb(record) => record.heap(),
            Record::Sip(record) => record.heap(),
            Record::Modbus(record) => record.heap(),
            Record::Dnp3(record) => record.heap(),
        }
    }
}

/// An HTTP request and its response.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HttpRecord {
    /// Host, without port.
    pub hostname: Vec<u8>,
    /// Port in the Host header or the URI.
    pub port: Option<u16>,
    /// URI as sent.
    pub url: Vec<u8>,
    pub method: Vec<u8>,
    /// Protocol of the request.
    pub protocol: Vec<u8>,
    /// Header User-Agent.
    pub user_agent: Option<Vec<u8>>,
    /// Header Referer.
    pub referer: Option<Vec<u8>>,
    /// Header X-Forwarded-For.
    pub forwarded_for: Option<Vec<u8>>,
    /// Header Content-Type of the response, without parameters.
    pub content_type: Option<Vec<u8>>,
    /// Header Content-Range of the response.
    pub content_range: Option<Vec<u8>>,
    /// Header Location of the response.
    pub redirect: Option<Vec<u8>>,
    /// Status code of the response.
    pub status: Option<u16>,
    /// Bytes of the decoded response body.
    pub length: u64,
    /// Bytes of the decoded request body.
    pub request_length: u64,
    /// Number of the stream of HTTP/2, 0 for frames outside of streams; `None` for HTTP/1.
    pub http2_stream: Option<u32>,
    /// Headers of HTTP/2 as they were sent, and sizes of the table of headers in front of them, if transactions become records;
    /// those of HTTP/1 if records have details. By [`Direction::index`](crate::Direction::index).
    pub headers: [Vec<Fields>; 2],
    /// Priority, settings and error code that frames of HTTP/2 carry, by [`Direction::index`](crate::Direction::index).
    pub frames: [Fields; 2],
}

heap!(HttpRecord {
    hostname,
    url,
    method,
    protocol,
    user_agent,
    referer,
    forwarded_for,
    content_type,
    content_range,
    redirect,
    headers,
    frames
});

/// Largest size of a name of DNS as text, in bytes, as Suricata's documentation gives it. A longer name is cut.
pub const DNS_NAME_SIZE: usize = 1025;

/// A DNS message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DnsRecord {
    /// Identifier.
    pub id: u16,
    /// Flags as sent.
    pub flags: u16,
    /// True for an answer.
    pub is_answer: bool,
    /// Questions: name, type, class.
    pub questions: Vec<(Vec<u8>, u16, u16)>,
    /// Records of the answer section.
    pub answers: Vec<DnsResource>,
    /// Records of the authority section.
    pub authorities: Vec<DnsResource>,
    /// Records of the additional section.
    pub additionals: Vec<DnsResource>,
}

heap!(DnsRecord {
    questions,
    answers,
    authorities,
    additionals
});

/// A resource record.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DnsResource {
    /// Owner name.
    pub name: Vec<u8>,
    pub kind: u16,
    pub class: u16,
    /// Time to live, in seconds.
    pub ttl: u32,
    /// Data as text: an address, a name, or the text itself; empty for other types.
    pub data: Vec<u8>,
    /// Data of SOA, SRV and SSHFP records by the names of their fields, options of OPT, and the texts of a TXT record with
    /// several; empty for others.
    pub fields: Fields,
}

heap!(DnsResource { name, data, fields });

/// A TLS handshake.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsRecord {
    /// Version on which the server decided (0x0303 is TLS 1.2).
    pub version: u16,
    /// Server name of the client hello.
    pub sni: Option<Vec<u8>>,
    /// Protocols that the client offers by ALPN.
    pub client_alpns: Vec<Vec<u8>>,
    /// Protocol that the server chose by ALPN.
    pub server_alpns: Vec<Vec<u8>>,
    /// Subject of the server certificate.
    pub subject: Option<Vec<u8>>,
    /// Issuer of the server certificate.
    pub issuer: Option<Vec<u8>>,
    /// Serial number of the server certificate.
    pub serial: Option<Vec<u8>>,
    /// SHA-1 of the server certificate.
    pub fingerprint: Option<Vec<u8>>,
    /// Start of the validity of the server certificate, in seconds since 1970.
    pub not_before: Option<i64>,
    /// End of the validity of the server certificate, in seconds since 1970.
    pub not_after: Option<i64>,
    /// Names in the subjectAltName extension.
    pub alternative_names: Vec<Vec<u8>>,
    /// JA3 text and its MD5.
    pub ja3: Option<(Vec<u8>, Vec<u8>)>,
    /// JA3S text and its MD5.
    pub ja3s: Option<(Vec<u8>, Vec<u8>)>,
    /// JA4.
    pub ja4: Option<Vec<u8>>,
    /// The certificate of the client.
    pub client: Option<ClientCertificate>,
    /// The parts that only records with details have.
    pub details: Option<Box<TlsDetails>>,
    /// Messages of the handshake that were seen.
    pub state: super::tls::HandshakeState,
    /// True if the session was resumed without certificates.
    pub is_resumed: bool,
}

/// The details of a record of TLS, by [`Direction::index`](crate::Direction::index).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsDetails {
    /// Versions, cipher suites, extensions and signature algorithms of the hellos.
    pub hellos: [Fields; 2],
    /// The first certificates of the chains, in DER.
    pub chains: [Vec<Vec<u8>>; 2],
}

heap!(TlsDetails { hellos, chains });

/// The certificate with which a client of TLS authenticates, in the forms of that of the server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientCertificate {
    pub subject: Vec<u8>,
    pub issuer: Vec<u8>,
    pub serial: Vec<u8>,
    pub fingerprint: Vec<u8>,
    pub not_before: i64,
    pub not_after: i64,
    pub alternative_names: Vec<Vec<u8>>,
}

heap!(ClientCertificate {
    alternative_names,
    subject,
    issuer,
    serial,
    fingerprint
});

heap!(TlsRecord {
    details,
    client,
    sni,
    client_alpns,
    server_alpns,
    subject,
    issuer,
    serial,
    fingerprint,
    alternative_names,
    ja3,
    ja3s,
    ja4
});

/// A mail.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SmtpRecord {
    /// Argument of HELO or EHLO.
    pub helo: Option<Vec<u8>>,
    /// Argument of MAIL FROM.
    pub mail_from: Option<Vec<u8>>,
    /// Arguments of RCPT TO.
    pub rcpt_to: Vec<Vec<u8>>,
    /// Header From.
    pub from: Option<Vec<u8>>,
    /// Header To.
    pub to: Vec<Vec<u8>>,
    /// Header Cc.
    pub cc: Vec<Vec<u8>>,
    /// Header Subject.
    pub subject: Option<Vec<u8>>,
    /// Header Message-Id.
    pub message_id: Option<Vec<u8>>,
    /// Header Date.
    pub date: Option<Vec<u8>>,
    /// Header X-Mailer.
    pub x_mailer: Option<Vec<u8>>,
    /// Headers Received.
    pub received: Vec<Vec<u8>>,
    /// Names of attachments.
    pub attachments: Vec<Vec<u8>>,
    /// URLs in the text, without their schemes, if rules ask for them.
    pub urls: Vec<Vec<u8>>,
    /// MD5 of the body in hexadecimal digits, if rules ask for it.
    pub body_md5: Option<Vec<u8>>,
    /// The part of the mail that was seen; `None` without DATA or BDAT.
    pub status: Option<MailStatus>,
}

/// The part of a mail that was seen when its transaction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MailStatus {
    /// The mail ended within its headers.
    InHeaders,
    /// The mail ended within its body.
    InBody,
    Complete,
}

heap!(SmtpRecord {
    helo,
    mail_from,
    rcpt_to,
    from,
    to,
    subject,
    message_id,
    date,
    cc,
    x_mailer,
    received,
    attachments,
    urls,
    body_md5
});

/// An FTP command and its replies.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FtpRecord {
    pub command: Vec<u8>,
    /// The argument of the command.
    pub argument: Vec<u8>,
    /// Codes of the replies.
    pub completion_codes: Vec<Vec<u8>>,
    /// Texts of the replies.
    pub replies: Vec<Vec<u8>>,
    /// Port of the data connection.
    pub dynamic_port: Option<u16>,
    /// True if the command is longer than what was kept of it.
    pub is_command_cut: bool,
    /// True if a line of a reply is.
    pub is_reply_cut: bool,
}

heap!(FtpRecord {
    command,
    argument,
    completion_codes,
    replies
});

/// An SSH connection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SshRecord {
    /// Protocol and software versions of the client.
    pub client: Option<(Vec<u8>, Vec<u8>)>,
    /// Protocol and software versions of the server.
    pub server: Option<(Vec<u8>, Vec<u8>)>,
    /// HASSH of the client and of the server: its MD5 in hexadecimal digits, and its text.
    pub hassh: [Option<(Vec<u8>, Vec<u8>)>; 2],
}

heap!(SshRecord {
    client,
    server,
    hassh
});

/// An SMB command.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SmbRecord {
    pub dialect: Vec<u8>,
    /// Name of the command.
    pub command: Vec<u8>,
    /// Status of the response.
    pub status: Option<u32>,
    /// Session identifier.
    pub session_id: u64,
    /// Tree identifier.
    pub tree_id: u32,
    /// Name of a file or pipe.
    pub filename: Option<Vec<u8>>,
    /// Name of a share.
    pub share: Option<Vec<u8>>,
    /// Domain, user, host and version of NTLM in a session setup; none without NTLM.
    pub ntlmssp: Fields,
    /// A call of DCE/RPC.
    pub dcerpc: Option<DcerpcCall>,
    /// Further fields of the command and its answer.
    pub more: Fields,
}

heap!(SmbRecord {
    more,
    ntlmssp,
    dialect,
    command,
    filename,
    share,
    dcerpc
});

/// A call of DCE/RPC.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DcerpcCall {
    /// The interfaces that the client proposed for the context; none if the bind was not seen. Their memory is counted
    /// with the parser, which shares them.
    pub interfaces: Interfaces,
    /// Operation number.
    pub operation: u16,
    /// Type of the PDU that began the transaction (C706, section 12.6.4); `None` if only an answer was seen.
    pub request: Option<u8>,
    /// Type of the PDU that answered it.
    pub answer: Option<u8>,
    /// Identifier of the call.
    pub identifier: u32,
    /// Minor version of the protocol.
    pub minor_version: u8,
    /// Number of fragments, by [`Direction::index`](crate::Direction::index).
    pub fragments: [u32; 2],
    /// Bytes of stub data, by [`Direction::index`](crate::Direction::index).
    pub stub_sizes: [u64; 2],
    /// Results of the contexts that a bind proposed, in their order.
    pub results: Vec<u16>,
    /// UUID of the activity of a call over UDP, as text; `None` for other calls.
    pub activity: Option<Vec<u8>>,
    /// Sequence number of a call over UDP.
    pub sequence: u32,
}

heap!(DcerpcCall { results, activity });

/// A SIP message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SipRecord {
    /// Method of a request.
    pub method: Vec<u8>,
    /// URI of a request.
    pub uri: Vec<u8>,
    /// Version in the first line.
    pub version: Vec<u8>,
    /// Status code of a response.
    pub code: Option<u16>,
    /// Reason phrase of a response.
    pub reason: Vec<u8>,
    /// The session description in the body (SDP); none unless transactions become records.
    pub sdp: Fields,
}

heap!(SipRecord {
    method,
    uri,
    version,
    reason,
    sdp
});

/// A Modbus request and its answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModbusRecord {
    /// Transaction identifier.
    pub identifier: u16,
    /// The message in each direction, by [`Direction::index`](crate::Direction::index).
    pub messages: [Option<ModbusMessage>; 2],
}

heap!(ModbusRecord { messages });

/// A request or a response, with what its function code carries.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModbusMessage {
    /// Protocol identifier; 0 is Modbus.
    pub protocol: u16,
    pub unit: u8,
    /// Function code.
    pub function: u8,
    /// The bytes after the function code; at most 252.
    pub data: Vec<u8>,
}

heap!(ModbusMessage { data });

/// A DNP3 application fragment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Dnp3Record {
    /// Control byte of the first link frame.
    pub link_control: u8,
    /// Source address of the link frames.
    pub source: u16,
    /// Destination address of the link frames.
    pub destination: u16,
    /// Control byte of the fragment.
    pub control: u8,
    /// Function code.
    pub function: u8,
    /// Internal indications of a response, first byte first.
    pub indications: Option<u16>,
    /// The first objects.
    pub objects: Vec<Dnp3Objects>,
    /// True if `objects` holds all objects of the fragment.
    pub is_complete: bool,
}

heap!(Dnp3Record { objects });

/// An object header of DNP3 (IEEE 1815-2012, section 4.2.2.7).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Dnp3Objects {
    pub group: u8,
    pub variation: u8,
    /// Qualifier: prefix code and range specifier code.
    pub qualifier: u8,
    /// First index of the range; 0 without a range.
    pub start: u32,
    /// Last index of the range; 0 without a range.
    pub stop: u32,
    /// Number of objects; 0 for all objects.
    pub count: u32,
    /// The objects with their prefixes as sent; empty if none follow the header.
    pub data: Vec<u8>,
}

heap!(Dnp3Objects { data });
