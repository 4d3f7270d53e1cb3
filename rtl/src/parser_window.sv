// The first 128 bytes of SLOTS frames, and a read of 32 bytes at any even offset of one of them.
//
// 16 banks hold one halfword each of a row of 32 bytes. A read takes from each bank the row that its halfword is in, and
// rotates the banks so that the first byte is on the left:
//
//   bank     0   1   2 ...  15          slice at offset 2 (halfwords) of row 0:
//   row 0   h0  h1  h2 ... h15            h2 h3 ... h15 h16 h17
//   row 1  h16 h17 h18 ... h31                          (row 1)
//
// Guarantees: `slice` belongs to the `read_slot` and `read_at` of the cycle before. Bytes past the last row wrap to the
// first; the engine compares offsets with the length before it believes a byte.

`default_nettype none

module parser_window #(
    parameter SLOTS_LOG2 = 2
) (
    input  wire                  clk,
    input  wire                  write,
    input  wire [SLOTS_LOG2-1:0] write_slot,
    input  wire [1:0]            write_row,
    input  wire [255:0]          write_data,  // the first byte is on the left
    input  wire [SLOTS_LOG2-1:0] read_slot,
    input  wire [5:0]            read_at,     // halfwords
    output reg  [255:0]          slice
);
    wire [255:0] banks;
    genvar bank;
    generate
        for (bank = 0; bank < 16; bank = bank + 1) begin : g_bank
            wire next_row = read_at[3:0] > bank;
            wire [1:0] row = read_at[5:4] + {1'b0, next_row};
            mem_lut #(.WIDTH(16), .DEPTH_LOG2(SLOTS_LOG2 + 2)) halfwords (
                .clk(clk), .write(write), .write_at({write_slot, write_row}),
                .write_data(write_data[255 - 16 * bank -: 16]),
                .read_at({read_slot, row}), .read_data(banks[255 - 16 * bank -: 16])
            );
        end
    endgenerate
    wire [255:0] by8 = read_at[3] ? {banks[127:0], banks[255:128]} : banks;
    wire [255:0] by4 = read_at[2] ? {by8[191:0], by8[255:192]} : by8;
    wire [255:0] by2 = read_at[1] ? {by4[223:0], by4[255:224]} : by4;
    always @(posedge clk) slice <= read_at[0] ? {by2[239:0], by2[255:240]} : by2;
endmodule
`default_nettype wire
