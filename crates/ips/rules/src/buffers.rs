//! The table of inspection buffers, with the name of each buffer in every syntax.
//!
//! A sticky buffer is an option that precedes its contents (`http.uri; content:"x";`); a modifier follows its content
//! (`content:"x"; http_uri;`). Both name the same buffer.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::Syntax;

/// A buffer of inspection, and its names in the rule languages.
#[derive(Debug)]
pub struct BufferNames {
    pub buffer: Buffer,
    /// The buffer in plain words.
    pub words: &'static str,
    /// The sticky names of Suricata; the first is the one that is printed.
    pub suricata: &'static [&'static str],
    /// The modifier of Suricata and Snort 2.9; empty if there is none.
    pub modifier: &'static str,
    /// The sticky name of Snort 2.9; empty if there is none.
    pub snort2: &'static str,
    /// The sticky name of Snort 3; empty if there is none.
    pub snort3: &'static str,
}

/// The buffers by their names: the parser asks for each option of each rule.
struct Names {
    suricata: HashMap<&'static str, Buffer>,
    snort2: HashMap<&'static str, Buffer>,
    snort3: HashMap<&'static str, Buffer>,
    modifiers: HashMap<&'static str, Buffer>,
}

static NAMES: LazyLock<Names> = LazyLock::new(|| {
    let by = |name: fn(&BufferNames) -> &'static str| {
        let named = BUFFERS.iter().filter(|names| !name(names).is_empty());
        named.map(|names| (name(names), names.buffer)).collect()
    };
    let suricata = BUFFERS
        .iter()
        .flat_map(|names| names.suricata.iter().map(|name| (*name, names.buffer)));
    Names {
        suricata: suricata.collect(),
        snort2: by(|names| names.snort2),
        snort3: by(|names| names.snort3),
        modifiers: by(|names| names.modifier),
    }
});

macro_rules! buffers {
    ($($variant:ident $words:literal [$($suricata:literal),*] $modifier:literal $snort2:literal $snort3:literal;)*) => {
        /// A buffer that contents and regular expressions are compared with.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Buffer {
            $(#[doc = $words] $variant,)*
        }

        /// Every buffer, with its names.
        pub const BUFFERS: &[BufferNames] = &[
            $(BufferNames {
                buffer: Buffer::$variant,
                words: $words,
                suricata: &[$($suricata),*],
                modifier: $modifier,
                snort2: $snort2,
                snort3: $snort3,
            },)*
        ];
    };
}

buffers! {
    HttpUri "the normalised URI of the HTTP request" ["http.uri"] "http_uri" "" "http_uri";
    HttpUriRaw "the URI of the HTTP request as sent" ["http.uri.raw"] "http_raw_uri" "" "http_raw_uri";
    HttpMethod "the HTTP method" ["http.method"] "http_method" "" "http_method";
    HttpHeader "the normalised HTTP headers" ["http.header"] "http_header" "" "http_header";
    HttpHeaderRaw "the HTTP headers as sent" ["http.header.raw"] "http_raw_header" "" "http_raw_header";
    HttpCookie "the HTTP cookie" ["http.cookie"] "http_cookie" "" "http_cookie";
    HttpCookieRaw "the HTTP cookie as sent" [] "http_raw_cookie" "" "http_raw_cookie";
    HttpUserAgent "the HTTP User-Agent" ["http.user_agent"] "http_user_agent" "" "";
    HttpHost "the normalised HTTP host" ["http.host"] "http_host" "" "";
    HttpHostRaw "the HTTP host as sent" ["http.host.raw"] "http_raw_host" "" "";
    HttpRequestBody "the body of the HTTP request" ["http.request_body"] "http_client_body" "" "http_client_body";
    HttpResponseBody "the body of the HTTP response" ["http.response_body"] "http_server_body" "" "";
    HttpStatCode "the HTTP status code" ["http.stat_code"] "http_stat_code" "" "http_stat_code";
    HttpStatMsg "the HTTP status message" ["http.stat_msg"] "http_stat_msg" "" "http_stat_msg";
    HttpHeaderNames "the list of HTTP header names" ["http.header_names", "http_header_names"] "" "" "";
    HttpRequestLine "the HTTP request line" ["http.request_line", "http_request_line"] "" "" "http_raw_request";
    HttpResponseLine "the HTTP response line" ["http.response_line", "http_response_line"] "" "" "http_raw_status";
    HttpStart "the first line and the headers of an HTTP message" ["http.start", "http_start"] "" "" "";
    HttpProtocol "the version in the first line of an HTTP message" ["http.protocol", "http_protocol"] "" "" "http_version";
    HttpAccept "the HTTP header Accept" ["http.accept", "http_accept"] "" "" "";
    HttpAcceptEnc "the HTTP header Accept-Encoding" ["http.accept_enc", "http_accept_enc"] "" "" "";
    HttpAcceptLang "the HTTP header Accept-Language" ["http.accept_lang", "http_accept_lang"] "" "" "";
    HttpConnection "the HTTP header Connection" ["http.connection", "http_connection"] "" "" "";
    HttpContentLen "the HTTP header Content-Length" ["http.content_len", "http_content_len"] "" "" "";
    HttpContentType "the HTTP header Content-Type" ["http.content_type", "http_content_type"] "" "" "";
    HttpReferer "the HTTP header Referer" ["http.referer", "http_referer"] "" "" "";
    HttpLocation "the HTTP header Location" ["http.location", "http_location"] "" "" "";
    HttpServer "the HTTP header Server" ["http.server", "http_server"] "" "" "";
    Http2HeaderName "a header name of HTTP/2" ["http2.header_name"] "" "" "";
    Http2Header "a header of HTTP/2: name, colon, blank and value, with colons doubled" ["http2.header"] "" "" "";
    FileData "the content of a transferred file" ["file.data", "file_data"] "" "file_data" "file_data";
    FileName "the name of a transferred file" ["file.name"] "" "" "";
    PktData "the payload" ["pkt_data"] "" "pkt_data" "pkt_data";
    RawData "the payload before any normalisation" [] "" "" "raw_data";
    Base64Data "the decoded Base64 data" ["base64_data"] "" "base64_data" "base64_data";
    DnsQuery "the name of the DNS query" ["dns.query", "dns_query"] "" "" "";
    DnsQueryName "a name in the question section of DNS" ["dns.query.name", "dns.queries.rrname"] "" "" "";
    DnsAnswerName "a name in the answer section of DNS" ["dns.answer.name", "dns.answers.rrname"] "" "" "";
    TlsSni "the server name of the TLS client hello" ["tls.sni", "tls_sni"] "" "" "";
    TlsCertSubject "the subject of the TLS certificate" ["tls.cert_subject", "tls_cert_subject"] "" "" "";
    TlsCertIssuer "the issuer of the TLS certificate" ["tls.cert_issuer", "tls_cert_issuer"] "" "" "";
    TlsCertSerial "the serial number of the TLS certificate" ["tls.cert_serial", "tls_cert_serial"] "" "" "";
    TlsCertFingerprint "the SHA-1 fingerprint of the TLS certificate" ["tls.cert_fingerprint", "tls_cert_fingerprint"] "" "" "";
    TlsCerts "the bytes of the TLS certificates" ["tls.certs"] "" "" "";
    Ja3Hash "the JA3 hash of the TLS client" ["ja3.hash", "ja3_hash"] "" "" "";
    Ja3String "the JA3 text of the TLS client" ["ja3.string", "ja3_string"] "" "" "";
    Ja3sHash "the JA3S hash of the TLS server" ["ja3s.hash"] "" "" "";
    Ja3sString "the JA3S text of the TLS server" ["ja3s.string"] "" "" "";
    Ja4Hash "the JA4 fingerprint of the TLS client" ["ja4.hash"] "" "" "";
    SshProto "the version of the SSH protocol" ["ssh.proto", "ssh_proto"] "" "" "";
    SshSoftware "the software of the SSH banner" ["ssh.software", "ssh_software"] "" "" "";
    SmbNamedPipe "the named pipe of SMB" ["smb.named_pipe", "smb_named_pipe"] "" "" "";
    SmbShare "the share of SMB" ["smb.share", "smb_share"] "" "" "";
    DceStubData "the stub data of DCE/RPC" ["dcerpc.stub_data", "dce_stub_data"] "" "dce_stub_data" "dce_stub_data";
    SipMethod "the SIP method" ["sip.method"] "" "" "";
    SipUri "the SIP URI" ["sip.uri"] "" "" "";
    SipProtocol "the version in the first line of a SIP message" ["sip.protocol"] "" "" "";
    SipStatCode "the SIP status code" ["sip.stat_code"] "" "" "";
    SipStatMsg "the SIP reason phrase" ["sip.stat_msg"] "" "" "";
    SipRequestLine "the SIP request line" ["sip.request_line"] "" "" "";
    SipResponseLine "the SIP status line" ["sip.response_line"] "" "" "";
    SipFrom "the SIP header From" ["sip.from"] "" "" "";
    SipTo "the SIP header To" ["sip.to"] "" "" "";
    SipVia "the SIP header Via" ["sip.via"] "" "" "";
    SipUserAgent "the SIP header User-Agent" ["sip.user_agent"] "" "" "";
    SipContentType "the SIP header Content-Type" ["sip.content_type"] "" "" "";
    SipContentLength "the SIP header Content-Length" ["sip.content_length"] "" "" "";
    SipHeader "the SIP headers" [] "" "sip_header" "sip_header";
    SipBody "the SIP body" [] "" "sip_body" "sip_body";
    ModbusData "the data of a Modbus request" [] "" "modbus_data" "modbus_data";
    Dnp3Data "the data of a DNP3 application layer fragment" ["dnp3.data", "dnp3_data"] "" "dnp3_data" "dnp3_data";
    HttpRequestHeader "a header of the HTTP request" ["http.request_header", "http_request_header"] "" "" "";
    HttpResponseHeader "a header of the HTTP response" ["http.response_header", "http_response_header"] "" "" "";
    DnsAuthorityName "a name in the authority section of DNS" ["dns.authorities.rrname"] "" "" "";
    DnsAdditionalName "a name in the additional section of DNS" ["dns.additionals.rrname"] "" "" "";
    DnsResponseName "a name in a section of a DNS response" ["dns.response.rrname"] "" "" "";
    TlsRandom "the random value of a TLS hello" ["tls.random"] "" "" "";
    TlsRandomTime "the first four bytes of the random value of a TLS hello" ["tls.random_time"] "" "" "";
    TlsRandomBytes "the last 28 bytes of the random value of a TLS hello" ["tls.random_bytes"] "" "" "";
    TlsAlpn "a protocol of ALPN in a TLS hello" ["tls.alpn"] "" "" "";
    TlsSubjectAltName "a name in the extension subjectAltName of the TLS certificate" ["tls.subjectaltname"] "" "" "";
    SshHassh "the HASSH fingerprint of the SSH client" ["ssh.hassh"] "" "" "";
    SshHasshString "the algorithms of the SSH client" ["ssh.hassh.string"] "" "" "";
    SshHasshServer "the HASSH fingerprint of the SSH server" ["ssh.hassh.server"] "" "" "";
    SshHasshServerString "the algorithms of the SSH server" ["ssh.hassh.server.string"] "" "" "";
    FtpCommand "the FTP command" ["ftp.command"] "" "" "";
    FtpCommandData "the argument of the FTP command" ["ftp.command_data"] "" "" "";
    FtpReply "an FTP reply without its code" ["ftp.reply"] "" "" "";
    FtpCompletionCode "the code of an FTP reply" ["ftp.completion_code"] "" "" "";
    SmtpHelo "the argument of HELO or EHLO" ["smtp.helo"] "" "" "";
    SmtpMailFrom "the sender of the SMTP envelope" ["smtp.mail_from"] "" "" "";
    SmtpRcptTo "a recipient of the SMTP envelope" ["smtp.rcpt_to"] "" "" "";
    EmailFrom "the mail header From" ["email.from"] "" "" "";
    EmailSubject "the mail header Subject" ["email.subject"] "" "" "";
    EmailTo "the mail header To" ["email.to"] "" "" "";
    EmailDate "the mail header Date" ["email.date"] "" "" "";
    EmailMessageId "the mail header Message-Id" ["email.message_id"] "" "" "";
    Krb5Cname "a part of the Kerberos client name" ["krb5.cname", "krb5_cname"] "" "" "";
    Krb5Sname "a part of the Kerberos server name" ["krb5.sname", "krb5_sname"] "" "" "";
    SnmpCommunity "the SNMP community" ["snmp.community"] "" "" "";
    SnmpUsm "the user name of SNMP 3" ["snmp.usm"] "" "" "";
    RfbName "the name of the RFB desktop" ["rfb.name"] "" "" "";
    MqttConnectClientId "the client identifier of MQTT CONNECT" ["mqtt.connect.clientid"] "" "" "";
    MqttConnectPassword "the password of MQTT CONNECT" ["mqtt.connect.password"] "" "" "";
    MqttConnectProtocolString "the protocol name of MQTT CONNECT" ["mqtt.connect.protocol_string"] "" "" "";
    MqttConnectUsername "the user name of MQTT CONNECT" ["mqtt.connect.username"] "" "" "";
    MqttConnectWillMessage "the will message of MQTT CONNECT" ["mqtt.connect.willmessage"] "" "" "";
    MqttConnectWillTopic "the will topic of MQTT CONNECT" ["mqtt.connect.willtopic"] "" "" "";
    MqttPublishMessage "the message of MQTT PUBLISH" ["mqtt.publish.message"] "" "" "";
    MqttPublishTopic "the topic of MQTT PUBLISH" ["mqtt.publish.topic"] "" "" "";
    MqttSubscribeTopic "a topic of MQTT SUBSCRIBE" ["mqtt.subscribe.topic"] "" "" "";
    MqttUnsubscribeTopic "a topic of MQTT UNSUBSCRIBE" ["mqtt.unsubscribe.topic"] "" "" "";
    IkeInitSpi "the SPI of the IKE initiator, in hexadecimal digits" ["ike.init_spi"] "" "" "";
    IkeRespSpi "the SPI of the IKE responder, in hexadecimal digits" ["ike.resp_spi"] "" "" "";
    IkeVendor "a vendor identifier of IKE, in hexadecimal digits" ["ike.vendor"] "" "" "";
    IkeKeyExchange "the key exchange data of IKE" ["ike.key_exchange_payload"] "" "" "";
    IkeNonce "the nonce of IKE" ["ike.nonce_payload"] "" "" "";
    QuicVersion "the version of the QUIC long header" ["quic.version"] "" "" "";
    QuicSni "the server name of the QUIC client" ["quic.sni"] "" "" "";
    QuicUserAgent "the user agent of Google's QUIC" ["quic.ua"] "" "" "";
    QuicCyuHash "the CYU hash of Google's QUIC" ["quic.cyu.hash"] "" "" "";
    QuicCyuString "the CYU text of Google's QUIC" ["quic.cyu.string"] "" "" "";
    WebSocketPayload "the unmasked payload of a WebSocket message" ["websocket.payload"] "" "" "";
    PgsqlQuery "the query of PostgreSQL" ["pgsql.query"] "" "" "";
    LdapRequestDn "the distinguished name of an LDAP request" ["ldap.request.dn"] "" "" "";
    LdapResponsesDn "the distinguished name of an LDAP response" ["ldap.responses.dn"] "" "" "";
    LdapResponsesMessage "the diagnostic message of an LDAP response" ["ldap.responses.message"] "" "" "";
    LdapRequestAttribute "an attribute of an LDAP request" ["ldap.request.attribute_type"] "" "" "";
    LdapResponsesAttribute "an attribute of an LDAP response" ["ldap.responses.attribute_type"] "" "" "";
    EnipProductName "the product name of an EtherNet/IP identity" ["enip.product_name"] "" "" "";
    EnipServiceName "the name of an EtherNet/IP service" ["enip.service_name"] "" "" "";
    Ipv4Header "the IPv4 header" ["ipv4.hdr"] "" "" "";
    Ipv6Header "the IPv6 header" ["ipv6.hdr"] "" "" "";
    TcpHeader "the TCP header" ["tcp.hdr"] "" "" "";
    UdpHeader "the UDP header" ["udp.hdr"] "" "" "";
    Icmpv4Header "the ICMP header" ["icmpv4.hdr"] "" "" "";
    Icmpv6Header "the ICMPv6 header" ["icmpv6.hdr"] "" "" "";
    IgmpHeader "the IGMP header" ["igmp.hdr"] "" "" "";
    IpSource "the source address" ["ip.src"] "" "" "";
    IpDestination "the destination address" ["ip.dst"] "" "" "";
    SmbNtlmsspUser "the user of NTLM in SMB" ["smb.ntlmssp_user"] "" "" "";
    SmbNtlmsspDomain "the domain of NTLM in SMB" ["smb.ntlmssp_domain"] "" "" "";
    EmailCc "the mail header Cc" ["email.cc"] "" "" "";
    EmailXMailer "the mail header X-Mailer" ["email.x_mailer"] "" "" "";
    EmailReceived "a mail header Received" ["email.received"] "" "" "";
    EmailUrl "a URL in the text of a mail, without its scheme" ["email.url"] "" "" "";
    EmailBodyMd5 "the MD5 of the body of a mail, in hexadecimal digits" ["email.body_md5"] "" "" "";
    FileMagic "the kind of a transferred file" ["file.magic"] "" "" "";
    SdpOrigin "the origin of SDP" ["sdp.origin"] "" "" "";
    SdpSessionName "the session name of SDP" ["sdp.session_name"] "" "" "";
    SdpSessionInfo "the session information of SDP" ["sdp.session_info"] "" "" "";
    SdpUri "the URI of SDP" ["sdp.uri"] "" "" "";
    SdpEmail "the email address of SDP" ["sdp.email"] "" "" "";
    SdpPhoneNumber "the phone number of SDP" ["sdp.phone_number"] "" "" "";
    SdpConnectionData "the connection data of SDP" ["sdp.connection_data"] "" "" "";
    SdpBandwidth "a bandwidth of SDP" ["sdp.bandwidth"] "" "" "";
    SdpTime "a time of SDP" ["sdp.time"] "" "" "";
    SdpRepeatTime "a repeat time of SDP" ["sdp.repeat_time"] "" "" "";
    SdpTimezone "the time zones of SDP" ["sdp.timezone"] "" "" "";
    SdpEncryptionKey "the encryption key of SDP" ["sdp.encryption_key"] "" "" "";
    SdpAttribute "an attribute of SDP" ["sdp.attribute"] "" "" "";
    SdpMedia "a media description of SDP" ["sdp.media.media", "sdp.media_description.media"] "" "" "";
    SdpMediaInfo "the information of a media description of SDP" ["sdp.media.media_info", "sdp.media_description.session_info"] "" "" "";
    SdpMediaBandwidth "a bandwidth of a media description of SDP" ["sdp.media.bandwidth", "sdp.media_description.bandwidth"] "" "" "";
    SdpMediaConnectionData "the connection data of a media description of SDP" ["sdp.media.connection_data", "sdp.media_description.connection_data"] "" "" "";
    SdpMediaEncryptionKey "the encryption key of a media description of SDP" ["sdp.media.encryption_key", "sdp.media_description.encryption_key"] "" "" "";
    MdnsQueryName "a name in the question section of DNS by multicast" ["mdns.queries.rrname"] "" "" "";
    MdnsAnswerName "a name in the answer section of DNS by multicast" ["mdns.answers.rrname"] "" "" "";
    MdnsAuthorityName "a name in the authority section of DNS by multicast" ["mdns.authorities.rrname"] "" "" "";
    MdnsAdditionalName "a name in the additional section of DNS by multicast" ["mdns.additionals.rrname"] "" "" "";
    MdnsResponseName "a name in a section of a response of DNS by multicast" ["mdns.response.rrname"] "" "" "";
    FrameHttp1Request "the frame of an HTTP/1 request" ["frame:http1.request"] "" "" "";
    FrameHttp1Response "the frame of an HTTP/1 response" ["frame:http1.response"] "" "" "";
    FrameHttp1Stream "all bytes of a direction of a connection of HTTP/1" ["frame:http1.stream"] "" "" "";
    FrameHttp2Pdu "the frame of an HTTP/2 frame" ["frame:http2.pdu"] "" "" "";
    FrameHttp2Hdr "the header of an HTTP/2 frame" ["frame:http2.hdr"] "" "" "";
    FrameHttp2Data "the payload of an HTTP/2 frame" ["frame:http2.data"] "" "" "";
    FrameHttp2Stream "all bytes of a direction of a connection of HTTP/2" ["frame:http2.stream"] "" "" "";
    FrameSmbNbssPdu "the frame of a message of NetBIOS" ["frame:smb.nbss.pdu"] "" "" "";
    FrameSmbNbssHdr "the header of a message of NetBIOS" ["frame:smb.nbss.hdr"] "" "" "";
    FrameSmbNbssData "the payload of a message of NetBIOS" ["frame:smb.nbss.data"] "" "" "";
    FrameSmbSmb1Pdu "the frame of an SMB 1 message" ["frame:smb.smb1.pdu"] "" "" "";
    FrameSmbSmb1Hdr "the header of an SMB 1 message" ["frame:smb.smb1.hdr"] "" "" "";
    FrameSmbSmb1Data "the payload of an SMB 1 message" ["frame:smb.smb1.data"] "" "" "";
    FrameSmbSmb2Pdu "the frame of an SMB 2 message" ["frame:smb.smb2.pdu"] "" "" "";
    FrameSmbSmb2Hdr "the header of an SMB 2 message" ["frame:smb.smb2.hdr"] "" "" "";
    FrameSmbSmb2Data "the payload of an SMB 2 message" ["frame:smb.smb2.data"] "" "" "";
    FrameSmbSmb3Pdu "the frame of an encrypted SMB 3 message" ["frame:smb.smb3.pdu"] "" "" "";
    FrameSmbSmb3Hdr "the transform header of an SMB 3 message" ["frame:smb.smb3.hdr"] "" "" "";
    FrameSmbSmb3Data "the encrypted part of an SMB 3 message" ["frame:smb.smb3.data"] "" "" "";
    FrameSmbStream "all bytes of a direction of a connection of SMB" ["frame:smb.stream"] "" "" "";
    FrameTelnetPdu "the frame of a Telnet command or line" ["frame:telnet.pdu"] "" "" "";
    FrameTelnetCtl "the frame of a Telnet command" ["frame:telnet.ctl"] "" "" "";
    FrameTelnetData "the frame of a Telnet line" ["frame:telnet.data"] "" "" "";
    FrameTelnetStream "all bytes of a direction of a connection of Telnet" ["frame:telnet.stream"] "" "" "";
    FrameTlsPdu "the frame of a TLS record" ["frame:tls.pdu"] "" "" "";
    FrameTlsHdr "the header of a TLS record" ["frame:tls.hdr"] "" "" "";
    FrameTlsData "the payload of a TLS record" ["frame:tls.data"] "" "" "";
    FrameTlsAlert "the payload of a TLS alert record" ["frame:tls.alert"] "" "" "";
    FrameTlsHeartbeat "the payload of a TLS heartbeat record" ["frame:tls.heartbeat"] "" "" "";
    FrameTlsSsl2Hdr "the header of an SSL 2 record" ["frame:tls.ssl2.hdr"] "" "" "";
    FrameTlsSsl2Pdu "the frame of an SSL 2 record" ["frame:tls.ssl2.pdu"] "" "" "";
    FrameTlsStream "all bytes of a direction of a connection of TLS" ["frame:tls.stream"] "" "" "";
    FrameSipPdu "the frame of a SIP message" ["frame:sip.pdu"] "" "" "";
    FrameSipRequestLine "the frame of a SIP request line" ["frame:sip.request.line"] "" "" "";
    FrameSipRequestHeaders "the frame of the headers of a SIP request" ["frame:sip.request.headers"] "" "" "";
    FrameSipRequestBody "the frame of the body of a SIP request" ["frame:sip.request.body"] "" "" "";
    FrameSipResponseLine "the frame of a SIP status line" ["frame:sip.response.line"] "" "" "";
    FrameSipResponseHeaders "the frame of the headers of a SIP response" ["frame:sip.response.headers"] "" "" "";
    FrameSipResponseBody "the frame of the body of a SIP response" ["frame:sip.response.body"] "" "" "";
    FrameSipStream "all bytes of a direction of a connection of SIP" ["frame:sip.stream"] "" "" "";
    FrameNfsRpcPdu "the frame of an RPC message" ["frame:nfs.rpc.pdu"] "" "" "";
    FrameNfsRpcHdr "the header of an RPC message" ["frame:nfs.rpc.hdr"] "" "" "";
    FrameNfsRpcData "the payload of an RPC message" ["frame:nfs.rpc.data"] "" "" "";
    FrameNfsRpcCreds "the credentials of an RPC call" ["frame:nfs.rpc.creds"] "" "" "";
    FrameNfsPdu "the frame of an NFS 2 or 3 message" ["frame:nfs.nfs.pdu"] "" "" "";
    FrameNfsStatus "the status of an NFS 2 or 3 reply" ["frame:nfs.nfs.status"] "" "" "";
    FrameNfs4Pdu "the frame of an NFS 4 message" ["frame:nfs.nfs4.pdu"] "" "" "";
    FrameNfs4Hdr "the first eight bytes of an NFS 4 message" ["frame:nfs.nfs4.hdr"] "" "" "";
    FrameNfs4Ops "the operations of an NFS 4 message" ["frame:nfs.nfs4.ops"] "" "" "";
    FrameNfs4Status "the status of an NFS 4 reply" ["frame:nfs.nfs4.status"] "" "" "";
    FrameNfsStream "all bytes of a direction of a connection of NFS" ["frame:nfs.stream"] "" "" "";
    FrameDnsPdu "the frame of a DNS message" ["frame:dns.pdu"] "" "" "";
    FrameDnsStream "all bytes of a direction of a connection of DNS" ["frame:dns.stream"] "" "" "";
    FrameSshRecordPdu "the frame of an SSH packet" ["frame:ssh.record.pdu"] "" "" "";
    FrameSshRecordHdr "the header of an SSH packet with its message number" ["frame:ssh.record.hdr"] "" "" "";
    FrameSshRecordData "the payload of an SSH packet" ["frame:ssh.record.data"] "" "" "";
    FrameSshStream "all bytes of a direction of a connection of SSH" ["frame:ssh.stream"] "" "" "";
    FrameQuicPdu "the frame of a QUIC datagram" ["frame:quic.pdu"] "" "" "";
    FrameQuicHdr "the long header of a QUIC packet" ["frame:quic.hdr"] "" "" "";
    FrameQuicData "the payload of a QUIC packet" ["frame:quic.data"] "" "" "";
    FrameSmtpCommandLine "the frame of an SMTP command" ["frame:smtp.command_line"] "" "" "";
    FrameSmtpData "the frame of a mail" ["frame:smtp.data"] "" "" "";
    FrameSmtpResponseLine "the frame of a line of an SMTP reply" ["frame:smtp.response_line"] "" "" "";
    FrameSmtpStream "all bytes of a direction of a connection of SMTP" ["frame:smtp.stream"] "" "" "";
    FrameFtpCommandLine "the frame of an FTP command" ["frame:ftp.command_line"] "" "" "";
    FrameFtpResponseLine "the frame of a line of an FTP reply" ["frame:ftp.response_line"] "" "" "";
    FrameFtpStream "all bytes of a direction of a connection of FTP" ["frame:ftp.stream"] "" "" "";
    FrameDcerpcPdu "the frame of a DCE/RPC PDU" ["frame:dcerpc.pdu"] "" "" "";
    FrameDcerpcHdr "the header of a DCE/RPC PDU" ["frame:dcerpc.hdr"] "" "" "";
    FrameDcerpcData "the payload of a DCE/RPC PDU" ["frame:dcerpc.data"] "" "" "";
    FrameDcerpcStream "all bytes of a direction of a connection of DCE/RPC" ["frame:dcerpc.stream"] "" "" "";
    FrameModbusPdu "the frame of a Modbus message" ["frame:modbus.pdu"] "" "" "";
    FrameModbusStream "all bytes of a direction of a connection of Modbus" ["frame:modbus.stream"] "" "" "";
    FrameMqttPdu "the frame of an MQTT packet" ["frame:mqtt.pdu"] "" "" "";
    FrameMqttHeader "the fixed header of an MQTT packet" ["frame:mqtt.header"] "" "" "";
    FrameMqttData "the rest of an MQTT packet" ["frame:mqtt.data"] "" "" "";
    FrameMqttStream "all bytes of a direction of a connection of MQTT" ["frame:mqtt.stream"] "" "" "";
    FrameEnipPdu "the frame of an EtherNet/IP message" ["frame:enip.pdu"] "" "" "";
    FrameEnipHdr "the header of an EtherNet/IP message" ["frame:enip.hdr"] "" "" "";
    FrameEnipData "the payload of an EtherNet/IP message" ["frame:enip.data"] "" "" "";
    FrameEnipItem "an item of an EtherNet/IP message, with its type and size" ["frame:enip.enip.item"] "" "" "";
    FrameEnipCip "a message of CIP in EtherNet/IP" ["frame:enip.cip"] "" "" "";
    FrameEnipStream "all bytes of a direction of a connection of EtherNet/IP" ["frame:enip.stream"] "" "" "";
    FrameLdapPdu "the frame of an LDAP message" ["frame:ldap.pdu"] "" "" "";
    FrameLdapStream "all bytes of a direction of a connection of LDAP" ["frame:ldap.stream"] "" "" "";
    FramePgsqlPdu "the frame of a PostgreSQL message" ["frame:pgsql.pdu"] "" "" "";
    FramePgsqlStream "all bytes of a direction of a connection of PostgreSQL" ["frame:pgsql.stream"] "" "" "";
    FrameWebSocketHeader "the header of a WebSocket frame" ["frame:websocket.header"] "" "" "";
    FrameWebSocketPdu "the frame of a WebSocket frame" ["frame:websocket.pdu"] "" "" "";
    FrameWebSocketData "the payload of a WebSocket frame as sent" ["frame:websocket.data"] "" "" "";
    FrameWebSocketStream "all bytes of a direction of a connection of WebSocket" ["frame:websocket.stream"] "" "" "";
    FrameRfbPdu "the frame of a message in the handshake of RFB" ["frame:rfb.pdu"] "" "" "";
    FrameRfbStream "all bytes of a direction of a connection of RFB" ["frame:rfb.stream"] "" "" "";
}

impl Buffer {
    /// Returns the names of the buffer.
    pub fn names(self) -> &'static BufferNames {
        // BUFFERS has one row for each variant, in the order of the variants.
        &BUFFERS[self as usize]
    }

    /// Returns true if the buffer is a frame: a part of the stream that a protocol gives a meaning.
    pub fn is_frame(self) -> bool {
        // The frames are the last rows of the table.
        self >= Buffer::FrameHttp1Request
    }

    /// Returns the buffer of a sticky keyword.
    pub(crate) fn sticky(syntax: Syntax, name: &str) -> Option<Buffer> {
        let names = match syntax {
            Syntax::Suricata => &NAMES.suricata,
            Syntax::Snort2 => &NAMES.snort2,
            Syntax::Snort3 => &NAMES.snort3,
        };
        names.get(name).copied()
    }

    /// Returns the buffer of a keyword that modifies the content before it.
    pub(crate) fn modifier(syntax: Syntax, name: &str) -> Option<Buffer> {
        let found = NAMES.modifiers.get(name).copied();
        found.filter(|_| syntax != Syntax::Snort3)
    }

    /// Returns the sticky keyword of the buffer in a syntax.
    pub(crate) fn sticky_name(self, syntax: Syntax) -> Option<&'static str> {
        let names = self.names();
        let name = match syntax {
            Syntax::Suricata => names.suricata.first().copied().unwrap_or_default(),
            Syntax::Snort2 => names.snort2,
            Syntax::Snort3 => names.snort3,
        };
        (!name.is_empty()).then_some(name)
    }
}
