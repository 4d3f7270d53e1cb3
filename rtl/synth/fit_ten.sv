// Gives nic_ten few pins, so that it can be placed and routed by itself: inputs come from a shift register, outputs go through
// a register and an exclusive or. A shell would have these nets inside the device, too.

`default_nettype none

module fit_ten (
    input  wire clk,
    input  wire reset,
    input  wire in,
    output reg  out
);
    localparam INPUTS = 32 + 1 + 12 + 32 + 1 + 1 + 128 + 1 + 7 + 1 + 4 + 1 + 512 + 1 + 1 + 5 + 16 + 1 + 5 + 16 + 1 + 1;
    localparam OUTPUTS = 1 + 32 + 1 + 1 + 1 + 1 + 1 + 128 + 1 + 128 + 1 + 5 + 16 + 1 + 5 + 256 + 1 + 3 + 5 + 1 + 1;
    reg [INPUTS-1:0] inputs;
    wire [OUTPUTS-1:0] outputs;
    reg [639:0] captured;
    reg [39:0] folded;
    integer i;
    always @(posedge clk) begin
        inputs <= {inputs[INPUTS-2:0], in};
        captured <= {{(640 - OUTPUTS){1'b0}}, outputs};
        for (i = 0; i < 40; i = i + 1) folded[i] <= ^captured[16 * i +: 16];
        out <= ^folded;
    end
    wire [31:0] now, register_value;
    wire [11:0] register_offset;
    wire register_write, register_read, rx_valid, rx_last, rx_bad_fcs, command_valid, command_completion_ready, post_valid;
    wire take_valid, tx_ready, completion_ready;
    wire [127:0] rx_data;
    wire [6:0] rx_bytes;
    wire [3:0] rx_port;
    wire [511:0] command;
    wire [4:0] post_queue, take_queue;
    wire [15:0] post_buffer, take_number;
    assign {now, register_write, register_offset, register_value, register_read, rx_valid, rx_data, rx_last, rx_bytes,
            rx_bad_fcs, rx_port, command_valid, command, command_completion_ready, post_valid, post_queue, post_buffer,
            take_valid, take_queue, take_number, tx_ready, completion_ready} = inputs;
    wire register_done, rx_room, rx_dropped, command_accepted, command_ready, command_completion_valid, tx_valid, tx_last;
    wire completion_valid, dropped, ready, quiet;
    wire [31:0] register_result;
    wire [127:0] command_completion, tx_data;
    wire [4:0] tx_queue, completion_queue, dropped_queue;
    wire [15:0] tx_buffer;
    wire [255:0] completion;
    wire [2:0] dropped_counter;
    assign outputs = {register_done, register_result, rx_room, rx_dropped, command_accepted, command_ready,
                      command_completion_valid, command_completion, tx_valid, tx_data, tx_last, tx_queue, tx_buffer,
                      completion_valid, completion_queue, completion, dropped, dropped_counter, dropped_queue, ready, quiet};
    nic_ten nic (
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
