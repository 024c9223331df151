//! What screens are drawn with: text and lines in cells, lists with columns, bars of a histogram.

pub(crate) mod bars;
pub(crate) mod canvas;
pub(crate) mod grid;
