//! The end of the macros of `tracing`: an event becomes a [`Line`] in the queue. There are no spans.

use crate::levels::Severity;
use crate::line::Line;
use crate::shared::Shared;
use obol_observe::calendar;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{Interest, Subscriber};
use tracing::{Event, Metadata};

pub(crate) struct Subscribed(pub(crate) Arc<Shared>);

impl Subscriber for Subscribed {
    /// Levels change while the process runs, so no answer is kept at the place of an event. Events are
    /// on cold paths only.
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && self.0.takes(module(metadata.target()), metadata.level().into())
    }

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        let severity = Severity::from(metadata.level());
        let module = Cow::Borrowed(module(metadata.target()));
        let mut line = Line::new(calendar::unix_now(), severity, self.0.process, module, String::new());
        event.record(&mut Fields(&mut line));
        self.0.offer(line);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The module of an event's target. Obol's own events have the name of a module; those of libraries
/// have a path, and its crate counts.
fn module(target: &str) -> &str {
    target.split("::").next().unwrap_or(target)
}

struct Fields<'a>(&'a mut Line);

impl Fields<'_> {
    fn put(&mut self, field: &Field, value: String) {
        if field.name() == "message" {
            self.0.text = value;
        } else {
            self.0.fields.push((Cow::Borrowed(field.name()), value));
        }
    }
}

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.to_owned());
    }
}
