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
`ifdef PROOF_WATCHED
    wire [RULES_LOG2-1:0] rule_watched;
    wire [KEY-1:0] key_watched;
    wire [4*FOURS-1:0] column_watched;
    wire [42:0] action_watched;
`endif
    genvar group;
    generate
        for (group = 0; group < 4 * FOURS; group = group + 1) begin : g_group
            wire [3:0] value = write_value[4 * group +: 4];
            wire [3:0] mask = write_mask[4 * group +: 4];
            wire accepts = ((word_at ^ value) & mask) == 0;
`ifdef PROOF_WATCHED
            wire [RULES-1:0] watched_word;
`endif
            wire [RULES-1:0] old = words[RULES * group +: RULES];
            mem_lut #(.WIDTH(RULES), .DEPTH_LOG2(4)) rules (
                .clk(clk), .write(busy), .write_at(word_at), .write_data(accepts ? old | selected : old & ~selected),
                .read_at(busy ? word_at : key[4 * group +: 4]), .read_data(words[RULES * group +: RULES])
`ifdef PROOF_WATCHED
                , .watched_at(key_watched[4 * group +: 4]), .watched(watched_word)
`endif
            );
`ifdef PROOF_WATCHED
            assign column_watched[group] = watched_word[rule_watched];
`endif
        end
    endgenerate

    reg [2:0] walk;
    reg [FOURS*RULES-1:0] fours;
    reg [RULES-1:0] matched;
    reg [RULES_LOG2-1:0] lowest;
    reg any;
    wire [42:0] lowest_action;
    mem_lut #(.WIDTH(43), .DEPTH_LOG2(RULES_LOG2)) actions (
        .clk(clk), .write(write), .write_at(write_rule), .write_data(write_action),
        .read_at(lowest), .read_data(lowest_action)
`ifdef PROOF_WATCHED
        , .watched_at(rule_watched), .watched(action_watched)
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

`ifdef PROOF_WATCHED
    // One rule and one key are watched, any of them: the word that each memory keeps is that of the key's group. What the rule
    // was written with is kept beside the memories; they agree with it in each word that was written.
    wire [RULES_LOG2-1:0] rule = rule_watched;
    reg [KEY-1:0] value_kept, mask_kept;
    reg [42:0] action_kept;
    reg [RULES_LOG2-1:0] held_rule, lowest_was;
    reg [3:0] under_way, follows;
    reg [4:0] age;               // cycles since the last write; 16 is more
    reg exists;                  // the rule was written, and neither cleared nor begun to be written since
    always @(posedge clk) begin
        under_way <= reset ? 4'd0 : {under_way[2:0], start};
        follows <= reset ? 4'd0 : {follows[2:0], start && key == key_watched};
        lowest_was <= lowest;
        age <= reset ? 5'd16 : write ? 5'd0 : age == 16 ? 5'd16 : age + 1'b1;
        if (reset || ((write || clear) && write_rule == rule)) exists <= 1'b0;
        else if (age == 15 && held_rule == rule) exists <= 1'b1;
        if (write) held_rule <= write_rule;
        if (write && write_rule == rule) begin
            value_kept <= write_value;
            mask_kept <= write_mask;
            action_kept <= write_action;
        end
    end
    wire matches = exists && ((key_watched ^ value_kept) & mask_kept) == 0;
    integer p;
    always @* if (!reset) begin
        assume (!(write && clear) && !((write || clear) && (busy || start || under_way != 0)) && !(start && busy));
        // The user holds rule, value and mask.
        if (busy) begin
            assume (write_rule == held_rule);
            if (held_rule == rule) assume (write_value == value_kept && write_mask == mask_kept);
            assert (!valid[held_rule] && under_way == 0 && {1'b0, word_at} == age);
        end
        assert (age <= 16 && busy == (age < 16) && valid[rule] == exists);
        for (p = 0; p < 4 * FOURS; p = p + 1)
            if (valid[rule] || (busy && held_rule == rule && key_watched[4 * p +: 4] < word_at))
                assert (column_watched[p] == (((key_watched[4 * p +: 4] ^ value_kept[4 * p +: 4]) & mask_kept[4 * p +: 4]) == 0));
        if (valid[rule] || (busy && held_rule == rule)) assert (action_watched == action_kept);
        assert (walk == under_way[2:0] && done == under_way[3] && (follows & ~under_way) == 0);
        if (follows[0]) assert (all[rule] == matches);
        if (follows[1]) assert (matched[rule] == matches);
        if (follows[2]) begin
            if (matches) assert (any && lowest <= rule);
            if (any && lowest == rule) assert (matches);
        end
        // The guarantee: a rule that matches is the one that decides, or one below it does.
        if (follows[3]) begin
            assert (done);
            if (matches) assert (hit && lowest_was <= rule);
            if (hit && lowest_was == rule) assert (matches && action == action_kept);
        end
    end
`endif
endmodule
`default_nettype wire
