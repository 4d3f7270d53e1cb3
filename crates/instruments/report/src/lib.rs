//! Plots, tables and pages of measurements.
//!
//! A [`Section`] has a heading, HTML and plots; [`page`] puts sections on one HTML page that needs no other file.
//! [`plot`] draws as SVG, [`png`] turns plots into PNG files, [`html`] writes tables and escapes text, and [`stats`]
//! summarises measurements. Everything is a function of its arguments: no clock, no machine, no network (PNG files use
//! the fonts of the machine).

#![forbid(unsafe_code)]

pub mod html;
pub mod page;
pub mod plot;
pub mod png;
pub mod stats;

pub use page::{Document, Page, Section, page};
