// The exact table: 4 ways of 2^ROW_BITS rows of 576 bits, in one block memory (address: way, row).
//
// A lookup hashes the masked key, reads the four rows one after the other, and compares each with the key:
//
//   cycle    0  1  2  3 | 5  6  7  8 | 9 10 11 12 | 11 ... 14 | 12 ... 15 | 13 ... 16 | 17
//            products   | results    | reads      | rows      | 16-bit    | row hits, | hit
//            of pairs   |            | of ways    | registered| equality  | parity    | valid
//
// Guarantees (formal/exact_table.sv)
// * A row is written in one cycle, and a lookup reads a row in one cycle: it sees the old row or the new one.
// * A row hits only if it is valid, its parity is even over all 576 bits, its form is the port's, which is not 0, and all
//   512 bits of its key equal the masked key. Where two rows hit, the lower way does.
// * A row with wrong parity is a miss, and is counted once for each lookup that reads it.
// The user starts lookups at least 4 cycles apart, and writes only while none is under way.

`default_nettype none

module exact_table #(
    parameter ROW_BITS = 9,   // at most 16
    parameter GROUPS = 32,    // of 16 bits of the key; 32 but in proofs
    parameter KEY = 16 * GROUPS,
    parameter ROW = KEY + 64
) (
    input  wire                clk,
    input  wire                reset,
    input  wire [511:0]        keys,          // t0 in bits 63:0
    // Lookups.
    input  wire                start,
    input  wire                enable,        // false: read as always, and hit or count nothing
    input  wire [KEY-1:0]      key,           // masked; held from `start` for 4 cycles
    input  wire [3:0]          form,
    output reg                 done,          // in cycle 17: `hit` and `action` are valid
    output reg                 hit,
    output reg  [42:0]         action,        // mark, queue, override, drop, class as in the row, from bit 0
    output reg  [2:0]          parity_errors, // 0 to 4, in cycle 17
    // Writes.
    input  wire                write,
    input  wire [ROW_BITS+1:0] write_at,      // way, row
    input  wire [ROW-1:0]      write_row
);
    localparam LAST = 16;
    reg [LAST-1:0] walk;
    wire [LAST:0] at = {walk, start};
    always @(posedge clk) walk <= reset ? {LAST{1'b0}} : at[LAST-1:0];

    // Keys of lookups under way: the hash needs the first words for 4 cycles, the comparison all of them in cycle 11 to 14.
    reg [1:0] number, number_compared;
    wire [KEY+4:0] held;
    mem_lut #(.WIDTH(KEY + 5), .DEPTH_LOG2(2)) lookups (
        .clk(clk), .write(start), .write_at(number), .write_data({enable, form, key}),
        .read_at(number_compared), .read_data(held)
    );

    wire [63:0] mixed;
`ifdef PROOF
    (* anyseq *) wire [63:0] any_product;  // the proof holds for each hash
    assign mixed = any_product;
`else
    wire [1:0] pair = at[0] ? 2'd0 : at[1] ? 2'd1 : at[2] ? 2'd2 : 2'd3;
    wire [127:0] words = key[128 * pair +: 128] ^ keys[128 * pair +: 128];
    mixer pairs (.clk(clk), .one(words[63:0]), .two(words[127:64]), .out(mixed));
`endif
    reg [63:0] hash;
    reg [63:0] hashes;  // way 0 in the low 16 bits; moves one way on in each cycle

    reg [1:0] way;
    wire [ROW-1:0] row_read;
    mem_block #(.WIDTH(ROW), .DEPTH_LOG2(ROW_BITS + 2)) rows (
        .clk(clk), .write(write), .write_at(write_at), .write_data(write_row),
        .read(|at[12:9]), .read_at({way, hashes[ROW_BITS-1:0]}), .read_data(row_read)
    );
    reg [ROW-1:0] row;

    // Comparisons of 16 bits, 32 of them, and the parities of 36 groups of 16 bits.
    reg [GROUPS-1:0] equal;
    reg [GROUPS+3:0] odd;
    reg row_valid, row_enabled;
    reg [42:0] row_action;
    reg [3:0] row_form, held_form;
    reg row_hits, row_broken;
    reg [42:0] hit_action;
    integer i;
    always @(posedge clk) begin
        if (reset) number <= 2'd0;
        else if (start) number <= number + 1'b1;
        if (reset) number_compared <= 2'd0;
        else if (at[14]) number_compared <= number_compared + 1'b1;

        if (at[5]) hash <= mixed;
        if (at[6] || at[7]) hash <= hash ^ mixed;
        if (at[8]) hashes <= hash ^ mixed;
        else hashes <= hashes >> 16;
        way <= at[8] ? 2'd0 : way + 1'b1;

        row <= row_read;
        for (i = 0; i < GROUPS; i = i + 1) equal[i] <= row[6 + 16 * i +: 16] == held[16 * i +: 16];
        for (i = 0; i < GROUPS + 4; i = i + 1) odd[i] <= ^row[16 * i +: 16];
        row_valid <= row[0];
        row_form <= row[5:2];
        row_action <= row[KEY+48:KEY+6];
        held_form <= held[KEY+3:KEY];
        row_enabled <= held[KEY+4];

        row_hits <= row_enabled && row_valid && row_form == held_form && held_form != 0 && &equal && !(^odd);
        row_broken <= row_enabled && ^odd;
        hit_action <= row_action;

        // Way 0 is judged in cycle 13, way 3 in cycle 16.
        if (at[13] || (row_hits && !hit)) begin
            hit <= row_hits;
            action <= hit_action;
        end
        parity_errors <= (at[13] ? 3'd0 : parity_errors) + {2'd0, row_broken};
        done <= !reset && at[16];
    end

`ifdef PROOF
    // One arbitrary lookup is followed: what its four rows should give, from the rows as they leave the memory.
    (* anyseq *) wire follow;
    reg [4:0] age;                       // cycles since its start; 31 without one
    reg [KEY-1:0] followed_key;
    reg [3:0] followed_form;
    reg followed_enable;
    reg expected_hit;
    reg [42:0] expected_action;
    reg [2:0] expected_errors;
    integer p;
    reg [GROUPS+3:0] odd_groups;
    always @* for (p = 0; p < GROUPS + 4; p = p + 1) odd_groups[p] = ^row_read[16 * p +: 16];
    wire odd_row = ^odd_groups;
    wire good = followed_enable && row_read[0] && row_read[5:2] == followed_form && followed_form != 0 && !odd_row
             && row_read[KEY+5:6] == followed_key;
    reg [1:0] lookups_compared;          // started and not compared yet
    always @(posedge clk) begin
        if (age < 5'd20) age <= age + 1'b1;
        else if (start && follow) begin
            age <= 5'd1;
            followed_key <= key;
            followed_form <= form;
            followed_enable <= enable;
            expected_hit <= 1'b0;
            expected_errors <= 3'd0;
        end
        if (age >= 5'd10 && age <= 5'd13) begin
            if (good && !expected_hit) begin
                expected_hit <= 1'b1;
                expected_action <= row_read[KEY+48:KEY+6];
            end
            expected_errors <= expected_errors + {2'd0, followed_enable && odd_row};
        end
        if (reset) age <= 5'd31;
    end
    always @* begin
        lookups_compared = 2'd0;
        for (p = 1; p <= 14; p = p + 1) lookups_compared = lookups_compared + {1'b0, at[p]};
        if (!reset) begin
            // The user starts lookups at least four cycles apart.
            assume (!start || at[3:1] == 0);
            for (p = 1; p <= LAST - 3; p = p + 1) assert (!(at[p] && (at[p+1] || at[p+2] || at[p+3])));
            assert (number - number_compared == lookups_compared);
            if (age < LAST + 1) assert (at[age]);
            if (age == 5'd17) begin
                assert (done);
                assert (hit == expected_hit);
                if (hit) assert (action == expected_action);
                assert (parity_errors == expected_errors);
            end
        end
    end
`endif
endmodule
`default_nettype wire
