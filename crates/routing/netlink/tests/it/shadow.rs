//! Addresses of shadow interfaces.

use std::net::IpAddr;

use millrace_netlink::Shadow;

use crate::bed::{apart, batch, ip};

fn address(text: &str) -> (IpAddr, u8) {
    let (address, len) = text.split_once('/').unwrap();
    (address.parse().unwrap(), len.parse().unwrap())
}

/// Returns the addresses that `ip` shows, without those of the link.
fn shown() -> Vec<String> {
    let text = ip("-brief address show dev s0 scope global");
    let mut found: Vec<String> = text.split_whitespace().skip(2).map(str::to_owned).collect();
    found.retain(|text| !text.starts_with("fe80"));
    found.sort();
    found
}

#[test]
fn addresses_follow_the_configuration_and_those_of_others_stay() {
    let Some(namespace) = apart() else {
        return;
    };
    batch(
        "link add s0 type veth peer name p0\n\
         link set s0 up\n\
         address add 10.0.0.9/24 dev s0\n",
    );
    let mut shadow = Shadow::find(&namespace, "s0").unwrap();
    assert_eq!(shadow.ifindex(), nix::net::if_::if_nametoindex("s0").unwrap());
    shadow
        .set_addresses(&[
            address("10.0.0.1/24"),
            address("2001:db8::1/64"),
            address("10.0.0.9/24"),
        ])
        .unwrap();
    assert_eq!(shown(), ["10.0.0.1/24", "10.0.0.9/24", "2001:db8::1/64"]);
    // Nothing changes if the configuration says the same.
    shadow
        .set_addresses(&[address("10.0.0.1/24"), address("2001:db8::1/64")])
        .unwrap();
    assert_eq!(shown(), ["10.0.0.1/24", "10.0.0.9/24", "2001:db8::1/64"]);
    ip("address add 10.0.0.8/24 dev s0");
    drop(shadow);
    // The next run of the daemon recognises the addresses of the earlier one.
    let mut shadow = Shadow::find(&namespace, "s0").unwrap();
    shadow.set_addresses(&[address("2001:db8::2/64")]).unwrap();
    assert_eq!(shown(), ["10.0.0.8/24", "10.0.0.9/24", "2001:db8::2/64"]);
    shadow.set_addresses(&[]).unwrap();
    assert_eq!(shown(), ["10.0.0.8/24", "10.0.0.9/24"]);
}

#[test]
fn an_address_that_the_kernel_refuses_and_an_interface_that_is_missing_are_named() {
    let Some(namespace) = apart() else {
        return;
    };
    let error = Shadow::find(&namespace, "s0").unwrap_err().to_string();
    assert!(error.contains("s0: ENODEV"), "{error}");
    ip("link add s0 type veth peer name p0");
    let mut shadow = Shadow::find(&namespace, "s0").unwrap();
    let error = shadow
        .set_addresses(&[address("10.0.0.1/24"), address("ff02::1/64")])
        .unwrap_err()
        .to_string();
    assert!(error.contains("set the address ff02::1/64 of s0"), "{error}");
}
