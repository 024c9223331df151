use super::{Config, read, schema, write};
use crate::screens::members;
use crate::theme::Theme;
use crate::view::tests::{broken, press};
use crate::view::text;

fn good(text: &str) -> Config {
    read::read(text, "console.toml").unwrap_or_else(|error| panic!("{error}"))
}

fn refused(text: &str, wanted: &str) {
    let message = read::read(text, "console.toml").expect_err(text).to_string();
    assert!(message.contains(wanted), "{text}\n{message}");
}

#[test]
fn a_printed_configuration_is_parsed_as_the_same() {
    assert_eq!(good(""), Config::default());
    let text = write::text(&Config::default());
    let whole = good(&text);
    assert_eq!(write::text(&whole), text);
    let other = good(
        "theme = \"16\"\n[keys]\nquit = [\"X\", \"'\", \"Ctrl-C\"]\nmark = []\n[members]\ncolumns = [\"STATE\", \"NAME\"]\n\
         sort = \"60s\"\nreverse = true\n[events]\ncolumns = [\"WHAT\"]",
    );
    assert_eq!(other.theme, Some(Theme::Ansi));
    assert_eq!(write::text(&good(&write::text(&other))), write::text(&other));
    assert_ne!(write::text(&other), text);
}

#[test]
fn clusters_have_names_of_the_users_own() {
    let text = "[contexts.prod]\nroot = \"/dev/shm/obol-1000\"\ntheme = \"light\"\nproduction = true\n\
         [contexts.'my lab']\nroot = \"/srv/o\"\ncluster = \"lab\"";
    let config = good(text);
    // In the order of their names.
    let [lab, prod] = &config.contexts[..] else { panic!("{:?}", config.contexts) };
    assert_eq!((prod.name.as_str(), prod.theme, prod.production), ("prod", Some(Theme::Light), true));
    assert_eq!(prod.location.cluster.as_str(), "default");
    assert_eq!((lab.name.as_str(), lab.location.cluster.as_str()), ("my lab", "lab"));
    assert_eq!(good(&write::text(&config)).contexts, config.contexts);
    for (wrong, said) in [
        ("[contexts.a]", "missing key contexts.a.root"),
        ("[contexts.a]\nroot = \"here\"", "2:8: the root of a context is an absolute path"),
        ("[contexts.a]\nroot = \"/x\"\ncluster = \"a/b\"", "3:11: contexts.a.cluster"),
        ("[contexts.a]\nroot = \"/x\"\nthem = \"dark\"", "did you mean contexts.a.theme?"),
        ("[contexts.\"\"]\nroot = \"/x\"", "the name of a context is a line"),
        ("[contexts]\na = 1", "contexts.a is the integer 1"),
    ] {
        refused(wrong, said);
    }
}

#[test]
fn a_column_is_found_by_its_former_name() {
    let former = good("[events]\ncolumns = [\"LEVEL\", \"WHAT\"]");
    assert_eq!(former, good("[events]\ncolumns = [\"DETECTOR\", \"WHAT\"]"));
    assert!(write::text(&former).contains("DETECTOR"));
}

#[test]
fn the_table_of_a_screen_is_found_by_its_former_name() {
    let former = good("[logs]\nsort = \"NAME\"\nreverse = true");
    assert_eq!(former, good("[stores]\nsort = \"NAME\"\nreverse = true"));
    assert!(write::text(&former).contains("[stores]"));
    refused("[logs]\nsort = \"NAME\"\n[stores]\nreverse = true", "unknown table [logs]");
}

#[test]
fn problems_are_reported_with_place_and_nearest_name() {
    let all = [
        ("theme = \"drak\"", "console.toml:1:9: theme is \"drak\", but must be one of auto, dark"),
        ("theme = \"drak\"", "did you mean dark?"),
        ("themes = \"dark\"", "1:1: unknown key themes; did you mean theme?"),
        ("[key]", "1:2: unknown table [key]; did you mean [keys]?"),
        ("[chaos]", "1:2: unknown table [chaos]"),
        ("members = 1", "1:11: members is the integer 1, but must be a table"),
        ("[keys]\nfreze = [\"f\"]", "2:1: unknown key keys.freze; did you mean keys.freeze?"),
        ("[keys]\nfreeze = \"f\"", "2:10: keys.freeze is the string \"f\", but must be an array"),
        ("[keys]\nfreeze = [\"space\"]", "2:11: keys.freeze is \"space\""),
        ("[keys]\nfreeze = [\"space\"]", "did you mean Space?"),
        (
            "[keys]\nfreeze = [\"1\"]",
            "2:11: keys.freeze is \"1\", but must be one of a character but no digit",
        ),
        ("[keys]\nfreeze = [3]", "2:11: keys.freeze is the integer 3, but must be a key"),
        (
            "[keys]\nfreeze = [\"q\"]",
            "2:11: a key has one action; give the other action other keys, or none; here q is of keys.freeze and of keys.quit",
        ),
        ("[keys]\nfreeze = [\"F5\"]\nrecord = [\"F5\"]", "3:11: a key has one action"),
        (
            "[keys]\nfreeze = [\"F5\", \"F5\"]",
            "2:17: a key has one action; give the other action other keys, or none; here F5 is twice",
        ),
        ("[keys]\nquit = []", "2:8: quit and abort-drill need a key"),
        ("[members]\ncolumn = []", "2:1: unknown key members.column; did you mean members.columns?"),
        (
            "[members]\ncolumns = []",
            "2:11: members.columns is an empty array, but must be an array with at least one column",
        ),
        ("[members]\ncolumns = [\"margin\"]", "did you mean MARGIN?"),
        ("[members]\ncolumns = [\"NAME\", \"NAME\"]", "2:20: a column is shown once"),
        ("[members]\nsort = \"NAMES\"", "2:8: members.sort is \"NAMES\""),
        ("[members]\nreverse = 1", "2:11: members.reverse is the integer 1, but must be true or false"),
        ("[events]\nsort = \"TIME\"", "2:1: unknown key events.sort"),
        ("[keys]\nfreeze = [", "syntax"),
    ];
    for (text, wanted) in all {
        refused(text, wanted);
    }
    let message = read::read("[keys]\na = 1\n[members]\nb = 1", "x").expect_err("both").to_string();
    assert_eq!(message.lines().count(), 2, "{message}");
}

#[test]
fn a_key_can_move_to_another_action() {
    let mut model = broken(120, 36);
    good("[keys]\nquit = [\"X\"]\nfreeze = [\"q\"]").apply(&mut model);
    press(&mut model, "q");
    assert!(model.frozen.is_some());
    assert!(text(&model).contains("q live again"), "{}", text(&model));
    press(&mut model, "q?");
    assert!(
        text(&model).lines().any(|line| line.contains("q ") && line.contains("freeze; polling continues"))
    );
    assert!(model.frozen.is_none());
}

#[test]
fn the_help_shows_the_keys_that_fit_and_actions_without_any() {
    let mut model = broken(120, 36);
    good("[keys]\npage-down = [\"Ctrl-F\", \"v\", \"PgDn\", \"F12\"]\nmark = []").apply(&mut model);
    press(&mut model, "?");
    let first = text(&model);
    press(&mut model, "?");
    let shown = first + &text(&model);
    assert!(shown.contains("Ctrl-F v    page down"), "{shown}");
    assert!(shown.contains("(none)      mark for comparison"), "{shown}");
}

#[test]
fn columns_and_order_are_as_configured() {
    let mut model = broken(120, 36);
    good("[members]\ncolumns = [\"STATE\", \"NAME\"]\nsort = \"NAME\"\nreverse = true").apply(&mut model);
    let shown = text(&model);
    let heads: Vec<&str> =
        shown.lines().find(|line| line.contains("STATE")).expect("heads").split_whitespace().collect();
    assert_eq!(heads[1..3], ["STATE", "vNAME"]);
    assert!(!shown.contains("MARGIN"));
    let first = shown.lines().skip_while(|line| !line.contains("STATE")).nth(1).expect("a row");
    assert!(first.contains("node-"), "{first}");
    press(&mut model, "s");
    assert_eq!(model.list(members::ID).sort, None, "the last of the two");
    assert_eq!(model.screen, members::ID);
}

#[test]
fn the_schema_has_exactly_the_known_names() {
    let schema = schema::schema();
    let table: toml::Table = write::text(&Config::default()).parse().expect("TOML");
    let names = |value: &serde_json::Value| -> Vec<String> {
        let mut all: Vec<String> =
            value["properties"].as_object().expect("an object").keys().cloned().collect();
        all.sort();
        all
    };
    let written = |table: &toml::Table| -> Vec<String> {
        let mut all: Vec<String> = table.keys().cloned().collect();
        all.sort();
        all
    };
    // Clusters have names of the user's own, so there are none by default.
    let known = names(&schema).into_iter().filter(|name| name != read::CONTEXTS);
    assert_eq!(known.collect::<Vec<_>>(), written(&table));
    let one = good("[contexts.a]\nroot = \"/x\"\ntheme = \"dark\"\n");
    let context = write::text(&one).parse::<toml::Table>().expect("TOML")[read::CONTEXTS]["a"].clone();
    let part = &schema["properties"][read::CONTEXTS]["additionalProperties"];
    assert_eq!(names(part), written(context.as_table().expect("a table")));
    assert_eq!(part["additionalProperties"], false);
    for (name, value) in &table {
        if let Some(inner) = value.as_table() {
            let part = &schema["properties"][name];
            assert_eq!(names(part), written(inner), "{name}");
            assert_eq!(part["additionalProperties"], false);
        }
    }
    let whole: serde_json::Value = serde_json::to_value(&table).expect("JSON");
    assert_eq!(schema["properties"]["keys"]["properties"]["quit"]["default"], whole["keys"]["quit"]);
    assert_eq!(
        schema["properties"]["members"]["properties"]["columns"]["default"],
        whole["members"]["columns"]
    );
}
