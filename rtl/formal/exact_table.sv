// The exact table, with keys of 16 bits and any contents. The properties are in src/exact_table.sv.
module proof (
    input wire clk,
    input wire start, enable,
    input wire [15:0] key,
    input wire [3:0] form,
    input wire write,
    input wire [2:0] write_at,
    input wire [79:0] write_row
);
    reg reset = 1'b1;
    always @(posedge clk) reset <= 1'b0;
    wire done, hit;
    wire [42:0] action;
    wire [2:0] parity_errors;
    exact_table #(.ROW_BITS(1), .GROUPS(1)) table_under_proof (
        .clk(clk), .reset(reset), .keys(512'd0), .start(start && !reset), .enable(enable), .key(key), .form(form), .done(done),
        .hit(hit), .action(action), .parity_errors(parity_errors), .write(write), .write_at(write_at), .write_row(write_row)
    );
endmodule
