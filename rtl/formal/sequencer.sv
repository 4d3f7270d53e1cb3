// The sequencer with any commands. The properties are in src/sequencer.sv.
module proof (
    input wire clk,
    input wire go, completion_ready, write_rule_busy, fence_room, fence_sent,
    input wire [511:0] command,
    input wire [3:0] port,
    input wire [63:0] count_value
);
    reg reset = 1'b1;
    always @(posedge clk) reset <= 1'b0;
    wire ready;
    sequencer sequencer_under_proof (
        .clk(clk), .reset(reset), .ready(ready), .go(go && ready), .done(), .command(command), .completion_valid(),
        .completion_ready(completion_ready), .completion(), .generation(), .port(port), .port_mask(), .port_form(),
        .write_row(), .write_row_at(), .write_row_data(), .write_rule(), .clear_rule(), .write_rule_at(),
        .write_rule_value(), .write_rule_mask(), .write_rule_action(), .write_rule_busy(write_rule_busy),
        .write_bucket(), .write_bucket_at(), .write_bucket_queue(), .commit(), .clear_queues(), .clear_queue(),
        .fence_check(), .fence_send(), .fence_queue(), .fence_number(), .fence_room(fence_room),
        .fence_sent(fence_sent), .count_read(), .count_counter(), .count_queue(), .count_value(count_value)
    );
endmodule
