//! Counts the bytes that are in use.
#![allow(unsafe_code, reason = "an allocator can be written in no other way")]

use core::sync::atomic::{AtomicUsize, Ordering};
use std::alloc::{GlobalAlloc, Layout, System};

static USED: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, counted. The benchmark has one thread: a load and a store cost less than
/// an atomic addition.
#[derive(Debug)]
pub struct Counting;

// SAFETY: every call is passed on as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        add(layout.size().wrapping_neg());
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        add(size.wrapping_sub(layout.size()));
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(memory, layout, size) }
    }
}

fn add(bytes: usize) {
    USED.store(USED.load(Ordering::Relaxed).wrapping_add(bytes), Ordering::Relaxed);
}

/// Bytes asked for and not given back; what the allocator adds to each piece is not in it.
pub fn used() -> usize {
    USED.load(Ordering::Relaxed)
}
