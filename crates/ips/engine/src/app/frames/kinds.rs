//! The kinds of frames of each protocol.

use millrace_ips_rules::buffers::Buffer;

use super::units::Units;
use super::{binary, enip, http, records, rfb, text};
use crate::app::AppProtocol;

/// Returns the boundaries of a protocol, and the first and last kind of its frames. The last one is the stream.
pub(super) fn units_of(app: AppProtocol, is_datagram: bool) -> Option<(Box<dyn Units>, Buffer, Buffer)> {
    use Buffer::*;
    let binary = |unit: binary::Unit| -> Box<dyn Units> { Box::new(binary::Stateless(unit)) };
    Some(match (app, is_datagram) {
        (AppProtocol::Http, false) => (Box::<http::Http1>::default(), FrameHttp1Request, FrameHttp1Stream),
        (AppProtocol::Http2, false) => (Box::<records::Http2>::default(), FrameHttp2Pdu, FrameHttp2Stream),
        (AppProtocol::Smb, false) => (Box::<records::Smb>::default(), FrameSmbNbssPdu, FrameSmbStream),
        (AppProtocol::Telnet, false) => (Box::<text::Telnet>::default(), FrameTelnetPdu, FrameTelnetStream),
        (AppProtocol::Tls, false) => (Box::<records::Tls>::default(), FrameTlsPdu, FrameTlsStream),
        (AppProtocol::Sip, _) => (Box::<text::Sip>::default(), FrameSipPdu, FrameSipStream),
        (AppProtocol::Nfs, _) => (Box::<records::Nfs>::default(), FrameNfsRpcPdu, FrameNfsStream),
        (AppProtocol::Dns, _) => (binary(binary::dns), FrameDnsPdu, FrameDnsStream),
        (AppProtocol::Ssh, false) => (Box::<records::Ssh>::default(), FrameSshRecordPdu, FrameSshStream),
        (AppProtocol::Quic, true) => (binary(binary::quic), FrameQuicPdu, FrameQuicData),
        (AppProtocol::Smtp, false) => (
            Box::<text::Smtp>::default(),
            FrameSmtpCommandLine,
            FrameSmtpStream,
        ),
        (AppProtocol::Ftp, false) => (Box::<text::Ftp>::default(), FrameFtpCommandLine, FrameFtpStream),
        (AppProtocol::Dcerpc, false) => (binary(binary::dcerpc), FrameDcerpcPdu, FrameDcerpcStream),
        (AppProtocol::Modbus, false) => (binary(binary::modbus), FrameModbusPdu, FrameModbusStream),
        (AppProtocol::Mqtt, false) => (binary(binary::mqtt), FrameMqttPdu, FrameMqttStream),
        (AppProtocol::Enip, _) => (Box::<enip::Enip>::default(), FrameEnipPdu, FrameEnipStream),
        (AppProtocol::Ldap, _) => (binary(binary::ldap), FrameLdapPdu, FrameLdapStream),
        (AppProtocol::Pgsql, false) => (Box::<records::Pgsql>::default(), FramePgsqlPdu, FramePgsqlStream),
        (AppProtocol::WebSocket, false) => (
            binary(binary::websocket),
            FrameWebSocketHeader,
            FrameWebSocketStream,
        ),
        (AppProtocol::Rfb, false) => (Box::<rfb::Rfb>::default(), FrameRfbPdu, FrameRfbStream),
        _ => return None,
    })
}
