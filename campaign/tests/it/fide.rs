//! The reproduction of FiDe's tables: what is claimed in docs/papers/fide.md.

use obol_campaign::papers::{Part, Reproduction, Row, fide};
use obol_fide::perfect::{Hsuc, Huc, timed};

fn part<'r>(reproduction: &'r Reproduction, name: &str) -> &'r Part {
    reproduction.parts.iter().find(|part| part.name.starts_with(name)).expect("a part")
}

fn off(row: &Row) -> f64 {
    row.deviation_percent.expect("published").abs()
}

#[test]
fn tables_1_and_3_and_appendix_c_are_within_ten_percent() {
    let reproduction = fide(1);
    for (name, rows) in [("Table 1", 2), ("Table 3", 8), ("Appendix C", 3)] {
        let part = part(&reproduction, name);
        assert_eq!(part.rows.len(), rows, "{name}");
        for row in &part.rows {
            assert!(off(row) <= 10.0, "{name}: {row:?}");
        }
    }
}

#[test]
fn a_figure_that_is_off_by_more_than_ten_percent_has_a_reason() {
    for part in &fide(1).parts {
        for row in part.rows.iter().filter(|row| off(row) > 10.0) {
            assert!(!row.note.is_empty(), "{}: {row:?}", part.name);
        }
    }
}

#[test]
fn polling_takes_nearly_two_timeouts() {
    let reproduction = fide(1);
    let most = part(&reproduction, "Table 2").rows.iter().map(|row| row.found).fold(0.0, f64::max);
    assert!((88.0..96.0).contains(&most), "{most}");
}

#[test]
fn messages_grow_linearly() {
    for processes in 2..=8_u8 {
        let others = u32::from(processes) - 1;
        assert_eq!(timed::<Huc>(processes, || 1).messages, 2 * others);
        assert_eq!(timed::<Hsuc>(processes, || 1).messages, 3 * others);
    }
}

#[test]
fn the_same_seed_gives_the_same_figures() {
    assert_eq!(fide(7), fide(7));
}
