//! Running bridges: ports, flow entries, tables, groups, meters, queues, chains.

use super::connection::{Client, RESPONSE_TIMEOUT};
use super::error::ClientError;
use super::query::{Params, escape};
use crate::view::{
    Bridge, Chain, Controller, CountersReset, EgressQueue, FlowMods, FlowModsDone, FlowPage, FlowsSaved,
    FlushMacs, Group, Ipfix, MacEntry, MacsFlushed, Meter, Mirror, NicEntry, NicRegister, Port, Reloading,
    ResetFlowCounters, ResetPortCounters, Restarted, Sflow, Table,
};

/// A selection of flow entries.
#[derive(Debug, Clone, Default)]
pub struct FlowOptions {
    /// Only entries of this table.
    pub table: Option<u8>,
    /// Only entries with this match or a narrower one.
    pub matching: Option<String>,
    /// Only entries with this cookie, `VALUE` or `VALUE/MASK`.
    pub cookie: Option<String>,
    /// The cursor of this page, which is `next` of the previous page.
    pub after: Option<String>,
    /// The number of entries on a page.
    pub limit: Option<usize>,
}

impl Client {
    /// Returns the bridges that run.
    pub fn bridges(&self) -> Result<Vec<Bridge>, ClientError> {
        self.get("/api/v1/bridges")
    }

    /// Returns the ports of a bridge.
    pub fn ports(&self, bridge: &str) -> Result<Vec<Port>, ClientError> {
        self.of_bridge(bridge, "ports")
    }

    /// Returns the registers of the device of a port, by name or number.
    pub fn nic_registers(&self, bridge: &str, port: &str) -> Result<Vec<NicRegister>, ClientError> {
        self.of_bridge(bridge, &format!("ports/{}/nic-registers", escape(port)))
    }

    /// Returns the entries that the switch has in the device of a port, by name or number.
    pub fn nic_entries(&self, bridge: &str, port: &str) -> Result<Vec<NicEntry>, ClientError> {
        self.of_bridge(bridge, &format!("ports/{}/nic-entries", escape(port)))
    }

    /// Returns a page of flow entries.
    pub fn flows(&self, bridge: &str, options: &FlowOptions) -> Result<FlowPage, ClientError> {
        let mut params = Params::default();
        params.maybe("table", options.table);
        params.maybe("match", options.matching.as_ref());
        params.maybe("cookie", options.cookie.as_ref());
        params.maybe("after", options.after.as_ref());
        params.maybe("limit", options.limit);
        self.of_bridge(bridge, &format!("flows{}", params.0))
    }

    /// Adds, changes or removes flow entries, all or none.
    pub fn flow_mods(&self, bridge: &str, request: &FlowMods) -> Result<FlowModsDone, ClientError> {
        self.post_to(bridge, "flow-mods", request)
    }

    /// Resets counters of flow entries.
    pub fn reset_flow_counters(
        &self,
        bridge: &str,
        request: &ResetFlowCounters,
    ) -> Result<CountersReset, ClientError> {
        self.post_to(bridge, "reset-flow-counters", request)
    }

    /// Resets counters of ports.
    pub fn reset_port_counters(
        &self,
        bridge: &str,
        request: &ResetPortCounters,
    ) -> Result<CountersReset, ClientError> {
        self.post_to(bridge, "reset-port-counters", request)
    }

    /// Saves the flow entries, groups and meters of a bridge for the next start.
    pub fn save_flows(&self, bridge: &str) -> Result<FlowsSaved, ClientError> {
        self.post_to(bridge, "save-flows", &serde_json::json!({}))
    }

    /// Forgets learned MAC addresses of a bridge.
    pub fn flush_macs(&self, bridge: &str, request: &FlushMacs) -> Result<MacsFlushed, ClientError> {
        self.post_to(bridge, "flush-macs", request)
    }

    /// Returns the tables of a bridge.
    pub fn tables(&self, bridge: &str) -> Result<Vec<Table>, ClientError> {
        self.of_bridge(bridge, "tables")
    }

    /// Returns the controllers of a bridge.
    pub fn controllers(&self, bridge: &str) -> Result<Vec<Controller>, ClientError> {
        self.of_bridge(bridge, "controllers")
    }

    /// Returns the MAC addresses that a bridge has learned.
    pub fn macs(&self, bridge: &str) -> Result<Vec<MacEntry>, ClientError> {
        self.of_bridge(bridge, "macs")
    }

    /// Returns the mirrors of a bridge.
    pub fn mirrors(&self, bridge: &str) -> Result<Vec<Mirror>, ClientError> {
        self.of_bridge(bridge, "mirrors")
    }

    /// Returns the state of sFlow of a bridge; empty without sFlow.
    pub fn sflow(&self, bridge: &str) -> Result<Vec<Sflow>, ClientError> {
        let sflow: Option<Sflow> = self.of_bridge(bridge, "sflow")?;
        Ok(sflow.into_iter().collect())
    }

    /// Returns the state of IPFIX of a bridge; empty without IPFIX.
    pub fn ipfix(&self, bridge: &str) -> Result<Vec<Ipfix>, ClientError> {
        let ipfix: Option<Ipfix> = self.of_bridge(bridge, "ipfix")?;
        Ok(ipfix.into_iter().collect())
    }

    /// Returns the groups of a bridge.
    pub fn groups(&self, bridge: &str) -> Result<Vec<Group>, ClientError> {
        self.of_bridge(bridge, "groups")
    }

    /// Returns the meters of a bridge.
    pub fn meters(&self, bridge: &str) -> Result<Vec<Meter>, ClientError> {
        self.of_bridge(bridge, "meters")
    }

    /// Returns the queues of the ports of a bridge.
    pub fn queues(&self, bridge: &str) -> Result<Vec<EgressQueue>, ClientError> {
        self.of_bridge(bridge, "queues")
    }

    /// Returns the chains of a bridge.
    pub fn chains(&self, bridge: &str) -> Result<Vec<Chain>, ClientError> {
        self.of_bridge(bridge, "chains")
    }

    /// Starts to load the files of a hop again. The state of the hop shows when the loading has ended.
    pub fn reload_hop(&self, bridge: &str, chain: &str, hop: &str) -> Result<Reloading, ClientError> {
        let [bridge, chain, hop] = [bridge, chain, hop].map(escape);
        let path = format!("/api/v1/bridges/{bridge}/chains/{chain}/hops/{hop}/reload");
        self.post(&path, &serde_json::json!({}), RESPONSE_TIMEOUT)
    }

    /// Re-creates the functions of a hop.
    pub fn restart_hop(&self, bridge: &str, chain: &str, hop: &str) -> Result<Restarted, ClientError> {
        let [bridge, chain, hop] = [bridge, chain, hop].map(escape);
        let path = format!("/api/v1/bridges/{bridge}/chains/{chain}/hops/{hop}/restart");
        self.post(&path, &serde_json::json!({}), RESPONSE_TIMEOUT)
    }
}
