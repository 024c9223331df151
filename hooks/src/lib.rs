//! Hooks: commands and webhooks on what happens in a cluster.
//!
//! An [`Event`] is offered to a [`Dispatcher`], which has one queue and one thread for each hook of a
//! [`Config`]: a slow or unreachable receiver delays no other. A delivery that fails is repeated with
//! exponential back-off; one that is given up is kept in a file of [`dead`] letters.
//!
//! [`Event`]: obol_observe::incidents::event::Event

mod body;
mod config;
pub mod dead;
mod deliver;
mod dispatch;
mod failed;
mod lane;
mod letter_file;
mod program;
#[cfg(test)]
mod samples;
mod sign;
mod webhook;

pub use config::{Action, Body, Config, Hook};
pub use deliver::{Delivered, Receiver};
pub use dispatch::{Dispatcher, END_TIMEOUT};
pub use failed::Failed;
pub use lane::QUEUE_MAX;
pub use program::missing_program;
pub use sign::{SIGNATURE, signature, verify};
