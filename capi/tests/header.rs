//! The shipped header is the generated one.

use cbindgen::{Builder, Config, EnumConfig, ExportConfig, FunctionConfig, Language, RenameRule, Style};
use std::path::Path;

/// The types, by their names in Rust and in C.
const TYPES: [(&str, &str); 25] = [
    ("App", "obol_app"),
    ("Failure", "obol_failure"),
    ("Failures", "obol_failures"),
    ("Kind", "obol_kind"),
    ("Reason", "obol_reason"),
    ("Member", "obol_member"),
    ("OnCommit", "obol_on_commit"),
    ("OnLoad", "obol_on_load"),
    ("OnLoadAbandon", "obol_on_load_abandon"),
    ("OnLoadBegin", "obol_on_load_begin"),
    ("OnLoadCommit", "obol_on_load_commit"),
    ("OnLoadPart", "obol_on_load_part"),
    ("OnRead", "obol_on_read"),
    ("OnSave", "obol_on_save"),
    ("OnSaveBegin", "obol_on_save_begin"),
    ("OnSaveEnd", "obol_on_save_end"),
    ("OnSavePart", "obol_on_save_part"),
    ("OnWork", "obol_on_work"),
    ("Output", "obol_output"),
    ("Parts", "obol_parts"),
    ("Replica", "obol_replica"),
    ("Service", "obol_service"),
    ("Status", "obol_status"),
    ("View", "obol_view"),
    ("Views", "obol_views"),
];

const HEAD: &str = "/* libobol: membership for programs in C and C++. Link with `pkg-config --libs obol`.\n\
    \x20* Generated from the Rust sources by the test `header`; do not edit. */";

#[test]
fn the_header_is_up_to_date() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let rename = TYPES.map(|(rust, c)| (rust.to_owned(), c.to_owned())).into_iter().collect();
    let config = Config {
        language: Language::C,
        style: Style::Both,
        cpp_compat: true,
        documentation: true,
        usize_is_size_t: true,
        include_guard: Some("OBOL_H".to_owned()),
        header: Some(HEAD.to_owned()),
        export: ExportConfig { rename, ..ExportConfig::default() },
        enumeration: EnumConfig {
            prefix_with_name: true,
            rename_variants: RenameRule::ScreamingSnakeCase,
            ..EnumConfig::default()
        },
        function: FunctionConfig::default(),
        ..Config::default()
    };
    let mut made = Vec::new();
    let builder = Builder::new().with_config(config).with_crate(here);
    builder.generate().expect("the sources can be read").write(&mut made);
    let made = String::from_utf8(made).expect("text");
    let path = here.join("include/obol.h");
    if std::env::var_os("OBOL_WRITE_HEADER").is_some() {
        std::fs::write(&path, &made).expect("written");
    }
    let shipped = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        shipped == made,
        "{} is out of date; regenerate it with OBOL_WRITE_HEADER=1 cargo test -p obol-capi --test header",
        path.display()
    );
}
