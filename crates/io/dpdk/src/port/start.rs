//! Starting an attached device.

use millrace_dpdk_sys as sys;

use super::attach::{Device, MarkDelivery};
use super::driver_resources::settle;
use super::info::{FRAME_OVERHEAD, driver_name, max_mtu};
use super::{PortConfig, StartError};
use crate::eal::log;
use crate::{Errno, Mempool};

/// Drivers that send packets of several segments without reporting this capability: `net_null` frees them,
/// `net_pcap` writes them to its file.
const CHAINING_DRIVERS: [&str; 2] = ["net_null", "net_pcap"];

/// Drivers that set up a queue only once. Their devices are detached and attached again before a second start.
const START_ONCE_DRIVERS: [&str; 1] = ["net_af_xdp"];

/// Starts the device. Returns true if its transmit queues accept packets of several segments.
pub(super) fn start(device: &mut Device, config: &PortConfig, pool: Mempool) -> Result<bool, StartError> {
    let port = device.name().to_owned();
    let refused = |(step, errno), warnings: &[String]| StartError::Device {
        port: port.clone(),
        step,
        errno,
        detail: if warnings.is_empty() {
            errno.to_string()
        } else {
            warnings.join("; ")
        },
    };
    if !device.is_attached() {
        device.attach_again()?;
    }
    let info = device
        .info()
        .map_err(|errno| refused(("describe it", errno), &[]))?;
    let driver = driver_name(&info);
    check(&info, config, &port)?;
    let only_once = START_ONCE_DRIVERS.contains(&driver.as_str());
    if only_once && device.was_configured() {
        device.attach_again()?;
    }
    if only_once && !pool.is_contiguous() {
        return Err(StartError::PoolNotContiguous { port });
    }
    if only_once {
        settle();
    }
    let id = device.id().0;
    // Some drivers choose a receive function without marks unless they are asked before they are configured.
    // SAFETY: the port is attached and stopped, and the caller excludes other users.
    let delivery = MarkDelivery::of_code(unsafe { sys::shim_port_negotiate_marks(id) });
    device.set_mark_delivery(delivery);
    let start = || log::capture(|| configure(id, &info, config, pool));
    let (outcome, warnings) = if only_once {
        device.note_sockets(start)
    } else {
        start()
    };
    device.set_configured(outcome.is_ok());
    outcome.map_err(|error| refused(error, &warnings))?;
    Ok(info.tx_multi_segs != 0 || CHAINING_DRIVERS.contains(&driver.as_str()))
}

fn check(info: &sys::shim_port_info, config: &PortConfig, port: &str) -> Result<(), StartError> {
    let queues = [
        ("receive", config.rx_queues, info.max_rx_queues),
        ("transmit", config.tx_queues, info.max_tx_queues),
    ];
    for (direction, asked, max) in queues {
        if asked == 0 || asked > max {
            return Err(StartError::Queues {
                port: port.to_owned(),
                direction,
                asked,
                max,
            });
        }
    }
    let max = max_mtu(info);
    match config.mtu {
        Some(asked) if !(info.min_mtu..=max).contains(&asked) => Err(StartError::Mtu {
            port: port.to_owned(),
            asked,
            min: info.min_mtu,
            max,
        }),
        _ => Ok(()),
    }
}

/// Configures and starts a stopped device. No other thread may use the device during the call.
fn configure(
    id: u16,
    info: &sys::shim_port_info,
    config: &PortConfig,
    pool: Mempool,
) -> Result<(), (&'static str, Errno)> {
    let step = |step: &'static str, code: i32| Errno::check(code).map(|_| ()).map_err(|errno| (step, errno));
    let optional = |name: &'static str, code: i32| match step(name, code) {
        Err((_, errno)) if errno.is(nix::errno::Errno::ENOTSUP) => Ok(()),
        outcome => outcome,
    };
    let frame = usize::from(config.mtu.unwrap_or(1500)) + usize::from(FRAME_OVERHEAD);
    let wanted = sys::shim_port_conf {
        rx_queues: config.rx_queues,
        tx_queues: config.tx_queues,
        mtu: config.mtu.unwrap_or(0),
        scatter: u8::from(frame > pool.segment_size()),
        multi_segs: 1,
        rss: u8::from(info.rss_types != 0),
        rss_word: config.rss_word,
    };
    // SAFETY: the port is attached and stopped, and the caller excludes other users; the same holds for each call
    // below.
    step("configure", unsafe {
        sys::shim_port_configure(id, &raw const wanted)
    })?;
    if let Some(mtu) = config.mtu {
        // SAFETY: as above.
        optional("set the MTU", unsafe { sys::rte_eth_dev_set_mtu(id, mtu) })?;
    }
    let (mut rx_len, mut tx_len) = (config.rx_descriptors, config.tx_descriptors);
    // SAFETY: as above; both numbers are writable.
    let code = unsafe { sys::rte_eth_dev_adjust_nb_rx_tx_desc(id, &raw mut rx_len, &raw mut tx_len) };
    step("choose descriptors", code)?;
    // SAFETY: as above.
    let socket = unsafe { sys::rte_eth_dev_socket_id(id) }.cast_unsigned();
    let defaults = std::ptr::null();
    for queue in 0..config.rx_queues {
        // SAFETY: as above; the pool lives as long as the process.
        let code = unsafe { sys::rte_eth_rx_queue_setup(id, queue, rx_len, socket, defaults, pool.as_raw()) };
        step("set up a receive queue", code)?;
    }
    for queue in 0..config.tx_queues {
        // SAFETY: as above.
        let code = unsafe { sys::rte_eth_tx_queue_setup(id, queue, tx_len, socket, std::ptr::null()) };
        step("set up a transmit queue", code)?;
    }
    if config.promiscuous {
        // SAFETY: as above.
        optional("promiscuous mode", unsafe { sys::rte_eth_promiscuous_enable(id) })?;
    }
    // SAFETY: as above, and all queues are set up.
    step("start", unsafe { sys::rte_eth_dev_start(id) })
}
