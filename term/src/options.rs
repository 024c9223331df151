//! Values of options that say nothing of clusters.

/// A number of bytes with its unit: KB, MB, GB or TB, in powers of a thousand.
pub fn size(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u32); 4] = [("KB", 3), ("MB", 6), ("GB", 9), ("TB", 12)];
    let wrong = || format!("`{text}` is not a size such as 500MB or 4GB");
    let upper = text.to_ascii_uppercase();
    let unit = UNITS.iter().find_map(|(unit, power)| Some((upper.strip_suffix(unit)?, *power)));
    let (number, power) = unit.ok_or_else(wrong)?;
    let number: u64 = number.trim().parse().map_err(|_| wrong())?;
    number.checked_mul(10u64.pow(power)).filter(|bytes| *bytes > 0).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(size("500MB"), Ok(500_000_000));
        assert_eq!(size("4gb"), Ok(4_000_000_000));
        for wrong in ["", "4", "GB", "0GB", "-1GB", "1.5GB", "99999999999TB"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
