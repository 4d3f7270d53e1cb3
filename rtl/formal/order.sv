// The parser around its engines: results leave in the order of arrival, and none passes a command. An engine is anything that
// keeps its slots apart and takes any time for each; frames are numbered.
module parser_engine #(
    parameter TAIL = 319
) (
    input wire clk, reset,
    input wire [67:0] tpids,
    input wire [151:0] tunnels,
    output wire free, idle,
    input wire load,
    input wire [1:0] load_row,
    input wire [255:0] load_data,
    input wire load_last,
    input wire [7:0] load_size,
    input wire load_longer,
    output wire [1:0] load_slot,
    output wire [3:0] done,
    input wire release_slot,
    input wire [1:0] result_slot,
    output wire [95:0] ethernet,
    output wire [255:0] addresses, ends,
    output wire [TAIL-1:0] tail
);
    (* anyseq *) wire [1:0] finish;
    reg [1:0] busy, finished;
    reg at;
    reg [3:0] numbers;
    assign load_slot = {1'b0, at};
    assign free = !busy[at];
    assign idle = free;
    assign done = {2'b0, finished};
    assign tail = numbers[2 * result_slot[0] +: 2];
    assign ethernet = 0; assign addresses = 0; assign ends = 0;
    always @(posedge clk) begin
        finished <= (finished | (busy & finish)) & ~(release_slot ? 2'b01 << result_slot[0] : 2'b00);
        if (release_slot) busy[result_slot[0]] <= 1'b0;
        if (load && load_last) begin
            busy[at] <= 1'b1;
            numbers[2 * at +: 2] <= load_data[129:128];
            at <= !at;
        end
        if (reset) begin
            busy <= 0; finished <= 0; at <= 0;
        end
    end
endmodule

module proof (
    input wire clk,
    input wire head_valid, marker, end_valid, take, command_end
);
    reg reset = 1'b1;
    always @(posedge clk) reset <= 1'b0;
    reg [1:0] sent = 0, expected = 0;
    wire head_pop, result_valid, command_next;
    wire [318:0] tail;
    reg held = 0, held_marker;
    wire valid_now = (held || head_valid) && !reset, marker_now = held ? held_marker : marker;
    wire result_take = take && result_valid && !reset, command_done = command_end && command_next && !reset;
    parser #(.WIDTH(128), .ENGINES(2), .ORDER_LOG2(2)) parser_under_proof (
        .clk(clk), .reset(reset), .tpids(68'd0), .tunnels(152'd0), .head_valid(valid_now), .head_data({126'd0, sent}),
        .head_first(1'b1), .head_last(1'b1), .head_size(8'd16), .head_longer(1'b0), .head_port(4'd0),
        .head_marker(marker_now), .head_pop(head_pop), .end_valid(end_valid), .end_pop(), .result_valid(result_valid),
        .result_ethernet(), .result_addresses(), .result_ends(), .result_tail(tail), .result_port(),
        .result_take(result_take), .command_next(command_next), .command_done(command_done)
    );
    wire gives = head_pop && !marker_now;
    always @(posedge clk) begin
        held <= valid_now && !head_pop;
        held_marker <= marker_now;
        if (gives) sent <= sent + 1'b1;
        if (result_take) expected <= expected + 1'b1;
    end
    always @* if (!reset) begin
        if (result_valid) assert (tail[1:0] == expected);
        assert (!(result_valid && command_next));
    end
endmodule
