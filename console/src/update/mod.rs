//! The reducer: how events change the console's state. It is deterministic; actions outside are
//! returned as effects.

mod act;
mod keys;
mod mouse;

use crate::state::{Effect, Event, Model};
use obol_fabric::Nanos;
use obol_observe::sampling::Update;
use std::sync::Arc;

impl Model {
    /// Handles an event. Returns whether the screen changed.
    pub(crate) fn reduce(&mut self, event: Event, effects: &mut Vec<Effect>) -> bool {
        match event {
            Event::Key(press) => self.press(press, effects),
            Event::Mouse(mouse) => self.click(mouse, effects),
            Event::Resize(width, height) => {
                std::mem::replace(&mut self.size, (width, height)) != (width, height)
            }
            Event::Background(light) => {
                let theme = if self.theme_follows { self.theme.on(light) } else { self.theme };
                std::mem::replace(&mut self.theme, theme) != theme
            }
            Event::Update(Update::Sample(sample)) => {
                let sample = Arc::new(*sample);
                self.now = sample.at.max(self.now);
                let found = self.lost.take().is_some();
                let before = std::mem::take(&mut self.live.alerts);
                self.live.take(Arc::clone(&sample));
                let is_new = |(name, _): &&(&str, String)| !before.iter().any(|(known, _)| known == name);
                if self.bell && self.live.alerts.iter().find(is_new).is_some() {
                    effects.push(Effect::Bell);
                }
                self.store.push(sample);
                self.frozen.is_none() || found
            }
            Event::Update(Update::Lost { why }) => {
                let changed = self.lost.as_ref() != Some(&why);
                self.lost = Some(why);
                changed
            }
            Event::Chaos(update) => self.take_drill_update(update),
            Event::Contexts(contexts) => {
                self.summaries = vec![None; contexts.len()];
                self.contexts = contexts;
                true
            }
            Event::Summary(at, found) => {
                let Some(known) = self.summaries.get_mut(at) else { return false };
                let found = Some(found);
                std::mem::replace(known, found.clone()) != found
            }
            Event::Logged(who, line) => {
                let logs = self.logs.as_mut().filter(|logs| logs.who == who);
                logs.map(|logs| logs.take(line)).is_some()
            }
            Event::Exported(how) => {
                self.note = Some(match how {
                    Ok(folder) => format!("the report and the screen are in {folder}/"),
                    Err(why) => format!("not exported: {why}"),
                });
                true
            }
            Event::Noted(how) => {
                self.note = Some(match how {
                    Ok(text) => format!("noted: {text}"),
                    Err(why) => format!("not annotated: {why}"),
                });
                true
            }
            Event::Recording(how) => {
                self.note = Some(match &how {
                    Ok(Some(file)) => format!("recording to {file}"),
                    Ok(None) => "the recording has ended".to_owned(),
                    Err(why) => format!("not recording: {why}"),
                });
                self.recording = how.ok().flatten();
                true
            }
            Event::Tick(now) if self.replay.is_some() => {
                self.now = now.max(self.now);
                self.advance()
            }
            Event::Tick(now) => {
                let before = self.stale();
                self.now = now.max(self.now);
                let shown = |age: Option<Nanos>| age.map(|age| age.0 / 1_000_000_000);
                shown(before) != shown(self.stale())
            }
        }
    }
}

#[cfg(test)]
mod tests;
