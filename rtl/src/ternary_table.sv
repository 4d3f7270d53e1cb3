// The ternary table: RULES rules over 256 bits, stored transposed. For each of 64 groups of 4 bits of the key there is a
// memory of 16 words; bit r of word v says that rule r matches keys whose group has value v. A lookup reads one word of
// each group and combines them with AND; the lowest rule that is left decides.
//
//   cycle   0 reads | 1 AND of 4 groups | 2 AND of 16 | 3 lowest rule | 4 `hit`, `action` valid
//
// Guarantees (formal/ternary_table.sv)
// * `hit` is true exactly if a valid rule r has (key ^ value) & mask == 0; `action` is that of the lowest such r.
// * A rule is invalid from the first cycle of its write to its last: no lookup sees half of one.
// A write takes 16 cycles (`busy`), and one more. The user starts no lookup and no other write meanwhile.

`default_nettype none

module ternary_table #(
    parameter RULES_LOG2 = 5,
    parameter FOURS = 16,      // 16 bits of the key each; 16 but in proofs
    parameter KEY = 16 * FOURS
) (
    input  wire                  clk,
    input  wire                  reset,
    // Lookups.
    input  wire                  start,
    input  wire [KEY-1:0]        key,
    output reg                   done,
    output reg                   hit,
    output reg  [42:0]           action,
    // Writes.
    input  wire                  write,
    input  wire                  clear,        // makes the rule invalid, in one cycle
    input  wire [RULES_LOG2-1:0] write_rule,
    input  wire [KEY-1:0]        write_value,  // held while busy, as are mask and action
    input  wire [KEY-1:0]        write_mask,
    input  wire [42:0]           write_action,
    output reg                   busy
);
    localparam RULES = 1 << RULES_LOG2;
    reg [RULES-1:0] valid;
    reg [3:0] word_at;
    wire [RULES-1:0] selected = {{RULES-1{1'b0}}, 1'b1} << write_rule;

    wire [4*FOURS*RULES-1:0] words;
`ifdef PROOF_CONTENTS
    wire [64*FOURS*RULES-1:0] contents;
`endif
    genvar group;
    generate
        for (group = 0; group < 4 * FOURS; group = group + 1) begin : g_group
            wire [3:0] value = write_value[4 * group +: 4];
            wire [3:0] mask = write_mask[4 * group +: 4];
            wire accepts = ((word_at ^ value) & mask) == 0;
            wire [RULES-1:0] old = words[RULES * group +: RULES];
            mem_lut #(.WIDTH(RULES), .DEPTH_LOG2(4)) rules (
                .clk(clk), .write(busy), .write_at(word_at), .write_data(accepts ? old | selected : old & ~selected),
                .read_at(busy ? word_at : key[4 * group +: 4]), .read_data(words[RULES * group +: RULES])
`ifdef PROOF_CONTENTS
                , .contents(contents[16 * RULES * group +: 16 * RULES])
`endif
            );
        end
    endgenerate

    reg [2:0] walk;
    reg [FOURS*RULES-1:0] fours;
    reg [RULES-1:0] matched;
    reg [RULES_LOG2-1:0] lowest;
    reg any;
    wire [42:0] lowest_action;
`ifdef PROOF_CONTENTS
    wire [43*RULES-1:0] all_actions;
`endif
    mem_lut #(.WIDTH(43), .DEPTH_LOG2(RULES_LOG2)) actions (
        .clk(clk), .write(write), .write_at(write_rule), .write_data(write_action),
        .read_at(lowest), .read_data(lowest_action)
`ifdef PROOF_CONTENTS
        , .contents(all_actions)
`endif
    );
    integer i;
    reg [RULES-1:0] all;
    always @* begin
        all = valid;
        for (i = 0; i < FOURS; i = i + 1) all = all & fours[RULES * i +: RULES];
    end
    integer r;
    always @(posedge clk) begin
        walk <= reset ? 3'd0 : {walk[1:0], start};
        for (r = 0; r < FOURS; r = r + 1)
            fours[RULES * r +: RULES] <= words[RULES * (4 * r) +: RULES] & words[RULES * (4 * r + 1) +: RULES]
                                       & words[RULES * (4 * r + 2) +: RULES] & words[RULES * (4 * r + 3) +: RULES];
        matched <= all;
        any <= |matched;
        for (r = RULES - 1; r >= 0; r = r - 1) if (matched[r]) lowest <= r;
        done <= !reset && walk[2];
        hit <= any;
        action <= lowest_action;

        if (reset) begin
            valid <= {RULES{1'b0}};
            busy <= 1'b0;
        end else if (write) begin
            valid <= valid & ~selected;
            busy <= 1'b1;
            word_at <= 4'd0;
        end else if (clear) valid <= valid & ~selected;
        else if (busy) begin
            word_at <= word_at + 1'b1;
            if (word_at == 4'd15) begin
                busy <= 1'b0;
                valid <= valid | selected;
            end
        end
    end

`ifdef PROOF_CONTENTS
    // The rules as a list, and what a lookup of it finds. The memories agree with the list in each word that was written.
    reg [KEY*RULES-1:0] values, masks;
    reg [RULES_LOG2-1:0] held_rule;
    always @(posedge clk) if (write) held_rule <= write_rule;
    reg [3:0] under_way;
    integer p;
    always @(posedge clk) begin
        under_way <= reset ? 4'd0 : {under_way[2:0], start};
        if (write) begin
            values[KEY * write_rule +: KEY] <= write_value;
            masks[KEY * write_rule +: KEY] <= write_mask;
        end
    end
    // Words of the memories that were written and disagree with the list.
    wire [64*FOURS*RULES-1:0] wrong_words;
    genvar wp, wq, ww;
    generate
        for (wp = 0; wp < RULES; wp = wp + 1) begin : g_wrong_rule
            wire is_written = busy && held_rule == wp;
            for (wq = 0; wq < 4 * FOURS; wq = wq + 1) begin : g_wrong_group
                wire [3:0] v = values[KEY * wp + 4 * wq +: 4];
                wire [3:0] m = masks[KEY * wp + 4 * wq +: 4];
                for (ww = 0; ww < 16; ww = ww + 1) begin : g_wrong_word
                    wire [3:0] word = ww;
                    assign wrong_words[64 * FOURS * wp + 16 * wq + ww] = (valid[wp] || (is_written && word < word_at))
                        && contents[16 * RULES * wq + RULES * ww + wp] != (((word ^ v) & m) == 4'd0);
                end
            end
        end
    endgenerate
    reg [KEY-1:0] key_1, key_2, key_3, key_4;
    always @(posedge clk) begin
        key_1 <= key; key_2 <= key_1; key_3 <= key_2; key_4 <= key_3;
    end
    // Bit by bit, so that the expectation of each stage is a condition over the list.
    reg [RULES-1:0] stage_1, stage_2, stage_4;
    function [RULES-1:0] found(input [KEY-1:0] searched);
        for (p = 0; p < RULES; p = p + 1)
            found[p] = valid[p] && ((searched ^ values[KEY * p +: KEY]) & masks[KEY * p +: KEY]) == 0;
    endfunction
    always @* begin
        stage_1 = found(key_1);
        stage_2 = found(key_2);
        stage_4 = found(key_4);
        if (!reset) begin
            assume (!(write && clear) && !((write || clear) && (busy || start || under_way != 0)) && !(start && busy));
            // The user holds rule, value and mask.
            if (busy) begin
                assume (write_value == values[KEY * write_rule +: KEY]);
                assume (write_mask == masks[KEY * write_rule +: KEY]);
                assert (!valid[write_rule] && under_way == 0);
                assume (write_rule == held_rule);
            end
            assert (!(|wrong_words));
            assert (walk == under_way[2:0]);
            assert (done == under_way[3]);
            if (under_way[0]) assert ((all & valid) == stage_1);
            if (under_way[1]) assert (matched == stage_2);
            if (under_way[2]) begin
                assert (any == |found(key_3));
                if (any) assert (found(key_3) >> lowest & 1'b1);
                if (any) assert ((found(key_3) & ((1 << lowest) - 1)) == 0);
            end
            if (done) begin
                assert (hit == |stage_4);
                for (p = RULES - 1; p >= 0; p = p - 1)
                    if (stage_4[p] && (stage_4 & ((1 << p) - 1)) == 0) assert (action == all_actions[43 * p +: 43]);
            end
        end
    end
`endif
endmodule
`default_nettype wire
