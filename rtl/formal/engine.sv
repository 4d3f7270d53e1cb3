// A parser engine with any bytes. The properties are in src/parser_engine.sv.
module proof (
    input wire clk,
    input wire load, load_last, load_longer, release_slot,
    input wire [1:0] load_row, result_slot,
    input wire [255:0] load_data,
    input wire [7:0] load_size,
    input wire [67:0] tpids,
    input wire [151:0] tunnels
);
    reg reset = 1'b1;
    always @(posedge clk) reset <= 1'b0;
    parser_engine engine_under_proof (
        .clk(clk), .reset(reset), .tpids(tpids), .tunnels(tunnels), .free(), .idle(), .load(load && !reset), .load_row(load_row),
        .load_data(load_data), .load_last(load_last), .load_size(load_size), .load_longer(load_longer), .load_slot(),
        .done(), .release_slot(release_slot && !reset), .result_slot(result_slot), .ethernet(), .addresses(), .ends(), .tail()
    );
endmodule
