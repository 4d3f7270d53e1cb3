//! The wire side: an interface, by the devices of the switch.

use anyhow::{Context as _, Result, bail};
use millrace_datapath::io::{
    Backend as _, Burst, DeviceOptions, DeviceSpec, HeapBackend, Opened, SocketAccess, VnicKind, VnicSpec,
};
use millrace_model::Device;
use millrace_wire::{Frame, Packet as _};

/// An open interface.
pub(crate) struct Wire {
    backend: HeapBackend,
    opened: Opened<Frame>,
    burst: Burst<Frame>,
    /// Frames of the driver that the interface has yet to take.
    waiting: Burst<Frame>,
    linear: Vec<u8>,
}

/// Returns the device that a text names.
fn spec_of(text: &str) -> Result<DeviceSpec> {
    let device: Device = text.parse().with_context(|| format!("--wire {text}"))?;
    Ok(match &device {
        Device::Kernel(name) => DeviceSpec::Kernel(name.to_string()),
        Device::Tap(name) => DeviceSpec::Tap(name.to_string()),
        Device::Pcap(files) => DeviceSpec::Pcap {
            rx: files.rx().map(std::path::Path::to_owned),
            tx: files.tx().map(std::path::Path::to_owned),
            repeat: files.repeat(),
        },
        Device::Vnic(vnic) if vnic.kind() == millrace_model::VnicKind::Memif => DeviceSpec::Vnic(VnicSpec {
            kind: VnicKind::Memif { id: vnic.id() },
            path: vnic.path().to_owned(),
            access: (vnic.role() == millrace_model::VnicRole::Server).then(|| SocketAccess {
                owner: vnic.owner().map(str::to_owned),
                group: vnic.group().map(str::to_owned),
                mode: vnic.mode(),
            }),
        }),
        _ => bail!("--wire {text}: expected kernel:INTERFACE, tap:NAME, pcap:rx=FILE,tx=FILE or memif:PATH"),
    })
}

impl Wire {
    pub(crate) fn open(text: &str) -> Result<Wire> {
        let backend = HeapBackend::new();
        let opened = backend.open(&spec_of(text)?, DeviceOptions::PLAIN)?;
        Ok(Wire {
            backend,
            opened,
            burst: Burst::new(),
            waiting: Burst::new(),
            linear: Vec::new(),
        })
    }

    /// Calls `take` with each frame of a burst. Returns their number.
    pub(crate) fn receive(&mut self, mut take: impl FnMut(&[u8])) -> usize {
        if !self.opened.device.info().link_up {
            return 0;
        }
        let Some(rx) = self.opened.rx.first_mut() else {
            return 0;
        };
        rx.rx_burst(&mut self.burst);
        let received = self.burst.len();
        for frame in self.burst.drain(..) {
            self.linear.clear();
            frame.copy_to(&mut self.linear, usize::MAX);
            take(&self.linear);
        }
        received
    }

    /// Sends the frames that `each` gives, unless earlier ones still wait. Returns the number of frames taken or sent.
    pub(crate) fn send(&mut self, each: impl FnOnce(&mut dyn FnMut(&[u8]))) -> usize {
        let mut taken = 0;
        if self.waiting.is_empty() {
            let (waiting, backend) = (&mut self.waiting, &self.backend);
            each(&mut |bytes| {
                taken += 1;
                // Without a free buffer the frame is lost, as on a wire.
                if let Some(frame) = backend.packet(bytes) {
                    let _more_than_asked_for = waiting.try_push(frame);
                }
            });
        }
        let before = self.waiting.len();
        if before == 0 {
            return taken;
        }
        if let Some(tx) = self.opened.tx.first_mut() {
            tx.tx_burst(&mut self.waiting);
            let left = self.waiting.len();
            if left != 0 {
                drop(self.waiting.drain(..tx.refused(left).min(left)));
            }
        }
        taken + before - self.waiting.len()
    }
}
