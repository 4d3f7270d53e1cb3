//! The memory of parsers and transactions: the bytes that a value has allocated, so that a pool can charge them.

use std::collections::VecDeque;

/// A value that knows the bytes it has allocated.
pub trait Heap {
    /// Returns true if no value of the type allocates.
    fn is_flat() -> bool
    where
        Self: Sized,
    {
        false
    }

    /// Returns the bytes that the value has allocated, without those of the value itself.
    fn heap(&self) -> usize;
}

/// Implements [`Heap`] for types that never allocate.
macro_rules! flat {
    ($($name:ty),* $(,)?) => {
        $(impl $crate::app::heap::Heap for $name {
            fn is_flat() -> bool {
                true
            }

            fn heap(&self) -> usize {
                0
            }
        })*
    };
}
pub(crate) use flat;

/// Implements [`Heap`] for a structure by its fields that may allocate.
macro_rules! heap {
    ($name:ty { $($field:ident),* $(,)? }) => {
        impl $crate::app::heap::Heap for $name {
            fn heap(&self) -> usize {
                0 $(+ $crate::app::heap::Heap::heap(&self.$field))*
            }
        }
    };
}
pub(crate) use heap;

flat!(u8, u16, u32, u64, usize, bool, &'static str);

impl<T: Heap> Heap for Vec<T> {
    fn heap(&self) -> usize {
        let inner = match T::is_flat() {
            true => 0,
            false => self.iter().map(Heap::heap).sum(),
        };
        self.capacity() * size_of::<T>() + inner
    }
}

impl<T: Heap> Heap for VecDeque<T> {
    fn heap(&self) -> usize {
        let inner = match T::is_flat() {
            true => 0,
            false => self.iter().map(Heap::heap).sum(),
        };
        self.capacity() * size_of::<T>() + inner
    }
}

impl<T: Heap> Heap for Box<T> {
    fn heap(&self) -> usize {
        size_of::<T>() + (**self).heap()
    }
}

impl<T: Heap> Heap for Option<T> {
    fn is_flat() -> bool {
        T::is_flat()
    }

    fn heap(&self) -> usize {
        self.as_ref().map_or(0, Heap::heap)
    }
}

impl<T: Heap> Heap for [T; 2] {
    fn is_flat() -> bool {
        T::is_flat()
    }

    fn heap(&self) -> usize {
        self.iter().map(Heap::heap).sum()
    }
}

impl<A: Heap, B: Heap> Heap for (A, B) {
    fn is_flat() -> bool {
        A::is_flat() && B::is_flat()
    }

    fn heap(&self) -> usize {
        self.0.heap() + self.1.heap()
    }
}

impl<A: Heap, B: Heap, C: Heap> Heap for (A, B, C) {
    fn is_flat() -> bool {
        A::is_flat() && B::is_flat() && C::is_flat()
    }

    fn heap(&self) -> usize {
        self.0.heap() + self.1.heap() + self.2.heap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_inside_counts_and_the_value_itself_does_not() {
        let bytes = Vec::<u8>::with_capacity(100);
        assert_eq!((7_u64.heap(), bytes.heap()), (0, 100));
        let nested = vec![bytes, Vec::with_capacity(10)];
        assert_eq!(nested.heap(), 110 + nested.capacity() * size_of::<Vec<u8>>());
        assert_eq!(
            Some(Box::new((1_u8, Vec::<u16>::with_capacity(4)))).heap(),
            8 + size_of::<(u8, Vec<u16>)>()
        );
    }
}
