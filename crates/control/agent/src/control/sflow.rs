//! sFlow and IPFIX of a bridge: gives the sampling plan of the configuration to the workers, and the samples of the workers to
//! the agent of sFlow and the exporter of IPFIX. Both share the samples.

use std::collections::BTreeMap;

use millrace_datapath::SamplingPlan;
use millrace_datapath::io::Backend;
use millrace_model::{self as model, IpfixRecords};
use millrace_pipeline::{PortConfig, PortState};
use millrace_sflow::{CounterSample, EthernetCounters, InterfaceCounters, OpenFlowPort};
use millrace_types::PortNo;
use millrace_types::split_mix;

use super::bridge::BridgeControl;
use super::ipfix_exporter::{Exporter, IpfixStatus};
use super::sflow_agent::{SflowAgent, SflowStatus};
use crate::problem::Problem;

/// The maximum number of samples, and of dropped packets, that one round handles.
const SAMPLES_BATCH: usize = 4096;

/// The number of bytes of a packet that flows of IPFIX need: headers up to TCP's, with VLAN tags and a few options.
const FLOW_HEADER_SIZE: u16 = 128;

/// Returns the number of bytes of a packet that IPFIX needs.
fn header_size(ipfix: &model::Ipfix) -> u16 {
    match ipfix.records {
        IpfixRecords::Flows => FLOW_HEADER_SIZE,
        IpfixRecords::Packets => ipfix.frame_size.get(),
    }
}

impl<B: Backend> BridgeControl<B> {
    /// Updates the agent, the exporter and the workers' samplers for the configuration and the running ports, and tries sockets
    /// again that could not be opened. During the change, every packet is counted once.
    pub(super) fn configure_sflow(&mut self) {
        let now = self.datapath.now();
        let (wanted, ipfix) = (self.config.sflow.clone(), self.config.ipfix.clone());
        let rates = self.sampling_rates();
        let plan = (wanted.is_some() || ipfix.is_some()).then(|| SamplingPlan {
            header_size: wanted
                .iter()
                .map(|sflow| sflow.header_size.get())
                .chain(ipfix.iter().map(header_size))
                .max()
                .unwrap_or_default()
                .into(),
            rates: rates
                .iter()
                .filter(|(_, rate)| **rate != 0)
                .map(|(port, rate)| (*port, *rate))
                .collect(),
            discards_per_second: wanted.as_ref().map_or(0, |sflow| sflow.discard_limit.get()),
            seed: 0,
        });
        match (&mut self.sflow.agent, wanted.clone()) {
            (Some(agent), Some(wanted)) if *agent.config() != wanted => agent.configure(wanted, now),
            (Some(agent), Some(_)) => agent.open_collectors(),
            (agent @ None, Some(wanted)) => *agent = Some(SflowAgent::new(wanted)),
            (_, None) => {}
        }
        let domain = ipfix.as_ref().map_or(0, |ipfix| self.config.ipfix_domain(ipfix));
        match (&mut self.sflow.exporter, ipfix.clone()) {
            (Some(exporter), Some(wanted)) if *exporter.config() != wanted || exporter.domain() != domain => {
                exporter.configure(wanted, domain, now);
            }
            (Some(exporter), Some(_)) => exporter.open_sessions(),
            (exporter @ None, Some(wanted)) => *exporter = Some(Exporter::new(wanted, domain, now)),
            (_, None) => {}
        }
        let is_planned = match (&plan, &self.sflow.plan) {
            (Some(plan), Some(known)) => {
                *plan
                    == SamplingPlan {
                        seed: 0,
                        ..known.clone()
                    }
            }
            (None, None) => true,
            _ => false,
        };
        if is_planned {
            self.set_sampled_ports(&rates);
            self.end_unwanted(wanted.is_some(), ipfix.is_some());
            return;
        }
        // Each plan gets a new random seed.
        let plan = plan.map(|plan| SamplingPlan {
            seed: split_mix::next(&mut self.sflow_seed),
            ..plan
        });
        let remainders = self.datapath.set_sampling(plan.as_ref());
        // Samples of the former plan reach the agents before their ports change.
        self.take_samples();
        for remainder in &remainders {
            if let Some(agent) = &mut self.sflow.agent {
                agent.count_remainder(remainder);
            }
            if let Some(exporter) = &mut self.sflow.exporter {
                exporter.count(remainder.pool, remainder.lost);
            }
        }
        self.set_sampled_ports(&rates);
        self.end_unwanted(wanted.is_some(), ipfix.is_some());
        self.sflow.plan = plan;
    }

    /// Returns the sampling rate of each port; none without sFlow and IPFIX.
    fn sampling_rates(&self) -> BTreeMap<PortNo, u32> {
        // With both, the rates are equal.
        let of_sflow = self.config.sflow.as_ref().map(|sflow| sflow.sampling_rate);
        let of_ipfix = self.config.ipfix.as_ref().map(|ipfix| ipfix.sampling_rate);
        let Some(of_bridge) = of_sflow.or(of_ipfix) else {
            return BTreeMap::new();
        };
        let rate = |(number, status): (&PortNo, &crate::port::PortStatus)| {
            let own = status.model.sampling_rate;
            (*number, own.unwrap_or(of_bridge).get())
        };
        self.ports.iter().map(rate).collect()
    }

    fn set_sampled_ports(&mut self, rates: &BTreeMap<PortNo, u32>) {
        if let Some(agent) = &mut self.sflow.agent {
            agent.set_ports(rates);
        }
        let now = self.datapath.now();
        if let Some(exporter) = &mut self.sflow.exporter {
            let named = |(number, rate): (&PortNo, &u32)| {
                let name = self.ports.get(number)?.model.name.to_string();
                Some((*number, (name, *rate)))
            };
            exporter.set_ports(rates.iter().filter_map(named).collect(), now);
        }
    }

    /// Ends the agent and the exporter that the configuration does not have any more, after what they still have to send.
    fn end_unwanted(&mut self, has_sflow: bool, has_ipfix: bool) {
        let now = self.datapath.now();
        if let Some(mut agent) = self.sflow.agent.take_if(|_| !has_sflow) {
            agent.flush(now);
        }
        if let Some(mut exporter) = self.sflow.exporter.take_if(|_| !has_ipfix) {
            exporter.end_flows(now);
        }
    }

    /// Hands queued samples and dropped packets to the agents. Returns true if the limit of one round was reached.
    fn take_samples(&mut self) -> bool {
        if self.sflow.agent.is_none() && self.sflow.exporter.is_none() {
            return false;
        }
        let now = self.datapath.now();
        let mut len = 0;
        while len < SAMPLES_BATCH
            && let Some(sample) = self.datapath.next_sample()
        {
            if let Some(agent) = &mut self.sflow.agent {
                agent.take_sample(&sample, now);
            }
            if let Some(exporter) = &mut self.sflow.exporter {
                exporter.take_sample(&sample, now);
            }
            len += 1;
        }
        let mut discards = 0;
        while discards < SAMPLES_BATCH
            && let Some(packet) = self.datapath.next_discard()
        {
            if let Some(agent) = &mut self.sflow.agent {
                agent.take_discard(&packet, now);
            }
            discards += 1;
        }
        len.max(discards) == SAMPLES_BATCH
    }

    /// Hands queued samples, dropped packets and due counters to the agents, and sends datagrams. Returns true if
    /// more may be queued.
    pub(super) fn run_sflow(&mut self) -> bool {
        let is_busy = self.take_samples();
        let now = self.datapath.now();
        if let Some(exporter) = &mut self.sflow.exporter {
            exporter.run(now);
        }
        let Some(agent) = &mut self.sflow.agent else {
            return is_busy;
        };
        for port in agent.due(now) {
            if let Some(counters) = self.sflow_counters(port)
                && let Some(agent) = &mut self.sflow.agent
            {
                agent.take_counters(port, counters, now);
            }
        }
        if let Some(agent) = &mut self.sflow.agent {
            agent.flush_due(now);
        }
        is_busy
    }

    /// Returns the counters of a port. Resets of counters by an operator have no effect here, because
    /// collectors compute differences.
    fn sflow_counters(&self, number: PortNo) -> Option<CounterSample> {
        let status = self.ports.get(&number)?;
        let counted = self.counted(number);
        let device = self.datapath.device_stats(number).unwrap_or_default();
        // In sFlow, all counters but those of octets have 32 bits, and wrap.
        let counters = InterfaceCounters {
            interface: super::sflow_records::interface(number),
            speed: status
                .info
                .speed_mbps
                .map_or(0, |mbps| u64::from(mbps) * 1_000_000),
            is_admin_up: !status.config.has(PortConfig::DOWN),
            is_link_up: !status.state.has(PortState::LINK_DOWN),
            in_octets: counted.rx_bytes,
            in_packets: counted.rx_packets as u32,
            in_discards: (device.rx_missed + device.rx_no_buffer) as u32,
            in_errors: device.rx_errors as u32,
            out_octets: counted.tx_bytes,
            out_packets: counted.tx_packets as u32,
            out_discards: counted.tx_dropped as u32,
            out_errors: device.tx_errors as u32,
        };
        Some(CounterSample {
            sequence: 0,
            source: 0,
            counters: Some(counters),
            ethernet: Some(EthernetCounters {
                transmit_errors: device.tx_errors as u32,
                receive_errors: device.rx_errors as u32,
            }),
            openflow: Some(OpenFlowPort {
                dpid: self.config.datapath_id().0,
                number: number.raw(),
            }),
            name: Some(status.model.name.to_string()),
        })
    }

    /// Returns the collectors that cannot be reached.
    pub(crate) fn sflow_problems(&self) -> Vec<Problem> {
        let agents = self.sflow.agent.iter().flat_map(SflowAgent::problems);
        let exporters = self.sflow.exporter.iter().flat_map(Exporter::problems);
        agents.chain(exporters).collect()
    }

    /// Returns the state of IPFIX; `None` if it is not configured.
    pub fn ipfix_status(&self) -> Option<IpfixStatus> {
        self.sflow.exporter.as_ref().map(Exporter::status)
    }

    /// Returns the state of sFlow; `None` if it is not configured.
    pub fn sflow_status(&self) -> Option<SflowStatus> {
        self.sflow.agent.as_ref().map(SflowAgent::status)
    }
}
