//! The router: VRFs, interfaces, routes, next hops and neighbours.

use super::connection::Client;
use super::error::ClientError;
use super::query::{Params, escape};
use crate::view::{Neighbour, NextHopGroup, RoutePage, RouterInterface, Vrf};

/// A selection of routes; `to` and `within` exclude each other.
#[derive(Debug, Clone, Default)]
pub struct RouteOptions {
    /// Only the route that packets to this address follow.
    pub to: Option<String>,
    /// Only this prefix and longer ones.
    pub within: Option<String>,
    /// The prefix after which this page begins: `next` of the previous page.
    pub after: Option<String>,
    /// The number of routes on a page.
    pub limit: Option<usize>,
}

impl Client {
    /// Returns the VRFs of the router.
    pub fn vrfs(&self) -> Result<Vec<Vrf>, ClientError> {
        self.get("/api/v1/vrfs")
    }

    /// Returns the interfaces of the router.
    pub fn router_interfaces(&self) -> Result<Vec<RouterInterface>, ClientError> {
        self.get("/api/v1/interfaces")
    }

    /// Returns a page of routes.
    pub fn routes(&self, vrf: &str, options: &RouteOptions) -> Result<RoutePage, ClientError> {
        let mut params = Params::default();
        params.maybe("to", options.to.as_ref());
        params.maybe("within", options.within.as_ref());
        params.maybe("after", options.after.as_ref());
        params.maybe("limit", options.limit);
        self.get(&format!("/api/v1/vrfs/{}/routes{}", escape(vrf), params.0))
    }

    /// Returns the groups of next hops of a VRF.
    pub fn nexthops(&self, vrf: &str) -> Result<Vec<NextHopGroup>, ClientError> {
        self.get(&format!("/api/v1/vrfs/{}/nexthops", escape(vrf)))
    }

    /// Returns the neighbours of a VRF.
    pub fn neighbours(&self, vrf: &str) -> Result<Vec<Neighbour>, ClientError> {
        self.get(&format!("/api/v1/vrfs/{}/neighbours", escape(vrf)))
    }
}
