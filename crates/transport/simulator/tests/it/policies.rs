//! The policies other than `fair`: `background` uses the rate that others leave, and `fixed` holds its rate
//! until the breaker trips.

use crate::budget;
use crate::paths::{at_least, at_most, link, one_flow, return_path};
use millrace_transport::congestion::Controller;
use millrace_transport::congestion::background::Background;
use millrace_transport::congestion::bbr::{Bbr, BbrConfig};
use millrace_transport::congestion::fixed::Fixed;
use millrace_transport_simulator::{FlowSpec, PACKET, Simulation, ideal_rate, rivals};
use millrace_types::{BitRate, Duration, Time};

fn background() -> Box<dyn Controller> {
    Box::new(Background::new(PACKET))
}

#[test]
fn background_fills_an_idle_path_and_keeps_its_queue_below_its_target() {
    let forward = link(&[("rate", "50Mbps"), ("delay", "20ms"), ("queue", "400ms")]);
    let mut simulation = one_flow(background(), &forward, return_path("20ms"));
    simulation.measure_queues_from(Time::from_secs(20));
    let (from, to) = (Time::from_secs(20), Time::from_secs(60));
    simulation.run_until(to);
    simulation.check().unwrap();
    budget::spend(simulation.packets());
    let report = simulation.report(0);
    at_least(
        "background alone: arrived / possible",
        report.arrived.rate(from, to) / ideal_rate(50e6),
        0.8,
    );
    let queue = report.queue.quantile(0.95).as_secs_f64() * 1_000.0;
    at_most("background alone: queue in ms, p95 (target 60)", queue, 70.0);
}

#[test]
fn background_leaves_the_path_to_cubic() {
    let mut simulation = Simulation::new(5);
    let path = link(&[("rate", "50Mbps"), ("delay", "20ms"), ("queue", "200ms")]);
    let link = simulation.add_link(&path).unwrap();
    let controllers: [Box<dyn Controller>; 2] = [background(), Box::new(rivals::Cubic::new(PACKET))];
    for (index, controller) in controllers.into_iter().enumerate() {
        simulation
            .add_flow(FlowSpec {
                controller,
                start: Time::from_secs(5 * index as u64),
                link,
                return_path: return_path("20ms"),
                bytes: None,
            })
            .unwrap();
    }
    let (from, to) = (Time::from_secs(20), Time::from_secs(60));
    simulation.run_until(to);
    simulation.check().unwrap();
    budget::spend(simulation.packets());
    let rate = |flow| simulation.report(flow).arrived.rate(from, to);
    at_most(
        "background beside CUBIC: its share",
        rate(0) / (rate(0) + rate(1)),
        0.1,
    );
}

#[test]
fn background_fills_a_path_that_became_longer_when_ten_minutes_have_passed() {
    let settings = |delay| link(&[("rate", "10Mbps"), ("delay", delay), ("queue", "400ms")]);
    let mut simulation = one_flow(background(), &settings("20ms"), return_path("20ms"));
    simulation.reconfigure_at(Time::from_secs(20), 0, settings("140ms").path);
    let (from, to) = (Time::from_secs(620), Time::from_secs(660));
    simulation.run_until(to);
    simulation.check().unwrap();
    budget::spend(simulation.packets());
    at_least(
        "background, ten minutes after 120 ms more: arrived / possible",
        simulation.report(0).arrived.rate(from, to) / ideal_rate(10e6),
        0.7,
    );
}

#[test]
fn a_fixed_rate_is_held_under_loss_and_given_up_when_the_path_is_cut() {
    let rate = BitRate::from_kbps(40_000);
    let settings = [("rate", "100Mbps"), ("delay", "50ms"), ("loss", "10%")];
    let mut simulation = one_flow(
        Box::new(Fixed::new(rate, PACKET)),
        &link(&settings),
        return_path("50ms"),
    );
    let cut = Time::from_secs(12);
    let path = link(&[("rate", "1Mbps"), ("delay", "50ms"), ("queue", "100ms")]).path;
    simulation.reconfigure_at(cut, 0, path);
    simulation.run_until(Time::from_secs(32));
    simulation.check().unwrap();
    budget::spend(simulation.packets());
    let report = simulation.report(0);
    let sent = report.sent.rate(Time::from_secs(2), cut);
    at_least("fixed, 10 % loss: sent / asked", sent / 40e6, 0.99);
    at_most("fixed, 10 % loss: sent / asked", sent / 40e6, 1.01);
    let from = cut + Duration::from_secs(2);
    let flooded = report.sent.rate(from, from + Duration::from_secs(18)) / 40e6;
    at_most("fixed, path cut to a fortieth: sent / asked", flooded, 0.25);
    assert!(report.sender.breaks >= 1);
}

#[test]
fn a_flow_whose_breaker_tripped_starts_with_ten_packets() {
    let config = BbrConfig {
        delivered_before: 1 << 20,
        ..BbrConfig::new(PACKET, 1)
    };
    let mut controller = Bbr::new(config, Time::ZERO);
    assert_eq!(controller.window(), 1 << 20);
    controller.on_breaker(Time::from_secs(1));
    assert_eq!(controller.window(), 10 * PACKET);
}

#[test]
fn a_flow_starts_with_the_window_that_the_control_channel_had_before_it() {
    let forward = link(&[("rate", "350Mbps"), ("delay", "50ms"), ("loss", "0.1%")]);
    let wanted = 0.5 * ideal_rate(350e6);
    let [cold, warm] = [0, 150_000].map(|delivered_before| {
        let config = BbrConfig {
            delivered_before,
            ..BbrConfig::new(PACKET, 1)
        };
        let controller = Box::new(Bbr::new(config, Time::ZERO));
        let mut simulation = one_flow(controller, &forward, return_path("50ms"));
        simulation.run_until(Time::from_secs(4));
        simulation.check().unwrap();
        budget::spend(simulation.packets());
        let reached = simulation.report(0).arrived.reaches(wanted, 5);
        reached.unwrap().since(Time::ZERO).as_secs_f64() / 0.1
    });
    at_least(
        "round trips until half of the rate that 150 kB save",
        cold - warm,
        2.0,
    );
}
