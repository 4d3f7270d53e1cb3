// The sum of the halfwords at the front of 32 bytes, as the checksum of IPv4 needs it (RFC 1071), in two cycles.
//
//   cycle  0 slice, size | 1 sums of four halfwords | 2 `total` valid
//
// Guarantee: `total` is the sum of the first size / 2 halfwords of two cycles before, without a carry lost.

`default_nettype none

module ipv4_sum (
    input  wire         clk,
    input  wire [255:0] slice,  // the first byte is on the left
    input  wire [5:0]   size,   // bytes, even, at most 32
    output reg  [19:0]  total
);
    reg [71:0] quarters, next_quarters;
    integer group, word;
    always @* begin
        next_quarters = 72'd0;
        for (group = 0; group < 4; group = group + 1)
            for (word = 0; word < 4; word = word + 1)
                if (8 * group + 2 * word < size)
                    next_quarters[18 * group +: 18] = next_quarters[18 * group +: 18]
                                                    + {2'd0, slice[255 - 64 * group - 16 * word -: 16]};
    end
    always @(posedge clk) begin
        quarters <= next_quarters;
        total <= {2'd0, quarters[17:0]} + {2'd0, quarters[35:18]} + {2'd0, quarters[53:36]} + {2'd0, quarters[71:54]};
    end
endmodule
`default_nettype wire
