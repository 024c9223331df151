//! Any file of several hosts is refused, or describes usable deployments.

use obol_fuzz::{Shape, Target, outcome};
use obol_node::Hosts;
use std::path::Path;

#[test]
fn hosts() {
    Target::new("hosts", Shape::Text, 6_000)
        .with_files(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/hosts"), ".toml")
        .run(|input| {
            let text = String::from_utf8_lossy(input);
            match Hosts::parse(&text, Path::new("hosts.toml")) {
                Ok(hosts) => {
                    let made = |at| match hosts.deployment(at, Path::new("hosts.toml")) {
                        Ok(deployment) => {
                            let config = deployment.config().map(|config| config.layout.bytes());
                            let view = deployment.genesis();
                            assert_eq!(obol_membership::View::from_frame(&view.to_frame()), Some(view));
                            outcome((deployment.names().len(), config.is_ok()))
                        }
                        Err(error) => outcome(error.to_string().len()),
                    };
                    (0..4).map(made).fold(0, u64::wrapping_add)
                }
                Err(error) => outcome(error.to_string().lines().count()),
            }
        });
}
