//! Every constant of a deployment, read from TOML and checked.
