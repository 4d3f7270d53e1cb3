//! The application protocols and their names in rules and in EVE.

macro_rules! protocols {
    ($($variant:ident $name:literal $words:literal;)*) => {
        /// An application protocol.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum AppProtocol {
            $(#[doc = $words] $variant,)*
        }

        impl AppProtocol {
            /// Every protocol.
            pub const ALL: &[AppProtocol] = &[$(AppProtocol::$variant),*];

            /// Returns the name that rules and EVE have for the protocol.
            pub fn name(self) -> &'static str {
                match self {
                    $(AppProtocol::$variant => $name,)*
                }
            }
        }
    };
}

protocols! {
    Http "http" "HTTP 1.";
    Dns "dns" "DNS over UDP or TCP.";
    Tls "tls" "TLS.";
    Smtp "smtp" "SMTP.";
    Ssh "ssh" "SSH.";
    Ftp "ftp" "FTP, the control connection.";
    FtpData "ftp-data" "FTP, a data connection.";
    Pop3 "pop3" "POP3.";
    Imap "imap" "IMAP.";
    Smb "smb" "SMB 1 to 3.";
    Dcerpc "dcerpc" "DCE/RPC over TCP or UDP.";
    Sip "sip" "SIP.";
    Modbus "modbus" "Modbus.";
    Dnp3 "dnp3" "DNP3.";
    Krb5 "krb5" "Kerberos 5.";
    Rdp "rdp" "RDP.";
    Ntp "ntp" "NTP.";
    Dhcp "dhcp" "DHCP.";
    Snmp "snmp" "SNMP.";
    Mqtt "mqtt" "MQTT.";
    Rfb "rfb" "RFB (VNC).";
    Ike "ike" "IKE.";
    Tftp "tftp" "TFTP.";
    Nfs "nfs" "NFS.";
    Http2 "http2" "HTTP/2.";
    Quic "quic" "QUIC.";
    Ldap "ldap" "LDAP.";
    Telnet "telnet" "Telnet.";
    WebSocket "websocket" "WebSocket.";
    Pgsql "pgsql" "PostgreSQL.";
    Enip "enip" "EtherNet/IP.";
    BittorrentDht "bittorrent-dht" "The distributed hash table of BitTorrent.";
    Mdns "mdns" "DNS by multicast.";
    Doh2 "doh2" "HTTP/2 that carries DNS (RFC 8484): the name of such flows. Their transactions are those of HTTP/2 and of DNS.";
    Failed "failed" "The bytes are of no known protocol.";
}

impl AppProtocol {
    /// Returns true if the source of a record is that of the packet that completed the transaction, as Suricata has it. For the
    /// other protocols, it is the client.
    pub(crate) fn has_records_of_packets(self) -> bool {
        use AppProtocol::*;
        matches!(
            self,
            BittorrentDht | Dhcp | Ike | Krb5 | Nfs | Quic | Rdp | Rfb | Sip | Snmp | Tftp | WebSocket
        )
    }

    /// Returns the protocol with a name.
    pub fn by_name(name: &str) -> Option<AppProtocol> {
        // Rules have older names of TLS and IKE, the exact name of HTTP 1, and the name that events of BitTorrent have.
        let name = match name {
            "ssl" => "tls",
            "http1" => "http",
            "ikev2" => "ike",
            "bittorrent_dht" => "bittorrent-dht",
            name => name,
        };
        AppProtocol::ALL
            .iter()
            .copied()
            .find(|protocol| protocol.name() == name)
    }
}
