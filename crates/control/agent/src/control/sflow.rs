//! sFlow of a bridge: gives the sampling plan of the configuration to the workers, and the samples of the
//! workers to the agent.

use std::collections::BTreeMap;

use millrace_datapath::SamplingPlan;
use millrace_datapath::io::Backend;
use millrace_pipeline::{PortConfig, PortState};
use millrace_sflow::{CounterSample, EthernetCounters, InterfaceCounters, OpenFlowPort};
use millrace_types::PortNo;
use millrace_types::split_mix;

use super::bridge::BridgeControl;
use super::sflow_agent::{SflowAgent, SflowStatus};

/// The maximum number of samples, and of dropped packets, that one round handles.
const SAMPLES_BATCH: usize = 4096;

impl<B: Backend> BridgeControl<B> {
    /// Updates the agent and the workers' samplers for the configuration and the running ports, and tries sockets
    /// again that could not be opened. During the change, every packet is counted once.
    pub(super) fn configure_sflow(&mut self) {
        let now = self.datapath.now();
        let wanted = self.config.sflow.clone();
        let rates: BTreeMap<PortNo, u32> = match &wanted {
            None => BTreeMap::new(),
            Some(sflow) => {
                let rate = |(number, status): (&PortNo, &crate::port::PortStatus)| {
                    let own = status.model.sampling_rate;
                    (*number, own.unwrap_or(sflow.sampling_rate).get())
                };
                self.ports.iter().map(rate).collect()
            }
        };
        let plan = wanted.as_ref().map(|sflow| SamplingPlan {
            header_size: sflow.header_size.get().into(),
            rates: rates
                .iter()
                .filter(|(_, rate)| **rate != 0)
                .map(|(port, rate)| (*port, *rate))
                .collect(),
            discards_per_second: sflow.discard_limit.get(),
            seed: 0,
        });
        match (&mut self.sflow.agent, wanted) {
            (Some(agent), Some(wanted)) if *agent.config() != wanted => agent.configure(wanted, now),
            (Some(agent), Some(_)) => agent.open_collectors(),
            (agent @ None, Some(wanted)) => *agent = Some(SflowAgent::new(wanted)),
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
            if let Some(agent) = &mut self.sflow.agent {
                agent.set_ports(&rates);
            }
            return;
        }
        // Each plan gets a new random seed.
        let plan = plan.map(|plan| SamplingPlan {
            seed: split_mix::next(&mut self.sflow_seed),
            ..plan
        });
        let remainders = self.datapath.set_sampling(plan.as_ref());
        // Samples of the former plan reach the agent before its ports change.
        self.take_samples();
        if let Some(agent) = &mut self.sflow.agent {
            remainders
                .iter()
                .for_each(|remainder| agent.count_remainder(remainder));
            agent.set_ports(&rates);
            if plan.is_none() {
                agent.flush(now);
            }
        }
        if plan.is_none() {
            self.sflow.agent = None;
        }
        self.sflow.plan = plan;
    }

    /// Hands queued samples and dropped packets to the agent. Returns true if the limit of one round was reached.
    fn take_samples(&mut self) -> bool {
        let Some(agent) = &mut self.sflow.agent else {
            return false;
        };
        let now = self.datapath.now();
        let mut len = 0;
        while len < SAMPLES_BATCH
            && let Some(sample) = self.datapath.next_sample()
        {
            agent.take_sample(&sample, now);
            len += 1;
        }
        let mut discards = 0;
        while discards < SAMPLES_BATCH
            && let Some(packet) = self.datapath.next_discard()
        {
            agent.take_discard(&packet, now);
            discards += 1;
        }
        len.max(discards) == SAMPLES_BATCH
    }

    /// Hands queued samples, dropped packets and due counters to the agent, and sends datagrams. Returns true if
    /// more may be queued.
    pub(super) fn run_sflow(&mut self) -> bool {
        let is_busy = self.take_samples();
        let now = self.datapath.now();
        let Some(agent) = &mut self.sflow.agent else {
            return false;
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

    /// Returns the collectors that cannot be reached, each with the reason and the next step.
    pub(crate) fn sflow_problems(&self) -> Vec<(String, String)> {
        let agent = self.sflow.agent.as_ref();
        agent.map(|agent| agent.problems().collect()).unwrap_or_default()
    }

    /// Returns the state of sFlow; `None` if it is not configured.
    pub fn sflow_status(&self) -> Option<SflowStatus> {
        self.sflow.agent.as_ref().map(SflowAgent::status)
    }
}
