// The flow hash: bit for bit `FlowHash` of the switch (docs/nic-interface.md, "The flow hash"), over the fields that the
// parser found. Both directions of a flow have one hash, and without the key nobody can prepare collisions.
//
// Five products a packet share MIXERS mixers (see mixer.sv). Packets start in cycles whose distance is a multiple of PERIOD:
//
//   cycle, 1 mixer   0   1        7   8        14             PERIOD 5
//   cycle, 2 mixers  0   0        6   6        13             PERIOD 4
//   product          v6(one) v6(two) end(one) end(two) finish
//   key              k2, k3       k0, k1       k4, k5
//
// Guarantees: `hash` is valid in cycle LATENCY after `start`, and until another packet's hash replaces it, at least PERIOD
// cycles later. The products of two packets never meet in a mixer, because their cycles differ modulo PERIOD. The user
// holds the fields of a packet from `start` for at least four cycles.

`default_nettype none

module flow_hash #(
    parameter MIXERS = 1,
    parameter PERIOD = 5
) (
    input  wire         clk,
    input  wire         reset,
    input  wire [383:0] keys,      // k0 in bits 63:0
    input  wire         start,
    input  wire         is_ipv6,
    input  wire [127:0] one,       // IPv6, or in its low 48 bits IPv4 or MAC
    input  wire [127:0] two,
    input  wire [15:0]  port_one,
    input  wire [15:0]  port_two,
    input  wire [15:0]  kind,      // IP protocol or EtherType
    input  wire [63:0]  network,
    output reg  [63:0]  hash
);
    localparam ENDS = MIXERS == 2 ? 6 : 7;
    localparam FINISH = MIXERS == 2 ? 13 : 14;
    localparam LATENCY = MIXERS == 2 ? 19 : 20;

    wire [63:0] k0 = keys[63:0], k1 = keys[127:64], k2 = keys[191:128];
    wire [63:0] k3 = keys[255:192], k4 = keys[319:256], k5 = keys[383:320];

    // A 1 walks with each packet; bit d is set in cycle d after `start`.
    reg [LATENCY-1:0] walk;
    wire [LATENCY-1:0] at = {walk[LATENCY-2:0], start};
    always @(posedge clk) walk <= reset ? {LATENCY{1'b0}} : at;

    // Fields of the packet: in cycle 0 from the inputs, later from these registers, which the next packet overwrites.
    reg [127:0] two_held;
    reg second_is_ipv6;
    reg [47:0] second_one, second_two;
    reg [31:0] second_ports;
    reg [63:0] v6_one, v6_two, end_one, ends;
    reg [63:0] network_1, network_2, network_3, kind_1, kind_2, kind_3;

    // kind * k3 modulo 2^64, in four products of 16 x 16 bits.
    reg [127:0] kind_products;
    reg [63:0] kind_low, kind_high;
    integer i;
    always @(posedge clk) begin
        for (i = 0; i < 4; i = i + 1) kind_products[32 * i +: 32] <= kind * k3[16 * i +: 16];
        kind_low <= {kind_products[95:64], kind_products[31:0]};
        kind_high <= {kind_products[111:96], kind_products[63:32], 16'd0};
    end

    wire [63:0] mixed_0, mixed_1;
    wire [63:0] v6_in_one = one[127:64] ^ k2, v6_in_one_low = one[63:0] ^ k3;
    wire [127:0] two_now = MIXERS == 2 ? two : two_held;
    wire [63:0] v6_in_two = two_now[127:64] ^ k2, v6_in_two_low = two_now[63:0] ^ k3;
    wire [47:0] from = second_is_ipv6 ? v6_one[63:16] : second_one;
    wire [47:0] to = second_is_ipv6 ? v6_two[63:16] : second_two;
    wire [63:0] end_in_one = {from, second_ports[31:16]} ^ k0;
    wire [63:0] end_in_two = {to, second_ports[15:0]} ^ k0;

    generate
        if (MIXERS == 2) begin : g_two
            reg [63:0] a0, b0, a1, b1;
            always @* begin
                a0 = end_in_one; b0 = k1;
                a1 = end_in_two; b1 = k1;
                if (start) begin
                    a0 = v6_in_one; b0 = v6_in_one_low;
                    a1 = v6_in_two; b1 = v6_in_two_low;
                end
                if (at[FINISH]) begin
                    a0 = ends ^ k4; b0 = network_3 ^ k5;
                end
            end
            mixer mixer_0 (.clk(clk), .one(a0), .two(b0), .out(mixed_0));
            mixer mixer_1 (.clk(clk), .one(a1), .two(b1), .out(mixed_1));
            always @(posedge clk) begin
                if (at[5]) begin
                    v6_one <= mixed_0;
                    v6_two <= mixed_1;
                end
                if (at[ENDS + 5]) ends <= (mixed_0 + mixed_1) ^ kind_3;
                if (at[FINISH + 5]) hash <= mixed_0;
            end
        end else begin : g_one
            reg [63:0] a0, b0;
            always @* begin
                a0 = end_in_two; b0 = k1;
                if (start) begin
                    a0 = v6_in_one; b0 = v6_in_one_low;
                end
                if (at[1]) begin
                    a0 = v6_in_two; b0 = v6_in_two_low;
                end
                if (at[ENDS]) a0 = end_in_one;
                if (at[FINISH]) begin
                    a0 = ends ^ k4; b0 = network_3 ^ k5;
                end
            end
            mixer mixer_0 (.clk(clk), .one(a0), .two(b0), .out(mixed_0));
            assign mixed_1 = 64'd0;
            always @(posedge clk) begin
                if (at[5]) v6_one <= mixed_0;
                if (at[6]) v6_two <= mixed_0;
                if (at[ENDS + 5]) end_one <= mixed_0;
                if (at[ENDS + 6]) ends <= (end_one + mixed_0) ^ kind_3;
                if (at[FINISH + 5]) hash <= mixed_0;
            end
        end
    endgenerate

    // The fields move one register on with each period of their packet: 0 to PERIOD-1 inputs, then second, third.
    always @(posedge clk) begin
        if (start) two_held <= two;
        if (at[3]) begin
            second_is_ipv6 <= is_ipv6;
            second_one <= one[47:0];
            second_two <= two[47:0];
            second_ports <= {port_one, port_two};
            network_1 <= network;
        end
        if (at[3]) kind_1 <= kind_low + kind_high;
        if (at[3 + PERIOD]) begin
            network_2 <= network_1;
            kind_2 <= kind_1;
        end
        if (at[3 + 2 * PERIOD - 1]) begin
            network_3 <= network_2;
            kind_3 <= kind_2;
        end
    end
endmodule
`default_nettype wire
