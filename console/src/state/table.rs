//! The state of a list: selection, order, filter. The selection follows the identity of a row, not
//! its place.

use crate::state::filter::Filter;
use std::cmp::Ordering;

/// A sort key. Missing values come last in either direction.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Key {
    Number(f64),
    Text(String),
    Missing,
}

impl Key {
    /// Compares two keys of one column.
    pub(crate) fn order(&self, other: &Self, reverse: bool) -> Ordering {
        let order = match (self, other) {
            (Self::Missing, Self::Missing) => return Ordering::Equal,
            (Self::Missing, _) => return Ordering::Greater,
            (_, Self::Missing) => return Ordering::Less,
            (Self::Number(a), Self::Number(b)) => a.total_cmp(b),
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            (Self::Number(_), Self::Text(_)) => Ordering::Less,
            (Self::Text(_), Self::Number(_)) => Ordering::Greater,
        };
        if reverse { order.reverse() } else { order }
    }
}

/// A list's state; `Id` identifies a row.
#[derive(Clone, Debug)]
pub(crate) struct List<Id> {
    /// The selected row.
    pub(crate) selected: Option<Id>,
    /// The sort column; `None` for the default order.
    pub(crate) sort: Option<usize>,
    /// Whether the column's default direction is reversed.
    pub(crate) reverse: bool,
    pub(crate) filter: Filter,
    /// The shown columns in order; `None` for all of them.
    pub(crate) columns: Option<Vec<usize>>,
}

impl<Id> List<Id> {
    /// An untouched list.
    pub(crate) const fn new() -> Self {
        Self { selected: None, sort: None, reverse: false, filter: Filter::none(), columns: None }
    }
}

impl<Id> Default for List<Id> {
    fn default() -> Self {
        Self::new()
    }
}

/// A movement of the selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Move {
    By(isize),
    First,
    Last,
    /// To the row at this place.
    To(usize),
}

impl<Id: Clone + PartialEq> List<Id> {
    /// The place of the selected row; 0 if it is not listed.
    pub(crate) fn place(&self, shown: &[Id]) -> usize {
        self.selected.as_ref().and_then(|id| shown.iter().position(|row| row == id)).unwrap_or(0)
    }

    /// Moves the selection; returns whether it changed.
    pub(crate) fn go(&mut self, to: Move, shown: &[Id]) -> bool {
        let Some(last) = shown.len().checked_sub(1) else { return false };
        let place = match to {
            Move::By(by) => self.place(shown).saturating_add_signed(by).min(last),
            Move::First => 0,
            Move::Last => last,
            Move::To(place) => place.min(last),
        };
        let before = self.selected.replace(shown[place].clone());
        before != self.selected
    }

    /// Like [`List::go`] for a list that shows its beginning: the first move selects the first row
    /// shown.
    pub(crate) fn begin(&mut self, to: Move, shown: &[Id]) -> bool {
        let is_there = self.selected.as_ref().is_some_and(|id| shown.contains(id));
        self.go(if is_there || matches!(to, Move::Last | Move::To(_)) { to } else { Move::First }, shown)
    }

    /// The shown columns, of this many, in order.
    pub(crate) fn shown(&self, columns: usize) -> Vec<usize> {
        self.columns.clone().unwrap_or_else(|| (0..columns).collect())
    }

    /// Sorts by the next shown column, and after the last by none.
    pub(crate) fn sort_next(&mut self, columns: usize) {
        let shown = self.shown(columns);
        let next =
            self.sort.map(|sort| shown.iter().position(|at| *at == sort).map_or(shown.len(), |at| at + 1));
        self.sort_by(shown.get(next.unwrap_or(0)).copied());
    }

    /// Sorts by this column in its default direction; by none in the default order.
    pub(crate) const fn sort_by(&mut self, column: Option<usize>) {
        (self.sort, self.reverse) = (column, false);
    }

    /// Sorts rows stably by the key of the sort column. `falls` states which columns are descending
    /// by default.
    pub(crate) fn arrange<Row>(
        &self,
        rows: &mut [Row],
        falls: impl Fn(usize) -> bool,
        key: impl Fn(usize, &Row) -> Key,
    ) {
        if let Some(column) = self.sort {
            let falls = falls(column) ^ self.reverse;
            rows.sort_by(|a, b| key(column, a).order(&key(column, b), falls));
        } else if self.reverse {
            rows.reverse();
        }
    }
}

/// The rows of the page of this height that contains `place`: whole pages, so that rows keep their
/// places; the last one is filled from the end.
pub(crate) fn page(place: usize, rows: usize, height: usize) -> std::ops::Range<usize> {
    if height == 0 {
        return 0..0;
    }
    let first = (place / height * height).min(rows.saturating_sub(height));
    first..(first + height).min(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_selection_follows_the_identity() {
        let mut list = List::default();
        assert!(list.go(Move::By(1), &["a", "b", "c"]));
        assert_eq!(list.selected, Some("b"));
        assert_eq!(list.place(&["c", "a", "b"]), 2);
        assert_eq!(list.place(&["x"]), 0, "it is gone, so the first is shown");
        assert_eq!(list.place(&["x", "b"]), 1, "it is back");
        assert!(list.go(Move::Last, &["a", "b", "c"]));
        assert!(!list.go(Move::By(5), &["a", "b", "c"]), "it is the last already");
        assert!(!list.go(Move::First, &[]));
        let mut list = List::default();
        assert!(list.begin(Move::By(1), &["a", "b"]) && list.selected == Some("a"));
        assert!(list.begin(Move::By(1), &["a", "b"]) && list.selected == Some("b"));
    }

    #[test]
    fn missing_values_come_last_in_either_direction() {
        let mut rows = [Key::Missing, Key::Number(2.0), Key::Number(1.0)];
        let mut list = List::<u8> { sort: Some(0), ..List::default() };
        list.arrange(&mut rows, |_| false, |_, row| row.clone());
        assert_eq!(rows, [Key::Number(1.0), Key::Number(2.0), Key::Missing]);
        list.reverse = true;
        list.arrange(&mut rows, |_| false, |_, row| row.clone());
        assert_eq!(rows, [Key::Number(2.0), Key::Number(1.0), Key::Missing]);
        list.arrange(&mut rows, |_| true, |_, row| row.clone());
        assert_eq!(rows, [Key::Number(1.0), Key::Number(2.0), Key::Missing], "the other way than it begins");
    }

    #[test]
    fn sorting_cycles_through_the_columns() {
        let mut list = List::<u8>::default();
        let mut sorts = Vec::new();
        for _ in 0..4 {
            list.sort_next(2);
            sorts.push(list.sort);
        }
        assert_eq!(sorts, [Some(0), Some(1), None, Some(0)]);
        list.columns = Some(vec![3, 1]);
        list.sort = None;
        let mut next = || {
            list.sort_next(4);
            list.sort
        };
        assert_eq!([next(), next(), next(), next()], [Some(3), Some(1), None, Some(3)], "as shown");
    }

    #[test]
    fn a_page_shows_the_place() {
        for rows in 0..30 {
            for height in 0..12 {
                for place in 0..rows {
                    let shown = page(place, rows, height);
                    assert!(shown.end <= rows && shown.len() <= height);
                    assert!(height == 0 || shown.contains(&place));
                    assert_eq!(shown.len(), height.min(rows), "no row is empty where there are more");
                }
            }
        }
    }
}
