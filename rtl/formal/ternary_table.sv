// The ternary table, with four rules over 32 bits. The properties are beside the memories that they speak of, in
// src/ternary_table.sv; all inputs are free.
module proof (
    input wire clk,
    input wire start, write, clear,
    input wire [1:0] write_rule,
    input wire [31:0] key, write_value, write_mask,
    input wire [42:0] write_action
);
    reg reset = 1'b1;
    always @(posedge clk) reset <= 1'b0;
    wire busy, done, hit;
    wire [42:0] action;
    ternary_table #(.RULES_LOG2(2), .FOURS(2)) table_under_proof (
        .clk(clk), .reset(reset), .start(start && !reset), .key(key), .done(done), .hit(hit), .action(action),
        .write(write && !reset), .clear(clear && !reset), .write_rule(write_rule), .write_value(write_value),
        .write_mask(write_mask), .write_action(write_action), .busy(busy)
    );
endmodule
