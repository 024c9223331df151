//! The mouse selects and opens rows, scrolls lists, changes screens, and sorts by the head of a
//! column. A click never confirms anything, so it cannot inject a fault.

use crate::input::{Action, Press};
use crate::state::mouse::Mouse;
use crate::state::table::Move;
use crate::state::{Effect, Mode, Model};
use crate::widgets::canvas::Hit;
use crate::{screens, view};

/// Rows per turn of the wheel.
const WHEEL: isize = 3;

impl Model {
    /// Handles a mouse event. Returns whether the screen changed.
    pub(super) fn click(&mut self, mouse: Mouse, effects: &mut Vec<Effect>) -> bool {
        let hit = match mouse {
            Mouse::Click(x, y) => view::hit(self, x, y),
            Mouse::Wheel(_) => None,
        };
        match (&self.mode, mouse, hit) {
            (Mode::Leaving | Mode::Confirm { .. }, ..) => false,
            (Mode::Logs, Mouse::Wheel(down), _) => {
                self.press(if down { Press::DOWN } else { Press::UP }, effects)
            }
            (Mode::Logs, ..) => false,
            (Mode::Typing { .. }, Mouse::Click(..), Some(Hit::Choice(at))) => {
                self.choice = Some(at);
                self.press(Press::ENTER, effects)
            }
            (Mode::Typing { .. }, Mouse::Wheel(down), _) => {
                self.press(if down { Press::DOWN } else { Press::UP }, effects)
            }
            (Mode::Typing { .. }, ..) => false,
            (Mode::Help, Mouse::Wheel(down), _) => {
                let last = view::help_pages(self).saturating_sub(1);
                let page =
                    if down { (self.help_page + 1).min(last) } else { self.help_page.saturating_sub(1) };
                std::mem::replace(&mut self.help_page, page) != page
            }
            (Mode::Help | Mode::Detail, Mouse::Click(..), _) => {
                self.mode = Mode::Normal;
                true
            }
            (_, Mouse::Wheel(down), _) => self.go(Move::By(if down { WHEEL } else { -WHEEL })),
            (Mode::Normal, _, Some(Hit::Screen(screen))) => {
                std::mem::replace(&mut self.screen, screen) != screen
            }
            (Mode::Normal, _, Some(Hit::Row(at))) => {
                let changed = self.go(Move::To(at));
                // A second click on a row opens it.
                changed || self.act(Action::Open, effects)
            }
            (Mode::Normal, _, Some(Hit::Head(column))) => {
                let screen = screens::shown(self);
                if !screen.about().can_sort {
                    return false;
                }
                if screen.list(self).sort == Some(column) {
                    self.reverse(effects);
                } else {
                    self.sort_by(Some(column), effects);
                }
                true
            }
            (Mode::Normal, _, Some(Hit::Choice(_)) | None) => false,
        }
    }
}
