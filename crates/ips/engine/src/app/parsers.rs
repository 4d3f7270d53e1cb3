//! The parser of each protocol.

use super::parser::Parser;
use super::protocol::AppProtocol;
use super::transport::{TCP, Transport};
use super::{
    AppSettings, bittorrent, dhcp, dnp3, dns, enip, ftp, http, ike, krb5, ldap, mail, mdns, modbus, mqtt,
    nfs, pgsql, quic, rdp, rfb, sip, smb, snmp, ssh, tftp, tls, websocket,
};
use crate::flow::FlowKey;

/// Returns a parser for a flow of a protocol; `None` for protocols that are detected but not parsed.
pub(super) fn parser_of(
    protocol: AppProtocol,
    key: &FlowKey,
    settings: AppSettings,
) -> Option<Box<dyn Parser>> {
    let transport = match key.protocol {
        TCP => Transport::Tcp,
        _ => Transport::Udp,
    };
    match protocol {
        AppProtocol::Http => Some(Box::new(http::Http::new(settings).with_port(key.server_port))),
        AppProtocol::Http2 => Some(Box::new(http::http2::Http2::new(settings))),
        AppProtocol::Smtp => Some(Box::new(mail::smtp::Smtp::new(settings))),
        AppProtocol::Pop3 => Some(Box::new(mail::pop3::Pop3::new(settings))),
        AppProtocol::Imap => Some(Box::new(mail::imap::Imap::new(settings))),
        AppProtocol::Sip => Some(Box::new(sip::Sip::new(transport, settings))),
        AppProtocol::Modbus => Some(Box::<modbus::Modbus>::default()),
        AppProtocol::Dnp3 => Some(Box::<dnp3::Dnp3>::default()),
        AppProtocol::Smb => Some(Box::new(smb::Smb::new(settings))),
        AppProtocol::Dcerpc if transport == Transport::Udp => {
            Some(Box::<smb::dcerpc::connectionless::Connectionless>::default())
        }
        AppProtocol::Dcerpc => Some(Box::<smb::dcerpc::Dcerpc>::default()),
        AppProtocol::Ssh => Some(Box::<ssh::Ssh>::default()),
        AppProtocol::Ftp => Some(Box::new(ftp::Ftp::new(*key))),
        AppProtocol::Ldap => Some(Box::new(ldap::Ldap::new(transport))),
        AppProtocol::Mqtt => Some(Box::new(mqtt::Mqtt::default())),
        AppProtocol::Krb5 => Some(Box::new(krb5::Krb5::new(transport))),
        AppProtocol::Rdp => Some(Box::<rdp::Rdp>::default()),
        AppProtocol::Rfb => Some(Box::<rfb::Rfb>::default()),
        AppProtocol::Tftp => Some(Box::<tftp::Tftp>::default()),
        AppProtocol::Dhcp => Some(Box::<dhcp::Dhcp>::default()),
        AppProtocol::Ike => Some(Box::<ike::Ike>::default()),
        AppProtocol::Nfs => Some(Box::new(nfs::Nfs::new(transport, settings))),
        AppProtocol::WebSocket => Some(Box::new(websocket::WebSocket::new(settings))),
        AppProtocol::Pgsql => Some(Box::<pgsql::Pgsql>::default()),
        AppProtocol::Enip => Some(Box::new(enip::Enip::new(transport))),
        AppProtocol::BittorrentDht => Some(Box::<bittorrent::Dht>::default()),
        AppProtocol::Snmp => Some(Box::<snmp::Snmp>::default()),
        AppProtocol::Quic => Some(Box::<quic::Quic>::default()),
        AppProtocol::Tls => Some(Box::new(tls::Tls::new(settings))),
        AppProtocol::Mdns => Some(Box::new(mdns::Mdns)),
        AppProtocol::Dns => Some(Box::new(dns::Dns::new(key.protocol == TCP))),
        _ => None,
    }
}
