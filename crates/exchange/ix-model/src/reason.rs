//! The reasons that the exchange gives to people, each with a code and parameters.
//!
//! The table below has all of them, with the English text. The page translates a reason by its code and parameters
//! (`portal/src/i18n/reasons.ja.json` and its neighbours), and shows the English text if there is no translation.
//! The tests of the page read the table from `portal/reasons.json`, and fail if a code has no translation.
//!
//! A code is the name of its function with hyphens, and stays when the text is improved. A parameter is a number, an
//! identifier, an address or a name, and no word of English.

use core::fmt;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The code of a reason, with its parameters.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Coded {
    /// The code, such as `vlan-taken`.
    pub code: String,
    /// The parameters by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, String>,
}

/// A reason in English, and the codes of its sentences.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Reason {
    /// The reason in English.
    #[serde(rename = "reason")]
    pub text: String,
    /// The codes of all its sentences, in order; empty if the reason has no code.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub coded: Vec<Coded>,
}

impl Reason {
    fn new(name: &str, text: String, values: &[(&str, String)]) -> Reason {
        let values = values
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()));
        let coded = Coded {
            code: name.replace('_', "-"),
            values: values.collect(),
        };
        Reason {
            text,
            coded: vec![coded],
        }
    }

    /// Returns this reason, followed by another one.
    #[must_use]
    pub fn then(mut self, separator: &str, other: Reason) -> Reason {
        self.text = format!("{}{separator}{}", self.text, other.text);
        // If only a part of a text has a code, the whole text is shown in English.
        if self.coded.is_empty() || other.coded.is_empty() {
            self.coded.clear();
        } else {
            self.coded.extend(other.coded);
        }
        self
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

/// A text of a library or a peer has no code.
impl From<String> for Reason {
    fn from(text: String) -> Reason {
        Reason {
            text,
            coded: Vec::new(),
        }
    }
}

macro_rules! reasons {
    ($($name:ident($($value:ident),*) = $text:literal;)*) => {
        $(
            #[doc = concat!("Returns the reason: ", $text, ".")]
            pub fn $name($($value: impl fmt::Display),*) -> Reason {
                let text = format!($text, $($value = $value),*);
                Reason::new(stringify!($name), text, &[$((stringify!($value), $value.to_string())),*])
            }
        )*

        /// Returns all codes with their English texts, in which parameters stand in braces.
        pub fn all() -> BTreeMap<String, &'static str> {
            [$((stringify!($name).replace('_', "-"), $text)),*].into()
        }
    };
}

reasons! {
    // Objects and rights.
    not_found(object) = "there is no {object}";
    forbidden() = "your roles do not permit this";
    forbidden_object(object) = "your roles do not permit this for {object}: ask an administrator of the account";
    read_only_key() = "this API key may only read: expected a key with the scope `write`";
    staff_only() = "only the exchange's staff with the right role may do this";
    engine_only() = "only the engine may report this";
    account_needed() = "the order names no account: expected one, such as ac-3";
    name_invalid(name) =
        "\"{name}\" is not a valid name: expected 1 to 100 characters, without control and invisible characters, and \
         without spaces at the ends";
    placeholder_empty(object) =
        "{object} stands for an object that an earlier operation of the same order creates, and none does: expected such an \
         operation, or the identifier of an existing object";
    name_taken(object, name) = "{object} has the name \"{name}\" already: expected another name";
    external_ref_taken(object, reference) = "{object} has the external_ref \"{reference}\" already";
    pool_empty(pool, first, last) =
        "the pool of {pool} has no free number from {first} to {last}: wait a minute until deleted objects release \
         theirs, or delete objects";

    // Locks, second persons, confirmations.
    not_lockable(object) = "{object} cannot be locked: expected a service, an end or a connection";
    locked_already(object, by) = "{object} is locked by {by} already";
    not_locked(object) = "{object} is not locked";
    foreign_lock(object, by) = "{object} is locked by {by}: only that account, or two operators, can unlock it";
    locked(object, by) = "{object} is locked by {by}: unlock it first";
    far_end_locked(end) = "the other side has locked {end}: ask the other side, or two operators, to unlock it";
    approval_waits(object) = "{object} already waits for a second person: ask another operator to approve it";
    approval_by_same_person(approval) = "you asked for {approval} yourself: ask another operator to approve it";
    in_use(user, object) = "{user} uses {object}: delete or move {user} first";
    confirmation_pending(change, object) =
        "change {change} of {object} waits for its confirmation: confirm or revert it first";
    confirmation_none(change) = "change {change} does not wait for a confirmation";
    confirmation_time() = "expected 1 second to 24 hours";
    confirmation_of_operations() = "only operations can wait for a confirmation";
    confirmation_unsuited() =
        "only drains, shut-downs and policies can be undone at any time: order this without a confirmation";
    confirmation_twice() = "the order changes one object twice: expected one operation for each";

    // Services and their ends.
    policy_needed() = "a peering LAN needs a policy, such as po-2";
    policy_of_lan_only() = "only a peering LAN has a policy";
    networks_of_lan_only() = "only a peering LAN has networks";
    refusal_without_reason() = "expected a reason: the other side reads it";
    waiver_without_reason() = "expected a reason: the audit log records it";
    key_of_lan() = "a peering LAN needs no service key: members configure their end";
    invited_already() = "an account is invited to this service already";
    key_validity() = "expected an end of validity in the future, at most 90 days away";
    key_secret_weak() = "expected at least 22 printable ASCII characters";
    key_secret_taken() = "the secret is already in use: generate another one";
    key_unknown() = "the service key is unknown, used or expired: ask the other side for a new one";
    key_forbidden() = "your roles do not permit you to redeem service keys";
    key_rate(max) = "the service key permits at most {max} Mbit/s: expected a rate up to that";
    key_vlans(first, last) = "the service key permits VLANs {first} to {last} only: expected a free one of these";
    vlans_wrong(first, last) = "{first} to {last} is no range of VLANs from 1 to 4094";
    peer_is_own() =
        "the circuit invites its own account: expected another account, or none for a circuit between two of its own ends";
    peer_of_p2p_only() = "only a p2p_vc invites one account; give service keys to others";
    not_invited(service) = "{service} does not invite your account: there is nothing to answer";
    answered_already(service) = "{service} has its answer already: delete your end, or order another service";
    nobody_ordered_end(service) = "{service} is not being decommissioned: order its deletion first";
    service_ends(service) = "{service} is being removed: order another service";
    services_full(account, max) =
        "{account} and the accounts below it have {max} services, which is their limit: delete some, or ask the exchange's \
         staff for a higher limit";
    carried_full(account, max) =
        "{account} and the accounts below it have {max} services over trunks, which is their limit: delete some, use \
         connections at one switch, or ask the exchange's staff for a higher limit";
    account_ends_full(account, max) =
        "{account} and the accounts below it have {max} ends, which is their limit: delete some, or ask the exchange's \
         staff for a higher limit";
    ends_full(service, max) = "{service} has {max} ends already: delete one first";
    refused_by_peer(service, reason) = "the other side refused {service}: {reason}";
    connection_of_neither(service, account, peer) =
        "{service} joins {account} and {peer}: the connection belongs to neither";
    end_configured(service) =
        "this side has configured its end of {service} already: only the other side can configure the other end";
    key_needed(service, account) = "{service} belongs to {account}: a service key is needed for other accounts";
    leaves_of_p2mp_only() = "only a p2mp_vc has leaves";
    leaves_over_s_tags(one, two) =
        "the trunk between {one} and {two} has S-tags, which leave no tag to mark the frames of a leaf: expected a VXLAN \
         trunk, or ends that are all roots";
    not_in_quarantine(end) = "{end} is not in quarantine";
    vlan_taken(end, vlan, connection) = "{end} has {vlan} of {connection}: choose other tags, or leave them open";
    vlans_exhausted(connection) = "{connection} has no free VLAN: name an outer VLAN, or use another connection";
    rate_of_connection(connection, total, rate) = "{connection} has {total} Mbit/s: {rate} Mbit/s do not fit";
    connection_full(connection, max, taken, rate, free) =
        "{connection} admits contracts of {max} Mbit/s, its other ends have {taken}: {rate} Mbit/s do not fit, at most \
         {free} do. Lower other rates, or ask the exchange's staff";
    rate_min() = "expected at least 1 Mbit/s, or null";
    move_between_accounts(connection, account) =
        "{connection} belongs to {account}: an end moves between connections of its account";
    no_route_over_trunks(one, two) =
        "no trunk joins {one} and {two}, and no path leads over other switches: expected a trunk";
    s_tags_full(first, last, reserve) =
        "no S-tag from {first} to {last} is free for a service over trunks, beside {reserve} for circuits that take \
         another path: wait a minute until deleted services release theirs, or delete services";
    no_trunk(one, two) = "no trunk joins {one} and {two}: expected a trunk between the switches of all ends";
    trunk_full(trunk, from, to, max, taken, rate, free) =
        "trunk \"{trunk}\" from {from} to {to} admits contracts of {max} Mbit/s, other circuits have {taken}: {rate} \
         Mbit/s do not fit, at most {free} do";

    // Peering LANs: policies, MAC and IP addresses.
    ethertypes_wrong() = "expected EtherTypes of 0x0600 or higher that are not those of VLAN tags";
    packets_per_second_min() = "expected at least 1 packet a second: ARP and ND need some";
    macs_max_min() = "expected at least 1";
    macs_of_p2p(service) = "{service} is a p2p_vc, which passes every MAC address";
    mac_of_no_host(address) = "{address} cannot be the address of a host: expected a unicast MAC address";
    mac_validity() = "expected an end of validity that is in the future and after the start";
    mac_taken(address, service) = "{address} is registered in {service} already";
    macs_full(max) =
        "the policy permits {max} MAC address(es) at an end: to replace a router, let the validity of the old or the \
         new address end within 24 hours";
    no_lan(service) = "{service} is no peering LAN: it has no addresses";
    ip_of_network(address, network) =
        "{address} is the first or the last address of {network}, which is no address of a host: expected one between them";
    ip_outside(address, service) =
        "{address} is not in the networks of {service}: expected an address of the peering LAN";
    ip_taken(object, address) = "{address} is registered already, as {object}";
    link_local_taken(address, mac, service) =
        "{address} is the link-local address of {mac}: another end of {service} has one of them already";

    // Filters.
    ownership_unchecked() = "this exchange does not check who owns an address: ask its staff for the filter";
    matches_max(max) = "expected at most {max} matches";
    destination_within(destination) = "expected a destination within {destination}";
    exception_by_operator() = "only an operator of the exchange can grant an exception from the check of ownership";
    shape_rate_min() = "expected at least 1 kbit/s; to drop all packets, use the action `drop`";
    filters_full(account, max) = "{account} has {max} filters: delete some, or use shorter prefixes";
    filter_entries_full(max) = "the account's filters need more than {max} entries: use prefixes and exact ports";
    filter_ended(filter) = "{filter}: the filter has ended: order a new one";
    filter_identical(filter) = "{filter} matches the same packets already";
    filter_shadowed(filter) = "{filter} applies first to all packets of the new filter, which has no effect beside it";
    filter_shadows(filter) = "the new filter applies first to all packets of {filter}, which has no effect beside it";
    filter_overlaps(filter) = "{filter} matches some of the same packets, and treats them otherwise";
    filter_validity() = "expected an end of validity in the future, at most 30 days away";
    ports_order(first, last) = "{first} is above {last}: expected first and last port";
    ports_protocol() = "ports need protocol 6 (TCP), 17 (UDP) or 132 (SCTP)";
    ports_of_fragments() = "fragments after the first have no ports";
    families_differ() =
        "source and destination are of different address families: expected two IPv4 or two IPv6 prefixes";
    icmp_protocol(number, name) = "ICMP types and codes need protocol {number} ({name})";
    tcp_flags_protocol() = "TCP flags need protocol 6 (TCP)";
    tcp_flags_mask() = "expected a mask of 12 bits that holds all bits of the value";
    dscp_range() = "expected 0 to 63";
    fragments_unsupported() =
        "OpenFlow 1.3 has no match on fragments, and the switches of this exchange have no extension for it";
    tcp_flags_unsupported() =
        "OpenFlow 1.3 has no match on TCP flags, and the switches of this exchange have no extension for it";
    ports_exact(first, last, count, max) =
        "OpenFlow 1.3 matches single ports, and {first} to {last} are {count}: expected at most {max}, or the match \
         extensions of the bridge";
    ports_entries(max) = "the ports need more than {max} entries: expected fewer ranges";
    roa_of_others(destination, others, origins) =
        "RPKI: {destination} is covered by ROAs for {others} only: expected one for {origins}";
    rpki_away() = "the RPKI caches do not answer: ask the exchange's operator, or try again later";
    registry_away() = "the routing registry does not answer: ask the exchange's operator, or try again later";
    no_roa(destination, origins) = "no ROA covers {destination} with origin {origins}";
    no_object(kind, destination, origins) = "no {kind} object or ROA covers {destination} with origin {origins}";
    rpki_invalid(prefix, path) = "RPKI-invalid: the route {prefix} with AS path \"{path}\"";
    no_live_route(destination) = "no live route of the account covers {destination}";
    part_of_another(destination, prefix, path) =
        "RFC 9117: another network announces a part of {destination}: route {prefix} with AS path \"{path}\"";
    best_match_of_another(destination, prefix, path) =
        "RFC 9117: the best match for {destination} is another network's route {prefix} with AS path \"{path}\"";
    missing_roa(prefix, origins) = "ROA for {prefix} with origin {origins}";
    missing_object(kind, prefix, origins) = "{kind} object or ROA for {prefix} with origin {origins}";
    missing_route(destination, origins) = "BGP route that covers {destination}, from {origins}";
    missing_withdrawal(prefix, path) =
        "withdrawal of that route {prefix} with AS path \"{path}\", or a rule for a smaller destination";

    // Flowspec rules.
    flowspec_redirect() = "the exchange does not redirect traffic: use traffic-rate-bytes";
    flowspec_mark(dscp) = "the exchange does not mark traffic (DSCP {dscp}): use traffic-rate-bytes";
    flowspec_rate_nan() = "the rate is not a number: expected bytes per second";
    flowspec_packets(rate) =
        "{rate} packets/s: the exchange limits bytes, not packets: use traffic-rate-bytes, or 0 to drop";
    flowspec_rate_low(rate) = "{rate} bytes/s are less than a meter's 1 kbit/s: use 0 to drop";
    flowspec_operators(component, count, max) = "component type {component} has {count} operators: expected at most {max}";
    flowspec_offset(component) = "{component}: filters of the exchange match prefixes, not bits behind an offset";
    flowspec_length(component) = "{component}: OpenFlow has no match on the length of packets";
    flowspec_flow_label(component) = "{component}: filters of the exchange cannot match the flow label";
    flowspec_destination() = "the rule has no destination prefix: a filter is bound to its owner's addresses";
    flowspec_matches(max) = "the rule needs more than {max} matches: expected fewer protocols and values";
    flowspec_contradiction() = "no packet can match all components of the rule";
    flowspec_tcp_flags(max) = "the TCP flags need more than {max} entries: expected fewer operators";
    flowspec_not_terminal() = "the rule lets later rules apply as well (terminal-action bit): switches apply one rule";
    flowspec_zero() =
        "fragments without a transport header also have the value 0 as port, ICMP type or code, and the \
         switches of this exchange cannot distinguish fragments: leave 0 out";
    flowspec_fragment_bits() =
        "OpenFlow distinguishes whole packets, first and later fragments, but neither DF nor the last fragment";

    // Fabric.
    dpid_taken(object, dpid) = "{object} has the datapath id {dpid} already";
    port_in_use(object, port) = "{object} uses port {port}: move it before the port is removed";
    port_unknown(port) = "there is no port {port} in the inventory: add it with set_ports";
    port_twice(port) = "port {port} is named twice: expected it once";
    port_taken(object, port) = "{object} uses port {port} already: a port belongs to one connection or trunk";
    port_incomplete(port) = "port {port} needs a number and a speed above 0";
    ports_none() = "the connection has no port: expected at least one";
    ports_of_standalone(count) = "a standalone connection has one port: got {count}";
    ports_of_lag(max, count) = "a LAG has at most {max} ports: got {count}";
    ports_of_lacp(count) =
        "a LAG with LACP is one port of its switch, which speaks LACP for the members: expected that port, got {count}; or \
         lag_static, and a bundle without LACP in the router";
    lag_over_switches(one, other) = "ports {one} and {other} are at different switches: expected one switch";
    trunk_at_one_switch(switch) = "both ends are at {switch}: expected two switches";
    trunk_mtu(mtu, min) =
        "the underlay carries {mtu} bytes: expected at least {min}, for frames of 1,500 bytes with two tags in VXLAN \
         over IPv6";
    contract_percent_min() = "expected at least 1 percent: circuits with a rate could not use the trunk";
    capacity_min() = "expected at least 1 Mbit/s";
    trunk_kinds_differ(object) = "{object} joins the same switches with another encapsulation: expected the same one";

    // Accounts and people.
    accounts_by_staff() = "only the exchange's staff, and resellers below their own account, can create accounts";
    reseller_makes_members() = "a reseller can create accounts of members only";
    role_of_account(account, role) = "users of {account} cannot have the role {role}";
    roles_none() = "the user has no role: expected at least one";
    mail_invalid(address) = "\"{address}\" is not a mail address: expected one such as noc@example.net";
    not_oneself() = "nobody deactivates the own user: ask another administrator";
    mail_off() = "this exchange sends no mail: give the person the password by `millrace-ix user password`";
    mail_missing(name) = "{name} has no mail address: enter one first";
    user_deactivated(name) = "{name} is deactivated: activate the user first";
    password_there(name) = "{name} has a password already: send a link for a new password";
    letters_too_many() = "too many letters with links were sent: try again later";
    link_over() = "the link is not valid any more: ask for a new one";
    letter_state() = "the state of the order does not permit this step: read the order again";
    asn_reserved(asn) = "AS {asn} is reserved: expected the AS of a member";
    asn_taken(object, asn) = "{object} has AS {asn} already";
    asn_of_another(asn) = "AS {asn} belongs to another account: expected an AS of this account";
    asn_not_of_account(asn, object) =
        "AS {asn} is no AS of {object}: expected one of its numbers, to which the exchange's staff adds new ones";
    asn_unproven(asn) =
        "nothing proves that AS {asn} is yours: ask the exchange's staff to add it, or sign in by the provider that names you \
         as its administrator";
    as_set_invalid(text) =
        "\"{text}\" is no AS-SET: expected a name such as AS-EXAMPLE, RIPE::AS-EXAMPLE or AS64500:AS-CUSTOMERS";
    as_set_unproven(set, object) =
        "nothing proves that {object} speaks for {set}: expected a name that begins with one of its AS numbers, such as \
         AS64500:AS-CUSTOMERS, or the AS-SET that the exchange's staff has registered for it";
    name_by_staff(object) =
        "others know {object} by its name: ask the exchange's staff, or the account that manages yours, to change it";
    name_looks_alike(name) = "\"{name}\" looks like a name that is taken: expected another name";

    // Keys, webhooks, requests.
    key_name() = "expected a name of 1 to 100 characters";
    keys_full(max) = "you have {max} API keys: delete one first";
    webhooks_full(max) = "the account has {max} webhooks: delete one first";
    url_long() = "the address is longer than 2000 characters";
    url_malformed() = "the address is malformed: expected https:// and a host";
    url_scheme() = "expected an address that begins with https://";
    url_with_user() = "the address has a user name: expected none";
    url_private(host) = "{host} is not a host of the Internet: expected one";
    property_misspelt(property, nearest) = "the request has no `{property}`: did you mean `{nearest}`?";
    property_unknown(property, known) = "the request has no `{property}`: expected one of {known}";
    property_none(property) = "the request has no `{property}`: expected none there";
    idempotency_key_reused() = "the idempotency key was used for another request: expected a new key";
    recheck_soon() = "the filters of the account were checked a moment ago: try again in a few seconds";
    password_length(min, max) = "expected a password of {min} to {max} characters";

    // Quarantine.
    frame_source_unregistered(mac) = "frames come from {mac}, which is not registered for this end";
    frame_source_none_registered(mac) = "frames come from {mac}, and no MAC address is registered: add it";
    frame_tag_more(ethertype) = "frames have one more tag than this end, of type {ethertype}";
    frame_tags(found, expected) = "frames have {found}: this end has {expected}";
    frame_ethertype(name) = "the router sends frames of {name}, which the LAN does not pass";
    frame_bpdu(name) = "the port sends {name} BPDUs: switch spanning tree off";
    frame_protocol(name) = "the port sends {name}: switch it off";
    frame_slow_protocol(name) = "the port sends {name}, but the connection is not a LAG that uses it: switch it off";
    frame_reserved(address) = "the port sends to the reserved address {address}";
    frame_malformed(name) = "a packet of {name} is malformed";
    arp_sender_differs(sender, mac) = "ARP names {sender} as sender in a frame from {mac}";
    arp_proxy(address) = "the router answers ARP for {address}, which is not its address: switch proxy ARP off";
    arp_unregistered(address) = "ARP comes from {address}, which is not registered for this end";
    arp_outside(address) = "the router asks for {address}, which is outside of the LAN: check its netmask";
    nd_unregistered_source(address) =
        "the router sends neighbour solicitations from {address}, which is not registered for this end: add it, or \
         correct the router";
    nd_unregistered_target(address) =
        "the router answers for {address}, which is not registered for this end: add it, or correct the router";
    dhcp_client(name) = "the router asks for an address by {name}: switch it off";
    dhcp_server(name) = "the router is a {name} server: switch it off";
    redirects(name) = "the router sends {name} redirects: switch them off";
    advertisements(name) = "the router sends {name} router advertisements: suppress them on this interface";
    solicitations() = "the router asks for router advertisements: switch autoconfiguration off";
    multicast(name, address) = "the router sends {name} to {address}: switch it off on this interface";
    quarantine_left(seconds) = "the quarantine ends after {seconds} more seconds without an offending frame";
    quarantine_goes_on() = "the quarantine goes on";

    // Services that do not carry everything.
    link_down(connection) = "the connection {connection} has no link";
    trunks_down(one, two) = "no trunk between {one} and {two} is up";
    trunk_oversold(trunk, one, two, max, contracted) =
        "trunk {trunk} between {one} and {two} admits {max} Mbit/s and carries contracts of {contracted} Mbit/s, \
         because another trunk is down";

    // Routes that a route server rejects.
    route_as_path_length() = "the length of the AS path is not allowed";
    route_as_path_too_long() = "the AS path is too long";
    route_as_path_too_short() = "the AS path is empty";
    route_prefix_length() = "the length of the prefix is not allowed";
    route_prefix_too_long() = "the prefix is too long: announce a shorter one";
    route_prefix_too_short() = "the prefix is too short: announce more specific ones";
    route_bogon() = "the prefix is a bogon: it is private, reserved or not allocated";
    route_not_global_unicast() = "the IPv6 prefix is no global unicast address";
    route_blacklisted() = "the prefix is on the exchange's list of refused prefixes";
    route_blacklisted_for_client() = "the prefix is on the list of prefixes that are refused from this member";
    route_address_family() = "the session does not carry this address family";
    route_next_hop() = "the next hop is not the address of the router that announces the route";
    route_first_asn() = "the AS path does not begin with the AS number of the member";
    route_bogon_asn() = "the AS path has a private or reserved AS number";
    route_transit_free_asn() = "the AS path has a transit-free network, which a member does not carry: it is a route leak";
    route_never_via_route_servers() = "the AS path has a network that does not want its routes at route servers";
    route_origin_not_in_as_set() = "the origin AS is not in the AS-SET of the member in the routing registry";
    route_prefix_not_in_as_set() = "no route object of the member's AS-SET covers the prefix in the routing registry";
    route_prefix_not_of_origin() = "the routing registry has no route object for the prefix with this origin AS";
    route_rpki_invalid() = "the route is RPKI-invalid: a ROA covers the prefix, but for another origin AS or a shorter length";
    route_rpki_unknown() = "no ROA covers the prefix";
    route_too_many_communities() = "the route has too many communities";
    route_cause_unknown(community) = "the route server gives the cause {community}, whose meaning is not known here";
    route_without_cause() = "the route server rejects the route, and gives no cause";

    // Packets and the filters that match them.
    packet_destination(address, prefix) = "{address} is not in {prefix}";
    packet_source(address, prefix) = "the source {address} is not in {prefix}";
    packet_protocol(protocol, expected) = "{protocol}: expected {expected}";
    packet_source_port(port) = "the filter does not match source port {port}";
    packet_destination_port(port) = "the filter does not match destination port {port}";
    packet_without_ports() = "a fragment after the first has no ports";
    packet_without_icmp() = "a fragment after the first has no ICMP type and code";
    packet_icmp_type(value, expected) = "ICMP type {value}: expected {expected}";
    packet_icmp_code(value, expected) = "ICMP code {value}: expected {expected}";
    packet_tcp_flags(flags) = "the filter does not match TCP flags {flags}";
    packet_fragment() = "the filter matches another part of a fragmented packet";
    packet_dscp(dscp, expected) = "DSCP {dscp}: expected {expected}";
    packet_of_another_peer() = "the packet does not come from a peer that the filter names";
    filter_decides() = "this is the first filter that matches the packet";
    filter_after_another() = "an earlier filter applies";
    suggestion_rates(now, before, share, destination) =
        "{now} now, {before} before; {share} % of the excess to {destination}";
    suggestion_without_usual(now, share, destination) =
        "{now} now, {share} % of the traffic to {destination}; the usual traffic is not known, so legitimate traffic may be \
         among it: limit it rather than drop it";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_has_its_text_its_code_and_its_parameters() {
        let reason = vlan_taken("nc-7", "VLAN 100", "cn-5");
        assert_eq!(
            reason.to_string(),
            "nc-7 has VLAN 100 of cn-5: choose other tags, or leave them open"
        );
        let [coded] = &reason.coded[..] else {
            panic!("{reason:?}")
        };
        assert_eq!(coded.code, "vlan-taken");
        assert_eq!(coded.values["connection"], "cn-5");
        assert_eq!(coded.values.len(), 3);
        assert!(all()["vlan-taken"].starts_with("{end} has {vlan} of {connection}"));
    }

    #[test]
    fn sentences_follow_each_other_and_a_part_without_a_code_makes_the_whole_one_without() {
        let both =
            no_live_route("192.0.2.1/32").then("; missing: ", missing_route("192.0.2.1/32", "AS64500"));
        assert_eq!(both.coded.len(), 2);
        assert!(
            both.text
                .ends_with("; missing: BGP route that covers 192.0.2.1/32, from AS64500")
        );
        let plain = no_live_route("192.0.2.1/32").then(": ", "an error of the peer".to_owned().into());
        assert!(plain.coded.is_empty());
    }

    #[test]
    fn an_older_text_without_codes_is_read() {
        let old: Reason = serde_json::from_str(r#"{ "reason": "no route" }"#).unwrap();
        assert_eq!(old, "no route".to_owned().into());
        assert_eq!(serde_json::to_string(&old).unwrap(), r#"{"reason":"no route"}"#);
    }
}
