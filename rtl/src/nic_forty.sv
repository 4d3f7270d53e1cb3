// The configuration `forty`: 40 Gbit/s at 250 MHz, for an UltraScale+. See nic_core.sv for the ports.

`default_nettype none

module nic_forty (
    input  wire         clk,
    input  wire         reset,
    input  wire [31:0]  now,
    input  wire         register_write,
    input  wire [11:0]  register_offset,
    input  wire [31:0]  register_value,
    input  wire         register_read,
    output wire         register_done,
    output wire [31:0]  register_result,
    input  wire         rx_valid,
    input  wire [511:0] rx_data,
    input  wire         rx_last,
    input  wire [6:0]   rx_bytes,
    input  wire         rx_bad_fcs,
    input  wire [3:0]   rx_port,
    output wire         rx_room,
    output wire         rx_dropped,
    input  wire         command_valid,
    input  wire [511:0] command,
    output wire         command_accepted,
    output wire         command_ready,
    output wire         command_completion_valid,
    input  wire         command_completion_ready,
    output wire [127:0] command_completion,
    input  wire         post_valid,
    input  wire [4:0]   post_queue,
    input  wire [15:0]  post_buffer,
    input  wire         take_valid,
    input  wire [4:0]   take_queue,
    input  wire [15:0]  take_number,
    output wire         tx_valid,
    input  wire         tx_ready,
    output wire [511:0] tx_data,
    output wire         tx_last,
    output wire [4:0]   tx_queue,
    output wire [15:0]  tx_buffer,
    output wire         completion_valid,
    input  wire         completion_ready,
    output wire [4:0]   completion_queue,
    output wire [255:0] completion,
    output wire         dropped,
    output wire [2:0]   dropped_counter,
    output wire [4:0]   dropped_queue,
    output wire         ready,
    output wire         quiet
);
    nic_core #(
        .WIDTH(512), .ENGINES(5), .MIXERS(2), .PERIOD(4), .ROW_BITS(14), .RULES_LOG2(6), .BANKS_LOG2(3), .PORTS(4),
        .FRAMES_LOG2(9), .HEADS_LOG2(7)
    ) core (
        .clk(clk), .reset(reset), .now(now), .register_write(register_write), .register_offset(register_offset),
        .register_value(register_value), .register_read(register_read), .register_done(register_done),
        .register_result(register_result), .rx_valid(rx_valid), .rx_data(rx_data), .rx_last(rx_last),
        .rx_bytes(rx_bytes), .rx_bad_fcs(rx_bad_fcs), .rx_port(rx_port), .rx_room(rx_room), .rx_dropped(rx_dropped),
        .command_valid(command_valid), .command(command), .command_accepted(command_accepted),
        .command_ready(command_ready), .command_completion_valid(command_completion_valid),
        .command_completion_ready(command_completion_ready), .command_completion(command_completion),
        .post_valid(post_valid), .post_queue(post_queue), .post_buffer(post_buffer), .take_valid(take_valid),
        .take_queue(take_queue), .take_number(take_number), .tx_valid(tx_valid), .tx_ready(tx_ready),
        .tx_data(tx_data), .tx_last(tx_last), .tx_queue(tx_queue), .tx_buffer(tx_buffer),
        .completion_valid(completion_valid), .completion_ready(completion_ready), .completion_queue(completion_queue),
        .completion(completion), .dropped(dropped), .dropped_counter(dropped_counter), .dropped_queue(dropped_queue),
        .ready(ready), .quiet(quiet)
    );
endmodule
`default_nettype wire
