// What an engine has found, by slot: wide fields are written when their header is walked, the scalars at the end of the walk.
//
// Guarantee: a slot keeps its fields until they are written again; a read sees all of a slot at once.

`default_nettype none

module parser_fields #(
    parameter TAIL = 319
) (
    input  wire            clk,
    input  wire [1:0]      write_slot,
    input  wire            write_ethernet,
    input  wire [95:0]     new_ethernet,     // destination, source
    input  wire            write_source,
    input  wire [127:0]    new_source,       // of the OpenFlow view
    input  wire            write_destination,
    input  wire [127:0]    new_destination,
    input  wire            write_one,
    input  wire [127:0]    new_one,          // both ends of the flow view
    input  wire            write_two,
    input  wire [127:0]    new_two,
    input  wire            write_tail,
    input  wire [TAIL-1:0] new_tail,
    input  wire [1:0]      read_slot,
    output wire [95:0]     ethernet,
    output wire [255:0]    addresses,
    output wire [255:0]    ends,
    output wire [TAIL-1:0] tail
);
    mem_lut #(.WIDTH(96), .DEPTH_LOG2(2)) ethernets (
        .clk(clk), .write(write_ethernet), .write_at(write_slot), .write_data(new_ethernet),
        .read_at(read_slot), .read_data(ethernet)
    );
    mem_lut #(.WIDTH(128), .DEPTH_LOG2(2)) sources (
        .clk(clk), .write(write_source), .write_at(write_slot), .write_data(new_source),
        .read_at(read_slot), .read_data(addresses[255:128])
    );
    mem_lut #(.WIDTH(128), .DEPTH_LOG2(2)) destinations (
        .clk(clk), .write(write_destination), .write_at(write_slot), .write_data(new_destination),
        .read_at(read_slot), .read_data(addresses[127:0])
    );
    mem_lut #(.WIDTH(128), .DEPTH_LOG2(2)) ones (
        .clk(clk), .write(write_one), .write_at(write_slot), .write_data(new_one),
        .read_at(read_slot), .read_data(ends[255:128])
    );
    mem_lut #(.WIDTH(128), .DEPTH_LOG2(2)) twos (
        .clk(clk), .write(write_two), .write_at(write_slot), .write_data(new_two),
        .read_at(read_slot), .read_data(ends[127:0])
    );
    mem_lut #(.WIDTH(TAIL), .DEPTH_LOG2(2)) tails (
        .clk(clk), .write(write_tail), .write_at(write_slot), .write_data(new_tail),
        .read_at(read_slot), .read_data(tail)
    );
endmodule
`default_nettype wire
