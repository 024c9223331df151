//! Building blocks of screens: text and lines in cells, lists with columns, bars, charts.

pub(crate) mod bars;
pub(crate) mod canvas;
pub(crate) mod grid;
pub(crate) mod trend;
