//! What hooks are called for.

use obol_fabric::Incarnation;
use obol_membership::{Kind, View};
use std::sync::Arc;

/// A call of a hook.
pub(super) enum Call {
    /// A view is active in which the program is a member.
    View { view: Arc<View>, own: Incarnation },
    /// The program is not a member any more, or is about to leave because it was asked to end.
    Lost { why: String, own: Incarnation },
}

impl Call {
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::View { .. } => "on-view",
            Self::Lost { .. } => "on-lost",
        }
    }
}

/// The applications of a view, oldest first.
pub(super) fn names(view: &View) -> String {
    let names: Vec<&str> = view.of_kind(Kind::App).map(|member| member.name.as_str()).collect();
    names.join(" ")
}
