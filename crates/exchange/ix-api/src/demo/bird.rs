//! The route server of the demonstration: the answers of BIRD on its control socket. The first member announces a bogon and a
//! route without ROA. The IPv6 session of the second member is down.

use millrace_bird::{Client, Report, Settings};
use millrace_ix_model::Timestamp;
use millrace_types::{Duration, Time};

use super::exchange::now;
use crate::route_servers::{RouteServer, RouteServers};

/// The answers of BIRD on the control socket.
const ANSWERS: &str = "0001 BIRD 2.0.12 ready.
0016 Access restricted
1002-as64500_1  BGP        ---        up     05:33:14.409  Established
1006-  BGP state:          Established
     Neighbor address: 198.51.100.10
     Neighbor AS:      64500
     Routes:         14 imported, 0 exported
1002-as64500_2  BGP        ---        up     05:33:14.518  Established
1006-  BGP state:          Established
     Neighbor address: 2001:db8:7f::10
     Neighbor AS:      64500
     Routes:         6 imported, 2 filtered, 0 exported
1002-as64501_1  BGP        ---        start  05:33:14.403  Idle
1006-  BGP state:          Idle
     Neighbor address: 198.51.100.11
     Neighbor AS:      64501
     Last error:       BGP Error: Bad peer AS
0000 OK
1007-Table master4:
 203.0.113.0/24       unicast [as64500_1 05:33:14.518] * (100) [AS64500i]
1012-\tBGP.as_path: 64500
 \tBGP.next_hop: 198.51.100.10
 \tBGP.community: (65520,0) (65520,2)
1007-192.0.2.0/25         unicast [as64500_1 05:33:14.518] * (100) [AS64510i]
1012-\tBGP.as_path: 64500 64510
 \tBGP.next_hop: 198.51.100.10
 \tBGP.community: (65520,0) (65520,13) (65520,12)
0000 OK
1007-Table master6:
 2001:db8:dead::/48   unicast [as64500_2 05:33:14.559] * (100) [AS64500i]
1012-\tBGP.as_path: 64500
 \tBGP.next_hop: 2001:db8:7f::10
 \tBGP.large_community: (64999, 1101, 13)
1007-2001:db8:beef::/48   unicast [as64500_2 05:33:14.559] * (100) [AS64500i]
1012-\tBGP.as_path: 64500
 \tBGP.next_hop: 2001:db8:7f::10
 \tBGP.large_community: (64999, 1101, 99)
0000 OK
";

/// The outcomes of reading the route server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RouteServerReads {
    #[default]
    Succeed,
    /// All reads in the last ten minutes failed, and the read before them succeeded.
    Fail,
    /// No read has ever succeeded.
    NeverSucceeded,
}

/// Records what reading a route server brought.
pub(super) fn read(servers: &RouteServers, server: &RouteServer, reads: RouteServerReads) {
    let before = |secs: u64| Timestamp::from_millis(now().millis().saturating_sub(secs * 1_000));
    let fail = |secs| {
        let error = "/run/bird/rs1.ctl: connection refused: expected the control socket of a running BIRD";
        servers.failed(&server.fqdn, before(secs), error.to_owned());
    };
    let succeed = |secs| {
        if let Some(report) = report(server) {
            servers.reported(&server.fqdn, before(secs), report);
        }
    };
    servers.forget(&server.fqdn);
    match reads {
        RouteServerReads::Succeed => succeed(7),
        RouteServerReads::Fail => {
            succeed(600);
            fail(570);
        }
        RouteServerReads::NeverSucceeded => fail(600),
    }
}

/// Returns the report of a client that receives [`ANSWERS`].
fn report(server: &RouteServer) -> Option<Report> {
    let mut client = Client::new(Settings {
        asn: server.asn,
        reject_cause: server.reject_cause,
        interval: Duration::from_secs(30),
    });
    client.connected(Time::ZERO);
    client.receive(ANSWERS.as_bytes(), Time::ZERO).ok().flatten()
}
