//! The rules that may match a packet, a window of a stream or a transaction.

/// A set of rules. Emptying it takes constant time: the marks of an earlier epoch do not count.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    pub(super) marks: Vec<u32>,
    pub(super) epoch: u32,
    pub(super) list: Vec<u32>,
}

impl Candidates {
    /// Empties the set.
    #[inline]
    pub(super) fn begin(&mut self) {
        self.list.clear();
        self.epoch = self.epoch.wrapping_add(1);
        if self.epoch == 0 {
            self.marks.fill(0);
            self.epoch = 1;
        }
    }

    /// Adds a rule.
    #[inline]
    pub(super) fn add(&mut self, rule: u32) {
        if self.mark(rule) {
            self.list.push(rule);
        }
    }

    /// Adds a rule if it passes a test, which runs only once for each rule. Returns true if the rule was
    /// added.
    #[inline]
    pub(super) fn add_if(&mut self, rule: u32, passes: impl Fn(u32) -> bool) -> bool {
        let is_added = self.mark(rule) && passes(rule);
        if is_added {
            self.list.push(rule);
        }
        is_added
    }

    /// Marks a rule. Returns false if it is marked already.
    #[inline]
    pub(super) fn mark(&mut self, rule: u32) -> bool {
        let at = rule as usize;
        if at >= self.marks.len() {
            self.marks.resize(at + 1, 0);
        }
        std::mem::replace(&mut self.marks[at], self.epoch) != self.epoch
    }
}
