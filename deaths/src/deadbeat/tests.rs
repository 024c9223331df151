use super::raw::{CONFIGURE, GET_ABI, REGISTER, RawUdp, RawVerbs, UNREGISTER};
use super::*;
use core::mem::size_of;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};

fn udp(group: Ipv6Addr, port: u16) -> Destinations {
    Destinations { udp: Some(UdpGroup { group, port, interface: None, hops: 1 }), verbs: None }
}

fn group() -> Ipv6Addr {
    Ipv4Addr::new(239, 77, 1, 2).to_ipv6_mapped()
}

fn verbs(device: &str, group: &str) -> Destinations {
    let verbs = VerbsGroup {
        device: device.to_owned(),
        port: 1,
        gid_index: 1,
        group: group.parse().expect("an address"),
        qkey: 7,
        lid: 0,
        pkey_index: 0,
        flow_label: 0,
        service_level: 0,
        static_rate: 0,
        traffic_class: 0,
        hop_limit: 1,
    };
    Destinations { udp: None, verbs: Some(verbs) }
}

#[test]
fn layouts_are_the_headers() {
    macro_rules! fields {
        ($raw:ident, $c:literal: $($field:ident)*) => {{
            let mut text = format!("_Static_assert(sizeof({}) == {}, \"{}\");\n", $c, size_of::<$raw>(), $c);
            $(
                let at = core::mem::offset_of!($raw, $field);
                text += &format!(
                    "_Static_assert(offsetof({}, {f}) == {at}, \"{f}\");\n", $c, f = stringify!($field));
            )*
            text
        }};
    }
    let mut source = format!("#include <stddef.h>\n#include \"{}\"\n", header().display());
    source += &fields!(RawUdp, "struct deadbeat_udp": group interface port hops reserved);
    source += &fields!(RawVerbs, "struct deadbeat_verbs": device group port gid_index qkey flow_label lid pkey_index
        service_level static_rate traffic_class hop_limit);
    source += &fields!(RawConfiguration, "struct deadbeat_configuration": destinations udp verbs);
    source +=
        &fields!(RawRegistration, "struct deadbeat_registration": pid id dying_bytes dead_bytes dying dead);
    for (name, value) in [
        ("DEADBEAT_ABI", ABI),
        ("DEADBEAT_UDP", UDP),
        ("DEADBEAT_VERBS", VERBS),
        ("DEADBEAT_NOTICE_MAX", NOTICE_BYTES_MAX as u32),
        ("DEADBEAT_DEVICE_BYTES", DEVICE_NAME_BYTES as u32),
        ("DEADBEAT_GET_ABI", GET_ABI as u32),
        ("DEADBEAT_CONFIGURE", CONFIGURE as u32),
        ("DEADBEAT_REGISTER", REGISTER as u32),
        ("DEADBEAT_UNREGISTER", UNREGISTER as u32),
    ] {
        source += &format!("_Static_assert({name} == {value}u, \"{name}\");\n");
    }
    let compiler = Command::new("cc")
        .args(["-fsyntax-only", "-x", "c", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut compiler = match compiler {
        Ok(compiler) => compiler,
        Err(error) => {
            obol_checks::skipped("module-layouts", format_args!("there is no C compiler: {error}"));
            return;
        }
    };
    io::Write::write_all(&mut compiler.stdin.take().expect("piped"), source.as_bytes()).expect("written");
    let output = compiler.wait_with_output().expect("ended");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn header() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernel/deadbeat.h")
}

#[test]
fn without_the_module_the_error_says_what_to_load() {
    let error = Deadbeat::open_at(Path::new("/dev/no-such-device")).expect_err("absent");
    assert!(matches!(error, DeadbeatError::Absent { .. }), "{error:?}");
    assert!(error.to_string().contains("load the kernel module deadbeat"), "{error}");
}

#[test]
fn another_device_is_taken_for_another_version() {
    let error = Deadbeat::open_at(Path::new("/dev/null")).expect_err("not the module");
    assert!(matches!(error, DeadbeatError::Version { found: 0, wanted: ABI }), "{error:?}");
}

#[test]
fn destinations_must_be_multicast_groups() {
    let wrong = [
        Destinations::default(),
        udp(Ipv4Addr::LOCALHOST.to_ipv6_mapped(), 1),
        udp(Ipv6Addr::LOCALHOST, 1),
        udp(group(), 0),
        verbs("", "ff0e::1"),
        verbs(&"x".repeat(DEVICE_NAME_BYTES), "ff0e::1"),
        verbs("rxe0", "::ffff:10.0.0.1"),
    ];
    for destinations in wrong {
        let error = destinations.raw().err();
        assert!(matches!(error, Some(DeadbeatError::Destination { .. })), "{destinations:?}: {error:?}");
    }
    for right in
        [udp(group(), 1), udp("ff02::1".parse().expect("an address"), 9), verbs("rxe0", "::ffff:239.1.2.3")]
    {
        assert!(right.raw().is_ok(), "{right:?}");
    }
}

#[test]
fn an_unknown_interface_is_named() {
    let mut destinations = udp(group(), 1);
    destinations.udp.as_mut().expect("given").interface = Some("no-such-interface".to_owned());
    let error = destinations.raw().err().expect("unknown");
    assert!(error.to_string().contains("no-such-interface"), "{error}");
}

#[test]
fn an_ipv4_group_is_mapped() {
    let raw = udp(group(), 7).raw().expect("valid");
    assert_eq!(raw.udp.group, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 77, 1, 2]);
    assert_eq!((raw.destinations, raw.udp.port), (UDP, 7));
}

fn pidfd(pid: u32) -> OwnedFd {
    pidfd::open(pid).expect("it is opened")
}

#[test]
fn a_pidfd_resolves_to_its_process() {
    assert_eq!(pid_of(pidfd(std::process::id()).as_fd()).expect("found"), std::process::id());
    let mut child = Command::new("/bin/true").spawn().expect("runs");
    let fd = pidfd(child.id());
    child.wait().expect("reaped");
    assert!(matches!(pid_of(fd.as_fd()), Err(DeadbeatError::Dead)));
    let file = File::open("/dev/null").expect("opens");
    assert!(matches!(pid_of(file.as_fd()), Err(DeadbeatError::Kernel { .. })));
}
