//! The interface that `--via` names.

use millrace_courier::io::DatagramIo;
use millrace_courier::io::via::{Device, Via};

use crate::error::CommandError;

/// Opens a UDP port on a DPDK device with these devargs; `None` in a program without DPDK.
pub type OpenDpdk<'a> = Option<&'a dyn Fn(&Via, &str, u16) -> Result<Box<dyn DatagramIo>, String>>;

/// Opens a UDP port on the interface.
pub(crate) fn open(
    via: &Via,
    port: u16,
    open_dpdk: OpenDpdk<'_>,
) -> Result<Box<dyn DatagramIo>, CommandError> {
    let failed = |device: &str, reason: String| CommandError::Via {
        device: device.to_owned(),
        reason,
    };
    match (&via.device, open_dpdk) {
        (Device::Memif { path, .. }, _) => match via.open_memif(port) {
            Ok(Some(io)) => Ok(io),
            Ok(None) => Err(failed("memif", "no memif".to_owned())),
            Err(error) => Err(failed(&format!("memif:{}", path.display()), error.to_string())),
        },
        (Device::Dpdk(devargs), Some(open)) => {
            open(via, devargs, port).map_err(|reason| failed(devargs, reason))
        }
        (Device::Dpdk(devargs), None) => Err(CommandError::NoDpdk {
            devargs: devargs.clone(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_of_dpdk_needs_the_program_that_has_dpdk() {
        let via: Via = "net_af_packet0,iface=eth1,address=192.0.2.1/24".parse().unwrap();
        let error = open(&via, 1, None).err().unwrap().to_string();
        assert!(
            error.contains("millrace-courier") && error.contains("net_af_packet0,iface=eth1"),
            "{error}"
        );
        let refuse = |_: &Via, devargs: &str, port: u16| Err(format!("{devargs} at port {port}"));
        let error = open(&via, 7, Some(&refuse)).err().unwrap().to_string();
        assert!(error.contains("iface=eth1 at port 7"), "{error}");
    }
}
