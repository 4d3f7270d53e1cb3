// The exclusive or of both halves of a 64 x 64 bit product: `mix128` of FlowHash, the only multiplication of the design.
//
// One product a cycle; `out` belongs to the operands of LATENCY cycles before. 16 products of 16 x 16 bits fit the
// multipliers of ECP5 (MULT18X18D) and UltraScale+ (DSP48E2), and leave one addition between two registers:
//
//   one, two -> limbs -> 16 products -> 4 rows of 80 bits -> 2 sums of 96 -> 1 sum of 128 -> out
//               (1)       (2)            (3)                  (4)            (5)

`default_nettype none

module mixer (
    input  wire        clk,
    input  wire [63:0] one,
    input  wire [63:0] two,
    output wire [63:0] out
);
    localparam LATENCY = 5;
    reg [63:0] a, b;
    reg [16*32-1:0] products;
    reg [4*80-1:0] rows;
    reg [95:0] low, high;
    reg [127:0] sum;
    integer i, j;
    always @(posedge clk) begin
        a <= one;
        b <= two;
        for (i = 0; i < 4; i = i + 1) begin
            for (j = 0; j < 4; j = j + 1) products[32 * (i * 4 + j) +: 32] <= a[16 * i +: 16] * b[16 * j +: 16];
            rows[80 * i +: 80] <= {16'd0, products[32 * (i * 4 + 2) +: 32], products[32 * (i * 4) +: 32]}
                + {products[32 * (i * 4 + 3) +: 32], products[32 * (i * 4 + 1) +: 32], 16'd0};
        end
        low <= {16'd0, rows[79:0]} + {rows[159:80], 16'd0};
        high <= {16'd0, rows[239:160]} + {rows[319:240], 16'd0};
        sum <= {32'd0, low} + {high, 32'd0};
    end
    assign out = sum[63:0] ^ sum[127:64];
endmodule
`default_nettype wire
