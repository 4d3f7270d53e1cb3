//! Plots, tables and pages of measurements.
//!
//! A [`Section`] has a heading, HTML and plots; [`page()`] puts sections on one HTML page that needs no other file.
//! [`plot`] draws SVG, [`png`] turns plots into PNG files, [`html`] writes tables and escapes text, and [`stats`]
//! summarises measurements. All functions depend only on their arguments: no clock, no machine, no network. PNG files
//! use the fonts of the machine.
//!
//! ```text
//!  stats, escape <- plot (axis, svg <- boxes, curves, ratios, stages, flame) <- html <- page
//!                                                                             <- png
//! ```

#![forbid(unsafe_code)]

mod escape;
pub mod html;
pub mod page;
pub mod plot;
pub mod png;
pub mod stats;

pub use page::{Document, Page, Section, page};
