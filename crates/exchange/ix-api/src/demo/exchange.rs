//! The exchange for demonstrations: two sites, two trunks, four members, users in every role.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use millrace_ix_model::{
    AccountId, AccountKind, Actor, ConfigId, ConnectionId, ConnectionKind, EndRole, Exchange, FilterAction,
    FilterId, FilterMatch, FilterOrigin, FilterState, IpId, Key, LanPolicy, MacId, Operation, PolicyId,
    PortId, Ports, Refusal, Role, ServiceId, ServiceKeyId, ServiceKind, SiteId, SwitchId, SwitchPort,
    TagType, Timestamp, TrunkKind, VlanId, VlanRequest, reason,
};
use millrace_types::{Dpid, Mac, PortNo};

/// The time of the first order, in seconds before the start of the program: five days.
const AGE: u64 = 5 * 86_400;

/// The time of the first order.
static BEGIN: LazyLock<Timestamp> = LazyLock::new(|| Timestamp::from_secs(now().millis() / 1000 - AGE));

/// Returns the time of the system clock.
pub(super) fn now() -> Timestamp {
    Timestamp::from(SystemTime::now())
}

/// Returns a time after the first order.
fn after(seconds: u64) -> Timestamp {
    BEGIN.after(Duration::from_secs(seconds))
}

/// The password of every user of [`demo`].
pub const PASSWORD: &str = "correct horse battery";

/// Builds an exchange by orders in the name of the engine.
struct Builder {
    exchange: Exchange,
}

impl Builder {
    fn apply<K: Key>(&mut self, operation: Operation) -> Result<K, Refusal> {
        let applied = self.exchange.apply(&Actor::system(), *BEGIN, operation)?;
        let found = applied
            .created
            .iter()
            .chain(&applied.changed)
            .find_map(|id| K::key(*id));
        found.ok_or_else(|| Refusal::conflict("nothing was created".to_owned()))
    }

    fn site(&mut self, name: &str) -> Result<SiteId, Refusal> {
        self.apply(Operation::CreateSite {
            name: name.to_owned(),
        })
    }

    fn switch(&mut self, name: &str, site: SiteId, dpid: u64) -> Result<SwitchId, Refusal> {
        let ports = (1..=24).chain(100..=101).filter_map(|number| {
            let number = PortNo::ordinary(number).ok()?;
            Some(SwitchPort {
                number,
                speed_mbps: 10_000,
            })
        });
        self.apply(Operation::CreateSwitch {
            name: name.to_owned(),
            site,
            dpid: Dpid(dpid),
            ports: ports.collect(),
        })
    }

    fn trunk(
        &mut self,
        name: &str,
        ends: [PortId; 2],
        cost: u32,
    ) -> Result<millrace_ix_model::TrunkId, Refusal> {
        self.apply(Operation::CreateTrunk {
            name: name.to_owned(),
            kind: TrunkKind::Vxlan,
            ends,
            cost,
            capacity_mbps: 10_000,
            mtu: 1700,
            risk_group: None,
            contract_percent: 100,
        })
    }

    fn account(&mut self, name: &str, kind: AccountKind, asn: Option<u32>) -> Result<AccountId, Refusal> {
        self.apply(Operation::CreateAccount {
            name: name.to_owned(),
            kind,
            parent: None,
            asns: asn.into_iter().collect(),
            discoverable: kind == AccountKind::Member,
            as_set: (name == "Aoba Networks").then(|| "AS-AOBA@RIPE".to_owned()),
            external_ref: None,
        })
    }

    fn child(&mut self, name: &str, parent: AccountId) -> Result<AccountId, Refusal> {
        self.apply(Operation::CreateAccount {
            name: name.to_owned(),
            kind: AccountKind::Member,
            parent: Some(parent),
            asns: BTreeSet::new(),
            discoverable: false,
            as_set: None,
            external_ref: None,
        })
    }

    fn user(&mut self, name: &str, account: AccountId, roles: &[Role]) -> Result<(), Refusal> {
        self.apply::<millrace_ix_model::UserId>(Operation::CreateUser {
            name: name.to_owned(),
            account: Some(account),
            roles: roles.iter().copied().collect(),
            email: Some(format!("{name}@example.net")),
            language: None,
        })?;
        Ok(())
    }

    fn connection(
        &mut self,
        name: &str,
        account: AccountId,
        ports: &[PortId],
    ) -> Result<ConnectionId, Refusal> {
        let kind = if ports.len() > 1 {
            ConnectionKind::LagStatic
        } else {
            ConnectionKind::Standalone
        };
        self.apply(Operation::CreateConnection {
            account: Some(account),
            name: name.to_owned(),
            kind,
            ports: ports.to_vec(),
            external_ref: None,
        })
    }

    fn path(
        &mut self,
        name: &str,
        account: AccountId,
        peer: Option<AccountId>,
    ) -> Result<ServiceId, Refusal> {
        self.apply(Operation::CreateService {
            account: Some(account),
            kind: ServiceKind::P2pVc,
            name: name.to_owned(),
            peer,
            policy: None,
            networks: Vec::new(),
            external_ref: None,
        })
    }

    fn end(
        &mut self,
        service: ServiceId,
        connection: ConnectionId,
        vid: u16,
        rate: u32,
    ) -> Result<(), Refusal> {
        self.apply::<millrace_ix_model::ConfigId>(Operation::ConfigureEnd {
            service,
            connection,
            vlan: VlanRequest::Dot1q {
                vlan: VlanId::new(vid).ok(),
                ethertype: TagType::CTag,
            },
            capacity_mbps: Some(rate),
            role: EndRole::Root,
            asns: BTreeSet::new(),
            external_ref: None,
        })?;
        Ok(())
    }
}

fn port(switch: SwitchId, number: u32) -> Result<PortId, Refusal> {
    let port = PortNo::ordinary(number).map_err(|error| Refusal::conflict(error.to_string()))?;
    Ok(PortId { switch, port })
}

/// Returns the exchange for demonstrations. Its users are `ann` (member-admin of Aoba Networks), `bob`
/// (Baikal Telecom), `cho` (Cheongdam Hosting), `dan` (Delta Cloud), `tia`, `nia` and `bil` (tech, NOC and
/// billing of Aoba), `rex` (reseller), `kei` (API client of Aoba), `ops`, `noc` and `pro` (the operator's
/// admin, NOC and provisioning), and `reg` (regulator).
///
/// # Errors
/// The refusal of the model, if its rules do not permit this exchange.
pub fn demo() -> Result<Exchange, Refusal> {
    let mut ix = Builder {
        exchange: Exchange::default(),
    };
    let (otemachi, makuhari) = (ix.site("Otemachi")?, ix.site("Makuhari")?);
    let (one, two) = (
        ix.switch("otemachi-1", otemachi, 1)?,
        ix.switch("makuhari-1", makuhari, 2)?,
    );
    ix.trunk("north", [port(one, 100)?, port(two, 100)?], 10)?;
    ix.trunk("south", [port(one, 101)?, port(two, 101)?], 20)?;
    let exchange = ix.account("Millrace IX", AccountKind::Exchange, None)?;
    let aoba = ix.account("Aoba Networks", AccountKind::Member, Some(64500))?;
    let baikal = ix.account("Baikal Telecom", AccountKind::Member, Some(64501))?;
    let cheongdam = ix.account("청담 호스팅", AccountKind::Member, Some(64502))?;
    let delta = ix.account("Delta Cloud", AccountKind::Member, Some(64503))?;
    let reseller = ix.account("Kyoto Resale", AccountKind::Reseller, Some(64510))?;
    let authority = ix.account("Network Authority", AccountKind::Authority, None)?;
    ix.user("ann", aoba, &[Role::MemberAdmin])?;
    ix.user("tia", aoba, &[Role::MemberTech])?;
    ix.user("nia", aoba, &[Role::MemberNoc])?;
    ix.user("bil", aoba, &[Role::MemberBilling])?;
    ix.user("kei", aoba, &[Role::ApiClient])?;
    ix.user("bob", baikal, &[Role::MemberAdmin])?;
    ix.user("cho", cheongdam, &[Role::MemberAdmin])?;
    ix.user("dan", delta, &[Role::MemberAdmin])?;
    ix.user("rex", reseller, &[Role::Reseller])?;
    ix.user("ops", exchange, &[Role::OperatorAdmin])?;
    ix.user("noc", exchange, &[Role::OperatorNoc])?;
    ix.user("pro", exchange, &[Role::OperatorProvisioning])?;
    ix.user("reg", authority, &[Role::Regulator])?;
    let aoba_one = ix.connection("aoba-tokyo", aoba, &[port(one, 3)?])?;
    let aoba_two = ix.connection("aoba-chiba", aoba, &[port(two, 4)?, port(two, 5)?])?;
    let baikal_two = ix.connection("baikal-makuhari", baikal, &[port(two, 9)?])?;
    let cheongdam_one = ix.connection("cheongdam-1", cheongdam, &[port(one, 7)?])?;
    let customer = ix.child("Kyoto Customer", reseller)?;
    let customer_one = ix.connection("customer-1", customer, &[port(one, 15)?])?;
    let resold = ix.path("resold", customer, None)?;
    ix.end(resold, customer_one, 5, 50)?;
    ix.connection("delta-dc", delta, &[port(one, 12)?])?;
    let transit = ix.path("transit-baikal", aoba, Some(baikal))?;
    ix.end(transit, aoba_one, 100, 200)?;
    ix.end(transit, baikal_two, 300, 200)?;
    let backbone = ix.path("backbone", aoba, None)?;
    ix.end(backbone, aoba_one, 10, 2_000)?;
    ix.end(backbone, aoba_two, 10, 2_000)?;
    let invitation = ix.path("cache-fill", cheongdam, Some(aoba))?;
    ix.end(invitation, cheongdam_one, 42, 500)?;
    let foreign = ix.path("private-korea", cheongdam, Some(baikal))?;
    ix.end(foreign, cheongdam_one, 77, 100)?;
    ix.end(foreign, baikal_two, 77, 100)?;
    lan(&mut ix, exchange, [aoba_one, baikal_two, cheongdam_one])?;
    filters(&mut ix, aoba)?;
    let open = ix.path("tokyo-waves", aoba, None)?;
    ix.end(open, aoba_one, 710, 100)?;
    ix.apply::<ServiceKeyId>(Operation::CreateServiceKey {
        service: open,
        secret: "demo-key-of-tokyo-waves".to_owned(),
        valid_until: after(80 * 86_400),
        vlans: None,
        capacity_mbps: None,
    })?;
    Ok(ix.exchange)
}

/// Adds a peering LAN. The first and the third connection are in production, and the second is in quarantine.
fn lan(ix: &mut Builder, exchange: AccountId, connections: [ConnectionId; 3]) -> Result<(), Refusal> {
    let policy = ix.apply::<PolicyId>(Operation::CreatePolicy {
        policy: LanPolicy::usual("usual"),
    })?;
    let lan = ix.apply::<ServiceId>(Operation::CreateService {
        account: Some(exchange),
        kind: ServiceKind::ExchangeLan,
        name: "Tokyo peering LAN".to_owned(),
        peer: None,
        policy: Some(policy),
        networks: ["198.51.100.0/24", "2001:db8:7f::/64"]
            .iter()
            .filter_map(|text| text.parse().ok())
            .collect(),
        external_ref: None,
    })?;
    for (number, connection) in (0_u8..).zip(connections) {
        let end = ix.apply::<ConfigId>(Operation::ConfigureEnd {
            service: lan,
            connection,
            vlan: VlanRequest::Dot1q {
                vlan: VlanId::new(600 + u16::from(number)).ok(),
                ethertype: TagType::CTag,
            },
            capacity_mbps: None,
            role: EndRole::Root,
            asns: BTreeSet::new(),
            external_ref: None,
        })?;
        ix.apply::<MacId>(Operation::AddMac {
            config: end,
            address: Mac([0x02, 0, 0, 0, 0x64, number]),
            valid_from: None,
            valid_until: None,
        })?;
        for address in [
            IpAddr::from([198, 51, 100, 10 + number]),
            IpAddr::from([0x2001, 0xdb8, 0x7f, 0, 0, 0, 0, 0x10 + u16::from(number)]),
        ] {
            ix.apply::<IpId>(Operation::AddIp {
                config: end,
                address,
                valid_until: None,
            })?;
        }
        if number != 1 {
            let clean = Operation::ReportQuarantine {
                config: end,
                clean: true,
            };
            let later = after(1_000);
            ix.exchange.apply(&Actor::system(), later, clean)?;
        }
    }
    Ok(())
}

/// Adds filters of every origin: active, refused and suspended filters.
fn filters(ix: &mut Builder, account: AccountId) -> Result<(), Refusal> {
    let rows = [
        (
            "203.0.113.0/24",
            Some(17),
            FilterOrigin::Page,
            FilterState::Active,
            None,
        ),
        (
            "203.0.113.9/32",
            Some(17),
            FilterOrigin::Flowspec,
            FilterState::Active,
            Some("destination 203.0.113.9/32, protocol =17, source-port =19, rate 0"),
        ),
        (
            "192.0.2.0/24",
            None,
            FilterOrigin::Flowspec,
            FilterState::Refused(reason::no_object("route", "192.0.2.0/24", "AS64500").then(
                "; missing: ",
                reason::missing_object("route", "192.0.2.0/24", "AS64500"),
            )),
            Some("destination 192.0.2.0/24, redirect 64500:100"),
        ),
        (
            "203.0.113.77/32",
            None,
            FilterOrigin::Rtbh,
            FilterState::Suspended(reason::no_live_route("203.0.113.77/32")),
            Some("blackhole route 203.0.113.77/32"),
        ),
    ];
    for (destination, protocol, origin, state, comment) in rows {
        let destination = destination
            .parse()
            .map_err(|_| Refusal::conflict("the prefix is no prefix".to_owned()))?;
        let mut matching = FilterMatch::to(destination);
        matching.protocol = protocol;
        if protocol == Some(17) {
            matching.source_ports = vec![Ports { first: 19, last: 19 }];
        }
        ix.apply::<FilterId>(Operation::CreateFilter {
            account: Some(account),
            matching,
            alternatives: Vec::new(),
            order: String::new(),
            exempt_until: None,
            peers: BTreeSet::new(),
            action: FilterAction::Drop,
            origin,
            rank: if origin == FilterOrigin::Page { 100 } else { 300 },
            state,
            valid_until: (origin == FilterOrigin::Page).then(|| after(20 * 86_400)),
            comment: comment.map(str::to_owned),
            external_ref: None,
        })?;
    }
    Ok(())
}
