//! Runs with pulses that once were false alarms.

use obol_campaign::run;
use obol_membership::ActiveMutant;

/// Pulses that a fault had delayed were on their way when a phase lost their path.
#[test]
fn a_lost_path_is_judged_once_all_earlier_pulses_have_arrived() {
    assert_eq!(run(638_551_603_025, ActiveMutant::NONE, false).violation, None);
}
