//! Calls of PCRE2, with all unsafe code of the crate.

use std::ffi::{CStr, c_int};
use std::ptr::NonNull;

use pcre2_sys::{
    PCRE2_ANCHORED, PCRE2_CASELESS, PCRE2_DOLLAR_ENDONLY, PCRE2_DOTALL, PCRE2_ERROR_DEPTHLIMIT,
    PCRE2_ERROR_HEAPLIMIT, PCRE2_ERROR_JIT_STACKLIMIT, PCRE2_ERROR_MATCHLIMIT, PCRE2_ERROR_NOMATCH,
    PCRE2_EXTENDED, PCRE2_INFO_CAPTURECOUNT, PCRE2_INFO_FIRSTBITMAP, PCRE2_INFO_FIRSTCODETYPE,
    PCRE2_INFO_FIRSTCODEUNIT, PCRE2_JIT_COMPLETE, PCRE2_MULTILINE, PCRE2_UNGREEDY, PCRE2_UNSET,
    PCRE2_USE_OFFSET_LIMIT, pcre2_code_8, pcre2_code_free_8, pcre2_compile_8, pcre2_get_error_message_8,
    pcre2_get_ovector_pointer_8, pcre2_jit_compile_8, pcre2_jit_stack_8, pcre2_jit_stack_assign_8,
    pcre2_jit_stack_create_8, pcre2_jit_stack_free_8, pcre2_match_8, pcre2_match_context_8,
    pcre2_match_context_create_8, pcre2_match_context_free_8, pcre2_match_data_8, pcre2_match_data_create_8,
    pcre2_match_data_free_8, pcre2_pattern_info_8, pcre2_set_depth_limit_8, pcre2_set_heap_limit_8,
    pcre2_set_match_limit_8, pcre2_set_offset_limit_8, pcre2_substring_number_from_name_8,
};

use crate::{CompileError, Flags, GROUPS, Limits, Outcome};

/// Number of places that a match leaves: its own, and those of groups.
const PAIRS: usize = 1 + GROUPS as usize;

/// Size of the stack of JIT code at its start, in bytes.
const JIT_STACK_START: usize = 32 << 10;
/// Largest size of the stack of JIT code, in bytes.
const JIT_STACK: usize = 512 << 10;

/// Steps at one position of the subject below which a search costs next to nothing: almost all searches stay below.
const FEW: u32 = 32;
/// Steps at one position that are tried next.
const SOME: u32 = 512;
/// Bytes of a subject that one step may visit, and that count as one step of the budget.
const BYTES_PER_STEP: usize = 64;
/// Largest number of bytes that the steps at one position may visit together, unless they are [`SOME`] steps.
const BYTES_AT_POSITION: usize = 1_400_000;

/// The bytes with which a match of an expression can begin.
#[derive(Debug)]
enum First {
    Any,
    /// This byte; a letter in either case, because PCRE2 does not tell whether its case counts.
    Byte(u8),
    /// A bit for each byte.
    Set([u8; 32]),
}

/// A compiled expression.
#[derive(Debug)]
pub struct Regex {
    code: NonNull<pcre2_code_8>,
    first: First,
    /// The number of its groups. A match leaves the places of groups that the expression does not have as they were.
    groups: u32,
}

// SAFETY: PCRE2 does not change compiled code after `pcre2_jit_compile`, which `Regex::new` calls before it returns
// (pcre2api(3), "Multithreading").
unsafe impl Send for Regex {}
// SAFETY: As above; matches keep their state in a `Scratch`, which is borrowed mutably.
unsafe impl Sync for Regex {}

impl Regex {
    /// Compiles an expression over bytes.
    ///
    /// # Errors
    /// Returns the offset and the message of PCRE2 if the expression is not valid.
    pub fn new(pattern: &[u8], flags: Flags) -> Result<Regex, CompileError> {
        let options = [
            (flags.caseless, PCRE2_CASELESS),
            (flags.dot_all, PCRE2_DOTALL),
            (flags.multiline, PCRE2_MULTILINE),
            (flags.extended, PCRE2_EXTENDED),
            (flags.anchored, PCRE2_ANCHORED),
            (flags.dollar_end_only, PCRE2_DOLLAR_ENDONLY),
            (flags.ungreedy, PCRE2_UNGREEDY),
        ];
        let options = options
            .into_iter()
            .filter(|(is_set, _)| *is_set)
            .fold(PCRE2_USE_OFFSET_LIMIT, |all, (_, option)| all | option);
        let mut error: c_int = 0;
        let mut offset = 0;
        // SAFETY: The pattern is `len` readable bytes, both results are written to live variables, and a null context
        // is the default one (pcre2_compile(3)).
        let code = unsafe {
            pcre2_compile_8(
                pattern.as_ptr(),
                pattern.len(),
                options,
                &mut error,
                &mut offset,
                std::ptr::null_mut(),
            )
        };
        let Some(code) = NonNull::new(code) else {
            return Err(CompileError::Syntax {
                offset,
                message: message(error),
            });
        };
        // SAFETY: `code` is the result of a successful `pcre2_compile`. If there is no JIT, matches interpret the code.
        let _ = unsafe { pcre2_jit_compile_8(code.as_ptr(), PCRE2_JIT_COMPLETE) };
        Ok(Regex {
            code,
            first: first(code),
            groups: groups(code),
        })
    }

    /// Searches the subject from `start`. Look-behinds and anchors also see the bytes before `start`.
    ///
    /// PCRE2 counts its steps anew at each position at which a match may begin, and a step may visit the whole subject. A
    /// search that exceeds a small limit is therefore continued position by position: the steps of each position, weighted by
    /// the size of the subject, count towards the budget of the scratch, and large subjects have a lower limit.
    pub fn find(&self, scratch: &mut Scratch, subject: &[u8], start: usize) -> Outcome {
        if start > subject.len() {
            return Outcome::NoMatch;
        }
        if !scratch.spend(1) {
            return Outcome::Limit;
        }
        scratch.set_limits(FEW.min(scratch.limits.matches), None);
        match self.search(scratch, subject, start) {
            Found::Outcome(outcome) => outcome,
            Found::StepLimit if FEW >= scratch.limits.matches => Outcome::Limit,
            Found::StepLimit => self.find_by_position(scratch, subject, start),
        }
    }

    /// Returns start and end of the first group of the first match; `None` if there is no match, no group, or no result within
    /// the limits.
    pub fn find_group(&self, scratch: &mut Scratch, subject: &[u8]) -> Option<(usize, usize)> {
        if self.groups == 0 {
            return None;
        }
        match self.find(scratch, subject, 0) {
            Outcome::Match { .. } => {}
            Outcome::NoMatch | Outcome::Limit => return None,
        }
        self.group(scratch, 1, subject.len())
    }

    /// Returns the number of groups.
    pub fn groups(&self) -> u32 {
        self.groups
    }

    /// Returns the number of the group with a name.
    pub fn group_of(&self, name: &CStr) -> Option<u32> {
        // SAFETY: The code is live, and the name ends with a zero.
        let number = unsafe { pcre2_substring_number_from_name_8(self.code.as_ptr(), name.as_ptr().cast()) };
        u32::try_from(number).ok()
    }

    /// Returns start and end of a group of the last match in `scratch`, which this expression found in a subject of `size` bytes;
    /// `None` if the group has no part in the match, or is none of the first [`GROUPS`].
    pub fn group(&self, scratch: &Scratch, number: u32, size: usize) -> Option<(usize, usize)> {
        if number == 0 || number > self.groups.min(GROUPS) {
            return None;
        }
        let [start, end] = scratch.pairs()[number as usize];
        (start != PCRE2_UNSET && end != PCRE2_UNSET && start <= end && end <= size).then_some((start, end))
    }

    /// Returns true if a match can begin at a position.
    fn can_begin(&self, subject: &[u8], at: usize) -> bool {
        match (&self.first, subject.get(at)) {
            (First::Any, _) => true,
            (_, None) => false,
            (First::Byte(first), Some(byte)) => first.eq_ignore_ascii_case(byte),
            (First::Set(set), Some(byte)) => set[usize::from(byte / 8)] & 1 << (byte % 8) != 0,
        }
    }

    /// Searches the subject, one position after the other.
    #[cold]
    pub(crate) fn find_by_position(&self, scratch: &mut Scratch, subject: &[u8], start: usize) -> Outcome {
        let size = subject.len() - start;
        let weight = 1 + (size / BYTES_PER_STEP) as u64;
        let most = u32::try_from(BYTES_AT_POSITION / size.max(1)).unwrap_or(u32::MAX);
        let most = scratch.limits.matches.min(most.max(SOME));
        // Each limit with what it takes from the budget.
        let limits = [
            (FEW, 1),
            (SOME, u64::from(SOME) * weight),
            (most, u64::from(most) * weight),
        ];
        for at in (start..=subject.len()).filter(|at| self.can_begin(subject, *at)) {
            let mut outcome = Found::StepLimit;
            for (limit, steps) in limits {
                if !scratch.spend(steps) {
                    return Outcome::Limit;
                }
                scratch.set_limits(limit.min(most), Some(at));
                outcome = self.search(scratch, subject, at);
                if matches!(outcome, Found::Outcome(_)) {
                    break;
                }
            }
            match outcome {
                Found::Outcome(Outcome::NoMatch) => {}
                Found::Outcome(outcome) => return outcome,
                Found::StepLimit => return Outcome::Limit,
            }
        }
        Outcome::NoMatch
    }

    /// Searches the subject with the limits of the context.
    fn search(&self, scratch: &mut Scratch, subject: &[u8], start: usize) -> Found {
        // SAFETY: The subject is `len` readable bytes, `start` is at most `len`, and code, data and context are live.
        let result = unsafe {
            pcre2_match_8(
                self.code.as_ptr(),
                subject.as_ptr(),
                subject.len(),
                start,
                0,
                scratch.data.as_ptr(),
                scratch.context.as_ptr(),
            )
        };
        match result {
            0.. => {
                let (start, end) = scratch.first_pair();
                // `\K` in a look-ahead can set the start of a match after its end (pcre2pattern(3)).
                Found::Outcome(Outcome::Match {
                    start: start.min(end),
                    end: start.max(end),
                })
            }
            PCRE2_ERROR_NOMATCH => Found::Outcome(Outcome::NoMatch),
            PCRE2_ERROR_MATCHLIMIT => Found::StepLimit,
            PCRE2_ERROR_DEPTHLIMIT | PCRE2_ERROR_HEAPLIMIT | PCRE2_ERROR_JIT_STACKLIMIT => {
                Found::Outcome(Outcome::Limit)
            }
            // After any other error (no memory, broken code) there is no result either.
            _ => Found::Outcome(Outcome::Limit),
        }
    }
}

/// The result of one call of PCRE2.
#[derive(Debug, Clone, Copy)]
enum Found {
    Outcome(Outcome),
    /// The limit on steps at one position was exceeded.
    StepLimit,
}

/// Returns the number of groups.
fn groups(code: NonNull<pcre2_code_8>) -> u32 {
    let mut groups = 0u32;
    // SAFETY: The code is live, and this item is a 32-bit number (pcre2_pattern_info(3)).
    unsafe { pcre2_pattern_info_8(code.as_ptr(), PCRE2_INFO_CAPTURECOUNT, (&raw mut groups).cast()) };
    groups
}

/// Returns the bytes with which a match can begin, as far as PCRE2 knows them.
fn first(code: NonNull<pcre2_code_8>) -> First {
    let mut kind = 0u32;
    // SAFETY: The code is live, and this item is a 32-bit number (pcre2_pattern_info(3)).
    unsafe { pcre2_pattern_info_8(code.as_ptr(), PCRE2_INFO_FIRSTCODETYPE, (&raw mut kind).cast()) };
    if kind == 1 {
        let mut byte = 0u32;
        // SAFETY: As above.
        unsafe { pcre2_pattern_info_8(code.as_ptr(), PCRE2_INFO_FIRSTCODEUNIT, (&raw mut byte).cast()) };
        return u8::try_from(byte).map_or(First::Any, First::Byte);
    }
    let mut set: *const u8 = std::ptr::null();
    // SAFETY: The code is live, and this item is a pointer (pcre2_pattern_info(3)).
    unsafe { pcre2_pattern_info_8(code.as_ptr(), PCRE2_INFO_FIRSTBITMAP, (&raw mut set).cast()) };
    if set.is_null() {
        return First::Any;
    }
    // SAFETY: A pointer that is not null leads to a table of 32 bytes in the code (pcre2_pattern_info(3)).
    First::Set(unsafe { set.cast::<[u8; 32]>().read() })
}

impl Drop for Regex {
    fn drop(&mut self) {
        // SAFETY: `code` comes from `pcre2_compile`, is freed once, and no match runs while it is dropped.
        unsafe { pcre2_code_free_8(self.code.as_ptr()) };
    }
}

/// Memory of matches: result, limits and the stack of JIT code.
#[derive(Debug)]
pub struct Scratch {
    data: NonNull<pcre2_match_data_8>,
    context: NonNull<pcre2_match_context_8>,
    stack: NonNull<pcre2_jit_stack_8>,
    limits: Limits,
    /// Steps that searches may still take; each search that needs more ends at the limit.
    pub steps_left: u64,
}

// SAFETY: The three objects belong to this scratch alone; PCRE2 binds none of them to a thread.
unsafe impl Send for Scratch {}

impl Scratch {
    /// Returns a scratch with limits. The process ends if there is no memory, as for every other allocation.
    pub fn new(limits: Limits) -> Scratch {
        // SAFETY: A null context means the default memory functions.
        let data = unsafe { pcre2_match_data_create_8(PAIRS as u32, std::ptr::null_mut()) };
        // SAFETY: As above.
        let context = unsafe { pcre2_match_context_create_8(std::ptr::null_mut()) };
        // SAFETY: As above; the sizes are positive and in order.
        let stack = unsafe { pcre2_jit_stack_create_8(JIT_STACK_START, JIT_STACK, std::ptr::null_mut()) };
        let parts = (NonNull::new(data), NonNull::new(context), NonNull::new(stack));
        let (Some(data), Some(context), Some(stack)) = parts else {
            std::alloc::handle_alloc_error(std::alloc::Layout::new::<[u8; JIT_STACK_START]>());
        };
        let scratch = Scratch {
            data,
            context,
            stack,
            limits,
            steps_left: u64::MAX,
        };
        // SAFETY: The context is live; the limits are plain numbers.
        unsafe { pcre2_set_match_limit_8(context.as_ptr(), limits.matches) };
        // SAFETY: As above.
        unsafe { pcre2_set_depth_limit_8(context.as_ptr(), limits.depth) };
        // SAFETY: As above.
        unsafe { pcre2_set_heap_limit_8(context.as_ptr(), limits.heap_kib) };
        // SAFETY: The stack lives as long as the context: `drop` frees both.
        unsafe { pcre2_jit_stack_assign_8(context.as_ptr(), None, stack.as_ptr().cast()) };
        scratch
    }

    /// Takes steps from the budget. Returns false if it has fewer.
    fn spend(&mut self, steps: u64) -> bool {
        let is_enough = steps <= self.steps_left;
        self.steps_left = self.steps_left.saturating_sub(steps);
        is_enough
    }

    /// Sets the limit on steps at a position, and the last position at which a match may begin.
    fn set_limits(&mut self, steps: u32, last: Option<usize>) {
        // SAFETY: The context is live; the limit is a plain number.
        unsafe { pcre2_set_match_limit_8(self.context.as_ptr(), steps) };
        // SAFETY: As above.
        unsafe { pcre2_set_offset_limit_8(self.context.as_ptr(), last.unwrap_or(PCRE2_UNSET)) };
    }

    /// Returns start and end of the last match.
    fn first_pair(&self) -> (usize, usize) {
        let [[start, end], ..] = self.pairs();
        (start, end)
    }

    /// Returns start and end of the last match, and those of its groups; [`PCRE2_UNSET`] for a group without a match.
    fn pairs(&self) -> [[usize; 2]; PAIRS] {
        // SAFETY: The data were created with this number of pairs, of which a successful match has set those that it has.
        let pairs = unsafe { pcre2_get_ovector_pointer_8(self.data.as_ptr()) };
        // SAFETY: The pointer leads to the numbers of these pairs, which live as long as the data.
        unsafe { pairs.cast::<[[usize; 2]; PAIRS]>().read() }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: Each object comes from its constructor and is freed once.
        unsafe { pcre2_match_data_free_8(self.data.as_ptr()) };
        // SAFETY: As above.
        unsafe { pcre2_match_context_free_8(self.context.as_ptr()) };
        // SAFETY: As above; the context that used the stack is gone.
        unsafe { pcre2_jit_stack_free_8(self.stack.as_ptr()) };
    }
}

/// Returns the message of an error number.
fn message(error: c_int) -> String {
    let mut text = [0u8; 256];
    // SAFETY: The buffer is `len` writable bytes; PCRE2 ends the text with a zero within them.
    let size = unsafe { pcre2_get_error_message_8(error, text.as_mut_ptr(), text.len()) };
    let size = usize::try_from(size).unwrap_or(0).min(text.len());
    String::from_utf8_lossy(&text[..size]).into_owned()
}
