//! The built-in profiles are valid, and the written form of a profile is the profile.

use obol_config::FileError;
use obol_fabric::{Layout, Nanos, Wait};
use obol_profiles::{BUILTIN, Profile, Scheduling};

#[test]
fn every_built_in_profile_is_read_and_survives_its_written_form() {
    for name in BUILTIN {
        let profile = Profile::builtin(name).expect("it is built in");
        assert_eq!(profile.name.as_str(), name);
        assert_eq!(Profile::parse(&profile.to_toml(), "written").as_ref(), Ok(&profile));
        assert_eq!(Profile::load(name), Ok(profile.clone()));
        let path = format!("{}/{name}.toml", env!("CARGO_MANIFEST_DIR"));
        assert_eq!(Profile::load(&path), Ok(profile.clone()));
        assert!(Layout::new(profile.limits).is_ok());
    }
    assert_eq!(Profile::default(), Profile::builtin("laptop").expect("it is built in"));
}

#[test]
fn values_arrive_where_they_belong() {
    let laptop = Profile::default();
    assert_eq!(laptop.timing.lease, Nanos::from_millis(20));
    assert_eq!(laptop.timing.renew_timeout, Nanos::from_millis(10));
    assert_eq!(laptop.timing.heartbeat_period, Nanos::from_millis(100));
    assert_eq!(laptop.timing.standby, Nanos::from_millis(200));
    assert_eq!(laptop.timing.drift_ppm, 200);
    assert!(laptop.timing.fencing);
    assert_eq!(laptop.limits.lanes, 48);
    assert_eq!(laptop.wait, Wait::Hybrid { yield_for: Nanos::from_micros(30) });
    assert_eq!(laptop.scheduling, Scheduling::Other);
    let dedicated = Profile::builtin("dedicated").expect("it is built in");
    assert_eq!(dedicated.timing.renew_every, Nanos::from_micros(250));
    assert_eq!(dedicated.wait, Wait::Block);
    assert_eq!(dedicated.scheduling, Scheduling::Fifo { priority: 10 });
    assert_eq!(dedicated.limits, laptop.limits);
}

#[test]
fn an_unknown_name_is_answered_with_the_nearest_and_the_list() {
    let refused = |name| Profile::load(name).expect_err(name).to_string();
    assert_eq!(
        refused("labtop"),
        "there is no built-in profile \"labtop\"; did you mean laptop? The built-in ones are laptop, dedicated, infiniband, roce, soft-roce, lan, cloud; a path has a '/' or \
         ends in .toml"
    );
    assert_eq!(
        refused("x"),
        "there is no built-in profile \"x\". The built-in ones are laptop, dedicated, infiniband, roce, soft-roce, lan, cloud; a path has a '/' or ends in .toml"
    );
}

#[test]
fn a_file_that_can_not_be_read_is_named() {
    let error = Profile::load("no/such.toml").expect_err("no such file");
    assert!(matches!(&error, FileError::Unreadable { path, .. } if path == "no/such.toml"), "{error:?}");
    assert!(error.to_string().starts_with("no/such.toml: "), "{error}");
    let error = Profile::load("/dev/zero").expect_err("endless");
    assert_eq!(error.to_string(), "/dev/zero: is a device, not a regular file");
}

#[test]
fn a_profile_without_pulses_is_as_it_was_and_one_with_them_survives_its_written_form() {
    let lan = Profile::builtin("lan").expect("it is built in");
    assert!(!lan.pulse.enabled && !lan.to_toml().contains("pulse"));
    let with = |rest: &str| Profile::parse(&format!("{}\n[pulse]\nmode = {rest}\n", lan.to_toml()), "t");
    let on = "\"on\"\nperiod = \"1ms\"\ntimeout = \"9ms\"\npaths = 2\npriority = 20";
    let pulsed = with(on).expect("valid");
    assert_eq!((pulsed.pulse.timeout, pulsed.pulse.priority), (Nanos::from_millis(9), Some(20)));
    assert_eq!(Profile::parse(&pulsed.to_toml(), "written"), Ok(pulsed));
    let refused = |rest: &str| with(rest).expect_err(rest).to_string();
    assert!(refused(&on.replace("9ms", "2ms")).contains("2ms is less than 3ms"));
    assert!(refused(&on.replace("paths = 2", "paths = 5")).contains("pulse.paths"));
    assert!(refused("\"on\"").contains("pulse.period"));
    assert!(refused("\"of\"").contains("off"));
}
