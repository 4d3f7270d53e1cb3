//! Routes on the wire: pages, selections and refusals.

use crate::rest::problem;
use crate::wire::ask;
use millrace_api::fake::FakeServer;

#[test]
fn routes_come_page_by_page_and_by_destination() {
    let server = FakeServer::start().unwrap();
    let prefixes = |query: &str| {
        let page = ask(&server, "GET", &format!("/api/v1/vrfs/blue/routes{query}")).json();
        let routes = page["routes"].as_array().unwrap().iter();
        (
            routes
                .map(|route| route["prefix"].as_str().unwrap().to_owned())
                .collect::<Vec<_>>(),
            page["next"].as_str().map(str::to_owned),
        )
    };
    let (first, next) = prefixes("?limit=2");
    assert_eq!(first, ["10.0.20.0/24", "192.0.2.0/24"]);
    let (second, end) = prefixes(&format!("?limit=2&after={}", next.unwrap().replace('/', "%2F")));
    assert_eq!((second, end), (vec!["2001:db8:bad::/48".to_owned()], None));
    assert_eq!(prefixes("?to=192.0.2.77").0, ["192.0.2.0/24"]);
    assert_eq!(prefixes("?within=2001:db8::%2F32").0, ["2001:db8:bad::/48"]);
    problem(&ask(&server, "GET", "/api/v1/vrfs/red/routes"), 404, "not-found");
    for query in [
        "?limit=0",
        "?limit=10001",
        "?to=host",
        "?within=10.0.0.0",
        "?within=10.0.0.0%2F33",
        "?after=x%2F8",
        "?to=10.0.0.1&within=10.0.0.0%2F8",
        "?form=10.0.0.1",
    ] {
        let refused = problem(
            &ask(&server, "GET", &format!("/api/v1/vrfs/blue/routes{query}")),
            400,
            "bad-request",
        );
        assert!(
            refused["detail"].as_str().unwrap().contains("expected"),
            "{query}: {refused}"
        );
    }
}
