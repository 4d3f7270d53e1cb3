//! The gates of docs/gates.md in virtual time: each holds.

use crate::budget;
use millrace_transport_simulator::rows::{Part, Size};

fn every_gate_holds(part: Part) {
    let mut missed = Vec::new();
    part.run(Size::Short, &mut |row| {
        budget::spend(row.packets);
        println!(
            "{:76} {:?}  reached {:.3} {}",
            row.case, row.gate, row.reached, row.unit
        );
        if !row.met() {
            missed.push(format!("{}: {:.4}, gate {:?}", row.case, row.reached, row.gate));
        }
    })
    .unwrap();
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
fn t1_random_loss_bursts_and_jitter_cost_what_they_take_and_little_more() {
    every_gate_holds(Part::Goodput);
}

#[test]
fn t2_on_a_lossy_path_cubic_and_reno_starve_and_bbr_version_1_is_matched() {
    every_gate_holds(Part::Rivals);
}

#[test]
fn t4_ten_receivers_finish_together_and_share_seals() {
    every_gate_holds(Part::Group);
}

#[test]
fn t5_a_slow_a_stopped_and_a_late_receiver_slow_nobody() {
    every_gate_holds(Part::Stragglers);
}

#[test]
fn t6_feedback_takes_a_thousandth_of_a_clean_path_and_a_two_hundredth_of_a_lossy_one() {
    every_gate_holds(Part::Feedback);
}

#[test]
fn t7_a_cold_start_doubles_each_round_and_a_hint_takes_five_round_trips() {
    every_gate_holds(Part::Ramp);
}

#[test]
fn t8_flows_share_alike() {
    every_gate_holds(Part::Sharing);
}

#[test]
fn t8_one_flow_queues_no_more_than_half_a_bdp_in_a_buffer_of_four() {
    every_gate_holds(Part::Queue);
}

#[test]
fn t8_cubic_loses_no_more_to_our_flow_than_to_bbr_version_1() {
    every_gate_holds(Part::Harm);
}

#[test]
fn t9_policers_random_loss_and_cut_paths_are_told_apart() {
    every_gate_holds(Part::Hostile);
}

#[test]
fn t9_a_path_that_changes_is_filled_again_within_a_second_and_heavy_loss_leaves_something() {
    every_gate_holds(Part::Changing);
}
